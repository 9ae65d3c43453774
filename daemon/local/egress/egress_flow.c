/* SPDX-License-Identifier: MIT */
/*
 * One connection out of a sandbox:
 *
 *   NAMING -> RESOLVING -> CONNECTING -> GREETING -> OPEN
 *
 * GREETING is the talk with the sandbox's proxy, if it has one.
 *
 * It is NAMING only if its address is not allowed and names are: the first bytes must then say a
 * name that is, and it is the addresses of that name, looked up by us, that we connect to. So a
 * name that is allowed is no pass to any other address. What does not go on is reset.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/net/resolve.h"
#include "daemon/common/net/xport.h"
#include "daemon/common/obs/log.h"
#include "daemon/local/egress/egress_int.h"
#include "daemon/local/egress/egress_side.h"
#include "daemon/local/egress/header_rewrite.h"
#include "daemon/local/egress/sniff.h"
#include "daemon/local/egress/socks.h"
#include "daemon/local/engine/nsnet.h"
#include "proto/base/buf.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define FLOW_MAGIC   0xf10f10f1u
#define GREETING_MAX 1024u

enum flow_state { FLOW_NAMING, FLOW_RESOLVING, FLOW_CONNECTING, FLOW_GREETING, FLOW_OPEN, FLOW_OVER };

struct greeting {
	struct socks socks;
	struct buf in, out;
};

struct flow {
	unsigned magic;
	struct egress *e;
	struct list node;
	enum flow_state state;
	struct sockaddr_in to;		/* as the program meant it */
	bool is_dns;
	char name[SNIFF_NAME_MAX + 1];	/* "" unless that is why it is allowed */
	struct resolve_query *query;
	struct resolve_answer at;	/* where to try */
	unsigned next;
	struct side in, up;		/* the program's, the world's */
	struct greeting *greeting;	/* FLOW_GREETING */
	struct header_rewrite *header_rewrite;	/* its requests are read; NULL = as they are */
	struct timer limit;
	struct grave grave;
};

static struct flow *flow_from(void *p)
{
	struct flow *f = p;

	must(f && f->magic == FLOW_MAGIC);
	return f;
}

static void flow_set_state(struct flow *f, enum flow_state to)
{
	must(to > f->state);
	f->state = to;
}

/* --- the end --- */

static void flow_free(void *p)
{
	struct flow *f = flow_from(p);

	f->magic = 0;
	free(f);
}

static void drop_greeting(struct flow *f)
{
	struct greeting *g = give(f->greeting);

	if (!g)
		return;
	buf_fini(&g->in);
	buf_fini(&g->out);
	free(g);
}

static void flow_end(struct flow *f, bool clean, const char *reason)
{
	char to[64];

	sock_text((const struct sockaddr *)&f->to, to, sizeof(to));
	log_debug("egress_end", "id=%s to=%s name=%s reason=%s", f->e->id, to, log_q(f->name),
		  log_q(reason));
	flow_set_state(f, FLOW_OVER);
	if (f->query)
		resolve_cancel(give(f->query));
	timer_clear(&f->limit);
	watch_fini(&f->in.watch);
	watch_fini(&f->up.watch);
	f->in.fd = clean ? fd_close(f->in.fd) : egress_reset(f->in.fd);
	f->up.fd = clean ? fd_close(f->up.fd) : egress_reset(f->up.fd);
	drop_greeting(f);
	f->header_rewrite = header_rewrite_free(f->header_rewrite);
	buf_fini(&f->in.out);
	buf_fini(&f->up.out);
	list_del(&f->node);
	f->e->n_flows--;
	egress_host_give(f->e->host);
	loop_bury(f->e->loop, &f->grave, flow_free, f);
}

void egress_flows_cut(struct egress *e)
{
	list_for_each_safe(n, &e->flows)
		flow_end(list_entry(n, struct flow, node), false, "cut");
}

/* --- joined --- */

