/* SPDX-License-Identifier: MIT */
/* Listeners, connections with their principals, the table of methods. */
#include "daemon/rpc/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/auth/owner.h"
#include "daemon/common/net/http.h"
#include "daemon/common/obs/log.h"
#include "daemon/rpc/internal.h"
#include "daemon/rpc/limits.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/peer.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/grpc.h"
#include "proto/wire/h2.h"

static void conn_free(void *p)
{
	struct rpc_conn *conn = p;

	watch_fini(&conn->death);
	rpc_right_end(conn);
	fd_close(conn->who.pidfd);
	list_del(&conn->node);
	if (conn->charge)
		admit_give_back(&conn->server->admit, conn->charge, ADMIT_CONN);
	quota_give(conn->quota, sizeof(*conn));
	quota_unref(conn->quota);
	free(conn);
}

static void conn_bury_if_done(struct rpc_conn *conn)
{
	if (!conn->http && !conn->n_calls && !conn->server->ending)
		loop_bury(conn->server->loop, &conn->grave, conn_free, conn);
}

void rpc_conn_unref(struct rpc_conn *conn)
{
	must(conn->n_calls);
	conn->n_calls--;
	conn_bury_if_done(conn);
}

#define LOG_BURST 100u
#define LOG_PER_S 10u

bool rpc_may_log(struct rpc_server *s)
{
	uint64_t now = loop_now_ms(s->loop), gained = (now - s->log_ms) * LOG_PER_S / 1000;

	if (gained) {
		s->log_tokens = (unsigned)MIN(s->log_tokens + gained, LOG_BURST);
		s->log_ms = now;
	}
	if (!s->log_tokens) {
		s->n_unlogged++;
		return false;
	}
	s->log_tokens--;
	if (s->n_unlogged)
		log_info("clients_unlogged", "lines=%u", s->n_unlogged);
	s->n_unlogged = 0;
	return true;
}

/* --- memory ------------------------------------------------------------------------------------- */

static void on_feed(struct timer *t, void *user)
{
	rpc_calls_feed(user);
}

/* The one that holds most of those without memory left whose clients read nothing. */
static struct rpc_conn *find_stalled(struct rpc_server *s, bool *ret_more)
{
	struct rpc_conn *most = NULL;

	*ret_more = false;
	list_for_each(n, &s->conns) {
		struct rpc_conn *conn = list_entry(n, struct rpc_conn, node);

		if (!conn->http || !quota_tight(conn->quota, 0))
			continue;
		*ret_more = true;
		if (http_conn_stalled_ms(conn->http) < RPC_RELIEF_MS)
			continue;
		if (!most || quota_used(conn->quota) > quota_used(most->quota))
			most = conn;
	}
	return most;
}

/* One at a time: its calls all end with it, which takes a while. */
static void on_relief(struct timer *t, void *user)
{
	struct rpc_server *s = user;
	bool more;
	struct rpc_conn *conn = find_stalled(s, &more);

	if (conn) {
		s->closed_total++;
		log_warn("client_closed", "why=\"holds all the memory it may, and reads nothing\" uid=%u pid=%d bytes=%llu",
			 owner_uid(conn->who.uid), (int)conn->who.pid, (unsigned long long)quota_used(conn->quota));
		http_conn_close(conn->http, "its client has no memory left and reads nothing");
	}
	if (more && timer_set(t, loop_now_ms(s->loop) + (conn ? RPC_FEED_MS : RPC_RELIEF_MS)) < 0)
		log_error("memory_relief", "error=\"out of memory\"");
}

void rpc_server_expect_relief(struct rpc_server *s)
{
	if (!timer_is_set(&s->relief) && timer_set(&s->relief, loop_now_ms(s->loop) + RPC_RELIEF_MS) < 0)
		log_error("memory_relief", "error=\"out of memory\"");
}

