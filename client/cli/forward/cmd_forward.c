/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl port-forward: ports of this host's loopback that are those of a sandbox, for people and browsers. Each connection is joined
 * with one to the daemon's gateway (forward.h), by a token of this process, good for this sandbox alone. The sandbox is watched, so that it ends with it.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/cli/forward/forward.h"
#include "client/cli/term/again.h"
#include "client/cli/term/clock.h"
#include "client/cli/term/out.h"
#include "client/cli/term/sig.h"

#define PAIRS_MAX     32u
#define CONNS_MAX     256u	/* others wait in the kernel's queue */
#define BACKLOG	      128
#define FREE_TRIES    20u	/* a port that is free on one family may be taken on the other */
#define RESTART_MS    30000	/* a gateway that is away may come back */
#define RETRY_GAP_MS  100
#define FAMILIES      2u

struct forwarded {
	struct forward_pair pair;
	int fds[FAMILIES];	/* 127.0.0.1, ::1; -1 = this host has none */
};

struct forward {
	struct cli *cli;
	char sandbox[128];
	struct forwarded ports[PAIRS_MAX];
	size_t n_ports;
	struct forward_gateway gateway;
	struct ab_token *token;
	struct forward_conn *conns;
	size_t n_conns;
	struct ab_call *watch;
	struct again again;
	bool seen;		/* the sandbox is among what the watch began with */
	int sig_fd;
	char said[FORWARD_WHY_BYTES];	/* the failure that was said last */
};

/* --- listening --- */

static int cmd_forward_listen_one(int family, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const struct sockaddr *at = family == AF_INET ? (const void *)&in : (const void *)&in6;
	socklen_t n = family == AF_INET ? sizeof(in) : sizeof(in6);
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1, r;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, at, n) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	r = -errno;
	(void)close(fd);
	return r;
}

static uint16_t cmd_forward_port_of(int fd)
{
	struct sockaddr_in in = { 0 };
	socklen_t n = sizeof(in);

	return getsockname(fd, (struct sockaddr *)&in, &n) == 0 ? ntohs(in.sin_port) : 0;
}

/* Both families, so that nobody else can be localhost there for one of them. */
static int listen_both(struct forwarded *f, uint16_t port)
{
	f->fds[0] = cmd_forward_listen_one(AF_INET, port);
	if (f->fds[0] < 0)
		return f->fds[0];
	f->pair.local = cmd_forward_port_of(f->fds[0]);
	f->fds[1] = cmd_forward_listen_one(AF_INET6, f->pair.local);
	if (f->fds[1] >= 0 || f->fds[1] == -EAFNOSUPPORT || f->fds[1] == -EADDRNOTAVAIL)
		return 0;
	(void)close(f->fds[0]);
	return f->fds[1];
}

static int open_port(struct forward *w, struct forwarded *f)
{
	uint16_t wanted = f->pair.local;
	unsigned tries = wanted ? 1 : FREE_TRIES;
	int r = -EADDRINUSE;

	while (r == -EADDRINUSE && tries--)
		r = listen_both(f, wanted);
	if (r == 0)
		return 0;
	if (wanted)
		return fail_here(w->cli, "localhost:%u: %s", wanted, strerror(-r));
	return fail_here(w->cli, "no port of localhost is free for %u: %s", f->pair.remote, strerror(-r));
}

static void print_port(const struct forward *w, const struct forwarded *f)
{
	char url[32];
	struct json j;

	(void)snprintf(url, sizeof(url), "http://localhost:%u", f->pair.local);
	if (!w->cli->args.json) {
		printf("%s -> %u\n", url, f->pair.remote);
		return;
	}
	json_begin(&j, stdout);
	json_text(&j, "sandbox", w->sandbox);
	json_uint(&j, "local", f->pair.local);
	json_uint(&j, "remote", f->pair.remote);
	json_text(&j, "url", url);
	json_end(&j);
}

/* All of them or none, before the first is said. */
static int open_ports(struct forward *w)
{
	const struct args *a = &w->cli->args;

	for (size_t i = 1; i < a->n_words; i++) {
		struct forwarded *f = &w->ports[w->n_ports];
		int r;

		*f = (struct forwarded){ .fds = { -1, -1 } };
		(void)forward_pair_read(a->words[i], &f->pair);	/* check() has */
		r = open_port(w, f);
		if (r)
			return r;
		w->n_ports++;
	}
	for (size_t i = 0; i < w->n_ports; i++)
		print_port(w, &w->ports[i]);
	return fflush(stdout) == 0 ? 0 : EXIT_ERROR;
}

/* --- the gateway --- */

static bool take_socket(struct forward_gateway *g, const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	if (!*path || strlen(path) >= sizeof(un.sun_path))
		return false;
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	memcpy(&g->at[0], &un, sizeof(un));
	g->len[0] = sizeof(un);
	g->n = 1;
	return true;
}

