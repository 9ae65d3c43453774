/* SPDX-License-Identifier: MIT */
/*
 * The tables of the module, and what changes a sandbox: what the cloud says of it, its use, its end. Decisions are in
 * rules/, callers' operations in ops/, and load.c fills the tables at the start.
 */
#include "daemon/sandbox/sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/recreate.h"
#include "daemon/sandbox/rules/resolve.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/tie.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define OWN_RESUME_MS 60000	/* a startedAt so near to our own resume is that resume: clocks differ, and the call took a while */
#define KEY_MAX 512u

/* A table's key: the part of fixed size first, so that no two pairs give the same bytes. */
static size_t key_of(char ret[KEY_MAX], uint32_t scope, const char *rest)
{
	size_t n = strnlen(rest, KEY_MAX - sizeof(scope));

	memcpy(ret, &scope, sizeof(scope));
	memcpy(ret + sizeof(scope), rest, n);
	return sizeof(scope) + n;
}

/* --- sandboxes --- */

struct sandbox *core_find(struct sandbox_core *core, const struct account *a, const char *id)
{
	scratch_ char key[KEY_MAX];

	return map_get(&core->sandbox_map, key, key_of(key, a->index, id));
}

struct sandbox *core_find_any(struct sandbox_core *core, const struct account *first, const char *id)
{
	struct sandbox *b = core_find(core, first, id);

	for (size_t i = 0; !b && i < core->n_accounts; i++)
		b = core_find(core, &core->accounts[i], id);
	return b;
}

void core_reserve(struct sandbox_core *core, size_t n)
{
	map_reserve(&core->sandbox_map, n);
	map_reserve(&core->tag_map, n);
	map_reserve(&core->seq_map, n);
}

int core_insert(struct sandbox_core *core, struct sandbox *b)
{
	char key[KEY_MAX];
	int r = core_find(core, b->account, b->id) ? -EEXIST : 0;

	size_t n = key_of(key, b->account->index, b->id);

	if (!r)
		r = map_put(&core->sandbox_map, key, n, b);
	if (r < 0)
		return r;
	r = index_add(core, b);
	if (r < 0) {
		(void)map_del(&core->sandbox_map, key, n);
		return r;
	}
	list_add_tail(&core->sandboxes, &b->node);
	index_count(b);
	return 0;
}

static void drop_sandbox(struct sandbox_core *core, struct sandbox *b)
{
	char key[KEY_MAX];

	(void)map_del(&core->sandbox_map, key, key_of(key, b->account->index, b->id));
	index_del(core, b);
	list_del(&b->node);
	sandbox_free(b);
}

void core_forget(struct sandbox_core *core, struct sandbox *b)
{
	struct store_tx *t;

	if (store_tx_new(core->store, &t) < 0)
		return;
	store_tx_del_sandbox(t, b->account->name, b->id);
	core_commit(core, t, false);
	drop_sandbox(core, b);
}

/* --- names --- */

struct name_slot *core_find_name(struct sandbox_core *core, uid_t uid, const char *name)
{
	char key[KEY_MAX];

	return map_get(&core->name_map, key, key_of(key, uid, name));
}

static void free_name(struct name_slot *n)
{
	free(n->name);
	free(n->id);
	free(n);
}

int core_need_name(struct sandbox_core *core, uid_t uid, const char *name, struct name_slot **ret)
{
	struct name_slot *n = core_find_name(core, uid, name);
	char key[KEY_MAX];

	if (n) {
		*ret = n;
		return 0;
	}
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->uid = uid;
	n->account = core_account_of(core, uid);
	if (text_set(&n->name, name) < 0 || text_set(&n->id, "") < 0 ||
	    map_put(&core->name_map, key, key_of(key, uid, name), n) < 0) {
		free_name(n);
		return -ENOMEM;
	}
	list_add_tail(&core->names, &n->node);
	*ret = n;
	return 0;
}

