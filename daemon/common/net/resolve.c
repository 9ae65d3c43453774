/* SPDX-License-Identifier: MIT */
#include "daemon/common/net/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/ev/worker.h"
#include "proto/base/host.h"
#include "proto/base/map.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define STALE_MS	(60u * 60 * 1000)
#define FAMILY_MS	(10u * 60 * 1000)
#define HOSTS_MAX	256u	/* remembered; others are just looked up */

struct known {
	struct resolve_answer answer;
	uint64_t answer_ms, family_ms;	/* 0 = none */
	int family;
};

struct resolver {
	struct loop *loop;
	struct worker *worker;
	struct map hosts;		/* name → struct known */
	unsigned n_open;
};

struct resolve_query {
	struct job job;
	struct resolver *r;
	char *host;
	uint16_t port;
	resolve_fn *done;		/* NULL = cancelled */
	void *user;
	struct resolve_answer answer;	/* the thread's until job.done */
	int error;
};

int resolver_new(struct loop *l, struct resolver **ret)
{
	struct resolver *r = calloc(1, sizeof(*r));
	struct worker_options o = { .loop = l, .name = "resolver" };
	int e;

	if (!r)
		return -ENOMEM;
	r->loop = l;
	e = worker_new(&o, &r->worker);
	if (e < 0) {
		free(r);
		return e;
	}
	*ret = r;
	return 0;
}

struct resolver *resolver_free(struct resolver *r)
{
	struct known *k;
	size_t pos = 0;

	if (!r)
		return NULL;
	must(!r->n_open);
	worker_free(r->worker);
	while ((k = map_next(&r->hosts, &pos)))
		free(k);
	map_fini(&r->hosts);
	free(r);
	return NULL;
}

/* --- addresses --- */

static void resolve_add(struct resolve_answer *a, const void *sa, socklen_t len, uint16_t port)
{
	struct resolve_address *at;

	if (a->n == RESOLVE_ADDRESSES_MAX)
		return;
	at = &a->v[a->n++];
	memcpy(&at->sa, sa, len);
	at->len = len;
	if (at->sa.sa_family == AF_INET6)
		at->v6.sin6_port = htons(port);
	else
		at->v4.sin_port = htons(port);
}

bool resolve_literal(const char *host, uint16_t port, struct resolve_answer *ret)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };

	*ret = (struct resolve_answer){ .n = 0 };
	if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
		resolve_add(ret, &v4, sizeof(v4), port);
	} else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
		resolve_add(ret, &v6, sizeof(v6), port);
	} else if (host_is_loopback(host)) { /* RFC 6761 §6.3: nobody is asked */
		v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		v6.sin6_addr = in6addr_loopback;
		resolve_add(ret, &v4, sizeof(v4), port);
		resolve_add(ret, &v6, sizeof(v6), port);
	}
	return ret->n > 0;
}

static bool is_suspicious(const struct sockaddr *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;
	uint32_t a;

	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ||
		       IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) || IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
	a = ntohl(v4->sin_addr.s_addr);
	return !a || a >> 16 == 0xa9fe;
}

void resolve_interleave(struct resolve_answer *a, int first)
{
	struct resolve_answer out = { .n = 0 };
	bool taken[RESOLVE_ADDRESSES_MAX] = { false };
	int want = first != AF_UNSPEC ? first : a->n ? a->v[0].sa.sa_family : AF_INET;

	while (out.n < a->n) {
		unsigned other = a->n, i;

		for (i = 0; i < a->n; i++) {
			if (taken[i])
				continue;
			if (a->v[i].sa.sa_family == want)
				break;
			other = MIN(other, i);
		}
		i = i < a->n ? i : other;
		taken[i] = true;
		out.v[out.n++] = a->v[i];
		want = a->v[i].sa.sa_family == AF_INET6 ? AF_INET : AF_INET6;
	}
	*a = out;
}

/* --- lookups --- */

static void run(struct job *j)
{
	struct resolve_query *q = container_of(j, struct resolve_query, job);
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	struct addrinfo *list = NULL;

	q->error = getaddrinfo(q->host, NULL, &hints, &list);
	if (q->error)
		return;
	for (const struct addrinfo *a = list; a; a = a->ai_next)
		if ((a->ai_family == AF_INET || a->ai_family == AF_INET6) &&
		    !is_suspicious(a->ai_addr))
			resolve_add(&q->answer, a->ai_addr, a->ai_addrlen, q->port);
	freeaddrinfo(list);
}

static struct known *known_of(struct resolver *r, const char *host)
{
	struct known *k = map_get_str(&r->hosts, host);

	if (k || map_size(&r->hosts) >= HOSTS_MAX)
		return k;
	k = calloc(1, sizeof(*k));
	if (k && map_put_str(&r->hosts, host, k) < 0) {
		free(k);
		k = NULL;
	}
	return k;
}

static void set_ports(struct resolve_answer *a, uint16_t port)
{
	for (unsigned i = 0; i < a->n; i++)
		if (a->v[i].sa.sa_family == AF_INET6)
			a->v[i].v6.sin6_port = htons(port);
		else
			a->v[i].v4.sin_port = htons(port);
}

static void tell(struct resolve_query *q)
{
	struct resolver *r = q->r;
	uint64_t now = loop_now_ms(r->loop);
	struct known *k = q->answer.n ? known_of(r, q->host) : map_get_str(&r->hosts, q->host);

	if (q->answer.n) {
		if (k) {
			k->answer = q->answer;
			k->answer_ms = now;
		}
		q->done(&q->answer, NULL, q->user);
	} else if (k && k->answer_ms && now - k->answer_ms < STALE_MS) {
		q->answer = k->answer;
		set_ports(&q->answer, q->port);
		q->done(&q->answer, NULL, q->user);
	} else {
		q->done(NULL, q->error ? gai_strerror(q->error) : "no usable address", q->user);
	}
}

static void on_done(struct job *j)
{
	struct resolve_query *q = container_of(j, struct resolve_query, job);

	if (q->done) {
		q->r->n_open--;
		tell(q);
	}
	free(q->host);
	free(q);
}

int resolve_start(struct resolver *r, const char *host, uint16_t port, resolve_fn *done, void *user,
		  struct resolve_query **ret)
{
	struct resolve_query *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	q->host = str_dup(host);
	if (!q->host) {
		free(q);
		return -ENOMEM;
	}
	q->job = (struct job){ .run = run, .done = on_done };
	list_init(&q->job.node);
	q->r = r;
	q->port = port;
	q->done = done;
	q->user = user;
	r->n_open++;
	*ret = q;
	worker_submit(r->worker, &q->job);
	return 0;
}

void resolve_cancel(struct resolve_query *q)
{
	must(q->done);
	q->done = NULL;
	q->r->n_open--;
}

int resolver_family(const struct resolver *r, const char *host)
{
	const struct known *k = map_get_str(&r->hosts, host);

	if (!k || !k->family_ms || loop_now_ms(r->loop) - k->family_ms >= FAMILY_MS)
		return AF_UNSPEC;
	return k->family;
}

void resolver_family_worked(struct resolver *r, const char *host, int family)
{
	struct known *k = known_of(r, host);

	if (!k)
		return;
	k->family = family;
	k->family_ms = loop_now_ms(r->loop);
}
