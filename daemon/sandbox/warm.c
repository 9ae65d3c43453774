/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/warm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/copy.h"
#include "daemon/sandbox/creation.h"
#include "daemon/sandbox/event.h"
#include "daemon/sandbox/extend.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define MADE_AT_ONCE	 4u	/* creations begun between two looks at what else there is to do */
#define CROWDED_MS	 30000u	/* until the next try where the account's limit or its extensions allow no sandbox now */

/* --- an entry --- */

static void entry_bury(void *p)
{
	struct warm_entry *e = p;

	cloud_create_fini(&e->conf.what);
	recipe_fini(&e->recipe);
	free((char *)e->conf.name);
	free((uid_t *)e->conf.claimers.uids);
	free((gid_t *)e->conf.claimers.gids);
	free((char *)e->conf.prepare);
	free((char *)e->conf.secret_envs);
	free(e->why);
	free(e->output);
	free(e);
}

static void entry_free(struct warm_entry *e)
{
	list_del(&e->node);
	timer_clear(&e->timer);
	defer_cancel(&e->kick);
	loop_bury(e->core->loop, &e->grave, entry_bury, e);
}

static void on_entry_timer(struct timer *t, void *user)
{
	warm_poke(user);
}

static void look(struct warm_entry *e);

static void on_entry_kick(struct defer *d, void *user)
{
	look(user);
}

static void *dup_bytes(const void *p, size_t n)
{
	void *copy = malloc(n + 1);

	if (copy && n)
		memcpy(copy, p, n);
	return copy;
}

static char *dup_text(const char *s)
{
	return s ? str_dup(s) : NULL;
}

static int copy_conf(struct warm_entry *e, const struct sandbox_warm_entry *from)
{
	struct sandbox_warm_entry *to = &e->conf;
	int r;

	*to = *from;
	to->what = (struct cloud_create){ 0 };
	to->name = dup_text(from->name);
	to->prepare = dup_text(from->prepare);
	to->secret_envs = dup_text(from->secret_envs);
	to->claimers.uids = dup_bytes(from->claimers.uids, from->claimers.n_uids * sizeof(uid_t));
	to->claimers.gids = dup_bytes(from->claimers.gids, from->claimers.n_gids * sizeof(gid_t));
	to->account = NULL;
	if (!to->name || !to->claimers.uids || !to->claimers.gids || (from->prepare && !to->prepare) ||
	    (from->secret_envs && !to->secret_envs))
		return -ENOMEM;
	r = recipe_pack(&from->what, &e->recipe);
	return r ? r : recipe_unpack(&e->recipe, &to->what);
}

/* The hash of what a warm sandbox depends on: with another print it is not one of this entry. */
static int entry_print(struct warm_entry *e)
{
	const char *prepare = e->conf.prepare ? e->conf.prepare : "", *secret = e->conf.secret_envs ? e->conf.secret_envs : "";
	scoped(buf_fini) struct buf b = BUF_NULL;
	int r = buf_put(&b, e->recipe.p, e->recipe.len);

	if (!r)
		r = buf_printf(&b, "%s%c%s%c%s", e->account->name, '\n', prepare, '\n', secret);
	if (!r)
		e->core->sha256(buf_data(&b), buf_len(&b), e->print);
	return r;
}

static struct warm_entry *entry_alloc(struct sandbox_core *core)
{
	struct warm_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->core = core;
	e->size_set = -1;
	list_init(&e->node);
	list_init(&e->boxes);
	list_init(&e->waiters);
	timer_init(&e->timer, core->loop, on_entry_timer, e);
	defer_init_later(&e->kick, core->loop, on_entry_kick, e);
	return e;
}

static int entry_new(struct sandbox_core *core, const struct sandbox_warm_entry *from, struct warm_entry **ret)
{
	struct warm_entry *e = entry_alloc(core);
	int r;

	if (!e)
		return -ENOMEM;
	e->account = from->account ? core_account_by_name(core, from->account) : &core->accounts[0];
	r = e->account ? copy_conf(e, from) : -EINVAL;
	if (!r)
		r = entry_print(e);
	if (!r && (text_set(&e->why, "") < 0 || text_set(&e->output, "") < 0))
		r = -ENOMEM;
	if (r < 0)
		entry_bury(e);
	else
		*ret = e;
	return r;
}

