/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/msg.h"

#include "daemon/auth/owner.h"
#include "daemon/rpc/msg_network.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/grant.h"
#include "proto/base/str.h"

#define NANOS_PER_MS 1000000
#define NANOS_PER_S  1000000000
#define SECONDS_MAX  253402300799ll	/* year 9999, the last of a Timestamp */

bool msg_read_duration(const msg_duration *d, const char *field, bool zero_ok, uint64_t *ret_ms,
		       struct status *st)
{
	uint64_t ms;

	if (!d)
		return true;
	if (d->nanos <= -NANOS_PER_S || d->nanos >= NANOS_PER_S || (d->seconds > 0 && d->nanos < 0) ||
	    (d->seconds < 0 && d->nanos > 0)) {
		status_field(st, field, "is not a valid duration");
		return false;
	}
	if (d->seconds < 0 || d->nanos < 0) {
		status_field(st, field, "must not be negative");
		return false;
	}
	if (!d->seconds && !d->nanos && !zero_ok) {
		status_field(st, field, "must not be zero; leave it unset for the default");
		return false;
	}
	if (d->seconds > (int64_t)(MSG_DURATION_MAX_MS / 1000)) {
		status_field(st, field, "must not be more than 30 days");
		return false;
	}
	ms = (uint64_t)d->seconds * 1000 + (uint64_t)(d->nanos + NANOS_PER_MS - 1) / NANOS_PER_MS;
	if (ms > MSG_DURATION_MAX_MS) {
		status_field(st, field, "must not be more than 30 days");
		return false;
	}
	*ret_ms = ms;
	return true;
}

bool msg_read_required(const msg_duration *d, const char *field, uint64_t *ret_ms, struct status *st)
{
	if (!d)
		status_field(st, field, "is required");
	else if (!d->seconds && !d->nanos)
		status_field(st, field, "must not be zero");
	else
		return msg_read_duration(d, field, false, ret_ms, st);
	return false;
}

bool msg_read_time(const msg_timestamp *t, const char *field, int64_t *ret_ms, struct status *st)
{
	if (!t)
		return true;
	if (t->seconds < 0 || t->seconds > SECONDS_MAX || t->nanos < 0 || t->nanos >= NANOS_PER_S) {
		status_field(st, field, "is no moment since 1970");
		return false;
	}
	*ret_ms = t->seconds * 1000 + t->nanos / NANOS_PER_MS;
	return true;
}

msg_timestamp *msg_time(msg_timestamp *t, int64_t wall_ms)
{
	int64_t ms = wall_ms % 1000;

	if (!wall_ms)
		return NULL;
	if (ms < 0)
		ms += 1000;
	google__protobuf__timestamp__init(t);
	t->seconds = (wall_ms - ms) / 1000;
	t->nanos = (int32_t)(ms * NANOS_PER_MS);
	return t;
}

msg_duration *msg_span(msg_duration *d, uint64_t ms)
{
	google__protobuf__duration__init(d);
	d->seconds = (int64_t)(ms / 1000);
	d->nanos = (int32_t)(ms % 1000 * NANOS_PER_MS);
	return d;
}

