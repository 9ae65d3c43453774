/* SPDX-License-Identifier: MIT */
#include "client/cli/term/again.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/term/clock.h"
#include "client/cli/term/sig.h"

#define AGAIN_FOR_MS 30000
#define AGAIN_GAP_MS 100

void again_heard(struct again *a)
{
	a->until_ms = 0;
}

/* The daemon went, or is about to; nothing is said about what the stream was about. */
static bool is_restart(const struct ab_error *e)
{
	return e && e->status == AB_UNAVAILABLE && (e->local || !strcmp(e->reason, "DRAINING"));
}

int again_wait(struct again *a, const struct cli *cli, const struct ab_error *e, int sig_fd)
{
	uint64_t wait_ms = cli->args.wait_ms == AB_ZERO_MS ? 0 : cli->args.wait_ms ? cli->args.wait_ms : AGAIN_FOR_MS;
	struct pollfd p = { .fd = sig_fd, .events = POLLIN };
	int64_t now_ms = cli_boot_ms();

	if (!is_restart(e))
		return -1;
	if (!a->until_ms) {
		a->until_ms = now_ms + (int64_t)(wait_ms < INT32_MAX ? wait_ms : INT32_MAX);
		return 0;
	}
	if (now_ms >= a->until_ms)
		return -1;
	return poll(&p, 1, AGAIN_GAP_MS) > 0 ? sig_take(sig_fd) : 0;
}

static int ask_again(struct again_stream *s)
{
	ab_call_free(s->call);
	s->call = NULL;
	return s->ask(s, &s->call);
}

/* -1: it goes on; else the exit code. *signo: a signal that came meanwhile. */
static int on_stream_end(struct again_stream *s, int sig_fd, int *signo)
{
	const struct ab_error *e = ab_call_error(s->call);
	int r = again_wait(&s->again, s->cli, e, sig_fd);

	if (r < 0)
		return e ? fail(s->cli, e) : EXIT_OK;
	*signo = r;
	return r || ask_again(s) == 0 ? -1 : EXIT_ERROR;
}

static int follow_stream(struct again_stream *s, int sig_fd)
{
	int signo = 0, r;

	while (!signo) {
		s->take(s);
		if (fflush(stdout) != 0)
			return EXIT_ERROR;	/* main() says it */
		if (!ab_call_is_done(s->call)) {
			signo = sig_wait(s->cli->client, sig_fd);
			continue;
		}
		r = on_stream_end(s, sig_fd, &signo);
		if (r >= 0)
			return r;
	}
	ab_call_free(s->call);
	sig_die(signo);
}

int again_follow(struct again_stream *s)
{
	int sig_fd = sig_open(), r = sig_fd < 0 ? sig_fd : ask_again(s);

	if (r < 0)
		return fail_here(s->cli, "%s", strerror(-r));
	r = follow_stream(s, sig_fd);
	ab_call_free(s->call);
	return r;
}
