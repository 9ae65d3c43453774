/* SPDX-License-Identifier: MIT */
/* See the header. */
#include "daemon/local/main/tlsgen.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/fd.h"
#include "proto/base/str.h"

#define CA_DAYS	     3650
#define CERT_DAYS    397	/* more is refused by some clients */
#define RENEW_DAYS   30
#define FILE_MAX     65536u
#define DAY_S	     86400L
#define SERIAL_BITS  127

struct pair {
	X509 *cert;
	EVP_PKEY *key;
};

static void pair_fini(struct pair *p)
{
	X509_free(p->cert);
	EVP_PKEY_free(p->key);
	*p = (struct pair){ 0 };
}

/* --- files --- */

static BIO *read_bio(const char *path, char **ret_text)
{
	size_t n;

	*ret_text = NULL;
	if (fd_read_file(AT_FDCWD, path, FILE_MAX, ret_text, &n) < 0)
		return NULL;
	return BIO_new_mem_buf(*ret_text, (int)n);
}

static void drop_bio(BIO *b, char *text)
{
	BIO_free(b);
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

static X509 *read_cert(const char *path)
{
	char *text;
	BIO *b = read_bio(path, &text);
	X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;

	drop_bio(b, text);
	return x;
}

static EVP_PKEY *read_key(const char *path)
{
	char *text;
	BIO *b = read_bio(path, &text);
	EVP_PKEY *k = b ? PEM_read_bio_PrivateKey(b, NULL, NULL, NULL) : NULL;

	drop_bio(b, text);
	return k;
}

static int write_bio(BIO *b, const char *path, mode_t mode)
{
	char *p;
	long n = BIO_get_mem_data(b, &p);

	return n > 0 ? fd_write_file(AT_FDCWD, path, p, (size_t)n, mode) : -EIO;
}

static int write_pair(const struct pair *p, const struct pair *issuer, const char *cert_path,
		      const char *key_path)
{
	BIO *cert = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_secmem());
	int r = -ENOMEM;

	if (cert && key && PEM_write_bio_X509(cert, p->cert) &&
	    (!issuer || PEM_write_bio_X509(cert, issuer->cert)) &&
	    PEM_write_bio_PrivateKey(key, p->key, NULL, NULL, 0, NULL, NULL))
		r = write_bio(key, key_path, 0600);
	if (!r)
		r = write_bio(cert, cert_path, 0644);
	BIO_free(cert);
	BIO_free(key);
	return r;
}

/* --- making --- */

static bool set_serial(X509 *x)
{
	BIGNUM *n = BN_new();
	bool ok = n && BN_rand(n, SERIAL_BITS, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) &&
		  BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));

	BN_free(n);
	return ok;
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;
	bool ok;

	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ok = e && X509_add_ext(x, e, -1);
	X509_EXTENSION_free(e);
	return ok;
}

static bool fill(struct pair *p, const char *name, int days)
{
	X509_NAME *subject;

	p->key = EVP_EC_gen("P-256");
	p->cert = X509_new();
	if (!p->key || !p->cert)
		return false;
	subject = X509_get_subject_name(p->cert);
	/* An hour back, for clocks that are a little behind. */
	return X509_set_version(p->cert, X509_VERSION_3) && set_serial(p->cert) &&
	       X509_gmtime_adj(X509_getm_notBefore(p->cert), -3600) &&
	       X509_gmtime_adj(X509_getm_notAfter(p->cert), days * DAY_S) &&
	       X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
					  (const unsigned char *)name, -1, -1, 0) &&
	       X509_set_pubkey(p->cert, p->key);
}

static bool make_ca(struct pair *ca)
{
	return fill(ca, "agentbox-local CA", CA_DAYS) &&
	       X509_set_issuer_name(ca->cert, X509_get_subject_name(ca->cert)) &&
	       add_extension(ca->cert, ca->cert, NID_basic_constraints,
			     "critical,CA:TRUE,pathlen:0") &&
	       add_extension(ca->cert, ca->cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
	       add_extension(ca->cert, ca->cert, NID_subject_key_identifier, "hash") &&
	       X509_sign(ca->cert, ca->key, EVP_sha256());
}

static bool make_cert(const struct pair *ca, struct pair *p)
{
	return fill(p, "localhost", CERT_DAYS) &&
	       X509_set_issuer_name(p->cert, X509_get_subject_name(ca->cert)) &&
	       add_extension(p->cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
	       add_extension(p->cert, ca->cert, NID_key_usage, "critical,digitalSignature") &&
	       add_extension(p->cert, ca->cert, NID_ext_key_usage, "serverAuth") &&
	       add_extension(p->cert, ca->cert, NID_subject_key_identifier, "hash") &&
	       add_extension(p->cert, ca->cert, NID_authority_key_identifier, "keyid") &&
	       add_extension(p->cert, ca->cert, NID_subject_alt_name,
			     "DNS:localhost,DNS:*.localhost,IP:127.0.0.1,IP:::1") &&
	       X509_sign(p->cert, ca->key, EVP_sha256());
}

static bool is_usable(const struct pair *p, const struct pair *issuer)
{
	ASN1_TIME *limit;
	bool ok;

	if (!p->cert || !p->key || X509_check_private_key(p->cert, p->key) != 1)
		return false;
	if (issuer && X509_verify(p->cert, issuer->key) != 1)
		return false;
	limit = X509_gmtime_adj(NULL, RENEW_DAYS * DAY_S);
	ok = limit && ASN1_TIME_compare(X509_get0_notAfter(p->cert), limit) > 0;
	ASN1_TIME_free(limit);
	return ok;
}

static int ensure_pair(struct pair *p, const struct pair *issuer, const char *cert_path,
		       const char *key_path)
{
	p->cert = read_cert(cert_path);
	p->key = read_key(key_path);
	if (is_usable(p, issuer))
		return 0;
	pair_fini(p);
	if (!(issuer ? make_cert(issuer, p) : make_ca(p)))
		return -EIO;
	return write_pair(p, issuer, cert_path, key_path);
}

int tlsgen_ensure(const char *state_dir, char **ret_ca, char **ret_cert, char **ret_key,
		  char **ret_why)
{
	char *ca_path = str_printf("%s/tls-ca.pem", state_dir);
	char *ca_key_path = str_printf("%s/tls-ca-key.pem", state_dir);
	char *cert_path = str_printf("%s/tls-cert.pem", state_dir);
	char *key_path = str_printf("%s/tls-key.pem", state_dir);
	struct pair ca = { 0 }, leaf = { 0 };
	int r = ca_path && ca_key_path && cert_path && key_path ? 0 : -ENOMEM;

	*ret_why = NULL;
	if (!r)
		r = ensure_pair(&ca, NULL, ca_path, ca_key_path);
	if (!r)
		r = ensure_pair(&leaf, &ca, cert_path, key_path);
	ERR_clear_error();
	pair_fini(&ca);
	pair_fini(&leaf);
	free(ca_key_path);
	if (r < 0) {
		*ret_why = str_printf("%s: a certificate cannot be made: %s", state_dir,
				      strerror(-r));
		free(ca_path);
		free(cert_path);
		free(key_path);
		return r;
	}
	*ret_ca = ca_path;
	*ret_cert = cert_path;
	*ret_key = key_path;
	return 0;
}