static struct warm_entry *find_in(const struct list *entries, const char *name)
{
	list_for_each(n, entries) {
		struct warm_entry *e = list_entry(n, struct warm_entry, node);

		if (str_eq(e->conf.name, name))
			return e;
	}
	return NULL;
}

struct warm_entry *warm_find(const struct sandbox_core *core, const char *name)
{
	return find_in(&core->warm, name);
}

/* --- its row --- */

static void entry_put(const struct warm_entry *e, struct store_tx *t)
{
	struct row_warm row = {
		.name = e->conf.name,
		.failures = e->failures,
		.failed = e->failed,
		.why = e->why,
		.output = e->output,
		.hour_at_ms = e->hour_at_ms,
		.made = e->made,
		.wanted_at_ms = e->wanted_at_ms,
		.size = e->size_set,
	};

	memcpy(row.print, e->print, sizeof(row.print));
	store_tx_put_warm(t, &row);
}

void warm_save(struct warm_entry *e)
{
	struct store_tx *t;

	if (store_tx_new(e->core->store, &t) < 0)
		return;	/* the next change writes it */
	entry_put(e, t);
	core_commit(e->core, t, false);
}

static bool is_in_hour(const struct warm_entry *e)
{
	int64_t since = clock_wall_ms() - e->hour_at_ms;

	return e->hour_at_ms && since >= 0 && since < WARM_HOUR_MS;
}

/* It may come back with a reload, and has made what it has made. */
static int load_past(struct sandbox_core *core, const struct row_warm *r)
{
	struct warm_entry *e = entry_alloc(core);

	if (!e)
		return -ENOMEM;
	e->conf.name = str_dup(r->name);
	if (!e->conf.name) {
		entry_bury(e);
		return -ENOMEM;
	}
	e->hour_at_ms = r->hour_at_ms;
	e->made = r->made;
	e->wanted_at_ms = e->wanted_saved_ms = r->wanted_at_ms;
	e->size_set = r->size;
	list_add_tail(&core->warm_past, &e->node);
	return 0;
}

int warm_load(struct sandbox_core *core, const struct row_warm *r)
{
	struct warm_entry *e = warm_find(core, r->name);

	if (!e)
		return load_past(core, r);
	e->hour_at_ms = r->hour_at_ms;
	e->made = r->made;
	e->wanted_at_ms = e->wanted_saved_ms = r->wanted_at_ms;
	e->size_set = r->size;
	if (text_set(&e->output, r->output) < 0)
		return -ENOMEM;
	/* The failures of a changed entry do not count. */
	if (memcmp(r->print, e->print, sizeof(e->print)))
		return 0;
	e->failures = r->failures;
	e->failed = r->failed;
	e->failed_at_ms = clock_wall_ms();
	return text_set(&e->why, r->why);
}

/* --- how many --- */

static uint32_t size_of(const struct warm_entry *e)
{
	return e->size_set >= 0 ? (uint32_t)e->size_set : e->conf.size;
}

static uint32_t count_boxes(const struct warm_entry *e, bool ready)
{
	uint32_t n = 0;

	list_for_each(i, &e->boxes)
		n += (list_entry(i, struct warm_box, node)->step == WARM_STEP_READY) == ready;
	return n;
}

static uint32_t count_waiters(const struct warm_entry *e)
{
	uint32_t n = 0;

	list_for_each(i, &e->waiters)
		n++;
	return n;
}

/* Creations under way: also those that were begun before its section was removed and came back. */
static uint32_t count_making(const struct warm_entry *e)
{
	uint32_t n = 0;

	list_for_each(i, &e->core->attempts) {
		struct attempt *a = list_entry(i, struct attempt, node);

		n += a->uid == WARM_UID && !creation_from(a)->loaded && str_eq(creation_from(a)->warm, e->conf.name);
	}
	return n;
}

uint32_t warm_count(const struct sandbox_core *core, const struct account *a)
{
	uint32_t n = 0;

	list_for_each(i, &core->warm) {
		const struct warm_entry *e = list_entry(i, struct warm_entry, node);

		if (e->account == a)
			n += count_boxes(e, true) + count_boxes(e, false) + count_making(e);
	}
	return n;
}

