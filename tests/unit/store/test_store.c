/* SPDX-License-Identifier: MIT */
/* The store from outside: a folder, a loop, and what is there after each kind of end. */
#include "daemon/store/store.h"

#include <errno.h>
#include <stdarg.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

static char dir[64];

static void dir_make(void)
{
	snprintf(dir, sizeof(dir), "/tmp/ab-store-XXXXXX");
	CHECK(mkdtemp(dir));
	log_setup(LOG_LEVEL_ERROR);
}

printf_like(1, 2) static void sh(const char *fmt, ...)
{
	char cmd[512];
	const char *argv[] = { "sh", "-c", cmd, NULL };
	va_list ap;
	int wstatus;
	pid_t pid;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	pid = fork();
	if (!pid) {
		execv("/bin/sh", (char *const *)argv);
		_exit(127);
	}
	CHECK(waitpid(pid, &wstatus, 0) == pid);
	CHECK_INT(wstatus, 0);
}

static void dir_drop(void)
{
	sh("rm -rf %s", dir);
}

struct seen {
	unsigned last_hash, sandboxes, intents, requests, names, leases, events, events_dropped, refused;
	char last_unknown[128];
	char last_id[64], last_token[64], last_name[64];
	uint64_t last_seq;
	char metadata[16];
	size_t announced;	/* sandboxes */
};

static void on_table(enum row_table table, size_t n_rows, void *user)
{
	struct seen *s = user;

	if (table == ROW_TABLE_sandbox && !s->sandboxes)
		s->announced = n_rows;
}

static void on_sandbox(const struct row_sandbox *r, void *user)
{
	struct seen *s = user;

	s->sandboxes++;
	(void)str_copy(s->last_id, sizeof(s->last_id), r->id);
	(void)str_copy(s->last_token, sizeof(s->last_token), r->access_token);
	snprintf(s->last_unknown, sizeof(s->last_unknown), "started=%lld alias=%s state=%d ours=%d template=%s domain=%s",
		 (long long)r->started_at_ms, r->alias, r->state, r->ours, r->template_id, r->domain);
	if (r->metadata_len < sizeof(s->metadata))
		memcpy(s->metadata, r->metadata, r->metadata_len);
}

static void on_intent(const struct row_intent *r, void *user)
{
	struct seen *s = user;

	s->intents++;
	s->last_seq = r->seq;
}

static void on_request(const struct row_request *r, void *user)
{
	struct seen *s = user;

	s->requests++;
	s->last_hash = r->params_hash[31];
}

static void on_name(const struct row_name *r, void *user)
{
	struct seen *s = user;

	s->names++;
	(void)str_copy(s->last_name, sizeof(s->last_name), r->name);
}

static void on_lease(const struct row_lease *r, void *user)
{
	struct seen *s = user;

	s->leases++;
	CHECK_STR(r->sandbox, "i1");
	CHECK_INT(r->kind, ROW_LEASE_PROCESS);
	CHECK_INT(r->identity_value, 77);
}

static void on_event(const struct row_event *r, void *user)
{
	struct seen *s = user;

	s->events++;
	CHECK_INT(r->seq, s->events + s->events_dropped);
	CHECK_STR(r->evidence, "by=test\n");
}

static void on_refused(const struct store_refused *r, void *user)
{
	struct seen *s = user;

	s->refused++;
	CHECK_STR(r->account, "default");
	CHECK_STR(r->sandbox, r->table == ROW_TABLE_sandbox ? "iaaa" : "");
	CHECK_INT(r->seq, 5 * (r->table == ROW_TABLE_intent));
}