static struct buf *from_program(struct flow *f)
{
	return f->header_rewrite ? header_rewrite_raw(f->header_rewrite) : &f->up.out;
}

/* To the world, by way of the rules for requests if there are any. */
static int pass_up(struct flow *f, const char **ret_why)
{
	struct buf *raw = from_program(f);
	size_t before, waited;
	int r;

	if (!f->header_rewrite)
		return side_pass(&f->up, f->in.read_end);
	do {
		before = buf_len(raw);
		waited = buf_len(&f->up.out);	/* what waits there may have held it up */
		r = header_rewrite_run(f->header_rewrite, f->e->rules, &f->up.out, ret_why);
		if (r == 0)
			r = side_pass(&f->up, f->in.read_end && !buf_len(raw));
	} while (r == 0 && !buf_len(&f->up.out) && (waited || buf_len(raw) < before));
	if (r == 0 && !buf_room(raw) && !buf_len(&f->up.out)) {
		*ret_why = "a line that is too long";
		return -EPROTO;
	}
	if (r == 0 && f->in.read_end && buf_len(raw) && !buf_len(&f->up.out)) {
		*ret_why = "the end in the middle of a request";
		return -EPROTO;
	}
	return r;
}

static void pump(struct flow *f)
{
	const char *why = NULL;
	int r = side_take(&f->in, from_program(f));

	if (r == 0)
		r = side_take(&f->up, &f->in.out);
	if (r == 0)
		r = side_pass(&f->in, f->up.read_end);
	if (r == 0)
		r = pass_up(f, &why);
	if (r == 0 && f->in.write_end && f->up.write_end) {
		flow_end(f, true, "both have said all");
		return;
	}
	if (r == 0)
		r = side_want(&f->in, buf_room(from_program(f)) > 0);
	if (r == 0)
		r = side_want(&f->up, buf_room(&f->in.out) > 0);
	if (r < 0)
		flow_end(f, false, why ? why : strerror(-r));
}

static void open_up(struct flow *f)
{
	timer_clear(&f->limit);
	flow_set_state(f, FLOW_OPEN);
}

/* --- through the proxy --- */

/* Questions for addresses are the machine's own business. */
static const struct egrule_proxy *proxy_of(const struct flow *f)
{
	return f->is_dns ? NULL : egrule_proxy(f->e->rules);
}

/* What the far side said right behind the proxy is the program's. */
static void greeted(struct flow *f)
{
	struct buf *left = &f->greeting->in;

	if (buf_len(left) && buf_put(&f->in.out, buf_data(left), buf_len(left)) < 0) {
		flow_end(f, false, "no memory");
		return;
	}
	drop_greeting(f);
	open_up(f);
	pump(f);
}