static void see_pool(const struct warm_entry *e, struct warm_pool *ret)
{
	uint32_t making = count_making(e);

	*ret = (struct warm_pool){
		.size = size_of(e),
		.ready = count_boxes(e, true),
		.coming = count_boxes(e, false) + making,
		.making = making,
		.burst = e->conf.burst,
		.per_hour = e->conf.per_hour,
		.hour_at_ms = e->hour_at_ms,
		.now_wall_ms = clock_wall_ms(),
		.made = e->made,
		.failed = e->failed,
		.retry_at_ms = e->retry_at_ms,
		.active_ms = e->conf.active_ms,
		.wanted_at_ms = e->wanted_at_ms,
		.waiting = count_waiters(e),
		.now_ms = clock_boot_ms(),
	};
}

/* --- failures --- */

static void stop_entry(struct warm_entry *e, const struct sandbox *b)
{
	struct status st;

	e->failed = true;
	e->failed_at_ms = clock_wall_ms();
	log_error("warm_failed", "entry=%s failures=%u text=%s doing=\"nothing until a reload or warm retry\"", e->conf.name,
		  e->failures, log_q(e->why));
	if (b)
		event_say(e->core, b, EVENT_WARM_FAILED, "warm=%s\nfailures=%u\nmessage=%s\n", e->conf.name, e->failures, e->why);
	status_set(&st, R_SANDBOX_NOT_READY, "[warm %s] has failed: %s", e->conf.name, e->why);
	op_end_waits(&e->waiters, &st, false);
}

void warm_failed(struct warm_entry *e, const struct sandbox *b, const struct status *st)
{
	bool counts = warm_is_its_fault(st->reason);

	e->failures_in_all++;
	e->failures += counts;
	if (text_set(&e->why, st->text) < 0)
		e->why[0] = 0;
	e->retry_at_ms = clock_boot_ms() + warm_retry_ms(MAX(e->failures, 1u), rng_u64(&e->core->rng));
	e->retry_at_ms = MAX(e->retry_at_ms, clock_boot_ms() + st->retry_after_ms);
	log_warn("warm_not_ready", "entry=%s sandbox=%s failures=%u counts=%d text=%s", e->conf.name, b ? b->id : "", e->failures,
		 counts, log_q(st->text));
	if (counts && !e->failed && warm_is_failed(e->failures))
		stop_entry(e, b);
	warm_save(e);
	warm_poke(e);
}

void warm_succeeded(struct warm_entry *e)
{
	e->retry_at_ms = 0;
	if (!e->failures)
		return;
	e->failures = 0;
	e->why[0] = 0;
	warm_save(e);
}

/* --- making --- */

void warm_poke(struct warm_entry *e)
{
	if (!e->core->warm_stopped)
		defer_post(&e->kick);
}

void warm_poke_all(struct sandbox_core *core)
{
	list_for_each(i, &core->warm)
		warm_poke(list_entry(i, struct warm_entry, node));
}

static void count_one(struct warm_entry *e)
{
	if (!is_in_hour(e)) {
		e->hour_at_ms = clock_wall_ms();
		e->made = 0;
	}
	e->made++;
	e->made_in_all++;
}

static int fill(struct warm_entry *e, struct creation *c)
{
	int r = recipe_unpack(&e->recipe, &c->what);

	if (!r)
		r = text_set(&c->warm, e->conf.name);
	c->att.alone = true;
	policy_default(&c->att.policy);
	policy_format(&c->att.policy, c->policy_text);
	memcpy(c->warm_print, e->print, sizeof(e->print));
	return r;
}

static int send(struct warm_entry *e, struct creation *c)
{
	struct store_tx *t;
	int r = store_tx_new(e->core->store, &t);

	if (r < 0)
		return r;
	r = creation_intend(c, t);
	if (r < 0) {
		store_tx_drop(t);
		return r;
	}
	count_one(e);
	entry_put(e, t);
	store_tx_commit(t, true, creation_on_intent, &c->att);
	return 0;
}

static int make_one(struct warm_entry *e)
{
	uint64_t number[2] = { rng_u64(&e->core->rng), rng_u64(&e->core->rng) };
	char tag[TAG_REQ_LEN + 1];
	struct creation *c;
	int r;

	str_hex(number, sizeof(number), tag);
	r = creation_new(e->core, e->account, WARM_UID, tag, &c);
	if (r < 0)
		return r;
	r = fill(e, c);
	if (!r)
		r = send(e, c);
	if (r < 0) {
		attempt_drop(&c->att);
		return r;
	}
	FAILPOINT("warm.making");
	return 0;
}

