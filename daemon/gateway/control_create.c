/* SPDX-License-Identifier: MIT */
/*
 * POST /sandboxes and /v2/sandboxes. What the contract has no field for comes in headers, which count here alone: SDKs send
 * the headers of a create again with every later call.
 *
 * A name that is there already is connected to, so that it runs as long as was asked for. A lease of a time is taken when the
 * sandbox is there, before it is told.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gateway/control.h"
#include "daemon/gateway/words.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"
#include "proto/cloud/link.h"
#include "proto/cloud/list.h"

#define TIMEOUT_V1_S	15u
#define TIMEOUT_V2_S	300u
#define TURN_MS		30000u		/* for which a create waits for its turn at the cloud */
#define WAIT_MAX_MS	600000u		/* of Agentboxd-Deadline */
#define WORD_LEASE	"agentboxd.lease"
#define WORD_POLICY	"agentboxd.policy"
#define WORD_WARM	"agentboxd.warm"

struct creating {
	struct sandbox_create args;	/* until the core has them */
	char *template_id;
	uint32_t timeout_s;
	bool secure;
	const char *name;
	struct words_text said;		/* of the head, or these words of the metadata: */
	char *policy_word, *lease_word, *warm_word;
	struct words words;
	char id[CLOUD_SANDBOX_ID_MAX + 1];
};

static void creating_free(void *p)
{
	struct creating *n = p;

	sandbox_create_fini(&n->args);
	free(n->template_id);
	free(n->policy_word);
	free(n->lease_word);
	free(n->warm_word);
	free(n);
}

/* --- the answer --- */

static void on_complete(void *user, const struct status *st, const struct sandbox_view *v)
{
	struct gateway_control *c = control_done(user);

	if (status_ok(st))
		control_reply_created(c, 201, v);
	else
		control_fail(c, st);
}

/* The creation whose answer was lost was found by its tag, in a list, which has no secrets. */
static void ask_for_secrets(struct gateway_control *c)
{
	struct creating *n = c->state;
	struct sandbox_call call = control_call(c, n->id);

	control_started(c, sandbox_get(c->g->o.core, &call, 0, on_complete, &c->op));
}

static void on_leased(void *user, const struct status *st, const struct sandbox_lease *lease)
{
	struct gateway_control *c = control_done(user);

	if (!status_ok(st))
		control_fail(c, st);
	else
		ask_for_secrets(c);
}

static void lease_for_time(struct gateway_control *c)
{
	struct creating *n = c->state;
	const struct sandbox_acquire a = { .label = "Agentboxd-Lease", .kind = SANDBOX_LEASE_TTL, .ttl_ms = n->words.lease_ms };
	struct sandbox_call call = control_call(c, n->id);

	control_started(c, sandbox_acquire(c->g->o.core, &call, &a, on_leased, &c->op));
}

static void created(struct gateway_control *c, const struct sandbox_view *v)
{
	struct creating *n = c->state;

	if (n->words.lease_ms)
		lease_for_time(c);
	else if (!*v->access_token && n->secure)
		ask_for_secrets(c);
	else
		control_reply_created(c, 201, v);
}

static void on_named_connected(void *user, const struct status *st, const struct sandbox_view *v)
{
	struct gateway_control *c = control_done(user);

	if (status_ok(st))
		created(c, v);
	else
		control_fail(c, st);
}

/* "space/name:tag" asks for a template by what follows the space: its id, or its alias. */
static bool is_of_template(const struct creating *n, const struct sandbox_view *v)
{
	struct template_ref ref;

	return template_ref_parse(n->template_id, &ref) == 0 &&
	       (str_eq(ref.name, v->template_id) || str_eq(ref.name, v->alias));
}

static bool ends_too_soon(const struct creating *n, const struct sandbox_view *v)
{
	return v->state != SANDBOX_RUNNING ||
	       (v->end_at_ms && v->end_at_ms < clock_wall_ms() + (int64_t)n->timeout_s * 1000 - 2000);
}

