/* SPDX-License-Identifier: MIT */
/* Invariant: an object made here owns its message and everything made for it, and nothing else does. */
#include "client/lib/msg.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/gen/agentbox_file.pb-c.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"
#include "proto/gen/google_protobuf_timestamp.pb-c.h"

#include "client/lib/msg_in.h"
#include "client/lib/obj.h"
#include "proto/base/status.h"
#include "proto/base/str.h"

/* How protoc-c lays out every entry of a map<string, string>. */
struct entry {
	ProtobufCMessage base;
	char *key, *value;
};

int64_t msg_at_ms(const Google__Protobuf__Timestamp *t)
{
	return t ? t->seconds * 1000 + t->nanos / 1000000 : 0;
}

Google__Protobuf__Timestamp *msg_moment(Google__Protobuf__Timestamp *t, int64_t at_ms)
{
	if (!at_ms)
		return NULL;
	google__protobuf__timestamp__init(t);
	t->seconds = at_ms / 1000;
	t->nanos = (int32_t)(at_ms % 1000) * 1000000;
	return t;
}

const char *msg_reason(int reason)
{
	return status_reason_name((enum ab_reason)reason);
}

enum ab_choice msg_choice(bool set, bool value)
{
	return !set ? AB_DEFAULT : value ? AB_YES : AB_NO;
}

