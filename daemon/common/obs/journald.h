/* SPDX-License-Identifier: MIT */
/*
 * One line of the log as a datagram of the journal's native protocol: PRIORITY=, SYSLOG_IDENTIFIER=, MESSAGE_ID=, MESSAGE=, and a field
 * for each key=value of the line: ERROR= and DURATION_USEC= for `error` and `duration_us`, AGENTBOX_KEY= for every other one.
 */
#ifndef AB_DAEMON_COMMON_OBS_JOURNALD_H
#define AB_DAEMON_COMMON_OBS_JOURNALD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "proto/base/cc.h"

#define JOURNALD_SOCKET	   "/run/systemd/journal/socket"
#define JOURNALD_MAX_BYTES 8192u
#define JOURNALD_KEY_MAX   40u	/* a longer one is no field; the line itself has it */

struct journald_line {
	const char *identifier;	/* the program's name */
	int priority;		/* syslog's */
	const char *id;		/* 32 digits; NULL = none */
	const char *event, *rest;	/* the name, and the keys and values: neither has a control character */
};

/* One pair of a line: the key's place and length, the value without its quotes. */
struct journald_pair {
	const char *key;
	size_t n_key;
	char value[1024];
};
/* The next pair from *at on, which moves behind it; false at the end. Words without a `=` are left out. */
bool journald_next(const char **at, struct journald_pair *ret);

/* Into `out`: whole fields only, what does not fit is left out. Returns its length. */
size_t journald_pack(char out[JOURNALD_MAX_BYTES], const struct journald_line *line);

/* Is JOURNAL_STREAM=TEXT this file? */
bool journald_is_stream(const char *text, const struct stat *st);
/* A descriptor that is connected to it and does not wait. -errno: there is no journal. */
must_check int journald_open(const char *path, int *ret);
/* False: it was not taken. */
bool journald_send(int fd, const struct journald_line *line);

#endif
