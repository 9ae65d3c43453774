/* SPDX-License-Identifier: MIT */
/* Adapter to inih with a line reader of ours, which counts lines and refuses over-long ones. */
#ifndef AB_DAEMON_CONF_INI_H
#define AB_DAEMON_CONF_INI_H

#include "proto/base/cc.h"

#define INI_LINE_MAX_BYTES 190u	/* inih's own buffer, less its terminator and a margin */

struct ini_input {
	const char *p;
	size_t n;
	unsigned line;		/* of what a callback is about */
	void (*value)(void *user, unsigned line, const char *section, const char *key, const char *value);
	void (*problem)(void *user, unsigned line, const char *what);
	void *user;
};

must_check int ini_read(struct ini_input *in);	/* 0 or -ENOMEM; problems go to the callback */

#endif
