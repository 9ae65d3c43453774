/* SPDX-License-Identifier: MIT */
/* STATE/claims: lines that survive a crash, and what is no line of ours. */
#include "daemon/store/claims.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/store/impl.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

static char dir[64];

static const struct store_claim one = { .account = "default", .sandbox = "iaaa", .uid = 1000, .at_ms = 77, .name = "box",
					.request_id = "r 1", .policy = "ka=1", .params_hash = { 1, 0xfe } };

TEST(a_line_comes_back)
{
	scoped(buf_fini) struct buf b = BUF_NULL;
	struct store_claim c, odd = one;
	char *line;

	CHECK(!claim_format(&one, &b));
	line = buf_take_str(&b);
	CHECK(line && line[strlen(line) - 1] == '\n');
	line[strlen(line) - 1] = 0;
	CHECK(claim_parse(line, &c));
	CHECK_STR(c.account, "default");
	CHECK_STR(c.sandbox, "iaaa");
	CHECK_STR(c.name, "box");
	CHECK_STR(c.request_id, "r 1");
	CHECK_STR(c.policy, "ka=1");
	CHECK(c.uid == 1000 && c.at_ms == 77 && c.params_hash[1] == 0xfe && !c.params_hash[2]);
	free(line);
	odd.request_id = "a\tb";
	CHECK(claim_format(&odd, &b) < 0);
	odd.request_id = "a\nb";
	CHECK(claim_format(&odd, &b) < 0);
	odd = (struct store_claim){ .account = "a", .sandbox = "b" };	/* what is not there is "" */
	CHECK(!claim_format(&odd, &b));
}

TEST(what_is_no_line)
{
	static const char *const odd[] = { "", "claim1", "claim2\ta\tb\t1\t2\t\t\t00\tp", "claim1\ta\tb\tx\t2\t\t\t00\tp",
					   "claim1\ta\tb\t1\t2\t\t\t00\tp", "claim1\ta\t\t1\t2\t\t\t" };
	scoped(buf_fini) struct buf b = BUF_NULL;
	struct store_claim c;
	char *line;

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		line = str_dup(odd[i]);
		CHECK(!claim_parse(line, &c));
		free(line);
	}
	/* Cut anywhere, it says nothing, or, without the end of its last field, what it has. */
	CHECK(!claim_format(&one, &b));
	for (size_t n = 0; n < buf_len(&b) - sizeof("ka=1"); n++) {
		line = strndup((const char *)buf_data(&b), n);
		CHECK(!claim_parse(line, &c));
		free(line);
	}
}

/* --- the file, by the store --- */

struct seen {
	unsigned n;
	char last[32];
	bool done;
	struct status st;
};

static void on_claim(const struct store_claim *c, void *user)
{
	struct seen *s = user;

	s->n++;
	(void)str_copy(s->last, sizeof(s->last), c->sandbox);
}

static void on_done(void *user, const struct status *st)
{
	struct seen *s = user;

	s->done = true;
	s->st = *st;
}

struct place {
	struct loop *loop;
	struct store *store;
	struct seen seen;
};

static void begin(struct place *p, bool has_file)
{
	struct store_report report;
	struct store_options o = { .state_dir = dir, .now_wall_ms = clock_wall_ms() };

	*p = (struct place){ 0 };
	CHECK(!loop_new(&p->loop));
	o.loop = p->loop;
	CHECK_INT(store_open(&o, &report, &p->store), STORE_OPENED);
	CHECK(!store_load_claims(p->store, on_claim, &p->seen) == has_file);
	CHECK(!store_start(p->store));
}

static void end(struct place *p)
{
	p->store = store_close(p->store);
	p->loop = loop_free(p->loop);
}

static void commit(struct place *p, const char *id, bool anew)
{
	struct store_claim c = one;
	struct store_tx *t;

	c.sandbox = id;
	CHECK(!store_tx_new(p->store, &t));
	store_tx_claim(t, &c);
	if (anew)
		store_tx_claims_anew(t);
	p->seen.done = false;
	store_tx_commit(t, true, on_done, &p->seen);
	while (!p->seen.done)
		CHECK(loop_once(p->loop, 100) >= 0);
}

static void append(const char *text)
{
	char path[96];
	FILE *f;

	snprintf(path, sizeof(path), "%s/claims", dir);
	f = fopen(path, "ae");
	CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

static void dir_new(void)
{
	snprintf(dir, sizeof(dir), "/tmp/ab-claims-XXXXXX");
	CHECK(mkdtemp(dir));
}

static void dir_free(void)
{
	static const char *const names[] = { "claims", "agentboxd.db", "agentboxd.db-wal", "agentboxd.db-shm", "backup.db", "host-id",
					     "lock", "sent" };
	char path[96];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		(void)remove(path);
	}
	CHECK(!rmdir(dir));
}

/* What a crash left of a line spoils neither those before it nor the next. */
TEST(a_torn_line)
{
	struct place p;

	dir_new();
	begin(&p, true);
	CHECK_INT(p.seen.n, 0);
	commit(&p, "i1", false);
	commit(&p, "i2", false);
	CHECK(status_ok(&p.seen.st));
	end(&p);
	append("claim1\tdefault\ti3\t1000\t7");
	begin(&p, true);
	CHECK_INT(p.seen.n, 2);
	CHECK_STR(p.seen.last, "i2");
	commit(&p, "i4", false);
	end(&p);
	begin(&p, true);
	CHECK_INT(p.seen.n, 3);
	CHECK_STR(p.seen.last, "i4");
	commit(&p, "i5", true);		/* from now on that one alone */
	commit(&p, "i6", false);
	end(&p);
	begin(&p, true);
	CHECK_INT(p.seen.n, 2);
	end(&p);
	dir_free();
}

/* Where it cannot be written, its caller learns it; what has no claim is committed as ever. */
TEST(no_line_no_done)
{
	struct place p;
	struct store_tx *t;
	char path[96];

	dir_new();
	snprintf(path, sizeof(path), "%s/claims", dir);
	CHECK(!mkdir(path, 0700));
	begin(&p, false);
	commit(&p, "i1", false);
	CHECK_INT(p.seen.st.reason, R_STORE_READONLY);
	CHECK(!store_tx_new(p.store, &t));
	p.seen.done = false;
	store_tx_commit(t, true, on_done, &p.seen);
	while (!p.seen.done)
		CHECK(loop_once(p.loop, 100) >= 0);
	CHECK(status_ok(&p.seen.st));
	CHECK(!rmdir(path));
	commit(&p, "i2", false);
	CHECK(status_ok(&p.seen.st));
	end(&p);
	dir_free();
}

TEST_MAIN()
