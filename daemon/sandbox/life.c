/* SPDX-License-Identifier: MIT */
/*
 * The tables of lifecycle, and the facts that change a box. Decisions are in the pure files, stories in
 * one file per operation, what fills the tables at start in load.c.
 */
#include "daemon/sandbox/life.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/keep.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/recreate.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/settle.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* Keys of the tables. Parts that may hold anything come last. */
#define KEY_MAX 512u

static size_t key_of(char ret[KEY_MAX], unsigned scope, const char *rest)
{
	int n = snprintf(ret, KEY_MAX, "%u/%s", scope, rest);

	must(n > 0);
	return MIN((size_t)n, KEY_MAX - 1);
}

/* --- accounts --- */

const char *account_name(const struct account *a)
{
	return a->name;
}

struct account *life_account_by_name(struct life *l, const char *name)
{
	for (size_t i = 0; i < l->n_accounts; i++)
		if (str_eq(l->accounts[i].name, name))
			return &l->accounts[i];
	return NULL;
}

struct uid_limit *life_uid_limit(struct life *l, uid_t uid)
{
	for (size_t i = 0; i < l->n_uids; i++)
		if (l->uids[i].uid == uid)
			return &l->uids[i];
	return NULL;
}

struct account *life_account_of(struct life *l, uid_t uid)
{
	struct uid_limit *u = life_uid_limit(l, uid);

	return u ? u->account : &l->accounts[0];
}

/* --- boxes --- */

struct box *life_find_box(struct life *l, const struct account *a, const char *id)
{
	char key[KEY_MAX];

	return map_get(&l->box_map, key, key_of(key, a->index, id));
}

int life_insert_box(struct life *l, struct box *b)
{
	char key[KEY_MAX];
	int r = life_find_box(l, b->account, b->id) ? -EEXIST : 0;

	if (!r)
		r = map_put(&l->box_map, key, key_of(key, b->account->index, b->id), b);
	if (!r)
		list_add_tail(&l->boxes, &b->node);
	return r;
}

static void drop_box(struct life *l, struct box *b)
{
	char key[KEY_MAX];

	(void)map_del(&l->box_map, key, key_of(key, b->account->index, b->id));
	list_del(&b->node);
	box_free(b);
}

void life_forget_box(struct life *l, struct box *b)
{
	struct store_tx *t;

	if (store_tx_new(l->store, &t) < 0)
		return;
	store_tx_del_sandbox(t, b->account->name, b->id);
	life_commit(l, t, false);
	drop_box(l, b);
}

/* --- names --- */

struct name_slot *life_find_name(struct life *l, uid_t uid, const char *name)
{
	char key[KEY_MAX];

	return map_get(&l->name_map, key, key_of(key, uid, name));
}

static void free_name(struct name_slot *n)
{
	free(n->name);
	free(n->id);
	free(n);
}

int life_need_name(struct life *l, uid_t uid, const char *name, struct name_slot **ret)
{
	struct name_slot *n = life_find_name(l, uid, name);
	char key[KEY_MAX];

	if (n) {
		*ret = n;
		return 0;
	}
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->uid = uid;
	n->account = life_account_of(l, uid);
	if (text_set(&n->name, name) < 0 || text_set(&n->id, "") < 0 ||
	    map_put(&l->name_map, key, key_of(key, uid, name), n) < 0) {
		free_name(n);
		return -ENOMEM;
	}
	list_add_tail(&l->names, &n->node);
	*ret = n;
	return 0;
}

static void drop_name(struct life *l, struct name_slot *n)
{
	char key[KEY_MAX];

	(void)map_del(&l->name_map, key, key_of(key, n->uid, n->name));
	list_del(&n->node);
	free_name(n);
}

void life_forget_name(struct life *l, struct name_slot *n)
{
	struct store_tx *t;

	must(!n->creation);
	if (store_tx_new(l->store, &t) < 0)
		return;
	store_tx_del_name(t, n->uid, n->name);
	life_commit(l, t, false);
	drop_name(l, n);
}

/* --- request ids --- */

static size_t request_key(char ret[KEY_MAX], uid_t uid, const char *method, const char *id)
{
	char rest[KEY_MAX];

	snprintf(rest, sizeof(rest), "%s/%s", method, id);
	return key_of(ret, uid, rest);
}

