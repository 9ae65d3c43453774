/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/event.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define RESAVE_WAIT_MS 1000u
/* Page tokens show numbers: they come from the clock, since a count would tell a uid what others do. */
#define NUMBERS_PER_MS 1024u

static void lease_on_timer(struct timer *t, void *user);

static struct lease *lease_from(void *p)
{
	struct lease *x = p;

	must(x && x->magic == LEASE_MAGIC);
	return x;
}

/* --- tables --- */

struct lease *lease_find(struct sandbox_core *core, const char *id)
{
	return map_get_str(&core->lease_map, id);
}

static struct lease *lease_of_node(const struct tree_node *n)
{
	return n ? container_of(n, struct lease, numbered) : NULL;
}

static int lease_by_number(const struct tree_node *a, const struct tree_node *b)
{
	return lease_of_node(a)->number < lease_of_node(b)->number ? -1 : 1;
}

static int lease_place(const struct tree_node *n, const void *place)
{
	return lease_of_node(n)->number <= *(const uint64_t *)place ? -1 : 1;
}

struct lease *lease_above(const struct sandbox_core *core, uint64_t number)
{
	return lease_of_node(tree_at(&core->lease_tree, lease_place, &number));
}

struct lease *lease_next(const struct lease *x)
{
	return lease_of_node(tree_next(&x->numbered));
}

unsigned lease_count(const struct sandbox_core *core, uid_t uid)
{
	return (unsigned)(uintptr_t)map_get_u64(&core->lease_counts, uid);
}

static int set_count(struct sandbox_core *core, uid_t uid, unsigned n)
{
	if (n)
		return map_put_u64(&core->lease_counts, uid, (void *)(uintptr_t)n);
	(void)map_del_u64(&core->lease_counts, uid);
	return 0;
}

/* In the table, by number, counted. */
static int lease_enter(struct lease *x)
{
	struct sandbox_core *core = x->core;
	int r = map_put_str(&core->lease_map, x->id, x);

	if (r < 0)
		return r;
	r = set_count(core, x->uid, lease_count(core, x->uid) + 1);
	if (r < 0) {
		(void)map_del_str(&core->lease_map, x->id);
		return r;
	}
	core->lease_number = MAX(core->lease_number + 1, clock_boot_ms() * NUMBERS_PER_MS);
	x->number = core->lease_number;
	list_add_tail(&core->leases, &x->node);
	tree_insert(&core->lease_tree, &x->numbered, lease_by_number);
	return 0;
}

/* set_count() cannot fail here: the uid has an entry. */
static void lease_leave(struct lease *x)
{
	struct sandbox_core *core = x->core;

	(void)map_del_str(&core->lease_map, x->id);
	(void)!set_count(core, x->uid, lease_count(core, x->uid) - 1);
	list_del(&x->node);
	tree_del(&core->lease_tree, &x->numbered);
}

struct lease *lease_of_process(struct sandbox *b, const struct holder *h)
{
	list_for_each(n, &b->leases) {
		struct lease *x = list_entry(n, struct lease, sandbox_node);

		if (x->holder == h)
			return x;
	}
	return NULL;
}

static void lease_free(void *p)
{
	struct lease *x = lease_from(p);

	x->magic = 0;
	free(x->sandbox_id);
	free(x->label);
	free(x);
}

static void drop_holder(struct lease *x)
{
	struct holder *h = x->holder;

	x->holder = NULL;
	list_del(&x->holder_node);
	holder_unref(h);
}

/* Out of all tables. */
static void forget(struct lease *x)
{
	must(!x->sandbox && !x->held);
	timer_clear(&x->timer);
	lease_leave(x);
	loop_bury(x->core->loop, &x->grave, lease_free, x);
}

static int insert(struct sandbox_core *core, const char *id, uid_t uid, struct lease **ret)
{
	struct lease *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->magic = LEASE_MAGIC;
	x->core = core;
	x->uid = uid;
	x->state = LEASE_ENDED;
	list_init(&x->sandbox_node);
	list_init(&x->holder_node);
	timer_init(&x->timer, core->loop, lease_on_timer, x);
	(void)str_copy(x->id, sizeof(x->id), id);
	if (text_set(&x->sandbox_id, "") < 0 || text_set(&x->label, "") < 0 ||
	    lease_enter(x) < 0) {
		lease_free(x);
		return -ENOMEM;
	}
	*ret = x;
	return 0;
}

static void count_in(struct lease *x, struct sandbox *b)
{
	struct list *at = b->leases.prev;

	x->sandbox = b;
	while (at != &b->leases && list_entry(at, struct lease, sandbox_node)->number > x->number)
		at = at->prev;
	list_add_head(at, &x->sandbox_node);
	index_lease(b, 1);
	b->released_at_ms = 0;
	runner_note(b);
}

