/* SPDX-License-Identifier: MIT */
/*
 * What the engine and a file worker say to each other: one request, one reply, over SOCK_SEQPACKET.
 * A reply too large for a message travels in a memfd. Pure coding; both directions are checked as if
 * the other side were hostile.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_FS_WIRE_H
#define AB_DAEMON_LOCAL_ENGINE_FS_WIRE_H

#include "daemon/local/engine/fs.h"
#include "proto/base/buf.h"
#include "proto/base/cc.h"

#define FSW_MESSAGE_MAX (32u * 1024)	/* a request, or a reply without a memfd */
#define FSW_REPLY_MAX	(256u * 1024 * 1024)

enum fsw_op {
	FSW_STAT,
	FSW_LIST,
	FSW_MKDIR,
	FSW_MOVE,
	FSW_REMOVE,
	FSW_OPEN_READ,
	FSW_OPEN_WRITE,
	FSW_COMPOSE,	/* the keys of meta are the sources */
};

struct fsw_request {
	enum fsw_op op;
	uint32_t depth;
	uint32_t uid, gid;
	const char *path;
	const char *to;		/* "" where there is none */
	const struct fs_meta *meta;
	size_t n_meta;
};

struct fsw_reply {		/* head of a reply; `bytes` of entries follow, here or in a memfd */
	int32_t r;
	uint32_t n_entries;
	uint32_t bytes;
	uint32_t in_memfd;
};

must_check int fsw_request_encode(const struct fsw_request *q, struct buf *out);
/* *ret and *ret_meta (heap, NULL if none) point into p. 0, -EBADMSG, -ENOMEM. */
must_check int fsw_request_decode(const void *p, size_t n, struct fsw_request *ret,
				  struct fs_meta **ret_meta);

must_check int fsw_entry_encode(const struct fs_entry *e, struct buf *out);

struct fsw_entries {
	struct fs_entry *e;
	struct fs_meta *meta;
	size_t n;
};

/* Everything points into p. 0, -EBADMSG, -ENOMEM. */
must_check int fsw_entries_decode(const void *p, size_t n, uint32_t n_entries, struct fsw_entries *ret);
void fsw_entries_fini(struct fsw_entries *e);

#endif
