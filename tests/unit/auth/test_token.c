/* SPDX-License-Identifier: MIT */
/* Tokens from their making to their end, over restarts of the store. */
#include "daemon/auth/token.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"
#include "proto/cloud/link.h"
#include "tests/lib/test.h"

struct world {
	char dir[64];
	struct loop *loop;
	struct store *store;
	struct tokens *all;
	unsigned made, failed, revoked;
	char text[TOKEN_TEXT_MAX], id[TOKEN_ID_LEN + 1];
};

static void open_world(struct world *w, bool rows_are_old)
{
	struct store_options so = { .state_dir = w->dir, .now_wall_ms = 1700000000000 };
	struct tokens_options o = { .sha256 = cloud_sha256, .rows_are_old = rows_are_old };
	struct store_report report;

	CHECK_INT(loop_new(&w->loop), 0);
	so.loop = o.loop = w->loop;
	CHECK_INT(store_open(&so, &report, &w->store), STORE_OPENED);
	o.store = w->store;
	CHECK_INT(tokens_new(&o, &w->all), 0);
	CHECK_INT(store_start(w->store), 0);
	tokens_start(w->all);
}

static void close_world(struct world *w)
{
	store_mute(w->store);
	tokens_free(w->all);
	store_close(w->store);
	for (int i = 0; i < 3; i++)
		CHECK(loop_once(w->loop, 0) == 0);
	loop_free(w->loop);
}

static void make_world(struct world *w)
{
	*w = (struct world){ .dir = "/tmp/ab-token-XXXXXX" };
	log_setup(LOG_LEVEL_ERROR);
	CHECK(mkdtemp(w->dir));
	open_world(w, false);
}

static void drop_world(struct world *w)
{
	char cmd[96];

	close_world(w);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", w->dir);
	CHECK_INT(system(cmd), 0);
}

static void reopen(struct world *w)
{
	close_world(w);
	open_world(w, false);
}

static void on_made(void *user, const struct status *st, const struct token *t, const char *text)
{
	struct world *w = user;

	w->made++;
	w->failed += !status_ok(st);
	if (!status_ok(st))
		return;
	CHECK(str_copy(w->text, sizeof(w->text), text));
	CHECK(str_copy(w->id, sizeof(w->id), t->id));
}

static void on_revoked(void *user, const struct status *st)
{
	struct world *w = user;

	CHECK(status_ok(st));
	w->revoked++;
}

static void make(struct world *w, const struct token_make *m)
{
	struct status why = STATUS_OK;
	unsigned before = w->made;

	CHECK_INT(tokens_make(w->all, m, on_made, w, &why), 0);
	CHECK_INT(w->made, before);
	while (w->made == before)
		CHECK(loop_once(w->loop, 1000) == 0);
}

static const struct principal somebody = { .uid = 1000, .pidfd = -1 };

TEST(forms)
{
#define D60 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab"
	static const struct { const char *text; bool ours; } t[] = {
		{ "ab_a9e2" D60, true }, { "e2b_a9e2" D60, true },
		{ "a9e2" D60, false }, { "ab_a9e3" D60, false }, { "e2b_A9E2" D60, false }, { "ab_a9e2" D60 "0", false },
		{ "ab_a9e2", false }, { "ab_" D60 "a9e2", false }, { "xab_a9e2" D60, false }, { "", false }, { NULL, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(token_is_ours(t[i].text), t[i].ours);
}

TEST(both_spellings_of_one)
{
	struct token_make m = { .who = &somebody, .label = "l" };
	char other[96];
	struct token *t;
	struct world w;

	make_world(&w);
	make(&w, &m);
	CHECK_INT(w.failed, 0);
	CHECK(token_is_ours(w.text));
	CHECK(str_starts(w.text, "ab_"));
	snprintf(other, sizeof(other), "e2b_%s", w.text + 3);
	t = tokens_find(w.all, w.text);
	CHECK(t && t == tokens_find(w.all, other) && t->uid == 1000);
	CHECK_STR(t->label, "l");
	CHECK(token_covers(t, "anything"));
	other[10] = other[10] == '0' ? '1' : '0';
	CHECK(!tokens_find(w.all, other));
	CHECK(!tokens_find(w.all, "ab_x") && !tokens_find(w.all, ""));
	drop_world(&w);
}

/* The store holds what no token can be made of. */
TEST(only_the_hash_is_kept)
{
	struct token_make m = { .who = &somebody };
	struct world w;
	char cmd[256];

	make_world(&w);
	make(&w, &m);
	close_world(&w);
	snprintf(cmd, sizeof(cmd), "! grep -qra %s %s", w.text + 3, w.dir);
	CHECK_INT(system(cmd), 0);
	open_world(&w, false);
	CHECK(tokens_find(w.all, w.text));
	drop_world(&w);
}

TEST(over_a_restart_and_revoked)
{
	char *const scope[] = { "iaaa", "ibbb" };
	struct token_make m = { .who = &somebody, .sandboxes = scope, .n_sandboxes = 2 };
	struct token *kept;
	struct world w;

	make_world(&w);
	make(&w, &m);
	reopen(&w);
	kept = tokens_find(w.all, w.text);
	CHECK(kept && kept->n_sandboxes == 2 && token_covers(kept, "ibbb") && !token_covers(kept, "iccc"));
	CHECK_INT(tokens_revoke(w.all, 1001, w.id, on_revoked, &w), -ENOENT);
	CHECK_INT(tokens_revoke(w.all, 1000, "nothing", on_revoked, &w), -ENOENT);
	token_ref(kept);
	CHECK_INT(tokens_revoke(w.all, 1000, w.id, on_revoked, &w), 0);
	CHECK(!tokens_find(w.all, w.text) && kept->is_void && !tokens_next(w.all, NULL));
	while (!w.revoked)
		CHECK(loop_once(w.loop, 1000) == 0);
	token_unref(kept);
	reopen(&w);
	CHECK(!tokens_find(w.all, w.text));
	drop_world(&w);
}

TEST(expired)
{
	struct token_make m = { .who = &somebody };
	struct status why = STATUS_OK;
	struct world w;

	make_world(&w);
	m.expires_at_ms = clock_wall_ms() + 300;
	make(&w, &m);
	while (clock_wall_ms() < m.expires_at_ms)
		CHECK(loop_once(w.loop, 10) == 0);
	CHECK(!tokens_find(w.all, w.text) && !tokens_next(w.all, NULL));
	CHECK_INT(tokens_make(w.all, &m, on_made, &w, &why), -EINVAL);
	CHECK_STR(status_evidence_get(&why, "field"), "expires_at");
	drop_world(&w);
}

TEST(an_earlier_state_brings_none_back)
{
	struct token_make m = { .who = &somebody };
	struct world w;

	make_world(&w);
	make(&w, &m);
	close_world(&w);
	open_world(&w, true);
	CHECK(!tokens_find(w.all, w.text));
	reopen(&w);
	CHECK(!tokens_find(w.all, w.text));
	drop_world(&w);
}

static pid_t child_new(int *ret_pidfd)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close_range(3, ~0u, 0);	/* the lock of the store is among them */
		for (;;)
			pause();
	}
	CHECK(pid > 0);
	CHECK_INT(fd_pidfd(pid, ret_pidfd), 0);
	return pid;
}