/* Takes the lease off its sandbox, which is released when that was the last one. */
static void count_out(struct lease *x)
{
	struct sandbox *b = x->sandbox;

	x->sandbox = NULL;
	list_del(&x->sandbox_node);
	index_lease(b, -1);
	b->used_at_ms = (int64_t)clock_boot_ms();
	if (!b->n_leases)
		b->released_at_ms = b->used_at_ms;
	runner_note(b);
}

/* --- taking --- */

static void new_id(char ret[LEASE_ID_LEN + 1])
{
	ret[0] = 'l';
	rng_id(ret + 1, LEASE_ID_LEN - 1);
}

static int set_end(struct lease *x, uint64_t ttl_ms)
{
	int r = timer_set(&x->timer, clock_boot_ms() + ttl_ms);

	if (!r)
		x->expires_wall_ms = clock_wall_ms() + (int64_t)ttl_ms;
	return r;
}

static void held_lost(struct lease *x, const struct status *st);

/* Takes the lease from its stream or process, for another one of the same uid. */
static void take_from(struct lease *x)
{
	struct status st;

	if (x->held) {
		status_set(&st, R_STATE_CHANGING, "lease %s was taken again by another call", x->id);
		held_lost(x, &st);
	}
	drop_holder(x);
	timer_clear(&x->timer);
	x->expires_wall_ms = 0;
}

int lease_take(struct sandbox_core *core, struct sandbox *b, const struct lease_make *m,
	       struct lease *again, struct lease **ret)
{
	struct lease *x = again;
	char id[LEASE_ID_LEN + 1];
	int r = 0;

	must(sandbox_is_live(b));
	if (!x) {
		new_id(id);
		r = insert(core, id, m->uid, &x);
		if (r < 0)
			return r;
		x->made_at_ms = clock_wall_ms();
	}
	if (!r && (!again || m->label[0]))
		r = text_set(&x->label, m->label);
	if (!r)
		r = text_set(&x->sandbox_id, b->id);
	/* From here on nothing but the timer may fail: one that is held stays so. */
	if (!r && again)
		take_from(x);
	if (!r && m->kind == ROW_LEASE_TTL)
		r = set_end(x, m->ttl_ms);
	if (r < 0) {
		if (!x->sandbox)
			forget(x);
		return r;
	}
	x->kind = m->kind;
	x->pid = m->pid;
	x->state = LEASE_HELD;
	x->written = false;
	if (x->sandbox && x->sandbox != b)
		count_out(x);
	if (!x->sandbox)
		count_in(x, b);
	if (m->holder) {
		x->holder = m->holder;
		m->holder->refs++;
		list_add_tail(&m->holder->leases, &x->holder_node);
	}
	x->core->totals.leases_taken++;
	log_debug("lease_taken", "lease=%s sandbox=%s uid=%u pid=%d kind=%d", x->id, b->id, owner_uid(x->uid),
		  (int)x->pid, (int)x->kind);
	*ret = x;
	return 0;
}

void lease_put(struct store_tx *t, const struct lease *x)
{
	struct row_lease row = {
		.id = x->id,
		.account = account_name(x->sandbox->account),
		.sandbox = x->sandbox_id,
		.uid = x->uid,
		.kind = x->kind,
		.pid = x->pid,
		.label = x->label,
		.made_at_ms = x->made_at_ms,
		.expires_at_ms = x->expires_wall_ms,
		.boot_id = holder_boot_id(x->core),
	};

	if (x->holder) {
		row.identity = (int)x->holder->identity;
		row.identity_value = x->holder->value;
	}
	store_tx_put_lease(t, &row);
}

int lease_resave(struct sandbox_core *core)
{
	list_for_each(n, &core->leases) {
		struct lease *x = list_entry(n, struct lease, node);
		struct store_tx *t;
		int r = store_tx_new(core->store, &t);

		if (r < 0)
			return r;
		if (x->state == LEASE_ENDED)
			store_tx_del_lease(t, x->id);
		else
			lease_put(t, x);
		core_commit(core, t, true);
	}
	return 0;
}

int lease_renew(struct lease *x, uint64_t ttl_ms)
{
	return set_end(x, ttl_ms);
}

/* --- ending --- */

static void held_lost(struct lease *x, const struct status *st)
{
	struct sandbox_held *h = x->held;

	x->held = NULL;
	h->lease = NULL;
	h->fn(h->user, SANDBOX_HELD_LOST, st, NULL);
}