static void drop_name(struct sandbox_core *core, struct name_slot *n)
{
	char key[KEY_MAX];

	(void)map_del(&core->name_map, key, key_of(key, n->uid, n->name));
	list_del(&n->node);
	free_name(n);
}

void core_forget_name(struct sandbox_core *core, struct name_slot *n)
{
	struct store_tx *t;

	must(!n->creation);
	if (store_tx_new(core->store, &t) < 0)
		return;
	store_tx_del_name(t, n->uid, n->name);
	core_commit(core, t, false);
	drop_name(core, n);
}

/* --- request ids --- */

static size_t request_key(char ret[KEY_MAX], uid_t uid, const char *method, const char *id)
{
	char rest[KEY_MAX];

	snprintf(rest, sizeof(rest), "%s/%s", method, id);
	return key_of(ret, uid, rest);
}

struct request *core_find_request(struct sandbox_core *core, uid_t uid, const char *method,
				  const char *id)
{
	char key[KEY_MAX];

	return map_get(&core->request_map, key, request_key(key, uid, method, id));
}

static void free_request(struct request *r)
{
	free(r->id);
	free(r->object);
	free(r->req_tag);
	free(r->refusal);
	free(r);
}

int core_need_request(struct sandbox_core *core, uid_t uid, const char *method, const char *id,
		      struct request **ret)
{
	struct request *r = core_find_request(core, uid, method, id);
	char key[KEY_MAX];