/* On the database of a store that is closed. */
printf_like(1, 2) static void sql(const char *fmt, ...)
{
	char path[128], text[1024];
	sqlite3 *db;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s/agentboxd.db", dir);
	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	CHECK_INT(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

struct db {
	struct loop *loop;
	struct store *store;
	struct store_report report;
	struct seen seen;
	unsigned done, failed;
	enum ab_reason reason;
};

static enum store_open_result db_open(struct db *d)
{
	struct store_options o = { .state_dir = dir, .now_wall_ms = 1700000000000 };
	struct store_visitor v = { .sandbox = on_sandbox, .intent = on_intent, .request = on_request,
				   .name = on_name, .lease = on_lease, .event = on_event, .refused = on_refused, .begins = on_table, .user = &d->seen };
	enum store_open_result r;

	memset(d, 0, sizeof(*d));
	CHECK(!loop_new(&d->loop));
	o.loop = d->loop;
	r = store_open(&o, &d->report, &d->store);
	if (r != STORE_OPENED) {
		loop_free(d->loop);
		return r;
	}
	CHECK(!store_load(d->store, &v));
	CHECK(d->seen.announced >= d->seen.sandboxes);	/* the refused ones count, too */
	CHECK(d->seen.announced <= d->seen.sandboxes + d->seen.refused);
	CHECK(!store_start(d->store));
	return r;
}

static void db_close(struct db *d)
{
	store_close(d->store);
	loop_free(d->loop);
}

static void on_done(void *user, const struct status *st)
{
	struct db *d = user;

	d->done++;
	if (!status_ok(st)) {
		d->failed++;
		d->reason = st->reason;
	}
}

static void wait_done(struct db *d, unsigned n)
{
	while (d->done < n)
		CHECK(loop_once(d->loop, 5000) >= 0);
}

static struct row_sandbox a_sandbox(const char *id)
{
	return (struct row_sandbox){
		.account = "default",
		.id = id,
		.name = "sandbox",
		.uid = 1000,
		.generation = 1,
		.state = 2,
		.ours = true,
		.metadata = "k\0v",
		.metadata_len = 4,
		.access_token = "tok",
		.template_id = "base",
		.allow_internet_access = -1,
		.keep_memory = -1,
		.auto_resume = -1,
	};
}

static void put_all(struct db *d, const char *id, bool durable)
{
	struct row_sandbox b = a_sandbox(id);
	struct row_intent i = { .seq = 5, .kind = ROW_INTENT_CREATE, .state = ROW_INTENT_OPEN,
				.account = "default", .req_tag = "abc" };
	struct row_request q = { .uid = 1000, .method = "Create", .request_id = "r", .account = "default",
				 .params_hash = { [31] = 7 }, .state = ROW_REQUEST_OPEN,
				 .req_tag = "abc" };
	struct row_name m = { .uid = 1000, .name = "sandbox", .account = "default", .id = id };
	struct store_tx *t;

	CHECK(!store_tx_new(d->store, &t));
	store_tx_put_sandbox(t, &b);
	store_tx_put_intent(t, &i);
	store_tx_put_request(t, &q);
	store_tx_put_name(t, &m);
	store_tx_commit(t, durable, on_done, d);
	CHECK_INT(d->done, 0); /* never from inside */
}

TEST(rows_come_back)
{
	struct db d;
	struct store_tx *t;
	struct stat st;
	char path[128];

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK(d.report.created);
	put_all(&d, "iaaa", true);
	wait_done(&d, 1);
	CHECK_INT(d.failed, 0);
	db_close(&d);

	snprintf(path, sizeof(path), "%s/agentboxd.db", dir);
	CHECK(!stat(path, &st));
	CHECK_INT(st.st_mode & 07777, 0600);
	CHECK(!stat(dir, &st));
	CHECK_INT(st.st_mode & 07777, 0700);

	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK(!d.report.created);
	CHECK_INT(d.seen.sandboxes, 1);
	CHECK_INT(d.seen.intents, 1);
	CHECK_INT(d.seen.requests, 1);
	CHECK_INT(d.seen.last_hash, 7);
	CHECK_INT(d.seen.names, 1);
	CHECK_STR(d.seen.last_id, "iaaa");
	CHECK_STR(d.seen.last_token, "tok");
	CHECK(!memcmp(d.seen.metadata, "k\0v", 4));
	CHECK(!store_tx_new(d.store, &t));
	store_tx_del_sandbox(t, "default", "iaaa");
	store_tx_del_intent(t, 5);
	store_tx_del_request(t, 1000, "Create", "r");
	store_tx_del_name(t, 1000, "sandbox");
	store_tx_commit(t, true, on_done, &d);
	wait_done(&d, 1);
	db_close(&d);

	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(d.seen.sandboxes + d.seen.intents + d.seen.requests + d.seen.names, 0);
	db_close(&d);
	dir_drop();
}

/* By the whole key, not by a part of it. */
TEST(one_row_is_deleted)
{
	struct row_sandbox a = a_sandbox("i1"), b = a_sandbox("i2");
	struct row_request q = { .uid = 7, .method = "Create", .request_id = "r1", .state = ROW_REQUEST_OPEN,
				 .account = "default", .req_tag = "t" };
	struct row_name m = { .uid = 7, .name = "n1" };
	struct store_tx *t;
	struct db d;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK(!store_tx_new(d.store, &t));
	store_tx_put_sandbox(t, &a);
	store_tx_put_sandbox(t, &b);
	store_tx_put_request(t, &q);
	store_tx_put_name(t, &m);
	q.request_id = "r2";
	m.name = "n2";
	store_tx_put_request(t, &q);
	store_tx_put_name(t, &m);
	store_tx_del_sandbox(t, "default", "i1");
	store_tx_del_request(t, 7, "Create", "r1");
	store_tx_del_name(t, 7, "n1");
	store_tx_commit(t, true, on_done, &d);
	wait_done(&d, 1);
	CHECK_INT(d.failed, 0);
	db_close(&d);
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK(d.seen.sandboxes == 1 && d.seen.requests == 1 && d.seen.names == 1);
	CHECK_STR(d.seen.last_id, "i2");
	CHECK_STR(d.seen.last_name, "n2");
	db_close(&d);
	dir_drop();
}

static enum { READING, THERE, NOT_THERE } row;
static uid_t row_uid;

static void on_request_row(void *user, const struct status *st, const struct row_request *r)
{
	CHECK(status_ok(st));
	CHECK(!r || (r->uid == row_uid && r->params_hash[31] == 9));
	row = r ? THERE : NOT_THERE;
}

static void on_command_request_row(void *user, const struct status *st, const struct row_command_request *r)
{
	CHECK(status_ok(st));
	CHECK(!r || (r->uid == row_uid && r->params_hash[31] == 8));
	row = r ? THERE : NOT_THERE;
}

static bool is_there(struct db *d, bool command, uid_t uid, unsigned n)
{
	char id[16];

	snprintf(id, sizeof(id), "r%u", n);
	row = READING;
	row_uid = uid;
	if (command)
		CHECK(!store_get_command_request(d->store, uid, "Start", id, on_command_request_row, NULL));
	else
		CHECK(!store_get_request(d->store, uid, "Create", id, on_request_row, NULL));
	CHECK_INT(row, READING); /* never from inside */
	while (row == READING)
		CHECK(loop_once(d->loop, 5000) >= 0);
	return row == THERE;
}

static void put_requests(struct store_tx *t, uid_t uid, unsigned n, const char *object, const char *command)
{
	char id[16];

	snprintf(id, sizeof(id), "r%u", n);
	struct row_request q = { .uid = uid, .method = "Create", .request_id = id, .account = "default", .object = object,
				 .state = ROW_REQUEST_DONE, .req_tag = "t", .used_at_ms = 1000 + n, .params_hash = { [31] = 9 } };
	struct row_command_request c = { .uid = uid, .method = "Start", .request_id = id, .command = command, .used_at_ms = 1000 + n,
					 .params_hash = { [31] = 8 } };

	store_tx_put_request(t, &q);
	store_tx_put_command_request(t, &c);
}

/* C-12: request ids are rows that are read when they are asked for, bounded by number and by time; what lives is not counted. */
TEST(request_ids_are_read_and_pruned)
{
	struct row_sandbox alive = a_sandbox("alive"), ended = a_sandbox("ended");
	struct store_prune p = { .gone = 8, .keep = 3 };
	struct store_tx *t;
	struct db d;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	ended.state = 8;
	ended.gone_at_ms = 5000;
	CHECK(!store_tx_new(d.store, &t));
	store_tx_put_sandbox(t, &alive);
	store_tx_put_sandbox(t, &ended);
	put_requests(t, 7, 0, "alive", "c0");
	for (unsigned i = 1; i <= 5; i++)
		put_requests(t, 7, i, i == 2 ? "ended" : "nobody", "c9");
	put_requests(t, 8, 1, "nobody", "c9");
	store_tx_put_command(t, &(struct row_command){ .id = "c0", .account = "default", .sandbox = "alive", .uid = 7,
						       .state = ROW_COMMAND_RUNNING, .pid = 5, .exit_code = -1 });
	store_tx_commit(t, false, on_done, &d);
	/* A read sees what was handed over before it, though nobody waited for that. */
	CHECK(is_there(&d, false, 7, 1) && is_there(&d, true, 7, 1));
	CHECK_INT(d.failed, 0);
	CHECK(!is_there(&d, false, 8, 2) && !is_there(&d, true, 8, 2));

	for (unsigned by_time = 0; by_time < 2; by_time++) {
		CHECK(!store_tx_new(d.store, &t));
		if (by_time)
			p = (struct store_prune){ .gone = 8, .keep = 100, .used_before_ms = 1004, .gone_before_ms = 5000 };
		store_tx_prune_requests(t, &p);
		store_tx_prune_command_requests(t, &p);
		store_tx_commit(t, false, on_done, &d);
		for (unsigned i = 0; i <= 5; i++) {
			bool is = i == 0 || i >= (by_time ? 5 : 3);

			CHECK_INT(is_there(&d, false, 7, i), is);
			CHECK_INT(is_there(&d, true, 7, i), is);
		}
	}
	CHECK_INT(d.failed, 0);
	db_close(&d);
	dir_drop();
}

static unsigned count_there(struct db *d, bool commands, uid_t uid, unsigned n)
{
	unsigned have = 0;

	for (unsigned i = 0; i < n; i++)
		have += is_there(d, commands, uid, i);
	return have;
}

/* Of uids that each have too many the worst goes first, and one whose rows must all stay is in nobody's way. */
TEST(request_ids_of_several_uids_are_pruned)
{
	struct store_prune p = { .gone = 8, .keep = 3 };
	struct row_sandbox alive = a_sandbox("alive");
	static const struct { unsigned n, after[3]; } uids[] = { { 9, { 9, 9, 9 } }, { 5, { 5, 3, 3 } }, { 7, { 3, 3, 3 } }, { 2, { 2, 2, 2 } } };
	struct store_tx *t;
	struct db d;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK(!store_tx_new(d.store, &t));
	store_tx_put_sandbox(t, &alive);
	store_tx_put_command(t, &(struct row_command){ .id = "c0", .account = "default", .sandbox = "alive", .uid = 7,
						       .state = ROW_COMMAND_RUNNING, .pid = 5, .exit_code = -1 });
	for (uid_t u = 0; u < ARRAY_SIZE(uids); u++)
		for (unsigned i = 0; i < uids[u].n; i++)
			put_requests(t, u, i, u ? "nobody" : "alive", u ? "c9" : "c0");
	store_tx_commit(t, false, on_done, &d);
	for (unsigned round = 0; round < 3; round++) {
		CHECK(!store_tx_new(d.store, &t));
		store_tx_prune_requests(t, &p);
		store_tx_prune_command_requests(t, &p);
		store_tx_commit(t, false, on_done, &d);
		for (uid_t u = 0; u < ARRAY_SIZE(uids); u++) {
			CHECK_INT(count_there(&d, false, u, 9), uids[u].after[round]);
			CHECK_INT(count_there(&d, true, u, 9), uids[u].after[round]);
			CHECK(!uids[u].n || is_there(&d, false, u, uids[u].n - 1));	/* the newest stay */
		}
	}
	CHECK_INT(d.failed, 0);
	db_close(&d);
	dir_drop();
}

/* They share one commit; each has its own done, in order. */
TEST(several_in_one_commit)
{
	struct db d;
	struct row_sandbox b = a_sandbox("ibbb");
	struct store_tx *t;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	put_all(&d, "iaaa", true);
	CHECK(!store_tx_new(d.store, &t));
	b.metadata = "x";
	b.metadata_len = 1;
	store_tx_put_sandbox(t, &b);
	store_tx_commit(t, false, on_done, &d);
	CHECK(!store_tx_new(d.store, &t));
	store_tx_commit(t, false, on_done, &d); /* empty: fine */
	wait_done(&d, 3);
	CHECK_INT(d.failed, 0);
	db_close(&d);
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(d.seen.sandboxes, 2);
	db_close(&d);
	dir_drop();
}

TEST(numbers_never_come_twice)
{
	uint64_t last = 0, n;
	char host[32];
	struct db d;

	dir_make();
	for (int round = 0; round < 3; round++) {
		CHECK_INT(db_open(&d), STORE_OPENED);
		if (!round)
			(void)str_copy(host, sizeof(host), store_host_id(d.store));
		CHECK_STR(store_host_id(d.store), host);
		for (int i = 0; i < 10000; i++) {
			int r = store_next_seq(d.store, &n);

			while (r == -EAGAIN) {
				CHECK(loop_once(d.loop, 5000) >= 0);
				r = store_next_seq(d.store, &n);
			}
			CHECK(n > last);
			last = n;
		}
		store_seen_seq(d.store, last + 5);
		last += 5;
		db_close(&d);
		if (round == 0)
			sh("rm %s/agentboxd.db", dir); /* loss of the database keeps who we are */
		if (round == 1) {
			sh("rm %s/host-id", dir); /* and the other way round, as far as it goes */
			last = 0;
		}
	}
	dir_drop();
}

TEST(second_daemon_is_told_who)
{
	struct db d, e;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(db_open(&e), STORE_BUSY);
	CHECK_INT(e.report.holder, getpid());
	CHECK(strstr(e.report.why, dir));
	db_close(&d);
	CHECK_INT(db_open(&d), STORE_OPENED);
	db_close(&d);
	dir_drop();
}

TEST(unsafe_places)
{
	struct db d;

	dir_make();
	sh("chmod 0770 %s", dir);
	CHECK_INT(db_open(&d), STORE_UNSAFE);
	sh("chmod 0755 %s; ln -s /etc/passwd %s/agentboxd.db", dir, dir);
	CHECK_INT(db_open(&d), STORE_UNSAFE);
	sh("rm %s/agentboxd.db; ln -s /nowhere %s/lock.x; ln -sf %s/lock.x %s/lock", dir, dir, dir, dir);
	CHECK_INT(db_open(&d), STORE_UNSAFE);
	sh("rm %s/lock", dir);
	if (!geteuid()) {
		sh("touch %s/agentboxd.db; chown 12345 %s/agentboxd.db", dir, dir);
		CHECK_INT(db_open(&d), STORE_UNSAFE);
		sh("rm %s/agentboxd.db; chown 12345 %s", dir, dir);
		CHECK_INT(db_open(&d), STORE_UNSAFE);
	}
	dir_drop();
}

TEST(newer_schema_is_refused)
{
	sqlite3 *sql;
	char path[128];
	struct db d;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	db_close(&d);
	snprintf(path, sizeof(path), "%s/agentboxd.db", dir);
	CHECK_INT(sqlite3_open(path, &sql), SQLITE_OK);
	CHECK_INT(sqlite3_exec(sql, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(sql);
	CHECK_INT(db_open(&d), STORE_TOO_NEW);
	CHECK_INT(d.report.schema_found, 99);
	CHECK(strstr(d.report.why, "99") && strstr(d.report.why, "knows "));
	dir_drop();
}

static void on_command(const struct row_command *r, void *user)
{
	unsigned *n = user;

	++*n;
	CHECK_STR(r->id, "caaa");
	CHECK(r->state == ROW_COMMAND_RUNNING && r->pid == 77 && r->flags == ROW_COMMAND_PTY);
	CHECK(r->args_len == 7 && !memcmp(r->args, "a\0\0b c", 7));
	CHECK_INT(r->exit_code, -1);
	CHECK(r->survivors_len == 8 && r->deadline_at_ms == 1800000000000);
}

static void on_command_request(const struct row_command_request *r, void *user)
{
	unsigned *n = user;

	*n += 100;
	CHECK(r->uid == 7 && r->params_hash[31] == 3);
	CHECK_STR(r->method, "Run");
	CHECK_STR(r->command, "caaa");
}

TEST(commands_come_back)
{
	struct row_command c = { .id = "caaa", .uid = 7, .account = "a", .sandbox = "i", .pid = 77,
				 .state = ROW_COMMAND_RUNNING, .flags = ROW_COMMAND_PTY,
				 .args = "a\0\0b c", .args_len = 7,
				 .exit_code = -1, .survivors = "12345678", .survivors_len = 8,
				 .deadline_at_ms = 1800000000000 };
	struct row_command_request q = { .uid = 7, .method = "Run", .request_id = "r", .command = "caaa",
					 .params_hash[31] = 3 };
	struct store_options o = { .state_dir = dir, .now_wall_ms = 1700000000000 };
	unsigned seen = 0;
	struct store_visitor v = { .user = &seen, .command = on_command,
				   .command_request = on_command_request };
	struct store_tx *t;
	struct db d;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK(!store_tx_new(d.store, &t));
	store_tx_put_command(t, &c);
	store_tx_put_command_request(t, &q);
	store_tx_commit(t, false, on_done, &d);
	wait_done(&d, 1);
	CHECK_INT(d.failed, 0);
	db_close(&d);
	CHECK(!loop_new(&d.loop));
	o.loop = d.loop;
	CHECK_INT(store_open(&o, &d.report, &d.store), STORE_OPENED);
	CHECK(!store_load(d.store, &v)); /* only the kinds that are asked for */
	CHECK_INT(seen, 101);
	CHECK(!store_start(d.store));
	CHECK(!store_tx_new(d.store, &t));
	store_tx_del_command(t, "caaa");
	store_tx_del_command_request(t, 7, "Run", "r");
	store_tx_commit(t, false, NULL, NULL);
	db_close(&d);
	CHECK(!loop_new(&d.loop));
	CHECK_INT(store_open(&o, &d.report, &d.store), STORE_OPENED);
	CHECK(!store_load(d.store, &v));
	CHECK_INT(seen, 101);
	db_close(&d);
	dir_drop();
}

/* C-4: a row that is not believed is said by its name at each start, and stays until it is written again. */
TEST(refused_rows_stay)
{
	struct db d;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	put_all(&d, "iaaa", true);
	put_all(&d, "ibbb", true);
	wait_done(&d, 2);
	db_close(&d);
	sql("UPDATE sandbox SET uid = -5 WHERE id = 'iaaa'; UPDATE intent SET req_tag = ''");
	for (int start = 0; start < 2; start++) {
		CHECK_INT(db_open(&d), STORE_OPENED);
		CHECK_INT(d.seen.sandboxes, 1);
		CHECK_STR(d.seen.last_id, "ibbb");
		CHECK_INT(d.seen.intents, 0);
		CHECK_INT(d.seen.refused, 2);
		CHECK_STR(store_refused_text(d.store), "sandbox default/iaaa (uid), intent 5 (req_tag)");
		if (!start)
			db_close(&d);
	}
	put_all(&d, "iaaa", true);
	wait_done(&d, 1);
	CHECK_INT(d.failed, 0);
	db_close(&d);
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(d.seen.sandboxes, 2);
	CHECK_INT(d.seen.refused, 0);
	CHECK_STR(store_refused_text(d.store), "");
	db_close(&d);
	dir_drop();
}

/* C-4: what 0.1.0 wrote and refused to read, and other columns that are not worth a row. */
TEST(what_cannot_be_used_is_unknown)
{
	struct db d;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	put_all(&d, "iaaa", true);
	wait_done(&d, 1);
	db_close(&d);
	sql("UPDATE sandbox SET started_at_ms = -62135596800000, alias = printf('%%.*c', 1500, 'a'), state = 77,"
	    " ours = 5, template_id = CAST(x'ff' AS TEXT), domain = CAST(x'410042' AS TEXT);"
	    "UPDATE request SET params_hash = x'00', used_at_ms = -1");
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(d.seen.sandboxes, 1);
	CHECK_INT(d.seen.refused, 0);
	CHECK_STR(d.seen.last_id, "iaaa");
	CHECK_STR(d.seen.last_token, "tok");
	CHECK_STR(d.seen.last_unknown, "started=0 alias= state=2 ours=0 template= domain=");
	CHECK_INT(d.seen.requests, 1);
	CHECK_INT(d.seen.last_hash, 0);
	db_close(&d);
	dir_drop();
}

static void on_snapshot(const struct row_snapshot *r, void *user)
{
	unsigned *n = user;

	++*n;
	CHECK_STR(r->id, "snap");
	CHECK(r->ours && r->uid == ROW_UID_MAX);
}

/* C-4: a snapshot whose owner cannot be read is nobody's, so nobody else's either. */
TEST(a_snapshot_without_an_owner_is_hidden)
{
	struct row_snapshot s = { .account = "default", .id = "snap", .uid = 1000, .ours = true };
	struct store_options o = { .state_dir = dir, .now_wall_ms = 1700000000000 };
	unsigned seen = 0;
	struct store_visitor v = { .user = &seen, .snapshot = on_snapshot };
	struct store_tx *t;
	struct db d;

	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK(!store_tx_new(d.store, &t));
	store_tx_put_snapshot(t, &s);
	store_tx_commit(t, true, on_done, &d);
	wait_done(&d, 1);
	db_close(&d);
	sql("UPDATE snapshot SET uid = -1, ours = 7");
	CHECK(!loop_new(&d.loop));
	o.loop = d.loop;
	CHECK_INT(store_open(&o, &d.report, &d.store), STORE_OPENED);
	CHECK(!store_load(d.store, &v));
	CHECK_INT(seen, 1);
	CHECK(!store_start(d.store));
	db_close(&d);
	dir_drop();
}

/* C-4: a row that its loader would refuse is not written, and neither is what is written with it. */
TEST(no_row_is_written_that_would_be_refused)
{
	struct row_sandbox good = a_sandbox("igood"), bad = a_sandbox("ibad"), cut = a_sandbox("icut");
	char alias[1501] = "";
	struct store_tx *t;
	struct db d;

	memset(alias, 'a', 1500);
	bad.uid = UINT32_MAX;
	cut.alias = alias;
	dir_make();
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK(!store_tx_new(d.store, &t));
	store_tx_put_sandbox(t, &good);
	store_tx_put_sandbox(t, &bad);
	store_tx_commit(t, true, on_done, &d);
	CHECK(!store_tx_new(d.store, &t));
	store_tx_put_sandbox(t, &cut);
	store_tx_commit(t, true, on_done, &d);
	wait_done(&d, 2);
	CHECK_INT(d.failed, 1);
	CHECK_INT(d.reason, R_BUG);
	CHECK(status_ok(store_health(d.store))); /* the disk is well */
	db_close(&d);
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(d.seen.sandboxes, 1);
	CHECK_STR(d.seen.last_id, "icut");
	db_close(&d);
	dir_drop();
}

static void flip(const char *path, off_t from, size_t n)
{
	uint8_t junk[4096];
	int fd = open(path, O_RDWR | O_CLOEXEC);

	memset(junk, 0xa5, sizeof(junk));
	CHECK(fd >= 0);
	while (n) {
		size_t m = MIN(n, sizeof(junk));

		CHECK(pwrite(fd, junk, m, from) == (ssize_t)m);
		from += (off_t)m;
		n -= m;
	}
	fd_close(fd);
}

TEST(corrupt_file_moves_aside)
{
	static const struct { off_t from; size_t n; } t[] = {
		{ 0, 100 },		/* header */
		{ 4096, 4096 },		/* a page of the schema's tables */
		{ 100, 12000 },		/* much */
	};
	char path[128], host[32];
	struct stat st;
	struct db d;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		dir_make();
		log_setup(LOG_LEVEL_ERROR);
		CHECK_INT(db_open(&d), STORE_OPENED);
		(void)str_copy(host, sizeof(host), store_host_id(d.store));
		put_all(&d, "iaaa", true);
		wait_done(&d, 1);
		db_close(&d);
		snprintf(path, sizeof(path), "%s/agentboxd.db", dir);
		flip(path, t[i].from, t[i].n);
		sh("rm %s/backup.db", dir);
		CHECK_INT(db_open(&d), STORE_OPENED);
		CHECK(d.report.moved_aside[0] && !stat(d.report.moved_aside, &st));
		CHECK(d.report.created);
		CHECK_INT(d.report.doubt, STORE_LOST);
		CHECK_INT(d.seen.sandboxes, 0);
		CHECK_STR(store_host_id(d.store), host);
		put_all(&d, "iaaa", true);
		wait_done(&d, 1);
		CHECK_INT(d.failed, 0);
		db_close(&d);
		dir_drop();
	}
}

TEST(empty_file_is_a_new_one)
{
	struct db d;

	dir_make();
	sh("chmod 700 %s; : > %s/agentboxd.db", dir, dir);
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(d.seen.sandboxes, 0);
	db_close(&d);
	dir_drop();
}

/* The child writes numbered rows and tells each acknowledged one through a pipe; killed anywhere,
 * every acknowledged row must be there. */
static void child_writes(int pipe_fd)
{
	struct db d;
	char id[32];

	if (db_open(&d) != STORE_OPENED)
		_exit(1);
	for (uint32_t i = d.seen.sandboxes;; i++) {
		unsigned before = d.done;
		struct row_sandbox b;
		struct store_tx *t;

		snprintf(id, sizeof(id), "i%08u", i);
		b = a_sandbox(id);
		if (store_tx_new(d.store, &t) < 0)
			_exit(1);
		store_tx_put_sandbox(t, &b);
		store_tx_commit(t, true, on_done, &d);
		wait_done(&d, before + 1);
		if (d.failed || fd_write_all(pipe_fd, &i, sizeof(i)) < 0)
			_exit(1);
	}
}

TEST(kill_in_the_middle)
{
	uint32_t acked = 0, n;
	struct db d;

	dir_make();
	for (int round = 0; round < 12; round++) {
		int p[2], wstatus;
		pid_t pid;

		CHECK(!pipe2(p, O_CLOEXEC));
		pid = fork();
		if (!pid)
			child_writes(p[1]);
		fd_close(p[1]);
		for (int i = 0; i < 3 + round * 2; i++) {
			CHECK(read(p[0], &n, sizeof(n)) == sizeof(n));
			acked = n + 1;
		}
		kill(pid, SIGKILL);
		CHECK(waitpid(pid, &wstatus, 0) == pid && WIFSIGNALED(wstatus) && WTERMSIG(wstatus) == SIGKILL);
		while (read(p[0], &n, sizeof(n)) == sizeof(n))
			acked = n + 1;
		fd_close(p[0]);
		CHECK_INT(db_open(&d), STORE_OPENED);
		CHECK(!d.report.moved_aside[0]);
		CHECK(d.seen.sandboxes >= acked && d.seen.sandboxes <= acked + 1);
		db_close(&d);
	}
	dir_drop();
}

TEST(full_disk)
{
	struct db d;
	unsigned done = 0;

	if (geteuid()) {
		printf("skip full_disk: needs root\n");
		return;
	}
	dir_make();
	if (mount("tmpfs", dir, "tmpfs", 0, "size=512k,mode=0700")) {
		printf("skip full_disk: no tmpfs\n");
		dir_drop();
		return;
	}
	log_setup(LOG_LEVEL_ERROR);
	CHECK_INT(db_open(&d), STORE_OPENED);
	for (unsigned i = 0; !d.failed; i++) {
		char id[32];

		CHECK(i < 10000);
		snprintf(id, sizeof(id), "i%08u", i);
		put_all(&d, id, true);
		wait_done(&d, 1);
		done += d.failed ? 0 : 1;
		d.done = 0;
	}
	CHECK_INT(d.reason, R_STORE_FULL);
	CHECK_INT(store_health(d.store)->reason, R_STORE_FULL);
	db_close(&d);
	CHECK(!mount(NULL, dir, NULL, MS_REMOUNT, "size=4m"));
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(d.seen.sandboxes, done); /* nothing acknowledged was lost */
	put_all(&d, "inew", true);
	wait_done(&d, 1);
	CHECK_INT(d.failed, 0);
	db_close(&d);
	CHECK(!umount(dir));
	dir_drop();
}

TEST(readonly_and_back)
{
	struct db d;

	if (geteuid()) {
		printf("skip readonly_and_back: needs root\n");
		return;
	}
	dir_make();
	if (mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=0700")) {
		printf("skip readonly_and_back: no tmpfs\n");
		dir_drop();
		return;
	}
	log_setup(LOG_LEVEL_ERROR);
	CHECK_INT(db_open(&d), STORE_OPENED);
	put_all(&d, "iaaa", true);
	wait_done(&d, 1);
	db_close(&d);
	CHECK(!mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY, NULL));
	CHECK(db_open(&d) != STORE_OPENED);
	CHECK(d.report.why[0]);
	CHECK(!mount(NULL, dir, NULL, MS_REMOUNT, NULL));
	CHECK_INT(db_open(&d), STORE_OPENED);
	CHECK_INT(d.seen.sandboxes, 1);
	db_close(&d);
	CHECK(!umount(dir));
	dir_drop();
}

TEST_MAIN()
