/* SPDX-License-Identifier: MIT */
/*
 * Structured log: the name of a kind (kinds.def) and key=value fields, one line each: to the journal as fields of its own, where stderr is
 * its stream (JOURNAL_STREAM), else to stderr with time and level. Never blocks, and never changes the flags of stderr, which other
 * programs may share: what is not taken at once is dropped and counted. At most LOG_LINES_PER_S lines a second and kind; the surplus is
 * summed up in one line. proto/, pure files and libagentbox never log.
 */
#ifndef AB_DAEMON_COMMON_OBS_LOG_H
#define AB_DAEMON_COMMON_OBS_LOG_H

#include <stdbool.h>

#include "proto/base/cc.h"

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

#define LOG_LINES_PER_S 20u

/* Looks at what stderr is; before the first line, again after stderr was replaced. */
void log_setup(enum log_level max);
bool log_level_parse(const char *s, enum log_level *ret);
/* Is a line of this level written? */
bool log_is_on(enum log_level level);

/* fmt gives the fields: "origin=%s last=%d". Values from outside go through log_q(). Of "audit" every line is written. */
void log_event(enum log_level level, const char *event, const char *fmt, ...) printf_like(3, 4);

#define log_error(...) log_event(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_event(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_event(LOG_LEVEL_INFO, __VA_ARGS__)
/* Its arguments are looked at only where it is written: most daemons write none of these lines. */
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_is_on(LOG_LEVEL_DEBUG))                                                    \
			log_event(LOG_LEVEL_DEBUG, __VA_ARGS__);                                   \
	} while (0)

/* Quoted, control bytes as blanks, cut at 256 bytes; valid until the 8th next call. Loop thread. */
const char *log_q(const char *s);

#endif
