/* SPDX-License-Identifier: MIT */
/* Start and Connect as clients see them: HTTP in and out over real commands, in simulated time, with a scripted agent. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/gateway/durable.h"
#include "daemon/gateway/impl.h"
#include "proto/base/fd.h"
#include "tests/unit/command/world.h"

#define ANSWER_MAX 65536u

struct door {
	struct shop s;
	struct gateway g;
	struct http_server *server;
	uint16_t port;
	struct buf body;		/* of the request that is being read */
	int refused;			/* why the last one was not taken; 0 = it was */
};

/* A client's exchange. */
struct client {
	int fd;				/* -1: it hung up */
	char said[ANSWER_MAX];		/* to it, as it came */
	size_t n;
	bool closed;
};

static struct door door;
static struct client one, two;

static void begin(struct door *d, struct http_stream *x)
{
	struct durable_ask ask = { 0 };
	struct gateway_durable *stream;
	struct sandbox_glance at;

	CHECK(sandbox_glance(d->s.w.core, d->s.sandbox, &at));
	CHECK(!durable_ask_read(http_stream_head(x), buf_data(&d->body), buf_len(&d->body), &ask));
	buf_fini(&d->body);
	d->refused = gateway_durable_new(&d->g, &(struct durable_open){ .ask = &ask, .target = &at.target }, &stream);
	durable_ask_fini(&ask);
	if (d->refused)
		http_stream_release(x);
	else
		gateway_durable_begin(stream, x);
}

static void on_body(struct http_stream *x, void *user)
{
	struct door *d = user;

	CHECK(!http_stream_take(x, &d->body));
	if (http_stream_at_end(x))
		begin(d, x);
}

static void on_request(struct http_stream *x, void *user)
{
	http_stream_set_owner(x, on_body, user);
}

static int listen_on(uint16_t *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) && !listen(fd, 16));
	CHECK(!getsockname(fd, (struct sockaddr *)&a, &n));
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static void door_open(struct door *d)
{
	struct http_server_options so = { .http1 = true, .on_request = on_request, .user = d };

	*d = (struct door){ .refused = 1 };
	shop_open(&d->s);
	d->g.loop = d->s.w.loop;
	d->g.o.core = d->s.w.core;
	d->g.o.commands = d->s.cs;
	list_init(&d->g.durables);
	so.loop = d->s.w.loop;
	so.listen_fd = listen_on(&d->port);
	CHECK(!http_server_new(&so, &d->server));
}

static void hang_up(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static void door_close(struct door *d)
{
	gateway_durable_end_all(&d->g);
	CHECK_INT(d->g.counts.relays, 0);
	hang_up(&one);
	hang_up(&two);
	spin(&d->s.w, 20);
	d->server = http_server_free(d->server);
	shop_close(&d->s);
}

static void listen_to(struct client *c)
{
	ssize_t n;

	while (c->fd >= 0 && !c->closed && (n = recv(c->fd, c->said + c->n, ANSWER_MAX - c->n, 0)) != -1) {
		c->closed = n == 0;
		c->n += (size_t)n;
		CHECK(c->n < ANSWER_MAX);
	}
}

static bool heard(struct client *c, const char *text)
{
	listen_to(c);
	return memmem(c->said, c->n, text, strlen(text));
}

/* An open request with this message; with `headers` each ends with CRLF. */
static void ask(struct door *d, struct client *c, const char *method, const char *headers, const char *json)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(d->port) };
	char text[1024];
	int n = snprintf(text, sizeof(text), "POST /process.Process/%s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/connect+json\r\n%s"
			 "content-length: %zu\r\n\r\n", method, headers, strlen(json) + 5);

	*c = (struct client){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	CHECK(c->fd >= 0 && !connect(c->fd, (struct sockaddr *)&a, sizeof(a)) && !fd_set_nonblock(c->fd, true));
	memcpy(text + n, (char[5]){ [4] = (char)strlen(json) }, 5);
	memcpy(text + n + 5, json, strlen(json));
	d->refused = 1;
	CHECK_INT(send(c->fd, text, (size_t)n + 5 + strlen(json), MSG_NOSIGNAL), n + 5 + (int)strlen(json));
	UNTIL(&d->s.w, d->refused <= 0);
}

#define WORK "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-c\",\"work\"]}}"
#define PID7 "{\"process\":{\"pid\":7}}"

/* A command that runs as process 7, started by `one`. */
static struct agent_ask *begin_work(struct door *d)
{
	struct agent_ask *a;

