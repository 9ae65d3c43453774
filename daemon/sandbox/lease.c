/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/event.h"
#include "daemon/sandbox/failpoint.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/keep.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define RESAVE_WAIT_MS 1000u

static void on_timer(struct timer *t, void *user);

static struct lease *lease_from(void *p)
{
	struct lease *x = p;

	must(x && x->magic == LEASE_MAGIC);
	return x;
}

/* --- tables --- */

struct lease *lease_find(struct life *l, const char *id)
{
	return map_get_str(&l->lease_map, id);
}

struct lease *lease_of_process(struct box *b, const struct holder *h)
{
	list_for_each(n, &b->leases) {
		struct lease *x = list_entry(n, struct lease, box_node);

		if (x->holder == h)
			return x;
	}
	return NULL;
}

static void lease_free(void *p)
{
	struct lease *x = lease_from(p);

	x->magic = 0;
	free(x->sandbox);
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
	must(!x->box && !x->held);
	timer_clear(&x->timer);
	(void)map_del_str(&x->life->lease_map, x->id);
	list_del(&x->node);
	loop_bury(x->life->loop, &x->grave, lease_free, x);
}

static int insert(struct life *l, const char *id, uid_t uid, struct lease **ret)
{
	struct lease *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->magic = LEASE_MAGIC;
	x->life = l;
	x->uid = uid;
	x->state = LEASE_ENDED;
	list_init(&x->box_node);
	list_init(&x->holder_node);
	timer_init(&x->timer, l->loop, on_timer, x);
	(void)str_copy(x->id, sizeof(x->id), id);
	if (text_set(&x->sandbox, "") < 0 || text_set(&x->label, "") < 0 ||
	    map_put_str(&l->lease_map, x->id, x) < 0) {
		lease_free(x);
		return -ENOMEM;
	}
	x->number = ++l->lease_number;
	list_add_tail(&l->leases, &x->node);
	*ret = x;
	return 0;
}

static void count_in(struct lease *x, struct box *b)
{
	x->box = b;
	list_add_tail(&b->leases, &x->box_node);
	b->n_leases++;
	b->released_at_ms = 0;
}

