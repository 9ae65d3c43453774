/* SPDX-License-Identifier: MIT */
/* libagentbox through its public face, against the scripted daemon of fake.h. */
#include <agentbox.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tests/lib/test.h"
#include "tests/unit/client/fake.h"

#define WINDOW (1024u * 1024)

static struct ab_client *client(const struct fake *f)
{
	const struct ab_client_options o = { .socket = f->path, .wait_ms = 2000, .user_agent = "test/1" };
	struct ab_client *c;

	CHECK_INT(ab_client_new(&o, &c), 0);
	return c;
}

static struct ab_daemon_status *seen(struct ab_client *c)
{
	struct ab_daemon_status *st = NULL;

	CHECK_INT(ab_daemon_status(c, NULL, &st), AB_OK);
	return st;
}

TEST(unary)
{
	struct ab_sandbox *sb = NULL;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_sandbox_get(c, "one", 0, NULL, &sb), AB_OK);
	CHECK(!ab_client_error(c));
	CHECK_STR(sb->id, "one");
	CHECK_STR(sb->name, "");
	CHECK_INT(sb->state, AB_SANDBOX_RUNNING);
	CHECK_INT(sb->end_at_ms, 1700000000250);
	CHECK_INT(sb->n_metadata, 1);
	CHECK_STR(sb->metadata[0].value, "v");
	CHECK_STR(ab_socket(c), f.path);
	ab_client_free(c);
	CHECK_STR(sb->id, "one");	/* objects outlive their client */
	ab_free(sb);
	fake_stop(&f);
}

TEST(error_with_details)
{
	const struct ab_error *e;
	struct ab_sandbox *sb = NULL;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_sandbox_get(c, "missing", 0, NULL, &sb), AB_NOT_FOUND);
	CHECK(!sb);
	e = ab_client_error(c);
	CHECK(e && !e->local);
	CHECK_STR(e->status_name, "NOT_FOUND");
	CHECK_STR(e->reason, "SANDBOX_NOT_FOUND");
	CHECK_STR(e->message, "no such sandbox: caf\xc3\xa9 100%");
	CHECK_INT(e->retry_after_ms, 1500);
	CHECK_INT(e->n_evidence, 1);
	CHECK_STR(e->evidence[0].key, "field");
	CHECK_STR(e->evidence[0].value, "sandbox \xe2\x98\x95");
	CHECK_INT(ab_sandbox_get(c, "there", 0, NULL, &sb), AB_OK);
	CHECK(!ab_client_error(c));
	ab_free(sb);
	CHECK_INT(ab_sandbox_get(c, "", 0, NULL, &sb), AB_INVALID_ARGUMENT);
	CHECK(ab_client_error(c)->local);
	ab_client_free(c);
	fake_stop(&f);
}

TEST(deadline)
{
	const struct ab_call_options how = { .deadline_ms = 50 };
	struct ab_sandbox *sb = NULL;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_sandbox_get(c, "slow", 0, &how, &sb), AB_DEADLINE_EXCEEDED);
	CHECK_STR(ab_client_error(c)->reason, "DEADLINE_REQUEST");
	CHECK_INT(ab_sandbox_get(c, "two", 0, NULL, &sb), AB_OK);	/* the connection lives on */
	ab_free(sb);
	ab_client_free(c);
	fake_stop(&f);
}

TEST(no_daemon)
{
	const struct ab_call_options how = { .deadline_ms = 40 };
	struct ab_client_options o = { .wait_ms = AB_ZERO_MS };
	struct ab_client *c;
	struct ab_sandbox *sb;
	char too_long[200];
	struct fake f;

	fake_nowhere(&f);
	o.socket = f.path;
	CHECK_INT(ab_client_new(&o, &c), 0);
	CHECK_INT(ab_sandbox_get(c, "x", 0, NULL, &sb), AB_UNAVAILABLE);
	CHECK_STR(ab_client_error(c)->reason, "UNREACHABLE");
	CHECK(strstr(ab_client_error(c)->message, f.path));
	CHECK_INT(ab_connect(c), AB_UNAVAILABLE);
	ab_client_free(c);

	c = client(&f);		/* waits, but not longer than the call's deadline */
	CHECK_INT(ab_sandbox_get(c, "x", 0, &how, &sb), AB_DEADLINE_EXCEEDED);
	ab_client_free(c);
	fake_stop(&f);

	memset(too_long, 'x', sizeof(too_long));
	too_long[sizeof(too_long) - 1] = '\0';
	o.socket = too_long;
	CHECK_INT(ab_client_new(&o, &c), -EINVAL);
	o.socket = "";
	CHECK_INT(ab_client_new(&o, &c), -EINVAL);
}

