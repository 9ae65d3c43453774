/* SPDX-License-Identifier: MIT */
/* The second copy, and which database a start goes on with when one is missing, broken, old or not ours. */
#include "daemon/store/recover.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

static char dir[64];

printf_like(1, 2) static void sh(const char *fmt, ...)
{
	char cmd[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	CHECK_INT(system(cmd), 0);
}

static void dir_make(void)
{
	snprintf(dir, sizeof(dir), "/tmp/ab-recover-XXXXXX");
	CHECK(mkdtemp(dir));
	log_setup(LOG_LEVEL_ERROR);
}

static void dir_drop(void)
{
	sh("rm -rf %s %s.*", dir, dir);
}

static bool is_there(const char *name)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !stat(path, &st);
}

struct s {
	struct loop *loop;
	struct store *store;
	struct store_report report;
	unsigned n, done;
	char policy[32];
};

static void on_sandbox(const struct row_sandbox *r, void *user)
{
	struct s *s = user;

	s->n++;
	(void)str_copy(s->policy, sizeof(s->policy), r->policy);
}

static enum store_open_result try_open(struct s *s, bool no_clone_check)
{
	struct store_options o = { .state_dir = dir, .now_wall_ms = clock_wall_ms(),
				   .no_clone_check = no_clone_check };
	struct store_visitor v = { .sandbox = on_sandbox, .user = s };
	enum store_open_result r;

	memset(s, 0, sizeof(*s));
	CHECK(!loop_new(&s->loop));
	o.loop = s->loop;
	r = store_open(&o, &s->report, &s->store);
	if (r != STORE_OPENED) {
		loop_free(s->loop);
		return r;
	}
	CHECK(!store_load(s->store, &v));
	CHECK(!store_start(s->store));
	return r;
}

static void s_open(struct s *s)
{
	CHECK_INT(try_open(s, false), STORE_OPENED);
}

static void s_close(struct s *s)
{
	store_close(s->store);
	loop_free(s->loop);
}

static void on_done(void *user, const struct status *st)
{
	struct s *s = user;

	CHECK(status_ok(st));
	s->done++;
}

static void commit(struct s *s, struct store_tx *t)
{
	unsigned before = s->done;

	store_tx_commit(t, true, on_done, s);
	while (s->done == before)
		CHECK(!loop_once(s->loop, 10000));
}

static void put(struct s *s, const char *id, const char *policy)
{
	struct row_sandbox r = { .account = "default", .id = id, .policy = policy, .state = 2,
				 .allow_internet_access = -1, .keep_memory = -1, .auto_resume = -1 };
	struct store_tx *t;

	CHECK(!store_tx_new(s->store, &t));
	store_tx_put_sandbox(t, &r);
	commit(s, t);
}

/* The timer of the copy has come and the copy is in place. */
static void wait_backup(struct s *s)
{
	int64_t before = store_backup_at_ms(s->store);

	while (store_backup_at_ms(s->store) == before)
		CHECK(!loop_once(s->loop, 10000));
}

/* The newest copy has what was written before it, while the daemon runs and after it was killed. */
TEST(the_copy_follows)
{
	char host[32], incarnation[33];
	struct s s;

	dir_make();
	s_open(&s);
	(void)str_copy(host, sizeof(host), store_host_id(s.store));
	(void)str_copy(incarnation, sizeof(incarnation), store_incarnation(s.store));
	put(&s, "i1", "first");
	put(&s, "i1", "later");
	wait_backup(&s);
	sh("cp -a %s/backup.db %s.backup", dir, dir);
	put(&s, "i2", "after");
	s_close(&s);
	sh("rm %s/agentboxd.db; mv %s.backup %s/backup.db", dir, dir, dir);
	s_open(&s);
	CHECK_INT(s.n, 1);
	CHECK_STR(s.policy, "later");
	CHECK_STR(store_host_id(s.store), host);
	CHECK(!str_eq(store_incarnation(s.store), incarnation));
	/* The copy was put in from outside, and it is older than what host-id has seen. */
	CHECK_INT(s.report.doubt, STORE_OLD);
	s_close(&s);
	dir_drop();
}

