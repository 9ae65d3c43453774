/* SPDX-License-Identifier: MIT */
/* GET of one sandbox: at most one request at a time for each sandbox, shared by all that want its answer.
 * Waiters are called after the sandbox has taken over the answer. A request of those that the sandbox is hidden from is apart: the row
 * learns nothing by it, so that its owner's answers do not depend on who else asks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"

#define FETCH_MAGIC	  0x46657463u
#define FETCH_DEADLINE_MS 30000u	/* of the request; a caller's own deadline may come first */

struct fetch {
	uint32_t magic;
	struct list node;
	struct sandbox_core *core;
	struct account *account;
	char *id;
	struct cloud_call *call;
	uint64_t asked_at_ms;
	bool apart;
	struct list waiters;
	struct grave grave;
};

static size_t fetch_key(char ret[160], const struct account *a, const char *id, bool apart)
{
	return (size_t)snprintf(ret, 160, "%u%c%.128s", a->index, apart ? '!' : '/', id);
}

static void fetch_free(void *p)
{
	struct fetch *f = p;

	must(f->magic == FETCH_MAGIC);
	f->magic = 0;
	free(f->id);
	free(f);
}

static void unlink_fetch(struct fetch *f)
{
	struct sandbox *b = core_find(f->core, f->account, f->id);
	char key[160];

	(void)map_del(&f->core->fetch_map, key, fetch_key(key, f->account, f->id, f->apart));
	if (b && b->fetch == f)
		b->fetch = NULL;
	list_del(&f->node);
}

/* A sandbox with our tag whose row the store lost gets a row again. */
static struct sandbox *adopt_if_ours(struct fetch *f, const struct cloud_sandbox *s)
{
	struct sandbox *b = NULL;
	struct tags t;

	tags_read(&s->metadata, &t);
	if (!tags_are_of(&t, store_host_id(f->core->store)) ||
	    core_is_known(f->core, f->account, s))
		return core_find(f->core, f->account, f->id);
	return core_adopt(f->core, f->account, s, &b) < 0 ? NULL : b;
}

static void on_fetched(struct cloud_result *r, void *user)
{
	struct fetch *f = user;
	struct fetch_result result = { .st = &r->status, .s = r->sandbox };
	struct sandbox *b;
	struct list waiters;

	must(f->magic == FETCH_MAGIC);
	f->call = NULL;
	b = f->apart ? NULL : core_find(f->core, f->account, f->id);
	if (r->outcome == CLOUD_DONE && r->sandbox) {
		result.end = FETCH_ALIVE;
		if (b) {
			b->token_known = true;
			sandbox_seen_since(f->core, b, r->sandbox, f->asked_at_ms);
		} else if (!f->apart) {
			b = adopt_if_ours(f, r->sandbox);
		}
	} else if (r->not_found) {
		result.end = FETCH_ABSENT;
		if (b)
			sandbox_absent(f->core, b);
	} else {
		result.end = FETCH_FAILED;
		if (b)
			b->unreachable = true;
	}
	result.sandbox = b;
	unlink_fetch(f);
	list_take(&waiters, &f->waiters);
	loop_bury(f->core->loop, &f->grave, fetch_free, f);
	while (!list_is_empty(&waiters)) {
		struct fetch_wait *w = list_entry(waiters.next, struct fetch_wait, node);

		list_del(&w->node);
		/* An earlier waiter may have given the sandbox a row. */
		result.sandbox = core_find(f->core, f->account, f->id);
		w->fn(w, &result);
	}
}

static int fetch_start(struct sandbox_core *core, struct account *a, const char *id, const struct fetch_wait *w,
		       bool background, struct fetch **ret)
{
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + FETCH_DEADLINE_MS,
		.background = background,
		.done = on_fetched,
	};
	struct fetch *f = calloc(1, sizeof(*f));
	struct sandbox *b = core_find(core, a, id);
	char key[160];

	if (!f)
		return -ENOMEM;
	f->magic = FETCH_MAGIC;
	f->core = core;
	f->account = a;
	f->apart = w->apart;
	list_init(&f->waiters);
	ask.uid = w->uid || !b ? w->uid : b->uid;
	ask.user = f;
	f->asked_at_ms = clock_boot_ms();
	if (text_set(&f->id, id) < 0 || map_put(&core->fetch_map, key, fetch_key(key, a, id, f->apart), f) < 0) {
		fetch_free(f);
		return -ENOMEM;
	}
	f->call = cloud_get(a->cloud, id, &ask);
	if (!f->call) {
		(void)map_del(&core->fetch_map, key, fetch_key(key, a, id, f->apart));
		fetch_free(f);
		return -ENOMEM;
	}
	list_add_tail(&core->fetches, &f->node);
	if (b && !f->apart)
		b->fetch = f;
	*ret = f;
	return 0;
}

int fetch_join(struct sandbox_core *core, struct account *a, const char *id, bool background,
	       struct fetch_wait *w)
{
	char key[160];
	struct fetch *f = map_get(&core->fetch_map, key, fetch_key(key, a, id, w->apart));
	int r = f ? 0 : fetch_start(core, a, id, w, background, &f);

	if (r < 0)
		return r;
	must(list_is_empty(&w->node));
	list_add_tail(&f->waiters, &w->node);
	return 0;
}

/* The request goes on, since the sandbox can use its answer. */
void fetch_leave(struct fetch_wait *w)
{
	list_del(&w->node);
}

void fetch_cancel_all(struct sandbox_core *core)
{
	while (!list_is_empty(&core->fetches)) {
		struct fetch *f = list_entry(core->fetches.next, struct fetch, node);

		cloud_call_cancel(f->call);
		unlink_fetch(f);
		fetch_free(f);
	}
}
