/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl hold: a command on this host (child.h) that uses a sandbox. It begins when the lease is held. A lease that is lost by a restart of
 * the daemon is taken again; one whose sandbox is gone ends the command.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/term/child.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"

#define RETRY_FOR_MS 25000	/* within the daemon's restart_grace */
#define RETRY_GAP_MS 200

static const struct opt cmd_hold_opts[] = {
	OPT(0, "label", OPT_TEXT, label, "TEXT", "shown in lists of leases"),
};

struct hold {
	struct cli *cli;
	struct ab_call *call;
	char lease_id[64];
	struct child child;
	int64_t retry_until_ms;	/* 0 = it is held */
	bool ending;		/* the command was told to end */
};

static int ask(struct hold *h)
{
	const struct ab_lease_options o = { .label = h->cli->args.label,
					    .lease_id = h->lease_id[0] ? h->lease_id : NULL };

	return ab_lease_hold_start(h->cli->client, h->cli->args.words[0], &o, NULL, &h->call);
}

static void end_child(struct hold *h)
{
	h->ending = true;
	child_signal(&h->child, SIGTERM);
}

static bool may_pass(const struct ab_error *e)
{
	return e->status == AB_UNAVAILABLE || e->status == AB_CANCELLED;
}

/* The stream ended: again, if that can help; else the command has to end. -1, or an exit code. */
static int lost(struct hold *h)
{
	const struct ab_error *e = ab_call_error(h->call);
	bool again = h->child.pid && e && may_pass(e);
	int code = e ? fail(h->cli, e) : EXIT_ERROR;

	if (!h->retry_until_ms)
		h->retry_until_ms = cli_boot_ms() + RETRY_FOR_MS;
	ab_call_free(h->call);
	h->call = NULL;
	if (!h->child.pid)
		return code;
	if (!again || cli_boot_ms() >= h->retry_until_ms) {
		say(h->cli, "the lease is lost; ending the command");
		end_child(h);
	}
	return -1;
}

/* -1, or an exit code. */
static int look(struct hold *h)
{
	const struct ab_lease *l;

	while (h->call && ab_lease_hold_next(h->call, &l)) {
		(void)snprintf(h->lease_id, sizeof(h->lease_id), "%s", l->id);
		h->retry_until_ms = 0;
		if (!h->child.pid && !h->ending && child_begin(&h->child, h->cli->args.rest))
			return EXIT_ERROR;
	}
	return h->call && ab_call_is_done(h->call) ? lost(h) : -1;
}

static int wait_timeout(const struct hold *h)
{
	int ms = ab_timeout(h->cli->client);

	return !h->call && !h->ending && (ms < 0 || ms > RETRY_GAP_MS) ? RETRY_GAP_MS : ms;
}

static int loop(struct hold *h)
{
	struct ab_client *c = h->cli->client;
	int code = -1;

	while (code < 0) {
		struct pollfd p[] = { { .fd = ab_fd(c), .events = (short)ab_events(c) },
				      { .fd = h->child.sig_fd, .events = POLLIN } };

		(void)poll(p, ARRAY_SIZE(p), wait_timeout(h));
		(void)ab_process(c);
		code = look(h);
		if (code < 0 && !h->call && !h->ending && ask(h) < 0)
			end_child(h);
		if (code < 0)
			code = child_take(&h->child);
	}
	return code;
}

static int cmd_hold_run(struct cli *cli)
{
	struct hold h = { .cli = cli };
	int r;

	if (!cli->args.n_rest)
		return usage(cli->command, "the command to run is missing: hold ID CMD…");
	r = child_init(&h.child, cli);
	if (!r)
		r = ask(&h);
	if (r < 0)
		return fail_here(cli, "%s", strerror(-r));
	r = loop(&h);
	ab_call_free(h.call);
	return r;
}

const struct command cmd_hold = {
	.name = "hold",
	.words = "ID [--] CMD…",
	.help = "Runs a command on this host while holding a lease on a sandbox; ends with its exit code.",
	.opts = cmd_hold_opts,
	.n_opts = ARRAY_SIZE(cmd_hold_opts),
	.min_words = 1,
	.max_words = 1,
	.takes_rest = true,
	.no_json = true,
	.run = cmd_hold_run,
};
