/* SPDX-License-Identifier: MIT */
/*
 * Where bytes go: a descriptor that may be slow. Writing never blocks on a pipe, socket or terminal, so
 * that signals and other streams are served meanwhile, and the flags of a descriptor that other
 * processes share are left as they are.
 */
#ifndef AB_CLIENT_CLI_TERM_SINK_H
#define AB_CLIENT_CLI_TERM_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum sink_kind { SINK_DIRECT, SINK_NONBLOCK, SINK_SOCKET, SINK_PIECES };

struct sink {
	int fd;
	bool own;		/* fd is ours to close */
	enum sink_kind kind;
};

void sink_open(struct sink *s, int fd);
void sink_close(struct sink *s);
/* How many bytes went; 0: wait until it is writable; -errno. */
ssize_t sink_write(struct sink *s, const void *p, size_t n);

#endif
