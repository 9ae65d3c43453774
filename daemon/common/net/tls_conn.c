/* SPDX-License-Identifier: MIT */
/*
 * One TLS connection over a BIO that reads what was fed and writes into a buf. Everything fed is
 * used up by the next read or handshake, or kept; an end, orderly or not, is sticky.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/net/tls_impl.h"
#include "proto/base/host.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* RFC 9525: a common name is no name of a host, also where the certificate has no other. */
#define HOST_FLAGS (X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)

#define CONN_MAGIC 0x746c7363u

struct tls_conn *tls_conn_of(const SSL *ssl)
{
	struct tls_conn *c = SSL_get_app_data(ssl);

	must(c && c->magic == CONN_MAGIC);
	return c;
}

/* --- the BIO --- */

static int bio_read(BIO *b, char *p, size_t n, size_t *ret)
{
	struct tls_conn *c = BIO_get_data(b);
	bool from_kept = buf_len(&c->kept);
	size_t have = from_kept ? buf_len(&c->kept) : c->n_in;

	BIO_clear_retry_flags(b);
	if (!have) {
		BIO_set_retry_read(b);
		return 0;
	}
	n = MIN(n, have);
	memcpy(p, from_kept ? buf_data(&c->kept) : c->in, n);
	if (from_kept) {
		buf_drop(&c->kept, n);
	} else {
		c->in += n;
		c->n_in -= n;
	}
	*ret = n;
	return 1;
}

static int bio_write(BIO *b, const char *p, size_t n, size_t *ret)
{
	struct tls_conn *c = BIO_get_data(b);

	BIO_clear_retry_flags(b);
	if (buf_put(&c->out, p, n) < 0)
		return 0;
	*ret = n;
	return 1;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	return cmd == BIO_CTRL_FLUSH;
}

BIO_METHOD *tls_bio_method(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "agentbox");

	if (!m)
		return NULL;
	BIO_meth_set_read_ex(m, bio_read);
	BIO_meth_set_write_ex(m, bio_write);
	BIO_meth_set_ctrl(m, bio_ctrl);
	return m;
}

/* --- OpenSSL's callbacks --- */

static void name_text(const X509_NAME *name, char *ret, size_t cap)
{
	BIO *b = BIO_new(BIO_s_mem());
	int n;

	ret[0] = 0;
	if (!b)
		return;
	X509_NAME_print_ex(b, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
	n = BIO_read(b, ret, (int)cap - 1);
	ret[n > 0 ? n : 0] = 0;
	BIO_free(b);
}

static void time_text(const ASN1_TIME *t, char *ret, size_t cap)
{
	struct tm tm;

	if (!ASN1_TIME_to_tm(t, &tm) || !strftime(ret, cap, "%Y-%m-%dT%H:%M:%SZ", &tm))
		ret[0] = 0;
}

int tls_on_verify(int ok, X509_STORE_CTX *sc)
{
	struct tls_conn *c =
		tls_conn_of(X509_STORE_CTX_get_ex_data(sc, SSL_get_ex_data_X509_STORE_CTX_idx()));
	X509 *cert = X509_STORE_CTX_get_current_cert(sc);
	struct tls_failure *f;

	if (ok || c->untrusted)
		return ok;
	f = calloc(1, sizeof(*f));
	if (!f)
		return 0;
	f->error = X509_STORE_CTX_get_error(sc);
	if (cert) {
		name_text(X509_get_subject_name(cert), f->subject, sizeof(f->subject));
		name_text(X509_get_issuer_name(cert), f->issuer, sizeof(f->issuer));
		time_text(X509_get0_notBefore(cert), f->not_before, sizeof(f->not_before));
		time_text(X509_get0_notAfter(cert), f->not_after, sizeof(f->not_after));
	}
	c->untrusted = f;
	return 0;
}

static bool offers(const unsigned char *in, unsigned n, const char *name)
{
	size_t len = strlen(name);

	for (unsigned at = 0; at < n; at += in[at] + 1u)
		if (in[at] == len && at + 1 + len <= n && !memcmp(in + at + 1, name, len))
			return true;
	return false;
}

int tls_on_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_n, const unsigned char *in,
		unsigned n, void *user)
{
	const struct tls_conn *c = tls_conn_of(ssl);
	const char *chosen = NULL;

	if (c->http2 && offers(in, n, "h2"))
		chosen = "h2";
	else if (c->http1 && offers(in, n, "http/1.1"))
		chosen = "http/1.1";
	if (!chosen)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*ret = (const unsigned char *)chosen;
	*ret_n = (unsigned char)strlen(chosen);
	return SSL_TLSEXT_ERR_OK;
}

