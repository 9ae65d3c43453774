/* SPDX-License-Identifier: MIT */
/*
 * A CA of our own and a certificate by it for localhost, *.localhost, 127.0.0.1 and ::1, for
 * --auto-tls. Kept in the state directory: tls-ca.pem, tls-ca-key.pem, tls-cert.pem, tls-key.pem
 * (keys 0600). What is missing, broken or about to expire is made anew; a new CA only when there is
 * no usable one, because clients may hold on to it.
 */
#ifndef AB_DAEMON_LOCAL_MAIN_TLSGEN_H
#define AB_DAEMON_LOCAL_MAIN_TLSGEN_H

#include "proto/base/cc.h"

/* Heap paths. 0 or -errno with the reason (heap). */
must_check int tlsgen_ensure(const char *state_dir, char **ret_ca, char **ret_cert, char **ret_key,
			     char **ret_why);

#endif