static bool take_url(struct forward_gateway *g, const char *url)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct addrinfo *list = NULL;
	char host[FORWARD_HOST_BYTES], port[8];
	uint16_t number;

	if (!forward_url_read(url, host, &number))
		return false;
	(void)snprintf(port, sizeof(port), "%u", number);
	if (getaddrinfo(host, port, &hints, &list) != 0)
		return false;
	for (const struct addrinfo *a = list; a && g->n < FORWARD_ADDRESSES; a = a->ai_next) {
		if (a->ai_addrlen > sizeof(g->at[0]))
			continue;
		memcpy(&g->at[g->n], a->ai_addr, a->ai_addrlen);
		g->len[g->n++] = a->ai_addrlen;
	}
	freeaddrinfo(list);
	return g->n;
}

static int find_gateway(struct forward *w)
{
	struct ab_gateway *found;
	int r = 0;

	if (ab_gateway_find(w->cli->client, NULL, &found))
		return fail_client(w->cli);
	if (!take_url(&w->gateway, found->url) && !take_socket(&w->gateway, found->socket)) {
		say(w->cli, *found->url ? "%s: port-forward needs a listener without TLS; set [gateway] socket in agentboxd's configuration" :
					  "this agentboxd's gateway listens at no address%s; set [gateway] listen in its configuration",
		    found->url);
		r = EXIT_ERROR;
	}
	ab_free(found);
	return r;
}

static int make_token(struct forward *w)
{
	const char *const scope[] = { w->sandbox };
	const struct ab_token_options o = { .label = "agentboxctl port-forward", .run = true, .sandboxes = scope, .n_sandboxes = 1 };

	if (ab_token_create(w->cli->client, &o, NULL, &w->token))
		return fail_client(w->cli);
	w->gateway.sandbox = w->sandbox;
	w->gateway.token = w->token->secret;
	return 0;
}

static int find_sandbox(struct forward *w)
{
	struct ab_sandbox *sb;

	if (ab_sandbox_get(w->cli->client, w->cli->args.words[0], 0, NULL, &sb))
		return fail_client(w->cli);
	(void)snprintf(w->sandbox, sizeof(w->sandbox), "%s", sb->id);
	ab_free(sb);
	return 0;
}

/* --- the sandbox --- */

static int begin_watch(struct forward *w)
{
	const struct ab_sandbox_watch_options o = { .sandbox = w->sandbox, .initial = true };

	ab_call_free(w->watch);
	w->watch = NULL;
	w->seen = false;
	return ab_sandbox_watch_start(w->cli->client, &o, NULL, &w->watch);
}

static int ended(const struct forward *w, const char *reason)
{
	char clean[256];

	return fail_here(w->cli, "sandbox %s has ended%s%s", w->sandbox, *reason ? ": " : "", safe(reason, clean, sizeof(clean)));
}

/* -1: it is there, as far as we know; else the exit code. */
static int take_news(struct forward *w)
{
	struct ab_sandbox_event e;

	while (ab_sandbox_watch_next(w->watch, &e)) {
		again_heard(&w->again);
		w->seen |= e.sandbox && e.type != AB_SANDBOX_WENT;
		if (e.type == AB_SANDBOX_WENT || (e.type == AB_SANDBOX_RESYNC_DONE && !w->seen))
			return ended(w, e.reason);
	}
	return -1;
}

/* -1: it goes on; else the exit code. */
static int look_at_watch(struct forward *w, int *ret_signo)
{
	int code = take_news(w), r;

	if (code >= 0 || !ab_call_is_done(w->watch))
		return code;
	r = again_wait(&w->again, w->cli, ab_call_error(w->watch), w->sig_fd);
	if (r < 0)
		return ab_call_error(w->watch) ? fail(w->cli, ab_call_error(w->watch)) : EXIT_ERROR;
	*ret_signo = r;
	if (r || begin_watch(w) == 0)
		return -1;
	return fail_here(w->cli, "out of memory");
}

/* --- connections --- */

static void accept_one(struct forward *w, const struct forwarded *f, int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct forward_conn *c;

	if (fd < 0)
		return;
	c = forward_conn_new(fd, f->pair.remote, cli_boot_ms() + RESTART_MS);
	if (!c)
		return;
	c->next = w->conns;
	w->conns = c;
	w->n_conns++;
}

/* Each failure once in a row: a browser tries again and again. */
static void say_end(struct forward *w, const struct forward_conn *c)
{
	char clean[FORWARD_WHY_BYTES];

	if (c->state != FORWARD_OVER || !c->why[0] || !strcmp(c->why, w->said))
		return;
	(void)snprintf(w->said, sizeof(w->said), "%s", c->why);
	say(w->cli, "port %u: %s", c->remote, safe(c->why, clean, sizeof(clean)));
}

/* `p` has what they waited for, in their order. */
static void go_conns(struct forward *w, const struct pollfd *p)
{
	int64_t now_ms = cli_boot_ms();

	for (struct forward_conn **at = &w->conns; *at; p += 2) {
		struct forward_conn *c = *at;

		forward_conn_go(c, &w->gateway, p, now_ms);
		if (c->state == FORWARD_JOINED)
			w->said[0] = 0;
		if (c->state != FORWARD_OVER) {
			at = &c->next;
			continue;
		}
		say_end(w, c);
		*at = forward_conn_free(c);
		w->n_conns--;
	}
}

