/* SPDX-License-Identifier: MIT */
/*
 * The claim of a warm sandbox. The steps:
 *
 *   take      in memory: its owner, name, request id, policy, lease; nobody else can claim it from here on
 *   commit    one transaction with all of that, synced; then a line in STATE/claims, synced
 *   answer    to the calls that wait
 *
 * If the daemon is killed before the commit, the sandbox is ready as before, and nobody had an answer. If it is killed after it, the
 * sandbox is its owner's: the same request id gets it, and without one it is unclaimed like any sandbox whose creator went away.
 * If the line cannot be written, nobody gets an answer with the sandbox and it is ended: a claim is never taken back. The end that the
 * claim asked for is set after the answer (runner.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/attempt.h"
#include "daemon/sandbox/event.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define RECORDS_SLACK 1024u	/* how many stale lines the file may have above twice the valid ones, before it is written anew */
#define WAITERS_LOOKED_AT 256u	/* the first so many waiters are considered; later ones when these have left */
#define WANTED_SAVE_MS 60000
#define UNSEEN_MS      600000u	/* of lists that do not show it: then a sandbox without a row is no more */
#define UNWRITTEN      "warm_claim_unwritten"	/* the rule that ends such a sandbox, in its row too */

/* --- records --- */

static void record_free(struct warm_record *x)
{
	list_del(&x->node);
	free(x->account);
	free(x->sandbox);
	free(x->name);
	free(x->request_id);
	free(x->policy);
	free(x);
}

static struct warm_record *record_of(const struct sandbox_core *core, const char *account, const char *id)
{
	char key[ROW_TEXT_MAX * 2 + 2];
	int n = snprintf(key, sizeof(key), "%s/%s", id, account);

	return map_get(&core->record_map, key, MIN((size_t)n, sizeof(key) - 1));
}

static int record_key(const struct warm_record *x, char *key, size_t size)
{
	int n = snprintf(key, size, "%s/%s", x->sandbox, x->account);

	return (int)MIN((size_t)n, size - 1);
}

static void record_drop(struct sandbox_core *core, struct warm_record *x)
{
	char key[ROW_TEXT_MAX * 2 + 2];

	(void)map_del(&core->record_map, key, (size_t)record_key(x, key, sizeof(key)));
	record_free(x);
}

static int record_add(struct sandbox_core *core, const struct store_claim *c)
{
	struct warm_record *old = record_of(core, c->account, c->sandbox), *x = calloc(1, sizeof(*x));
	char key[ROW_TEXT_MAX * 2 + 2];

	if (!x)
		return -ENOMEM;
	list_init(&x->node);
	x->uid = c->uid;
	x->at_ms = c->at_ms;
	memcpy(x->params_hash, c->params_hash, sizeof(x->params_hash));
	if (text_set(&x->account, c->account) < 0 || text_set(&x->sandbox, c->sandbox) < 0 || text_set(&x->name, c->name) < 0 ||
	    text_set(&x->request_id, c->request_id) < 0 || text_set(&x->policy, c->policy) < 0 ||
	    map_put(&core->record_map, key, (size_t)record_key(x, key, sizeof(key)), x) < 0) {
		record_free(x);
		return -ENOMEM;
	}
	if (old)
		record_free(old);
	list_add_tail(&core->records, &x->node);
	return 0;
}

static void record_claim(const struct warm_record *x, struct store_claim *ret)
{
	*ret = (struct store_claim){ .account = x->account, .sandbox = x->sandbox, .uid = x->uid, .at_ms = x->at_ms,
				     .name = x->name, .request_id = x->request_id, .policy = x->policy };
	memcpy(ret->params_hash, x->params_hash, sizeof(ret->params_hash));
}

/* Claims are only appended to the file: now and then it is written anew, without those of sandboxes that are gone. */
static void shorten_file(struct sandbox_core *core)
{
	struct store_tx *t;

	if (core->has_lost_records || core->n_record_lines < 2 * map_size(&core->record_map) + RECORDS_SLACK ||
	    store_tx_new(core->store, &t) < 0)
		return;
	list_for_each(n, &core->records) {
		struct store_claim c;

		record_claim(list_entry(n, struct warm_record, node), &c);
		store_tx_claim(t, &c);
	}
	store_tx_claims_anew(t);
	core_commit(core, t, false);
	core->n_record_lines = map_size(&core->record_map);
}

struct loading {
	struct sandbox_core *core;
	int err;
};