static void remember(struct lease *x)
{
	x->state = LEASE_ENDED;
	x->expires_wall_ms = 0;
	if (timer_set(&x->timer, clock_boot_ms() + x->core->restart_grace_ms) < 0)
		forget(x);
}

void lease_end(struct lease *x, const char *why)
{
	struct sandbox_core *core = x->core;
	struct sandbox *b = x->sandbox;
	struct store_tx *t;
	struct status st;

	if (x->state == LEASE_ENDED)
		return;
	FAILPOINT("lease.before_end");
	count_out(x);
	drop_holder(x);
	totals_count(&core->totals.leases_ended, why);
	log_info("lease_ended", "lease=%s sandbox=%s uid=%u pid=%d why=%s left=%u", x->id, b->id,
		 owner_uid(x->uid), (int)x->pid, log_q(why), b->n_leases);
	if (x->held) {
		status_set(&st, R_LEASE_NOT_FOUND, "lease %s has ended: %s", x->id, why);
		held_lost(x, &st);
	}
	if (store_tx_new(core->store, &t) < 0) {
		core->resave = true;
	} else {
		store_tx_del_lease(t, x->id);
		event_put(core, t, b, EVENT_UPDATED, "lease=ended\nlease_id=%s\nwhy=%s\n", x->id, why);
		sandbox_put(t, b);
		core_commit(core, t, true);
	}
	remember(x);
	runner_poke(b);
}

void lease_unclaim(struct sandbox *b, struct lease *x)
{
	b->claimed = false;
	b->unclaimed_at_ms = clock_wall_ms();
	b->unclaimed_boot_ms = (int64_t)clock_boot_ms();
	if (x)
		lease_end(x, "its call ended before the answer");
	else
		sandbox_save(b->account->core, b, false);
	runner_poke(b);
}

void lease_sandbox_gone(struct sandbox_core *core, struct sandbox *b, struct store_tx *t)
{
	struct status st;

	while (!list_is_empty(&b->leases)) {
		struct lease *x = list_entry(b->leases.next, struct lease, sandbox_node);

		count_out(x);
		drop_holder(x);
		totals_count(&core->totals.leases_ended, "its sandbox is gone");
		if (t)
			store_tx_del_lease(t, x->id);
		if (x->held) {
			sandbox_refusal(b, &st);
			held_lost(x, &st);
		}
		x->state = LEASE_ENDED;
		forget(x);
	}
	b->released_at_ms = 0;
}

/* One that no lease is on, whether there was one or not. */
static void release(struct sandbox *b)
{
	struct store_tx *t;

	b->released_at_ms = (int64_t)clock_boot_ms();
	if (store_tx_new(b->account->core->store, &t) < 0) {
		b->account->core->resave = true;
	} else {
		sandbox_put(t, b);
		core_commit(b->account->core, t, true);
	}
	runner_poke(b);
}

void sandbox_core_release_owner(struct sandbox_core *core, uid_t owner)
{
	list_for_each_safe(n, &core->leases) {
		struct lease *x = list_entry(n, struct lease, node);

		if (x->uid == owner)
			lease_end(x, "its owner's uid is another's now");
	}
	list_for_each_safe(n, &core->sandboxes) {
		struct sandbox *b = list_entry(n, struct sandbox, node);

		if (b->uid == owner && sandbox_is_live(b) && !b->n_leases && !b->released_at_ms)
			release(b);
	}
}

static void lease_on_timer(struct timer *t, void *user)
{
	struct lease *x = lease_from(user);

	switch (x->state) {
	case LEASE_HELD:
		lease_end(x, "its time is over");
		break;
	case LEASE_WAITING:
		if (x->core->draining)
			break;	/* its holder cannot come back to a daemon that stops: the next start gives it time */
		lease_end(x, "its holder did not come back after the restart");
		break;
	case LEASE_ENDED:
		/* Its end may not be in the store yet. */
		if (x->core->resave && !x->core->draining &&
		    timer_set(&x->timer, clock_boot_ms() + RESAVE_WAIT_MS) == 0)
			break;
		forget(x);
		break;
	}
}

void lease_view(const struct lease *x, struct sandbox_lease *ret)
{
	*ret = (struct sandbox_lease){
		.id = x->id,
		.sandbox = x->sandbox_id,
		.label = x->label,
		.uid = x->uid,
		.pid = x->pid,
		.expires_at_ms = x->expires_wall_ms,
		.sandbox_end_at_ms = x->sandbox ? x->sandbox->end_at_ms : 0,
	};
}

/* --- streams --- */