struct request *life_find_request(struct life *l, uid_t uid, const char *method, const char *id)
{
	char key[KEY_MAX];

	return map_get(&l->request_map, key, request_key(key, uid, method, id));
}

static void free_request(struct request *r)
{
	free(r->id);
	free(r->object);
	free(r->req_tag);
	free(r->refusal);
	free(r);
}

int life_need_request(struct life *l, uid_t uid, const char *method, const char *id, struct request **ret)
{
	struct request *r = life_find_request(l, uid, method, id);
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
	r->account = life_account_of(l, uid);
	r->step = ROW_REQUEST_OPEN;
	if (text_set(&r->id, id) < 0 || text_set(&r->object, "") < 0 || text_set(&r->req_tag, "") < 0 ||
	    map_put(&l->request_map, key, request_key(key, uid, method, id), r) < 0) {
		free_request(r);
		return -ENOMEM;
	}
	list_add_tail(&l->requests, &r->node);
	*ret = r;
	return 0;
}

static void drop_request(struct life *l, struct request *r)
{
	char key[KEY_MAX];

	(void)map_del(&l->request_map, key, request_key(key, r->uid, r->method, r->id));
	list_del(&r->node);
	free_request(r);
}

void life_forget_request(struct life *l, struct request *r)
{
	struct store_tx *t;

	must(!r->attempt);
	if (store_tx_new(l->store, &t) < 0)
		return;
	store_tx_del_request(t, r->uid, r->method, r->id);
	life_commit(l, t, false);
	drop_request(l, r);
}

/* --- writing --- */

void life_put_box(struct store_tx *t, const struct box *b)
{
	char policy[POLICY_TEXT_MAX];
	struct row_sandbox row;

	box_to_row(b, policy, &row);
	store_tx_put_sandbox(t, &row);
}

void life_put_name(struct store_tx *t, const struct name_slot *n)
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

void life_put_request(struct store_tx *t, const struct request *r)
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
	struct life *l = user;

	must(l->magic == LIFE_MAGIC);
	if (!status_ok(st))
		l->resave = true;
}

void life_commit(struct life *l, struct store_tx *t, bool durable)
{
	store_tx_commit(t, durable, on_committed, l);
}

void life_store_refusal(const struct life *l, struct status *ret)
{
	*ret = *store_health(l->store);
	if (status_ok(ret))
		status_set(ret, R_STORE_FULL, "the daemon cannot write its state, so nothing may be sent");
}

void life_save_box(struct life *l, struct box *b, bool durable)
{
	struct store_tx *t;

	if (store_tx_new(l->store, &t) < 0) {
		l->resave = true;
		return;
	}
	life_put_box(t, b);
	life_commit(l, t, durable);
}

void life_request_used(struct life *l, struct request *r)
{
	uint64_t now = clock_boot_ms();
	struct store_tx *t;

	if ((r->use_saved_boot_ms && now < r->use_saved_boot_ms + USED_SAVE_MS) || store_tx_new(l->store, &t) < 0)
		return;
	r->use_saved_boot_ms = now;
	r->used_at_ms = clock_wall_ms() + USED_SAVE_MS;	/* so it need not be written each time */
	life_put_request(t, r);
	life_commit(l, t, false);
}

/* --- facts --- */

static enum life_state state_of(const struct cloud_sandbox *s, enum life_state now)
{
	switch (s->state) {
	case CLOUD_STATE_RUNNING:
		/* The cloud calls a sandbox that is being snapshotted running. */
		return now == LIFE_SNAPSHOTTING ? now : LIFE_RUNNING;
	case CLOUD_STATE_PAUSED:
		return LIFE_PAUSED;
	default:
		return now;
	}
}

static enum event_type event_of(const struct box *b, enum life_state before, int64_t end_before)
{
	if (before != b->state && b->state == LIFE_PAUSED)
		return EVENT_PAUSED;
	if (before != b->state && b->state == LIFE_RUNNING &&
	    (before == LIFE_PAUSED || before == LIFE_RESUMING))
		return EVENT_RESUMED;
	return end_before && b->end_at_ms > end_before ? EVENT_EXTENDED : EVENT_UPDATED;
}