int msg_pairs_in(void *object, size_t n, void *entries, const struct ab_pair **ret, size_t *ret_n)
{
	struct entry **e = entries;
	struct ab_pair *v;

	if (!n)
		return 0;
	v = obj_alloc(object, n, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		v[i] = (struct ab_pair){ .key = e[i]->key, .value = e[i]->value };
	*ret = v;
	*ret_n = n;
	return 0;
}

int msg_words(void *object, size_t n, char **words, const char *const **ret)
{
	const char **v = obj_alloc(object, n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		v[i] = words[i];
	*ret = v;
	return 0;
}

/* --- sandboxes --- */

uint64_t msg_span_us(const Google__Protobuf__Duration *d)
{
	return d && d->seconds >= 0 && d->nanos >= 0 ? (uint64_t)d->seconds * 1000000 + (uint64_t)d->nanos / 1000 : 0;
}

static struct ab_policy policy_in(const Agentbox__V1__Policy *m)
{
	if (!m)
		return (struct ab_policy){ 0 };
	return (struct ab_policy){
		.keep_alive = msg_choice(m->_keep_alive_case, m->keep_alive),
		.on_release = (enum ab_action)m->on_release,
		.release_grace_ms = msg_span_us(m->release_grace) / 1000,
		.idle_timeout_ms = msg_span_us(m->idle_timeout) / 1000,
		.on_idle = (enum ab_action)m->on_idle,
		.max_age_ms = msg_span_us(m->max_age) / 1000,
		.on_max_age = (enum ab_action)m->on_max_age,
		.on_cap = (enum ab_action)m->on_cap,
		.recreate = !m->on_gone ? AB_DEFAULT :
			    m->on_gone == AGENTBOX__V1__POLICY__ON_GONE__RECREATE ? AB_YES : AB_NO,
		.resume_on_use = msg_choice(m->_resume_on_use_case, m->resume_on_use),
	};
}

Agentbox__V1__Policy *msg_policy_out(struct msg_policy *to, const struct ab_policy *p)
{
	Agentbox__V1__Policy *m = &to->m;

	if (!p)
		return NULL;
	agentbox__v1__policy__init(m);
	MSG_SET_CHOICE(m, keep_alive, AGENTBOX__V1__POLICY___KEEP_ALIVE_KEEP_ALIVE, p->keep_alive);
	m->on_release = (Agentbox__V1__Policy__Action)p->on_release;
	m->release_grace = msg_duration(&to->grace, p->release_grace_ms);
	m->idle_timeout = msg_duration(&to->idle, p->idle_timeout_ms);
	m->on_idle = (Agentbox__V1__Policy__Action)p->on_idle;
	m->max_age = msg_duration(&to->age, p->max_age_ms);
	m->on_max_age = (Agentbox__V1__Policy__Action)p->on_max_age;
	m->on_cap = (Agentbox__V1__Policy__Action)p->on_cap;
	if (p->recreate)
		m->on_gone = p->recreate == AB_YES ? AGENTBOX__V1__POLICY__ON_GONE__RECREATE :
						     AGENTBOX__V1__POLICY__ON_GONE__FAIL;
	MSG_SET_CHOICE(m, resume_on_use, AGENTBOX__V1__POLICY___RESUME_ON_USE_RESUME_ON_USE, p->resume_on_use);
	return m;
}

Agentbox__V1__Lifecycle *msg_lifecycle_out(Agentbox__V1__Lifecycle *m,
					   const struct ab_sandbox_create_options *o)
{
	if (!o->on_timeout && !o->keep_memory && !o->auto_resume)
		return NULL;
	agentbox__v1__lifecycle__init(m);
	m->on_timeout = (Agentbox__V1__Lifecycle__OnTimeout)o->on_timeout;
	MSG_SET_CHOICE(m, keep_memory, AGENTBOX__V1__LIFECYCLE___KEEP_MEMORY_KEEP_MEMORY, o->keep_memory);
	MSG_SET_CHOICE(m, auto_resume, AGENTBOX__V1__LIFECYCLE___AUTO_RESUME_AUTO_RESUME, o->auto_resume);
	return m;
}

static void lifecycle_in(const Agentbox__V1__Lifecycle *m, struct ab_sandbox *ret)
{
	if (!m)
		return;
	ret->on_timeout = (unsigned)m->on_timeout <= AB_ON_TIMEOUT_PAUSE ? (enum ab_on_timeout)m->on_timeout
									 : AB_ON_TIMEOUT_DEFAULT;
	ret->keep_memory = msg_choice(m->_keep_memory_case, m->keep_memory);
	ret->auto_resume = msg_choice(m->_auto_resume_case, m->auto_resume);
}

int msg_sandbox_fill(void *object, const Agentbox__V1__Sandbox *m, struct ab_sandbox *ret)
{
	const Agentbox__V1__Freshness *f = m->freshness;
	int r;

	*ret = (struct ab_sandbox){
		.id = m->id,
		.name = m->name,
		.template_id = m->template_id,
		.alias = m->alias,
		.state = (unsigned)m->state <= AB_SANDBOX_GONE ? (enum ab_sandbox_state)m->state
							       : AB_SANDBOX_UNKNOWN,
		.started_at_ms = msg_at_ms(m->started_at),
		.end_at_ms = msg_at_ms(m->end_at),
		.cpu_count = m->cpu_count,
		.memory_mb = m->memory_mb,
		.disk_size_mb = m->disk_size_mb,
		.envd_version = m->envd_version,
		.domain = m->domain,
		.allow_internet_access = msg_choice(m->_allow_internet_access_case, m->allow_internet_access),
		.owner_uid = m->owner_uid,
		.leases = m->leases,
		.generation = m->generation,
		.source = f ? (enum ab_source)f->source : AB_SOURCE_UNKNOWN,
		.as_of_ms = f ? msg_at_ms(f->as_of) : 0,
		.warning = m->warning,
		.account = m->account,
		.adopted = m->adopted,
		.warm = m->warm,
		.end_pending = m->end_pending,
		.gone_reason = msg_reason((int)m->gone_reason),
		.policy = policy_in(m->policy),
	};
	lifecycle_in(m->lifecycle, ret);
	r = msg_network_in(object, m->network, &ret->network);
	return r < 0 ? r : msg_pairs_in(object, m->n_metadata, m->metadata, &ret->metadata, &ret->n_metadata);
}

int msg_sandbox(ProtobufCMessage *m, void **ret)
{
	scoped(obj_freep) struct ab_sandbox *s = obj_new(sizeof(*s), m);
	int r = s ? msg_sandbox_fill(s, (Agentbox__V1__Sandbox *)m, s) : -ENOMEM;

	if (r < 0)
		return r;
	*ret = give(s);
	return 0;
}

int msg_sandbox_list(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ListSandboxesResponse *m = (Agentbox__V1__ListSandboxesResponse *)message;
	scoped(obj_freep) struct ab_sandbox_list *l = obj_new(sizeof(*l), message);
	struct ab_sandbox *v = l ? obj_alloc(l, m->n_sandboxes + 1, sizeof(*v)) : NULL;
	const struct ab_sandbox **items = v ? obj_alloc(l, m->n_sandboxes + 1, sizeof(*items)) : NULL;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_sandboxes; i++) {
		int r = msg_sandbox_fill(l, m->sandboxes[i], &v[i]);

		if (r < 0)
			return r;
		items[i] = &v[i];
	}
	l->items = items;
	l->n = m->n_sandboxes;
	l->next_page_token = m->next_page_token;
	l->source = m->freshness ? (enum ab_source)m->freshness->source : AB_SOURCE_UNKNOWN;
	l->as_of_ms = m->freshness ? msg_at_ms(m->freshness->as_of) : 0;
	*ret = give(l);
	return 0;
}

int msg_host(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__GetHostResponse *m = (Agentbox__V1__GetHostResponse *)message;
	struct ab_host h = {
		.host = m->host,
		.url = m->url,
		.token_header = m->token_header,
		.traffic_access_token = m->traffic_access_token,
	};

	return obj_take(message, &h, sizeof(h), ret);
}

/* --- commands --- */

static void result_fill(const Agentbox__V1__CommandResult *m, struct ab_command_result *ret)
{
	*ret = (struct ab_command_result){
		.outcome = (unsigned)m->outcome <= AB_OUTCOME_UNKNOWN ? (enum ab_outcome)m->outcome
								      : AB_OUTCOME_NONE,
		.exit_code = m->_exit_code_case ? m->exit_code : -1,
		.signal = m->signal,
		.timed_out = m->timed_out,
		.killed = m->killed,
		.stdout_bytes = m->stdout_bytes,
		.stderr_bytes = m->stderr_bytes,
		.output_complete = m->output_complete,
		.survivors = m->survivors,
		.n_survivors = m->n_survivors,
		.exited_at_ms = msg_at_ms(m->exited_at),
		.reason = msg_reason((int)m->reason),
		.message = m->message,
		.pipes_held = m->pipes_held,
	};
}

static struct ab_range msg_range(const Agentbox__V1__StreamRange *m)
{
	return m ? (struct ab_range){ .first = m->first, .end = m->end } : (struct ab_range){ 0 };
}

static int command_fill(void *object, const Agentbox__V1__Command *m, struct ab_command *ret)
{
	struct ab_command_result *result = NULL;
	int r;

	*ret = (struct ab_command){
		.command_id = m->command_id,
		.sandbox = m->sandbox,
		.pid = m->pid,
		.generation = m->generation,
		.shell = m->shell,
		.n_args = m->n_args,
		.user = m->user,
		.cwd = m->cwd,
		.tag = m->tag,
		.pty = m->pty,
		.started_at_ms = msg_at_ms(m->started_at),
		.running = m->running,
		.last_output_at_ms = msg_at_ms(m->last_output_at),
		.stdout_kept = msg_range(m->stdout),
		.stderr_kept = msg_range(m->stderr),
		.pty_kept = msg_range(m->terminal),
		.expires_at_ms = msg_at_ms(m->expires_at),
		.group = m->group,
		.foreign = m->foreign,
	};
	if (m->result) {
		result = obj_alloc(object, 1, sizeof(*result));
		if (!result)
			return -ENOMEM;
		result_fill(m->result, result);
		ret->result = result;
	}
	r = msg_words(object, m->n_args, m->args, &ret->args);
	return r < 0 ? r : msg_pairs_in(object, m->n_envs, m->envs, &ret->envs, &ret->n_envs);
}

int msg_command(ProtobufCMessage *m, void **ret)
{
	scoped(obj_freep) struct ab_command *c = obj_new(sizeof(*c), m);
	int r = c ? command_fill(c, (Agentbox__V1__Command *)m, c) : -ENOMEM;

	if (r < 0)
		return r;
	*ret = give(c);
	return 0;
}

int msg_command_list(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ListCommandsResponse *m = (Agentbox__V1__ListCommandsResponse *)message;
	scoped(obj_freep) struct ab_command_list *l = obj_new(sizeof(*l), message);
	struct ab_command *v = l ? obj_alloc(l, m->n_commands + 1, sizeof(*v)) : NULL;
	const struct ab_command **items = v ? obj_alloc(l, m->n_commands + 1, sizeof(*items)) : NULL;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_commands; i++) {
		int r = command_fill(l, m->commands[i], &v[i]);

		if (r < 0)
			return r;
		items[i] = &v[i];
	}
	l->items = items;
	l->n = m->n_commands;
	l->next_page_token = m->next_page_token;
	*ret = give(l);
	return 0;
}