/* The first certificate of the PEM is the one, the rest its chain; the key stays. */
static bool use_chain(SSL *ssl, const char *pem)
{
	BIO *b = BIO_new_mem_buf(pem, -1);
	X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
	bool ok = x && SSL_use_certificate(ssl, x) == 1 && SSL_clear_chain_certs(ssl) == 1;

	X509_free(x);
	while (ok && (x = PEM_read_bio_X509(b, NULL, NULL, NULL))) {
		ok = SSL_add1_chain_cert(ssl, x) == 1;
		X509_free(x);
	}
	BIO_free(b);
	ERR_clear_error();	/* the end of the text is one */
	return ok;
}

int tls_on_name(SSL *ssl, int *ret_alert, void *user)
{
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	const struct tls_server *t = tls_conn_of(ssl)->server;
	char *pem = name ? t->certificate_for(name, t->user) : NULL;
	bool ok = !pem || use_chain(ssl, pem);

	free(pem);
	return ok ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* The newest session of each origin is kept. 1: the reference is ours. */
int tls_on_session(SSL *ssl, SSL_SESSION *s)
{
	struct tls_conn *c = tls_conn_of(ssl);
	struct map *m = &c->client->sessions;
	SSL_SESSION *old = map_get_str(m, c->origin);

	if (!SSL_SESSION_is_resumable(s) || (!old && map_size(m) >= TLS_SESSIONS_MAX) ||
	    map_put_str(m, c->origin, s) < 0)
		return 0;
	SSL_SESSION_free(old);
	return 1;
}

/* --- life --- */

static void conn_freep(struct tls_conn **c)
{
	tls_conn_free(*c);
}

static int make(SSL_CTX *ctx, const BIO_METHOD *method, struct tls_conn *c)
{
	BIO *b;

	c->magic = CONN_MAGIC;
	ERR_clear_error();
	c->ssl = SSL_new(ctx);
	if (!c->ssl)
		return -ENOMEM;
	SSL_set_app_data(c->ssl, c);
	b = BIO_new(method);
	if (!b)
		return -ENOMEM;
	BIO_set_data(b, c);
	BIO_set_init(b, 1);
	SSL_set_bio(c->ssl, b, b);
	return 0;
}

int tls_conn_client(struct tls_client *t, const char *host, uint16_t port, bool http1_only, struct tls_conn **ret)
{
	static const uint8_t http1[] = "\10http/1.1";
	scoped(conn_freep) struct tls_conn *c = calloc(1, sizeof(*c));
	SSL_SESSION *session;
	int r;

	if (!c)
		return -ENOMEM;
	r = make(t->ctx, t->bio, c);
	if (r < 0)
		return r;
	c->client = tls_client_ref(t);
	c->origin = str_printf("%s:%u", host, port);
	if (!c->origin)
		return -ENOMEM;
	if (host_is_address(host)) {
		if (!X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(c->ssl), host))
			return -ENOMEM;
	} else {
		SSL_set_hostflags(c->ssl, HOST_FLAGS);
		if (!SSL_set1_host(c->ssl, host) || !SSL_set_tlsext_host_name(c->ssl, host))
			return -ENOMEM;
	}
	if (http1_only && SSL_set_alpn_protos(c->ssl, http1, sizeof(http1) - 1))
		return -ENOMEM;
	session = map_get_str(&t->sessions, c->origin);
	if (session)
		(void)SSL_set_session(c->ssl, session);
	SSL_set_connect_state(c->ssl);
	*ret = give(c);
	return 0;
}

int tls_conn_server(struct tls_server *t, bool http1, bool http2, struct tls_conn **ret)
{
	scoped(conn_freep) struct tls_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	r = make(t->ctx, t->bio, c);
	if (r < 0)
		return r;
	t->refs++;
	c->server = t;
	c->http1 = http1;
	c->http2 = http2;
	SSL_set_accept_state(c->ssl);
	*ret = give(c);
	return 0;
}

