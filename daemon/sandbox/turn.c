/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/turn.h"

#include "daemon/sandbox/core.h"
#include "proto/base/must.h"

static void on_kick(struct defer *d, void *user)
{
	struct sandbox *b = user;
	struct turn *t;

	if (list_is_empty(&b->turns))
		return;
	t = list_entry(b->turns.next, struct turn, node);
	if (t->told)
		return;
	t->told = true;
	t->fn(t);
}

void turn_init(struct turn *t, void (*fn)(struct turn *t))
{
	*t = (struct turn){ .fn = fn };
	list_init(&t->node);
}

void turn_take(struct turn *t, struct sandbox *b)
{
	must(!t->sandbox);
	if (!b->turn_ready)
		defer_init(&b->turn_kick, b->account->core->loop, on_kick, b);
	b->turn_ready = true;
	t->sandbox = b;
	t->told = false;
	list_add_tail(&b->turns, &t->node);
	defer_post(&b->turn_kick);
}

void turn_end(struct turn *t)
{
	struct sandbox *b = t->sandbox;

	if (!b)
		return;
	t->sandbox = NULL;
	list_del(&t->node);
	if (!list_is_empty(&b->turns))
		defer_post(&b->turn_kick);
}

bool turn_is_free(const struct sandbox *b)
{
	return list_is_empty(&b->turns);
}