static void load_record(const struct store_claim *c, void *user)
{
	struct loading *l = user;

	l->core->n_record_lines++;
	if (!l->err)
		l->err = record_add(l->core, c);
}

int warm_claims_load(struct sandbox_core *core)
{
	struct loading l = { .core = core };
	int r = store_load_claims(core->store, load_record, &l);

	core->records_since_ms = clock_boot_ms();
	/* Sandboxes that only a claim on record could explain are quarantined. */
	if (r < 0 && r != -ENOMEM)
		log_error("warm_claims", "error=%s using=none", log_q(strerrordesc_np(-r)));
	return r == -ENOMEM ? r : l.err;
}

/* The file still has what ended before it was shortened: kept, each start would keep more of it. */
static void drop_records(struct sandbox_core *core, const struct account *a, bool without_row)
{
	list_for_each_safe(n, &core->records) {
		struct warm_record *x = list_entry(n, struct warm_record, node);
		const struct account *of = core_account_by_name(core, x->account);
		const struct sandbox *b = of ? core_find(core, of, x->sandbox) : NULL;

		if (of && (!a || a == of) && (b ? !sandbox_is_live(b) : without_row))
			record_drop(core, x);
	}
}

void warm_claims_listed(struct account *a)
{
	struct sandbox_core *core = a->core;

	if (clock_boot_ms() >= core->records_since_ms + UNSEEN_MS)
		drop_records(core, a, true);
}

void warm_claims_gone(struct sandbox *b)
{
	struct sandbox_core *core = b->account->core;
	struct warm_record *x = b->warm[0] ? record_of(core, b->account->name, b->id) : NULL;

	if (x && !core->warm_stopped)
		record_drop(core, x);
}

void warm_claims_free(struct sandbox_core *core)
{
	while (!list_is_empty(&core->claims)) {
		struct warm_claim *c = list_entry(core->claims.next, struct warm_claim, node);

		must(list_is_empty(&c->waiters));
		c->sandbox->claim = NULL;
		list_del(&c->node);
		free(c);
	}
	while (!list_is_empty(&core->records))
		record_free(list_entry(core->records.next, struct warm_record, node));
	map_fini(&core->record_map);
}

/* --- which entry, which sandbox --- */

enum sandbox_warm_mode warm_mode(const struct sandbox_core *core, uid_t uid, const char *template_id, enum sandbox_warm_mode asked)
{
	enum sandbox_warm_mode mode = core->warm_mode ? core->warm_mode : SANDBOX_WARM_NEVER;

	if (asked)
		return asked;
	for (size_t i = 0; i < core->n_policies; i++)
		if (core->policies[i].warm && core->policies[i].template_id && str_eq(core->policies[i].template_id, template_id))
			mode = core->policies[i].warm;
	for (size_t i = 0; i < core->n_policies; i++)
		if (core->policies[i].warm && !core->policies[i].template_id && core->policies[i].uid == owner_uid(uid))
			mode = core->policies[i].warm;
	return mode;
}

struct warm_entry *warm_match(const struct warm_want *w, const char **ret_differs)
{
	struct sandbox_core *core = w->op->core;

	*ret_differs = NULL;
	list_for_each(n, &core->warm) {
		struct warm_entry *e = list_entry(n, struct warm_entry, node);
		const char *differs;

		if (!warm_may_claim(&e->conf.claimers, &w->op->who))
			continue;
		differs = e->account == w->account ? warm_differs(&e->conf.what, &w->c->what) : "account";
		if (!differs)
			return e;
		/* An entry of the same template is nearer than another. */
		if (!*ret_differs || !str_eq(differs, "template"))
			*ret_differs = differs;
	}
	return NULL;
}

static void note_wanted(struct warm_entry *e)
{
	e->wanted_at_ms = clock_wall_ms();
	if (!e->conf.active_ms || e->wanted_at_ms - e->wanted_saved_ms < WANTED_SAVE_MS)
		return;
	e->wanted_saved_ms = e->wanted_at_ms;
	warm_save(e);
}

static bool has_life(const struct warm_want *w, const struct sandbox *b)
{
	int64_t now = account_cloud_now(b->account);
	uint64_t timeout_ms = w->c->timeout_ms ? w->c->timeout_ms : RULES_TIMEOUT_DEFAULT_MS;

	return warm_has_life(timeout_ms, b->account->cap_ms, now - b->started_at_ms, b->end_at_ms - now);
}