/* Whose turn it is, before anything is made for it. */
static int on_accept(int fd, void *user, struct quota **ret)
{
	struct rpc_server *s = user;
	struct quota *q;
	uid_t uid;
	int r = peer_uid(fd, &uid);

	if (r < 0)
		return r;
	q = uid_quota(s->quotas, uid);
	if (!q)
		return -ENOMEM;
	if (quota_fits(q, RPC_CONN_BYTES)) {	/* else its calls could not even be refused */
		*ret = q;
		return 0;
	}
	quota_unref(q);
	rpc_server_expect_relief(s);
	s->closed_total++;
	if (rpc_may_log(s))
		log_warn("client_refused", "why=memory uid=%u", uid);
	return -ENOBUFS;
}

/* --- connections -------------------------------------------------------------------------------- */

/* The process is gone; whoever inherited its socket is not the one we let in. */
static void on_death(struct watch *w, unsigned ready, void *user)
{
	struct rpc_conn *conn = user;

	if (!http_conn_may_end(conn->http))
		return;
	watch_fini(&conn->death);
	http_conn_close(conn->http, "its process ended");
}

static int conn_setup(struct rpc_conn *conn, struct http_conn *http)
{
	struct rpc_server *s = conn->server;
	int r = peer_read(http_conn_fd(http), &conn->who);

	conn->who.conn = ++s->last_conn;
	if (r < 0) {
		log_warn("client_refused", "why=credentials error=%s", strerror(-r));
		return r;
	}
	if (r == PEER_UNMAPPED && rpc_may_log(s))
		log_warn("client_refused", "why=uid_of_another_namespace uid=%u", conn->who.uid);
	if (r != PEER_OK && r != PEER_UNMAPPED)
		return -EPERM;
	conn->unmapped = r == PEER_UNMAPPED;
	r = admit_take(&s->admit, conn->who.uid, ADMIT_CONN, &conn->charge);
	if (r > 0 && rpc_may_log(s))
		log_warn("client_refused", "why=connections uid=%u held=%u", conn->who.uid,
			 admit_held(&s->admit, conn->who.uid, ADMIT_CONN));
	if (r != ADMIT_OK)
		return r < 0 ? r : -EUSERS;
	r = rpc_right_begin(conn);
	if (r < 0 || conn->who.pidfd < 0)
		return r;
	r = watch_init(&conn->death, s->loop, conn->who.pidfd, on_death, conn);
	return r < 0 ? r : watch_set(&conn->death, WATCH_READ);
}

static int on_conn(struct http_conn *http, void *user, void **ret_user)
{
	struct rpc_server *s = user;
	struct rpc_conn *conn;
	int r;

	if (quota_take(http_conn_quota(http), sizeof(*conn)) < 0)
		return -ENOBUFS;
	conn = calloc(1, sizeof(*conn));
	if (!conn) {
		quota_give(http_conn_quota(http), sizeof(*conn));
		return -ENOMEM;
	}
	conn->server = s;
	conn->quota = quota_ref(http_conn_quota(http));
	conn->http = http;
	conn->who.pidfd = -1;
	list_add_tail(&s->conns, &conn->node);
	r = conn_setup(conn, http);
	if (r < 0) {
		conn_free(conn);
		return r;
	}
	*ret_user = conn;
	return 0;
}

static void on_conn_closed(struct http_conn *http, void *conn_user, const char *reason, void *user)
{
	struct rpc_conn *conn = conn_user;

	log_debug("client_closed", "uid=%u pid=%d why=%s", owner_uid(conn->who.uid), (int)conn->who.pid,
		  log_q(reason));
	watch_fini(&conn->death);
	rpc_right_end(conn);
	conn->http = NULL;
	if (conn->server->on_conn_end)
		conn->server->on_conn_end(&conn->who, conn->server->on_conn_end_user);
	conn_bury_if_done(conn);
}

static void server_on_request(struct http_stream *x, void *user)
{
	struct rpc_server *s = user;

	if (!s->draining) {
		rpc_call_begin(s, http_conn_user(http_stream_conn(x)), x);
		return;
	}
	/* Nobody has looked at it: its client may send it again, whatever it is. */
	http_stream_reset(x, H2_REFUSED_STREAM);
	http_stream_release(x);
}

/* --- the server --------------------------------------------------------------------------------- */

