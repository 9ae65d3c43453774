/* SPDX-License-Identifier: MIT */
#include "daemon/main/key_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KILL_AFTER_MS 1000u

struct key_command {
	struct child *child;
	uint32_t limit_ms;
	key_command_done_fn *done;
	void *user;
};

/* What it printed, if that is a key and nothing else. */
static const char *take_key(const struct child_result *r, struct secret **ret)
{
	char text[SECRET_MAX_BYTES + 1];
	int k;

	if (strlen(r->output) != r->n_output)
		return "what it prints is no key";
	memcpy(text, r->output, r->n_output + 1);
	k = secret_take(text, ret);
	explicit_bzero(text, sizeof(text));
	return k < 0 ? secret_error(k) : NULL;
}

static const char *judge(const struct key_command *k, const struct child_result *r, struct secret **ret, char text[64])
{
	switch (r->end) {
	case CHILD_EXITED:
		return r->number ? child_end_text(r, text) : take_key(r, ret);
	case CHILD_TIMED_OUT:
		snprintf(text, 64, "it did not end within %g s", k->limit_ms / 1000.0);
		return text;
	case CHILD_SAID_TOO_MUCH:
		return "it prints more than 4,096 bytes";
	default:
		return child_end_text(r, text);
	}
}

static void on_done(const struct child_result *r, void *user)
{
	struct key_command *k = user, copy = *k;
	struct secret *key = NULL;
	char text[64];
	const char *why = judge(k, r, &key, text);

	free(k);
	copy.done(copy.user, key, why);
}

int key_command_start(struct children *s, const char *command, uint32_t limit_ms, key_command_done_fn *done, void *user,
		      struct key_command **ret)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)command, NULL };
	struct key_command *k = calloc(1, sizeof(*k));
	const struct child_options o = {
		.name = "api_key_command", .program = "/bin/sh", .argv = argv, .output_fd = STDOUT_FILENO,
		.output_max = SECRET_MAX_BYTES, .time_limit_ms = limit_ms, .kill_after_ms = KILL_AFTER_MS,
		.whole_group = true, .done = on_done, .user = k,
	};
	int r;

	if (!k)
		return -ENOMEM;
	k->limit_ms = limit_ms;
	k->done = done;
	k->user = user;
	r = child_start(s, &o, &k->child);
	if (r < 0)
		free(k);
	else
		*ret = k;
	return r;
}

void key_command_cancel(struct key_command *k)
{
	if (k)
		child_cancel(k->child);
	free(k);
}
