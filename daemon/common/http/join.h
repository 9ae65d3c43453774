/* SPDX-License-Identifier: MIT */
/*
 * Two exchanges joined: a client's and the one behind it. Heads, bytes, ends and trailers pass from one to the other, each as far as
 * the other has room, so that what waits here is at most what both have as windows. An upgrade that was agreed on joins their bytes.
 * Both belong to the caller, who has their on_ready and calls http_join_pump() at each.
 */
#ifndef AB_DAEMON_COMMON_HTTP_JOIN_H
#define AB_DAEMON_COMMON_HTTP_JOIN_H

#include <stdbool.h>

#include "daemon/common/net/http.h"

struct http_join {
	bool up_done;		/* the request has passed as a whole; set by who sent it with its end */
	bool expects;		/* the client's Expect: 100-continue has passed: it is the other end that asks for its body */
	bool holds;		/* set by who looks at the answer first: it waits, and the request goes on */
	bool answered;		/* the final head has passed */
	bool tunnel, down_done;
	uint64_t up, down;	/* bytes that passed */
};

enum http_join_state {
	HTTP_JOIN_OPEN,
	HTTP_JOIN_DONE,		/* the answer has passed as a whole; what is left of the request is nobody's */
	HTTP_JOIN_LEFT,		/* the client's exchange is closed: it has all, or is gone */
	HTTP_JOIN_LOST,		/* the other one broke, after what it said has passed; answered = false: nothing was said */
};

enum http_join_state http_join_pump(struct http_join *j, struct http_stream *x, struct http_stream *y);

#endif
