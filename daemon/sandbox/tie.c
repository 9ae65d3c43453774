/* SPDX-License-Identifier: MIT */
/*
 * Ties: what ends with a sandbox. Ties hear of the sandbox's end after its commit, so that a crash cannot take back
 * what they passed on. Commits keep their order, and the fence of the event log (event.c) says which are done; until
 * then the sandbox is on core->untold.
 */
#include "daemon/sandbox/tie.h"

#include "daemon/sandbox/core.h"

void sandbox_tie_init(struct sandbox_tie *t, sandbox_tie_fn *on_event, void *user)
{
	*t = (struct sandbox_tie){ .on_event = on_event, .user = user };
	list_init(&t->node);
}

void sandbox_untie(struct sandbox_tie *t)
{
	list_del(&t->node);
}

void sandbox_tie(struct sandbox_core *core, const char *account, const char *id, struct sandbox_tie *t)
{
	struct account *a = core_account_by_name(core, account);
	struct sandbox *b = a ? core_find(core, a, id) : NULL;

	list_del(&t->node);
	if (!b)
		return;
	list_add_tail(&b->ties, &t->node);
	if (b->state == SANDBOX_GONE)
		tie_gone(core, b);
}

void tie_edge(struct sandbox *b, enum sandbox_state to)
{
	const struct status ok = STATUS_OK;

	if (to != SANDBOX_PAUSING && to != SANDBOX_RUNNING)
		return;
	list_for_each_safe(n, &b->ties) {
		struct sandbox_tie *t = list_entry(n, struct sandbox_tie, node);

		t->on_event(t->user, to == SANDBOX_PAUSING ? SANDBOX_TIE_PAUSING : SANDBOX_TIE_RUNNING, &ok);
	}
}

void tie_gone(struct sandbox_core *core, struct sandbox *b)
{
	if (list_is_empty(&b->ties) || !list_is_empty(&b->untold))
		return;
	b->untold_number = core->events.number;
	list_add_tail(&core->untold, &b->untold);
	defer_post(&core->events.fence);
}

static void tell(struct sandbox *b)
{
	struct list ties;	/* a list of its own, since on_event may tie others to the sandbox, or free any of these */
	struct status st;

	sandbox_refusal(b, &st);
	list_take(&ties, &b->ties);
	while (!list_is_empty(&ties)) {
		struct sandbox_tie *t = list_first(&ties, struct sandbox_tie, node);

		list_del(&t->node);
		t->on_event(t->user, SANDBOX_TIE_GONE, &st);
	}
}

void tie_committed(struct sandbox_core *core)
{
	while (!list_is_empty(&core->untold)) {
		struct sandbox *b = list_first(&core->untold, struct sandbox, untold);

		if (b->untold_number > core->events.told)
			return;
		list_del(&b->untold);
		if (b->state == SANDBOX_GONE)	/* not so if a list has shown it again */
			tell(b);
	}
}

void tie_forget(struct sandbox *b)
{
	list_del(&b->untold);
	while (!list_is_empty(&b->ties))
		list_del(&list_first(&b->ties, struct sandbox_tie, node)->node);
}