static int greeting_read(struct flow *f)
{
	uint8_t in[GREETING_MAX];
	ssize_t n = recv(f->up.fd, in, MIN(sizeof(in), buf_room(&f->greeting->in)), MSG_DONTWAIT);

	if (n > 0)
		return buf_put(&f->greeting->in, in, (size_t)n);
	return n == 0 ? -ECONNRESET : errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

static int greeting_write(struct flow *f)
{
	struct buf *out = &f->greeting->out;
	ssize_t n = buf_len(out) ? send(f->up.fd, buf_data(out), buf_len(out), MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_drop(out, (size_t)n);
	return watch_set(&f->up.watch, WATCH_READ | (buf_len(out) ? WATCH_WRITE : 0));
}

static void greet(struct flow *f)
{
	struct greeting *g = f->greeting;
	const char *why = "no memory";
	enum socks_result s = SOCKS_MORE;
	int r = greeting_read(f);

	/* Other rules may have come since, with the same proxy in them. */
	g->socks.user = proxy_of(f)->user;
	g->socks.password = proxy_of(f)->password;
	if (r == 0)
		s = socks_talk(&g->socks, &g->in, &g->out, &why);
	if (r == 0 && s == SOCKS_MORE)
		r = greeting_write(f);
	if (r < 0)
		flow_end(f, false, strerror(-r));
	else if (s == SOCKS_DONE)
		greeted(f);
	else if (s != SOCKS_MORE)
		flow_end(f, false, why);
}

static void begin_greeting(struct flow *f)
{
	const struct egrule_proxy *p = proxy_of(f);
	struct greeting *g = calloc(1, sizeof(*g));

	f->greeting = g;
	if (!g) {
		flow_end(f, false, "no memory");
		return;
	}
	buf_init(&g->in, GREETING_MAX);
	buf_init(&g->out, 0);
	g->socks = (struct socks){
		.to = { f->name[0] ? f->name : NULL, ntohl(f->to.sin_addr.s_addr), ntohs(f->to.sin_port) },
		.user = p->user,
	};
	flow_set_state(f, FLOW_GREETING);
	if (socks_begin(&g->socks, &g->out) < 0 || greeting_write(f) < 0)
		flow_end(f, false, "no greeting");
}

/* --- connecting --- */

static void try_next(struct flow *f, const char *why);

static void on_up(struct watch *w, unsigned ready, void *user)
{
	struct flow *f = flow_from(user);
	int r;

	if (f->state == FLOW_CONNECTING) {
		r = sock_error(f->up.fd);
		if (r < 0) {
			try_next(f, strerror(-r));
			return;
		}
		if (proxy_of(f)) {
			begin_greeting(f);
			return;
		}
		open_up(f);
	}
	if (f->state == FLOW_GREETING)
		greet(f);
	else
		pump(f);
}

/* A peer that is gone is noticed; one that does not read for a while, or a program that does not, is
 * waited for. */
static void tune(int fd)
{
	int one = 1, none = 0;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof(none));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

static bool by_address(const struct flow *f, const struct sockaddr *to)
{
	const struct sockaddr_in *v4 = (const void *)to;

	return to->sa_family == AF_INET &&
	       egrule_address(f->e->rules, ntohl(v4->sin_addr.s_addr)) == EGRULE_ALLOW;
}

/* An address that a name led to, which is no reason by itself. */
static bool needs_address(const struct flow *f)
{
	return f->name[0] && !proxy_of(f) && !egrule_name(f->e->rules, f->name);
}

/* -EACCES: not from a sandbox, or not from this one. */
static int connect_to(struct flow *f, const struct resolve_address *a)
{
	int r;

	if (!f->is_dns && !egress_host_may(f->e->host, &a->sa))
		return -EACCES;
	if (needs_address(f) && !by_address(f, &a->sa))
		return -EACCES;
	r = sock_connect(&a->sa, a->len, &f->up.fd);
	if (r < 0 && r != -EINPROGRESS)
		return r;
	tune(f->up.fd);
	r = watch_init(&f->up.watch, f->e->loop, f->up.fd, on_up, f);
	return r < 0 ? r : watch_set(&f->up.watch, WATCH_WRITE);
}

static void try_next(struct flow *f, const char *why)
{
	while (f->next < f->at.n) {
		int r;

		watch_fini(&f->up.watch);
		f->up.fd = fd_close(f->up.fd);
		r = connect_to(f, &f->at.v[f->next++]);
		if (r == 0)
			return;
		why = r == -EACCES ? "not allowed" : strerror(-r);
	}
	flow_end(f, false, why);
}

static void begin_connecting(struct flow *f)
{
	flow_set_state(f, FLOW_CONNECTING);
	if (watch_set(&f->in.watch, 0) < 0 ||
	    timer_set(&f->limit, loop_now_ms(f->e->loop) + EGRESS_CONNECT_WAIT_MS) < 0)
		flow_end(f, false, "no memory");
	else
		try_next(f, "no address");
}

static void on_resolved(const struct resolve_answer *answer, const char *error, void *user)
{
	struct flow *f = flow_from(user);

	f->query = NULL;
	if (!answer) {
		flow_end(f, false, error);
		return;
	}
	f->at = *answer;
	begin_connecting(f);
}

static void begin_resolving(struct flow *f, const char *host, uint16_t port)
{
	flow_set_state(f, FLOW_RESOLVING);
	if (watch_set(&f->in.watch, 0) < 0 ||
	    timer_set(&f->limit, loop_now_ms(f->e->loop) + EGRESS_CONNECT_WAIT_MS) < 0 ||
	    resolve_start(egress_host_resolver(f->e->host), host, port, on_resolved, f, &f->query) < 0)
		flow_end(f, false, "no memory");
}

/* To the address itself, or to the proxy, which is told the address. */
static void go_direct(struct flow *f)
{
	const struct egrule_proxy *p = proxy_of(f);

	if (p && egress_host_may(f->e->host, (const struct sockaddr *)&f->to)) {
		begin_resolving(f, p->host, p->port);
		return;
	}
	f->at = (struct resolve_answer){ .n = 1 };
	f->at.v[0].v4 = f->to;
	f->at.v[0].len = sizeof(f->to);
	begin_connecting(f);
}

/* To the machine's name server. */
static void go_dns(struct flow *f)
{
	struct sockaddr_storage server;
	socklen_t len;

	egress_host_dns(f->e->host, &server, &len);
	f->at = (struct resolve_answer){ .n = 1 };
	memcpy(&f->at.v[0].v6, &server, MIN(len, sizeof(f->at.v[0].v6)));
	f->at.v[0].len = len;
	begin_connecting(f);
}

/* --- by name --- */

static bool goes_by_address(const struct flow *f)
{
	return by_address(f, (const struct sockaddr *)&f->to);
}

/* Its requests are read from now on, the first bytes again. */
static int begin_header_rewrite(struct flow *f)
{
	struct buf *raw;
	int r = header_rewrite_new(f->name, EGRESS_BUF_BYTES, &f->header_rewrite);

	if (r < 0)
		return r;
	raw = header_rewrite_raw(f->header_rewrite);
	r = buf_put(raw, buf_data(&f->up.out), buf_len(&f->up.out));
	buf_drop(&f->up.out, buf_len(&f->up.out));
	f->up.out.max = 0;
	return r;
}

/*
 * A host whose requests get headers is looked up by us, too: what is set may be a secret, and the
 * program must not choose the address it is sent to. Others are named for their allowance only.
 */
static void on_name(struct flow *f, bool tls)
{
	const struct egrule_proxy *p = proxy_of(f);
	const struct egrule_header *v;
	bool has_headers = egrule_headers(f->e->rules, f->name, &v) > 0;

	if (has_headers && tls) {
		flow_end(f, false, "headers cannot be set inside of TLS");
	} else if (!goes_by_address(f) && !egrule_name(f->e->rules, f->name)) {
		flow_end(f, false, "the name is not allowed");
	} else if (!tls && egrule_has_headers(f->e->rules) && begin_header_rewrite(f) < 0) {
		flow_end(f, false, "no memory");
	} else if (!has_headers && goes_by_address(f)) {
		f->name[0] = '\0';
		go_direct(f);
	} else if (p) {		/* it is told the name, and looks it up itself */
		begin_resolving(f, p->host, p->port);
	} else {
		begin_resolving(f, f->name, ntohs(f->to.sin_port));
	}
}

/* It says no name, or not yet. */
static void on_no_name(struct flow *f, const char *reason)
{
	f->name[0] = '\0';
	if (goes_by_address(f))
		go_direct(f);
	else
		flow_end(f, false, reason);
}

static void on_first_bytes(struct flow *f)
{
	int r = side_take(&f->in, &f->up.out);
	enum sniff s = sniff_name(buf_data(&f->up.out), buf_len(&f->up.out), f->name);

	if (r < 0)
		flow_end(f, false, strerror(-r));
	else if (s == SNIFF_TLS || s == SNIFF_HTTP)
		on_name(f, s == SNIFF_TLS);
	else if (s == SNIFF_NONE || f->in.read_end)
		on_no_name(f, "the address is not allowed, and it says no name");
}

static void on_in(struct watch *w, unsigned ready, void *user)
{
	struct flow *f = flow_from(user);

	if (f->state == FLOW_NAMING)
		on_first_bytes(f);
	else if (f->state == FLOW_OPEN)
		pump(f);
}

/* Where the server speaks first, a connection that may go on is not held for long. */
static void begin_naming(struct flow *f)
{
	uint64_t wait_ms = goes_by_address(f) ? EGRESS_SILENCE_MS : EGRESS_NAME_WAIT_MS;

	if (watch_set(&f->in.watch, WATCH_READ) < 0 ||
	    timer_set(&f->limit, loop_now_ms(f->e->loop) + wait_ms) < 0)
		flow_end(f, false, "no memory");
}

static void on_limit(struct timer *t, void *user)
{
	struct flow *f = flow_from(user);

	if (f->state == FLOW_NAMING)
		on_no_name(f, "it says no name in time");
	else
		flow_end(f, false, "no connection in time");
}

/* --- the beginning --- */

static void judge(struct flow *f)
{
	enum egrule_verdict v = egrule_address(f->e->rules, ntohl(f->to.sin_addr.s_addr));

	if (f->is_dns && egrule_dns(f->e->rules))
		go_dns(f);
	else if (v == EGRULE_BY_NAME || (v == EGRULE_ALLOW && egrule_has_headers(f->e->rules)))
		begin_naming(f);
	else if (v == EGRULE_ALLOW)
		go_direct(f);
	else
		flow_end(f, false, "denied");
}

void egress_flow_start(struct egress *e, int fd)
{
	struct flow *f = e->n_flows < EGRESS_BOX_FLOWS_MAX ? calloc(1, sizeof(*f)) : NULL;
	socklen_t len = sizeof(f->to);

	if (!f || !egress_host_take(e->host)) {
		free(f);
		log_debug("egress_full", "id=%s open=%u", e->id, e->n_flows);
		egress_reset(fd);
		return;
	}
	*f = (struct flow){ .magic = FLOW_MAGIC, .e = e, .in.fd = fd, .up.fd = -1 };
	buf_init(&f->in.out, EGRESS_BUF_BYTES);
	buf_init(&f->up.out, EGRESS_BUF_BYTES);
	timer_init(&f->limit, e->loop, on_limit, f);
	list_add_tail(&e->flows, &f->node);
	e->n_flows++;
	if (getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &f->to, &len) < 0 ||
	    watch_init(&f->in.watch, e->loop, fd, on_in, f) < 0) {
		flow_end(f, false, strerror(errno));
		return;
	}
	tune(fd);
	f->is_dns = ntohl(f->to.sin_addr.s_addr) == NSNET_DNS && ntohs(f->to.sin_port) == NSNET_DNS_PORT;
	judge(f);
}

static bool is_allowed(const struct flow *f)
{
	bool has_target = f->state >= FLOW_CONNECTING && !proxy_of(f) && f->next;

	if (f->is_dns && egrule_dns(f->e->rules))
		return true;
	if (f->state == FLOW_NAMING)
		return egrule_address(f->e->rules, ntohl(f->to.sin_addr.s_addr)) != EGRULE_DENY;
	if (f->name[0] && egrule_name(f->e->rules, f->name))
		return true;
	return has_target ? by_address(f, &f->at.v[f->next - 1].sa) : goes_by_address(f);
}

void egress_flows_check(struct egress *e)
{
	list_for_each_safe(n, &e->flows) {
		struct flow *f = list_entry(n, struct flow, node);

		if (!is_allowed(f))
			flow_end(f, false, "not allowed any more");
	}
}