int msg_result(ProtobufCMessage *m, void **ret)
{
	struct ab_command_result res;

	result_fill((Agentbox__V1__CommandResult *)m, &res);
	return obj_take(m, &res, sizeof(res), ret);
}

int msg_kill_result(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__KillCommandResponse *m = (Agentbox__V1__KillCommandResponse *)message;
	struct ab_kill_result k = {
		.found = m->found, .survivors = m->survivors, .n_survivors = m->n_survivors,
	};

	return obj_take(message, &k, sizeof(k), ret);
}

struct event_object {
	struct ab_command_result result;	/* first: so the object can be handed out as a result */
	struct ab_command command;
};

static int event_fill(struct event_object *o, const Agentbox__V1__CommandEvent *m,
		      struct ab_command_event *ret)
{
	*ret = (struct ab_command_event){ .reason = "" };
	switch (m->event_case) {
	case AGENTBOX__V1__COMMAND_EVENT__EVENT_STARTED:
		ret->type = AB_EVENT_STARTED;
		ret->command = &o->command;
		return command_fill(o, m->started, &o->command);
	case AGENTBOX__V1__COMMAND_EVENT__EVENT_OUTPUT:
		ret->type = AB_EVENT_OUTPUT;
		ret->stream = (enum ab_stream)m->output->stream;
		ret->offset = m->output->offset;
		ret->data = m->output->data.data;
		ret->size = m->output->data.len;
		ret->size_known = true;
		return 0;
	case AGENTBOX__V1__COMMAND_EVENT__EVENT_GAP:
		ret->type = AB_EVENT_GAP;
		ret->stream = (enum ab_stream)m->gap->stream;
		ret->offset = m->gap->offset;
		ret->size = m->gap->size;
		ret->size_known = m->gap->size_known;
		ret->reason = m->gap->reason;
		return 0;
	case AGENTBOX__V1__COMMAND_EVENT__EVENT_EXITED:
		ret->type = AB_EVENT_EXITED;
		ret->result = &o->result;
		result_fill(m->exited, &o->result);
		return 0;
	default:
		return 0;	/* a heartbeat, or what a later daemon says */
	}
}