TEST(daemon_that_starts_late)
{
	struct ab_sandbox *sb = NULL;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 200);
	c = client(&f);
	CHECK_INT(ab_sandbox_get(c, "x", 0, NULL, &sb), AB_OK);
	ab_free(sb);
	ab_client_free(c);
	fake_stop(&f);
}

/* D-5: AGENTBOXD_SOCKET is that daemon or an error; only without it the usual places are looked at. */
TEST(explicit_socket_is_that_one)
{
	const struct ab_client_options once = { .wait_ms = AB_ZERO_MS };
	char dir[160], runtime[100];
	struct ab_sandbox *sb;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 0);
	(void)snprintf(runtime, sizeof(runtime), "%s/run", f.dir);
	(void)snprintf(dir, sizeof(dir), "%s/agentboxd", runtime);
	CHECK(mkdir(runtime, 0700) == 0 && mkdir(dir, 0700) == 0);
	(void)strncat(dir, "/agentboxd.sock", sizeof(dir) - strlen(dir) - 1);
	CHECK(symlink(f.path, dir) == 0);
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	setenv("AGENTBOXD_SOCKET", "/nonexistent/old", 1);
	CHECK_INT(ab_client_new(&once, &c), 0);
	CHECK_INT(ab_connect(c), AB_UNAVAILABLE);
	CHECK(strstr(ab_client_error(c)->message, "/nonexistent/old") && !strstr(ab_client_error(c)->message, runtime));
	CHECK_INT(ab_sandbox_get(c, "x", 0, NULL, &sb), AB_UNAVAILABLE);
	CHECK_STR(ab_client_error(c)->reason, "UNREACHABLE");
	ab_client_free(c);
	setenv("AGENTBOXD_SOCKET", f.path, 1);
	CHECK_INT(ab_client_new(NULL, &c), 0);
	CHECK_INT(ab_connect(c), AB_OK);
	CHECK_STR(ab_socket(c), f.path);
	ab_client_free(c);
	setenv("AGENTBOXD_SOCKET", "", 1);
	CHECK_INT(ab_client_new(NULL, &c), 0);
	CHECK_INT(ab_connect(c), AB_OK);
	CHECK_STR(ab_socket(c), dir);
	ab_client_free(c);
	unsetenv("AGENTBOXD_SOCKET");
	unsetenv("XDG_RUNTIME_DIR");
	CHECK(unlink(dir) == 0);
	*strrchr(dir, '/') = '\0';
	CHECK(rmdir(dir) == 0 && rmdir(runtime) == 0);
	fake_stop(&f);
}

struct told {
	unsigned n;
	uint64_t at_ms;
	char text[320];
};

static void on_notice(const char *text, void *user)
{
	struct told *t = user;

	t->n++;
	t->at_ms = clock_boot_ms();
	(void)snprintf(t->text, sizeof(t->text), "%s", text);
}

/* D-6: a socket whose listener never says anything; the kernel accepts for it. */
TEST(daemon_that_says_nothing)
{
	struct told told = { 0 };
	struct ab_client_options o = { .wait_ms = 4000, .notice = on_notice, .notice_user = &told };
	uint64_t began_ms = clock_boot_ms(), took_ms;
	struct ab_sandbox *sb;
	struct ab_client *c;
	struct fake f;
	bool found;

	fake_start(&f, 0);
	CHECK(kill(f.pid, SIGSTOP) == 0);
	o.socket = f.path;
	CHECK_INT(ab_client_new(&o, &c), 0);
	CHECK_INT(ab_sandbox_kill(c, "x", NULL, &found), AB_UNAVAILABLE);
	took_ms = clock_boot_ms() - began_ms;
	CHECK(took_ms >= 3900 && took_ms < 8000);
	/* nothing was sent, so that nothing is in doubt */
	CHECK_STR(ab_client_error(c)->reason, "UNREACHABLE");
	CHECK(strstr(ab_client_error(c)->message, f.path) && strstr(ab_client_error(c)->message, "does not answer"));
	CHECK_INT(told.n, 1);
	CHECK(told.at_ms - began_ms >= 2900 && told.at_ms - began_ms < 3900);
	CHECK(strstr(told.text, f.path));
	CHECK(kill(f.pid, SIGCONT) == 0);
	CHECK_INT(ab_sandbox_get(c, "x", 0, NULL, &sb), AB_OK);
	ab_free(sb);
	ab_client_free(c);
	fake_stop(&f);
}