bool msg_read_policy(const Agentbox__V1__Policy *p, struct policy_change *ret, struct status *st)
{
	struct policy *to = &ret->to;

	*ret = (struct policy_change){ 0 };
	if (!p)
		return true;
	to->keep_alive = p->_keep_alive_case && p->keep_alive;
	to->on_release = (enum policy_action)p->on_release;
	to->on_idle = (enum policy_action)p->on_idle;
	to->on_max_age = (enum policy_action)p->on_max_age;
	to->on_cap = (enum policy_action)p->on_cap;
	to->on_gone = (enum policy_on_gone)p->on_gone;
	to->resume_on_use = p->_resume_on_use_case && p->resume_on_use;
	ret->set = (p->_keep_alive_case ? BIT(POLICY_F_KEEP_ALIVE) : 0) |
		   (p->on_release ? BIT(POLICY_F_ON_RELEASE) : 0) |
		   (p->release_grace ? BIT(POLICY_F_RELEASE_GRACE) : 0) |
		   (p->idle_timeout ? BIT(POLICY_F_IDLE_TIMEOUT) : 0) | (p->on_idle ? BIT(POLICY_F_ON_IDLE) : 0) |
		   (p->max_age ? BIT(POLICY_F_MAX_AGE) : 0) | (p->on_max_age ? BIT(POLICY_F_ON_MAX_AGE) : 0) |
		   (p->on_cap ? BIT(POLICY_F_ON_CAP) : 0) | (p->on_gone ? BIT(POLICY_F_ON_GONE) : 0) |
		   (p->_resume_on_use_case ? BIT(POLICY_F_RESUME_ON_USE) : 0);
	return msg_read_duration(p->release_grace, "policy.release_grace", true, &to->release_grace_ms, st) &&
	       msg_read_duration(p->idle_timeout, "policy.idle_timeout", false, &to->idle_timeout_ms, st) &&
	       msg_read_duration(p->max_age, "policy.max_age", false, &to->max_age_ms, st);
}

int msg_read_text(char **to, const char *s)
{
	if (str_is_empty(s))
		return 0;
	*to = str_dup(s);
	return *to ? 0 : -ENOMEM;
}

int msg_read_kvs(struct cloud_kvs *to, ProtobufCMessage *const *entries, size_t n)
{
	struct sandbox_pair *pairs = msg_read_pairs(entries, n);
	int r = n && !pairs ? -ENOMEM : 0;

	for (size_t i = 0; i < n && !r; i++)
		r = cloud_kvs_add(to, pairs[i].key, pairs[i].value);
	free(pairs);
	return r;
}

struct sandbox_pair *msg_read_pairs(ProtobufCMessage *const *entries, size_t n)
{
	struct sandbox_pair *pairs = n ? calloc(n, sizeof(*pairs)) : NULL;

	for (size_t i = 0; pairs && i < n; i++) {
		const ProtobufCFieldDescriptor *f = entries[i]->descriptor->fields;

		pairs[i].key = *(char *const *)(const void *)((const char *)entries[i] + f[0].offset);
		pairs[i].value = *(char *const *)(const void *)((const char *)entries[i] + f[1].offset);
	}
	return pairs;
}

static void fill_policy(struct msg_sandbox *s, const struct policy *p)
{
	Agentbox__V1__Policy *m = &s->policy;

	agentbox__v1__policy__init(m);
	m->_keep_alive_case = AGENTBOX__V1__POLICY___KEEP_ALIVE_KEEP_ALIVE;
	m->keep_alive = p->keep_alive;
	m->on_release = (Agentbox__V1__Policy__Action)p->on_release;
	m->release_grace = msg_span(&s->release_grace, p->release_grace_ms);
	if (p->idle_timeout_ms)
		m->idle_timeout = msg_span(&s->idle_timeout, p->idle_timeout_ms);
	m->on_idle = (Agentbox__V1__Policy__Action)p->on_idle;
	if (p->max_age_ms)
		m->max_age = msg_span(&s->max_age, p->max_age_ms);
	m->on_max_age = (Agentbox__V1__Policy__Action)p->on_max_age;
	m->on_cap = (Agentbox__V1__Policy__Action)p->on_cap;
	m->on_gone = (Agentbox__V1__Policy__OnGone)p->on_gone;
	m->_resume_on_use_case = AGENTBOX__V1__POLICY___RESUME_ON_USE_RESUME_ON_USE;
	m->resume_on_use = p->resume_on_use;
}

_Static_assert((int)AGENTBOX__V1__LIFECYCLE__ON_TIMEOUT__KILL == TRI_FALSE &&
		       (int)AGENTBOX__V1__LIFECYCLE__ON_TIMEOUT__PAUSE == TRI_TRUE,
	       "on_timeout has the numbers of enum tri");

void msg_read_lifecycle(const Agentbox__V1__Lifecycle *m, struct cloud_lifecycle *ret)
{
	if (!m)
		return;
	*ret = (struct cloud_lifecycle){
		.pause = (enum tri)m->on_timeout,
		.keep_memory = msg_read_tri(m->_keep_memory_case, m->keep_memory),
		.auto_resume = msg_read_tri(m->_auto_resume_case, m->auto_resume)};
}

