/* SPDX-License-Identifier: MIT */
/*
 * May a connection made for one host carry requests for another? [pure] RFC 9113 §9.1.1: the
 * certificate it was verified by covers the other host too, and that host has the address the
 * connection goes to. The certificate question is OpenSSL's to answer; there is no matching of
 * names here.
 */
#ifndef AB_DAEMON_UPSTREAM_COALESCE_H
#define AB_DAEMON_UPSTREAM_COALESCE_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct coalesce_facts {
	bool same_group;	/* account and key */
	bool same_proxy, same_tls;
	bool same_port;
	bool is_tls, is_h2;
	bool cert_covers;	/* the peer's certificate is valid for the other host */
	bool misdirected;	/* this connection answered 421 for that host before */
	const char *conn_address;		/* numeric, without the port; NULL = unknown */
	const char *const *addresses;		/* of the other host, numeric */
	size_t n_addresses;
};

bool coalesce_may(const struct coalesce_facts *f);

#endif