/* D-6: the daemon falls silent after its first answer. What waits for a PING's answer is told, what has a deadline ends. */
TEST(daemon_that_falls_silent)
{
	struct told told = { 0 };
	struct ab_client_options o = { .notice = on_notice, .notice_user = &told };
	struct ab_sandbox *sb;
	struct ab_call *stays;
	uint64_t began_ms;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 0);
	o.socket = f.path;
	CHECK_INT(ab_client_new(&o, &c), 0);
	CHECK_INT(ab_sandbox_get(c, "x", 0, NULL, &sb), AB_OK);
	ab_free(sb);
	CHECK_INT(ab_sandbox_get_start(c, "slow", 0, &(struct ab_call_options){ .deadline_ms = AB_NEVER }, &stays), 0);
	/* a call that takes long at a daemon that lives is no silence */
	CHECK_INT(ab_call_poll(stays, 4000), 0);
	CHECK_INT(told.n, 0);
	CHECK(kill(f.pid, SIGSTOP) == 0);
	began_ms = clock_boot_ms();
	CHECK_INT(ab_sandbox_get(c, "x", 0, NULL, &sb), AB_UNAVAILABLE);
	CHECK_STR(ab_client_error(c)->reason, "UNREACHABLE");
	CHECK(clock_boot_ms() - began_ms < 15000);
	CHECK_INT(told.n, 1);
	CHECK(told.at_ms - began_ms >= 2900 && told.at_ms - began_ms < 6000);
	CHECK(kill(f.pid, SIGCONT) == 0);
	ab_free(seen(c));
	CHECK(!ab_call_is_done(stays));
	ab_call_free(stays);
	ab_client_free(c);
	fake_stop(&f);
}

TEST(daemon_dies_in_a_call)
{
	struct ab_client_options o = { .wait_ms = AB_ZERO_MS };
	struct ab_sandbox *sb;
	struct ab_client *c;
	struct fake f;
	bool found;

	fake_start(&f, 0);
	o.socket = f.path;
	CHECK_INT(ab_client_new(&o, &c), 0);
	CHECK_INT(ab_sandbox_kill(c, "die", NULL, &found), AB_UNAVAILABLE);
	CHECK_STR(ab_client_error(c)->reason, "OUTCOME_UNKNOWN");
	/* what only reads is asked again, and then there is nobody */
	CHECK_INT(ab_sandbox_get(c, "x", 0, NULL, &sb), AB_UNAVAILABLE);
	CHECK_STR(ab_client_error(c)->reason, "UNREACHABLE");
	ab_client_free(c);
	fake_stop(&f);
}

TEST(goaway_and_refusals)
{
	struct ab_daemon_status *st;
	struct ab_sandbox *sb = NULL;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 0);
	c = client(&f);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(ab_sandbox_get(c, "goaway", 0, NULL, &sb), AB_OK);
		ab_free(sb);
	}
	CHECK_INT(ab_sandbox_get(c, "refuse:3", 0, NULL, &sb), AB_OK);
	ab_free(sb);
	st = seen(c);
	CHECK(st->connections >= 3);
	ab_free(st);
	ab_client_free(c);
	fake_stop(&f);
}

/* A stop of the daemon is no error of a call that may be sent again: its successor answers. */
TEST(a_stop_is_asked_past)
{
	struct ab_sandbox *sb = NULL;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_sandbox_get(c, "stop:3", 0, NULL, &sb), AB_OK);
	CHECK_STR(sb->id, "stop:3");
	ab_free(sb);
	fake_stop(&f);
	fake_start(&f, 0);
	ab_client_free(c);
	c = client(&f);
	/* but not for ever */
	CHECK_INT(ab_sandbox_get(c, "stop:9", 0, NULL, &sb), AB_UNAVAILABLE);
	CHECK_STR(ab_client_error(c)->reason, "DRAINING");
	ab_client_free(c);
	fake_stop(&f);
}