static void save_seen(struct life *l, struct box *b, enum life_state before, int64_t end_before)
{
	struct store_tx *t;

	if (store_tx_new(l->store, &t) < 0) {
		l->resave = true;
		return;
	}
	life_put_box(t, b);
	event_put(l, t, b, event_of(b, before, end_before), "said_by=cloud\n");
	life_commit(l, t, false);
}

void life_box_seen_since(struct life *l, struct box *b, const struct cloud_sandbox *s, uint64_t asked_at_ms)
{
	/* Who changes it, or has changed it, knows better than a question that was asked before. */
	bool is_old = b->changing || (b->moved_at_ms && b->moved_at_ms >= asked_at_ms);
	enum life_state before = b->state, to = is_old ? before : state_of(s, before);
	int64_t end_before = b->end_at_ms;
	bool changed = false;

	/* The DELETE was confirmed: this is an answer that was on its way meanwhile. */
	if (before == LIFE_GONE && b->gone_reason == R_SANDBOX_KILLED)
		return;
	if (box_learn(b, s, clock_boot_ms(), clock_wall_ms(), &changed) < 0) {
		log_warn("box_learn", "box=%s err=nomem ignoring=1", b->id);
		return;
	}
	if (before != LIFE_KILLING && to != before) {
		if (before == LIFE_GONE) {
			log_warn("box_back", "box=%s was=%s", b->id, status_reason_name(b->gone_reason));
			b->gone_reason = REASON_NONE;
			b->gone_at_ms = 0;
		}
		box_set_state(b, to);
		changed = true;
	}
	if (b->end_at_ms != end_before)
		keep_end_learnt(b);
	if (!changed)
		return;
	if (before != b->state)
		keep_poke(b);
	save_seen(l, b, before, end_before);
	if (b->end_at_ms != end_before)
		lease_news(b);
}

void life_box_seen(struct life *l, struct box *b, const struct cloud_sandbox *s)
{
	life_box_seen_since(l, b, s, UINT64_MAX);
}

void life_box_changed(struct life *l, struct box *b, enum life_state to, const char *by)
{
	enum life_state before = b->state;
	struct store_tx *t;

	b->moved_at_ms = clock_boot_ms();
	if (before == to)
		return;
	box_set_state(b, to);
	/* An end from before a pause is not one to warn of. Nothing was due while it changed: look again. */
	if (to == LIFE_RUNNING)
		keep_end_learnt(b);
	else
		keep_poke(b);
	if (store_tx_new(l->store, &t) < 0) {
		l->resave = true;
		return;
	}
	life_put_box(t, b);
	event_put(l, t, b, event_of(b, before, 0), "by=%s\n", by[0] ? by : "user");
	life_commit(l, t, true);
}

void life_box_used(struct life *l, struct box *b)
{
	b->used_at_ms = (int64_t)clock_boot_ms();
	if (!b->policy.idle_timeout_ms)
		return;
	if (b->used_at_ms > b->used_saved_ms + USED_SAVE_MS) {
		b->used_saved_ms = b->used_at_ms;
		life_save_box(l, b, false);
	}
}

static struct box *box_of_use(struct life *l, const char *account, const char *id)
{
	struct account *a = life_account_by_name(l, account);

	return a ? life_find_box(l, a, id) : NULL;
}

void life_listen(struct life *l, life_state_fn *fn, void *user)
{
	l->on_state = fn;
	l->on_state_user = user;
}

void life_use_begin(struct life *l, const char *account, const char *id)
{
	struct box *b = box_of_use(l, account, id);

	if (!b)
		return;
	b->n_commands++;
	keep_poke(b);
}

void life_use_end(struct life *l, const char *account, const char *id)
{
	struct box *b = box_of_use(l, account, id);

	if (!b || !b->n_commands)
		return;
	if (!--b->n_commands)
		b->command_ended_at_ms = b->used_at_ms = (int64_t)clock_boot_ms();
	keep_poke(b);
}

void life_policy_default(const struct life *l, uid_t uid, const char *template_id, struct policy *ret)
{
	*ret = l->policy;
	for (size_t i = 0; i < l->n_policies; i++)
		if (l->policies[i].template_id && str_eq(l->policies[i].template_id, template_id))
			policy_merge(ret, &l->policies[i].change);
	for (size_t i = 0; i < l->n_policies; i++)
		if (!l->policies[i].template_id && l->policies[i].uid == uid)
			policy_merge(ret, &l->policies[i].change);
}