	if (r) {
		*ret = r;
		return 0;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->uid = uid;
	r->method = method;
	list_init(&r->same_tag);
	r->account = core_account_of(core, uid);
	r->step = ROW_REQUEST_OPEN;
	r->known_since_ms = clock_boot_ms();
	if (text_set(&r->id, id) < 0 || text_set(&r->object, "") < 0 ||
	    text_set(&r->req_tag, "") < 0 ||
	    map_put(&core->request_map, key, request_key(key, uid, method, id), r) < 0) {
		free_request(r);
		return -ENOMEM;
	}
	list_add_tail(&core->requests, &r->node);
	*ret = r;
	return 0;
}

/* Longer than any row of a request id that no sandbox has is kept. */
static uint64_t stored_requests_keep_ms(const struct sandbox_core *core)
{
	return MAX((uint64_t)RULES_REQUEST_KEPT_MS, core->history_ms) + FORGET_PRUNE_EVERY_MS + USED_SAVE_MS;
}

void core_note_stored_request(struct sandbox_core *core, uid_t uid, const char *method, const char *id)
{
	char key[KEY_MAX];

	seen_add(&core->stored_requests, key, request_key(key, uid, method, id), clock_boot_ms(), stored_requests_keep_ms(core));
}

bool core_may_have_stored(const struct sandbox_core *core, uid_t uid, const char *method, const char *id)
{
	char key[KEY_MAX];

	return seen_may_have(&core->stored_requests, key, request_key(key, uid, method, id), clock_boot_ms());
}

/* Its row may outlive it: where it is to be deleted the commit may fail. */
static void drop_request(struct sandbox_core *core, struct request *r)
{
	char key[KEY_MAX];

	core_note_stored_request(core, r->uid, r->method, r->id);
	(void)map_del(&core->request_map, key, request_key(key, r->uid, r->method, r->id));
	index_request_del(core, r);
	list_del(&r->node);
	free_request(r);
}

void core_forget_request(struct sandbox_core *core, struct request *r)
{
	struct store_tx *t;

	must(!r->attempt);
	if (store_tx_new(core->store, &t) < 0)
		return;
	store_tx_del_request(t, r->uid, r->method, r->id);
	core_commit(core, t, false);
	drop_request(core, r);
}

void core_let_go_request(struct sandbox_core *core, struct request *r)
{
	must(!r->attempt);
	drop_request(core, r);
}

/* --- writing --- */

void sandbox_put(struct store_tx *t, const struct sandbox *b)
{
	char policy[POLICY_TEXT_MAX];
	struct row_sandbox row;

	sandbox_to_row(b, policy, &row);
	store_tx_put_sandbox(t, &row);
}

void core_put_name(struct store_tx *t, const struct name_slot *n)
{
	struct row_name row = {
		.uid = n->uid,
		.name = n->name,
		.account = n->account->name,
		.id = n->id,
		.generation = n->generation,
	};

	store_tx_put_name(t, &row);
}

void core_put_request(struct store_tx *t, const struct request *r)
{
	struct row_request row = {
		.uid = r->uid,
		.method = r->method,
		.request_id = r->id,
		.state = r->step,
		.account = r->account->name,
		.object = r->object,
		.req_tag = r->req_tag,
		.used_at_ms = r->used_at_ms,
	};

	memcpy(row.params_hash, r->params_hash, sizeof(row.params_hash));
	store_tx_put_request(t, &row);
}

static void on_committed(void *user, const struct status *st)
{
	struct sandbox_core *core = user;

	must(core->magic == CORE_MAGIC);
	/* Only what the disk did not take is written again: a row that the store refuses would be refused again. */
	if (!status_ok(st) && !status_ok(store_health(core->store)))
		core->resave = true;
}

void core_commit(struct sandbox_core *core, struct store_tx *t, bool durable)
{
	store_tx_commit(t, durable, on_committed, core);
}

void core_store_refusal(const struct sandbox_core *core, struct status *ret)
{
	*ret = *store_health(core->store);
	if (status_ok(ret))
		status_set(ret, R_STORE_FULL,
			   "the daemon cannot write its state, so nothing may be sent");
}

void sandbox_save(struct sandbox_core *core, struct sandbox *b, bool durable)
{
	struct store_tx *t;

	if (store_tx_new(core->store, &t) < 0) {
		core->resave = true;
		return;
	}
	sandbox_put(t, b);
	core_commit(core, t, durable);
}

void sandbox_request_used(struct sandbox_core *core, struct request *r)
{
	uint64_t now = clock_boot_ms();
	struct store_tx *t;

	if ((r->use_saved_boot_ms && now < r->use_saved_boot_ms + USED_SAVE_MS) ||
	    store_tx_new(core->store, &t) < 0)
		return;
	r->use_saved_boot_ms = now;
	r->used_at_ms = clock_wall_ms() + USED_SAVE_MS;	/* so it need not be written each time */
	core_put_request(t, r);
	core_commit(core, t, false);
}

/* --- facts --- */

static enum sandbox_state state_of(const struct cloud_sandbox *s, enum sandbox_state now)
{
	switch (s->state) {
	case CLOUD_STATE_RUNNING:
		/* The cloud calls a sandbox that is being snapshotted running. */
		return now == SANDBOX_SNAPSHOTTING ? now : SANDBOX_RUNNING;
	case CLOUD_STATE_PAUSED:
		return SANDBOX_PAUSED;
	default:
		return now;
	}
}

static enum event_type event_of(const struct sandbox *b, enum sandbox_state before, int64_t end_before)
{
	if (before != b->state && b->state == SANDBOX_PAUSED)
		return EVENT_PAUSED;
	if (before != b->state && b->state == SANDBOX_RUNNING &&
	    (before == SANDBOX_PAUSED || before == SANDBOX_RESUMING))
		return EVENT_RESUMED;
	return end_before && b->end_at_ms > end_before ? EVENT_EXTENDED : EVENT_UPDATED;
}

static void save_seen(struct sandbox_core *core, struct sandbox *b, enum sandbox_state before,
		      int64_t end_before)
{
	struct store_tx *t;

	if (store_tx_new(core->store, &t) < 0) {
		core->resave = true;
		return;
	}
	sandbox_put(t, b);
	event_put(core, t, b, event_of(b, before, end_before), "said_by=cloud\n");
	core_commit(core, t, false);
}

/* The cloud's startedAt is the time of the creation or of the last resume. A later one without a resume of ours means that
 * somebody else resumed it, and what a policy counted from is over. */
static bool is_resumed_elsewhere(const struct sandbox *b, const struct cloud_sandbox *s)
{
	int64_t off = s->started_at_ms - b->resumed_at_ms;

	return s->state == CLOUD_STATE_RUNNING && s->started_at_ms && b->started_at_ms &&
	       s->started_at_ms > b->started_at_ms && !b->changing && b->state != SANDBOX_RESUMING &&
	       !(b->resumed_at_ms && off < OWN_RESUME_MS && off > -OWN_RESUME_MS);
}

/* Somebody uses it without asking us: no policy ends it for what was before. */
static void let_go(struct sandbox_core *core, struct sandbox *b)
{
	log_info("sandbox_resumed_elsewhere", "sandbox=%s uid=%u state=%s", b->id, owner_uid(b->uid),
		 sandbox_state_name(b->state));
	b->released_at_ms = b->unclaimed_at_ms = b->unclaimed_boot_ms = 0;
	b->used_at_ms = (int64_t)clock_boot_ms();
	if (b->state == SANDBOX_KILLING)
		kill_let_go(core, b);
}

void sandbox_seen_since(struct sandbox_core *core, struct sandbox *b, const struct cloud_sandbox *s,
			uint64_t asked_at_ms)
{
	/* An answer to a question from before our last state change is not taken for its state. */
	bool is_old = b->changing || (b->moved_at_ms && b->moved_at_ms >= asked_at_ms);
	enum sandbox_state before = b->state, to = is_old ? before : state_of(s, before);
	int64_t end_before = b->end_at_ms;
	bool changed = false;

	/* The DELETE was confirmed, so this answer is older. */
	if (before == SANDBOX_GONE && b->gone_reason == R_SANDBOX_KILLED)
		return;
	if (is_resumed_elsewhere(b, s)) {
		let_go(core, b);
		before = b->state;
		to = is_old ? before : state_of(s, before);
	}
	if (sandbox_learn(b, s, clock_boot_ms(), clock_wall_ms(), &changed) < 0) {
		log_warn("sandbox_learn", "sandbox=%s error=nomem ignoring=1", b->id);
		return;
	}
	if (before != SANDBOX_KILLING && to != before) {
		if (before == SANDBOX_GONE) {
			log_warn("sandbox_back", "sandbox=%s was=%s", b->id,
				 status_reason_name(b->gone_reason));
			b->gone_reason = REASON_NONE;
			b->gone_at_ms = 0;
		}
		sandbox_set_state(b, to);
		changed = true;
	}
	if (b->end_at_ms != end_before)
		runner_end_learnt(b);
	if (!changed)
		return;
	if (before != b->state)
		runner_poke(b);
	save_seen(core, b, before, end_before);
	if (b->end_at_ms != end_before)
		lease_changed(b);
}

void sandbox_seen(struct sandbox_core *core, struct sandbox *b, const struct cloud_sandbox *s)
{
	sandbox_seen_since(core, b, s, UINT64_MAX);
}

void sandbox_changed(struct sandbox_core *core, struct sandbox *b, enum sandbox_state to,
		     const char *by)
{
	enum sandbox_state before = b->state;
	struct store_tx *t;

	b->moved_at_ms = clock_boot_ms();
	if (before == to)
		return;
	sandbox_set_state(b, to);
	/* Warnings of an end from before a pause begin anew. While the state changed no policy was evaluated. */
	if (to == SANDBOX_RUNNING)
		runner_end_learnt(b);
	else
		runner_poke(b);
	if (store_tx_new(core->store, &t) < 0) {
		core->resave = true;
		return;
	}
	sandbox_put(t, b);
	event_put(core, t, b, event_of(b, before, 0), "by=%s\n", by[0] ? by : "user");
	core_commit(core, t, true);
}

void sandbox_used(struct sandbox_core *core, struct sandbox *b)
{
	b->used_at_ms = (int64_t)clock_boot_ms();
	if (!b->policy.idle_timeout_ms)
		return;
	if (b->used_at_ms > b->used_saved_ms + USED_SAVE_MS) {
		b->used_saved_ms = b->used_at_ms;
		sandbox_save(core, b, false);
	}
}

static struct sandbox *sandbox_of_use(struct sandbox_core *core, const char *account, const char *id)
{
	struct account *a = core_account_by_name(core, account);