/* Takes events until the first is output of the end; returns how many bytes came. */
static uint64_t drain(struct ab_call *call, int *ret_exit)
{
	struct ab_command_event ev;
	uint64_t at = 0;

	*ret_exit = -1;
	for (;;) {
		if (!ab_command_next(call, &ev)) {
			if (ab_call_is_done(call))
				return at;
			CHECK_INT(ab_call_poll(call, -1), 1);
			continue;
		}
		if (ev.type == AB_EVENT_OUTPUT) {
			CHECK_INT(ev.offset, at);
			for (size_t i = 0; i < ev.size; i++)
				CHECK(((const uint8_t *)ev.data)[i] == fake_byte(at + i));
			at += ev.size;
		} else if (ev.type == AB_EVENT_EXITED) {
			*ret_exit = ev.result->exit_code;
		} else {
			CHECK_INT(ev.type, AB_EVENT_STARTED);
			CHECK_STR(ev.command->command_id, "c1");
		}
	}
}

TEST(run_with_a_slow_reader)
{
	const struct ab_command_options o = { .sandbox = "sb", .shell = "flood:20000000",
					       .request_id = "r1" };
	struct ab_daemon_status *st;
	struct ab_call *call;
	struct ab_client *c;
	struct fake f;
	int exit_code;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_command_run_start(c, &o, NULL, &call), 0);
	CHECK_STR(ab_call_request_id(call), "r1");
	for (int i = 0; i < 50; i++) {	/* others go on, and nothing piles up */
		st = seen(c);
		CHECK(st->spool_bytes <= WINDOW + (512u << 10));
		ab_free(st);
	}
	CHECK_INT(drain(call, &exit_code), 20000000);
	CHECK_INT(exit_code, 7);
	CHECK_INT(ab_call_status(call), AB_OK);
	ab_call_free(call);
	ab_client_free(c);
	fake_stop(&f);
}

TEST(run_that_is_cut)
{
	const struct ab_command_options o = { .sandbox = "sb", .shell = "cut:100000" };
	struct ab_call *call;
	struct ab_client *c;
	struct fake f;
	int exit_code;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_command_run_start(c, &o, NULL, &call), 0);
	CHECK_INT(drain(call, &exit_code), 100000);	/* what came is not lost */
	CHECK_INT(exit_code, -1);			/* and nothing is made up */
	CHECK_INT(ab_call_status(call), AB_UNAVAILABLE);
	CHECK_STR(ab_call_error(call)->reason, "OUTCOME_UNKNOWN");
	ab_call_free(call);
	ab_client_free(c);
	fake_stop(&f);
}

struct collected {
	size_t n;
	char text[64];
};

static int collect(void *user, enum ab_stream stream, const void *data, size_t n)
{
	struct collected *t = user;

	CHECK_INT(stream, AB_STDOUT);
	CHECK(t->n + n < sizeof(t->text));
	memcpy(t->text + t->n, data, n);
	t->n += n;
	t->text[t->n] = '\0';
	return 0;
}

static uint8_t *pattern(size_t n)
{
	uint8_t *p = malloc(n);

	CHECK(p);
	for (size_t i = 0; i < n; i++)
		p[i] = fake_byte(i);
	return p;
}

TEST(run_with_input)
{
	const struct ab_command_options o = { .sandbox = "sb", .shell = "cat" };
	struct collected out = { 0 };
	struct ab_command_io io = { .output = collect, .user = &out, .n_input = 3000000 };
	struct ab_command_result *res = NULL;
	struct ab_client *c;
	struct fake f;
	uint8_t *input = pattern(io.n_input);

	fake_start(&f, 0);
	c = client(&f);
	io.input = input;
	CHECK_INT(ab_command_run(c, &o, NULL, &io, &res), AB_OK);
	CHECK_INT(res->outcome, AB_EXITED);
	CHECK_INT(res->exit_code, 7);
	CHECK(res->output_complete);
	CHECK_STR(out.text, "3000000");
	ab_free(res);
	ab_client_free(c);
	fake_stop(&f);
	free(input);
}