/* What waits in memory for the copy is bounded: a quarter of a megabyte of changes is applied long before the moment of the next one. */
TEST(many_changes_are_copied_at_once)
{
	char policy[1001] = { 0 };
	struct store_tx *t;
	uint64_t begun;
	struct s s;

	memset(policy, 'p', sizeof(policy) - 1);
	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	wait_backup(&s);
	begun = clock_boot_ms();
	CHECK(!store_tx_new(s.store, &t));
	for (int i = 0; i < 300; i++) {
		struct row_sandbox r = { .account = "default", .id = "i1", .policy = policy, .state = 2,
					 .allow_internet_access = -1, .keep_memory = -1, .auto_resume = -1 };

		store_tx_put_sandbox(t, &r);
	}
	commit(&s, t);
	wait_backup(&s);
	CHECK(clock_boot_ms() - begun < 10000);		/* of 20 s */
	s_close(&s);
	dir_drop();
}

static ino_t inode_of(const char *file)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	CHECK(!stat(path, &st));
	return st.st_ino;
}

/* The second one lacks nothing, and the file is the same: only what changed was written to it. */
TEST(the_copy_is_kept_up_by_change)
{
	struct store_tx *t;
	struct s s;
	ino_t ino;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	put(&s, "i2", "second");
	wait_backup(&s);
	ino = inode_of("backup.db");
	put(&s, "i1", "later");
	CHECK(!store_tx_new(s.store, &t));
	store_tx_del_sandbox(t, "default", "i2");
	commit(&s, t);
	s_close(&s);		/* brings the copy up to date */
	CHECK(inode_of("backup.db") == ino);
	CHECK(!is_there("backup.db-journal"));
	sh("rm %s/agentboxd.db", dir);
	s_open(&s);
	CHECK_INT(s.n, 1);
	CHECK_STR(s.policy, "later");
	CHECK_INT(s.report.doubt, STORE_FROM_BACKUP);
	s_close(&s);
	dir_drop();
}

/* A stop that still serves has the work of the disk done before anybody waits: the close adds nothing to the copy, whose mark would be
 * another in host-id, and what was committed in between is in the database, and after the next start in its copy. */
TEST(a_settled_store_closes_without_a_copy)
{
	struct s s;
	ino_t ino;

	dir_make();
	s_open(&s);
	put(&s, "i1", "settled-policy");
	CHECK(!store_is_settled(s.store));
	store_settle(s.store);
	while (!store_is_settled(s.store))
		CHECK(!loop_once(s.loop, 10000));
	sh("grep -q settled-policy %s/agentboxd.db && grep -q settled-policy %s/backup.db", dir, dir);
	ino = inode_of("host-id");
	put(&s, "i2", "between");
	s_close(&s);
	CHECK(inode_of("host-id") == ino);
	CHECK(!is_there("agentboxd.db-wal"));
	s_open(&s);
	CHECK_INT(s.n, 2);
	CHECK_INT(s.report.doubt, STORE_SURE);
	wait_backup(&s);
	s_close(&s);
	sh("rm %s/agentboxd.db", dir);
	s_open(&s);
	CHECK_INT(s.n, 2);
	s_close(&s);
	dir_drop();
}

/* One that has nothing to copy, and one whose copy is being made when the stop comes, end the same way. */
TEST(settling_ends_whatever_the_copy_does)
{
	struct s s;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	wait_backup(&s);
	store_settle(s.store);
	while (!store_is_settled(s.store))
		CHECK(!loop_once(s.loop, 10000));
	s_close(&s);
	s_open(&s);
	put(&s, "i1", "second");
	store_settle(s.store);
	s_close(&s);		/* before it is over */
	sh("rm %s/agentboxd.db", dir);
	s_open(&s);
	CHECK_STR(s.policy, "second");
	s_close(&s);
	dir_drop();
}

/* A copy that somebody put there, or nobody's, is not added to: it is made as a whole. */
TEST(only_its_own_copy_is_kept_up)
{
	static const char *const deeds[] = {
		"cp backup.old backup.db",
		"rm backup.db",
		"dd if=/dev/urandom of=backup.db bs=4096 count=3 conv=notrunc 2>/dev/null",
	};
	struct s s;

	for (size_t i = 0; i < ARRAY_SIZE(deeds); i++) {
		dir_make();
		s_open(&s);
		put(&s, "i1", "first");
		s_close(&s);
		sh("cp %s/backup.db %s/backup.old", dir, dir);
		s_open(&s);
		put(&s, "i2", "second");
		wait_backup(&s);
		put(&s, "i2", "later");
		sh("cd %s; %s", dir, deeds[i]);
		s_close(&s);
		sh("rm %s/agentboxd.db %s/backup.old", dir, dir);
		s_open(&s);
		CHECK_INT(s.n, 2);
		CHECK_STR(s.policy, "later");
		CHECK_INT(s.report.doubt, STORE_FROM_BACKUP);
		s_close(&s);
		dir_drop();
	}
}