struct sandbox *warm_pick(const struct warm_want *w, struct warm_entry *e)
{
	note_wanted(e);
	list_for_each(n, &e->boxes) {
		struct warm_box *x = list_entry(n, struct warm_box, node);

		if (warm_box_is_ready(x) && has_life(w, x->sandbox))
			return x->sandbox;
	}
	return NULL;
}

/* --- the claim --- */

/* What takes their place is made when all claims are written. */
static void claim_free(struct warm_claim *c)
{
	struct sandbox_core *core = c->core;

	c->sandbox->claim = NULL;
	list_del(&c->node);
	free(c);
	if (list_is_empty(&core->claims))
		warm_poke_all(core);
}

static void claim_begin(struct warm_claim *c, struct sandbox *b)
{
	*c = (struct warm_claim){ .core = b->account->core, .sandbox = b, .used_at_ms = b->used_at_ms };
	list_init(&c->waiters);
	list_add_tail(&c->core->claims, &c->node);
	b->claim = c;
}

bool warm_claim_has_failed(const struct sandbox *b)
{
	return str_eq(b->ended_by, UNWRITTEN);
}

static void claim_failed(struct sandbox *b)
{
	struct sandbox_core *core = b->account->core;
	const struct warm_record *x = record_of(core, b->account->name, b->id);
	struct request *q = x && x->request_id[0] ? core_find_request(core, x->uid, REQUEST_CREATE, x->request_id) : NULL;

	log_error("warm_claim_failed", "sandbox=%s uid=%u doing=end", b->id, owner_uid(b->uid));
	if (q && !q->attempt)
		core_forget_request(core, q);
	if (sandbox_is_live(b) && !b->killing && kill_by_policy(core, b, UNWRITTEN) < 0)
		b->ours = false;
}

/* Its callers went away before the answer: it waits to be claimed by a repeat, like any created sandbox, unless another call uses it. */
static void unclaim(struct sandbox *b, int64_t used_at_ms)
{
	if (sandbox_is_live(b) && b->used_at_ms == used_at_ms && b->n_leases <= 1)
		lease_unclaim(b, b->n_leases ? list_entry(b->leases.next, struct lease, sandbox_node) : NULL);
}

static void on_claimed(void *user, const struct status *st)
{
	struct warm_claim *c = user;
	struct sandbox *b = c->sandbox;
	int64_t used_at_ms = c->used_at_ms;
	struct status copy = *st;
	struct list waiters;

	FAILPOINT("warm.claim_committed");
	list_take(&waiters, &c->waiters);
	claim_free(c);
	list_for_each(n, &b->leases)
		list_entry(n, struct lease, sandbox_node)->written |= status_ok(st);
	if (!status_ok(st))
		claim_failed(b);
	else if (list_is_empty(&waiters))
		unclaim(b, used_at_ms);
	runner_poke_later(b);	/* which sets the end that the claim asked for */
	FAILPOINT("warm.claim_before_reply");
	op_end_waits(&waiters, &copy, status_ok(&copy));
}

/* What a claim needs memory for: got before anything is changed. */
struct taken {
	struct warm_claim *claim;
	struct pairs metadata;
	struct recipe recipe;
	struct name_slot *name;
	struct request *request;
	struct store_tx *tx;
	char *id;
};

static void taken_fini(struct taken *k)
{
	free(k->claim);
	pairs_fini(&k->metadata);
	recipe_fini(&k->recipe);
	free(k->id);
	store_tx_drop(k->tx);
}

static int get_ready(const struct warm_want *w, const struct sandbox *b, struct taken *k)
{
	struct sandbox_core *core = w->op->core;
	const struct sandbox_create *c = w->c;
	uid_t uid = w->op->who.uid;
	int r = pairs_from_cloud(&k->metadata, &c->what.metadata);

	k->claim = calloc(1, sizeof(*k->claim));
	k->id = str_dup(b->id);
	if (!k->claim || !k->id)
		return -ENOMEM;
	if (!r && w->policy.on_gone == POLICY_RECREATE)
		r = recipe_pack(&c->what, &k->recipe);
	if (!r && c->name)
		r = core_need_name(core, uid, c->name, &k->name);
	if (!r)
		r = store_tx_new(core->store, &k->tx);
	if (!r && c->request_id)
		r = core_need_request(core, uid, REQUEST_CREATE, c->request_id, &k->request);
	if (!r && k->request && text_set(&k->request->object, b->id) < 0) {
		core_forget_request(core, k->request);
		r = -ENOMEM;
	}
	return r;
}