int sandbox_held_new(struct sandbox_core *core, const char *lease_id, sandbox_held_fn *fn,
		     void *user, struct sandbox_held **ret)
{
	struct lease *x = lease_find(core, lease_id);
	struct sandbox_held *h;

	if (!x || x->state != LEASE_HELD || x->kind != ROW_LEASE_STREAM || x->held)
		return -ENOENT;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	*h = (struct sandbox_held){ .lease = x, .fn = fn, .user = user };
	x->held = h;
	*ret = h;
	return 0;
}

void sandbox_held_free(struct sandbox_held *h, bool keep)
{
	struct lease *x;

	if (!h)
		return;
	x = h->lease;
	if (x) {
		x->held = NULL;
		if (keep) {
			x->state = LEASE_WAITING;
			if (timer_set(&x->timer, clock_boot_ms() + x->core->restart_grace_ms) < 0)
				lease_end(x, "its stream was closed");
		} else {
			lease_end(x, "its stream was closed");
		}
	}
	free(h);
}

bool sandbox_held_view(const struct sandbox_held *h, struct sandbox_lease *ret)
{
	if (h->lease)
		lease_view(h->lease, ret);
	return h->lease != NULL;
}

void lease_changed(struct sandbox *b)
{
	list_for_each_safe(n, &b->leases) {
		struct lease *x = list_entry(n, struct lease, sandbox_node);
		struct status ok = STATUS_OK;
		struct sandbox_lease v;

		if (!x->held)
			continue;
		lease_view(x, &v);
		x->held->fn(x->held->user, SANDBOX_HELD_CHANGED, &ok, &v);
	}
}

void lease_drain(struct sandbox_core *core)
{
	struct status st;

	status_set(&st, R_DRAINING, "agentboxd is stopping; take the lease again by its id in a moment");
	st.retry_after_ms = 1000;
	list_for_each_safe(n, &core->leases) {
		struct lease *x = list_entry(n, struct lease, node);

		if (!x->held)
			continue;
		x->state = LEASE_WAITING;
		held_lost(x, &st);
	}
}

/* --- start --- */

int lease_load(struct sandbox_core *core, const struct row_lease *r)
{
	struct account *a = core_account_by_name(core, r->account);
	struct sandbox *b = a ? core_find(core, a, r->sandbox) : NULL;
	struct lease *x;
	int e;

	/* A lease without its sandbox is dropped. */
	if (!b || !sandbox_is_live(b) || strlen(r->id) > LEASE_ID_LEN || lease_find(core, r->id))
		return 0;
	e = insert(core, r->id, r->uid, &x);
	if (e < 0)
		return e;
	x->kind = r->kind;
	x->written = true;
	x->pid = (pid_t)r->pid;
	x->made_at_ms = r->made_at_ms;
	if (text_set(&x->sandbox_id, b->id) < 0 || text_set(&x->label, r->label) < 0) {
		forget(x);
		return -ENOMEM;
	}
	x->state = LEASE_WAITING;
	count_in(x, b);
	if (r->kind == ROW_LEASE_TTL) {
		int64_t left = MAX(r->expires_at_ms - clock_wall_ms(), (int64_t)0);

		x->state = LEASE_HELD;
		x->expires_wall_ms = r->expires_at_ms;
		if (timer_set(&x->timer, clock_boot_ms() + (uint64_t)left) == 0)
			return 0;
	} else if (r->kind == ROW_LEASE_PROCESS) {
		switch (holder_of_row(core, r, &x->holder)) {
		case HOLDER_PROVED:
			x->state = LEASE_HELD;
			list_add_tail(&x->holder->leases, &x->holder_node);
			return 0;
		case HOLDER_DEAD:
			x->state = LEASE_HELD;	/* lease_loaded() ends it, when the store takes writes */
			return 0;
		case HOLDER_UNKNOWN:
			break;
		}
	}
	if (timer_set(&x->timer, clock_boot_ms() + core->restart_grace_ms) < 0)
		log_warn("lease_timer", "lease=%s error=nomem", x->id);
	return 0;
}

void lease_loaded(struct sandbox_core *core)
{
	list_for_each_safe(n, &core->leases) {
		struct lease *x = list_entry(n, struct lease, node);

		if (x->state == LEASE_HELD && x->kind == ROW_LEASE_PROCESS && !x->holder)
			lease_end(x, "its process died while the daemon was not running");
	}
}

void lease_free_all(struct sandbox_core *core)
{
	while (!list_is_empty(&core->leases)) {
		struct lease *x = list_entry(core->leases.next, struct lease, node);

		if (x->held)
			x->held->lease = NULL;
		x->held = NULL;
		if (x->sandbox)
			count_out(x);
		drop_holder(x);
		timer_clear(&x->timer);
		lease_leave(x);
		lease_free(x);
	}
}