static void fill_lifecycle(struct msg_sandbox *s, const struct cloud_lifecycle *l)
{
	Agentbox__V1__Lifecycle *m = &s->lifecycle;

	agentbox__v1__lifecycle__init(m);
	m->on_timeout = (Agentbox__V1__Lifecycle__OnTimeout)l->pause;
	if (l->keep_memory != TRI_UNSET) {
		m->_keep_memory_case = AGENTBOX__V1__LIFECYCLE___KEEP_MEMORY_KEEP_MEMORY;
		m->keep_memory = l->keep_memory == TRI_TRUE;
	}
	if (l->auto_resume != TRI_UNSET) {
		m->_auto_resume_case = AGENTBOX__V1__LIFECYCLE___AUTO_RESUME_AUTO_RESUME;
		m->auto_resume = l->auto_resume == TRI_TRUE;
	}
}

static int fill_metadata(struct msg_sandbox *s, const struct sandbox_view *sandbox)
{
	size_t n = sandbox->n_metadata;

	if (!n)
		return 0;
	s->entries = calloc(n, sizeof(*s->entries));
	s->entry_list = calloc(n, sizeof(*s->entry_list));
	if (!s->entries || !s->entry_list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		agentbox__v1__sandbox__metadata_entry__init(&s->entries[i]);
		s->entries[i].key = (char *)sandbox->metadata[i].key;
		s->entries[i].value = (char *)sandbox->metadata[i].value;
		s->entry_list[i] = &s->entries[i];
	}
	s->m.metadata = s->entry_list;
	s->m.n_metadata = n;
	return 0;
}

Agentbox__V1__Freshness *msg_freshness(Agentbox__V1__Freshness *f, msg_timestamp *as_of,
				       enum sandbox_source source, int64_t as_of_ms)
{
	agentbox__v1__freshness__init(f);
	f->source = (Agentbox__V1__Freshness__Source)source;
	f->as_of = msg_time(as_of, as_of_ms);
	return f;
}

int msg_sandbox_init(struct msg_sandbox *s, const struct sandbox_view *sandbox)
{
	Agentbox__V1__Sandbox *m = &s->m;

	*s = (struct msg_sandbox){ .entries = NULL };
	agentbox__v1__sandbox__init(m);
	m->id = (char *)sandbox->id;
	m->name = (char *)sandbox->name;
	m->template_id = (char *)sandbox->template_id;
	m->alias = (char *)sandbox->alias;
	m->state = (Agentbox__V1__SandboxState)sandbox->state;
	m->started_at = msg_time(&s->started_at, sandbox->started_at_ms);
	m->end_at = msg_time(&s->end_at, sandbox->end_at_ms);
	m->cpu_count = sandbox->cpu_count;
	m->memory_mb = sandbox->memory_mb;
	m->disk_size_mb = sandbox->disk_size_mb;
	m->envd_version = (char *)sandbox->envd_version;
	m->domain = (char *)sandbox->domain;
	if (sandbox->allow_internet_access != TRI_UNSET) {
		m->_allow_internet_access_case =
			AGENTBOX__V1__SANDBOX___ALLOW_INTERNET_ACCESS_ALLOW_INTERNET_ACCESS;
		m->allow_internet_access = sandbox->allow_internet_access == TRI_TRUE;
	}
	fill_lifecycle(s, &sandbox->lifecycle);
	m->lifecycle = &s->lifecycle;
	fill_policy(s, &sandbox->policy);
	m->policy = &s->policy;
	s->owner = sandbox->owner_uid;
	m->owner_uid = owner_uid(sandbox->owner_uid);
	m->leases = sandbox->leases;
	m->generation = sandbox->generation;
	m->freshness = msg_freshness(&s->freshness, &s->as_of, sandbox->source, sandbox->as_of_ms);
	m->warning = (char *)sandbox->warning;
	m->account = (char *)sandbox->account;
	m->adopted = sandbox->adopted;
	m->gone_reason = (Agentbox__V1__Reason)sandbox->gone_reason;
	m->warm = sandbox->warm;
	m->end_pending = sandbox->end_pending;
	if (sandbox->network) {
		s->network = msg_network_new(sandbox->network);
		if (!s->network)
			return -ENOMEM;
		m->network = msg_network_message(s->network);
	}
	return fill_metadata(s, sandbox);
}

