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

#include "daemon/common/obs/journald.h"
#include "daemon/common/obs/kind.h"
#include "daemon/common/obs/redact.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define LINE_MAX_BYTES 1024u

static const struct {
	const char *name;
	int priority;	/* syslog's, for the journal */
} levels[] = { { "error", 3 }, { "warn", 4 }, { "info", 6 }, { "debug", 7 } };

/* Of a kind; those that are not in the table share one: lines in this second, lines dropped. */
struct slot {
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
	bool journal;		/* stderr is its stream … */
	int journal_fd;		/* … and this its socket; -1 = none */
	enum way way;
	int fd;
	unsigned long lost;
	struct slot slots[LOG_KINDS + 1];
} sink = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .max = LOG_LEVEL_INFO, .way = WAY_ASK, .fd = STDERR_FILENO, .journal_fd = -1,
};

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
	struct stat st;

	sink.max = max;
	sink.journal = fstat(STDERR_FILENO, &st) == 0 && journald_is_stream(getenv("JOURNAL_STREAM"), &st);
	open_sink();
	sink.journal_fd = fd_close(sink.journal_fd);
	if (sink.journal && journald_open(JOURNALD_SOCKET, &sink.journal_fd) < 0)
		sink.journal_fd = -1;	/* the stream is there */
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

bool log_is_on(enum log_level level)
{
	return level <= sink.max;
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

static bool put_text(enum log_level level, const char *event, const char *rest)
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

/* A journal that is full loses the line, as a full pipe does; one that is not there leaves it to its stream. */
static bool emit(enum log_level level, enum log_kind kind, const char *event, const char *rest)
{
	struct journald_line line = { program_invocation_short_name, levels[level].priority, log_kind_id(kind), event, rest };

	if (sink.journal_fd >= 0) {
		if (journald_send(sink.journal_fd, &line))
			return true;
		if (errno == EAGAIN || errno == ENOBUFS)
			return false;
	}
	return put_text(level, event, rest);
}

/* The count is kept until the line that reports it was written. */
static void tell_lost(void)
{
	char text[64];

	snprintf(text, sizeof(text), "lines=%lu", sink.lost);
	if (emit(LOG_LEVEL_WARN, LOG_KIND_log_lost, "log_lost", text))
		sink.lost = 0;
}

/* False if this kind had its share of this second. */
static bool admit(enum log_kind kind, unsigned *ret_dropped)
{
	uint64_t second = clock_boot_ms() / 1000;
	struct slot *s = &sink.slots[kind];

	*ret_dropped = 0;
	if (s->second != second) {
		*ret_dropped = s->dropped;
		*s = (struct slot){ .second = second };
	}
	if (s->lines >= LOG_LINES_PER_S && kind != LOG_KIND_audit) {
		s->dropped++;
		return false;
	}
	s->lines++;
	return true;
}

/* One line of text that any reader takes: no control characters, and no bytes that are not UTF-8. */
static void make_printable(char *text)
{
	size_t n = strlen(text), len;

	for (size_t i = 0; i < n; i += len) {
		len = str_utf8_len(text + i, n - i);
		if (!len) {
			text[i] = '?';
			len = 1;
		} else if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
			text[i] = ' ';
		}
	}
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
	enum log_kind kind;
	scratch_ char rest[LINE_MAX_BYTES];
	char more[64];
	unsigned dropped;
	va_list ap;

	if (level > sink.max)
		return;
	va_start(ap, fmt);
	vsnprintf(rest, sizeof(rest), fmt, ap);
	va_end(ap);
	redact_text(rest);
	make_printable(rest);
	kind = log_kind_find(event);
	pthread_mutex_lock(&sink.lock);
	if (admit(kind, &dropped)) {
		if (dropped) {
			snprintf(more, sizeof(more), "suppressed=%u", dropped);
			sink.lost += !emit(LOG_LEVEL_WARN, kind, event, more);
		}
		if (sink.lost)
			tell_lost();
		sink.lost += !emit(level, kind, event, rest);
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