/* A snapshot belongs to its owner, who must be the only uid that may claim sandboxes made from it. */
static bool is_allowed_template(struct warm_entry *e, struct status *st)
{
	const struct snap *s;

	if (!rules_check_template("template", e->conf.what.template_id, st))
		return false;
	s = snap_named(e->core, e->account, e->conf.what.template_id);
	if (!s || !s->ours || warm_is_for(&e->conf.claimers, s->uid))
		return true;
	status_set(st, R_FIELD_INVALID, "template %s is a snapshot of uid %u: uids must name that uid alone", e->conf.what.template_id,
		   owner_uid(s->uid));
	return false;
}

/* Those that are alive, or may be made, without those that end already. */
static uint32_t taken_of(const struct account *a)
{
	uint32_t all = a->n_alive + core_attempts_count(a->core, a, NULL);

	return all - MIN(all, a->n_warm_ending);
}

static bool is_crowded(const struct account *a)
{
	return a->max_sandboxes && taken_of(a) > a->max_sandboxes;
}

static bool may_make(struct warm_entry *e)
{
	const struct account *a = e->account;
	struct status st;

	if (a->retired || (a->max_sandboxes && a->n_alive + core_attempts_count(e->core, a, NULL) >= a->max_sandboxes))
		return false;
	return extend_admits_new(e->account, e->conf.what.timeout_s, &st);
}

static void again_in(struct warm_entry *e, uint64_t ms)
{
	if (timer_set(&e->timer, clock_boot_ms() + ms) < 0)
		log_warn("warm_timer", "entry=%s error=nomem at=next_change", e->conf.name);
}

/* True: all of them are under way. */
static bool make_some(struct warm_entry *e, uint32_t n)
{
	struct status st;

	if (!is_allowed_template(e, &st)) {
		e->failures = WARM_FAILURES_MAX - 1;
		warm_failed(e, NULL, &st);
		return false;
	}
	for (; n; n--) {
		if (!may_make(e)) {
			again_in(e, CROWDED_MS);
			return false;
		}
		if (make_one(e) < 0) {
			again_in(e, warm_retry_ms(1, 0));
			return false;
		}
	}
	return true;
}

static void end_some(struct warm_entry *e, uint32_t n)
{
	list_for_each_safe(i, &e->boxes) {
		struct warm_box *x = list_entry(i, struct warm_box, node);

		if (n && x->step == WARM_STEP_READY) {
			n--;
			warm_box_end(x, "warm_surplus");
		}
	}
}

static void look(struct warm_entry *e)
{
	struct warm_refill next;
	struct warm_pool pool;

	/* Claims go before: the last one that is written pokes. */
	if (e->core->settling || e->core->draining || e->core->quiesced[0] || e->core->warm_stopped || !list_is_empty(&e->core->claims))
		return;
	/* What was found later, or a lower limit, has the place of what nobody has claimed. */
	if (is_crowded(e->account))
		warm_make_room(e->core, e->account, e->account->n_warm_ending + taken_of(e->account) - e->account->max_sandboxes);
	see_pool(e, &pool);
	warm_refill(&pool, &next);
	if (next.end)
		end_some(e, next.end);
	if (next.again_in_ms)
		again_in(e, next.again_in_ms);
	if (next.make && make_some(e, MIN(next.make, MADE_AT_ONCE)) && next.make > MADE_AT_ONCE)
		warm_poke(e);
}

void warm_made(struct creation *c)
{
	struct sandbox_core *core = c->att.core;
	struct warm_entry *e = warm_find(core, c->warm);
	struct sandbox *b = c->att.object[0] ? core_find(core, c->att.account, c->att.object) : NULL;
	struct warm_box *x;

	if (core->warm_stopped)
		return;
	/* A creation counts as coming until now, also where nothing that is ready comes of it. */
	if (e)
		warm_poke(e);
	if (!b || !sandbox_is_live(b)) {
		if (e && c->att.seq)
			warm_failed(e, NULL, &c->failure);
		return;
	}
	/* One from before the start may have been found before, by its row or a list: then it is quarantined, or somebody's. */
	if (b->warm_state != WARM_PREPARING)
		return;
	if (!b->ours) {
		warm_doubted(b);
		return;
	}
	/* A creation from before the start, or for an entry that was changed since, is not prepared but ended. */
	if (!e || c->loaded || memcmp(b->warm_print, e->print, sizeof(e->print)) || warm_box_new(e, b, &x) < 0) {
		if (!b->killing && kill_by_policy(core, b, "warm_unfinished") < 0)
			log_warn("warm_end", "sandbox=%s error=nomem at=its_end", b->id);
		return;
	}
	warm_box_begin(x);
}

