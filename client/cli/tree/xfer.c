/* SPDX-License-Identifier: MIT */
#include "client/cli/tree/xfer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/term/meter.h"
#include "client/cli/term/out.h"
#include "client/cli/term/sig.h"
#include "client/cli/term/sink.h"

#define SOURCE_BYTES (256u * 1024)

const char *xfer_text(struct cli *cli, const char *path)
{
	struct words *held = &cli->args.texts;
	const char **v;
	char *text;

	if (is_utf8(path))
		return path;
	text = ab_path_text(path);
	v = text ? reallocarray(held->v, held->n + 1, sizeof(*v)) : NULL;
	if (!v) {
		free(text);
		return path;	/* the daemon refuses it */
	}
	held->v = v;
	held->v[held->n++] = text;
	return text;
}

bool xfer_split(struct cli *cli, char *word, struct ab_path *ret)
{
	char *colon = strchr(word, ':'), *slash = strchr(word, '/');

	if (!colon || colon == word || (slash && slash < colon))
		return false;
	*colon = '\0';
	*ret = (struct ab_path){ .sandbox = word, .path = xfer_text(cli, colon + 1) };
	return true;
}

/* --- one turn --- */

/* Waits for the daemon, for signals, and for `fd` if events is not 0. */
static void turn(struct xfer *x, struct meter *m, int sig_fd, int fd, short events)
{
	struct ab_client *c = x->cli->client;
	struct pollfd p[4] = {
		{ .fd = ab_fd(c), .events = (short)ab_events(c) },
		{ .fd = sig_fd, .events = POLLIN },
		{ .fd = events ? fd : -1, .events = events },
		{ .fd = m->fd, .events = POLLIN },
	};

	if (poll(p, ARRAY_SIZE(p), ab_timeout(c)) < 0)
		return;
	if (p[1].revents)
		x->signo = sig_take(sig_fd);
	if (p[3].revents)
		meter_draw(m, x->label, x->bytes, x->total);
	(void)ab_process(c);
}

int xfer_down(struct xfer *x, struct ab_call *call, int fd, int sig_fd)
{
	struct meter m;
	struct sink sink;
	const void *p = NULL;
	size_t n = 0;

	meter_open(&m, x->progress);
	sink_open(&sink, fd);
	while ((n || !ab_call_is_done(call)) && !x->error && !x->signo) {
		ssize_t k;

		if (!n && !ab_file_read_next(call, &p, &n)) {
			if (!ab_call_is_done(call))
				turn(x, &m, sig_fd, -1, 0);
			continue;
		}
		if (ab_file_read_info(call) && ab_file_read_info(call)->size > 0)
			x->total = (uint64_t)ab_file_read_info(call)->size;
		k = sink_write(&sink, p, n);
		if (k < 0) {
			x->error = (int)-k;
			break;
		}
		p = (const char *)p + k;
		n -= (size_t)k;
		x->bytes += (uint64_t)k;
		if (n)
			turn(x, &m, sig_fd, sink.fd, POLLOUT);
	}
	sink_close(&sink);
	meter_close(&m);
	return x->error || x->signo ? -1 : ab_call_status(call) ? -1 : 0;
}

struct source {
	char *buf;
	size_t at, n;
	bool eof, finished;
};

static void source_fill(struct xfer *x, struct source *s, int fd)
{
	size_t want = SOURCE_BYTES;
	ssize_t n;

	if (x->total && x->total - x->bytes < want)
		want = (size_t)(x->total - x->bytes);	/* a file that grows is sent as it was */
	n = want ? read(fd, s->buf, want) : 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		x->error = errno;
		return;
	}
	s->eof = n == 0;
	s->at = 0;
	s->n = (size_t)n;
	x->bytes += (uint64_t)n;
}

static void source_put(struct source *s, struct ab_call *call)
{
	if (s->n) {
		ptrdiff_t k = ab_file_write_put(call, s->buf + s->at, s->n);

		if (k > 0) {
			s->at += (size_t)k;
			s->n -= (size_t)k;
		}
	}
	if (s->eof && !s->n && !s->finished)
		s->finished = ab_file_write_finish(call) == 0;
}

int xfer_up(struct xfer *x, struct ab_call *call, int fd, int sig_fd)
{
	struct source s = { .buf = malloc(SOURCE_BYTES) };
	struct meter m;

	if (!s.buf) {
		x->error = ENOMEM;
		return -1;
	}
	meter_open(&m, x->progress);
	while (!ab_call_is_done(call) && !x->error && !x->signo) {
		bool want = !s.n && !s.eof;

		if (want) {
			struct pollfd p = { .fd = fd, .events = POLLIN };

			if (poll(&p, 1, 0) > 0)
				source_fill(x, &s, fd);
		}
		source_put(&s, call);
		if (!s.n && !s.eof && !want)
			continue;	/* all was taken: the next piece */
		if (!ab_call_is_done(call) && !x->error)
			turn(x, &m, sig_fd, fd, !s.n && !s.eof ? POLLIN : 0);
	}
	free(s.buf);
	meter_close(&m);
	return x->error || x->signo ? -1 : ab_call_status(call) ? -1 : 0;
}
