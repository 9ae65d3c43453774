/* SPDX-License-Identifier: MIT */
/* agentboxctl events */
#include <stdio.h>

#include "client/cli/term/again.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

#define CURSOR_BYTES 128u

static const struct opt cmd_events_opts[] = {
	OPT('f', "follow", OPT_FLAG, follow, NULL, "go on until it is interrupted; it does so in any case"),
	OPT(0, "initial", OPT_FLAG, initial, NULL, "begin with what is there"),
	OPT(0, "cursor", OPT_TEXT, cursor, "C", "go on after the event with this cursor (--json shows them)"),
	OPT(0, "all-owners", OPT_FLAG, all_owners, NULL, "of all users (administrators)"),
};

static void cmd_events_print_json(const struct ab_sandbox_event *e)
{
	struct json j;

	json_begin(&j, stdout);
	json_time(&j, "at", e->at_ms);
	json_text(&j, "type", e->type_name);
	json_text(&j, "cursor", e->cursor);
	if (e->sandbox) {
		json_text(&j, "sandbox", e->sandbox->id);
		json_text(&j, "name", e->sandbox->name);
		json_text(&j, "state", state_name(e->sandbox->state));
		json_time(&j, "end_at", e->sandbox->end_at_ms);
		json_uint(&j, "leases", e->sandbox->leases);
	}
	if (*e->reason)
		json_text(&j, "reason", e->reason);
	json_pairs(&j, "evidence", e->evidence, e->n_evidence);
	json_end(&j);
}

static void print_line(const struct ab_sandbox_event *e)
{
	char at[32], end[32], clean[512];

	printf("%s %-16s", time_text(e->at_ms, at), e->type_name);
	if (e->sandbox)
		printf(" %s %s ends %s leases %u", e->sandbox->id, state_name(e->sandbox->state),
		       time_text(e->sandbox->end_at_ms, end), e->sandbox->leases);
	if (*e->reason)
		printf(" %s", e->reason);
	for (size_t i = 0; i < e->n_evidence; i++)
		printf(" %s=%s", e->evidence[i].key, safe(e->evidence[i].value, clean, sizeof(clean)));
	printf("\n");
}

struct events {
	struct again_stream stream;
	char cursor[CURSOR_BYTES];	/* of the last event; "" before the first */
};

static struct events *events_of(struct again_stream *s)
{
	return (struct events *)s;
}

/* From where we are, after the first time. */
static int ask(struct again_stream *s, struct ab_call **ret)
{
	const struct args *a = &s->cli->args;
	const char *cursor = events_of(s)->cursor;
	const struct ab_sandbox_watch_options o = {
		.cursor = cursor[0] ? cursor : a->cursor,
		.sandbox = a->n_words ? a->words[0] : NULL,
		.initial = a->initial && !cursor[0],
		.all_owners = a->all_owners,
	};

	return ab_sandbox_watch_start(s->cli->client, &o, NULL, ret);
}

static void take_events(struct again_stream *s)
{
	struct events *x = events_of(s);
	struct ab_sandbox_event e;

	while (ab_sandbox_watch_next(s->call, &e)) {
		again_heard(&s->again);
		if (*e.cursor)
			(void)snprintf(x->cursor, sizeof(x->cursor), "%s", e.cursor);
		if (e.type == AB_SANDBOX_HEARTBEAT)
			continue;
		if (s->cli->args.json)
			cmd_events_print_json(&e);
		else
			print_line(&e);
	}
}

static int cmd_events_run(struct cli *cli)
{
	struct events x = { .stream = { .cli = cli, .ask = ask, .take = take_events } };

	return again_follow(&x.stream);
}

const struct command cmd_events = {
	.name = "events",
	.words = "[ID]",
	.help = "Follows what happens to sandboxes, a line for each change, until it is interrupted.\n"
		"It goes on over a restart of the daemon, from the last event.",
	.opts = cmd_events_opts,
	.n_opts = ARRAY_SIZE(cmd_events_opts),
	.max_words = 1,
	.run = cmd_events_run,
};