TEST(send_input)
{
	const struct ab_command_ref ref = { .command_id = "c1" };
	struct ab_client *c;
	struct fake f;
	uint64_t accepted = 0;
	uint8_t *input = pattern(100000);

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_command_send_input(c, &ref, 0, input, 60000, false, NULL, &accepted), AB_OK);
	CHECK_INT(accepted, 60000);
	CHECK_INT(ab_command_send_input(c, &ref, accepted, input + 60000, 40000, true, NULL, &accepted),
		  AB_OK);
	CHECK_INT(accepted, 100000);
	CHECK_INT(ab_command_send_input(c, &ref, accepted, NULL, 0, true, NULL, NULL), AB_OK);
	ab_client_free(c);
	fake_stop(&f);
	free(input);
}

static int sink(void *user, const void *data, size_t n)
{
	uint64_t *at = user;

	for (size_t i = 0; i < n; i++)
		CHECK(((const uint8_t *)data)[i] == fake_byte(*at + i));
	*at += n;
	return 0;
}

TEST(read_file)
{
	struct ab_path p = { .sandbox = "sb", .path = "size:5000000" };
	struct ab_client *c;
	struct ab_call *call;
	const void *data;
	size_t n;
	struct fake f;
	uint64_t at = 0;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_file_read_to(c, &p, NULL, NULL, sink, &at), AB_OK);
	CHECK_INT(at, 5000000);
	p.path = "cut:300000";
	at = 0;
	CHECK_INT(ab_file_read_to(c, &p, NULL, NULL, sink, &at), AB_DATA_LOSS);
	CHECK_INT(at, 300000);
	CHECK_STR(ab_client_error(c)->reason, "TRUNCATED");
	p.path = "size:0";
	at = 0;
	CHECK_INT(ab_file_read_to(c, &p, NULL, NULL, sink, &at), AB_OK);
	CHECK_INT(at, 0);
	p.path = "missing";
	CHECK_INT(ab_file_read_to(c, &p, NULL, NULL, sink, &at), AB_NOT_FOUND);

	p.path = "size:10";
	CHECK_INT(ab_file_read_start(c, &p, NULL, NULL, &call), 0);
	while (!ab_file_read_next(call, &data, &n))
		CHECK_INT(ab_call_poll(call, -1), 1);
	CHECK_INT(n, 10);
	CHECK_INT(ab_file_read_info(call)->mode, 0640);
	CHECK_INT(ab_call_wait(call), AB_OK);
	ab_call_free(call);
	ab_client_free(c);
	fake_stop(&f);
}

struct feed {
	uint64_t at, end;
};

static ptrdiff_t source(void *user, void *data, size_t n)
{
	struct feed *s = user;
	size_t k = n < s->end - s->at ? n : (size_t)(s->end - s->at);

	for (size_t i = 0; i < k; i++)
		((uint8_t *)data)[i] = fake_byte(s->at + i);
	s->at += k;
	return (ptrdiff_t)k;
}

TEST(write_file)
{
	struct ab_path p = { .sandbox = "sb", .path = "ok" };
	struct feed s = { .end = 5000000 };
	struct ab_file *file = NULL;
	struct ab_client *c;
	struct fake f;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_file_write_from(c, &p, NULL, NULL, source, &s, &file), AB_OK);
	CHECK_INT(file->size, 5000000);
	ab_free(file);
	s = (struct feed){ 0 };
	CHECK_INT(ab_file_write_from(c, &p, NULL, NULL, source, &s, NULL), AB_OK);
	p.path = "broken";
	s = (struct feed){ .end = 100 };
	CHECK_INT(ab_file_write_from(c, &p, NULL, NULL, source, &s, NULL), AB_RESOURCE_EXHAUSTED);
	CHECK_STR(ab_client_error(c)->message, "the disk is full");
	p.path = "refuse";	/* the answer comes before the end, and ends it */
	s = (struct feed){ .end = 1u << 30 };
	CHECK_INT(ab_file_write_from(c, &p, NULL, NULL, source, &s, NULL), AB_NOT_FOUND);
	CHECK(s.at < 1u << 30);
	ab_client_free(c);
	fake_stop(&f);
}

