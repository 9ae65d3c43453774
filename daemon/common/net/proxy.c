/* SPDX-License-Identifier: MIT */
#include "daemon/common/net/proxy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/ev/loop.h"
#include "proto/base/buf.h"
#include "proto/base/fd.h"
#include "proto/base/host.h"
#include "proto/base/must.h"
#include "proto/base/status.h"
#include "proto/base/str.h"
#include "proto/wire/http1.h"

#define PORT_DEFAULT 80u
#define READ_BYTES   4096u
#define INTERIM_MAX  16u

/* --- addresses --- */

void proxy_free(struct proxy *p)
{
	if (!p)
		return;
	free(p->host);
	free(p->authorization);
	free(p);
}

static void proxy_freep(struct proxy **p)
{
	proxy_free(*p);
}

static int parse_user(struct proxy *p, const char *s, size_t n)
{
	char *coded, *plain = strndup(s, n);
	ssize_t len;

	if (!plain)
		return -ENOMEM;
	len = memchr(plain, ':', n) ? str_percent_decode(plain, n, false) : -EINVAL;
	coded = len < 0 ? NULL : str_base64_encode(plain, (size_t)len, true);
	free(plain);
	if (len < 0)
		return -EINVAL;
	p->authorization = coded ? str_printf("Basic %s", coded) : NULL;
	free(coded);
	return p->authorization ? 0 : -ENOMEM;
}

static int parse_host(struct proxy *p, const char *s, size_t n)
{
	struct host_port hp;

	if (host_port_parse(s, n, &hp) < 0 || (hp.has_port && !hp.port))
		return -EINVAL;
	p->port = hp.has_port ? hp.port : PORT_DEFAULT;
	p->host = str_dup(hp.host);
	return p->host ? 0 : -ENOMEM;
}

int proxy_parse(const char *url, struct proxy **ret)
{
	scoped(proxy_freep) struct proxy *p = NULL;
	const char *at;
	size_t n;
	int r;

	if (!mem_eq_ci(url, MIN(strlen(url), (size_t)7), "http://"))
		return -EINVAL;
	url += 7;
	n = strlen(url);
	if (n && url[n - 1] == '/')
		n--;
	if (!str_is_printable(url, n) || memchr(url, '/', n) || memchr(url, ' ', n))
		return -EINVAL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	at = memrchr(url, '@', n);
	if (at) {
		r = parse_user(p, url, (size_t)(at - url));
		if (r < 0)
			return r;
		n -= (size_t)(at - url) + 1;
		url = at + 1;
	}
	r = parse_host(p, url, n);
	if (r < 0)
		return r;
	*ret = give(p);
	return 0;
}

/* --- CONNECT --- */

struct proxy_talk {
	struct loop *loop;
	struct watch watch;
	struct grave grave;
	int fd;
	struct buf out, in;
	struct http1_head head;
	struct fields fields;
	unsigned interims;
	char *name;		/* host:port of the proxy, for texts */
	proxy_fn *done;
	void *user;
};

static void talk_free(void *p)
{
	struct proxy_talk *t = p;

	buf_fini(&t->out);
	buf_fini(&t->in);
	fields_fini(&t->fields);
	free(t->name);
	free(t);
}

struct proxy_talk *proxy_talk_free(struct proxy_talk *t)
{
	if (!t)
		return NULL;
	watch_fini(&t->watch);
	t->fd = fd_close(t->fd);
	loop_bury(t->loop, &t->grave, talk_free, t);
	return NULL;
}

static void proxy_finish(struct proxy_talk *t, const struct status *failure)
{
	int fd = t->fd;

	watch_fini(&t->watch);
	if (failure)
		fd = fd_close(fd);
	t->fd = -1;
	loop_bury(t->loop, &t->grave, talk_free, t);
	t->done(fd, failure, t->user);
}

