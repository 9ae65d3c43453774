/* SPDX-License-Identifier: MIT */
/* POST /files/compose: several files become one. The message is read whole, the work is fs's. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/reply.h"
#include "daemon/local/agent/connect.h"
#include "daemon/local/agent/envd.h"
#include "daemon/local/agent/files.h"
#include "daemon/local/engine/fs.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/local.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define COMPOSE_MAGIC	  0xc0435050u
#define COMPOSE_MAX_BYTES (1024u * 1024)	/* of the message; 400 above it */
#define COMPOSE_MAX	  1000u			/* sources; 400 above it */

struct compose {
	uint32_t magic;
	struct local *l;
	struct sandbox *s;
	struct http_stream *x;
	struct buf body;
	struct container_user user;
	char *destination;
	char **sources;
	size_t n_sources;
	struct fs_op *op;
	struct traffic traffic;
	struct grave grave;
};

static struct compose *compose_from(void *p)
{
	struct compose *o = p;

	must(o && o->magic == COMPOSE_MAGIC);
	return o;
}

static void compose_free(void *p)
{
	struct compose *o = compose_from(p);

	o->magic = 0;
	buf_fini(&o->body);
	for (size_t i = 0; i < o->n_sources; i++)
		free(o->sources[i]);
	free(o->sources);
	free(o->destination);
	free(o);
}

/* Returns the exchange, which is the caller's. */
static struct http_stream *compose_leave(struct compose *o)
{
	if (o->op)
		fs_cancel(give(o->op));
	list_del(&o->traffic.node);
	loop_bury(o->l->loop, &o->grave, compose_free, o);
	return give(o->x);
}

static void files_compose_on_cut(struct traffic *t)
{
	struct compose *o = container_of(t, struct compose, traffic);
	char id[ROUTE_ID_MAX + 1];

	str_copy(id, sizeof(id), o->s->id);
	edge_reply_not_found(compose_leave(o), id);
}

static void on_composed(void *user, int r, const struct fs_entry *e)
{
	struct compose *o = compose_from(user);
	json_auto_t *answer = NULL;
	char *text;

	o->op = NULL;
	if (r < 0) {
		char path[512];

		str_copy(path, sizeof(path), o->destination);
		files_fail(compose_leave(o), r, path);
		return;
	}
	journal_add(o->l->journal, "compose",
		    json_pack("{s:s, s:s}", "sandbox", o->s->id, "path", o->destination));
	answer = json_pack("{s:s, s:s, s:s}", "path", o->destination, "name", e->name, "type",
			   "file");
	text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
	if (text)
		reply_send(compose_leave(o), 200, REPLY_JSON, NULL, text, strlen(text));
	else
		reply_abort(compose_leave(o));
	free(text);
}

/* --- the message --- */

/* One path of the message, resolved; NULL with the reason in *ret_why. */
static char *path_of(struct compose *o, const json_t *v, const char **ret_why)
{
	const char *text = json_string_value(v);
	char *path = text && *text ? envd_path_of_text(o->s, &o->user, text) : NULL;

	if (!path)
		*ret_why = "a path is missing or cannot be expanded";
	return path;
}

/* NULL, or why it is refused. */
static const char *take_paths(struct compose *o, const json_t *m)
{
	const json_t *list = json_object_get(m, "source_paths");
	const char *why = NULL;
	size_t n = json_array_size(list);

	if (!n)
		return "source_paths must name at least one file";
	if (n > COMPOSE_MAX)
		return "too many source_paths";
	o->destination = path_of(o, json_object_get(m, "destination"), &why);
	o->sources = calloc(n, sizeof(*o->sources));
	if (!o->destination || !o->sources)
		return why ? why : "out of memory";
	for (; o->n_sources < n; o->n_sources++) {
		char *path = path_of(o, json_array_get(list, o->n_sources), &why);

		if (!path)
			return why;
		o->sources[o->n_sources] = path;
		if (str_eq(path, o->destination)) {
			o->n_sources++;
			return "a source cannot be the destination";
		}
	}
	return NULL;
}

static void compose_run(struct compose *o)
{
	json_auto_t *m = json_loadb((const char *)buf_data(&o->body), buf_len(&o->body), 0, NULL);
	const json_t *user = json_object_get(m, "username");
	const char *name = user ? json_string_value(user) : envd_default_user(o->s);
	const char *why;
	int r;

	if (!json_is_object(m)) {
		reply_envd_error(compose_leave(o), 400, "the body is not a JSON object");
		return;
	}
	if (!name || container_user_lookup(o->s->container, *name ? name : envd_default_user(o->s),
					   &o->user) < 0) {
		reply_envd_error(compose_leave(o), 401, "error looking up user '%.64s'",
				 name ? name : "");
		return;
	}
	why = take_paths(o, m);
	if (why) {
		reply_envd_error(compose_leave(o), 400, "%s", why);
		return;
	}
	r = fs_compose(o->s->container, (const char *const *)o->sources, o->n_sources,
		       o->destination, &o->user, on_composed, o, &o->op);
	if (r < 0) {
		char path[512];

		o->op = NULL;
		str_copy(path, sizeof(path), o->destination);
		files_fail(compose_leave(o), r, path);
	}
}

static void files_compose_on_ready(struct http_stream *x, void *user)
{
	struct compose *o = compose_from(user);

	if (http_stream_closed(x, NULL) != HTTP_OPEN) {
		http_stream_release(compose_leave(o));
		return;
	}
	if (o->op)
		return;
	if (http_stream_take(x, &o->body) < 0) {
		reply_envd_error(compose_leave(o), 400, "the body is too large");
		return;
	}
	if (http_stream_at_end(x))
		compose_run(o);
}

void files_compose(struct local *l, struct sandbox *s, struct http_stream *x, const struct query *q)
{
	struct compose *o = calloc(1, sizeof(*o));

	(void)q;
	if (!o) {
		reply_abort(x);
		return;
	}
	*o = (struct compose){ .magic = COMPOSE_MAGIC, .l = l, .s = s, .x = x };
	buf_init(&o->body, COMPOSE_MAX_BYTES);
	sandbox_traffic_add(s, &o->traffic, files_compose_on_cut);
	http_stream_set_owner(x, files_compose_on_ready, o);
	files_compose_on_ready(x, o);
}