struct waits {
	struct pollfd p[2 + PAIRS_MAX * FAMILIES + CONNS_MAX * 2];
	size_t n;
	bool redial;		/* a gateway that is away is tried again soon */
};

static void cmd_forward_fill(const struct forward *w, struct waits *ret)
{
	*ret = (struct waits){ .n = 2 };
	ret->p[0] = (struct pollfd){ .fd = ab_fd(w->cli->client), .events = (short)ab_events(w->cli->client) };
	ret->p[1] = (struct pollfd){ .fd = w->sig_fd, .events = POLLIN };
	for (size_t i = 0; i < w->n_ports * FAMILIES; i++)
		ret->p[ret->n++] = (struct pollfd){ .fd = w->n_conns < CONNS_MAX ? w->ports[i / FAMILIES].fds[i % FAMILIES] : -1,
						    .events = POLLIN };
	for (const struct forward_conn *c = w->conns; c; c = c->next) {
		forward_conn_poll(c, &ret->p[ret->n]);
		ret->redial |= c->state == FORWARD_WAITS;
		ret->n += 2;
	}
}

static int wait_ms(const struct forward *w, const struct waits *x)
{
	int ms = ab_timeout(w->cli->client);

	return x->redial && (ms < 0 || ms > RETRY_GAP_MS) ? RETRY_GAP_MS : ms;
}

static void go(struct forward *w, const struct waits *x)
{
	const struct pollfd *ports = x->p + 2;

	go_conns(w, ports + w->n_ports * FAMILIES);	/* those that `x` knows; new ones come after them */
	for (size_t i = 0; i < w->n_ports * FAMILIES && w->n_conns < CONNS_MAX; i++)
		if (ports[i].revents)
			accept_one(w, &w->ports[i / FAMILIES], ports[i].fd);
}

static int loop(struct forward *w, int *ret_signo)
{
	int code = -1;

	while (code < 0 && !*ret_signo) {
		struct waits x;

		cmd_forward_fill(w, &x);
		(void)poll(x.p, (nfds_t)x.n, wait_ms(w, &x));
		if (x.p[1].revents)
			*ret_signo = sig_take(w->sig_fd);
		(void)ab_process(w->cli->client);
		go(w, &x);
		if (!*ret_signo)
			code = look_at_watch(w, ret_signo);
	}
	return code;
}

/* --- the command --- */

static void forward_fini(struct forward *w)
{
	ab_call_free(w->watch);
	while (w->conns)
		w->conns = forward_conn_free(w->conns);
	for (size_t i = 0; i < w->n_ports * FAMILIES; i++)
		if (w->ports[i / FAMILIES].fds[i % FAMILIES] >= 0)
			(void)close(w->ports[i / FAMILIES].fds[i % FAMILIES]);
	if (w->token)
		explicit_bzero((char *)w->token->secret, strlen(w->token->secret));
	ab_free(w->token);
	free(w);
}

static int serve(struct forward *w, int *ret_signo)
{
	int r = find_sandbox(w);

	if (!r)
		r = find_gateway(w);
	if (!r)
		r = make_token(w);
	if (!r)
		r = open_ports(w);
	if (r)
		return r;
	w->sig_fd = sig_open();
	if (w->sig_fd < 0 || begin_watch(w) < 0)
		return fail_here(w->cli, "%s", w->sig_fd < 0 ? strerror(-w->sig_fd) : "out of memory");
	return loop(w, ret_signo);
}

static int cmd_forward_run(struct cli *cli)
{
	struct forward *w = calloc(1, sizeof(*w));
	int signo = 0, r;

	if (!w)
		return fail_here(cli, "out of memory");
	w->cli = cli;
	r = serve(w, &signo);
	forward_fini(w);
	if (signo)
		sig_die(signo);
	return r;
}

static int cmd_forward_check(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct forward_pair pair;

	if (a->n_words > PAIRS_MAX + 1)
		return usage(cli->command, "at most %u ports at once", PAIRS_MAX);
	for (size_t i = 1; i < a->n_words; i++)
		if (!forward_pair_read(a->words[i], &pair))
			return usage(cli->command, "a port is LOCAL:REMOTE, :REMOTE or PORT, each 1 to 65535, not '%s'", a->words[i]);
	return 0;
}

const struct command cmd_port_forward = {
	.name = "port-forward",
	.words = "ID [LOCAL:]REMOTE…",
	.help = "Makes ports of a sandbox ones of localhost, for browsers and people, until it is interrupted or the sandbox ends.\n"
		"With :REMOTE a free local port is taken. Whoever can use localhost can use them. HTTP/1.1 and WebSockets.",
	.min_words = 2,
	.max_words = SIZE_MAX,
	.check = cmd_forward_check,
	.run = cmd_forward_run,
};
