/* SPDX-License-Identifier: MIT */
/* prepare of a [warm NAME]: one process as root in the sandbox, until it ends or its time is over. The end of its output is kept. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/envd.h"
#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/redact.h"
#include "daemon/conf/secret.h"
#include "daemon/main/app_warm.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

struct prepare {
	struct envd_stream *stream;
	sandbox_prepared_fn *done;
	void *user;
	uint64_t deadline_ms;
	bool has_ended;
	struct envd_event end;		/* its numbers */
	struct status why;
	char output[SANDBOX_PREPARE_OUTPUT_MAX + 1];
	size_t n_output;
};

static void prepare_free(struct prepare *p)
{
	envd_stream_free(p->stream);
	free(p);
}

/* The newest bytes stay. */
static void keep(struct prepare *p, const uint8_t *data, size_t n)
{
	size_t most = SANDBOX_PREPARE_OUTPUT_MAX, over;

	if (n > most) {
		data += n - most;
		n = most;
	}
	over = p->n_output + n > most ? p->n_output + n - most : 0;
	memmove(p->output, p->output + over, p->n_output - over);
	p->n_output -= over;
	memcpy(p->output + p->n_output, data, n);
	p->n_output += n;
}

/* What was cut at its beginning, or is none, becomes text. */
static void to_text(struct prepare *p)
{
	p->output[p->n_output] = 0;
	for (size_t i = 0; i < p->n_output; i++)
		if (!p->output[i])
			p->output[i] = '?';
	if (str_is_utf8(p->output, p->n_output))
		return;
	for (size_t i = 0; i < p->n_output; i++)
		if (p->output[i] & 0x80)
			p->output[i] = '?';
}

static void finish(struct prepare *p)
{
	bool ok = p->has_ended && p->end.exited && !p->end.exit_code;

	if (p->has_ended && !ok)
		status_set(&p->why, R_SANDBOX_NOT_READY, "it ended with %s", p->end.exited ? "a status that is not 0" : "a signal");
	if (p->has_ended && p->end.exited && !ok)
		status_set(&p->why, R_SANDBOX_NOT_READY, "it ended with exit status %d", p->end.exit_code);
	if (!p->has_ended && status_ok(&p->why))
		status_set(&p->why, R_SANDBOX_NOT_READY, "its end is not known");
	to_text(p);
	redact_text(p->output);
	redact_status(&p->why);
	p->done(p->user, ok, &p->why, p->output);
	prepare_free(p);
}

static void on_ready(struct envd_stream *s, void *user)
{
	struct prepare *p = user;
	struct envd_event e;

	for (;;) {
		switch (envd_stream_next(s, &e)) {
		case ENVD_EVENT_NONE:
			return;
		case ENVD_EVENT_DATA:
			keep(p, e.data, e.n);
			break;
		case ENVD_EVENT_END:
			p->has_ended = true;
			p->end.exited = e.exited;
			p->end.exit_code = e.exit_code;
			break;
		case ENVD_EVENT_CLOSED:
			p->why = e.failure;
			finish(p);
			return;
		default:
			break;
		}
	}
}

static int read_secret(const char *name, const char *file, struct cloud_kvs *ret, struct status *st)
{
	struct secret *s;
	int r = secret_read(file, getenv("CREDENTIALS_DIRECTORY"), &s);

	if (r < 0) {
		status_set(st, R_SANDBOX_NOT_READY, "secret_envs: the file %s of %s %s; mend it, then agentboxctl warm retry", file, name,
			   secret_error(r));
		return r;
	}
	redact_keep(secret_text(s));	/* whatever prepare prints is shown */
	r = cloud_kvs_add(ret, name, secret_text(s));
	secret_free(s);
	return r;
}

/* The values of secret_envs, which the configuration has checked; a file that is not there any more is an error of this prepare. */
static int read_secrets(const char *list, struct cloud_kvs *ret, struct status *st)
{
	char *copy = str_dup(list), *rest = copy, *word;
	int r = copy ? 0 : -ENOMEM;

	while (!r && (word = strsep(&rest, ","))) {
		char *file;

		word += strspn(word, " \t");
		file = strchr(word, '=');
		if (!file)
			continue;
		*file++ = 0;
		file[strcspn(file, " \t")] = 0;
		r = read_secret(word, file, ret, st);
	}
	free(copy);
	return r;
}

static void wipe(struct cloud_kvs *kvs)
{
	for (size_t i = 0; i < kvs->n; i++)
		explicit_bzero(kvs->v[i].value, strlen(kvs->v[i].value));
	cloud_kvs_fini(kvs);
}

static void *start(const struct sandbox_target *t, const struct sandbox_warm_entry *e, uint64_t deadline_ms,
		   sandbox_prepared_fn *done, void *done_user, struct status *st)
{
	struct prepare *p = calloc(1, sizeof(*p));
	const char *const args[] = { "-l", "-c", e->prepare };
	struct envd_target target = { .at = t->at, .user = "root", .deadline_ms = deadline_ms };
	uint64_t now = clock_boot_ms();
	struct envd_start what = { .cmd = "/bin/bash", .args = args, .n_args = ARRAY_SIZE(args),
				   .timeout_ms = (uint32_t)MIN(deadline_ms > now ? deadline_ms - now : 1, (uint64_t)UINT32_MAX) };
	struct cloud_kvs secrets = { 0 };

	status_set(st, R_SANDBOX_NOT_READY, "out of memory");
	if (!p)
		return NULL;
	p->done = done;
	p->user = done_user;
	if (e->secret_envs && read_secrets(e->secret_envs, &secrets, st) < 0) {
		wipe(&secrets);
		free(p);
		return NULL;
	}
	what.envs = secrets.v;
	what.n_envs = secrets.n;
	p->stream = envd_start(&target, &what, on_ready, p);
	wipe(&secrets);
	if (p->stream)
		return p;
	free(p);
	return NULL;
}

static void cancel(void *prepare)
{
	prepare_free(prepare);
}

struct sandbox_preparer app_preparer(void)
{
	return (struct sandbox_preparer){ .start = start, .cancel = cancel };
}
