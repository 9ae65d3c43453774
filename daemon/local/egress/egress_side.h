/* SPDX-License-Identifier: MIT */
/* One end of a connection out of a sandbox, with what waits to be written to it. */
#ifndef AB_DAEMON_LOCAL_EGRESS_EGRESS_SIDE_H
#define AB_DAEMON_LOCAL_EGRESS_EGRESS_SIDE_H

#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "proto/base/buf.h"
#include "proto/base/cc.h"

struct side {
	int fd;
	struct watch watch;
	struct buf out;
	bool read_end, write_end;
};

/* Reads as much as `to` has room for. 0, or -errno when the connection is lost. */
must_check int side_take(struct side *s, struct buf *to);
/* Writes what waits, and then (is_all) the end of the stream. The same. */
must_check int side_pass(struct side *s, bool is_all);
/* Watches what there is room for and what waits. */
must_check int side_want(struct side *s, bool has_room);

#endif
