/* SPDX-License-Identifier: MIT */
/* The client's side of SOCKS5 (RFC 1928, 1929), up to where the connection is the caller's. Pure. */
#ifndef AB_DAEMON_LOCAL_EGRESS_SOCKS_H
#define AB_DAEMON_LOCAL_EGRESS_SOCKS_H

#include <stdbool.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"

struct socks_target {
	const char *name;	/* at most 255 bytes; NULL: the address */
	uint32_t address;	/* host order */
	uint16_t port;
};

enum socks_step { SOCKS_METHOD, SOCKS_AUTH, SOCKS_REPLY, SOCKS_OPEN };

struct socks {
	enum socks_step step;
	struct socks_target to;
	const char *user, *password;	/* borrowed, at most 255 bytes each; NULL = none */
};

enum socks_result {
	SOCKS_MORE,
	SOCKS_DONE,		/* what is still in `in` comes from the far side */
	SOCKS_REFUSED,		/* *ret_why, static, says it */
	SOCKS_NO_MEMORY,
};

/* What to say first goes to `out`. 0 or -errno. */
must_check int socks_begin(struct socks *s, struct buf *out);
/* Takes from `in` what it understands of what the proxy said, and puts the next words to `out`. */
enum socks_result socks_talk(struct socks *s, struct buf *in, struct buf *out, const char **ret_why);

#endif
