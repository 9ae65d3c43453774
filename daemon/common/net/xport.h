/* SPDX-License-Identifier: MIT */
/*
 * The bytes of one connection: a socket, plain or TLS. Level-triggered; what cannot be written waits
 * in the caller, except ciphertext, of which at most about one write is held here.
 */
#ifndef AB_DAEMON_COMMON_NET_XPORT_H
#define AB_DAEMON_COMMON_NET_XPORT_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/ev/loop.h"
#include "proto/base/cc.h"

struct tls_conn;

#define XPORT_READ_BYTES 65536u	/* what a reader should offer room for */

struct xport {
	struct watch watch;
	int fd;			/* -1 = closed */
	struct tls_conn *tls;	/* owned; NULL = plain */
	bool blocked;		/* the socket took less than was offered; wait for WATCH_WRITE */
	bool read_paused;
	uint64_t progress_bytes;	/* taken by the socket */
	uint64_t received_bytes;
};

/* Takes fd and tls over, also on failure. Watching begins with xport_want(). */
must_check int xport_init(struct xport *x, struct loop *l, int fd, struct tls_conn *tls,
			  watch_fn *fn, void *user);
void xport_close(struct xport *x);	/* idempotent, also on a zeroed one with fd -1 */

/* 0 done, -EAGAIN, -EPROTO (tls_conn_failure() says why), -ECONNRESET at the end of input, -errno. */
must_check int xport_handshake(struct xport *x);
/* n > 0; 0 = orderly end; -EAGAIN; -ECONNRESET also for TLS that just stops; -EPROTO; -errno.
 * With TLS `cap` is at least XPORT_READ_BYTES. */
must_check ssize_t xport_read(struct xport *x, uint8_t *p, size_t cap);
/* A read would give something without the socket becoming readable. */
bool xport_has_more(const struct xport *x);
/* Bytes taken (maybe fewer than n: `blocked` is set then), -EAGAIN, -errno. */
must_check ssize_t xport_write(struct xport *x, const uint8_t *p, size_t n);
/* Ciphertext that waits: 0 all gone, -EAGAIN, -errno. */
must_check int xport_flush(struct xport *x);
size_t xport_unsent(const struct xport *x);
/* close_notify where there is TLS, then end of our stream; the other direction stays open. */
void xport_shutdown(struct xport *x);
/* Watches what the state asks for: reading unless paused, writing if blocked. */
must_check int xport_want(struct xport *x);

/* --- sock.c: sockets as this daemon wants them --- */

struct sockaddr;
/* No Nagle; a peer that acknowledges nothing for 30 s is gone. Quiet on Unix sockets. */
void sock_tune(int fd);
/* Non-blocking CLOEXEC stream socket, connect started. 0, -EINPROGRESS, -errno. */
must_check int sock_connect(const struct sockaddr *addr, unsigned len, int *ret_fd);
int sock_error(int fd);		/* SO_ERROR as -errno, 0 = fine */
/* "127.0.0.1:80", "[::1]:80", "unix". */
void sock_text(const struct sockaddr *addr, char *ret, size_t cap);
void sock_peer_text(int fd, char *ret, size_t cap);

#endif
