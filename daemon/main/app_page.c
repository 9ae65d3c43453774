/* SPDX-License-Identifier: MIT */
/*
 * What the status page shows, as HTML: of all that its viewer may see, or of one sandbox. Made of what is known here; the cloud is not asked.
 * Moments are shown, no spans until now, so that what has not changed reads the same. Every text of others goes through html_str().
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/grant.h"
#include "daemon/common/http/html.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/page_text.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define VIEW_SANDBOXES 100u	/* of a page */
#define VIEW_EVENTS    25u
#define VIEW_LEASES    50u
#define VIEW_COMMANDS  20u
#define VIEW_OUTPUT    2000u	/* bytes of each stream, from its end */
#define VIEW_BYTES     (1024u * 1024)
#define VIEW_MS	       5000u	/* then it has failed */
#define AS_KNOWN       ((uint64_t)INT64_MAX)	/* as old as it may be */

struct app_view {
	struct app *a;
	struct principal who;
	char *sandbox, *page_token;
	char *account;			/* of the sandbox */
	gateway_view_fn *done;
	void *user;
	struct sandbox_op *op;
	struct html html;
};

static void view_free(struct app_view *v)
{
	sandbox_cancel(v->op);
	buf_fini(&v->html.b);
	free(v->sandbox);
	free(v->account);
	free(v->page_token);
	free(v);
}

void app_page_cancel(void *user, void *view)
{
	view_free(view);
}

static void view_end(struct app_view *v, const struct status *st)
{
	struct status failure;

	if (status_ok(st) && v->html.failed) {
		status_errno(&failure, -ENOMEM, "making the page");
		st = &failure;
	}
	v->done(v->user, st, (const char *)buf_data(&v->html.b), status_ok(st) ? buf_len(&v->html.b) : 0);
	view_free(v);
}

static struct sandbox_call call_of(struct app_view *v, const char *sandbox)
{
	return (struct sandbox_call){ .who = &v->who, .sandbox = sandbox, .deadline_ms = loop_now_ms(v->a->loop) + VIEW_MS, .user = v };
}

static bool sees_all(const struct app_view *v)
{
	return grant_all_owners(&v->who) == GRANT_OK;
}

/* A page is made once: that there will be more is no news. */
static void on_event_news(void *user)
{
}

static void on_output_news(struct command_reader *r, void *user)
{
}

/* --- of all --- */

static void put_events(struct app_view *v)
{
	struct sandbox_watch_options o = { .who = &v->who, .all_owners = sees_all(v), .back = VIEW_EVENTS };
	struct html rows[VIEW_EVENTS] = { 0 };
	struct sandbox_watch *w;
	struct sandbox_event e;
	struct status st = STATUS_OK;
	size_t n = 0;

	page_text_events_begin(&v->html);
	if (sandbox_watch_new(v->a->core, &o, on_event_news, NULL, &w, &st) < 0) {
		v->html.failed = true;
		return;
	}
	while (n < VIEW_EVENTS && sandbox_watch_next(w, &e))
		page_text_event(&rows[n++], &v->who, &e);
	sandbox_watch_free(w);
	while (n)	/* the newest first */
		html_move(&v->html, &rows[--n]);
	page_text_table_end(&v->html);
}

static void page_on_list(void *user, const struct status *st, const struct sandbox_page *page)
{
	struct app_view *v = user;
	struct daemon_facts facts;

	v->op = NULL;
	if (status_ok(st)) {
		v->a->svc_daemon.look(v->a->svc_daemon.user, &v->who, &facts);
		page_text_facts(&v->html, &v->who, &facts);
		page_text_sandboxes(&v->html, &v->who, page, v->page_token);
		put_events(v);
		page_text_clouds(&v->html, &facts);
	}
	view_end(v, st);
}

static int view_all(struct app_view *v)
{
	struct sandbox_list q = { .page_size = VIEW_SANDBOXES, .page_token = v->page_token, .cached = true, .all_owners = sees_all(v) };
	struct sandbox_call call = call_of(v, NULL);

	return sandbox_list(v->a->core, &call, &q, page_on_list, &v->op);
}

/* --- of one sandbox --- */

static void put_output(struct app_view *v, const struct command_view *c)
{
	struct command *command = commands_find(v->a->commands, &v->who, c->id);
	struct command_read_from from = { 0 };
	struct command_reader *r;
	struct spool_piece piece;
	char text[4096];

	if (!command)
		return;
	for (unsigned i = 0; i < SPOOL_STREAMS; i++)
		from.offset[i] = c->end[i] - MIN(c->end[i], (uint64_t)VIEW_OUTPUT);
	if (command_reader_new(command, &from, on_output_news, NULL, &r) < 0) {
		v->html.failed = true;
		return;
	}
	html_put(&v->html, "<pre>");
	while (command_reader_next(r, false, text, sizeof(text), &piece) == COMMAND_READ_PIECE)
		if (!piece.gap)
			html_text(&v->html, piece.data, piece.size);
	html_put(&v->html, "</pre>");
	command_reader_free(r, false);
}

static void put_commands(struct app_view *v, const char *account)
{
	struct command_view *c = NULL;
	size_t n = 0;

	if (commands_known(v->a->commands, &v->who, account, v->sandbox, &c, &n) < 0)
		v->html.failed = true;
	for (size_t i = 0; i < MIN(n, (size_t)VIEW_COMMANDS); i++) {
		page_text_command(&v->html, &c[i]);
		put_output(v, &c[i]);
	}
	if (n > VIEW_COMMANDS)
		page_text_more(&v->html, n - VIEW_COMMANDS, "older commands");
	free(c);
}

static void view_fail(struct app_view *v, int r)
{
	struct status st;

	status_errno(&st, r, "making the page");
	view_end(v, &st);
}

static void page_on_leases(void *user, const struct status *st, const struct sandbox_lease_page *page)
{
	const struct status fine = STATUS_OK;
	struct app_view *v = user;

	v->op = NULL;
	if (status_ok(st))
		page_text_leases(&v->html, page->leases, page->n);
	else
		page_text_failure(&v->html, "Leases", st);
	put_commands(v, v->account);
	view_end(v, &fine);
}

static void page_on_sandbox(void *user, const struct status *st, const struct sandbox_view *s)
{
	struct app_view *v = user;
	struct sandbox_call call = call_of(v, v->sandbox);
	int r = -ENOMEM;

	v->op = NULL;
	if (!status_ok(st)) {
		view_end(v, st);
		return;
	}
	page_text_sandbox(&v->html, s);
	v->account = strdup(s->account);
	if (v->account)
		r = sandbox_list_leases(v->a->core, &call, VIEW_LEASES, NULL, page_on_leases, &v->op);
	if (r < 0)
		view_fail(v, r);
}

static int view_one(struct app_view *v)
{
	struct sandbox_call call = call_of(v, v->sandbox);

	return sandbox_get(v->a->core, &call, AS_KNOWN, page_on_sandbox, &v->op);
}

void *app_page_view(void *user, const struct gateway_view_ask *ask, gateway_view_fn *done, void *done_user)
{
	struct app_view *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	*v = (struct app_view){ .a = user, .who = *ask->who, .sandbox = strdup(ask->sandbox), .page_token = strdup(ask->page_token),
				.done = done, .user = done_user };
	buf_init(&v->html.b, VIEW_BYTES);
	buf_set_quota(&v->html.b, ask->quota);
	if (v->sandbox && v->page_token && (*v->sandbox ? view_one(v) : view_all(v)) == 0)
		return v;
	v->op = NULL;
	view_free(v);
	return NULL;
}