	return a ? core_find(core, a, id) : NULL;
}

void sandbox_use_begin(struct sandbox_core *core, const char *account, const char *id)
{
	struct sandbox *b = sandbox_of_use(core, account, id);

	if (!b)
		return;
	if (!b->n_commands++)
		runner_poke_later(b);
}

void sandbox_use_end(struct sandbox_core *core, const char *account, const char *id)
{
	struct sandbox *b = sandbox_of_use(core, account, id);

	if (!b || !b->n_commands)
		return;
	if (--b->n_commands)
		return;
	b->command_ended_at_ms = b->used_at_ms = (int64_t)clock_boot_ms();
	runner_poke_later(b);
}

void sandbox_connection_ended(struct sandbox_core *core, const struct principal *who)
{
	holder_connection_ended(core, who->uid, who->conn);
}

void sandbox_free_name(struct sandbox_core *core, struct sandbox *b, struct store_tx *t)
{
	struct name_slot *n = b->named ? core_find_name(core, b->uid, b->name) : NULL;

	b->named = false;
	if (!n || !str_eq(n->id, b->id))
		return;
	n->id[0] = 0;
	core_put_name(t, n);
}

void sandbox_gone(struct sandbox_core *core, struct sandbox *b, bool by_us, const char *evidence)
{
	int64_t now = clock_wall_ms(), cloud_now = account_cloud_now(b->account);
	long long age = b->started_at_ms ? cloud_now - b->started_at_ms : -1;
	enum sandbox_state before = b->state;
	struct recreation again;
	struct store_tx *t;

	if (b->state == SANDBOX_GONE)
		return;
	b->asked_end_at_ms = 0;
	b->gone_reason = rules_gone_reason(by_us, b->end_at_ms, cloud_now, b->state == SANDBOX_PAUSED);
	b->gone_at_ms = b->as_of_ms = now;
	b->fresh_at_ms = clock_boot_ms();
	if (text_set(&b->gone_evidence, evidence) < 0)
		b->gone_evidence[0] = 0;
	sandbox_set_state(b, SANDBOX_GONE);
	core->totals.gone.n[b->gone_reason]++;
	explicit_bzero(b->access_token, strlen(b->access_token));
	explicit_bzero(b->traffic_token, strlen(b->traffic_token));
	b->token_known = false;
	log_info("sandbox_gone", "sandbox=%s reason=%s said_by=%s age_ms=%lld", b->id,
		 status_reason_name(b->gone_reason), log_q(b->gone_evidence), age);
	runner_poke(b);
	warm_gone(b);
	sync_note_ended(b);
	if (store_tx_new(core->store, &t) < 0) {
		core->resave = true;
		b->named = false;
		lease_sandbox_gone(core, b, NULL);
		tie_gone(core, b);
		return;
	}
	recreate_decide(core, b, before, by_us, &again);
	refused_gone(core, b, t);
	recipe_fini(&b->recipe);
	lease_sandbox_gone(core, b, t);
	sandbox_free_name(core, b, t);
	recreate_intend(&again, t);
	sandbox_put(t, b);
	event_put(core, t, b, EVENT_GONE, "said_by=%s\nby=%s\nunexpected=%s\nage_ms=%lld\n%s%s%s",
		  b->gone_evidence,
		  b->ended_by[0] ? b->ended_by
		  : by_us	 ? "user"
				 : "",
		  b->gone_reason == R_SANDBOX_GONE ? "true" : "false", age,
		  again.verdict[0] ? "recreate=" : "", again.verdict, again.verdict[0] ? "\n" : "");
	tie_gone(core, b);
	recreate_commit(core, &again, t);
}

void sandbox_absent(struct sandbox_core *core, struct sandbox *b)
{
	if (sandbox_is_live(b))
		sandbox_gone(core, b, false, "GET /sandboxes/{id}: 404");
}

void sandbox_claim(struct sandbox_core *core, struct sandbox *b, uid_t uid)
{
	if (list_is_empty(&b->node))
		return;		/* not in the table: the cloud's words about a sandbox without a row */
	sandbox_used(core, b);
	if (b->claimed || b->uid != uid)
		return;
	b->claimed = b->claim_unsaved = true;
	b->unclaimed_at_ms = b->unclaimed_boot_ms = 0;
	runner_poke(b);
	sandbox_save(core, b, false);
}

void sandbox_give_name(struct sandbox_core *core, struct sandbox *b, struct name_slot *n)
{
	must(!n->id[0]);
	if (text_set(&n->id, b->id) < 0 || index_set_name(b, n->name) < 0) {
		n->id[0] = 0;
		return;
	}
	n->account = b->account;
	b->named = true;
}

/* Of two with one name the one adopted first, the oldest (rules/plan.h), gets it; the other one gets a warning. */
static int name_adopted(struct sandbox_core *core, struct sandbox *b, const char *name,
			struct store_tx *t)
{
	struct name_slot *n;
	int r;