/* The last one leaves: from now on the box is released. */
static void count_out(struct lease *x)
{
	struct box *b = x->box;

	x->box = NULL;
	list_del(&x->box_node);
	must(b->n_leases);
	b->n_leases--;
	b->used_at_ms = (int64_t)clock_boot_ms();
	if (!b->n_leases)
		b->released_at_ms = b->used_at_ms;
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

/* Whoever held it holds it no more: another stream or process of this uid does. */
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

int lease_take(struct life *l, struct box *b, const struct lease_make *m, struct lease *again,
	       struct lease **ret)
{
	struct lease *x = again;
	char id[LEASE_ID_LEN + 1];
	int r = 0;

	must(box_is_live(b));
	if (!x) {
		new_id(id);
		r = insert(l, id, m->uid, &x);
		if (r < 0)
			return r;
		x->made_at_ms = clock_wall_ms();
	} else {
		take_from(x);
	}
	if (!r && (!again || m->label[0]))
		r = text_set(&x->label, m->label);
	if (!r)
		r = text_set(&x->sandbox, b->id);
	if (!r && m->kind == ROW_LEASE_TTL)
		r = set_end(x, m->ttl_ms);
	if (r < 0) {
		if (!x->box)
			forget(x);
		return r;
	}
	x->kind = m->kind;
	x->pid = m->pid;
	x->state = LEASE_HELD;
	x->written = false;
	if (x->box && x->box != b)
		count_out(x);
	if (!x->box)
		count_in(x, b);
	if (m->holder) {
		x->holder = m->holder;
		m->holder->refs++;
		list_add_tail(&m->holder->leases, &x->holder_node);
	}
	log_debug("lease_taken", "lease=%s box=%s uid=%u pid=%d kind=%d", x->id, b->id, x->uid, (int)x->pid,
		  (int)x->kind);
	*ret = x;
	return 0;
}

void lease_put(struct store_tx *t, const struct lease *x)
{
	struct row_lease row = {
		.id = x->id,
		.account = account_name(x->box->account),
		.sandbox = x->sandbox,
		.uid = x->uid,
		.kind = x->kind,
		.pid = x->pid,
		.label = x->label,
		.made_at_ms = x->made_at_ms,
		.expires_at_ms = x->expires_wall_ms,
		.boot_id = holder_boot_id(x->life),
	};

	if (x->holder) {
		row.identity = (int)x->holder->identity;
		row.identity_value = x->holder->value;
	}
	store_tx_put_lease(t, &row);
}

int lease_resave(struct life *l)
{
	list_for_each(n, &l->leases) {
		struct lease *x = list_entry(n, struct lease, node);
		struct store_tx *t;
		int r = store_tx_new(l->store, &t);

		if (r < 0)
			return r;
		if (x->state == LEASE_ENDED)
			store_tx_del_lease(t, x->id);
		else
			lease_put(t, x);
		life_commit(l, t, true);
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
	struct life_held *h = x->held;

	x->held = NULL;
	h->lease = NULL;
	h->fn(h->user, LIFE_HELD_LOST, st, NULL);
}

static void remember(struct lease *x)
{
	x->state = LEASE_ENDED;
	x->expires_wall_ms = 0;
	if (timer_set(&x->timer, clock_boot_ms() + x->life->restart_grace_ms) < 0)
		forget(x);
}

void lease_end(struct lease *x, const char *why)
{
	struct life *l = x->life;
	struct box *b = x->box;
	struct store_tx *t;
	struct status st;

	if (x->state == LEASE_ENDED)
		return;
	FAILPOINT("lease.before_end");
	count_out(x);
	drop_holder(x);
	log_info("lease_ended", "lease=%s box=%s uid=%u pid=%d why=%s left=%u", x->id, b->id, x->uid, (int)x->pid,
		 log_q(why), b->n_leases);
	if (x->held) {
		status_set(&st, R_LEASE_NOT_FOUND, "lease %s has ended: %s", x->id, why);
		held_lost(x, &st);
	}
	if (store_tx_new(l->store, &t) < 0) {
		l->resave = true;
	} else {
		store_tx_del_lease(t, x->id);
		event_put(l, t, b, EVENT_UPDATED, "lease=ended\nlease_id=%s\nwhy=%s\n", x->id, why);
		life_put_box(t, b);
		life_commit(l, t, true);
	}
	remember(x);
	keep_poke(b);
}

void lease_box_gone(struct life *l, struct box *b, struct store_tx *t)
{
	struct status st;

	while (!list_is_empty(&b->leases)) {
		struct lease *x = list_entry(b->leases.next, struct lease, box_node);

		count_out(x);
		drop_holder(x);
		if (t)
			store_tx_del_lease(t, x->id);
		if (x->held) {
			box_refusal(b, &st);
			held_lost(x, &st);
		}
		x->state = LEASE_ENDED;
		forget(x);
	}
	b->released_at_ms = 0;
}

static void on_timer(struct timer *t, void *user)
{
	struct lease *x = lease_from(user);

	switch (x->state) {
	case LEASE_HELD:
		lease_end(x, "its time is over");
		break;
	case LEASE_WAITING:
		if (x->life->draining)
			break;	/* we stop, so it cannot come back: the next start gives it its time */
		lease_end(x, "its holder did not come back after the restart");
		break;
	case LEASE_ENDED:
		/* That it ended may not be written yet. */
		if (x->life->resave && !x->life->draining && timer_set(&x->timer, clock_boot_ms() + RESAVE_WAIT_MS) == 0)
			break;
		forget(x);
		break;
	}
}

void lease_view(const struct lease *x, struct life_lease *ret)
{
	*ret = (struct life_lease){
		.id = x->id,
		.sandbox = x->sandbox,
		.label = x->label,
		.uid = x->uid,
		.pid = x->pid,
		.expires_at_ms = x->expires_wall_ms,
		.sandbox_end_at_ms = x->box ? x->box->end_at_ms : 0,
	};
}

/* --- streams --- */

int life_held_new(struct life *l, const char *lease_id, life_held_fn *fn, void *user, struct life_held **ret)
{
	struct lease *x = lease_find(l, lease_id);
	struct life_held *h;

	if (!x || x->state != LEASE_HELD || x->kind != ROW_LEASE_STREAM || x->held)
		return -ENOENT;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	*h = (struct life_held){ .lease = x, .fn = fn, .user = user };
	x->held = h;
	*ret = h;
	return 0;
}

void life_held_free(struct life_held *h, bool keep)
{
	struct lease *x;

	if (!h)
		return;
	x = h->lease;
	if (x) {
		x->held = NULL;
		if (keep) {
			x->state = LEASE_WAITING;
			if (timer_set(&x->timer, clock_boot_ms() + x->life->restart_grace_ms) < 0)
				lease_end(x, "its stream was closed");
		} else {
			lease_end(x, "its stream was closed");
		}
	}
	free(h);
}

bool life_held_view(const struct life_held *h, struct life_lease *ret)
{
	if (h->lease)
		lease_view(h->lease, ret);
	return h->lease != NULL;
}

void lease_news(struct box *b)
{
	list_for_each_safe(n, &b->leases) {
		struct lease *x = list_entry(n, struct lease, box_node);
		struct status ok = STATUS_OK;
		struct life_lease v;

		if (!x->held)
			continue;
		lease_view(x, &v);
		x->held->fn(x->held->user, LIFE_HELD_CHANGED, &ok, &v);
	}
}

void lease_drain(struct life *l)
{
	struct status st;

	status_set(&st, R_DRAINING, "agentboxd is stopping; take the lease again by its id in a moment");
	st.retry_after_ms = 1000;
	list_for_each_safe(n, &l->leases) {
		struct lease *x = list_entry(n, struct lease, node);

		if (!x->held)
			continue;
		x->state = LEASE_WAITING;
		held_lost(x, &st);
	}
}

/* --- start --- */

int lease_load(struct life *l, const struct row_lease *r)
{
	struct account *a = life_account_by_name(l, r->account);
	struct box *b = a ? life_find_box(l, a, r->sandbox) : NULL;
	struct lease *x;
	int e;

	/* Without its sandbox it claims nothing. */
	if (!b || !box_is_live(b) || strlen(r->id) > LEASE_ID_LEN || lease_find(l, r->id))
		return 0;
	e = insert(l, r->id, r->uid, &x);
	if (e < 0)
		return e;
	x->kind = r->kind;
	x->written = true;
	x->pid = (pid_t)r->pid;
	x->made_at_ms = r->made_at_ms;
	if (text_set(&x->sandbox, b->id) < 0 || text_set(&x->label, r->label) < 0) {
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
		switch (holder_of_row(l, r, &x->holder)) {
		case HOLDER_PROVED:
			x->state = LEASE_HELD;
			list_add_tail(&x->holder->leases, &x->holder_node);
			return 0;
		case HOLDER_DEAD:
			x->state = LEASE_HELD;	/* ended when the store takes it */
			return 0;
		case HOLDER_UNKNOWN:
			break;
		}
	}
	if (timer_set(&x->timer, clock_boot_ms() + l->restart_grace_ms) < 0)
		log_warn("lease_timer", "lease=%s err=nomem", x->id);
	return 0;
}

void lease_loaded(struct life *l)
{
	list_for_each_safe(n, &l->leases) {
		struct lease *x = list_entry(n, struct lease, node);

		if (x->state == LEASE_HELD && x->kind == ROW_LEASE_PROCESS && !x->holder)
			lease_end(x, "its process died while the daemon was not running");
	}
}

void lease_free_all(struct life *l)
{
	while (!list_is_empty(&l->leases)) {
		struct lease *x = list_entry(l->leases.next, struct lease, node);

		if (x->held)
			x->held->lease = NULL;
		x->held = NULL;
		if (x->box)
			count_out(x);
		drop_holder(x);
		timer_clear(&x->timer);
		(void)map_del_str(&l->lease_map, x->id);
		list_del(&x->node);
		lease_free(x);
	}
}