/* --- who needs room --- */

static bool end_one(struct sandbox_core *core, const struct account *a)
{
	list_for_each(i, &core->warm) {
		struct warm_entry *e = list_entry(i, struct warm_entry, node);
		struct warm_box *x = list_first(&e->boxes, struct warm_box, node);

		if (e->account != a || !x)
			continue;
		warm_box_end(x, "warm_gives_way");
		e->retry_at_ms = MAX(e->retry_at_ms, clock_boot_ms() + CROWDED_MS);
		return true;
	}
	return false;
}

bool warm_gives_way(struct sandbox_core *core, const struct account *a)
{
	return a->n_warm_ending || end_one(core, a);
}

void warm_make_room(struct sandbox_core *core, const struct account *a, uint32_t n)
{
	while (a->n_warm_ending < n && end_one(core, a))
		;
}

/* --- entries of the configuration --- */

static void free_list(struct list *entries)
{
	while (!list_is_empty(entries))
		entry_free(list_entry(entries->next, struct warm_entry, node));
}

static int make_entries(struct sandbox_core *core, const struct sandbox_core_rules *r, struct list *ret)
{
	list_init(ret);
	for (size_t i = 0; i < r->n_warm; i++) {
		struct warm_entry *e;
		int err = entry_new(core, &r->warm[i], &e);

		if (err < 0) {
			free_list(ret);
			return err;
		}
		list_add_tail(ret, &e->node);
	}
	return 0;
}

/* Counters, waiting times and fitting boxes of the old entry go over to the new one; its failures do not. */
static void inherit(struct warm_entry *e, struct warm_entry *old)
{
	e->hour_at_ms = old->hour_at_ms;
	e->made = old->made;
	e->wanted_at_ms = old->wanted_at_ms;
	e->wanted_saved_ms = old->wanted_saved_ms;
	e->size_set = old->size_set;
	e->last_uid = old->last_uid;
	e->hits = old->hits;
	e->misses = old->misses;
	e->made_in_all = old->made_in_all;
	e->failures_in_all = old->failures_in_all;
	e->prepare_ms = old->prepare_ms;
	if (old->output) {
		free(e->output);
		e->output = give(old->output);
	}
	list_for_each_safe(i, &old->boxes) {
		struct warm_box *x = list_entry(i, struct warm_box, node);

		if (memcmp(x->sandbox->warm_print, e->print, sizeof(e->print)))
			continue;
		list_del(&x->node);
		list_add_tail(&e->boxes, &x->node);
		x->entry = e;
	}
}

/* It is not configured any more, or another one took its place. Nobody waits for it. */
static void end_entry(struct warm_entry *e, bool has_next)
{
	struct sandbox_core *core = e->core;

	list_for_each_safe(i, &e->boxes)
		warm_box_end(list_entry(i, struct warm_box, node), "warm_changed");
	if (has_next) {
		entry_free(e);
		return;
	}
	timer_clear(&e->timer);
	defer_cancel(&e->kick);
	list_del(&e->node);
	list_add_tail(&core->warm_past, &e->node);
}

/* What it knew before a reload took it out. */
static void remember(struct warm_entry *e)
{
	struct warm_entry *past = find_in(&e->core->warm_past, e->conf.name);

	if (!past)
		return;
	inherit(e, past);
	entry_free(past);
}

static void take_waiters(struct warm_entry *e, struct list *to)
{
	while (!list_is_empty(&e->waiters)) {
		struct list *n = e->waiters.next;

		list_del(n);
		list_add_tail(to, n);
	}
}

void warm_ask_again(struct list *waiters)
{
	static const struct status ok = STATUS_OK;

	while (!list_is_empty(waiters)) {
		struct sandbox_op *op = op_from_wait(waiters->next);

		list_del(&op->wait);
		op->on_waited(op, &ok, true);
	}
}

