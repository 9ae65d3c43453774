/* SPDX-License-Identifier: MIT */
/*
 * A CA of our own and certificates by it, for --auto-tls. Kept in the state directory: tls-ca.pem, tls-ca-key.pem,
 * tls-cert.pem, tls-key.pem (keys 0600), and tls-bundle.pem: the CA with the system's roots, for programs that
 * take one file for all they believe. What is missing, broken or about to expire is made anew; a new CA only when there is
 * no usable one, because clients may hold on to it.
 *
 * tls-cert.pem is for localhost, 127.0.0.1, ::1, the domain and what is below both. Clients refuse a wildcard directly below
 * a top-level name (*.localhost), so one that asks for a name below gets a certificate for that very name, with the same key.
 */
#ifndef AB_DAEMON_LOCAL_MAIN_TLSGEN_H
#define AB_DAEMON_LOCAL_MAIN_TLSGEN_H

#include "proto/base/cc.h"

struct tlsgen;

/* `domain`: a host name without a port, or NULL. 0 or -errno with the reason (heap). */
must_check int tlsgen_new(const char *state_dir, const char *domain, struct tlsgen **ret, char **ret_why);
struct tlsgen *tlsgen_free(struct tlsgen *g);	/* NULL is fine; returns NULL */

struct tlsgen_paths {
	char *ca, *bundle, *cert, *key;
};

const struct tlsgen_paths *tlsgen_paths(const struct tlsgen *g);
/* PEM, heap: the certificate of a name below localhost or the domain, with its chain; NULL for others. */
char *tlsgen_certificate_for(struct tlsgen *g, const char *name);

#endif