TEST(lost_with_and_without_the_copy)
{
	char incarnation[33];
	struct store_tx *t;
	struct s s;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	s_close(&s);
	CHECK(is_there("backup.db"));
	sh("rm %s/agentboxd.db", dir);
	s_open(&s);
	CHECK_INT(s.n, 1);
	CHECK_INT(store_doubt(s.store), STORE_FROM_BACKUP);
	CHECK(!s.report.created && is_there("backup.db"));
	(void)str_copy(incarnation, sizeof(incarnation), store_incarnation(s.store));
	s_close(&s);
	s_open(&s); /* until somebody says that it is not so */
	CHECK_INT(store_doubt(s.store), STORE_FROM_BACKUP);
	CHECK_STR(store_incarnation(s.store), incarnation);
	CHECK(!store_tx_new(s.store, &t));
	store_tx_sure(t);
	commit(&s, t);
	s_close(&s);
	s_open(&s);
	CHECK_INT(store_doubt(s.store), STORE_SURE);
	s_close(&s);
	sh("rm %s/agentboxd.db %s/backup.db", dir, dir);
	s_open(&s);
	CHECK_INT(s.n, 0);
	CHECK_INT(store_doubt(s.store), STORE_LOST);
	CHECK(s.report.created);
	s_close(&s);
	dir_drop();
}

TEST(corrupt_is_replaced_by_the_copy)
{
	struct s s;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	s_close(&s);
	sh("dd if=/dev/urandom of=%s/agentboxd.db bs=4096 count=3 conv=notrunc 2>/dev/null", dir);
	s_open(&s);
	CHECK_INT(s.n, 1);
	CHECK_INT(store_doubt(s.store), STORE_FROM_BACKUP);
	CHECK(strstr(s.report.moved_aside, "corrupt") && !access(s.report.moved_aside, F_OK));
	s_close(&s);
	/* Both: an empty one, and the broken ones are kept. */
	sh("for f in agentboxd.db backup.db; do dd if=/dev/urandom of=%s/$f bs=4096 count=3 conv=notrunc 2>/dev/null; done",
	   dir);
	s_open(&s);
	CHECK_INT(s.n, 0);
	CHECK_INT(store_doubt(s.store), STORE_LOST);
	s_close(&s);
	dir_drop();
}

/* The copy's first page says whose and how new it is; only a look at all of it shows that the rest is broken. */
TEST(a_copy_that_is_broken_behind_its_head_is_not_taken)
{
	struct s s;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	s_close(&s);
	sh("rm %s/agentboxd.db; dd if=/dev/urandom of=%s/backup.db bs=4096 seek=1 count=28 conv=notrunc 2>/dev/null", dir, dir);
	s_open(&s);
	CHECK_INT(s.n, 0);
	CHECK(s.report.created);
	CHECK_INT(store_doubt(s.store), STORE_LOST);
	s_close(&s);
	dir_drop();
}

/* An earlier database was put back. With the copy its younger rows win; without, they are known to be old. */
TEST(rolled_back)
{
	struct s s;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	s_close(&s);
	sh("cp -a %s/agentboxd.db %s.old", dir, dir);
	s_open(&s);
	CHECK_INT(store_doubt(s.store), STORE_SURE);
	put(&s, "i1", "later");
	s_close(&s);
	sh("cp -a %s.old %s/agentboxd.db", dir, dir);
	s_open(&s);
	CHECK_STR(s.policy, "later");
	CHECK_INT(store_doubt(s.store), STORE_FROM_BACKUP);
	CHECK(strstr(s.report.moved_aside, "old"));
	s_close(&s);
	sh("cp -a %s.old %s/agentboxd.db; rm %s/backup.db", dir, dir, dir);
	s_open(&s);
	CHECK_STR(s.policy, "first");
	CHECK_INT(store_doubt(s.store), STORE_OLD);
	s_close(&s);
	dir_drop();
}