int warm_set_entries(struct sandbox_core *core, const struct sandbox_core_rules *r, struct list *ret_waiters)
{
	struct list fresh, old;
	int err = make_entries(core, r, &fresh);

	if (err < 0)
		return err;
	list_init(ret_waiters);
	list_take(&old, &core->warm);
	list_take(&core->warm, &fresh);
	while (!list_is_empty(&old)) {
		struct warm_entry *e = list_entry(old.next, struct warm_entry, node);
		struct warm_entry *next = warm_find(core, e->conf.name);

		if (next)
			inherit(next, e);
		take_waiters(e, ret_waiters);
		end_entry(e, next);
	}
	core->warm_mode = r->warm_mode;
	list_for_each(i, &core->warm)
		remember(list_entry(i, struct warm_entry, node));
	warm_poke_all(core);
	return 0;
}

void warm_free_all(struct sandbox_core *core)
{
	core->warm_stopped = true;
	list_for_each(i, &core->warm) {
		struct warm_entry *e = list_entry(i, struct warm_entry, node);

		while (!list_is_empty(&e->boxes))
			warm_box_leave(list_entry(e->boxes.next, struct warm_box, node)->sandbox);
	}
	free_list(&core->warm);
	free_list(&core->warm_past);
	warm_claims_free(core);
}

/* --- for people --- */

static int64_t oldest_ready_ms(const struct warm_entry *e)
{
	int64_t oldest = 0;

	list_for_each(i, &e->boxes) {
		const struct warm_box *x = list_entry(i, struct warm_box, node);

		if (x->step == WARM_STEP_READY)
			oldest = MAX(oldest, warm_age_ms(x->sandbox));
	}
	return oldest;
}

/* One that has not answered yet after a start, or is silent, is not given. */
static uint32_t count_claimable(const struct warm_entry *e)
{
	uint32_t n = 0;

	list_for_each(i, &e->boxes)
		n += warm_box_is_ready(list_entry(i, struct warm_box, node));
	return n;
}

bool sandbox_warm_info(const struct sandbox_core *core, size_t i, struct sandbox_warm_info *ret)
{
	list_for_each(n, &core->warm) {
		const struct warm_entry *e = list_entry(n, struct warm_entry, node);
		uint32_t claimable = count_claimable(e);

		if (i--)
			continue;
		*ret = (struct sandbox_warm_info){
			.name = e->conf.name, .account = e->account->name, .template_id = e->conf.what.template_id,
			.size = size_of(e), .configured_size = e->conf.size,
			.ready = claimable, .coming = count_boxes(e, true) - claimable + count_boxes(e, false) + count_making(e),
			.waiting = count_waiters(e), .failures = e->failures, .failed = e->failed, .failed_at_ms = e->failed_at_ms,
			.why = e->why, .output = e->output,
			.made_in_hour = is_in_hour(e) ? e->made : 0, .per_hour = e->conf.per_hour,
			.hits = e->hits, .misses = e->misses, .made = e->made_in_all, .failures_in_all = e->failures_in_all,
			.prepare_ms = e->prepare_ms, .oldest_ready_ms = oldest_ready_ms(e),
		};
		return true;
	}
	return false;
}

static struct warm_entry *entry_named(struct sandbox_core *core, const char *name, struct status *st)
{
	struct warm_entry *e = warm_find(core, name);

	if (!e)
		status_field(st, "name", "there is no [warm %s] in the configuration", name);
	return e;
}

bool sandbox_warm_set(struct sandbox_core *core, const char *name, int size, struct status *st)
{
	struct warm_entry *e = entry_named(core, name, st);

	if (!e)
		return false;
	if (size < -1 || size > (int)WARM_SIZE_MAX) {
		status_field(st, "size", "must be 0 to %u", WARM_SIZE_MAX);
		return false;
	}
	e->size_set = size;
	warm_save(e);
	warm_poke(e);
	return true;
}

bool sandbox_warm_retry(struct sandbox_core *core, const char *name, struct status *st)
{
	struct warm_entry *e = entry_named(core, name, st);

	if (!e)
		return false;
	e->failed = false;
	e->failures = 0;
	e->retry_at_ms = 0;
	warm_save(e);
	warm_poke(e);
	return true;
}

uint32_t sandbox_warm_quarantined(const struct sandbox_core *core)
{
	uint32_t n = 0;

	list_for_each(i, &core->sandboxes) {
		const struct sandbox *b = list_entry(i, struct sandbox, node);

		n += b->warm_state == WARM_QUARANTINED && sandbox_is_live(b);
	}
	return n;
}
