/* SPDX-License-Identifier: MIT */
/* See again.h. */
#include "client/cli/term/again.h"

#include <poll.h>
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
