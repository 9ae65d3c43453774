/* SPDX-License-Identifier: MIT */
/*
 * The client and its face to event loops. Invariants: `ready` callbacks run at the end of
 * ab_process() and nowhere else; a process uses only connections that it made itself.
 */
#include "client/lib/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client/lib/error.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define CLIENT_MAGIC  0x6162636cu
#define PASSES_MAX    64u	/* then back to the event loop; there is more to do at once */

const char *ab_version(void)
{
	return AB_VERSION;
}

static int options_apply(struct ab_client *c, const struct ab_client_options *o)
{
	int r;

	if (o->socket) {
		r = dial_check_path(o->socket);
		if (r < 0)
			return r;
		c->socket = str_dup(o->socket);
		if (!c->socket)
			return -ENOMEM;
	}
	if (o->wait_ms)
		c->wait_ms = o->wait_ms == AB_ZERO_MS ? 0 : o->wait_ms;
	if (o->deadline_ms)
		c->deadline_ms = o->deadline_ms;
	c->notice = o->notice;
	c->notice_user = o->notice_user;
	return 0;
}

int ab_client_new(const struct ab_client_options *o, struct ab_client **ret)
{
	static const struct ab_client_options none;
	struct ab_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	if (!o)
		o = &none;
	c->magic = CLIENT_MAGIC;
	c->pid = getpid();
	c->wait_ms = DEFAULT_WAIT_MS;
	c->deadline_ms = DEFAULT_DEADLINE_MS;
	c->next_deadline_ms = NO_TIME;
	list_init(&c->conns);
	list_init(&c->calls);
	list_init(&c->queued);
	list_init(&c->noted);
	list_init(&c->calling);
	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r = c->epoll_fd < 0 ? -errno : options_apply(c, o);
	if (r == 0) {
		c->rx = malloc(READ_BYTES);
		c->user_agent = str_printf("libagentbox/%s%s%s", AB_VERSION, o->user_agent ? " " : "",
					   o->user_agent ? o->user_agent : "");
		if (!c->rx || !c->user_agent)
			r = -ENOMEM;
	}
	if (r < 0) {
		ab_client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void ab_client_free(struct ab_client *c)
{
	if (!c)
		return;
	must(c->magic == CLIENT_MAGIC && !c->in_callback);
	client_enter(c);
	list_for_each_safe(n, &c->calls)
		call_destroy(list_entry(n, struct ab_call, link));
	list_for_each_safe(n, &c->conns) {
		struct conn *conn = list_entry(n, struct conn, link);

		conn_flush(conn);
		conn_free(conn);
	}
	fd_close(c->epoll_fd);
	error_free(c->error);
	free(c->socket);
	free(c->user_agent);
	free(c->rx);
	c->magic = 0;
	free(c);
}

/* The child's copy: the parent's connection is not ours to speak on, nor to say goodbye on. */
static void client_forked(struct ab_client *c)
{
	c->pid = getpid();
	list_for_each_safe(n, &c->calls) {
		struct ab_call *call = list_entry(n, struct ab_call, link);

		if (call->state != CALL_DONE)
			call_finish(call, error_local(AB_CANCELLED, REASON_NONE,
						      "the process forked: the call goes on in the parent"));
	}
	list_for_each_safe(n, &c->noted)
		list_del(n);
	list_for_each_safe(n, &c->calling)
		list_del(n);
	list_for_each_safe(n, &c->conns)
		conn_free(list_entry(n, struct conn, link));
	fd_close(c->epoll_fd);
	c->epoll_fd = -1;
	c->dialing = false;
	c->next_deadline_ms = NO_TIME;
}

void client_enter(struct ab_client *c)
{
	must(c && c->magic == CLIENT_MAGIC);
	if (c->pid != getpid())
		client_forked(c);
	if (c->epoll_fd < 0)
		c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
}

void client_queue(struct ab_client *c, struct ab_call *call)
{
	list_del(&call->queue_link);
	list_add_tail(&c->queued, &call->queue_link);
	if (call->deadline_at_ms < c->next_deadline_ms)
		c->next_deadline_ms = call->deadline_at_ms;
}

void client_note(struct ab_client *c, struct ab_call *call)
{
	call->progressed = true;
	if (!call->ready)
		return;
	list_del(&call->noted_link);
	list_add_tail(&c->noted, &call->noted_link);
}

void client_set_error(struct ab_client *c, const struct ab_error *e)
{
	error_free(c->error);
	c->error = e;
}

const struct ab_error *ab_client_error(const struct ab_client *c)
{
	return c->error;
}

const char *ab_socket(const struct ab_client *c)
{
	return c->dial.path[0] ? c->dial.path : c->socket ? c->socket : "";
}

/* --- reaching the daemon --- */

static struct conn *client_conn(const struct ab_client *c)
{
	list_for_each(n, &c->conns) {
		struct conn *conn = list_entry(n, struct conn, link);

		if (!conn->retiring)
			return conn;
	}
	return NULL;
}

/* A connection that may take calls. */
static struct conn *client_open_conn(const struct ab_client *c)
{
	struct conn *conn = client_conn(c);

	return conn && conn->greeted ? conn : NULL;
}

static const struct ab_error *error_unreachable(const struct ab_client *c)
{
	if (c->dial_why)
		return error_local(AB_UNAVAILABLE, R_UNREACHABLE, "the daemon at %s %s", c->dial.path, c->dial_why);
	return error_local(AB_UNAVAILABLE, R_UNREACHABLE, "no daemon answers at %s%s", c->dial.text,
			   c->dial.denied ? "" : "; is agentboxd running?");
}

static void client_give_up(struct ab_client *c)
{
	struct ab_call *call;

	c->dialing = false;
	c->gave_up = true;
	while ((call = list_first(&c->queued, struct ab_call, queue_link)))
		call_finish(call, error_unreachable(c));
}

static void client_begin_dialing(struct ab_client *c, uint64_t now_ms)
{
	if (c->dialing)
		return;
	c->dialing = true;
	c->gave_up = false;
	c->dial_why = NULL;
	c->dial_until_ms = now_ms + MIN(c->wait_ms, (uint64_t)INT32_MAX);
	c->dial_next_ms = now_ms;
}

/* true: connected, or gave up. */
static bool client_dial(struct ab_client *c, uint64_t now_ms)
{
	struct conn *conn;
	int fd, r;

	client_begin_dialing(c, now_ms);
	if (c->dial_why && now_ms >= c->dial_until_ms) {
		client_give_up(c);
		return true;
	}
	if (now_ms < c->dial_next_ms)
		return false;
	r = dial_try(c->socket, &c->dial, &fd);
	if (r == 0) {
		r = conn_new(c, fd, now_ms, &conn);
		if (r < 0)
			fd_close(fd);
	}
	c->dial_next_ms = MIN(now_ms + DIAL_EVERY_MS, MAX(c->dial_until_ms, now_ms));
	if (r == 0)
		return true;
	if (c->dial.later && now_ms < c->dial_until_ms)
		return false;
	c->dial_why = NULL;
	client_give_up(c);
	return true;
}

static bool client_send_queued(struct ab_client *c, uint64_t now_ms)
{
	bool worked = false;

	while (!list_is_empty(&c->queued)) {
		struct ab_call *call = list_first(&c->queued, struct ab_call, queue_link);
		struct conn *conn = client_conn(c);
		int r;

		if (!conn)
			return client_dial(c, now_ms) || worked;
		if (!conn->greeted)
			return worked;
		r = call_open(call, conn, now_ms);
		if (r == -EAGAIN)
			return worked;
		if (r < 0)
			call_finish(call, error_errno(r));
		worked = true;
	}
	return worked;
}

/* --- the passes of ab_process() --- */

static void client_expire(struct ab_client *c, uint64_t now_ms)
{
	if (now_ms < c->next_deadline_ms)
		return;
	c->next_deadline_ms = NO_TIME;
	list_for_each_safe(n, &c->calls) {
		struct ab_call *call = list_entry(n, struct ab_call, link);
		uint64_t at = call->deadline_at_ms;

		if (call->state == CALL_DONE || at == NO_TIME)
			continue;
		if (call->state == CALL_OPEN)
			at += DEADLINE_GRACE_MS;
		if (at > now_ms)
			c->next_deadline_ms = MIN(c->next_deadline_ms, at);
		else
			call_finish(call, error_local(AB_DEADLINE_EXCEEDED, R_DEADLINE_REQUEST,
						      "the daemon did not answer within the call's deadline"));
	}
}

/* A connection counts from the daemon's first word on: what was not sent before it is in no doubt. */
static void client_greet(struct ab_client *c, struct conn *conn)
{
	if (conn->greeted)
		return;
	conn->greeted = h2_settings_received(conn->h2);
	if (conn->greeted && !conn->retiring)
		c->dialing = false;
	else if (conn->retiring && !c->dial_why)
		c->dial_why = "ends each connection at once; see its log";
}

static bool client_pass(struct ab_client *c, uint64_t now_ms)
{
	bool worked = false;

	/* reading comes first: a connection that was closed meanwhile must not get the next call */
	list_for_each_safe(n, &c->conns) {
		struct conn *conn = list_entry(n, struct conn, link);

		worked = conn_pass(conn, now_ms) || worked;
		client_greet(c, conn);
		worked = conn_check_silence(conn, now_ms) || worked;
		conn_reap(conn);
	}
	return client_send_queued(c, now_ms) || worked;
}

static void client_call_back(struct ab_client *c)
{
	list_take(&c->calling, &c->noted);
	while (!list_is_empty(&c->calling)) {
		struct ab_call *call = list_first(&c->calling, struct ab_call, noted_link);

		list_del(&call->noted_link);
		c->in_callback = true;
		call->ready(call, call->user);
		c->in_callback = false;
		client_enter(c);	/* it may have forked; what is left is then the parent's to hear */
	}
}

int ab_process(struct ab_client *c)
{
	uint64_t now_ms;
	unsigned passes = 0;

	client_enter(c);
	if (c->in_callback)
		return -EDEADLK;
	if (c->epoll_fd < 0)
		return -errno;
	now_ms = clock_boot_ms();
	while (client_pass(c, now_ms) && ++passes < PASSES_MAX)
		;
	client_expire(c, now_ms);
	list_for_each_safe(n, &c->conns)
		conn_flush(list_entry(n, struct conn, link));
	client_call_back(c);
	return 0;
}

int ab_fd(struct ab_client *c)
{
	client_enter(c);
	return c->epoll_fd;
}

int ab_events(struct ab_client *c)
{
	client_enter(c);
	return POLLIN;
}

static bool work_is_due(const struct ab_client *c)
{
	if (!list_is_empty(&c->noted))
		return true;
	list_for_each(n, &c->conns) {
		struct conn *conn = list_entry(n, struct conn, link);

		if (conn->fd >= 0 && !conn->blocked && !conn->send_broken && h2_wants_output(conn->h2))
			return true;
		if (conn->greeted && !conn->retiring && !list_is_empty(&c->queued) && h2_free_streams(conn->h2))
			return true;
	}
	return !list_is_empty(&c->queued) && !c->dialing && !client_conn(c);
}

int ab_timeout(struct ab_client *c)
{
	uint64_t at, now_ms;

	client_enter(c);
	if (work_is_due(c))
		return 0;
	at = c->next_deadline_ms;
	if (c->dialing && !client_conn(c))
		at = MIN(at, c->dial_next_ms);
	list_for_each(n, &c->conns)
		at = MIN(at, conn_silence_due_ms(list_entry(n, struct conn, link)));
	if (at == NO_TIME)
		return -1;
	now_ms = clock_boot_ms();
	return at <= now_ms ? 0 : (int)MIN(at - now_ms, (uint64_t)INT32_MAX);
}

/* --- making the connection now --- */

int ab_connect(struct ab_client *c)
{
	client_enter(c);
	client_set_error(c, NULL);
	if (c->in_callback) {
		client_set_error(c, error_errno(-EDEADLK));
		return AB_FAILED_PRECONDITION;
	}
	(void)ab_process(c);	/* one that was lost meanwhile is none */
	c->gave_up = false;
	while (!client_open_conn(c)) {
		int r;

		if (!client_conn(c))
			(void)client_dial(c, clock_boot_ms());
		if (c->gave_up) {
			client_set_error(c, error_unreachable(c));
			return AB_UNAVAILABLE;
		}
		r = client_wait(c, (int)DIAL_EVERY_MS);
		if (r < 0) {
			client_set_error(c, error_errno(r));
			return (int)c->error->status;
		}
	}
	return AB_OK;
}

int ab_parse_duration(const char *text, uint64_t *ret_ms)
{
	return str_duration_ms(text, ret_ms);
}
