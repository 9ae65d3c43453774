/* SPDX-License-Identifier: MIT */
#include "daemon/common/obs/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/str.h"

#define LINE_MAX_BYTES 1024u
#define EVENT_SLOTS    64u

static const struct {
	const char *name;
	int priority;	/* syslog's, for the journal */
} levels[] = { { "error", 3 }, { "warn", 4 }, { "info", 6 }, { "debug", 7 } };

/* Per event name (a static string, told apart by address): lines in this second, lines dropped. */
struct slot {
	const char *event;
	uint64_t second;
	unsigned lines, dropped;
};

static struct {
	pthread_mutex_t lock;
	enum log_level max;
	bool journal;
	unsigned long lost;
	struct slot slots[EVENT_SLOTS];
} sink = { .lock = PTHREAD_MUTEX_INITIALIZER, .max = LOG_LEVEL_INFO };

void log_setup(enum log_level max)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long dev, ino;
	struct stat st;

	sink.max = max;
	sink.journal = stream && sscanf(stream, "%lu:%lu", &dev, &ino) == 2 &&
		       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

bool log_level_parse(const char *s, enum log_level *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (str_eq(s, levels[i].name)) {
			*ret = (enum log_level)i;
			return true;
		}
	return false;
}

/* A regular write of one short line: to a pipe it is atomic; a full pipe loses the line, counted. */
static void log_put(const char *line, size_t n)
{
	int flags = fcntl(STDERR_FILENO, F_GETFL);
	bool was_blocking = flags >= 0 && !(flags & O_NONBLOCK);
	struct stat st;

	if (was_blocking && fstat(STDERR_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
		(void)fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
	if (write(STDERR_FILENO, line, n) < 0)
		sink.lost++;
}

static void emit(enum log_level level, const char *event, const char *rest)
{
	char line[LINE_MAX_BYTES + 64], time[40];
	int n;

	if (sink.journal) {
		n = snprintf(line, sizeof(line), "<%d>%s %s\n", levels[level].priority, event, rest);
	} else {
		str_rfc3339(clock_wall_ms() * 1000, 3, time);
		n = snprintf(line, sizeof(line), "%s %-5s %s %s\n", time, levels[level].name, event, rest);
	}
	if (n >= (int)sizeof(line)) {
		n = (int)sizeof(line) - 1;
		line[n - 1] = '\n';
	}
	log_put(line, (size_t)n);
}

/* False if this event had its share of this second. */
static bool admit(const char *event, unsigned *ret_dropped)
{
	uint64_t second = clock_boot_ms() / 1000;
	struct slot *s = &sink.slots[((uintptr_t)event >> 3) % EVENT_SLOTS];

	*ret_dropped = 0;
	if (s->event != event || s->second != second) {
		if (s->event == event)
			*ret_dropped = s->dropped;
		*s = (struct slot){ .event = event, .second = second };
	}
	if (s->lines >= LOG_LINES_PER_S) {
		s->dropped++;
		return false;
	}
	s->lines++;
	return true;
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
	char rest[LINE_MAX_BYTES], more[64];
	unsigned dropped;
	va_list ap;

	if (level > sink.max)
		return;
	va_start(ap, fmt);
	vsnprintf(rest, sizeof(rest), fmt, ap);
	va_end(ap);
	for (char *c = rest; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	pthread_mutex_lock(&sink.lock);
	if (admit(event, &dropped)) {
		if (dropped) {
			snprintf(more, sizeof(more), "suppressed=%u", dropped);
			emit(LOG_LEVEL_WARN, event, more);
		}
		if (sink.lost) {
			snprintf(more, sizeof(more), "lines=%lu", sink.lost);
			sink.lost = 0;
			emit(LOG_LEVEL_WARN, "log_lost", more);
		}
		emit(level, event, rest);
	}
	pthread_mutex_unlock(&sink.lock);
}

const char *log_q(const char *s)
{
	static char bufs[8][256 + 4];
	static unsigned next;
	char *b = bufs[next++ % ARRAY_SIZE(bufs)], *at = b;

	if (!s)
		return "-";
	*at++ = '"';
	for (; *s && at < b + 256; s++) {
		if (*s == '"' || *s == '\\') {
			if (at + 2 >= b + 256)
				break;
			*at++ = '\\';
		}
		*at++ = (unsigned char)*s < 0x20 || *s == 0x7f ? ' ' : *s;
	}
	*at++ = '"';
	*at = 0;
	return b;
}