TEST(write_that_stalls)
{
	const struct ab_path p = { .sandbox = "sb", .path = "stall" };
	struct ab_daemon_status *st;
	struct ab_client *c;
	struct ab_call *call;
	struct fake f;
	uint8_t *data = pattern(65536);
	uint64_t taken = 0;
	ptrdiff_t n;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ab_file_write_start(c, &p, NULL, NULL, &call), 0);
	CHECK_INT(ab_file_write_put(call, data, 1), 0);		/* not connected yet: no room */
	for (int quiet = 0; quiet < 3;) {
		n = ab_file_write_put(call, data, 65536);
		CHECK(n >= 0);
		taken += (uint64_t)n;
		quiet = n ? 0 : quiet + 1;
		if (!n) {
			st = seen(c);		/* other calls go through */
			ab_free(st);
		}
	}
	CHECK(taken > 0 && taken <= 2 * WINDOW);
	CHECK_INT(ab_call_poll(call, 0), 1);	/* that it was opened */
	CHECK_INT(ab_call_poll(call, 10), 0);
	ab_call_cancel(call);
	CHECK_INT(ab_call_status(call), AB_CANCELLED);
	CHECK_INT(ab_file_write_put(call, data, 1), -EPIPE);
	ab_call_free(call);
	do {
		st = seen(c);
		n = st->streams;
		ab_free(st);
	} while (!n);				/* the daemon was told */
	ab_client_free(c);
	fake_stop(&f);
	free(data);
}

struct loop_state {
	struct ab_client *c;
	unsigned started, done;
};

static void on_ready(struct ab_call *call, void *user)
{
	const struct ab_call_options how = { .ready = on_ready, .user = user };
	struct loop_state *l = user;
	struct ab_sandbox *sb = ab_call_take(call);
	struct ab_call *next;
	char id[32];

	CHECK(ab_call_is_done(call));
	CHECK_INT(ab_call_status(call), AB_OK);
	CHECK(sb);
	ab_free(sb);
	CHECK_INT(ab_process(l->c), -EDEADLK);
	CHECK_INT(ab_sandbox_get(l->c, "x", 0, NULL, &sb), AB_FAILED_PRECONDITION);
	CHECK_INT(ab_call_poll(call, -1), -EDEADLK);
	ab_call_free(call);
	l->done++;
	if (l->started == 500)
		return;
	(void)snprintf(id, sizeof(id), "box%u", l->started++);
	CHECK_INT(ab_sandbox_get_start(l->c, id, 0, &how, &next), 0);
}

TEST(event_loop)
{
	struct loop_state l = { 0 };
	const struct ab_call_options how = { .ready = on_ready, .user = &l };
	struct ab_call *call;
	struct fake f;
	int fd;

	fake_start(&f, 0);
	l.c = client(&f);
	fd = ab_fd(l.c);
	for (; l.started < 100; l.started++)
		CHECK_INT(ab_sandbox_get_start(l.c, "box", 0, &how, &call), 0);
	while (l.done < 500) {
		struct pollfd p = { .fd = fd, .events = (short)ab_events(l.c) };

		CHECK(poll(&p, 1, ab_timeout(l.c)) >= 0);
		CHECK_INT(ab_process(l.c), 0);
	}
	CHECK_INT(ab_fd(l.c), fd);
	CHECK(ab_timeout(l.c));		/* nothing is due */
	ab_client_free(l.c);
	fake_stop(&f);
}

static int ask_hundred(struct ab_client *c, int who)
{
	for (int i = 0; i < 100; i++) {
		struct ab_sandbox *sb = NULL;
		char id[32];

		(void)snprintf(id, sizeof(id), "p%dn%d", who, i);
		if (ab_sandbox_get(c, id, 0, NULL, &sb) != AB_OK || strcmp(sb->id, id))
			return 1;
		ab_free(sb);
	}
	return 0;
}