/* Numbers that the rows cannot know of. */
TEST(numbers_from_another_time)
{
	struct row_intent i = { .kind = ROW_INTENT_CREATE, .state = ROW_INTENT_OPEN, .account = "a", .req_tag = "t" };
	struct store_tx *t;
	uint64_t n;
	struct s s;

	dir_make();
	s_open(&s);
	CHECK(!store_next_seq(s.store, &n)); /* one that is below the row's */
	CHECK(!store_next_seq(s.store, &n));
	CHECK(store_knows_seq(s.store, 0) && store_knows_seq(s.store, n) && !store_knows_seq(s.store, n + 1));
	i.seq = n;
	CHECK(!store_tx_new(s.store, &t));
	store_tx_put_intent(t, &i);
	commit(&s, t);
	CHECK(!store_next_seq(s.store, &i.seq)); /* given, never written down */
	CHECK(!store_tx_new(s.store, &t));
	i.seq = n - 1;
	store_tx_put_intent(t, &i); /* an older one again: what was given does not sink */
	commit(&s, t);
	s_close(&s);
	s_open(&s);
	CHECK(store_knows_seq(s.store, n) && !store_knows_seq(s.store, n + 1));
	s_close(&s);
	dir_drop();
}

/* The name is gone while the file is open: nothing that was acknowledged is lost. */
TEST(unlinked_while_open)
{
	struct s s;

	for (int replaced = 0; replaced < 2; replaced++) {
		dir_make();
		s_open(&s);
		put(&s, "i1", "first");
		sh("rm %s/agentboxd.db*", dir);
		if (replaced)
			sh("echo nonsense >%s/agentboxd.db; echo nonsense >%s/agentboxd.db-wal", dir, dir);
		CHECK_INT(store_unlinked_at_ms(s.store), 0);
		put(&s, "i2", "second");
		CHECK(store_unlinked_at_ms(s.store) && is_there("agentboxd.db"));
		put(&s, "i3", "third");
		s_close(&s);
		sh("rm -f %s/backup.db", dir);
		s_open(&s);
		CHECK_INT(s.n, 3);
		CHECK_INT(store_doubt(s.store), STORE_SURE);
		s_close(&s);
		dir_drop();
	}
}

/* A copied directory is another host and starts empty; the original stays who it is. */
TEST(a_copy_is_another_host)
{
	char host[32], copy[80], original[64];
	struct s s;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	(void)str_copy(host, sizeof(host), store_host_id(s.store));
	s_close(&s);
	(void)str_copy(original, sizeof(original), dir);
	snprintf(copy, sizeof(copy), "%s.c", dir);
	sh("cp -a %s %s", dir, copy);
	(void)str_copy(dir, sizeof(dir), copy);
	s_open(&s);
	CHECK(!str_eq(store_host_id(s.store), host));
	CHECK_STR(s.report.was_host, host);
	CHECK_INT(s.n, 0);
	CHECK_INT(store_doubt(s.store), STORE_SURE); /* it has lost nothing: it never had any */
	(void)str_copy(copy, sizeof(copy), store_host_id(s.store));
	s_close(&s);
	s_open(&s); /* and it stays the other one */
	CHECK_STR(store_host_id(s.store), copy);
	CHECK(!s.report.was_host[0]);
	s_close(&s);
	(void)str_copy(dir, sizeof(dir), original);
	s_open(&s);
	CHECK_STR(store_host_id(s.store), host);
	CHECK_INT(s.n, 1);
	s_close(&s);
	dir_drop();
}

TEST(another_machine)
{
	char host[32];
	struct s s;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	(void)str_copy(host, sizeof(host), store_host_id(s.store));
	s_close(&s);
	sh("sed -i s/^machine=.*/machine=ffffffffffffffffffffffffffffffff/ %s/host-id", dir);
	sh("echo place=99.1.1 >>%s/host-id", dir);
	CHECK_INT(try_open(&s, true), STORE_OPENED); /* it may wander */
	CHECK_STR(store_host_id(s.store), host);
	CHECK_INT(s.n, 1);
	s_close(&s);
	s_open(&s); /* it is at home here now */
	CHECK_STR(store_host_id(s.store), host);
	s_close(&s);
	sh("sed -i s/^place=.*/place=99.1.1/ %s/host-id", dir);
	s_open(&s);
	CHECK_STR(s.report.was_host, host);
	CHECK(is_there("backup.db") || s.n == 0);
	s_close(&s);
	dir_drop();
}