int msg_event(ProtobufCMessage *m, void **ret, struct ab_command_event *ret_event)
{
	scoped(obj_freep) struct event_object *o = obj_new(sizeof(*o), m);
	int r = o ? event_fill(o, (Agentbox__V1__CommandEvent *)m, ret_event) : -ENOMEM;

	if (r < 0)
		return r;
	*ret = give(o);
	return 0;
}

/* --- files --- */

static int file_fill(void *object, const Agentbox__V1__FileInfo *m, struct ab_file *ret)
{
	*ret = (struct ab_file){
		.name = m->name,
		.path = m->path,
		.type = (unsigned)m->type <= AB_SYMLINK ? (enum ab_file_type)m->type : AB_FILE_OTHER,
		.size = m->size,
		.mode = m->mode,
		.permissions = m->permissions,
		.owner = m->owner,
		.group = m->group,
		.modified_at_ms = msg_at_ms(m->modified_at),
		.symlink_target = m->_symlink_target_case ? m->symlink_target : NULL,
	};
	return msg_pairs_in(object, m->n_metadata, m->metadata, &ret->metadata, &ret->n_metadata);
}

int msg_file(ProtobufCMessage *m, void **ret)
{
	scoped(obj_freep) struct ab_file *f = obj_new(sizeof(*f), m);
	int r = f ? file_fill(f, (Agentbox__V1__FileInfo *)m, f) : -ENOMEM;

	if (r < 0)
		return r;
	*ret = give(f);
	return 0;
}

