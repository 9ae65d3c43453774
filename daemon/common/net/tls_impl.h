/* SPDX-License-Identifier: MIT */
/* Inside of TLS, shared by tls.c and tls_conn.c only. */
#ifndef AB_DAEMON_COMMON_NET_TLS_IMPL_H
#define AB_DAEMON_COMMON_NET_TLS_IMPL_H

#include <openssl/ssl.h>

#include "daemon/common/net/tls.h"
#include "proto/base/map.h"

#define TLS_CHAIN_DEPTH_MAX	6
#define TLS_CERT_MAX_BYTES	(100u * 1024)	/* a peer's whole chain */
#define TLS_SESSIONS_MAX	256u		/* origins with a session kept; others start anew */

struct tls_client {
	unsigned refs;
	SSL_CTX *ctx;
	BIO_METHOD *bio;
	struct map sessions;	/* "host:port" → SSL_SESSION */
	char *ca_file;
};

struct tls_server {
	unsigned refs;
	SSL_CTX *ctx;
	BIO_METHOD *bio;
	char *(*certificate_for)(const char *name, void *user);
	void *user;
};

struct tls_failure {		/* what was wrong with the peer's certificate */
	int error;
	char subject[128], issuer[128];
	char not_before[24], not_after[24];
};

struct tls_conn {
	uint32_t magic;
	SSL *ssl;
	struct tls_client *client;	/* one of the two; a reference */
	struct tls_server *server;
	const uint8_t *in;		/* borrowed ciphertext */
	size_t n_in;
	struct buf kept;		/* ciphertext that outlived its loan; read before `in` */
	struct buf out;
	char *origin;			/* client: "host:port" */
	bool http1, http2;		/* what ALPN may choose */
	bool failed, closed;
	char error[128];
	struct tls_failure *untrusted;
};

/* Does OpenSSL find each certificate of the bundle in this folder, by its hash? */
bool tls_dir_has_all(const char *dir, const char *bundle);
/* Those of the folder and of the bundle. */
void tls_load_roots(SSL_CTX *ctx);
/* From an SSL_CTX callback. */
struct tls_conn *tls_conn_of(const SSL *ssl);
BIO_METHOD *tls_bio_method(void);
int tls_on_verify(int ok, X509_STORE_CTX *sc);
int tls_on_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_n, const unsigned char *in,
		unsigned n, void *user);
int tls_on_name(SSL *ssl, int *ret_alert, void *user);
int tls_on_session(SSL *ssl, SSL_SESSION *s);

#endif