int rpc_server_listen(struct rpc_server *s, int listen_fd)
{
	struct http_server_options o = {
		.loop = s->loop,
		.listen_fd = listen_fd,
		.http2 = true,
		.any_authority = true,
		.max_conns = RPC_CONNS,
		.max_streams = RPC_H2_STREAMS,
		.stream_window = RPC_WINDOW_BYTES,
		.takes_cut_heads = true,
		.quota = uid_quotas_all(s->quotas),
		.conn_max = s->conn_max,
		.on_accept = on_accept,
		.send_max = RPC_SEND_MAX_BYTES,
		.head_max_n = RPC_HEAD_MAX_N,
		.head_max_bytes = RPC_HEAD_MAX_BYTES,
		.handshake_ms = RPC_HANDSHAKE_MS,
		.on_conn = on_conn,
		.on_conn_closed = on_conn_closed,
		.on_request = server_on_request,
		.user = s,
	};
	int r;

	if (s->n_http == RPC_LISTENERS_MAX) {
		fd_close(listen_fd);
		return -EUSERS;
	}
	r = http_server_new(&o, &s->http[s->n_http]);
	if (r < 0)
		return r;
	if (s->n_http)
		http_server_stop_accepting(s->http[s->n_http - 1]);
	s->n_http++;
	return 0;
}

static void server_freep(struct rpc_server **s)
{
	*s = rpc_server_free(*s);
}

static struct uid_quotas *own_quotas(void)
{
	return uid_quotas_new(&(struct uid_quotas_options){ .max = RPC_MEMORY_ALL, .max_per_uid = RPC_MEMORY_UID });
}

/* What answers are made of. */
static int make_answers(struct rpc_server *s)
{
	int r = rpc_response_head(&s->head);

	if (!r)
		r = grpc_trailers(&s->end_ok, CODE_OK, NULL, NULL, 0);
	s->head.lasting = s->end_ok.lasting = true;
	s->encoded = encoded_new();
	return r ? r : s->encoded ? 0 : -ENOMEM;
}

int rpc_server_reserve(struct rpc_server *s, const struct rpc_limits *limits)
{
	int r = 0;

	for (size_t i = 0; !r && i < limits->n_uids; i++)
		r = admit_reserve(&s->admit, limits->uids[i].uid);
	return r;
}

void rpc_server_set_limits(struct rpc_server *s, const struct rpc_limits *limits)
{
	s->conn_max = limits->conn_max ? limits->conn_max : RPC_MEMORY_CONN;
	for (size_t i = 0; i < s->n_http; i++)
		http_server_set_limits(s->http[i], RPC_CONNS, RPC_H2_STREAMS, s->conn_max);
	admit_set_streams(&s->admit, limits->max_streams ? limits->max_streams : RPC_STREAMS_PER_UID, limits->uids, limits->n_uids);
}

int rpc_server_new(const struct rpc_server_options *o, struct rpc_server **ret)
{
	const struct admit_limits limits = {
		.conns_per_uid = RPC_CONNS_PER_UID,
		.conns = RPC_CONNS,
		.streams = RPC_STREAMS,
		.calls_per_uid = RPC_CALLS_PER_UID,
		.calls = RPC_CALLS,
		.calls_kept = RPC_CALLS_KEPT,
	};
	scoped(server_freep) struct rpc_server *s = calloc(1, sizeof(*s));
	int r = s ? 0 : -ENOMEM;

	if (r < 0) {
		fd_close(o->listen_fd);
		return r;
	}
	s->loop = o->loop;
	s->owners = o->owners;
	s->users = o->users;
	s->own_rules = (struct access_rules)ACCESS_RULES_NULL;
	s->own_rules.own_uid = geteuid();
	s->rules = o->rules ? o->rules : &s->own_rules;
	s->serving = true;
	s->on_conn_end = o->on_conn_end;
	s->on_conn_end_user = o->user;
	list_init(&s->calls);
	list_init(&s->conns);
	list_init(&s->watchers);
	s->log_tokens = LOG_BURST;
	s->log_ms = loop_now_ms(s->loop);
	list_init(&s->hungry);
	timer_init(&s->feed, s->loop, on_feed, s);
	timer_init(&s->relief, s->loop, on_relief, s);
	admit_init(&s->admit, &limits);
	s->quotas = o->quotas ? o->quotas : (s->own_quotas = own_quotas());
	r = s->quotas ? make_answers(s) : -ENOMEM;
	if (!r)
		r = rpc_server_reserve(s, &o->limits);
	if (!r) {
		rpc_server_set_limits(s, &o->limits);
		r = rpc_server_listen(s, o->listen_fd);
	} else {
		fd_close(o->listen_fd);
	}
	if (!r)
		r = rpc_health_add(s);
	if (!r)
		r = rpc_reflection_add(s);
	if (r < 0)
		return r;
	*ret = give(s);
	return 0;
}

