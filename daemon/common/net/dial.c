/* SPDX-License-Identifier: MIT */
/*
 * One connection to somewhere, in the order it happens: resolve, connect (families race, RFC 8305),
 * CONNECT through a proxy, TLS with ALPN. One deadline for all of it; one end, never from inside
 * http_dial().
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/net/http_impl.h"
#include "daemon/common/net/proxy.h"
#include "daemon/common/net/resolve.h"
#include "daemon/common/net/tls.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define DIAL_MAGIC 0x6469616cu
#define STAGGER_MS 250u	/* an attempt's head start over the next */

struct attempt {
	struct http_dial *d;
	struct watch watch;
	int fd;
};

struct http_dial {
	uint32_t magic;
	struct http_dial_options o;	/* strings are ours */
	struct loop *loop;
	struct proxy *proxy;		/* NULL = direct */
	const char *step;		/* for a person */
	struct defer begin;
	struct timer stagger, deadline;
	struct grave grave;
	/* resolve */
	struct resolve_query *query;
	struct resolve_answer answer;
	/* connect */
	struct attempt attempts[RESOLVE_ADDRESSES_MAX];
	unsigned n_tried, n_pending;
	char error[128];		/* of the first address that failed */
	/* proxy, TLS */
	struct proxy_talk *talk;
	struct http_conn *c;
};

static struct http_dial *dial_from(void *p)
{
	struct http_dial *d = p;

	must(d && d->magic == DIAL_MAGIC);
	return d;
}

/* --- the end --- */

static void close_attempts(struct http_dial *d)
{
	for (unsigned i = 0; i < d->n_tried; i++) {
		watch_fini(&d->attempts[i].watch);
		d->attempts[i].fd = fd_close(d->attempts[i].fd);
	}
	d->n_pending = 0;
	timer_clear(&d->stagger);
}

static void dial_free(void *p)
{
	struct http_dial *d = dial_from(p);

	free((char *)(uintptr_t)d->o.host);
	free((char *)(uintptr_t)d->o.connect_host);
	proxy_free(d->proxy);
	d->magic = 0;
	free(d);
}

/* Stops everything that could call back, and goes at the end of the pass. */
static void dial_end(struct http_dial *d)
{
	defer_cancel(&d->begin);
	timer_clear(&d->deadline);
	if (d->query)
		resolve_cancel(d->query);
	d->query = NULL;
	close_attempts(d);
	d->talk = proxy_talk_free(d->talk);
	if (d->c)
		conn_discard(d->c);
	d->c = NULL;
	d->o.tls = tls_client_unref(d->o.tls);
	loop_bury(d->loop, &d->grave, dial_free, d);
}

static void dial_fail(struct http_dial *d, const struct status *why)
{
	struct http_dial_options o = d->o;

	dial_end(d);
	o.done(NULL, why, o.user);
}

static void on_deadline(struct timer *t, void *user)
{
	struct http_dial *d = dial_from(user);
	struct status st;

	status_set(&st, R_DEADLINE_REQUEST, "no connection to %s:%u in time (while %s%s%s)", d->o.host,
		   d->o.port, d->step, d->error[0] ? "; " : "", d->error);
	dial_fail(d, &st);
}

void http_dial_cancel(struct http_dial *d)
{
	dial_end(dial_from(d));
}

/* --- TLS and what comes after --- */

static void on_conn(struct http_conn *c, const struct status *failure, void *user)
{
	struct http_dial *d = dial_from(user);
	struct http_dial_options o = d->o;

	d->c = NULL;
	if (failure) {
		dial_fail(d, failure);
		return;
	}
	c->closed = o.closed;
	c->changed = o.changed;
	c->owner = c->user = o.user;
	c->seen_free = http_conn_free_streams(c);
	dial_end(d);
	o.done(c, NULL, o.user);
}

static void make_conn(struct http_dial *d, int fd)
{
	struct http_conn_options o = {
		.loop = d->loop,
		.fd = fd,
		.stream_window = d->o.stream_window,
		.send_max = d->o.send_max,
		.quota = d->o.quota,
	};
	int r = 0;

	d->step = "agreeing on TLS";
	if (d->o.tls)
		r = tls_conn_client(d->o.tls, d->o.host, d->o.port, d->o.http1_only, &o.tls);
	if (r < 0)
		fd_close(fd);
	else
		r = conn_new(&o, &d->c);
	if (r < 0) {
		struct status st;

		status_errno(&st, r, "connecting");
		dial_fail(d, &st);
		return;
	}
	d->c->ready = on_conn;
	d->c->owner = d;
	d->c->plain_http2 = d->o.plain_http2;
	conn_start(d->c);
}

static void on_talked(int fd, const struct status *failure, void *user)
{
	struct http_dial *d = dial_from(user);

	d->talk = NULL;
	if (failure)
		dial_fail(d, failure);
	else
		make_conn(d, fd);
}

static void on_connected(struct http_dial *d, int fd)
{
	const char *host = d->o.connect_host ? d->o.connect_host : d->o.host;
	int r;

	if (!d->proxy) {
		make_conn(d, fd);
		return;
	}
	d->step = "waiting for the proxy";
	r = proxy_talk(d->proxy, d->loop, fd, host, d->o.port, on_talked, d, &d->talk);
	if (r < 0) {
		struct status st;

		status_errno(&st, r, "talking to the proxy");
		dial_fail(d, &st);
	}
}

/* --- connect --- */

static const char *dialled_host(const struct http_dial *d)
{
	return d->proxy ? d->proxy->host : d->o.connect_host ? d->o.connect_host : d->o.host;
}