static void own(const struct warm_want *w, struct sandbox *b, struct taken *k)
{
	int64_t now = account_cloud_now(b->account);
	uint64_t timeout_ms = w->c->timeout_ms ? w->c->timeout_ms : RULES_TIMEOUT_DEFAULT_MS;

	warm_box_leave(b);
	b->policy = w->policy;
	b->claimed = true;
	b->used_at_ms = (int64_t)clock_boot_ms();
	b->timeout_s = (uint32_t)((timeout_ms + 999) / 1000);
	b->warm_state = WARM_CLAIMED;
	b->warm_at_ms = now;
	b->asked_end_at_ms = now + (int64_t)b->timeout_s * 1000;
	b->generation = 1;
	pairs_fini(&b->metadata);
	b->metadata = k->metadata;
	k->metadata = (struct pairs){ 0 };
	recipe_fini(&b->recipe);
	b->recipe = k->recipe;
	k->recipe = (struct recipe){ 0 };
	if (!k->name)
		return;
	b->generation = ++k->name->generation;
	sandbox_give_name(b->account->core, b, k->name);
}

static void put_request(const struct warm_want *w, struct sandbox *b, struct taken *k)
{
	struct request *q = k->request;

	if (!q)
		return;
	free(give(q->refusal));
	memcpy(q->params_hash, w->c->params_hash, sizeof(q->params_hash));
	q->account = b->account;
	q->step = ROW_REQUEST_DONE;
	q->used_at_ms = clock_wall_ms();
	core_put_request(k->tx, q);
}

static int put_lease(const struct warm_want *w, struct sandbox *b, struct store_tx *t)
{
	struct lease_make m = { .uid = w->op->who.uid, .label = "", .kind = ROW_LEASE_PROCESS, .holder = w->holder };
	struct lease *x;
	int r;

	if (!w->holder || w->holder->dead)
		return 0;
	m.pid = w->holder->pid;
	r = lease_take(w->op->core, b, &m, NULL, &x);
	if (!r)
		lease_put(t, x);
	return r;
}

/* hash: of the Create with that request id; NULL = there is none. */
static void put_record(const struct sandbox *b, const char *request_id, const uint8_t *hash, struct store_tx *t)
{
	struct sandbox_core *core = b->account->core;
	char policy[POLICY_TEXT_MAX];
	struct store_claim c = { .account = b->account->name, .sandbox = b->id, .uid = b->uid, .at_ms = clock_wall_ms(),
				 .name = b->name, .request_id = request_id ? request_id : "", .policy = policy };

	policy_format(&b->policy, policy);
	if (hash)
		memcpy(c.params_hash, hash, sizeof(c.params_hash));
	store_tx_claim(t, &c);
	core->n_record_lines++;
	/* The file must not be written anew from memory any more: it would lack this claim. */
	if (record_add(core, &c) < 0)
		core->has_lost_records = true;
}

static void write_down(const struct warm_want *w, struct sandbox *b, struct taken *k)
{
	struct sandbox_core *core = w->op->core;

	put_request(w, b, k);
	if (k->name)
		core_put_name(k->tx, k->name);
	/* Without memory for the lease the call takes one before it answers. */
	if (put_lease(w, b, k->tx) < 0)
		log_warn("warm_lease", "sandbox=%s error=nomem", b->id);
	sandbox_put(k->tx, b);
	event_put(core, k->tx, b, EVENT_CREATED, "by=warm\n");
	event_put(core, k->tx, b, EVENT_WARM_CLAIMED, "warm=%s\n", b->warm);
	put_record(b, w->c->request_id, w->c->params_hash, k->tx);
	FAILPOINT("warm.claim_before_commit");
	store_tx_commit(give(k->tx), true, on_claimed, b->claim);
}

int warm_take(const struct warm_want *w, struct sandbox *b,
	      void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes))
{
	scoped(taken_fini) struct taken k = { 0 };
	struct warm_entry *e = b->box->entry;
	int r = get_ready(w, b, &k);

	if (!r)
		r = index_set_owner(b, w->op->who.uid);
	if (r < 0)
		return r;
	e->hits++;
	own(w, b, &k);
	claim_begin(give(k.claim), b);
	w->op->account = b->account;
	free(w->op->id);
	w->op->id = give(k.id);
	warm_join(b, w->op, on_waited);
	write_down(w, b, &k);
	log_info("warm_claimed", "entry=%s sandbox=%s uid=%u", e->conf.name, b->id, owner_uid(b->uid));
	runner_poke_later(b);
	shorten_file(w->op->core);
	return 0;
}

