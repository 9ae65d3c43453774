/* SPDX-License-Identifier: MIT */
/* Whose templates are, over restarts of the store. */
#include "daemon/auth/templates.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/clock.h"
#include "tests/lib/test.h"

struct world {
	char dir[64];
	struct loop *loop;
	struct store *store;
	struct templates *all;
	unsigned noted;
};

static void open_world(struct world *w)
{
	struct store_options so = { .state_dir = w->dir, .now_wall_ms = 1700000000000 };
	struct store_report report;

	CHECK_INT(loop_new(&w->loop), 0);
	so.loop = w->loop;
	CHECK_INT(store_open(&so, &report, &w->store), STORE_OPENED);
	CHECK_INT(templates_new(w->store, &w->all), 0);
	CHECK_INT(store_start(w->store), 0);
}

static void close_world(struct world *w)
{
	store_mute(w->store);
	w->all = templates_free(w->all);
	store_close(w->store);
	for (int i = 0; i < 3; i++)
		CHECK(loop_once(w->loop, 0) == 0);
	loop_free(w->loop);
}

static void make_world(struct world *w)
{
	*w = (struct world){ .dir = "/tmp/ab-templates-XXXXXX" };
	log_setup(LOG_LEVEL_ERROR);
	CHECK(mkdtemp(w->dir));
	open_world(w);
}

static void on_noted(void *user, const struct status *st)
{
	struct world *w = user;

	CHECK(status_ok(st));
	w->noted++;
}

static void note(struct world *w, const char *account, const char *id, uid_t uid)
{
	unsigned before = w->noted;
	uint64_t end = clock_boot_ms() + 20000;

	CHECK(templates_note(w->all, account, id, uid, on_noted, w));
	CHECK_INT(w->noted, before);
	while (w->noted == before && clock_boot_ms() < end)
		CHECK(loop_once(w->loop, 100) == 0);
	CHECK_INT(w->noted, before + 1);
}

static long owner(struct world *w, const char *account, const char *id)
{
	uid_t uid;

	return templates_owner(w->all, account, id, &uid) ? (long)uid : -1;
}

TEST(owners_outlive_a_restart)
{
	struct world w;

	make_world(&w);
	note(&w, "a", "one", 1000);
	note(&w, "b", "one", 1001);
	note(&w, "a", "two", 1001);
	CHECK(!templates_note(w.all, "a", "one", 1001, on_noted, &w));	/* it has an owner */
	close_world(&w);
	open_world(&w);
	CHECK_INT(owner(&w, "a", "one"), 1000);
	CHECK_INT(owner(&w, "b", "one"), 1001);
	CHECK_INT(owner(&w, "a", "two"), 1001);
	CHECK_INT(owner(&w, "b", "two"), -1);
	templates_forget(w.all, "a", "one");
	templates_forget(w.all, "a", "never");
	CHECK_INT(owner(&w, "a", "one"), -1);
	close_world(&w);
	open_world(&w);
	CHECK_INT(owner(&w, "a", "one"), -1);
	CHECK_INT(owner(&w, "b", "one"), 1001);
	close_world(&w);
}

/* Nobody waits any more, and it is noted all the same; also when all ends meanwhile. */
TEST(who_goes_forgets_nothing)
{
	struct world w;

	make_world(&w);
	template_note_cancel(templates_note(w.all, "a", "one", 1000, on_noted, &w));
	template_note_cancel(NULL);
	CHECK(templates_note(w.all, "a", "two", 1000, on_noted, &w));
	close_world(&w);
	CHECK_INT(w.noted, 0);
	open_world(&w);
	CHECK_INT(owner(&w, "a", "one"), 1000);
	CHECK_INT(owner(&w, "a", "two"), 1000);
	close_world(&w);
}

TEST(the_oldest_of_too_many_is_forgotten)
{
	struct world w;
	char id[32];

	make_world(&w);
	note(&w, "a", "other", 1001);
	for (unsigned i = 0; i <= TEMPLATES_PER_UID; i++) {
		snprintf(id, sizeof(id), "t%u", i);
		CHECK(templates_note(w.all, "a", id, 1000, on_noted, &w));
	}
	CHECK_INT(owner(&w, "a", "t0"), -1);
	close_world(&w);
	open_world(&w);
	CHECK_INT(owner(&w, "a", "t0"), -1);
	CHECK_INT(owner(&w, "a", "t1"), 1000);
	CHECK_INT(owner(&w, "a", id), 1000);
	CHECK_INT(owner(&w, "a", "other"), 1001);
	close_world(&w);
}

TEST_MAIN()
