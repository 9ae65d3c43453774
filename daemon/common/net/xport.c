/* SPDX-License-Identifier: MIT */
/* Sockets, plain or with TLS over them. Scratch memory is the loop thread's stack. */
#include "daemon/common/net/xport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/net/tls.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"

/* One record may already lie half in OpenSSL, so that less ciphertext than this always fits, as
 * plain text, into XPORT_READ_BYTES. */
#define CIPHER_READ_BYTES  (XPORT_READ_BYTES - 17u * 1024)
#define CIPHER_OUT_MAX	   65536u	/* waiting ciphertext above which nothing more is encrypted */

int xport_init(struct xport *x, struct loop *l, int fd, struct tls_conn *tls, watch_fn *fn, void *user)
{
	int r;

	*x = (struct xport){ .fd = fd, .tls = tls };
	r = watch_init(&x->watch, l, fd, fn, user);
	if (r < 0)
		xport_close(x);
	return r;
}

void xport_close(struct xport *x)
{
	if (x->fd < 0)
		return;
	watch_fini(&x->watch);
	x->fd = fd_close(x->fd);
	x->tls = tls_conn_free(x->tls);
	x->blocked = false;
}

int xport_want(struct xport *x)
{
	if (x->fd < 0)
		return 0;
	return watch_set(&x->watch, (x->read_paused ? 0 : WATCH_READ) | (x->blocked ? WATCH_WRITE : 0));
}

static ssize_t receive(struct xport *x, uint8_t *p, size_t cap)
{
	ssize_t n = recv(x->fd, p, cap, MSG_DONTWAIT);

	if (n < 0)
		return -(errno == EINTR ? EAGAIN : errno);
	x->received_bytes += (uint64_t)n;
	return n;
}

static ssize_t transmit(struct xport *x, const uint8_t *p, size_t n)
{
	ssize_t sent = send(x->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		x->blocked = true;
		return -EAGAIN;
	}
	x->blocked = (size_t)sent < n;
	x->progress_bytes += (uint64_t)sent;
	return sent;
}

int xport_flush(struct xport *x)
{
	struct buf *out;
	ssize_t n;

	if (!x->tls || x->fd < 0)
		return 0;
	out = tls_conn_out(x->tls);
	while (buf_len(out)) {
		n = transmit(x, buf_data(out), buf_len(out));
		if (n < 0)
			return (int)n;
		buf_drop(out, (size_t)n);
		if (x->blocked)
			return -EAGAIN;
	}
	return 0;
}

size_t xport_unsent(const struct xport *x)
{
	return x->tls ? buf_len(tls_conn_out(x->tls)) : 0;
}

int xport_handshake(struct xport *x)
{
	scratch_ uint8_t in[CIPHER_READ_BYTES];
	ssize_t n;
	int r, flushed;

	for (;;) {
		r = tls_conn_handshake(x->tls);
		flushed = xport_flush(x);
		if (flushed < 0 && flushed != -EAGAIN && r != -EPROTO)
			return flushed;
		if (r != -EAGAIN)
			return r;
		n = receive(x, in, sizeof(in));
		if (n <= 0)
			return n < 0 ? (int)n : -ECONNRESET;
		tls_conn_feed(x->tls, in, (size_t)n);
	}
}

static ssize_t read_tls(struct xport *x, uint8_t *p, size_t cap)
{
	scratch_ uint8_t in[CIPHER_READ_BYTES];
	ssize_t n;

	if (tls_conn_has_more(x->tls)) {
		n = tls_conn_read(x->tls, p, cap);
		if (n != -EAGAIN)
			return n;
	}
	n = receive(x, in, sizeof(in));
	if (n <= 0)
		return n < 0 ? n : -ECONNRESET;
	tls_conn_feed(x->tls, in, (size_t)n);
	return tls_conn_read(x->tls, p, cap);
}

ssize_t xport_read(struct xport *x, uint8_t *p, size_t cap)
{
	ssize_t n;
	int r;

	must(cap >= XPORT_READ_BYTES || !x->tls);
	if (x->fd < 0)
		return -EBADF;
	if (!x->tls)
		return receive(x, p, cap);
	n = read_tls(x, p, cap);
	r = xport_flush(x); /* a key update's answer, an alert */
	return r < 0 && r != -EAGAIN && n == -EAGAIN ? r : n;
}

bool xport_has_more(const struct xport *x)
{
	return x->fd >= 0 && x->tls && tls_conn_has_more(x->tls);
}

ssize_t xport_write(struct xport *x, const uint8_t *p, size_t n)
{
	int r;

	if (x->fd < 0)
		return -EPIPE;
	if (!x->tls)
		return transmit(x, p, n);
	if (xport_unsent(x) >= CIPHER_OUT_MAX) {
		r = xport_flush(x);
		if (r < 0)
			return r;
	}
	n = MIN(n, CIPHER_OUT_MAX);
	r = tls_conn_write(x->tls, p, n);
	if (r < 0)
		return r;
	r = xport_flush(x);
	return r < 0 && r != -EAGAIN ? r : (ssize_t)n;
}

void xport_shutdown(struct xport *x)
{
	if (x->fd < 0)
		return;
	if (x->tls) {
		tls_conn_shutdown(x->tls);
		(void)!xport_flush(x); /* the peer may be gone already */
	}
	(void)shutdown(x->fd, SHUT_WR);
}
