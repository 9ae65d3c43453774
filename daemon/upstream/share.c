/* SPDX-License-Identifier: MIT */
/*
 * Requests of one origin on a connection of another. Sandboxes have hosts of their own
 * under one wildcard certificate at one edge: this is what keeps them on few connections. An origin
 * that has no connection yet looks up its addresses, and if a connection of the same account goes to
 * one of them with a certificate that covers its host, no other is made. The lender keeps the
 * connection: it is the lender's in all but the requests on it.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/net/resolve.h"
#include "daemon/upstream/origin.h"
#include "proto/base/host.h"
#include "proto/base/str.h"

#define LOOKUP_FRESH_MS 60000u

static bool may_lend(const struct origin *lender, const struct origin *o)
{
	return lender != o && lender->tls == o->tls && lender->port == o->port && !lender->proxy &&
	       lender->version == HTTP_VERSION_2 && str_eq(lender->group, o->group);
}

static bool may_borrow(const struct origin *o)
{
	return o->tls && !o->proxy && !o->http1 && !o->never_share;
}

/* Its peer, "192.0.2.1:443" or "[2001:db8::7]:443", has one of the addresses. */
static bool goes_to(const struct http_conn *c, const struct resolve_answer *a)
{
	const char *peer = http_conn_peer(c);
	struct host_port hp = { 0 };
	char text[INET6_ADDRSTRLEN];

	if (host_port_parse(peer, strlen(peer), &hp) < 0)
		return false;
	for (unsigned i = 0; i < a->n; i++) {
		const struct resolve_address *v = &a->v[i];
		const void *at = v->sa.sa_family == AF_INET6 ? (const void *)&v->v6.sin6_addr :
							       (const void *)&v->v4.sin_addr;

		if (inet_ntop(v->sa.sa_family, at, text, sizeof(text)) && str_eq(text, hp.host))
			return true;
	}
	return false;
}

/* RFC 9113 §9.1.1: the certificate that it was verified by covers the other host, too, and that host has the address it goes to.
 * Whether it covers is OpenSSL's to answer; no names are matched here. */
static bool may_carry(const struct http_conn *c, const struct origin *o)
{
	return http_conn_is_tls(c) && http_conn_covers(c, o->host) && goes_to(c, o->answer);
}

struct uconn *share_find(struct origin *o, const struct pool_req *r, uint64_t now_ms)
{
	if (!may_borrow(o) || !o->answer || now_ms >= o->looked_up_at_ms + LOOKUP_FRESH_MS)
		return NULL;
	list_for_each(i, &o->pool->origin_list) {
		struct origin *lender = list_entry(i, struct origin, node);

		if (!may_lend(lender, o))
			continue;
		list_for_each(j, &lender->conns) {
			struct uconn *c = list_entry(j, struct uconn, node);

			if (c->state == UCONN_READY && uconn_room(c, r->cls) && !uconn_is_suspect(c) &&
			    (r->idempotent || uconn_is_fresh(c, now_ms)) && may_carry(c->c, o))
				return c;
		}
	}
	return NULL;
}

static bool has_lender(const struct origin *o)
{
	list_for_each(i, &o->pool->origin_list) {
		const struct origin *lender = list_entry(i, struct origin, node);

		if (!may_lend(lender, o))
			continue;
		list_for_each(j, &lender->conns) {
			const struct uconn *c = list_entry(j, struct uconn, node);

			if (c->state == UCONN_READY && http_conn_covers(c->c, o->host))
				return true;
		}
	}
	return false;
}

static const char *parent_of(const char *host)
{
	const char *dot = strchr(host, '.');

	return dot ? dot : "";
}

/* A host of the same domain is being dialled: in a cold start the first connection may do for all. */
static bool sibling_dials(const struct origin *o)
{
	list_for_each(i, &o->pool->origin_list) {
		const struct origin *s = list_entry(i, struct origin, node);

		if (s != o && s->n_dialing && !s->http1 && s->tls == o->tls && s->port == o->port && !s->proxy &&
		    *parent_of(o->host) && str_eq(parent_of(s->host), parent_of(o->host)) &&
		    str_eq(s->group, o->group))
			return true;
	}
	return false;
}

static void share_keep(struct origin *o, const struct resolve_answer *a)
{
	free(o->answer);
	o->answer = a ? malloc(sizeof(*a)) : NULL;
	if (o->answer)
		*o->answer = *a;
	o->looked_up_at_ms = loop_now_ms(o->pool->loop);
}

static void on_resolved(const struct resolve_answer *a, const char *error, void *user)
{
	struct origin *o = user;

	o->lookup = NULL;
	share_keep(o, a);		/* none: it dials, and says why that fails */
	origin_kick(o);
}

bool share_wait(struct origin *o, uint64_t now_ms)
{
	struct resolve_answer a;

	if (o->lookup)
		return true;
	if (!may_borrow(o) || o->n_conns)
		return false;
	if (!o->waited && sibling_dials(o))
		return true;
	if ((o->looked_up_at_ms && now_ms < o->looked_up_at_ms + LOOKUP_FRESH_MS) || !has_lender(o))
		return false;
	if (resolve_literal(o->host, o->port, &a)) {
		share_keep(o, &a);
		origin_kick(o);
		return true;
	}
	return o->pool->o.resolver &&
	       resolve_start(o->pool->o.resolver, o->host, o->port, on_resolved, o, &o->lookup) == 0;
}

void share_dialled(struct origin *o, bool ok)
{
	list_for_each(i, &o->pool->origin_list) {
		struct origin *s = list_entry(i, struct origin, node);

		if (s == o || !s->n_queued || s->tls != o->tls || !str_eq(s->group, o->group))
			continue;
		s->waited = !ok;	/* after a failure each tries for itself */
		origin_kick(s);
	}
	o->waited = false;
}

void share_fini(struct origin *o)
{
	if (o->lookup)
		resolve_cancel(o->lookup);
	o->lookup = NULL;
	free(o->answer);
	o->answer = NULL;
}