	if (!rules_name_is_valid(name))
		return 0;
	r = core_need_name(core, b->uid, name, &n);
	if (r < 0)
		return r;
	if (n->id[0] || n->creation) {
		char *warning = str_printf("duplicate of name %s, held by %s", name,
					   n->id[0] ? n->id : "a creation under way");

		if (!warning)
			return -ENOMEM;
		text_give(&b->warning, warning);
		return 0;
	}
	n->generation++;
	b->generation = n->generation;
	sandbox_give_name(core, b, n);
	core_put_name(t, n);
	return 0;
}

/* The cloud's answer to a fork does not say when the children started: not before what has a start. */
bool core_is_older(const struct sandbox *a, const struct sandbox *b)
{
	return a->started_at_ms && (!b->started_at_ms || a->started_at_ms < b->started_at_ms);
}

/* The request's object is the oldest with its tag: children of a fork carry their parent's. */
static bool is_oldest_of_tag(struct sandbox_core *core, const struct sandbox *b)
{
	struct sandbox *o = NULL;

	while ((o = index_of_tag(core, b->account, b->req_tag, o)))
		if (o != b && !core_is_older(b, o))
			return false;
	return true;
}

/* The request id that made it has its outcome now, if that was unknown. */
static void request_adopted(struct sandbox_core *core, struct sandbox *b, struct store_tx *t)
{
	struct request *q = NULL;

	if (!is_oldest_of_tag(core, b))
		return;
	while ((q = index_request_of_tag(core, b->uid, b->req_tag, q))) {
		if (q->attempt || !str_eq(q->method, REQUEST_CREATE) || q->step == ROW_REQUEST_DONE)
			continue;
		if (text_set(&q->object, b->id) < 0)
			return;
		q->step = ROW_REQUEST_DONE;
		core_put_request(t, q);
		return;
	}
}

bool core_is_known(struct sandbox_core *core, const struct account *a, const struct cloud_sandbox *s)
{
	return core_find_any(core, a, s->id) || map_get_str(&core->stranger_ids, s->id) || sandbox_attempt_makes(core, s);
}

int core_adopt(struct sandbox_core *core, struct account *a, const struct cloud_sandbox *s,
	       struct sandbox **ret)
{
	scoped(sandbox_freep) struct sandbox *b = NULL;
	struct store_tx *tx;
	struct tags t;
	int r;

