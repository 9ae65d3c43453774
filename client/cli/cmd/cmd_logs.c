/* SPDX-License-Identifier: MIT */
/* agentboxctl logs: where in the output to begin, then follow.h does the rest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cmd/follow.h"
#include "client/cli/term/clock.h"

#define TAIL_MAX 1000000u
#define STREAMS	 4u	/* array size by enum ab_stream */

static const struct opt logs_opts[] = {
	OPT('f', "follow", OPT_FLAG, follow, NULL, "go on until the command has ended"),
	OPT('n', "tail", OPT_TEXT, count, "N", "only the last N lines of what is there"),
	OPT(0, "since", OPT_TEXT, since, "WHEN", "only what came since: 10m ago, or 2026-01-31T23:59:00Z"),
	OPT(0, "from", OPT_TEXT, from, "OFFSET", "first byte of the output (0)"),
};

/* --- the last lines --- */

/* Where a line begins: an offset of one stream. */
struct line_begin {
	unsigned stream;
	uint64_t offset;
};

/* The begins of the last `max` lines of all streams, in the order in which they came. */
struct tail {
	struct line_begin *ring;
	size_t max, n;		/* n: lines in all */
	bool inside[STREAMS];	/* the stream's last byte was no end of a line */
	uint64_t end[STREAMS];	/* one past its last byte */
};

static void tail_line(struct tail *t, unsigned stream, uint64_t offset)
{
	t->ring[t->n++ % t->max] = (struct line_begin){ .stream = stream, .offset = offset };
}

static void tail_output(struct tail *t, unsigned stream, uint64_t offset, const char *p, size_t n)
{
	const char *at = p, *end = p + n;

	while (at < end) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));

		if (!t->inside[stream])
			tail_line(t, stream, offset + (uint64_t)(at - p));
		t->inside[stream] = nl == NULL;
		at = nl ? nl + 1 : end;
	}
	t->end[stream] = offset + n;
}

static void tail_event(struct tail *t, const struct ab_command_event *ev)
{
	if ((unsigned)ev->stream >= STREAMS)
		return;
	if (ev->type == AB_EVENT_OUTPUT)
		tail_output(t, ev->stream, ev->offset, ev->data, (size_t)ev->size);
	else if (ev->type == AB_EVENT_GAP)
		t->inside[ev->stream] = false;
}

/* Each stream begins with its first line among the last; one without any begins at its end. */
static void tail_begin(const struct tail *t, struct ab_attach_options *ret)
{
	uint64_t begin[STREAMS];

	memcpy(begin, t->end, sizeof(begin));
	for (size_t i = t->max; i > 0; i--) {
		const struct line_begin *l = &t->ring[(t->n - t->max + t->max - i) % t->max];

		begin[l->stream] = l->offset < begin[l->stream] ? l->offset : begin[l->stream];
	}
	ret->stdout_offset = begin[AB_STDOUT];
	ret->stderr_offset = begin[AB_STDERR];
	ret->pty_offset = begin[AB_PTY];
	ret->since_ms = 0;
}

/* Reads what there is once, and keeps where its lines begin. */
static int tail_read(struct cli *cli, const struct ab_attach_options *o, struct tail *t)
{
	const struct ab_command_ref ref = { .command_id = cli->args.words[0] };
	struct ab_attach_options all = *o;
	struct ab_command_event ev;
	struct ab_call *call;
	int r;

	all.no_follow = true;
	r = ab_command_attach_start(cli->client, &ref, &all, NULL, &call);
	if (r < 0)
		return fail_here(cli, "%s", strerror(-r));
	do {
		while (ab_command_next(call, &ev))
			tail_event(t, &ev);
	} while (!ab_call_is_done(call) && ab_call_poll(call, -1) >= 0);
	r = ab_call_error(call) ? fail(cli, ab_call_error(call)) : EXIT_OK;
	ab_call_free(call);
	return r;
}

/* Changes *o so that the last lines are what is read. Fewer than asked for: all that there is. */
static int take_tail(struct cli *cli, struct ab_attach_options *o)
{
	struct tail t = { 0 };
	uint32_t n = 0;
	int r;

	(void)opt_number(cli->args.count, TAIL_MAX, &n);
	t.max = n;
	if (!t.max) {
		o->from_end = true;
		o->since_ms = 0;
		return EXIT_OK;
	}
	t.ring = calloc(t.max, sizeof(*t.ring));
	if (!t.ring)
		return fail_here(cli, "out of memory");
	r = tail_read(cli, o, &t);
	if (r == EXIT_OK && t.n > t.max)
		tail_begin(&t, o);
	free(t.ring);
	return r;
}

/* --- options --- */

static int check_logs(struct cli *cli)
{
	const char *n = cli->args.count;
	int64_t ms;
	uint32_t lines;

	if (n && !opt_number(n, TAIL_MAX, &lines))
		return usage(cli->command, "--tail takes a number of lines up to %u, not '%s'", TAIL_MAX, n);
	if (cli->args.since && !cli_since_ms(cli->args.since, &ms))
		return usage(cli->command, "--since takes a duration such as 10m, or a time such as 2026-01-31T23:59:00Z, not '%s'",
			     cli->args.since);
	if (cli->args.from && (n || cli->args.since))
		return usage(cli->command, "--from stands alone, without --tail and --since");
	return 0;
}

static int run_logs(struct cli *cli)
{
	struct ab_attach_options o = { 0 };
	int r = EXIT_OK;

	if (cli->args.since)
		(void)cli_since_ms(cli->args.since, &o.since_ms);
	if (cli->args.count)
		r = take_tail(cli, &o);
	o.no_follow = !cli->args.follow;
	return r == EXIT_OK ? follow_logs(cli, &o) : r;
}

const struct command cmd_logs = {
	.name = "logs",
	.words = "COMMAND_ID",
	.help = "Prints what a command has printed so far.\n"
		"Interrupting it leaves the command alone.",
	.opts = logs_opts,
	.n_opts = ARRAY_SIZE(logs_opts),
	.min_words = 1,
	.max_words = 1,
	.no_json = true,
	.check = check_logs,
	.run = run_logs,
};
