/* SPDX-License-Identifier: MIT */
/* Listeners and connections of the gateway. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/auth/uid_quota.h"
#include "daemon/common/obs/log.h"
#include "daemon/gateway/impl.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/fd.h"
#include "proto/base/host.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define CONNECTIONS    4096u
#define STREAMS	       256u
#define WINDOW_BYTES   (64u * 1024)
#define SEND_MAX_BYTES (256u * 1024)
#define HEAD_MAX_N     128u
#define HEAD_MAX_BYTES (64u * 1024)
#define HEAD_MS	       10000u
#define IDLE_MS	       620000u		/* what the cloud's control plane allows */

/* --- connections --- */

static uint64_t guest_key(const struct who_peer *peer)
{
	return peer->is_known ? peer->uid : UINT64_MAX;
}

static struct gateway_guest *guest_new(struct gateway *g, uint64_t key)
{
	struct gateway_guest *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->key = key;
	if (map_put_u64(&g->guests, key, u) == 0)
		return u;
	free(u);
	return NULL;
}

/* One uid leaves room for the others; those that cannot be told apart share theirs. */
static bool has_room(const struct gateway *g, const struct gateway_guest *u)
{
	if (g->counts.connections >= g->o.limits.max_connections)
		return false;
	return g->o.whole_account || !u || u->conns < MAX(g->o.limits.max_connections / 2, 1u);
}

static void conn_remove(struct gateway *g, struct gateway_conn *c)
{
	struct gateway_guest *u = c->guest;

	g->counts.connections--;
	list_del(&c->node);
	token_unref(c->token);
	free(c);
	if (--u->conns)
		return;
	map_del_u64(&g->guests, u->key);
	free(u);
}

static int conn_add(struct gateway *g, struct gateway_conn *c)
{
	struct gateway_guest *u = map_get_u64(&g->guests, guest_key(&c->peer));

	if (!has_room(g, u))
		return -EUSERS;
	if (!u)
		u = guest_new(g, guest_key(&c->peer));
	if (!u)
		return -ENOMEM;
	u->conns++;
	c->guest = u;
	c->number = ++g->last_conn;
	list_add_tail(&g->conns, &c->node);
	g->counts.connections++;
	return 0;
}

/* Who pays for it: the uid that was found; those that cannot be told apart pay together. */
static int on_accept(int fd, void *user, struct quota **ret)
{
	struct gateway_door *door = user;
	struct who_peer peer = { .is_known = false };

	if (!door->is_unix)
		who_find(door->g->lookup, fd, &peer);
	*ret = uid_quota(door->g->o.quotas, peer.is_known ? peer.uid : (uid_t)-1);
	return *ret ? 0 : -ENOMEM;
}

static int on_conn(struct http_conn *http, void *user, void **ret_user)
{
	struct gateway_door *door = user;
	struct gateway *g = door->g;
	struct gateway_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->door = door;
	c->http = http;
	if (door->is_unix)
		c->peer.uid = (uid_t)-1;
	else
		who_find(g->lookup, http_conn_fd(http), &c->peer);
	r = conn_add(g, c);
	if (!r) {
		*ret_user = c;
		return 0;
	}
	log_warn("gateway_refused", "why=connections uid=%d held=%u", c->peer.is_known ? (int)c->peer.uid : -1,
		 g->counts.connections);
	free(c);
	return r;
}

static void on_conn_closed(struct http_conn *http, void *conn_user, const char *reason, void *user)
{
	struct gateway_conn *c = conn_user;

	conn_remove(c->door->g, c);
}

/* --- listeners --- */

static void door_free(struct gateway_door *d)
{
	http_server_free(d->server);
	list_del(&d->node);
	free(d->shown);
	free(d);
}

static uint16_t port_of(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)(const void *)a)->sin_port);
	return a->ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)(const void *)a)->sin6_port) : 0;
}

static void note_place(struct gateway_door *d, int fd)
{
	d->at_len = sizeof(d->at);
	if (getsockname(fd, (struct sockaddr *)&d->at, &d->at_len) < 0)
		d->at_len = 0;
	d->port = port_of(&d->at);
}