	tags_read(&s->metadata, &t);
	must(tags_are_of(&t, store_host_id(core->store)));
	r = sandbox_from_cloud(a, s, &b);
	if (!r)
		r = text_set(&b->req_tag, t.req);
	if (r < 0)
		return r;
	b->ours = doubt_adopts_as_ours(core, s->id, &t);
	b->adopted = !b->ours;
	b->from_tag = true;
	b->uid = t.has_uid ? t.uid : 0;
	b->seq = t.seq;
	core_policy_default(core, b->uid, b->template_id, &b->policy);
	if (t.policy[0] && policy_parse(t.policy, &b->policy) < 0)
		core_policy_default(core, b->uid, b->template_id, &b->policy);
	/* It cannot be made again: its environment is in no tag. */
	b->policy.on_gone = POLICY_FAIL;
	b->used_at_ms = (int64_t)clock_boot_ms();
	b->claimed = b->adopted;
	if (!b->claimed) {
		b->unclaimed_at_ms = clock_wall_ms();
		b->unclaimed_boot_ms = b->used_at_ms;
	}
	b->token_known = s->envd_access_token != NULL;
	refused_adopted(core, b);
	r = store_tx_new(core->store, &tx);
	if (r < 0)
		return r;
	r = name_adopted(core, b, t.name, tx);
	if (!r)
		r = warm_adopted(b, &t, tx);
	if (!r)
		r = core_insert(core, b);
	if (r < 0) {
		store_tx_drop(tx);
		return r;
	}
	request_adopted(core, b, tx);
	sandbox_put(tx, b);
	event_put(core, tx, b, EVENT_ADOPTED, "by=tag\n");
	core_commit(core, tx, true);
	runner_poke(b);
	warm_poke_all(core);
	store_seen_seq(core->store, t.seq);
	log_info("sandbox_adopted", "sandbox=%s uid=%u seq=%llu name=%s", b->id, owner_uid(b->uid),
		 (unsigned long long)b->seq, log_q(t.name));
	*ret = give(b);
	return 0;
}

void sandbox_core_set_graces(struct sandbox_core *core, uint64_t unclaimed_ms, uint64_t restart_ms)
{
	core->restart_grace_ms = restart_ms;
	if (core->unclaimed_grace_ms == unclaimed_ms)
		return;
	core->unclaimed_grace_ms = unclaimed_ms;
	list_for_each(n, &core->sandboxes) {
		struct sandbox *b = list_entry(n, struct sandbox, node);

		if (b->unclaimed_boot_ms)
			runner_poke(b);
	}
}

/* --- start --- */

static uint64_t or_default(uint64_t v, uint64_t def)
{
	return v ? v : def;
}

static void init_lists(struct sandbox_core *core)
{
	struct list *const lists[] = {&core->sandboxes, &core->names,	&core->requests,
				      &core->attempts,	&core->fetches, &core->killings,
				      &core->ops,	&core->commits, &core->leases,
				      &core->transitions,	&core->snapshots,
				      &core->untold,	&core->refused, &core->warm,	&core->claims,
				      &core->records, &core->warm_past};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		list_init(lists[i]);
}

int sandbox_core_new(const struct sandbox_core_options *o, struct sandbox_core **ret)
{
	struct sandbox_core *core = calloc(1, sizeof(*core));
	int r;

	if (!core)
		return -ENOMEM;
	must(o->n_accounts && o->n_accounts <= SANDBOX_ACCOUNTS_MAX && o->sha256);
	core->magic = CORE_MAGIC;
	core->loop = o->loop;
	core->store = o->store;
	core->prober = o->prober;
	core->preparer = o->preparer;
	core->sha256 = o->sha256;
	core->history_ms = or_default(o->history_ms, 24ull * 3600 * 1000);
	core->unclaimed_grace_ms = or_default(o->unclaimed_grace_ms, 120000);
	core->reconcile_period_ms = or_default(o->reconcile_period_ms, 60000);
	core->max_staleness_ms = or_default(o->max_staleness_ms, 5000);
	core->resolve_horizon_ms = or_default(o->resolve_horizon_ms, RESOLVE_HORIZON_MS);
	core->restart_grace_ms = or_default(o->restart_grace_ms, 30000);
	core->quiet_until_ms = (int64_t)(clock_boot_ms() + core->restart_grace_ms);
	core->identity = o->identity ? o->identity : holder_best_identity();
	rng_seed(&core->rng, o->rng_seed);
	init_lists(core);
	events_init(core);
	r = core_make_accounts(core, o);
	if (!r)
		r = sandbox_core_set_rules(core, &o->rules);
	if (!r)
		proof_load(core);
	if (!r)
		r = core_load(core);
	if (!r)
		proof_start(core);
	if (!r)
		r = sync_start(core);
	if (r < 0) {
		(void)sandbox_core_free(core);
		return r;
	}
	*ret = core;
	return 0;
}

void sandbox_core_drain(struct sandbox_core *core)
{
	core->draining = true;
	lease_drain(core);
	event_watches_wake(core);
}

void sandbox_core_quiesce(struct sandbox_core *core, const char *why)
{
	bool was = core->quiesced[0];

	(void)str_copy(core->quiesced, sizeof(core->quiesced), why ? why : "");
	if (was && !why)
		warm_poke_all(core);
}

const char *sandbox_core_quiesced(const struct sandbox_core *core)
{
	return core->quiesced;
}

bool core_is_quiesced(const struct sandbox_core *core, struct status *st)
{
	if (!core->quiesced[0])
		return false;
	status_set(st, R_QUIESCED, "agentboxd makes no new sandboxes for now, %s; try again later", core->quiesced);
	st->retry_after_ms = QUIESCED_RETRY_MS;
	return true;
}

static void sandbox_bury(void *p)
{
	struct sandbox_core *core = p;

	must(core->magic == CORE_MAGIC);
	core->magic = 0;
	free(core);
}

static void free_texts(struct map *m)
{
	size_t pos = 0;
	char *text;

	while ((text = map_next(m, &pos)))
		free(text);
	map_fini(m);
}

struct sandbox_core *sandbox_core_free(struct sandbox_core *core)
{
	if (!core)
		return NULL;
	must(core->magic == CORE_MAGIC);
	store_mute(core->store);
	op_cancel_all(core);
	warm_free_all(core);
	proof_stop(core);
	sync_stop(core);
	lease_free_all(core);
	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		b->runner = runner_free(b);
	}
	core_attempts_cancel(core);
	transition_cancel_all(core);
	kill_cancel_all(core);
	fetch_cancel_all(core);
	while (!list_is_empty(&core->sandboxes))
		drop_sandbox(core, list_entry(core->sandboxes.next, struct sandbox, node));
	snapshot_forget_all(core);
	refused_forget_all(core);
	while (!list_is_empty(&core->names))
		drop_name(core, list_entry(core->names.next, struct name_slot, node));
	while (!list_is_empty(&core->requests))
		drop_request(core, list_entry(core->requests.next, struct request, node));
	map_fini(&core->sandbox_map);
	map_fini(&core->tag_map);
	map_fini(&core->seq_map);
	map_fini(&core->named_map);
	map_fini(&core->request_tag_map);
	map_fini(&core->owner_map);
	map_fini(&core->name_map);
	map_fini(&core->request_map);
	seen_fini(&core->stored_requests);
	map_fini(&core->fetch_map);
	map_fini(&core->lease_map);
	map_fini(&core->lease_counts);
	map_fini(&core->holder_map);
	events_fini(core);
	core_free_accounts(core);
	free_texts(&core->strangers);
	free_texts(&core->stranger_ids);
	/* Behind the operations that are buried already: their holders refer to the core when they are freed. */
	loop_bury(core->loop, &core->grave, sandbox_bury, core);
	return NULL;
}
