/* SPDX-License-Identifier: MIT */
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
#include "proto/base/host.h"
#include "proto/base/str.h"

#define CA_DAYS	     3650
#define CERT_DAYS    397	/* more is refused by some clients */
#define RENEW_DAYS   30
#define FILE_MAX     65536u
#define DAY_S	     86400L
#define SERIAL_BITS  127
#define BUNDLE_MAX   (4u * 1024 * 1024)
#define NAME_MAX_BYTES 253u
#define NAMES_MAX    64u	/* certificates kept; the oldest goes */

struct pair {
	X509 *cert;
	EVP_PKEY *key;
};

struct named {
	char *name, *pem;
};

struct tlsgen {
	struct tlsgen_paths paths;
	char *domain;			/* NULL = localhost only */
	struct pair ca, leaf;
	struct named named[NAMES_MAX];
	size_t next;			/* the place of the next one */
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

	if (!p->key)
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

/* `names`: as in a configuration file of OpenSSL, "DNS:a,IP:1.2.3.4". The key is p's already, or made. */
static bool sign_cert(const struct pair *ca, struct pair *p, const char *names)
{
	return fill(p, "agentbox-local", CERT_DAYS) &&
	       X509_set_issuer_name(p->cert, X509_get_subject_name(ca->cert)) &&
	       add_extension(p->cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
	       add_extension(p->cert, ca->cert, NID_key_usage, "critical,digitalSignature") &&
	       add_extension(p->cert, ca->cert, NID_ext_key_usage, "serverAuth") &&
	       add_extension(p->cert, ca->cert, NID_subject_key_identifier, "hash") &&
	       add_extension(p->cert, ca->cert, NID_authority_key_identifier, "keyid") &&
	       add_extension(p->cert, ca->cert, NID_subject_alt_name, names) &&
	       X509_sign(p->cert, ca->key, EVP_sha256());
}

static bool make_cert(const struct tlsgen *g, struct pair *p)
{
	static const char ours[] = "DNS:localhost,DNS:*.localhost,IP:127.0.0.1,IP:::1";
	char *names = g->domain ? str_printf("%s,DNS:%s,DNS:*.%s", ours, g->domain, g->domain) : str_dup(ours);
	bool ok = names && sign_cert(&g->ca, p, names);

	free(names);
	return ok;
}

/* Made for this domain, too. */
static bool has_names(const struct tlsgen *g, X509 *cert)
{
	return !g->domain || X509_check_host(cert, g->domain, 0, 0, NULL) == 1;
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

static int ensure_ca(struct tlsgen *g, const char *key_path)
{
	g->ca = (struct pair){ read_cert(g->paths.ca), read_key(key_path) };
	if (is_usable(&g->ca, NULL))
		return 0;
	pair_fini(&g->ca);
	return make_ca(&g->ca) ? write_pair(&g->ca, NULL, g->paths.ca, key_path) : -EIO;
}

static int ensure_leaf(struct tlsgen *g)
{
	g->leaf = (struct pair){ read_cert(g->paths.cert), read_key(g->paths.key) };
	if (is_usable(&g->leaf, &g->ca) && has_names(g, g->leaf.cert))
		return 0;
	pair_fini(&g->leaf);
	return make_cert(g, &g->leaf) ? write_pair(&g->leaf, &g->ca, g->paths.cert, g->paths.key) : -EIO;
}

/* Without the system's roots, where there is no file of them, it is the CA alone. */
static int write_bundle(const struct tlsgen *g)
{
	char *own = NULL, *roots = NULL, *all;
	size_t n, n_roots = 0;
	int r = fd_read_file(AT_FDCWD, g->paths.ca, FILE_MAX, &own, &n);

	if (r < 0)
		return r;
	if (fd_read_file(AT_FDCWD, X509_get_default_cert_file(), BUNDLE_MAX, &roots, &n_roots) < 0 &&
	    fd_read_file(AT_FDCWD, "/etc/ssl/certs/ca-certificates.crt", BUNDLE_MAX, &roots, &n_roots) < 0)
		roots = NULL;
	all = str_printf("%s%s", own, roots ? roots : "");
	r = all ? fd_write_file(AT_FDCWD, g->paths.bundle, all, strlen(all), 0644) : -ENOMEM;
	free(own);
	free(roots);
	free(all);
	return r;
}

static int set_up(struct tlsgen *g, const char *dir, const char *domain)
{
	char *ca_key = str_printf("%s/tls-ca-key.pem", dir);
	int r = 0;

	g->paths = (struct tlsgen_paths){ str_printf("%s/tls-ca.pem", dir), str_printf("%s/tls-bundle.pem", dir),
					  str_printf("%s/tls-cert.pem", dir), str_printf("%s/tls-key.pem", dir) };
	g->domain = domain ? str_dup(domain) : NULL;
	if (!ca_key || !g->paths.ca || !g->paths.bundle || !g->paths.cert || !g->paths.key || (domain && !g->domain))
		r = -ENOMEM;
	if (!r)
		r = ensure_ca(g, ca_key);
	if (!r)
		r = ensure_leaf(g);
	if (!r)
		r = write_bundle(g);
	ERR_clear_error();
	free(ca_key);
	return r;
}

int tlsgen_new(const char *state_dir, const char *domain, struct tlsgen **ret, char **ret_why)
{
	struct tlsgen *g = calloc(1, sizeof(*g));
	int r = g ? set_up(g, state_dir, domain) : -ENOMEM;

	*ret_why = NULL;
	if (r < 0) {
		*ret_why = str_printf("%s: a certificate cannot be made: %s", state_dir, strerror(-r));
		tlsgen_free(g);
	} else {
		*ret = g;
	}
	return r;
}

struct tlsgen *tlsgen_free(struct tlsgen *g)
{
	if (!g)
		return NULL;
	for (size_t i = 0; i < NAMES_MAX; i++) {
		free(g->named[i].name);
		free(g->named[i].pem);
	}
	pair_fini(&g->ca);
	pair_fini(&g->leaf);
	free(g->paths.ca);
	free(g->paths.bundle);
	free(g->paths.cert);
	free(g->paths.key);
	free(g->domain);
	free(g);
	return NULL;
}

const struct tlsgen_paths *tlsgen_paths(const struct tlsgen *g)
{
	return &g->paths;
}

/* --- one for each name --- */

static bool is_below(const char *name, const char *domain)
{
	size_t n = strlen(name), k = domain ? strlen(domain) : 0;

	return k && n > k + 1 && name[n - k - 1] == '.' && str_eq(name + n - k, domain);
}

static char *chain_text(const struct pair *p, const struct pair *issuer)
{
	BIO *b = BIO_new(BIO_s_mem());
	char *text = NULL, *at;
	long n;

	if (b && PEM_write_bio_X509(b, p->cert) && PEM_write_bio_X509(b, issuer->cert)) {
		n = BIO_get_mem_data(b, &at);
		text = n > 0 ? str_printf("%.*s", (int)n, at) : NULL;
	}
	BIO_free(b);
	return text;
}

static char *make_for(const struct tlsgen *g, const char *name)
{
	struct pair p = { .key = g->leaf.key };
	char *names = str_printf("DNS:%s", name), *text = NULL;

	EVP_PKEY_up_ref(p.key);
	if (names && sign_cert(&g->ca, &p, names))
		text = chain_text(&p, &g->ca);
	ERR_clear_error();
	pair_fini(&p);
	free(names);
	return text;
}

static const char *remember(struct tlsgen *g, const char *name, char *pem)
{
	struct named *at = &g->named[g->next++ % NAMES_MAX];

	free(at->name);
	free(at->pem);
	*at = (struct named){ str_dup(name), pem };
	return pem;
}

char *tlsgen_certificate_for(struct tlsgen *g, const char *name)
{
	char lower[NAME_MAX_BYTES + 1], *pem;

	if (!str_copy(lower, sizeof(lower), name) || !host_is_name(name, NAME_MAX_BYTES))
		return NULL;
	str_lower(lower);
	if (!is_below(lower, "localhost") && !is_below(lower, g->domain))
		return NULL;
	for (size_t i = 0; i < NAMES_MAX; i++)
		if (g->named[i].name && str_eq(g->named[i].name, lower))
			return str_dup(g->named[i].pem);
	pem = make_for(g, lower);
	return pem ? str_dup(remember(g, lower, pem)) : NULL;
}