/* A17, A18: sixteen children and their parent ask at once, each on a connection of its own. */
TEST(fork_sixteen)
{
	struct ab_call *held;
	struct ab_daemon_status *st;
	struct ab_client *c;
	struct fake f;
	pid_t pids[16];
	int status;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ask_hundred(c, 99), 0);
	CHECK_INT(ab_sandbox_get_start(c, "slow", 0, NULL, &held), 0);
	CHECK_INT(ab_process(c), 0);
	for (int i = 0; i < 16; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i] == 0) {
			int r = ask_hundred(c, i);

			if (ab_call_status(held) != AB_CANCELLED)
				r = 2;
			ab_call_free(held);
			ab_client_free(c);
			close(f.release_fd);
			_exit(r);
		}
	}
	CHECK_INT(ask_hundred(c, 98), 0);
	CHECK(!ab_call_is_done(held));
	for (int i = 0; i < 16; i++) {
		CHECK(waitpid(pids[i], &status, 0) == pids[i]);
		CHECK_INT(status, 0);
	}
	CHECK_INT(ask_hundred(c, 97), 0);	/* and ours is still whole */
	st = seen(c);
	CHECK_INT(st->connections, 17);
	CHECK_INT(st->streams, 0);		/* no child told the daemon anything on our connection */
	ab_free(st);
	ab_call_free(held);
	ab_client_free(c);
	fake_stop(&f);
}

struct forking {
	pid_t child;
	int called;
};

static void on_ready_fork(struct ab_call *call, void *user)
{
	struct forking *x = user;

	if (!x->called++)
		x->child = fork();
}

/* What is left for the parent's callbacks to hear is not the child's. */
TEST(fork_in_a_callback)
{
	struct forking x = { 0 };
	const struct ab_call_options how = { .ready = on_ready_fork, .user = &x };
	struct ab_call *calls[2];
	struct ab_client *c;
	struct fake f;
	int status;

	fake_start(&f, 0);
	c = client(&f);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(ab_sandbox_get_start(c, "slow", 0, &how, &calls[i]), 0);
		ab_call_cancel(calls[i]);
	}
	CHECK_INT(ab_process(c), 0);
	if (x.child == 0)
		_exit(x.called);
	CHECK(x.child > 0);
	CHECK_INT(x.called, 2);
	CHECK(waitpid(x.child, &status, 0) == x.child);
	CHECK_INT(WEXITSTATUS(status), 1);
	for (int i = 0; i < 2; i++)
		ab_call_free(calls[i]);
	ab_client_free(c);
	fake_stop(&f);
}

/* A child without a descriptor left: what waits for a stream ends, too. */
TEST(fork_without_descriptors)
{
	const struct ab_path p = { .sandbox = "sb", .path = "size:1" };
	struct ab_command_options o = { .sandbox = "sb", .shell = "flood:1" };
	const struct rlimit none = { 0 };
	struct ab_file_list *l;
	struct ab_client *c;
	struct fake f;
	pid_t pid;
	int status;

	fake_start(&f, 0);
	c = client(&f);
	CHECK_INT(ask_hundred(c, 1), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(20);
		if (setrlimit(RLIMIT_NOFILE, &none) < 0)
			_exit(2);
		if (ab_file_read_to(c, &p, NULL, NULL, sink, NULL) != AB_INTERNAL ||
		    ab_file_list(c, &p, 1, NULL, &l) != AB_INTERNAL ||
		    ab_command_run(c, &o, NULL, NULL, NULL) != AB_INTERNAL)
			_exit(3);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	ab_client_free(c);
	fake_stop(&f);
}

TEST(many_clients_one_loop)
{
	struct ab_client *c[20];
	struct ab_call *call[20];
	struct fake f;

	fake_start(&f, 0);
	for (int i = 0; i < 20; i++) {
		c[i] = client(&f);
		CHECK_INT(ab_sandbox_get_start(c[i], "x", 0, NULL, &call[i]), 0);
	}
	for (int i = 19; i >= 0; i--) {
		CHECK_INT(ab_call_wait(call[i]), AB_OK);
		ab_call_free(call[i]);
	}
	for (int i = 0; i < 20; i++)
		ab_client_free(c[i]);
	ab_client_free(NULL);
	ab_call_free(NULL);
	ab_free(NULL);
	fake_stop(&f);
}

TEST(durations)
{
	uint64_t ms;

	CHECK_INT(ab_parse_duration("1h30m", &ms), 0);
	CHECK_INT(ms, 5400000);
	CHECK_INT(ab_parse_duration("90", &ms), -EINVAL);
	CHECK_STR(ab_version(), AB_VERSION);
}

TEST_MAIN()