struct tls_conn *tls_conn_free(struct tls_conn *c)
{
	if (!c)
		return NULL;
	/* Else a connection that was just closed would make its session unfit for resumption. */
	if (c->ssl && !c->failed)
		SSL_set_shutdown(c->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_free(c->ssl);
	tls_client_unref(c->client);
	tls_server_unref(c->server);
	buf_fini(&c->kept);
	buf_fini(&c->out);
	free(c->origin);
	free(c->untrusted);
	c->magic = 0;
	free(c);
	return NULL;
}

/* --- bytes --- */

void tls_conn_feed(struct tls_conn *c, const uint8_t *p, size_t n)
{
	must(!c->n_in);
	c->in = p;
	c->n_in = n;
}

struct buf *tls_conn_out(struct tls_conn *c)
{
	return &c->out;
}

/* What OpenSSL left of a loan (bytes behind a handshake) must not be lost with it. */
static int tls_conn_keep(struct tls_conn *c)
{
	int r = 0;

	if (c->n_in && !c->failed)
		r = buf_put(&c->kept, c->in, c->n_in);
	c->n_in = 0;
	c->in = NULL;
	return r;
}

static int tls_conn_failed(struct tls_conn *c)
{
	unsigned long e = ERR_peek_error();
	const char *text = e ? ERR_reason_error_string(e) : NULL;

	if (!c->failed)
		str_copy(c->error, sizeof(c->error), text ? text : "protocol error");
	c->failed = true;
	ERR_clear_error();
	return -EPROTO;
}

/* The result of an SSL call that returned r <= 0. */
static int outcome(struct tls_conn *c, int r)
{
	switch (SSL_get_error(c->ssl, r)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		c->closed = true;
		return 0;
	default:
		return tls_conn_failed(c);
	}
}

int tls_conn_handshake(struct tls_conn *c)
{
	int r;

	if (c->failed)
		return -EPROTO;
	ERR_clear_error();
	r = SSL_do_handshake(c->ssl);
	r = r == 1 ? 0 : outcome(c, r);
	if (c->closed)
		r = tls_conn_failed(c);
	if (r != -EPROTO && tls_conn_keep(c) < 0)
		return -ENOMEM;
	return r;
}

ssize_t tls_conn_read(struct tls_conn *c, uint8_t *p, size_t n)
{
	size_t total = 0;
	int r = 0;

	ERR_clear_error();
	while (total < n && !c->failed && !c->closed) {
		r = SSL_read(c->ssl, p + total, (int)MIN(n - total, (size_t)INT32_MAX));
		if (r <= 0) {
			r = outcome(c, r);
			break;
		}
		total += (size_t)r;
	}
	if (tls_conn_keep(c) < 0)
		return -ENOMEM;
	if (total)
		return (ssize_t)total;
	return c->failed ? -EPROTO : c->closed ? 0 : -EAGAIN;
}

bool tls_conn_has_more(const struct tls_conn *c)
{
	return c->failed || c->closed || buf_len(&c->kept) || SSL_pending(c->ssl) > 0;
}

#define RECORD_OVERHEAD 64u	/* head, type and tag of one, and some */

/* For all records of n bytes: by records alone the block would be copied as it grows. */
static void make_out_room(struct tls_conn *c, size_t n)
{
	size_t records = n / SSL3_RT_MAX_PLAIN_LENGTH + 1;

	if (records > 1 && !c->out.cap)
		(void)!buf_reserve(&c->out, n + records * RECORD_OVERHEAD, true);	/* else it grows */
}

int tls_conn_write(struct tls_conn *c, const uint8_t *p, size_t n)
{
	if (c->failed)
		return -EPROTO;
	ERR_clear_error();
	make_out_room(c, n);
	while (n) {
		int r = SSL_write(c->ssl, p, (int)MIN(n, (size_t)INT32_MAX));

		if (r <= 0)
			return tls_conn_failed(c);
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

void tls_conn_shutdown(struct tls_conn *c)
{
	if (c->failed || !SSL_is_init_finished(c->ssl))
		return;
	ERR_clear_error();
	(void)SSL_shutdown(c->ssl);
	ERR_clear_error();
}

bool tls_conn_covers(const struct tls_conn *c, const char *host)
{
	X509 *cert = SSL_get0_peer_certificate(c->ssl);

	if (!cert || !c->client || c->failed)
		return false;
	if (host_is_address(host))
		return X509_check_ip_asc(cert, host, 0) == 1;
	return X509_check_host(cert, host, 0, HOST_FLAGS, NULL) == 1;
}

bool tls_conn_has_h2(const struct tls_conn *c)
{
	const unsigned char *p;
	unsigned n;

	SSL_get0_alpn_selected(c->ssl, &p, &n);
	return n == 2 && !memcmp(p, "h2", 2);
}

bool tls_conn_is_resumed(const struct tls_conn *c)
{
	return SSL_session_reused(c->ssl);
}

void tls_conn_failure(const struct tls_conn *c, struct status *ret)
{
	const struct tls_failure *f = c->untrusted;
	const char *origin = c->origin ? c->origin : "the peer", *ca;

	if (!f) {
		status_set(ret, R_UNREACHABLE, "TLS with %s failed: %s", origin, c->error);
		return;
	}
	ca = c->client ? c->client->ca_file : NULL;
	status_set(ret, R_TLS_UNTRUSTED,
		   "the certificate of %s is not trusted: %s (subject %s, issuer %s, valid %s to %s; "
		   "trusted: the system's roots%s%s)",
		   origin, X509_verify_cert_error_string(f->error), f->subject, f->issuer,
		   f->not_before, f->not_after, ca ? " and " : "", ca ? ca : "");
	status_evidence(ret, "issuer", "%s", f->issuer);
	status_evidence(ret, "subject", "%s", f->subject);
	status_evidence(ret, "not_after", "%s", f->not_after);
	if (ca)
		status_evidence(ret, "ca_file", "%s", ca);
}
