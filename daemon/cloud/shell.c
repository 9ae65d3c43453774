/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/shell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

/* A substitution drops newlines at its end, so there is always one more character. */
static const char prelude[] = "w() { v=$(printf '%b.' \"$1\"); v=${v%.}; }\n";

/* For printf's %b: everything but the plainest as \0ooo. */
static char *number_bytes(const char *word)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-";
	size_t n = strlen(word), at = 0;
	char *out = malloc(5 * n + 1);

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)word[i];

		if (strchr(plain, c)) {
			out[at++] = (char)c;
			continue;
		}
		out[at++] = '\\';
		out[at++] = '0';
		out[at++] = (char)('0' + (c >> 6));
		out[at++] = (char)('0' + (c >> 3 & 7));
		out[at++] = (char)('0' + (c & 7));
	}
	out[at] = 0;
	return out;
}

int shell_start(struct shell *s, const struct envd_target *t, const char *script, const char *const *words, size_t n,
		envd_stream_ready_fn *on_ready, void *user)
{
	static struct cloud_kv envs[] = { { (char *)"LC_ALL", (char *)"C" } };
	char *text = str_printf("%s%s", prelude, script), *coded[SHELL_WORDS_MAX] = { NULL };
	const char *args[3 + SHELL_WORDS_MAX] = { "-c", text, "sh" };
	struct envd_target root = *t;
	struct envd_start start = { .cmd = "/bin/sh", .args = args, .n_args = 3 + n, .envs = envs, .n_envs = ARRAY_SIZE(envs),
				    .cwd = "/" };
	bool ok = text;

	must(n <= SHELL_WORDS_MAX);
	*s = (struct shell){ .exit_code = -1 };
	for (size_t i = 0; i < n && ok; i++) {
		args[3 + i] = coded[i] = number_bytes(words[i] ? words[i] : "");
		ok = coded[i];
	}
	root.user = "root";
	if (ok)
		s->stream = envd_start(&root, &start, on_ready, user);
	for (size_t i = 0; i < n; i++)
		free(coded[i]);
	free(text);
	return s->stream ? 0 : -ENOMEM;
}

void shell_fini(struct shell *s)
{
	s->stream = envd_stream_free(s->stream);
}

static void hear(struct shell *s, const struct envd_event *e)
{
	size_t n = MIN(e->n, SHELL_SAID_MAX - s->n_said);

	memcpy(s->said + s->n_said, e->data, n);
	s->n_said += n;
	s->said[s->n_said] = 0;
}

enum shell_result shell_next(struct shell *s, const uint8_t **ret, size_t *ret_n, enum envd_class *ret_cls,
			     struct status *ret_why)
{
	struct envd_event e;

	for (;;)
		switch (envd_stream_next(s->stream, &e)) {
		case ENVD_EVENT_NONE:
			return SHELL_NONE;
		case ENVD_EVENT_DATA:
			if (e.stream == ENVD_STDOUT) {
				*ret = e.data;
				*ret_n = e.n;
				return SHELL_DATA;
			}
			hear(s, &e);
			break;
		case ENVD_EVENT_END:
			s->ended = true;
			s->exit_code = e.exited || e.exit_code >= 0 ? e.exit_code : -1;
			return SHELL_ENDED;
		case ENVD_EVENT_CLOSED:
			*ret_cls = e.cls == ENVD_OK ? ENVD_LOST : e.cls;
			*ret_why = e.failure;
			if (e.cls == ENVD_OK)
				status_set(ret_why, R_TRUNCATED, "the stream ended without saying how the script ended");
			return SHELL_FAILED;
		default:
			break;
		}
}