/* --- a claim whose line is missing --- */

/* Its row was committed, and the crash came before its line; or the file was lost. */
static void on_recorded(void *user, const struct status *st)
{
	struct warm_claim *c = user;
	struct sandbox *b = c->sandbox;
	struct warm_record *x = record_of(c->core, b->account->name, b->id);
	struct status copy = *st;
	struct list waiters;

	list_take(&waiters, &c->waiters);
	claim_free(c);
	if (!status_ok(&copy) && x)
		record_drop(b->account->core, x);
	if (!status_ok(&copy))
		log_error("warm_record", "sandbox=%s uid=%u text=%s at=next_call", b->id, b->uid, log_q(copy.text));
	runner_poke(b);
	op_end_waits(&waiters, &copy, status_ok(&copy));
}

static const struct request *request_of(const struct sandbox *b)
{
	list_for_each(n, &b->account->core->requests) {
		const struct request *q = list_entry(n, struct request, node);

		if (q->uid == b->uid && q->account == b->account && str_eq(q->method, REQUEST_CREATE) && str_eq(q->object, b->id))
			return q;
	}
	return NULL;
}

static int record_again(struct sandbox *b)
{
	const struct request *q = request_of(b);
	struct warm_claim *c = malloc(sizeof(*c));
	struct store_tx *t;

	if (!c || store_tx_new(b->account->core->store, &t) < 0) {
		free(c);
		return -ENOMEM;
	}
	claim_begin(c, b);
	put_record(b, q ? q->id : NULL, q ? q->params_hash : NULL, t);
	store_tx_commit(t, true, on_recorded, c);
	return 0;
}

static bool lacks_record(const struct sandbox *b)
{
	return b->warm_state == WARM_CLAIMED && sandbox_is_live(b) && !b->claim && !record_of(b->account->core, b->account->name, b->id);
}

bool warm_joins(struct sandbox *b, struct sandbox_op *op,
		void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes))
{
	if (lacks_record(b) && record_again(b) < 0)
		log_warn("warm_record", "sandbox=%s error=nomem at=next_call", b->id);
	if (b->claim)
		warm_join(b, op, on_waited);
	return b->claim;
}

void warm_join(struct sandbox *b, struct sandbox_op *op,
	       void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes))
{
	must(b->claim && list_is_empty(&op->wait));
	op->on_waited = on_waited;
	list_add_tail(&b->claim->waiters, &op->wait);
}

/* --- those who wait --- */

void warm_wait(struct warm_entry *e, struct sandbox_op *op,
	       void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes))
{
	must(list_is_empty(&op->wait));
	op->on_waited = on_waited;
	status_set(&op->pending_error, R_SANDBOX_NOT_READY, "no sandbox of [warm %s] is ready", e->conf.name);
	list_add_tail(&e->waiters, &op->wait);
	warm_poke(e);
}

static struct sandbox_op *next_waiter(struct warm_entry *e)
{
	uid_t first[WAITERS_LOOKED_AT];
	struct sandbox_op *ops[WAITERS_LOOKED_AT];
	size_t n = 0;

	list_for_each(i, &e->waiters) {
		if (n == ARRAY_SIZE(ops))
			break;
		ops[n] = op_from_wait(i);
		first[n] = ops[n]->who.uid;
		n++;
	}
	return ops[warm_next_waiter(first, n, e->last_uid)];
}

static bool has_ready(const struct warm_entry *e)
{
	list_for_each(n, &e->boxes)
		if (warm_box_is_ready(list_entry(n, struct warm_box, node)))
			return true;
	return false;
}

void warm_serve(struct warm_entry *e)
{
	static const struct status ok = STATUS_OK;

	while (!list_is_empty(&e->waiters) && has_ready(e)) {
		struct sandbox_op *op = next_waiter(e);

		e->last_uid = op->who.uid;
		list_del(&op->wait);
		op->on_waited(op, &ok, true);
		if (!list_is_empty(&op->wait) && e->waiters.prev == &op->wait)
			return;	/* none of the ready ones lives long enough for it, and it waits on */
	}
}

/* --- after a start --- */

void warm_quarantine(struct sandbox *b)
{
	if (b->box)
		warm_box_leave(b);
	log_warn("warm_quarantined", "sandbox=%s entry=%s", b->id, b->warm);
	b->warm_state = WARM_QUARANTINED;
	b->ours = false;
	b->adopted = b->claimed = true;
	b->released_at_ms = b->unclaimed_at_ms = b->unclaimed_boot_ms = 0;
	runner_poke(b);
}

