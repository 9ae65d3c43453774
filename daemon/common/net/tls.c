/* SPDX-License-Identifier: MIT */
/* The settings of TLS: what we accept, whom we believe, who we are. Connections: tls_conn.c. */
#include "daemon/common/net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/net/tls_impl.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define CIPHERS_1_2 "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL"

void tls_setup(void)
{
	/* Fails only without memory, and then every later call does too. */
	(void)OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
}

/* The oldest error is the cause. */
static const char *openssl_error(void)
{
	unsigned long e = ERR_peek_error();
	const char *text = NULL;

	if (ERR_SYSTEM_ERROR(e))
		return strerror(ERR_GET_REASON(e));
	if (e)
		text = ERR_reason_error_string(e);
	return text ? text : "unknown error";
}

/* Asks nobody for a pass phrase. */
static int no_passphrase(char *p, int n, int writing, void *user)
{
	return 0;
}

static SSL_CTX *make_ctx(const SSL_METHOD *method)
{
	SSL_CTX *ctx;

	tls_setup();
	ERR_clear_error();
	ctx = SSL_CTX_new(method);
	if (!ctx)
		return NULL;
	SSL_CTX_set_security_level(ctx, 2);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
	SSL_CTX_set_verify_depth(ctx, TLS_CHAIN_DEPTH_MAX);
	SSL_CTX_set_max_cert_list(ctx, TLS_CERT_MAX_BYTES);
	if (!SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
	    !SSL_CTX_set_cipher_list(ctx, CIPHERS_1_2)) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	return ctx;
}

static int tls_refuse(struct status *why, const char *field, const char *path)
{
	status_field(why, field, "cannot use %s: %s", path, openssl_error());
	ERR_clear_error();
	return -EINVAL;
}

/* OpenSSL would wait for what a FIFO or a terminal says. What is not there is said by OpenSSL. */
static int check_kind(const char *field, const char *path, struct status *why)
{
	struct stat st;

	if (!path || stat(path, &st) < 0 || S_ISREG(st.st_mode))
		return 0;
	status_field(why, field, "cannot use %s: it is no regular file", path);
	return -EINVAL;
}

static int check_kinds(const struct tls_client_options *o, struct status *why)
{
	int r = check_kind("ca_file", o->ca_file, why);

	if (!r)
		r = check_kind("cert_file", o->cert_file, why);
	return r ? r : check_kind("key_file", o->key_file, why);
}

static int load_identity(SSL_CTX *ctx, const char *cert, const char *key, struct status *why)
{
	if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
		return tls_refuse(why, "cert_file", cert);
	if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_check_private_key(ctx) != 1)
		return tls_refuse(why, "key_file", key);
	return 0;
}

static void client_free(struct tls_client *t)
{
	SSL_SESSION *s;
	size_t pos = 0;

	while ((s = map_next(&t->sessions, &pos)))
		SSL_SESSION_free(s);
	map_fini(&t->sessions);
	SSL_CTX_free(t->ctx);
	BIO_meth_free(t->bio);
	free(t->ca_file);
	free(t);
}

static void client_freep(struct tls_client **t)
{
	if (*t)
		client_free(*t);
}

int tls_client_new(const struct tls_client_options *o, struct tls_client **ret, struct status *why)
{
	scoped(client_freep) struct tls_client *t = calloc(1, sizeof(*t));
	static const uint8_t both[] = "\2h2\10http/1.1", old[] = "\10http/1.1";
	int r;

	if (!t)
		return -ENOMEM;
	t->refs = 1;
	t->ctx = make_ctx(TLS_client_method());
	t->bio = tls_bio_method();
	t->ca_file = str_dup(o->ca_file);
	if (!t->ctx || !t->bio || (o->ca_file && !t->ca_file))
		return -ENOMEM;
	r = check_kinds(o, why);
	if (!r)
		tls_load_roots(t->ctx);
	if (!r && o->ca_file && SSL_CTX_load_verify_file(t->ctx, o->ca_file) != 1)
		r = tls_refuse(why, "ca_file", o->ca_file);
	if (!r && o->cert_file)
		r = load_identity(t->ctx, o->cert_file, o->key_file ? o->key_file : o->cert_file, why);
	if (r < 0)
		return r;
	if (SSL_CTX_set_alpn_protos(t->ctx, o->http1_only ? old : both,
				    (o->http1_only ? sizeof(old) : sizeof(both)) - 1))
		return -ENOMEM;
	SSL_CTX_set_verify(t->ctx, SSL_VERIFY_PEER, tls_on_verify);
	SSL_CTX_set_session_cache_mode(t->ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(t->ctx, tls_on_session);
	*ret = give(t);
	return 0;
}

struct tls_client *tls_client_ref(struct tls_client *t)
{
	must(t->refs);
	t->refs++;
	return t;
}

struct tls_client *tls_client_unref(struct tls_client *t)
{
	if (t && !--t->refs)
		client_free(t);
	return NULL;
}

static void server_free(struct tls_server *t)
{
	SSL_CTX_free(t->ctx);
	BIO_meth_free(t->bio);
	free(t);
}

static void server_freep(struct tls_server **t)
{
	if (*t)
		server_free(*t);
}

int tls_server_new(const struct tls_server_options *o, struct tls_server **ret, struct status *why)
{
	scoped(server_freep) struct tls_server *t = calloc(1, sizeof(*t));
	static const uint8_t name[] = "agentbox";
	int r;

	if (!t)
		return -ENOMEM;
	t->refs = 1;
	t->ctx = make_ctx(TLS_server_method());
	t->bio = tls_bio_method();
	if (!t->ctx || !t->bio)
		return -ENOMEM;
	r = load_identity(t->ctx, o->cert_file, o->key_file ? o->key_file : o->cert_file, why);
	if (r < 0)
		return r;
	if (o->client_ca_file) {
		if (SSL_CTX_load_verify_file(t->ctx, o->client_ca_file) != 1)
			return tls_refuse(why, "client_ca_file", o->client_ca_file);
		SSL_CTX_set_verify(t->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
				   tls_on_verify);
	}
	if (!SSL_CTX_set_session_id_context(t->ctx, name, sizeof(name) - 1))
		return -ENOMEM;
	SSL_CTX_set_alpn_select_cb(t->ctx, tls_on_alpn, NULL);
	t->certificate_for = o->certificate_for;
	t->user = o->user;
	if (t->certificate_for)
		SSL_CTX_set_tlsext_servername_callback(t->ctx, tls_on_name);
	*ret = give(t);
	return 0;
}

struct tls_server *tls_server_unref(struct tls_server *t)
{
	if (t && !--t->refs)
		server_free(t);
	return NULL;
}