void life_connection_ended(struct life *l, const struct principal *who)
{
	holder_connection_ended(l, who->conn);
}

void life_box_free_name(struct life *l, struct box *b, struct store_tx *t)
{
	struct name_slot *n = b->named ? life_find_name(l, b->uid, b->name) : NULL;

	b->named = false;
	if (!n || !str_eq(n->id, b->id))
		return;
	n->id[0] = 0;
	life_put_name(t, n);
}

void life_box_gone(struct life *l, struct box *b, bool by_us, const char *evidence)
{
	int64_t now = clock_wall_ms(), cloud_now = account_cloud_now(b->account);
	long long age = b->started_at_ms ? cloud_now - b->started_at_ms : -1;
	enum life_state before = b->state;
	struct recreation again;
	struct store_tx *t;

	if (b->state == LIFE_GONE)
		return;
	b->gone_reason = rules_gone_reason(by_us, b->end_at_ms, cloud_now, b->state == LIFE_PAUSED);
	b->gone_at_ms = b->as_of_ms = now;
	b->fresh_at_ms = clock_boot_ms();
	if (text_set(&b->gone_evidence, evidence) < 0)
		b->gone_evidence[0] = 0;
	box_set_state(b, LIFE_GONE);
	explicit_bzero(b->access_token, strlen(b->access_token));
	explicit_bzero(b->traffic_token, strlen(b->traffic_token));
	b->token_known = false;
	log_info("box_gone", "box=%s reason=%s said_by=%s age_ms=%lld", b->id,
		 status_reason_name(b->gone_reason), log_q(b->gone_evidence),
		 age);
	keep_poke(b);
	if (store_tx_new(l->store, &t) < 0) {
		l->resave = true;
		b->named = false;
		lease_box_gone(l, b, NULL);
		return;
	}
	recreate_decide(l, b, before, by_us, &again);
	recipe_fini(&b->recipe);
	lease_box_gone(l, b, t);
	life_box_free_name(l, b, t);
	recreate_intend(&again, t);
	life_put_box(t, b);
	event_put(l, t, b, EVENT_GONE, "said_by=%s\nby=%s\nunexpected=%s\nage_ms=%lld\n%s%s%s", b->gone_evidence,
		  b->ended_by ? b->ended_by : by_us ? "user" : "", b->gone_reason == R_SANDBOX_GONE ? "true" : "false",
		  age, again.verdict[0] ? "recreate=" : "", again.verdict, again.verdict[0] ? "\n" : "");
	recreate_commit(l, &again, t);
}

void life_box_claim(struct life *l, struct box *b, uid_t uid)
{
	if (list_is_empty(&b->node))
		return;		/* a stranger that was only looked at: it has no row */
	life_box_used(l, b);
	if (b->claimed || b->uid != uid)
		return;
	b->claimed = b->claim_unsaved = true;
	b->unclaimed_at_ms = b->unclaimed_boot_ms = 0;
	keep_poke(b);
	life_save_box(l, b, false);
}

void life_box_give_name(struct life *l, struct box *b, struct name_slot *n)
{
	must(!n->id[0]);
	if (text_set(&n->id, b->id) < 0 || text_set(&b->name, n->name) < 0) {
		n->id[0] = 0;
		return;
	}
	n->account = b->account;
	b->named = true;
}

/* The oldest holder keeps the name; a younger one says so. Reconcile adopts the oldest first. */
static int name_adopted(struct life *l, struct box *b, const char *name, struct store_tx *t)
{
	struct name_slot *n;
	int r;

	if (!rules_name_is_valid(name))
		return 0;
	r = life_need_name(l, b->uid, name, &n);
	if (r < 0)
		return r;
	if (n->id[0] || n->creation) {
		char *warning = str_printf("duplicate of name %s, held by %s", name,
					   n->id[0] ? n->id : "a creation under way");

		if (!warning)
			return -ENOMEM;
		free(b->warning);
		b->warning = warning;
		return 0;
	}
	n->generation++;
	b->generation = n->generation;
	life_box_give_name(l, b, n);
	life_put_name(t, n);
	return 0;
}

/* Children of a fork carry their parent's tag: it is the request's object only on the oldest. */
static bool is_oldest_of_tag(struct life *l, const struct box *b)
{
	list_for_each(i, &l->boxes) {
		struct box *o = list_entry(i, struct box, node);

		if (o != b && o->account == b->account && str_eq(o->req_tag, b->req_tag) &&
		    o->started_at_ms <= b->started_at_ms)
			return false;
	}
	return true;
}

