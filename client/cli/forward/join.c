/* SPDX-License-Identifier: MIT */
#include "client/cli/forward/forward.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- beginnings and ends --- */

struct forward_conn *forward_conn_new(int local, uint16_t remote, int64_t until_ms)
{
	struct forward_conn *c = malloc(sizeof(*c));

	if (!c) {
		(void)close(local);
		return NULL;
	}
	*c = (struct forward_conn){ .state = FORWARD_WAITS, .local = local, .gate = -1, .remote = remote, .until_ms = until_ms };
	return c;
}

struct forward_conn *forward_conn_free(struct forward_conn *c)
{
	struct forward_conn *next = c->next;

	(void)close(c->local);
	if (c->gate >= 0)
		(void)close(c->gate);
	free(c);
	return next;
}

static void end(struct forward_conn *c, const char *why)
{
	if (why && !c->why[0])
		(void)snprintf(c->why, sizeof(c->why), "%s", why);
	c->state = FORWARD_OVER;
}

/* --- to the gateway --- */

/* Nothing of the client's was passed on: another address, or all of them again in a moment. */
static void fail_dial(struct forward_conn *c, const struct forward_gateway *g, const char *why, int64_t now_ms)
{
	if (c->gate >= 0)
		(void)close(c->gate);
	c->gate = -1;
	c->state = FORWARD_WAITS;
	c->down.from = c->down.to = 0;
	if (++c->tried % g->n == 0 && now_ms >= c->until_ms)
		end(c, why);
}

static void say_where(struct forward_conn *c, const struct forward_gateway *g)
{
	struct forward_pipe *up = &c->up;
	int n = snprintf(up->bytes, FORWARD_HEAD_BYTES,
			 "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: agentboxd-forward\r\n"
			 "AgentBox-Sandbox-Id: %s\r\nAgentBox-Sandbox-Port: %u\r\nAgentboxd-Token: %s\r\n\r\n",
			 g->sandbox, c->remote, g->token);

	if (n < 0 || n >= (int)FORWARD_HEAD_BYTES) {
		end(c, "the sandbox's id is too long");
		return;
	}
	up->to = (size_t)n;
	c->state = FORWARD_ASKS;
}

static void dial(struct forward_conn *c, const struct forward_gateway *g, int64_t now_ms)
{
	size_t i = c->tried % g->n;
	const struct sockaddr *at = (const struct sockaddr *)&g->at[i];
	int one = 1;

	c->gate = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->gate < 0) {
		fail_dial(c, g, strerror(errno), now_ms);
		return;
	}
	if (at->sa_family != AF_UNIX)
		(void)setsockopt(c->gate, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(c->gate, at, g->len[i]) == 0)
		say_where(c, g);
	else if (errno == EINPROGRESS)
		c->state = FORWARD_DIALS;
	else
		fail_dial(c, g, strerror(errno), now_ms);
}

static void on_dialled(struct forward_conn *c, const struct forward_gateway *g, int64_t now_ms)
{
	socklen_t n = sizeof(int);
	int err = 0;

	if (getsockopt(c->gate, SOL_SOCKET, SO_ERROR, &err, &n) < 0)
		err = errno;
	if (err)
		fail_dial(c, g, strerror(err), now_ms);
	else
		say_where(c, g);
}

/* --- bytes --- */

/* Reads what there is room for; false: the connection broke. */
static bool fill(struct forward_pipe *p, int fd)
{
	ssize_t n;

	if (p->from == p->to)
		p->from = p->to = 0;
	if (p->eof || p->to == sizeof(p->bytes))
		return true;
	n = recv(fd, p->bytes + p->to, sizeof(p->bytes) - p->to, 0);
	if (n > 0)
		p->to += (size_t)n;
	else if (n == 0)
		p->eof = true;
	return n >= 0 || errno == EAGAIN || errno == EINTR;
}

static bool drain(struct forward_pipe *p, int fd)
{
	ssize_t n;

	if (p->from < p->to) {
		n = send(fd, p->bytes + p->from, p->to - p->from, MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		p->from += (size_t)n;
	}
	if (p->from == p->to && p->eof && !p->shut) {
		p->shut = true;
		(void)shutdown(fd, SHUT_WR);
	}
	return true;
}

static void take_answer(struct forward_conn *c, const struct forward_gateway *g, int64_t now_ms)
{
	struct forward_pipe *p = &c->down;
	char why[FORWARD_WHY_BYTES];
	size_t used;

	if (!p->to && p->eof) {		/* it stops, or went */
		p->eof = false;
		fail_dial(c, g, "the gateway hung up", now_ms);
		return;
	}
	switch (forward_answer_read(p->bytes, p->to, p->eof || p->to == sizeof(p->bytes), &used, why)) {
	case FORWARD_MORE:
		break;
	case FORWARD_AGREED:
		p->from = used;
		c->state = FORWARD_JOINED;
		break;
	case FORWARD_REFUSED:
		end(c, why);
		break;
	}
}

static void await_answer(struct forward_conn *c, const struct forward_gateway *g, int64_t now_ms)
{
	if (!drain(&c->up, c->gate) || !fill(&c->down, c->gate))
		fail_dial(c, g, strerror(errno), now_ms);
	else
		take_answer(c, g, now_ms);
}

static void join(struct forward_conn *c)
{
	if (!fill(&c->up, c->local) || !fill(&c->down, c->gate) || !drain(&c->up, c->gate) || !drain(&c->down, c->local) ||
	    (c->down.shut && c->up.shut))
		end(c, NULL);
}

/* --- the loop's --- */

static short wants(const struct forward_pipe *in, const struct forward_pipe *out)
{
	bool reads = !in->eof && (in->from == in->to || in->to < sizeof(in->bytes)), writes = out->from < out->to;

	return (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
}

void forward_conn_poll(const struct forward_conn *c, struct pollfd p[2])
{
	bool joined = c->state == FORWARD_JOINED;

	p[0] = (struct pollfd){ .fd = -1 };
	p[1] = (struct pollfd){ .fd = c->gate, .events = c->state == FORWARD_DIALS ? POLLOUT : wants(&c->down, &c->up) };
	if (joined)
		p[0] = (struct pollfd){ .fd = c->local, .events = wants(&c->up, &c->down) };
	/* With nothing to wait for, an error would be told without end. */
	for (unsigned i = 0; i < 2; i++)
		if (!p[i].events)
			p[i].fd = -1;
}

void forward_conn_go(struct forward_conn *c, const struct forward_gateway *g, const struct pollfd p[2], int64_t now_ms)
{
	if (c->state == FORWARD_WAITS)
		dial(c, g, now_ms);
	else if (c->state == FORWARD_DIALS && p[1].revents)
		on_dialled(c, g, now_ms);
	else if (c->state == FORWARD_ASKS && p[1].revents)
		await_answer(c, g, now_ms);
	else if (c->state == FORWARD_JOINED && (p[0].revents || p[1].revents))
		join(c);
}
