/* SPDX-License-Identifier: MIT */
/* A CA and certificates by it, made for one run, in a folder of its own that is removed at exit. */
#ifndef AB_TESTS_UNIT_NET_CERTS_H
#define AB_TESTS_UNIT_NET_CERTS_H

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include "tests/lib/test.h"

static char certs_dir[] = "/tmp/ab-net-XXXXXX";

static const char *certs_path(const char *name)
{
	static char path[4][128];
	static unsigned i;

	i = (i + 1) % ARRAY_SIZE(path);
	snprintf(path[i], sizeof(path[i]), "%s/%s", certs_dir, name);
	return path[i];
}

static void certs_clean(void)
{
	static const char *const names[] = { "ca.pem", "ca.key", "ok.pem", "ok.key", "old.pem",
					     "old.key", "other.pem", "other.key", "junk.pem" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlink(certs_path(names[i]));
	rmdir(certs_dir);
}

static void certs_extension(X509 *cert, int nid, const char *value)
{
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	CHECK(e && X509_add_ext(cert, e, -1));
	X509_EXTENSION_free(e);
}

/* issuer NULL: signs itself. Writes NAME.pem and NAME.key; *ret_key may be NULL. */
static X509 *certs_make(const char *name, const char *cn, const char *san, long days, X509 *issuer,
			EVP_PKEY *issuer_key, EVP_PKEY **ret_key)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = X509_new();
	X509_NAME *subject = X509_get_subject_name(cert);
	char file[64];
	FILE *f;

	CHECK(key && cert);
	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), (long)getpid());
	X509_gmtime_adj(X509_getm_notBefore(cert), -86400L * 10);
	X509_gmtime_adj(X509_getm_notAfter(cert), 86400L * days);
	X509_set_pubkey(cert, key);
	X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0);
	X509_set_issuer_name(cert, issuer ? X509_get_subject_name(issuer) : subject);
	if (san)
		certs_extension(cert, NID_subject_alt_name, san);
	else
		certs_extension(cert, NID_basic_constraints, "critical,CA:TRUE");
	CHECK(X509_sign(cert, issuer ? issuer_key : key, EVP_sha256()));
	snprintf(file, sizeof(file), "%s.pem", name);
	f = fopen(certs_path(file), "w");
	CHECK(f && PEM_write_X509(f, cert));
	fclose(f);
	snprintf(file, sizeof(file), "%s.key", name);
	f = fopen(certs_path(file), "w");
	CHECK(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
	fclose(f);
	if (ret_key)
		*ret_key = key;
	else
		EVP_PKEY_free(key);
	return cert;
}

/* ca, ok (localhost, 127.0.0.1), old (expired), other (another CA). */
static void certs_setup(void)
{
	static bool done;
	EVP_PKEY *ca_key;
	X509 *ca;
	FILE *f;

	if (done)
		return;
	done = true;
	CHECK(mkdtemp(certs_dir));
	atexit(certs_clean);
	ca = certs_make("ca", "Test CA", NULL, 10, NULL, NULL, &ca_key);
	X509_free(certs_make("ok", "localhost", "DNS:localhost,IP:127.0.0.1", 10, ca, ca_key, NULL));
	X509_free(certs_make("old", "localhost", "DNS:localhost", -1, ca, ca_key, NULL));
	X509_free(certs_make("other", "Other CA", NULL, 10, NULL, NULL, NULL));
	X509_free(ca);
	EVP_PKEY_free(ca_key);
	f = fopen(certs_path("junk.pem"), "w");
	CHECK(f && fputs("no certificate\n", f) >= 0);
	fclose(f);
}

#endif