bool msg_sandbox_mask(struct msg_sandbox *s, const struct principal *who)
{
	if (!grant_is_masked(who, s->owner))
		return false;
	snprintf(s->masked, sizeof(s->masked), "%.6s...", s->m.id);
	s->m.id = s->masked;
	s->m.n_metadata = 0;
	s->m.network = NULL;
	return true;
}

void msg_sandbox_fini(struct msg_sandbox *s)
{
	s->network = msg_network_free(s->network);
	free(s->entries);
	free(s->entry_list);
}

/* --- encodings that are kept --- */

/* What a message is made of: the view, pointers included, and the texts that it points to. */
struct key {
	size_t n;
	bool overflow;
	uint8_t bytes[ENCODED_KEY_BYTES];
};

struct encoded_one {
	size_t n_key, n;
	uint8_t bytes[];	/* the key, then the message */
};

struct encoded {
	struct encoded_one *slots[ENCODED_SLOTS];
};

struct encoded *encoded_new(void)
{
	return calloc(1, sizeof(struct encoded));
}

struct encoded *encoded_free(struct encoded *e)
{
	for (size_t i = 0; e && i < ENCODED_SLOTS; i++)
		free(e->slots[i]);
	free(e);
	return NULL;
}

static void key_put(struct key *k, const void *p, size_t n)
{
	k->overflow |= n > sizeof(k->bytes) - k->n;
	if (k->overflow)
		return;
	memcpy(k->bytes + k->n, p, n);
	k->n += n;
}

static void key_text(struct key *k, const char *s)
{
	key_put(k, s, strlen(s) + 1);
}

/* False: it does not fit. The tokens are not told, and so are not compared. */
static bool make_key(struct key *k, const struct sandbox_view *v)
{
	const char *const texts[] = { v->id, v->name, v->account, v->template_id, v->alias, v->envd_version, v->domain,
				      v->warning };

	k->n = 0;
	k->overflow = v->network != NULL;
	key_put(k, v, sizeof(*v));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		key_text(k, texts[i]);
	for (size_t i = 0; i < v->n_metadata && !k->overflow; i++) {
		key_text(k, v->metadata[i].key);
		key_text(k, v->metadata[i].value);
	}
	return !k->overflow;
}

static struct encoded_one *encode(const struct key *k, const struct sandbox_view *v)
{
	struct msg_sandbox s;
	struct encoded_one *o = NULL;
	size_t n;

	if (msg_sandbox_init(&s, v) == 0) {
		n = protobuf_c_message_get_packed_size(&s.m.base);
		o = malloc(sizeof(*o) + k->n + n);
		if (o) {
			o->n_key = k->n;
			o->n = n;
			memcpy(o->bytes, k->bytes, k->n);
			protobuf_c_message_pack(&s.m.base, o->bytes + k->n);
		}
	}
	msg_sandbox_fini(&s);
	return o;
}

/* A sandbox's id lies where it is as long as the sandbox does. */
static struct encoded_one **slot_of(struct encoded *e, const struct sandbox_view *v)
{
	return &e->slots[((uintptr_t)v->id >> 5) % ENCODED_SLOTS];
}

const uint8_t *encoded_sandbox(struct encoded *e, const struct sandbox_view *v, size_t *ret_n)
{
	scratch_ struct key k;
	struct encoded_one **slot = slot_of(e, v), *o = *slot;

	if (!make_key(&k, v))
		return NULL;
	if (!o || o->n_key != k.n || memcmp(o->bytes, k.bytes, k.n)) {
		free(o);
		o = *slot = encode(&k, v);
	}
	if (!o)
		return NULL;
	*ret_n = o->n;
	return o->bytes + o->n_key;
}
