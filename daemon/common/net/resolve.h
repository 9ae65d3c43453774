/* SPDX-License-Identifier: MIT */
/*
 * Names to addresses: getaddrinfo() in a thread of its own. The last good answer of a name serves
 * for an hour when the resolver fails; which address family worked last is remembered for ten
 * minutes. Answers with link-local or unspecified addresses (a cloud's metadata service, say) are
 * dropped; written as a literal they are what the user wants.
 */
#ifndef AB_DAEMON_COMMON_NET_RESOLVE_H
#define AB_DAEMON_COMMON_NET_RESOLVE_H

#include <netinet/in.h>
#include <stdbool.h>

#include "proto/base/cc.h"

#define RESOLVE_ADDRESSES_MAX 16u	/* of a longer answer the rest is ignored */

struct loop;
struct resolver;
struct resolve_query;

struct resolve_answer {
	unsigned n;
	struct resolve_address {
		union {
			struct sockaddr sa;
			struct sockaddr_in v4;
			struct sockaddr_in6 v6;
		};
		socklen_t len;
	} v[RESOLVE_ADDRESSES_MAX];
};

must_check int resolver_new(struct loop *l, struct resolver **ret);
/* No query may be open. Waits for a lookup that was cancelled while it ran. NULL is fine; returns
 * NULL. */
struct resolver *resolver_free(struct resolver *r);

/* An address ("::1" without brackets), "localhost" or a name under it: no lookup needed. */
bool resolve_literal(const char *host, uint16_t port, struct resolve_answer *ret);

/* `answer` has at least one address, or is NULL with a sentence in `error`. Never from inside
 * resolve_start(). */
typedef void resolve_fn(const struct resolve_answer *answer, const char *error, void *user);
must_check int resolve_start(struct resolver *r, const char *host, uint16_t port, resolve_fn *done,
			     void *user, struct resolve_query **ret);
void resolve_cancel(struct resolve_query *q);	/* only before done */

/* AF_INET or AF_INET6 if that worked lately, else AF_UNSPEC. */
int resolver_family(const struct resolver *r, const char *host);
void resolver_family_worked(struct resolver *r, const char *host, int family);

/* IPv6 and IPv4 in turn, beginning with `first` (AF_UNSPEC: with the answer's own first). */
void resolve_interleave(struct resolve_answer *a, int first);

#endif