	ask(d, &one, "Start", "", WORK);
	UNTIL(&d->s.w, agent_count(AGENT_START));
	a = agent_ask(AGENT_START, 0);
	agent_started(a, 7);
	UNTIL(&d->s.w, heard(&one, "{\"event\":{\"start\":{\"pid\":7}}}"));
	return a;
}

/* … whose stream was cut, and which `two` wants to connect to while there is none. */
static struct agent_ask *connect_without_stream(struct door *d)
{
	agent_fails(begin_work(d), ENVD_LOST, R_UNREACHABLE, "cut");
	UNTIL(&d->s.w, agent_count(AGENT_ATTACH));
	ask(d, &two, "Connect", "", PID7);
	CHECK_INT(d->refused, 0);
	spin(&d->s.w, 100);
	listen_to(&two);
	CHECK_INT(two.n, 0);
	return agent_ask(AGENT_ATTACH, 0);
}

TEST(another_client_connects_to_what_one_started)
{
	struct agent_ask *a;

	door_open(&door);
	a = begin_work(&door);
	agent_says(a, ENVD_STDOUT, "one");
	UNTIL(&door.s.w, heard(&one, "{\"event\":{\"data\":{\"stdout\":\"b25l\"}}}"));
	hang_up(&one);
	spin(&door.s.w, 1000);
	CHECK_INT(agent_count(AGENT_SIGNAL) + agent_count(AGENT_HELPER), 0);
	ask(&door, &two, "Connect", "", PID7);
	UNTIL(&door.s.w, heard(&two, "{\"event\":{\"start\":{\"pid\":7}}}"));
	agent_says(a, ENVD_STDOUT, "two");
	UNTIL(&door.s.w, heard(&two, "{\"event\":{\"data\":{\"stdout\":\"dHdv\"}}}"));
	CHECK(!heard(&two, "b25l"));
	agent_exits(a, 3);
	UNTIL(&door.s.w, heard(&two, "\"exitCode\":3") && heard(&two, "{}\r\n0\r\n"));
	ask(&door, &one, "Connect", "", PID7);	/* over: the agent's to answer */
	CHECK_INT(door.refused, -ENOENT);
	CHECK(door.g.counts.relayed_down > 0);
	door_close(&door);
}

TEST(a_client_that_goes_in_mid_start_leaves_its_command)
{
	struct command_view *v;
	size_t n;

	door_open(&door);
	ask(&door, &one, "Start", "", WORK);
	UNTIL(&door.s.w, agent_count(AGENT_START));
	hang_up(&one);
	UNTIL(&door.s.w, !door.g.counts.relays);
	agent_started(agent_ask(AGENT_START, 0), 7);
	turn(&door.s);
	CHECK_INT(commands_known(door.s.cs, &alice, "default", door.s.sandbox, &v, &n), 0);
	CHECK(n == 1 && v[0].pid == 7 && !v[0].result);
	free(v);
	ask(&door, &two, "Connect", "", PID7);
	UNTIL(&door.s.w, heard(&two, "{\"start\":{\"pid\":7}}"));
	door_close(&door);
}

TEST(a_cut_ends_the_stream_of_who_may_have_missed_something)
{
	uint64_t from;

	door_open(&door);
	agent_fails(begin_work(&door), ENVD_LOST, R_UNREACHABLE, "cut");
	UNTIL(&door.s.w, agent_count(AGENT_ATTACH));
	agent_started(agent_ask(AGENT_ATTACH, 0), 7);
	from = clock_boot_ms();
	UNTIL(&door.s.w, heard(&one, "{\"error\":{\"code\":\"unavailable\""));
	CHECK(clock_boot_ms() < from + 1000);	/* by the gap, and not by the end of all patience */
	door_close(&door);
}

/* What is lost meanwhile would end it anyhow: it is told soon, and not when the sandbox is in reach again. */
TEST(a_cut_that_is_not_mended_is_told)
{
	uint64_t from;

	door_open(&door);
	agent_fails(begin_work(&door), ENVD_LOST, R_UNREACHABLE, "cut");
	from = clock_boot_ms();
	UNTIL(&door.s.w, heard(&one, "{\"error\":{\"code\":\"unavailable\""));
	CHECK(clock_boot_ms() < from + 6000);
	CHECK_INT(agent_count(AGENT_ATTACH), 1);
	door_close(&door);
}

