/* SPDX-License-Identifier: MIT */
/* What goes to stderr, and the exit codes that go with it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

size_t control_length(const char *text)
{
	unsigned char c = (unsigned char)text[0], next = c ? (unsigned char)text[1] : 0;

	if (c == 0xc2 && next >= 0x80 && next < 0xa0)
		return 2;
	return c < 0x20 || c == 0x7f;
}

const char *safe(const char *text, char *buf, size_t n)
{
	size_t i;

	for (i = 0; *text && i + 1 < n; i++) {
		size_t control = control_length(text);

		buf[i] = control ? '?' : *text;
		text += control ? control : 1;
	}
	buf[i] = '\0';
	return buf;
}

static void __attribute__((format(printf, 2, 0)))
vsay(const char *command, const char *fmt, va_list ap)
{
	char text[2048], clean[2048];

	(void)vsnprintf(text, sizeof(text), fmt, ap);
	fprintf(stderr, "agentboxctl: %s%s%s\n", command ? command : "", command ? ": " : "",
		safe(text, clean, sizeof(clean)));
}

void say(const struct cli *cli, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsay(cli->command ? cli->command->name : NULL, fmt, ap);
	va_end(ap);
}

int fail_here(const struct cli *cli, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsay(cli->command ? cli->command->name : NULL, fmt, ap);
	va_end(ap);
	return cli->command && cli->command->fail_code ? cli->command->fail_code : EXIT_ERROR;
}

int usage(const struct command *cmd, const char *fmt, ...)
{
	char text[1024] = "", clean[1024];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "agentboxctl: %s%s%s; see agentboxctl %s%s--help\n", cmd ? cmd->name : "",
		cmd ? ": " : "", safe(text, clean, sizeof(clean)), cmd ? cmd->name : "", cmd ? " " : "");
	return EXIT_USAGE;
}

static void fail_print_json(const struct ab_error *e)
{
	struct json j;

	json_begin(&j, stderr);
	json_open(&j, "error", '{');
	json_text(&j, "status", e->status_name);
	json_text(&j, "reason", e->reason);
	json_text(&j, "message", e->message);
	if (e->retry_after_ms)
		json_uint(&j, "retry_after_ms", e->retry_after_ms);
	json_pairs(&j, "evidence", e->evidence, e->n_evidence);
	json_close(&j, '}');
	json_end(&j);
}

int fail(const struct cli *cli, const struct ab_error *e)
{
	if (cli->args.json)
		fail_print_json(e);
	else if (*e->reason)
		say(cli, "%s (%s)", e->message, e->reason);
	else
		say(cli, "%s (%s)", e->message, e->status_name);
	if (cli->command->fail_code)
		return cli->command->fail_code;
	if (e->status == AB_NOT_FOUND)
		return EXIT_NOT_FOUND;
	/* the library's own: the daemon did not answer */
	if (!strcmp(e->reason, "UNREACHABLE") || (e->local && e->status == AB_UNAVAILABLE))
		return EXIT_UNREACHABLE;
	return EXIT_ERROR;
}

int fail_missing(const struct cli *cli, const char *reason, const char *fmt, ...)
{
	char text[1024] = "";
	struct ab_error e = { .status = AB_NOT_FOUND, .status_name = "NOT_FOUND", .reason = reason, .message = text };
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return fail(cli, &e);
}

int fail_create(const struct cli *cli, const struct ab_call *call)
{
	const struct ab_error *e = ab_call_error(call);
	int r = fail(cli, e);

	if (!strcmp(e->reason, "OUTCOME_UNKNOWN"))
		say(cli, "the same command with --request-id %s finds out", ab_call_request_id(call));
	return r;
}

int fail_client(const struct cli *cli)
{
	return fail(cli, ab_client_error(cli->client));
}