int gateway_listen(struct gateway *g, const struct gateway_listen *l)
{
	struct gateway_door *d = calloc(1, sizeof(*d));
	struct http_server_options o = {
		.loop = g->loop, .listen_fd = l->fd, .tls = l->tls, .title_names = true, .http1 = true, .http2 = l->tls != NULL,
		.max_conns = g->o.limits.max_connections, .max_streams = g->o.limits.max_streams, .stream_window = WINDOW_BYTES,
		.send_max = SEND_MAX_BYTES, .head_max_n = HEAD_MAX_N, .head_max_bytes = HEAD_MAX_BYTES,
		.conn_max = g->o.limits.conn_max, .on_accept = g->o.quotas ? on_accept : NULL, .handshake_ms = HEAD_MS, .idle_ms = IDLE_MS,
		.on_conn = on_conn, .on_conn_closed = on_conn_closed, .on_request = gateway_door_on_request, .user = d,
	};
	int r = -ENOMEM;

	if (d)
		d->shown = strdup(l->shown);
	if (!d || !d->shown) {
		fd_close(l->fd);
		free(d);
		return r;
	}
	d->g = g;
	d->is_unix = l->is_unix;
	d->is_tls = l->tls != NULL;
	note_place(d, l->fd);
	list_add_tail(&g->doors, &d->node);
	r = http_server_new(&o, &d->server);
	if (r < 0) {
		door_free(d);
		return r;
	}
	log_info("gateway", "listen=%s", log_q(l->shown));
	return 0;
}

bool gateway_is_own(const struct gateway *g, const char *host, uint16_t port)
{
	if (!host_is_loopback(host) && !host_is_any(host))
		return false;
	list_for_each(n, &g->doors)
		if (port && list_entry(n, struct gateway_door, node)->port == port)
			return true;
	return false;
}

/* --- the whole --- */

static int copy_accounts(struct gateway *g)
{
	g->accounts = calloc(SANDBOX_ACCOUNTS_MAX, sizeof(*g->accounts));	/* calls point to theirs */
	if (!g->accounts)
		return -ENOMEM;
	for (size_t i = 0; i < g->o.n_accounts; i++)
		g->accounts[i] = g->o.accounts[i];
	g->o.accounts = g->accounts;
	return 0;
}

void gateway_set_limits(struct gateway *g, const struct gateway_limits *limits)
{
	struct gateway_limits *l = &g->o.limits;

	*l = *limits;
	l->max_connections = l->max_connections ? l->max_connections : CONNECTIONS;
	l->max_streams = l->max_streams ? l->max_streams : STREAMS;
	list_for_each(n, &g->doors)
		http_server_set_limits(list_entry(n, struct gateway_door, node)->server, l->max_connections, l->max_streams, l->conn_max);
}

int gateway_new(const struct gateway_options *o, struct gateway **ret)
{
	struct gateway *g = calloc(1, sizeof(*g));
	int r = g ? 0 : -ENOMEM;

	if (!g)
		return r;
	g->loop = o->loop;
	g->o = *o;
	list_init(&g->doors);
	gateway_set_limits(g, &o->limits);
	list_init(&g->conns);
	list_init(&g->controls);
	list_init(&g->passes);
	list_init(&g->relays);
	list_init(&g->durables);
	list_init(&g->pages);
	if (o->secret)
		memcpy(g->page_key, o->secret, sizeof(g->page_key));
	else
		rng_system(g->page_key, sizeof(g->page_key));
	r = copy_accounts(g);
	if (!r)
		r = who_lookup_new(&g->lookup);
	if (r < 0) {
		gateway_free(g);
		return r;
	}
	*ret = g;
	return 0;
}

void gateway_add_account(struct gateway *g, const struct gateway_account *account)
{
	g->accounts[g->o.n_accounts++] = *account;
}

void gateway_set_rules(struct gateway *g, const struct access_rules *rules)
{
	g->o.rules = rules;
	gateway_relay_check_all(g);
	gateway_durable_check_all(g);
}

void gateway_drain(struct gateway *g)
{
	g->draining = true;
	gateway_page_end_all(g);
	list_for_each(n, &g->doors)
		http_server_drain(list_entry(n, struct gateway_door, node)->server);
}

bool gateway_drain_calls(struct gateway *g, bool end)
{
	if (!end)
		return !list_is_empty(&g->controls) || !list_is_empty(&g->passes);
	gateway_control_end_all(g);
	gateway_pass_end_all(g);
	return false;
}

void gateway_counts(const struct gateway *g, struct gateway_counts *ret)
{
	*ret = g->counts;
}

struct gateway *gateway_free(struct gateway *g)
{
	if (!g)
		return NULL;
	gateway_control_end_all(g);
	gateway_pass_end_all(g);
	gateway_relay_end_all(g);
	gateway_durable_end_all(g);
	gateway_page_end_all(g);
	list_for_each_safe(n, &g->doors)
		door_free(list_entry(n, struct gateway_door, node));
	list_for_each_safe(n, &g->conns)
		conn_remove(g, list_entry(n, struct gateway_conn, node));
	map_fini(&g->guests);
	gateway_forget_links(g);
	who_lookup_free(g->lookup);
	free(g->accounts);
	free(g);
	return NULL;
}