/* A request id whose outcome was unknown, or that the lost store knew, has its object now. */
static void request_adopted(struct life *l, struct box *b, struct store_tx *t)
{
	if (!b->req_tag[0] || !is_oldest_of_tag(l, b))
		return;
	list_for_each(i, &l->requests) {
		struct request *q = list_entry(i, struct request, node);

		if (q->uid != b->uid || q->attempt || !str_eq(q->method, REQUEST_CREATE) || q->step == ROW_REQUEST_DONE ||
		    !str_eq(q->req_tag, b->req_tag))
			continue;
		if (text_set(&q->object, b->id) < 0)
			return;
		q->step = ROW_REQUEST_DONE;
		life_put_request(t, q);
		return;
	}
}

int life_adopt(struct life *l, struct account *a, const struct cloud_sandbox *s, struct box **ret)
{
	scoped(box_freep) struct box *b = NULL;
	struct store_tx *tx;
	struct tags t;
	int r;

	tags_read(&s->metadata, &t);
	must(tags_are_of(&t, store_host_id(l->store)));
	r = box_from_cloud(a, s, &b);
	if (!r)
		r = text_set(&b->req_tag, t.req);
	if (r < 0)
		return r;
	b->ours = doubt_adopts_as_ours(l, s->id, &t);
	b->adopted = !b->ours;
	b->from_tag = true;
	b->uid = t.has_uid ? t.uid : 0;
	b->seq = t.seq;
	life_policy_default(l, b->uid, b->template_id, &b->policy);
	if (t.policy[0] && policy_parse(t.policy, &b->policy) < 0)
		life_policy_default(l, b->uid, b->template_id, &b->policy);
	/* Its environment is in no tag. */
	b->policy.on_gone = POLICY_FAIL;
	b->used_at_ms = (int64_t)clock_boot_ms();
	b->claimed = b->adopted;
	if (!b->claimed) {
		b->unclaimed_at_ms = clock_wall_ms();
		b->unclaimed_boot_ms = b->used_at_ms;
	}
	b->token_known = s->envd_access_token != NULL;
	r = store_tx_new(l->store, &tx);
	if (r < 0)
		return r;
	r = name_adopted(l, b, t.name, tx);
	if (!r)
		r = life_insert_box(l, b);
	if (r < 0) {
		store_tx_drop(tx);
		return r;
	}
	request_adopted(l, b, tx);
	life_put_box(tx, b);
	event_put(l, tx, b, EVENT_ADOPTED, "by=tag\n");
	life_commit(l, tx, true);
	keep_poke(b);
	store_seen_seq(l->store, t.seq);
	log_info("box_adopted", "box=%s uid=%u seq=%llu name=%s", b->id, b->uid,
		 (unsigned long long)b->seq, log_q(t.name));
	*ret = give(b);
	return 0;
}

/* --- start --- */

