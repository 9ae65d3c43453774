/* SPDX-License-Identifier: MIT */
#include "daemon/local/egress/egress.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/egress/egress_int.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"

#define EGRESS_MAGIC	0xe61e55e6u
#define ACCEPTS_PER_RUN 32
#define AGAIN_MS	100u

static struct egress *egress_from(void *p)
{
	struct egress *e = p;

	must(e && e->magic == EGRESS_MAGIC);
	return e;
}

static void egress_on_again(struct timer *t, void *user)
{
	struct egress *e = egress_from(user);

	if (!e->is_closed && watch_set(&e->tcp_watch, WATCH_READ) < 0)
		log_warn("egress_deaf", "id=%s", e->id);
}

/* Descriptors are short: those that wait do so a little longer. */
static void pause_accepting(struct egress *e, int err)
{
	log_warn("egress_accept", "id=%s error=%d action=\"tried again\"", e->id, err);
	if (timer_set(&e->again, loop_now_ms(e->loop) + AGAIN_MS) == 0)
		(void)!watch_set(&e->tcp_watch, 0);
}

static void on_connection(struct watch *w, unsigned ready, void *user)
{
	struct egress *e = egress_from(user);

	for (int i = 0; i < ACCEPTS_PER_RUN; i++) {
		int fd, r = fd_accept(e->tcp, &fd);

		if (r == 0) {
			egress_flow_start(e, fd);
		} else if (r == -EMFILE || r == -ENFILE || r == -ENOBUFS || r == -ENOMEM) {
			pause_accepting(e, -r);
			return;
		} else if (r != -ECONNABORTED) {
			return;
		}
	}
}

static void on_question(struct watch *w, unsigned ready, void *user)
{
	egress_dns_read(egress_from(user));
}

int egress_new(const struct egress_options *o, struct egress **ret)
{
	struct egress *e = calloc(1, sizeof(*e));
	int r = e ? 0 : -ENOMEM;

	if (r < 0) {
		fd_close(o->tcp);
		fd_close(o->udp);
		return r;
	}
	*e = (struct egress){ .magic = EGRESS_MAGIC, .loop = o->loop, .host = o->host, .id = o->id,
			      .tcp = o->tcp, .udp = o->udp };
	list_init(&e->flows);
	list_init(&e->questions);
	timer_init(&e->again, e->loop, egress_on_again, e);
	r = egrule_new(NULL, true, &e->rules);
	if (r == 0)
		r = watch_init(&e->tcp_watch, e->loop, e->tcp, on_connection, e);
	if (r == 0)
		r = watch_set(&e->tcp_watch, WATCH_READ);
	if (r == 0)
		r = watch_init(&e->udp_watch, e->loop, e->udp, on_question, e);
	if (r == 0)
		r = watch_set(&e->udp_watch, WATCH_READ);
	if (r < 0) {
		egress_free(e);
		return r;
	}
	*ret = e;
	return 0;
}

static void free_now(void *p)
{
	struct egress *e = egress_from(p);

	e->magic = 0;
	free(e);
}

struct egress *egress_free(struct egress *e)
{
	if (!e)
		return NULL;
	egress_cut(e);
	timer_clear(&e->again);
	watch_fini(&e->tcp_watch);
	watch_fini(&e->udp_watch);
	e->tcp = fd_close(e->tcp);
	e->udp = fd_close(e->udp);
	e->rules = egrule_free(e->rules);
	loop_bury(e->loop, &e->grave, free_now, e);
	return NULL;
}

/*
 * Where nothing may go out, a connection is better refused than accepted and reset. What has left
 * the listening state is still bound, and may enter it again.
 */
static int set_closed(struct egress *e, bool is_closed)
{
	int r;

	if (e->is_closed == is_closed)
		return 0;
	r = is_closed ? shutdown(e->tcp, SHUT_RD) : listen(e->tcp, SOMAXCONN);
	if (r < 0)
		return -errno;
	e->is_closed = is_closed;
	return watch_set(&e->tcp_watch, is_closed ? 0 : WATCH_READ);
}

int egress_set(struct egress *e, const struct cloud_network *network, bool block)
{
	struct egrule *rules;
	int r = egrule_new(network, block, &rules);

	if (r == 0) {
		r = set_closed(e, egrule_is_closed(rules));
		if (r < 0)
			egrule_free(rules);
	}
	if (r < 0)
		return r;
	if (!egrule_has_same_proxy(e->rules, rules))
		egress_flows_cut(e);
	egrule_free(e->rules);
	e->rules = rules;
	egress_flows_check(e);
	if (!egrule_dns(rules))
		egress_dns_cut(e);
	return 0;
}

void egress_cut(struct egress *e)
{
	if (!e)
		return;
	egress_flows_cut(e);
	egress_dns_cut(e);
}

int egress_reset(int fd)
{
	const struct linger now = { .l_onoff = 1, .l_linger = 0 };

	if (fd >= 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	return fd_close(fd);
}
