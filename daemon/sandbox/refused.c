/* SPDX-License-Identifier: MIT */
/*
 * Refused rows: rows in the store that are not believed (store.h). Invariant: a sandbox that a refused row may be
 * about is held: extensions keep it alive as if it were leased, and no policy ends it, until its user does or the
 * cloud has it no more. Where a refused row does not say which sandbox it is about, every sandbox from before the
 * start is held.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "proto/base/str.h"

struct refused_row {
	struct list node;
	enum row_table table;
	struct account *account;	/* NULL = of no configured account */
	char *sandbox;			/* id; "" = not known, or a row of an intent */
	uint64_t seq;
};

/* The tables whose rows decide about the end of a sandbox. */
static bool decides(enum row_table t)
{
	return t == ROW_TABLE_sandbox || t == ROW_TABLE_intent || t == ROW_TABLE_lease || t == ROW_TABLE_copy;
}

static void refused_free(struct refused_row *r)
{
	list_del(&r->node);
	free(r->sandbox);
	free(r);
}

int refused_load(struct sandbox_core *core, const struct store_refused *row)
{
	struct refused_row *r;

	if (!decides(row->table))
		return 0;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	list_add_tail(&core->refused, &r->node);
	r->table = row->table;
	r->account = core_account_by_name(core, row->account);
	r->seq = row->seq;
	if (text_set(&r->sandbox, row->sandbox) < 0) {
		refused_free(r);
		return -ENOMEM;
	}
	if (row->table == ROW_TABLE_copy || (row->table == ROW_TABLE_intent ? !r->seq : !r->account || !r->sandbox[0]))
		core->hold_all = true;
	return 0;
}

static bool is_about(const struct refused_row *r, const struct sandbox *b)
{
	if (r->table == ROW_TABLE_intent)
		return r->seq && r->seq == b->seq;
	return r->account == b->account && str_eq(r->sandbox, b->id);
}

static bool has_refused_row(const struct sandbox_core *core, const struct sandbox *b)
{
	list_for_each(n, &core->refused)
		if (is_about(list_entry(n, struct refused_row, node), b))
			return true;
	return false;
}

static void hold(struct sandbox *b)
{
	b->held = true;
	log_warn("sandbox_held", "sandbox=%s reason=row_refused", b->id);
}

void refused_loaded(struct sandbox_core *core)
{
	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (b->state != SANDBOX_GONE && (core->hold_all || has_refused_row(core, b)))
			hold(b);
	}
}

void refused_adopted(struct sandbox_core *core, struct sandbox *b)
{
	if (!core->hold_all && !has_refused_row(core, b))
		return;
	hold(b);
	b->claimed = true;
	b->unclaimed_at_ms = b->unclaimed_boot_ms = 0;
}

void refused_gone(struct sandbox_core *core, struct sandbox *b, struct store_tx *t)
{
	if (!b->held)
		return;
	b->held = false;
	store_tx_del_leases(t, account_name(b->account), b->id);
	list_for_each_safe(n, &core->refused) {
		struct refused_row *r = list_entry(n, struct refused_row, node);

		if (!is_about(r, b))
			continue;
		if (r->table == ROW_TABLE_intent)
			store_tx_del_intent(t, r->seq);
		refused_free(r);
	}
}

void refused_forget_all(struct sandbox_core *core)
{
	while (!list_is_empty(&core->refused))
		refused_free(list_entry(core->refused.next, struct refused_row, node));
}