static void connect_named(struct gateway_control *c)
{
	struct creating *n = c->state;
	const struct sandbox_connect args = { .timeout_ms = (uint64_t)n->timeout_s * 1000 };
	struct sandbox_call call = control_call(c, n->id);

	control_started(c, sandbox_connect(c->g->o.core, &call, &args, on_named_connected, &c->op));
}

static void control_on_created(void *user, const struct status *st, const struct sandbox_view *v)
{
	struct gateway_control *c = control_done(user);
	struct creating *n = c->state;

	if (!status_ok(st)) {
		control_fail(c, st);
		return;
	}
	c->deadline_ms = clock_boot_ms() + CONTROL_DEADLINE_MS;
	(void)str_copy(n->id, sizeof(n->id), v->id);
	if (n->name && !is_of_template(n, v))
		control_refuse(c, 409, "Agentboxd-Name: %s is sandbox %s of template %s, not of %s", n->name, v->id,
			       *v->alias ? v->alias : v->template_id, n->template_id);
	else if (n->name && ends_too_soon(n, v))
		connect_named(c);
	else
		created(c, v);
}

/* --- what is asked for --- */

/* Takes a word of ours out of the metadata, in their order; heap. */
static char *take_word(struct creating *n, const char *key)
{
	struct cloud_kvs *m = &n->args.what.metadata;
	char *value;

	for (size_t i = 0; i < m->n; i++) {
		if (!str_eq(m->v[i].key, key))
			continue;
		value = m->v[i].value;
		free(m->v[i].key);
		memmove(&m->v[i], &m->v[i + 1], (--m->n - i) * sizeof(*m->v));
		return value;
	}
	return NULL;
}

static bool take_deadline(struct gateway_control *c, uint64_t *ret_ms)
{
	const char *text = control_header(c, "agentboxd-deadline");

	*ret_ms = TURN_MS;
	if (!text || (str_duration_ms(text, ret_ms) == 0 && *ret_ms && *ret_ms <= WAIT_MAX_MS))
		return true;
	control_refuse(c, 400, "Agentboxd-Deadline: must be a time up to 10m, as 30s");
	return false;
}

/* The call's own words, then the token's. Defaults of what is made here: the cloud's clock is its user's, but for what is leased by name. */
static void settle_policy(const struct gateway_control *c, struct creating *n, const struct policy_change *of_token)
{
	struct policy_change *p = &n->args.policy;

	*p = *of_token;
	policy_merge(&p->to, &n->words.policy);
	p->set |= n->words.policy.set;
	if (!(p->set & BIT(POLICY_F_KEEP_ALIVE))) {
		p->set |= BIT(POLICY_F_KEEP_ALIVE);
		p->to.keep_alive = n->words.lease_ms > 0;
	}
	if (control_is_run(c) && !(p->set & BIT(POLICY_F_ON_RELEASE))) {
		p->set |= BIT(POLICY_F_ON_RELEASE);
		p->to.on_release = (enum policy_action)c->token->on_release;
	}
}

static const char *word_of(const struct gateway_control *c, const char *header, const char *word)
{
	const char *text = control_header(c, header);

	return text ? text : word;
}

static bool take_words(struct gateway_control *c, struct creating *n)
{
	struct policy_change of_token;
	char why[WORDS_WHY_MAX];

	if (c->g->o.metadata_words) {
		n->lease_word = take_word(n, WORD_LEASE);
		n->policy_word = take_word(n, WORD_POLICY);
		n->warm_word = take_word(n, WORD_WARM);
	}
	n->name = control_header(c, "agentboxd-name");
	n->said = (struct words_text){ .policy = word_of(c, "agentboxd-policy", n->policy_word),
				       .lease = word_of(c, "agentboxd-lease", n->lease_word),
				       .warm = word_of(c, "agentboxd-warm", n->warm_word) };
	if (!words_read(&n->said, &n->words, why)) {
		control_refuse(c, 400, "%s", why);
		return false;
	}
	if (!control_token_policy(c, &of_token))
		return false;
	n->args.warm = n->words.warm ? n->words.warm : c->token->warm;
	settle_policy(c, n, &of_token);
	return true;
}