static void proxy_fail(struct proxy_talk *t, enum ab_reason reason, const char *what)
{
	struct status st;

	status_set(&st, reason, "the proxy %s %s", t->name, what);
	proxy_finish(t, &st);
}

static void answered(struct proxy_talk *t)
{
	char text[64];

	if (t->head.status == 407) {
		proxy_fail(t, R_PROXY_AUTH, "wants other credentials (407)");
	} else if (t->head.status >= 300) {
		snprintf(text, sizeof(text), "refused the connection with status %u", t->head.status);
		proxy_fail(t, R_PROXY_FAILED, text);
	} else if (buf_len(&t->in)) {
		proxy_fail(t, R_PROXY_FAILED, "sent bytes of the far side before it was asked for any");
	} else {
		proxy_finish(t, NULL);
	}
}

/* False: it is over, or everything that came was used. */
static bool proxy_parse_one(struct proxy_talk *t)
{
	size_t used;
	enum http1_result r = http1_head_feed(&t->head, buf_data(&t->in), buf_len(&t->in), &used);

	buf_drop(&t->in, used);
	if (r == HTTP1_MORE)
		return false;
	if (r != HTTP1_DONE || t->head.status == 101 || ++t->interims > INTERIM_MAX) {
		proxy_fail(t, R_PROXY_FAILED, "does not answer in HTTP");
		return false;
	}
	if (t->head.interim) {
		http1_head_init_response(&t->head, false, true, &t->fields);
		return buf_len(&t->in) > 0;
	}
	answered(t);
	return false;
}

static void on_fd_ready(struct watch *w, unsigned ready, void *user)
{
	struct proxy_talk *t = user;
	ssize_t n;

	if (ready & WATCH_WRITE) {
		n = send(t->fd, buf_data(&t->out), buf_len(&t->out), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			proxy_fail(t, R_PROXY_FAILED, strerror(errno));
			return;
		}
		buf_drop(&t->out, n > 0 ? (size_t)n : 0);
		if (!buf_len(&t->out) && watch_set(&t->watch, WATCH_READ) < 0)
			proxy_fail(t, R_PROXY_FAILED, strerror(ENOMEM));
		return;
	}
	if (!buf_space(&t->in, READ_BYTES)) {
		proxy_fail(t, R_PROXY_FAILED, strerror(ENOMEM));
		return;
	}
	n = recv(t->fd, buf_space(&t->in, READ_BYTES), READ_BYTES, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		proxy_fail(t, R_PROXY_FAILED, n < 0 ? strerror(errno) : "closed the connection");
		return;
	}
	buf_added(&t->in, (size_t)n);
	while (proxy_parse_one(t))
		;
}

int proxy_talk(const struct proxy *p, struct loop *l, int fd, const char *host, uint16_t port,
	       proxy_fn *done, void *user, struct proxy_talk **ret)
{
	struct proxy_talk *t = calloc(1, sizeof(*t));
	const char *open = strchr(host, ':') ? "[" : "", *close = *open ? "]" : "";
	int r = -ENOMEM;

	if (!t) {
		fd_close(fd);
		return r;
	}
	t->loop = l;
	t->fd = fd;
	t->done = done;
	t->user = user;
	t->name = str_printf("%s:%u", p->host, p->port);
	http1_head_init_response(&t->head, false, true, &t->fields);
	if (t->name)
		r = buf_printf(&t->out, "CONNECT %s%s%s:%u HTTP/1.1\r\nhost: %s%s%s:%u\r\n", open, host,
			       close, port, open, host, close, port);
	if (!r && p->authorization)
		r = buf_printf(&t->out, "proxy-authorization: %s\r\n", p->authorization);
	if (!r)
		r = buf_put_str(&t->out, "\r\n");
	if (!r)
		r = watch_init(&t->watch, l, fd, on_fd_ready, t);
	if (!r)
		r = watch_set(&t->watch, WATCH_WRITE);
	if (r < 0) {
		proxy_talk_free(t);
		return r;
	}
	*ret = t;
	return 0;
}
