/* SPDX-License-Identifier: MIT */
/*
 * TLS without sockets: ciphertext in, ciphertext out, OpenSSL between. TLS 1.2 and 1.3 with ECDHE
 * and AEAD ciphers, security level 2; no renegotiation, compression or early data; ALPN h2 and
 * http/1.1. A peer is believed only by a chain of at most 6 to the system's roots or to `ca_file`
 * (which adds to them), and by OpenSSL's own check of its name or address. OPENSSL_CONF,
 * SSL_CERT_FILE and SSL_CERT_DIR have no say.
 *
 * A tls_client is one set of such settings; connections hold references, so that it can be replaced
 * while they live. It keeps one session per origin for resumption.
 */
#ifndef AB_DAEMON_COMMON_NET_TLS_H
#define AB_DAEMON_COMMON_NET_TLS_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct tls_client;
struct tls_server;
struct tls_conn;

/* OpenSSL set up without its configuration file. main() calls it before anything that might use
 * OpenSSL; calling it again is harmless. */
void tls_setup(void);

struct tls_client_options {
	const char *ca_file;		/* PEM, added to the system's roots; NULL = none */
	const char *cert_file, *key_file; /* PEM, both or none */
	bool http1_only;		/* offers no h2 */
};

/* 0; -EINVAL: a file cannot be used, `why` (FIELD_INVALID) names it; -ENOMEM. */
must_check int tls_client_new(const struct tls_client_options *o, struct tls_client **ret,
			      struct status *why);
struct tls_client *tls_client_ref(struct tls_client *t);
struct tls_client *tls_client_unref(struct tls_client *t);	/* NULL is fine; returns NULL */

struct tls_server_options {
	const char *cert_file, *key_file;	/* PEM; the certificate with its chain */
	const char *client_ca_file;		/* require clients to have a certificate by it */
	/* The certificate, with its chain, for a client that asks for this name (SNI): PEM on the heap, for key_file's
	 * key. NULL from it: cert_file's. May be NULL. */
	char *(*certificate_for)(const char *name, void *user);
	void *user;
};

/* As tls_client_new(). */
must_check int tls_server_new(const struct tls_server_options *o, struct tls_server **ret,
			      struct status *why);
struct tls_server *tls_server_unref(struct tls_server *t);	/* returns NULL */

/* --- connections --- */

/* `host`: a name (SNI, certificate name) or an address (certificate address). http1_only: h2 is not offered, as with the option. */
must_check int tls_conn_client(struct tls_client *t, const char *host, uint16_t port, bool http1_only, struct tls_conn **ret);
/* Offers by ALPN what is true; a client without ALPN gets HTTP/1.1 if allowed. */
must_check int tls_conn_server(struct tls_server *t, bool http1, bool http2, struct tls_conn **ret);
struct tls_conn *tls_conn_free(struct tls_conn *c);	/* NULL is fine; returns NULL */

/* The next ciphertext of the peer; borrowed until the next handshake or read returns. */
void tls_conn_feed(struct tls_conn *c, const uint8_t *p, size_t n);
/* What must be sent. */
struct buf *tls_conn_out(struct tls_conn *c);

/* 0 when done, -EAGAIN: feed more, -EPROTO: failed, see tls_conn_failure(). Send out() after each. */
must_check int tls_conn_handshake(struct tls_conn *c);
/* Plain bytes, 0 = the peer closed its side in an orderly way, -EAGAIN: feed more, -EPROTO. */
must_check ssize_t tls_conn_read(struct tls_conn *c, uint8_t *p, size_t n);
/* A read would give something at once: bytes, or the end. */
bool tls_conn_has_more(const struct tls_conn *c);
/* Encrypts all of it into out(). 0, -EPROTO, -ENOMEM. */
must_check int tls_conn_write(struct tls_conn *c, const uint8_t *p, size_t n);
void tls_conn_shutdown(struct tls_conn *c);	/* close_notify into out() */

bool tls_conn_has_h2(const struct tls_conn *c);	/* agreed on by ALPN */
bool tls_conn_is_resumed(const struct tls_conn *c);
/* Client: is the peer's certificate, which was verified for its own host, good for this one too? */
bool tls_conn_covers(const struct tls_conn *c, const char *host);
/* After -EPROTO: TLS_UNTRUSTED with issuer, subject, dates and CA file, else UNREACHABLE. */
void tls_conn_failure(const struct tls_conn *c, struct status *ret);

#endif