/* May the request id's row be in the store alone? Then what a later Create with it has got was told, and has ended: that stays its outcome. */
static bool is_let_go(struct sandbox_core *core, const struct warm_record *x)
{
	return !core_find_request(core, x->uid, REQUEST_CREATE, x->request_id) &&
	       core_may_have_stored(core, x->uid, REQUEST_CREATE, x->request_id);
}

/* Gives the sandbox to the uid whose claim is on record, with the name, the request id and the policy of that claim. */
static int give_to(struct sandbox *b, const struct warm_record *x, struct store_tx *t)
{
	struct sandbox_core *core = b->account->core;
	struct name_slot *n = NULL;
	struct request *q = NULL;
	int r = index_set_owner(b, x->uid);

	b->warm_state = WARM_CLAIMED;
	if (policy_parse(x->policy, &b->policy) < 0)
		core_policy_default(core, b->uid, b->template_id, &b->policy);
	b->policy.on_gone = POLICY_FAIL;
	if (!r && rules_name_is_valid(x->name))
		r = core_need_name(core, x->uid, x->name, &n);
	if (!r && rules_request_id_is_valid(x->request_id) && !is_let_go(core, x))
		r = core_need_request(core, x->uid, REQUEST_CREATE, x->request_id, &q);
	if (r < 0)
		return r;
	if (n && !n->id[0] && !n->creation) {
		b->generation = ++n->generation;
		sandbox_give_name(core, b, n);
		core_put_name(t, n);
	}
	if (!q || q->attempt || q->step == ROW_REQUEST_DONE)
		return 0;
	r = text_set(&q->object, b->id);
	memcpy(q->params_hash, x->params_hash, sizeof(q->params_hash));
	q->account = b->account;
	q->step = ROW_REQUEST_DONE;
	q->used_at_ms = clock_wall_ms();
	core_put_request(t, q);
	return r;
}

int warm_adopted(struct sandbox *b, const struct tags *t, struct store_tx *tx)
{
	struct sandbox_core *core = b->account->core;
	const struct warm_record *x = record_of(core, b->account->name, b->id);
	int r;

	if (!t->warm[0])
		return 0;
	r = text_set(&b->warm, t->warm);
	if (r < 0)
		return r;
	if (x)
		return give_to(b, x, tx);
	b->uid = WARM_UID;
	warm_quarantine(b);
	return 0;
}

/* Rows that are in doubt do not say whose it is: the claim on record decides, and without one it is quarantined. */
static int give_or_keep_apart(struct sandbox *b)
{
	struct sandbox_core *core = b->account->core;
	const struct warm_record *x = record_of(core, b->account->name, b->id);
	struct store_tx *t;
	int r = store_tx_new(core->store, &t);

	if (r < 0)
		return r;
	if (x)
		r = give_to(b, x, t);
	else
		warm_quarantine(b);
	sandbox_put(t, b);
	core_commit(core, t, true);
	return r;
}

/* At the start, for a sandbox that nobody has claimed by its row: back into its entry, or ended. */
static int take_up(struct sandbox *b)
{
	struct sandbox_core *core = b->account->core;
	struct warm_entry *e = warm_find(core, b->warm);
	struct warm_box *box;
	int r = 0;

	if (core->doubt == STORE_SURE && b->warm_state == WARM_READY && e && e->account == b->account && b->ours &&
	    !memcmp(b->warm_print, e->print, sizeof(e->print))) {
		r = warm_box_new(e, b, &box);
		if (!r)
			warm_box_adopt(box);
		return r;
	}
	if (core->doubt == STORE_SURE && b->ours)
		return kill_by_policy(core, b, "warm_unfinished");
	return give_or_keep_apart(b);
}

void warm_doubted(struct sandbox *b)
{
	if (b->box)
		warm_box_leave(b);
	if (give_or_keep_apart(b) < 0)
		warm_quarantine(b);
}

int warm_loaded(struct sandbox_core *core)
{
	int r = 0;

	drop_records(core, NULL, false);
	list_for_each(n, &core->sandboxes) {
		struct sandbox *b = list_entry(n, struct sandbox, node);

		if (!r && sandbox_is_live(b) && (b->warm_state == WARM_PREPARING || b->warm_state == WARM_READY))
			r = take_up(b);
		if (!r && lacks_record(b))
			r = record_again(b);
	}
	warm_poke_all(core);
	return r;
}
