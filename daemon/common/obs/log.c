/* SPDX-License-Identifier: MIT */
#include "daemon/common/obs/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/obs/redact.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
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

/* How a line is written without waiting, and without changing the flags of stderr, which other programs may share. */
enum way {
	WAY_ASK,	/* poll() first; the write can still wait if another program fills the pipe in between */
	WAY_OWN,	/* sink.fd is a second, non-blocking open file of what stderr is */
	WAY_SOCKET,	/* MSG_DONTWAIT with every call */
};

static struct {
	pthread_mutex_t lock;
	enum log_level max;
	bool journal;
	enum way way;
	int fd;
	unsigned long lost;
	struct slot slots[EVENT_SLOTS];
} sink = { .lock = PTHREAD_MUTEX_INITIALIZER, .max = LOG_LEVEL_INFO, .way = WAY_ASK, .fd = STDERR_FILENO };

static bool is_same_file(int fd, const struct stat *want)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == want->st_dev && st.st_ino == want->st_ino;
}

/* Only a pipe or a terminal is opened again: a write to a regular file never waits for a reader, and a second open file
 * would have an offset of its own. -1: not opened. */
static int open_again(const struct stat *st)
{
	int fd;

	if (!S_ISFIFO(st->st_mode) && !isatty(STDERR_FILENO))
		return -1;
	fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd >= 0 && !is_same_file(fd, st) ? fd_close(fd) : fd;
}

static void open_sink(void)
{
	struct stat st;
	int fd;

	if (sink.way == WAY_OWN)
		fd_close(sink.fd);
	sink.way = WAY_ASK;
	sink.fd = STDERR_FILENO;
	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	if (S_ISSOCK(st.st_mode)) {
		sink.way = WAY_SOCKET;
	} else if ((fd = open_again(&st)) >= 0) {
		sink.way = WAY_OWN;
		sink.fd = fd;
	}
}

void log_setup(enum log_level max)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long dev, ino;
	struct stat st;

	sink.max = max;
	sink.journal = stream && sscanf(stream, "%lu:%lu", &dev, &ino) == 2 &&
		       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
	open_sink();
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

/* One write of one short line: to a pipe it is atomic. False: it found no room. */
static bool log_put(const char *line, size_t n)
{
	struct pollfd p = { .fd = sink.fd, .events = POLLOUT };
	ssize_t r = -1;

	if (sink.way == WAY_SOCKET)
		r = send(sink.fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (sink.way == WAY_OWN || (poll(&p, 1, 0) == 1 && p.revents & POLLOUT))
		r = write(sink.fd, line, n);
	return r >= 0;
}

static bool emit(enum log_level level, const char *event, const char *rest)
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
	return log_put(line, (size_t)n);
}

/* The count is kept until the line that reports it was written. */
static void tell_lost(void)
{
	char text[64];

	snprintf(text, sizeof(text), "lines=%lu", sink.lost);
	if (emit(LOG_LEVEL_WARN, "log_lost", text))
		sink.lost = 0;
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
	redact_text(rest);
	for (char *c = rest; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	pthread_mutex_lock(&sink.lock);
	if (admit(event, &dropped)) {
		if (dropped) {
			snprintf(more, sizeof(more), "suppressed=%u", dropped);
			sink.lost += !emit(LOG_LEVEL_WARN, event, more);
		}
		if (sink.lost)
			tell_lost();
		sink.lost += !emit(level, event, rest);
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