int msg_file_event(ProtobufCMessage *message, void **ret, struct ab_file_event *ret_event)
{
	const Agentbox__V1__FileEvent *m = (Agentbox__V1__FileEvent *)message;
	scoped(obj_freep) struct ab_file *entry = obj_new(sizeof(*entry), message);
	struct ab_file_event e = { .name = "" };

	if (!entry)
		return -ENOMEM;
	if (m->event_case == AGENTBOX__V1__FILE_EVENT__EVENT_READY) {
		e.type = AB_FILE_EVENT_READY;
	} else if (m->event_case == AGENTBOX__V1__FILE_EVENT__EVENT_OVERFLOWED) {
		e.type = AB_FILE_EVENT_OVERFLOWED;
	} else if (m->event_case == AGENTBOX__V1__FILE_EVENT__EVENT_CHANGE &&
		   m->change->type >= AGENTBOX__V1__FILE_EVENT__CHANGE__TYPE__CREATE &&
		   m->change->type <= AGENTBOX__V1__FILE_EVENT__CHANGE__TYPE__CHMOD) {
		e.type = AB_FILE_EVENT_CHANGE;
		e.change = (enum ab_file_change)m->change->type;
		e.name = m->change->name;
		if (m->change->entry) {
			int r = file_fill(entry, m->change->entry, entry);

			if (r < 0)
				return r;
			e.entry = entry;
		}
	}			/* else a heartbeat, or what a later daemon says: type 0 */
	*ret_event = e;
	*ret = give(entry);
	return 0;
}

int msg_link(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__SignUrlResponse *m = (Agentbox__V1__SignUrlResponse *)message;
	struct ab_link l = { .url = m->url, .expires_at_ms = msg_at_ms(m->expires_at) };

	return obj_take(message, &l, sizeof(l), ret);
}

/* --- outwards --- */

int msg_pairs(const struct ab_pair *pairs, size_t n, const ProtobufCMessageDescriptor *d, void *ret,
	      size_t *ret_n)
{
	struct entry **v, *e;

	*(void **)ret = NULL;
	*ret_n = 0;
	if (!n)
		return 0;
	if (!pairs)
		return -EINVAL;
	v = calloc(n, sizeof(*v) + sizeof(*e));
	if (!v)
		return -ENOMEM;
	e = (struct entry *)(void *)(v + n);
	for (size_t i = 0; i < n; i++) {
		protobuf_c_message_init(d, &e[i].base);
		e[i].key = (char *)(pairs[i].key ? pairs[i].key : "");
		e[i].value = (char *)(pairs[i].value ? pairs[i].value : "");
		v[i] = &e[i];
	}
	*(void **)ret = v;
	*ret_n = n;
	return 0;
}

Google__Protobuf__Duration *msg_duration(Google__Protobuf__Duration *d, uint64_t ms)
{
	if (!ms)
		return NULL;
	google__protobuf__duration__init(d);
	if (ms != AB_ZERO_MS) {
		d->seconds = (int64_t)(ms / 1000);
		d->nanos = (int32_t)(ms % 1000) * 1000000;
	}
	return d;
}

int msg_path_out(const struct ab_path *p, char **ret_sandbox, char **ret_path, char **ret_user)
{
	if (!p || str_is_empty(p->sandbox) || str_is_empty(p->path))
		return -EINVAL;
	*ret_sandbox = (char *)p->sandbox;
	*ret_path = (char *)p->path;
	*ret_user = (char *)p->user;
	return 0;
}

int msg_ref(Agentbox__V1__CommandRef *ret, const struct ab_command_ref *ref)
{
	if (!ref || (str_is_empty(ref->command_id) && (str_is_empty(ref->sandbox) || !ref->pid)))
		return -EINVAL;
	agentbox__v1__command_ref__init(ret);
	ret->sandbox = (char *)ref->sandbox;
	if (!str_is_empty(ref->command_id)) {
		ret->ref_case = AGENTBOX__V1__COMMAND_REF__REF_COMMAND_ID;
		ret->command_id = (char *)ref->command_id;
	} else {
		ret->ref_case = AGENTBOX__V1__COMMAND_REF__REF_PID;
		ret->pid = ref->pid;
	}
	return 0;
}
