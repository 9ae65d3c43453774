/* SPDX-License-Identifier: MIT */
/*
 * Adapter to inih with a line reader of ours, which counts lines, refuses over-long ones and joins a value that goes on in the next
 * line: after a \ at the end of one, without the blanks around it, by one blank.
 */
#ifndef AB_DAEMON_CONF_INI_H
#define AB_DAEMON_CONF_INI_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define INI_LINE_MAX_BYTES 190u	/* inih's own buffer, less its terminator and a margin */
#define INI_VALUE_MAX	   8191u

/* Set by the caller: p, n, begin, value, problem, user. All else is zero. */
struct ini_input {
	const char *p;
	size_t n;
	unsigned line;		/* of what a callback is about */
	void (*begin)(void *user, unsigned line, const char *section);	/* also of one without keys */
	void (*value)(void *user, unsigned line, const char *section, const char *key, const char *value);
	void (*problem)(void *user, unsigned line, const char *what);
	void *user;

	bool goes_on;		/* the last line ended with \ */
	unsigned value_line;	/* the value in hand began there; 0 = none is */
	char section[INI_LINE_MAX_BYTES + 1], key[INI_LINE_MAX_BYTES + 1], text[INI_VALUE_MAX + 1];
};

must_check int ini_read(struct ini_input *in);	/* 0 or -ENOMEM; problems go to the callback */

#endif