static uint16_t dialled_port(const struct http_dial *d)
{
	return d->proxy ? d->proxy->port : d->o.port;
}

static void unreachable(struct http_dial *d, const char *what, const char *error)
{
	struct status st;

	if (d->proxy)
		status_set(&st, R_PROXY_FAILED, "cannot %s the proxy %s:%u: %s", what, d->proxy->host,
			   d->proxy->port, error);
	else
		status_set(&st, R_UNREACHABLE, "cannot %s %s:%u: %s", what, dialled_host(d),
			   dialled_port(d), error);
	dial_fail(d, &st);
}

static void note_error(struct http_dial *d, const struct resolve_address *a, int err)
{
	char text[64];

	if (d->error[0])
		return;
	sock_text(&a->sa, text, sizeof(text));
	snprintf(d->error, sizeof(d->error), "%s (%s)", strerror(-err), text);
}

static void connect_next(struct http_dial *d);

static void on_attempt(struct watch *w, unsigned ready, void *user)
{
	struct attempt *a = user;
	struct http_dial *d = dial_from(a->d);
	const struct resolve_address *addr = &d->answer.v[a - d->attempts];
	int fd = a->fd, r = sock_error(fd);

	watch_fini(&a->watch);
	a->fd = -1;
	d->n_pending--;
	if (r < 0) {
		fd_close(fd);
		note_error(d, addr, r);
		connect_next(d);
		return;
	}
	close_attempts(d);
	if (d->o.resolver)
		resolver_family_worked(d->o.resolver, dialled_host(d), addr->sa.sa_family);
	on_connected(d, fd);
}

static int start_attempt(struct http_dial *d, struct attempt *a, const struct resolve_address *addr)
{
	int r = sock_connect(&addr->sa, addr->len, &a->fd);

	if (r < 0 && r != -EINPROGRESS)
		return r;
	r = watch_init(&a->watch, d->loop, a->fd, on_attempt, a);
	if (!r)
		r = watch_set(&a->watch, WATCH_WRITE);
	if (r < 0) {
		watch_fini(&a->watch);
		a->fd = fd_close(a->fd);
	}
	return r;
}

static void connect_next(struct http_dial *d)
{
	while (d->n_tried < d->answer.n) {
		unsigned i = d->n_tried++;
		int r;

		d->attempts[i] = (struct attempt){ .d = d, .fd = -1 };
		r = start_attempt(d, &d->attempts[i], &d->answer.v[i]);
		if (r == 0) {
			d->n_pending++;
			/* Without a timer the next address waits for this one to fail. */
			if (d->n_tried < d->answer.n)
				(void)!timer_set(&d->stagger, clock_boot_ms() + STAGGER_MS);
			return;
		}
		note_error(d, &d->answer.v[i], r);
	}
	timer_clear(&d->stagger);
	if (!d->n_pending)
		unreachable(d, "connect to", d->error);
}

static void on_stagger(struct timer *t, void *user)
{
	connect_next(dial_from(user));
}

/* --- resolve --- */

static void on_resolved(const struct resolve_answer *answer, const char *error, void *user)
{
	struct http_dial *d = dial_from(user);

	d->query = NULL;
	if (!answer) {
		unreachable(d, "resolve", error);
		return;
	}
	d->answer = *answer;
	resolve_interleave(&d->answer, resolver_family(d->o.resolver, dialled_host(d)));
	d->step = "connecting";
	connect_next(d);
}

static void on_begin(struct defer *defer, void *user)
{
	struct http_dial *d = dial_from(user);
	const char *host = dialled_host(d);

	if (resolve_literal(host, dialled_port(d), &d->answer)) {
		d->step = "connecting";
		connect_next(d);
		return;
	}
	d->step = "resolving the name";
	if (!d->o.resolver)
		unreachable(d, "resolve", "no resolver");
	else if (resolve_start(d->o.resolver, host, dialled_port(d), on_resolved, d, &d->query) < 0)
		unreachable(d, "resolve", strerror(ENOMEM));
}

static void on_bad_proxy(struct defer *defer, void *user)
{
	struct http_dial *d = dial_from(user);
	struct status st;

	status_set(&st, R_PROXY_FAILED,
		   "the proxy's address is not like http://[user:password@]host:port");
	dial_fail(d, &st);
}

int http_dial(const struct http_dial_options *o, struct http_dial **ret)
{
	struct http_dial *d = calloc(1, sizeof(*d));
	int r = 0;

	if (!d)
		return -ENOMEM;
	d->magic = DIAL_MAGIC;
	d->loop = o->loop;
	d->o = *o;
	d->o.host = str_dup(o->host);
	d->o.connect_host = str_dup(o->connect_host);
	d->step = "beginning";
	if (!d->o.host || (o->connect_host && !d->o.connect_host))
		r = -ENOMEM;
	if (!r && o->proxy)
		r = proxy_parse(o->proxy, &d->proxy);
	timer_init(&d->stagger, o->loop, on_stagger, d);
	timer_init(&d->deadline, o->loop, on_deadline, d);
	defer_init(&d->begin, o->loop, r == -EINVAL ? on_bad_proxy : on_begin, d);
	if (r == -EINVAL)
		r = 0;
	if (!r && o->deadline_ms)
		r = timer_set(&d->deadline, o->deadline_ms);
	if (r < 0) {
		dial_free(d);
		return r;
	}
	if (o->tls)
		d->o.tls = tls_client_ref(o->tls);
	defer_post(&d->begin);
	*ret = d;
	return 0;
}