TEST(a_connect_waits_for_the_daemons_own_stream)
{
	struct agent_ask *a;

	door_open(&door);
	a = connect_without_stream(&door);
	agent_started(a, 7);
	UNTIL(&door.s.w, heard(&two, "{\"start\":{\"pid\":7}}"));
	agent_says(a, ENVD_STDOUT, "two");
	UNTIL(&door.s.w, heard(&two, "{\"data\":{\"stdout\":\"dHdv\"}}"));
	spin(&door.s.w, 70000);
	CHECK(!heard(&two, "error"));
	door_close(&door);
}

TEST(it_does_not_wait_for_ever)
{
	uint64_t from;

	door_open(&door);
	(void)connect_without_stream(&door);
	from = clock_boot_ms();
	UNTIL(&door.s.w, heard(&two, "{\"error\":{\"code\":\"unavailable\"") || clock_boot_ms() > from + 62000);
	CHECK(heard(&two, "unavailable") && clock_boot_ms() > from + 55000);
	door_close(&door);
}

/* As the agent would say it of a process that has ended. */
TEST(a_connect_to_a_process_that_is_not_there)
{
	door_open(&door);
	agent_fails(connect_without_stream(&door), ENVD_ANSWERED, R_PROCESS_NOT_FOUND, "no such process");
	UNTIL(&door.s.w, heard(&two, "{\"error\":{\"code\":\"not_found\",\"message\":\"process with pid 7 not found\"}}"));
	CHECK(!heard(&two, "start"));
	UNTIL(&door.s.w, heard(&one, "\"code\":\"unavailable\""));	/* its end was not seen */
	door_close(&door);
}

TEST(a_connect_to_a_sandbox_that_ends)
{
	struct agent_ask *a;

	door_open(&door);
	a = connect_without_stream(&door);
	fake_end(fake_find(door.s.w.fake, door.s.sandbox), "by somebody");
	agent_fails(a, ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	UNTIL(&door.s.w, heard(&two, "HTTP/1.1 502 "));
	UNTIL(&door.s.w, (listen_to(&one), one.closed));	/* it had begun: cut */
	CHECK(!heard(&one, "error"));
	door_close(&door);
}

TEST(a_connect_to_a_sandbox_that_is_paused_meanwhile)
{
	struct agent_ask *a;

	door_open(&door);
	a = connect_without_stream(&door);
	fake_find(door.s.w.fake, door.s.sandbox)->paused = true;
	agent_fails(a, ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	UNTIL(&door.s.w, heard(&two, "{\"error\":{\"code\":\"unavailable\",\"message\":\"the sandbox was paused"));
	door_close(&door);
}

TEST(deadlines)
{
	door_open(&door);
	ask(&door, &one, "Start", "connect-timeout-ms: 1500\r\n", WORK);
	UNTIL(&door.s.w, agent_count(AGENT_START));
	agent_started(agent_ask(AGENT_START, 0), 7);
	ask(&door, &two, "Connect", "connect-timeout-ms: 500\r\n", PID7);
	UNTIL(&door.s.w, heard(&two, "{\"error\":{\"code\":\"deadline_exceeded\""));
	CHECK(!heard(&one, "error"));
	UNTIL(&door.s.w, heard(&one, "{\"error\":{\"code\":\"deadline_exceeded\""));
	CHECK_INT(agent_count(AGENT_SIGNAL) + agent_count(AGENT_HELPER), 0); /* it is the agent's to end it */
	door_close(&door);
}

TEST(silence_is_kept_alive)
{
	door_open(&door);
	ask(&door, &one, "Start", "keepalive-ping-interval: 2\r\n", WORK);
	UNTIL(&door.s.w, agent_count(AGENT_START));
	agent_started(agent_ask(AGENT_START, 0), 7);
	UNTIL(&door.s.w, heard(&one, "start"));
	CHECK(!heard(&one, "keepalive"));
	UNTIL(&door.s.w, heard(&one, "{\"event\":{\"keepalive\":{}}}"));
	door_close(&door);
}

TEST(a_stop_of_the_gateway_ends_no_command)
{
	door_open(&door);
	(void)begin_work(&door);
	gateway_durable_end_all(&door.g);
	UNTIL(&door.s.w, (listen_to(&one), one.closed));
	spin(&door.s.w, 1000);
	CHECK_INT(agent_count(AGENT_SIGNAL) + agent_count(AGENT_HELPER), 0);
	ask(&door, &two, "Connect", "", PID7);
	UNTIL(&door.s.w, heard(&two, "start"));
	door_close(&door);
}

TEST_MAIN()