/* False after the call ended. */
static bool check_create(struct gateway_control *c, const struct cloud_create *b)
{
	const char *fault = cloud_lifecycle_fault(&b->lifecycle);
	struct template_ref ref;

	if (template_ref_parse(b->template_id, &ref) < 0)
		control_refuse(c, 400, "Invalid template reference");
	else if (!b->timeout_s)
		control_refuse(c, 400, "Timeout must be at least 1 second");
	else if (fault)
		control_refuse(c, 400, "%s", fault);
	else if (b->asks_volumes)
		control_refuse(c, 400, "agentboxd does not support volumeMounts");
	else
		return true;
	return false;
}

/* Over all that decides what is made: the same key with anything else in it is a mistake. */
static void hash_request(const struct gateway_control *c, const struct creating *n, uint8_t ret[32])
{
	const char *const texts[] = { cloud_route_info(c->to)->path, n->name, n->said.policy, n->said.lease, n->said.warm };
	/* Without Agentboxd-Warm it is the hash of daemons that did not know the word. */
	size_t n_texts = n->said.warm ? ARRAY_SIZE(texts) : ARRAY_SIZE(texts) - 1;
	uint8_t sums[ARRAY_SIZE(texts) + 1][32];

	cloud_sha256(buf_data(&c->body), buf_len(&c->body), sums[0]);
	for (size_t i = 0; i < n_texts; i++)
		cloud_sha256(texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) : 0, sums[i + 1]);
	cloud_sha256(sums, sizeof(*sums) * (n_texts + 1), ret);
}

static int keep_for_answer(struct gateway_control *c, struct creating *n)
{
	const struct cloud_create *b = &n->args.what;
	const char *key = c->to == CLOUD_ROUTE_CREATE ? control_header(c, "idempotency-key") : NULL;

	n->timeout_s = b->timeout_s;
	n->secure = b->secure == TRI_TRUE;
	n->template_id = str_dup(b->template_id);
	n->args.request_id = key ? str_dup(key) : NULL;
	n->args.name = n->name ? str_dup(n->name) : NULL;
	return n->template_id && (n->args.request_id || !key) && (n->args.name || !n->name) ? 0 : -ENOMEM;
}

static void create_begin(struct gateway_control *c, struct creating *n, uint64_t turn_ms)
{
	struct sandbox_call call = control_call(c, NULL);
	uint64_t now = clock_boot_ms();

	if (keep_for_answer(c, n) < 0) {
		control_no_memory(c);
		return;
	}
	call.deadline_ms = now + turn_ms;
	n->args.sent_deadline_ms = now + MAX(turn_ms, (uint64_t)CONTROL_DEADLINE_MS);
	n->args.timeout_ms = (uint64_t)n->timeout_s * 1000;
	n->args.what.secure = tri_of(n->secure);	/* what is not said is not secure, here */
	n->args.process_lease = control_is_run(c) && !n->words.no_lease;
	n->args.cloud_rules = true;
	hash_request(c, n, n->args.params_hash);
	control_started(c, sandbox_create(c->g->o.core, &call, &n->args, control_on_created, &c->op));
}

static void create_as(struct gateway_control *c, uint32_t timeout_s, bool always_secure)
{
	struct creating *n = calloc(1, sizeof(*n));
	uint64_t turn_ms;

	if (!n) {
		control_no_memory(c);
		return;
	}
	c->state = n;
	c->free_state = creating_free;
	n->args.what.timeout_s = timeout_s;
	if (!control_take(c, CLOUD_DOC_CREATE, &n->args.what) || !check_create(c, &n->args.what) || !take_words(c, n) ||
	    !take_deadline(c, &turn_ms))
		return;
	if (always_secure)
		n->args.what.secure = TRI_TRUE;
	create_begin(c, n, turn_ms);
}

void control_create_v1(struct gateway_control *c)
{
	create_as(c, TIMEOUT_V1_S, false);
}

void control_create_v2(struct gateway_control *c)
{
	create_as(c, TIMEOUT_V2_S, true);
}