static int add_method(struct rpc_server *s, const struct rpc_method *m, void *service)
{
	const char *slash = strrchr(m->path, '/');
	size_t n_service = (size_t)(slash - m->path - 1);
	struct rpc_entry *e;
	int r;

	must(m->path[0] == '/' && slash > m->path + 1 && !map_get_str(&s->methods, m->path));
	must(m->request && m->handler && m->handler->on_message);
	must(m->kind == RPC_UNARY || m->kind == RPC_SERVER_STREAM || m->handler->on_end);
	e = malloc(sizeof(*e));
	if (!e)
		return -ENOMEM;
	*e = (struct rpc_entry){ .method = m, .service = service };
	r = map_put_str(&s->methods, m->path, e);
	if (r < 0) {
		free(e);
		return r;
	}
	return map_put(&s->services, m->path + 1, n_service, e);
}

int rpc_server_add(struct rpc_server *s, const struct rpc_method *methods, size_t n, void *service)
{
	int r = 0;

	for (size_t i = 0; !r && i < n; i++)
		r = add_method(s, &methods[i], service);
	return r;
}

void rpc_server_set_serving(struct rpc_server *s, bool serving)
{
	if (s->serving == serving)
		return;
	s->serving = serving;
	rpc_health_changed(s);
}

void rpc_server_hold(struct rpc_server *s)
{
	s->holding = true;
}

void rpc_server_drain(struct rpc_server *s)
{
	if (s->draining)
		return;
	s->draining = true;
	rpc_server_set_serving(s, false);
	for (unsigned i = 0; i < s->n_http; i++)
		http_server_drain(s->http[i]);
}

struct rpc_server *rpc_server_free(struct rpc_server *s)
{
	struct rpc_entry *e;
	size_t pos = 0;

	if (!s)
		return NULL;
	s->ending = true;
	rpc_calls_drop(s);
	for (unsigned i = 0; i < s->n_http; i++)
		http_server_free(s->http[i]);
	list_for_each_safe(n, &s->conns)
		conn_free(list_entry(n, struct rpc_conn, node));
	while ((e = map_next(&s->methods, &pos)))
		free(e);
	map_fini(&s->methods);
	map_fini(&s->services);
	encoded_free(s->encoded);
	fields_fini(&s->head);
	fields_fini(&s->end_ok);
	timer_clear(&s->feed);
	timer_clear(&s->relief);
	uid_quotas_free(s->own_quotas);
	admit_fini(&s->admit);
	free(s);
	return NULL;
}

void rpc_server_count(const struct rpc_server *s, uid_t uid, struct rpc_counts *ret)
{
	const struct admit *a = &s->admit;
	bool all = uid == (uid_t)-1;

	*ret = (struct rpc_counts){
		.connections = all ? a->held[ADMIT_CONN] : admit_held(a, uid, ADMIT_CONN),
		.calls = all ? a->held[ADMIT_CALL] : admit_held(a, uid, ADMIT_CALL),
		.streams = all ? a->held[ADMIT_STREAM] : admit_held(a, uid, ADMIT_STREAM),
		.max_streams = all ? a->limits.streams : admit_max_streams(a, uid),
		.calls_total = s->calls_total,
		.failed_total = s->failed_total,
		.refused_total = s->refused_total,
		.closed_total = s->closed_total,
	};
}

bool rpc_server_stats(const struct rpc_server *s, size_t *pos, struct rpc_method_stats *ret)
{
	const struct rpc_entry *e = map_next(&s->methods, pos);

	if (e)
		*ret = (struct rpc_method_stats){ e->method->path, &e->stats };
	return e != NULL;
}