/* Rows of another host in our directory are not ours to act upon. */
TEST(foreign_database)
{
	char other[64];
	struct s s;

	dir_make();
	s_open(&s);
	put(&s, "i1", "first");
	s_close(&s);
	(void)str_copy(other, sizeof(other), dir);
	dir_make();
	s_open(&s);
	put(&s, "i2", "ours");
	s_close(&s);
	sh("cp %s/agentboxd.db %s/agentboxd.db; rm -rf %s", other, dir, other);
	s_open(&s);
	CHECK_INT(s.n, 1);
	CHECK_STR(s.policy, "ours");
	CHECK(strstr(s.report.moved_aside, "agentboxd.db."));
	s_close(&s);
	dir_drop();
}

TEST(choice)
{
	static const struct {
		bool db, backup;
		uint64_t db_mark, backup_mark, file_mark;
		const char *db_host, *backup_host, *host;
		enum recover_choice choice;
		enum store_doubt doubt;
	} t[] = {
		{ false, false, 0, 0, 0, "", "", "", RECOVER_EMPTY, STORE_SURE },	/* the first start */
		{ true, false, 0, 0, 0, "", "", "h", RECOVER_DATABASE, STORE_SURE },	/* from before marks */
		{ true, true, 5, 5, 5, "h", "h", "h", RECOVER_DATABASE, STORE_SURE },
		{ true, true, 6, 5, 5, "h", "h", "h", RECOVER_DATABASE, STORE_SURE },	/* killed while copying */
		{ true, true, 6, 6, 5, "h", "h", "h", RECOVER_DATABASE, STORE_SURE },
		{ true, true, 4, 5, 5, "h", "h", "h", RECOVER_BACKUP, STORE_FROM_BACKUP },
		{ true, true, 3, 4, 5, "h", "h", "h", RECOVER_BACKUP, STORE_OLD },
		{ true, false, 4, 0, 5, "h", "", "h", RECOVER_DATABASE, STORE_OLD },
		{ true, true, 4, 5, 5, "h", "x", "h", RECOVER_DATABASE, STORE_OLD },
		{ false, true, 0, 5, 5, "", "h", "h", RECOVER_BACKUP, STORE_FROM_BACKUP },
		{ false, true, 0, 4, 5, "", "h", "h", RECOVER_BACKUP, STORE_OLD },
		{ false, true, 0, 5, 5, "", "x", "h", RECOVER_EMPTY, STORE_LOST },
		{ false, false, 0, 0, 0, "", "", "h", RECOVER_EMPTY, STORE_LOST },
		{ true, true, 9, 5, 5, "x", "h", "h", RECOVER_BACKUP, STORE_FROM_BACKUP },
		{ true, false, 9, 0, 5, "x", "", "h", RECOVER_EMPTY, STORE_LOST },
		{ true, true, 5, 5, 0, "h", "h", "", RECOVER_DATABASE, STORE_SURE },	/* host-id was lost */
		{ false, true, 0, 5, 0, "", "h", "", RECOVER_BACKUP, STORE_FROM_BACKUP },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct recover_database db = { t[i].db, t[i].db_mark, t[i].db_host };
		struct backup_facts backup = { .usable = t[i].backup, .mark = t[i].backup_mark };
		struct hostid id = { .mark = t[i].file_mark };
		enum store_doubt doubt = 99;

		(void)str_copy(backup.host, sizeof(backup.host), t[i].backup_host);
		(void)str_copy(id.host, sizeof(id.host), t[i].host);
		CHECK_INT(recover_choose(&db, &backup, &id, &doubt), t[i].choice);
		CHECK_INT(doubt, t[i].doubt);
	}
}

TEST(elsewhere)
{
	static const struct { const char *m1, *p1, *m2, *p2; bool elsewhere; } t[] = {
		{ "a", "1", "a", "1", false }, { "a", "1", "b", "1", true }, { "a", "1", "a", "2", true },
		{ "", "1", "b", "1", false },  { "a", "1", "", "1", false }, { "a", "", "a", "2", false },
		{ "", "", "", "", false },     { "", "1", "", "2", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct hostid file = { 0 }, here = { 0 };

		(void)str_copy(file.machine, sizeof(file.machine), t[i].m1);
		(void)str_copy(file.place, sizeof(file.place), t[i].p1);
		(void)str_copy(here.machine, sizeof(here.machine), t[i].m2);
		(void)str_copy(here.place, sizeof(here.place), t[i].p2);
		CHECK_INT(hostid_is_elsewhere(&file, &here), t[i].elsewhere);
	}
}

TEST_MAIN()
