/* SPDX-License-Identifier: MIT */
/* Owners whose uid is given to services in turn: numbers by names, over restarts of the store. */
#include "daemon/auth/owners.h"

#include <unistd.h>

#include "daemon/auth/owner.h"
#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

#define UID 61500u

struct world {
	char dir[64];
	struct loop *loop;
	struct store *store;
	struct owners *all;
	uid_t over[4];
	size_t n_over;
};

static void on_over(void *user, uid_t owner)
{
	struct world *w = user;

	CHECK(w->n_over < ARRAY_SIZE(w->over));
	w->over[w->n_over++] = owner;
}

static void open_world(struct world *w)
{
	struct store_options so = { .state_dir = w->dir, .now_wall_ms = 1700000000000 };
	struct owners_options o = { .over = on_over, .user = w };
	struct store_report report;

	CHECK_INT(loop_new(&w->loop), 0);
	so.loop = w->loop;
	CHECK_INT(store_open(&so, &report, &w->store), STORE_OPENED);
	o.store = w->store;
	CHECK_INT(owners_new(&o, &w->all), 0);
	CHECK_INT(store_start(w->store), 0);
	w->n_over = 0;
}

static void close_world(struct world *w)
{
	owners_free(w->all);
	store_close(w->store);
	for (int i = 0; i < 3; i++)
		CHECK(loop_once(w->loop, 0) == 0);
	loop_free(w->loop);
}

static void make_world(struct world *w)
{
	*w = (struct world){ .dir = "/tmp/ab-owners-XXXXXX" };
	log_setup(LOG_LEVEL_ERROR);
	CHECK(mkdtemp(w->dir));
	open_world(w);
}

static uid_t take(struct world *w, uid_t uid, const char *name)
{
	uid_t owner;

	CHECK_INT(owners_take(w->all, uid, name, &owner), 0);
	CHECK_INT(owner_uid(owner), uid);
	return owner;
}

/* Stored, and in the tags of the cloud: they are never others. */
TEST(numbers_are_what_they_were)
{
	CHECK_INT(owner_make(ACCESS_DYNAMIC_LAST, "x", 0) <= OWNER_LAST, 1);
	CHECK_INT(OWNER_LAST < 0xfffffffdu, 1);
	CHECK_INT(owner_make(UID, "guest", 0), 2230383716u);
	CHECK_INT(owner_make(UID, "", 0), 2230369666u);
	CHECK_INT(owner_make(UID, "guest", 1), 2230383716u + 1);
	for (uid_t uid = ACCESS_DYNAMIC_FIRST; uid <= ACCESS_DYNAMIC_LAST; uid++)
		CHECK_INT(owner_uid(owner_make(uid, "some.service", 262143)), uid);
	CHECK_INT(owner_uid(1000), 1000);
	CHECK_INT(owner_uid(UID), UID);
}

TEST(a_uid_of_others_is_its_own_owner)
{
	struct world w;

	make_world(&w);
	CHECK_INT(take(&w, 1000, "alice"), 1000);
	CHECK_INT(take(&w, 1000, "renamed"), 1000);
	CHECK_INT(take(&w, 61183, "x"), 61183);
	CHECK_INT(take(&w, 65520, "x"), 65520);
	CHECK(!owners_name(w.all, 1000));
	CHECK_INT(w.n_over, 0);
	close_world(&w);
}

TEST(another_name_is_another_owner)
{
	uid_t first, second;
	struct world w;

	make_world(&w);
	first = take(&w, UID, "first");
	CHECK_INT(take(&w, UID, "first"), first);
	CHECK_INT(w.n_over, 0);
	second = take(&w, UID, "second");
	CHECK(second != first);
	CHECK_INT(w.n_over, 1);
	CHECK_INT(w.over[0], first);
	CHECK_STR(owners_name(w.all, first), "first");
	CHECK_STR(owners_name(w.all, second), "second");
	CHECK_INT(take(&w, UID, "second"), second);
	CHECK_INT(w.n_over, 1);		/* once */
	close_world(&w);
	open_world(&w);
	CHECK_INT(take(&w, UID, "second"), second);
	CHECK_INT(w.n_over, 0);		/* known from before the restart */
	CHECK_INT(take(&w, UID, "first"), first);
	CHECK_INT(w.n_over, 1);
	CHECK_INT(w.over[0], second);
	CHECK_INT(take(&w, UID, ""), owner_make(UID, "", 0));
	CHECK_INT(take(&w, UID + 1, "first") == first, 0);
	close_world(&w);
}

/* Two names of one print at a uid are two owners. */
TEST(a_print_of_two_names)
{
	char name[32] = "";
	unsigned i = 0;
	struct world w;

	while (owner_make(UID, name, 0) != owner_make(UID, "first", 0))
		snprintf(name, sizeof(name), "n%u", i++);
	make_world(&w);
	CHECK_INT(take(&w, UID, "first"), owner_make(UID, "first", 0));
	CHECK_INT(take(&w, UID, name), owner_make(UID, "first", 1));
	close_world(&w);
	open_world(&w);
	CHECK_INT(take(&w, UID, name), owner_make(UID, "first", 1));
	CHECK_INT(take(&w, UID, "first"), owner_make(UID, "first", 0));
	close_world(&w);
}

/* What was there before names were kept is the first one's. */
TEST(the_first_name_takes_what_has_none)
{
	struct row_owner row = { .number = UID, .uid = UID, .name = "", .state = ROW_OWNER_UNNAMED };
	struct store_tx *t;
	struct world w;

	make_world(&w);
	CHECK_INT(store_tx_new(w.store, &t), 0);
	store_tx_put_owner(t, &row);
	store_tx_commit(t, false, NULL, NULL);
	close_world(&w);
	open_world(&w);
	CHECK_INT(take(&w, UID, "first"), UID);
	CHECK_INT(take(&w, UID, "second"), owner_make(UID, "second", 0));
	CHECK_INT(w.n_over, 1);
	CHECK_INT(w.over[0], UID);
	CHECK_STR(owners_name(w.all, UID), "first");
	close_world(&w);
}

/* Services with names of chance do not fill the memory; whoever comes back has the number that it had. */
TEST(old_names_are_forgotten)
{
	uid_t first, again;
	struct world w;

	make_world(&w);
	first = take(&w, UID, "run-0");
	for (unsigned i = 1; i <= OWNERS_MAX + 10; i++) {
		char name[32];

		snprintf(name, sizeof(name), "run-%u", i);
		w.n_over = 0;
		(void)take(&w, UID, name);
	}
	CHECK_STR(owners_name(w.all, first), "");
	w.n_over = 0;
	again = take(&w, UID, "run-0");
	CHECK_INT(again, first);
	close_world(&w);
}

TEST_MAIN()