static int copy_accounts(struct life *l, const struct life_options *o)
{
	l->accounts = calloc(o->n_accounts, sizeof(*l->accounts));
	l->uids = calloc(o->n_uids ? o->n_uids : 1, sizeof(*l->uids));
	if (!l->accounts || !l->uids)
		return -ENOMEM;
	l->n_accounts = o->n_accounts;
	for (size_t i = 0; i < o->n_accounts; i++) {
		struct account *a = &l->accounts[i];

		a->life = l;
		a->index = (unsigned)i;
		a->cloud = o->accounts[i].cloud;
		a->plain_ports = o->accounts[i].plain_ports;
		a->max_sandboxes = o->accounts[i].max_sandboxes;
		a->cloud_minus_boot_ms = clock_wall_ms() - (int64_t)clock_boot_ms();
		if (text_set(&a->name, o->accounts[i].name) < 0 ||
		    text_set(&a->default_user, o->accounts[i].default_user) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < o->n_uids; i++) {
		const struct life_uid *u = &o->uids[i];

		l->uids[i] = (struct uid_limit){
			.uid = u->uid,
			.account = u->account ? life_account_by_name(l, u->account) : &l->accounts[0],
			.max_sandboxes = u->max_sandboxes,
			.creates_per_minute = u->creates_per_minute,
		};
		if (!l->uids[i].account)
			return -EINVAL;
		l->n_uids++;
	}
	return 0;
}

static int copy_policies(struct life *l, const struct life_options *o)
{
	l->policies = calloc(o->n_policies + 1, sizeof(*l->policies));
	if (!l->policies)
		return -ENOMEM;
	for (size_t i = 0; i < o->n_policies; i++) {
		l->policies[i] = o->policies[i];
		if (o->policies[i].template_id) {
			l->policies[i].template_id = str_dup(o->policies[i].template_id);
			if (!l->policies[i].template_id)
				return -ENOMEM;
		}
		l->n_policies++;
	}
	return 0;
}

static uint64_t or_default(uint64_t v, uint64_t def)
{
	return v ? v : def;
}

static void init_lists(struct life *l)
{
	struct list *const lists[] = { &l->boxes,    &l->names,	   &l->requests, &l->attempts, &l->fetches,
				       &l->killings, &l->ops,	   &l->commits,	 &l->leases,   &l->holders,
				       &l->shifts,   &l->snapshots };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		list_init(lists[i]);
}

int life_new(const struct life_options *o, struct life **ret)
{
	struct life *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	must(o->n_accounts && o->sha256);
	l->magic = LIFE_MAGIC;
	l->loop = o->loop;
	l->store = o->store;
	l->prober = o->prober;
	l->sha256 = o->sha256;
	l->policy = o->policy;
	l->history_ms = or_default(o->history_ms, 24ull * 3600 * 1000);
	l->unclaimed_grace_ms = or_default(o->unclaimed_grace_ms, 120000);
	l->reconcile_period_ms = or_default(o->reconcile_period_ms, 60000);
	l->max_staleness_ms = or_default(o->max_staleness_ms, 5000);
	l->settle_horizon_ms = or_default(o->settle_horizon_ms, SETTLE_HORIZON_MS);
	l->restart_grace_ms = or_default(o->restart_grace_ms, 30000);
	l->quiet_until_ms = (int64_t)(clock_boot_ms() + l->restart_grace_ms);
	l->identity = o->identity ? o->identity : holder_best_identity();
	rng_seed(&l->rng, o->rng_seed);
	init_lists(l);
	events_init(l);
	r = copy_accounts(l, o);
	if (!r)
		r = copy_policies(l, o);
	if (!r)
		r = life_load(l);
	if (!r)
		r = sync_start(l);
	if (r < 0) {
		(void)life_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

void life_drain(struct life *l)
{
	l->draining = true;
	lease_drain(l);
	event_watches_news(l);
}

static void life_bury(void *p)
{
	struct life *l = p;

	must(l->magic == LIFE_MAGIC);
	l->magic = 0;
	free(l);
}

struct life *life_free(struct life *l)
{
	if (!l)
		return NULL;
	must(l->magic == LIFE_MAGIC);
	store_mute(l->store);
	op_cancel_all(l);
	sync_stop(l);
	lease_free_all(l);
	list_for_each(i, &l->boxes) {
		struct box *b = list_entry(i, struct box, node);

		b->keep = keep_free(b);
	}
	life_attempts_cancel(l);
	shift_cancel_all(l);
	kill_cancel_all(l);
	fetch_cancel_all(l);
	while (!list_is_empty(&l->boxes))
		drop_box(l, list_entry(l->boxes.next, struct box, node));
	snapshot_forget_all(l);
	while (!list_is_empty(&l->names))
		drop_name(l, list_entry(l->names.next, struct name_slot, node));
	while (!list_is_empty(&l->requests))
		drop_request(l, list_entry(l->requests.next, struct request, node));
	map_fini(&l->box_map);
	map_fini(&l->name_map);
	map_fini(&l->request_map);
	map_fini(&l->fetch_map);
	map_fini(&l->lease_map);
	events_fini(l);
	for (size_t i = 0; i < l->n_policies; i++)
		free((char *)l->policies[i].template_id);
	free(l->policies);
	for (size_t i = 0; i < l->n_accounts; i++) {
		free(l->accounts[i].name);
		free(l->accounts[i].default_user);
	}
	free(l->accounts);
	free(l->uids);
	/* After the operations that lie there already: they let go of their holders then. */
	loop_bury(l->loop, &l->grave, life_bury, l);
	return NULL;
}
