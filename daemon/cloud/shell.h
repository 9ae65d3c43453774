/* SPDX-License-Identifier: MIT */
/*
 * Runs a script of /bin/sh in a sandbox, as root, for what its agent cannot do. Its words may be any bytes; they are sent encoded, as
 * the agent takes UTF-8 only: the script decodes $1 to $4 by `w "$1"; x=$v`. Its output is read only as fast as the owner takes it.
 */
#ifndef AB_DAEMON_CLOUD_SHELL_H
#define AB_DAEMON_CLOUD_SHELL_H

#include "daemon/cloud/envd.h"
#include "proto/base/buf.h"

#define SHELL_WORDS_MAX 4u
#define SHELL_SAID_MAX	300u

struct shell {
	struct envd_stream *stream;
	char said[SHELL_SAID_MAX + 1];	/* the beginning of its standard error */
	size_t n_said;
	bool ended;
	int exit_code;			/* ended; -1 by a signal */
};

/* NULL words are "". 0, -ENOMEM. */
must_check int shell_start(struct shell *s, const struct envd_target *t, const char *script, const char *const *words, size_t n,
			   envd_stream_ready_fn *on_ready, void *user);
void shell_fini(struct shell *s);	/* also of a zeroed one */

enum shell_result {
	SHELL_NONE,	/* nothing now */
	SHELL_DATA,	/* *ret, *ret_n: valid until the next call */
	SHELL_ENDED,	/* see exit_code and said */
	SHELL_FAILED,	/* *ret_cls, *ret_why */
};
enum shell_result shell_next(struct shell *s, const uint8_t **ret, size_t *ret_n, enum envd_class *ret_cls,
			     struct status *ret_why);

#endif
