/* SPDX-License-Identifier: MIT */
/* A copy for a caller: whole, of one moment, one at a time, given up at any time, also at the end. */
#include "daemon/store/export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/status.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

#define ROWS 4000u	/* more than a copy's one step */

static char dir[64];

struct world {
	struct loop *loop;
	struct store *store;
	unsigned done, written;
	bool failed;
	int fd;
	uint64_t bytes;
};

static void on_written(void *user, const struct status *st)
{
	struct world *w = user;

	CHECK(status_ok(st));
	w->written++;
}

static void on_copy(void *user, const struct status *st, int fd, uint64_t bytes)
{
	struct world *w = user;

	w->done++;
	w->failed = !status_ok(st);
	w->fd = fd;
	w->bytes = bytes;
}

static void put_events(struct world *w, unsigned from)
{
	struct store_tx *t;

	CHECK(!store_tx_new(w->store, &t));
	for (unsigned i = from; i < from + ROWS; i++) {
		char evidence[512];
		struct row_event e = { .number = i, .seq = i, .type = 1, .account = "a", .sandbox = "s", .name = "", .evidence = evidence };

		snprintf(evidence, sizeof(evidence), "%0*u", 400, i);
		store_tx_put_event(t, &e);
	}
	store_tx_commit(t, false, on_written, w);
}

static void turn_until(struct world *w, const unsigned *what, unsigned n)
{
	while (*what < n)
		CHECK(loop_once(w->loop, 5000) >= 0);
}

static bool is_there(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static void world_open(struct world *w)
{
	struct store_options o = { .state_dir = dir };
	struct store_report report;

	snprintf(dir, sizeof(dir), "/tmp/ab-export-XXXXXX");
	CHECK(mkdtemp(dir));
	log_setup(LOG_LEVEL_ERROR);
	*w = (struct world){ .fd = -1 };
	CHECK(!loop_new(&w->loop));
	o.loop = w->loop;
	CHECK_INT(store_open(&o, &report, &w->store), STORE_OPENED);
	CHECK(!store_start(w->store));
}

static void world_close(struct world *w)
{
	char cmd[96];

	store_close(w->store);
	loop_free(w->loop);
	CHECK(!is_there("export.db"));
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	CHECK(system(cmd) == 0);
}

/* What was committed before is in it; it has a name for nobody. */
TEST(a_copy_is_whole)
{
	struct store_export *x, *other;
	struct world w;
	char head[16] = "";

	world_open(&w);
	put_events(&w, 1);
	CHECK(!store_export(w.store, on_copy, &w, &x));
	CHECK_INT(w.done, 0);	/* never from inside */
	CHECK_INT(store_export(w.store, on_copy, &w, &other), -EBUSY);
	put_events(&w, ROWS + 1);	/* while it is made */
	turn_until(&w, &w.done, 1);
	CHECK(!w.failed);
	CHECK(w.bytes > ROWS * 400 && pread(w.fd, head, 15, 0) == 15);
	CHECK_STR(head, "SQLite format 3");
	CHECK(!is_there("export.db"));
	CHECK_INT(store_export(w.store, on_copy, &w, &other), -EBUSY);
	x = store_export_free(x);
	CHECK_INT(fcntl(w.fd, F_GETFD), -1);
	CHECK(!store_export(w.store, on_copy, &w, &x));
	turn_until(&w, &w.done, 2);
	CHECK(!w.failed);
	store_export_free(x);
	turn_until(&w, &w.written, 2);
	world_close(&w);
}

/* Nobody hears of it, and the next one can be made. */
TEST(a_copy_that_is_given_up)
{
	struct store_export *x;
	struct world w;

	world_open(&w);
	CHECK(!store_export(w.store, on_copy, &w, &x));
	x = store_export_free(x);
	while (store_export(w.store, on_copy, &w, &x) == -EBUSY)
		CHECK(loop_once(w.loop, 5000) >= 0);
	turn_until(&w, &w.done, 1);
	CHECK(!w.failed);
	store_export_free(x);
	CHECK(!store_export(w.store, on_copy, &w, &x));	/* and once more at the very end */
	store_export_free(x);
	world_close(&w);
	CHECK_INT(w.done, 1);
}

TEST(a_copy_that_cannot_be_made)
{
	struct store_export *x;
	struct world w;
	char path[128];

	world_open(&w);
	snprintf(path, sizeof(path), "%s/export.db", dir);
	CHECK(!mkdir(path, 0700));	/* cannot be removed as a file */
	CHECK(!store_export(w.store, on_copy, &w, &x));
	turn_until(&w, &w.done, 1);
	CHECK(w.failed && w.fd < 0);
	store_export_free(x);
	CHECK(!rmdir(path));
	world_close(&w);
}

TEST_MAIN()