static void child_kill(pid_t pid)
{
	CHECK_INT(kill(pid, SIGKILL), 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

TEST(a_run_ends_with_its_process)
{
	struct principal who = { .uid = 1000 };
	struct token_make m = { .who = &who, .is_run = true, .on_release = 3, .warm = 2, .policy = "on_idle=kill" };
	struct token *t;
	struct world w;

	make_world(&w);
	who.pid = child_new(&who.pidfd);
	make(&w, &m);
	CHECK_INT(w.failed, 0);
	reopen(&w);		/* it is known again */
	t = tokens_find(w.all, w.text);
	CHECK(t && t->run.pid == who.pid && t->run_pidfd >= 0 && t->on_release == 3 && t->warm == 2);
	CHECK_STR(t->policy, "on_idle=kill");
	child_kill(who.pid);
	while (tokens_find(w.all, w.text))
		CHECK(loop_once(w.loop, 1000) == 0);
	reopen(&w);
	CHECK(!tokens_find(w.all, w.text));
	fd_close(who.pidfd);
	drop_world(&w);
}

TEST(a_run_that_ended_while_nobody_looked)
{
	struct principal who = { .uid = 1000 };
	struct token_make m = { .who = &who, .is_run = true };
	struct world w;

	make_world(&w);
	who.pid = child_new(&who.pidfd);
	make(&w, &m);
	close_world(&w);
	child_kill(who.pid);
	open_world(&w, false);
	CHECK(!tokens_find(w.all, w.text) && !tokens_next(w.all, NULL));
	fd_close(who.pidfd);
	drop_world(&w);
}

TEST(a_run_that_is_over_before_its_token_is_there)
{
	struct principal who = { .uid = 1000 };
	struct token_make m = { .who = &who, .is_run = true };
	struct status why = STATUS_OK;
	struct world w;

	make_world(&w);
	who.pid = child_new(&who.pidfd);
	child_kill(who.pid);
	CHECK_INT(tokens_make(w.all, &m, on_made, &w, &why), 0);
	while (!w.made || tokens_next(w.all, NULL))
		CHECK(loop_once(w.loop, 1000) == 0);
	fd_close(who.pidfd);
	who.pidfd = -1;
	CHECK_INT(tokens_make(w.all, &m, on_made, &w, &why), -EINVAL);
	drop_world(&w);
}

TEST(so_many_and_no_more)
{
	struct token_make m = { .who = &somebody };
	struct principal other = { .uid = 1001, .pidfd = -1 };
	struct status why = STATUS_OK;
	struct world w;

	make_world(&w);
	for (unsigned i = 0; i < TOKENS_PER_UID; i++)
		CHECK_INT(tokens_make(w.all, &m, on_made, &w, &why), 0);
	CHECK_INT(tokens_make(w.all, &m, on_made, &w, &why), -EINVAL);
	CHECK_INT(why.reason, R_QUOTA_UID);
	m.who = &other;
	CHECK_INT(tokens_make(w.all, &m, on_made, &w, &why), 0);
	close_world(&w);	/* with all of them still on their way: each is told so */
	CHECK(w.made == TOKENS_PER_UID + 1 && w.failed == w.made);
	open_world(&w, false);
	drop_world(&w);
}

TEST_MAIN()
