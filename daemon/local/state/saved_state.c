/* SPDX-License-Identifier: MIT */
#include "daemon/local/state/saved_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/state/state.h"
#include "daemon/local/state/teams.h"
#include "proto/base/fd.h"
#include "proto/base/map.h"
#include "proto/base/str.h"
#include "proto/cloud/json.h"

#define SAVED_STATE_FILE	"kept.json"
#define SAVED_STATE_MAX_BYTES (64u * 1024 * 1024)

/* --- writing --- */

static json_t *metadata_json(const struct cloud_kvs *l)
{
	json_t *o = json_object();

	for (size_t i = 0; o && i < l->n; i++)
		if (json_object_set_new(o, l->v[i].key, json_string(l->v[i].value)) < 0) {
			json_decref(o);
			return NULL;
		}
	return o;
}

/* With the proxy's password: the file is ours alone. */
static json_t *network_json(const struct cloud_network *n)
{
	json_t *o = NULL;
	char *text;
	int r;

	if (!n)
		return json_null();
	text = cloud_json_text(CLOUD_DOC_NETWORK, n, flavour_get(FLAVOUR_AGENTBOX),
			       CLOUD_EGRESS | CLOUD_INGRESS | CLOUD_PASSWORD, &r);
	if (text) {
		o = json_loads(text, 0, NULL);
		explicit_bzero(text, strlen(text));
	}
	free(text);
	return o;
}

static json_t *sandbox_json(const struct sandbox *s)
{
	const struct sandbox_policy *p = &s->policy;

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:b, s:b, s:b, s:b, "
			 "s:b, s:o, s:o}",
			 "id", s->id, "team", s->team, "template", s->template->id, "root", s->root,
			 "layer", s->layer, "started_us", (json_int_t)s->started_us, "end_us",
			 (json_int_t)s->end_us, "timeout_s", (json_int_t)s->timeout_s, "secure",
			 p->secure, "has_internet", p->has_internet, "internet", p->internet,
			 "auto_pause", p->auto_pause, "auto_pause_memory", p->auto_pause_memory,
			 "auto_resume", p->auto_resume, "private", p->is_private, "blocked", p->is_blocked, "metadata",
			 metadata_json(&s->metadata), "network", network_json(s->network));
}

static json_t *sandboxes_json(const struct state *st)
{
	json_t *all = json_array();
	size_t pos = 0;
	struct sandbox *s;

	while (all && (s = state_next(st, &pos)))
		if (s->state == SANDBOX_PAUSED && !s->container &&
		    json_array_append_new(all, sandbox_json(s)) < 0) {
			json_decref(all);
			return NULL;
		}
	return all;
}

/* Whole or not at all. No sync: after a power loss it may be the one before. */
static int replace(const char *dir, const char *text)
{
	scoped(fd_closep) int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scoped(fd_closep) int fd = -1;
	int r;

	if (at < 0)
		return -errno;
	fd = openat(at, SAVED_STATE_FILE ".new",
		    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, text, strlen(text));
	return r < 0 ? r : renameat(at, SAVED_STATE_FILE ".new", at, SAVED_STATE_FILE) < 0 ? -errno : 0;
}

void saved_state_write(struct state *st)
{
	json_t *strangers = state_strangers(st);
	json_auto_t *o = json_pack("{s:i, s:o, s:o, s:O}", "version", 1, "paused", sandboxes_json(st),
				   "snapshots", templates_save(state_templates(st)), "strangers",
				   strangers);
	char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
	int r = text ? replace(state_opts(st)->dir, text) : -ENOMEM;

	free(text);
	if (r < 0)
		log_error("kept_not_noted", "error=%d action=\"lost at the next restart\"", -r);
}

/* --- reading --- */

static int read_metadata(json_t *o, struct cloud_kvs *ret)
{
	const char *key;
	json_t *value;
	int r = json_is_object(o) ? 0 : -EINVAL;

	json_object_foreach(o, key, value)
		if (r == 0)
			r = json_is_string(value) ? cloud_kvs_add(ret, key, json_string_value(value)) : -EINVAL;
	return r;
}

static int read_network(const json_t *o, struct cloud_network **ret)
{
	char *text = o && !json_is_null(o) ? json_dumps(o, JSON_COMPACT) : NULL;
	int r = text ? cloud_network_parse(text, ret) : 0;

	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
	return r == -EBADMSG ? -EINVAL : r;
}

static int restore_with(struct state *st, const json_t *o, struct sandbox_params *params);

static int restore(struct state *st, const json_t *o, const char *team)
{
	scoped(cloud_network_freep) struct cloud_network *network = NULL;
	struct sandbox_params p = { .team = team };
	int r = read_metadata(json_object_get(o, "metadata"), &p.metadata);

	if (r == 0)
		r = read_network(json_object_get(o, "network"), &network);
	p.network = network;
	if (r == 0)
		r = restore_with(st, o, &p);
	cloud_kvs_fini(&p.metadata);
	return r;
}

static int restore_with(struct state *st, const json_t *o, struct sandbox_params *params)
{
	const char *id, *template, *root, *layer, *team = params->team;
	struct sandbox_params p = *params;
	json_int_t started_us, end_us, timeout_s;
	int secure, has_internet, internet, pause, memory, resume, private, r;
	int blocked = -1;
	struct template_ref ref = { "" };
	struct template_build *b;
	struct sandbox *s;

	if (json_unpack((json_t *)o,
			"{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s?b}",
			"id", &id, "template", &template, "root", &root, "layer", &layer, "started_us",
			&started_us, "end_us", &end_us, "timeout_s", &timeout_s, "secure", &secure,
			"has_internet", &has_internet, "internet", &internet, "auto_pause", &pause,
			"auto_pause_memory", &memory, "auto_resume", &resume, "private", &private,
			"blocked", &blocked) < 0 ||
	    !str_copy(ref.name, sizeof(ref.name), template))
		return -EINVAL;
	/* Killed while it was being resumed. */
	if (!engine_has_layer(state_opts(st)->engine, layer) || state_find(st, id))
		return 0;
	if (!engine_has_template(state_opts(st)->engine, root) ||
	    templates_find(state_templates(st), team, &ref, &p.template, &b) != TEMPLATE_FOUND)
		return -ENOENT;
	p.root = root;
	p.layer = layer;
	p.timeout_s = (uint32_t)timeout_s;
	p.policy = (struct sandbox_policy){
		secure, has_internet, internet, pause,
		memory, resume,	      private,	blocked < 0 ? has_internet && !internet : blocked};
	r = sandbox_restore(st, id, &p, &s);
	if (r < 0)
		return r;
	s->started_us = started_us;
	s->end_us = end_us;
	return 0;
}

typedef int one_fn(struct state *st, const json_t *o, const char *team);

static int load_template(struct state *st, const json_t *o, const char *team)
{
	return templates_load(state_templates(st), o, team);
}

/* What cannot be placed now may be later: its team's key or its template is not there. */
static int each(struct state *st, const struct teams *a, const json_t *list, const char *kind,
		one_fn *fn)
{
	json_t *o;
	size_t i;

	json_array_foreach(list, i, o) {
		const char *name = json_string_value(json_object_get(o, "team"));
		const char *team = name ? teams_named(a, name) : NULL;
		int r = !name ? -EINVAL : team ? fn(st, o, team) : -ENOENT;

		if (r == -ENOENT) {
			(void)json_object_set_new(o, "kind", json_string(kind));
			r = json_array_append(state_strangers(st), o) < 0 ? -ENOMEM : 0;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static json_t *strangers_of(const json_t *file, const char *kind)
{
	json_t *out = json_array(), *o;
	size_t i;

	json_array_foreach(json_object_get(file, "strangers"), i, o) {
		const char *k = json_string_value(json_object_get(o, "kind"));

		if (k && str_eq(k, kind))
			(void)json_array_append(out, o);
	}
	return out;
}

/* Snapshots first: sandboxes were made from them. */
static int load(struct state *st, const struct teams *a, const json_t *file)
{
	json_auto_t *more_snapshots = strangers_of(file, "snapshot");
	json_auto_t *more_sandboxes = strangers_of(file, "sandbox");
	int r = each(st, a, json_object_get(file, "snapshots"), "snapshot", load_template);

	if (r == 0)
		r = each(st, a, more_snapshots, "snapshot", load_template);
	if (r == 0)
		r = each(st, a, json_object_get(file, "paused"), "sandbox", restore);
	return r < 0 ? r : each(st, a, more_sandboxes, "sandbox", restore);
}

int saved_state_load(struct state *st, const struct teams *a)
{
	scoped(fd_closep) int at = open(state_opts(st)->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	json_auto_t *file = NULL;
	json_error_t e;
	char *text;
	size_t n;
	int r = at < 0 ? -errno : fd_read_file(at, SAVED_STATE_FILE, SAVED_STATE_MAX_BYTES, &text, &n);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	file = json_loadb(text, n, 0, &e);
	free(text);
	return json_is_object(file) ? load(st, a, file) : -EINVAL;
}

/* --- sweeping --- */

struct sweep {
	struct state *st;
	struct map needed;
	bool failed;
};

static void need(struct sweep *w, const char *layer)
{
	if (layer && map_put_str(&w->needed, layer, w) < 0)
		w->failed = true;
}

static void need_strangers(struct sweep *w)
{
	json_t *o, *b;
	size_t i, k;

	json_array_foreach(state_strangers(w->st), i, o) {
		need(w, json_string_value(json_object_get(o, "layer")));
		json_array_foreach(json_object_get(o, "builds"), k, b)
			need(w, json_string_value(json_object_get(b, "layer")));
	}
}

static void on_layer(void *user, const char *layer)
{
	struct sweep *w = user;

	if (!w->failed && !map_get_str(&w->needed, layer))
		state_drop_layer(w->st, layer);
}

void saved_state_sweep(struct state *st)
{
	struct sweep w = { .st = st };
	struct template *t = NULL;
	size_t pos = 0;
	struct sandbox *s;

	while ((s = state_next(st, &pos)))
		need(&w, s->layer[0] ? s->layer : NULL);
	while ((t = templates_next(state_templates(st), t)))
		list_for_each(n, &t->builds)
			need(&w, list_entry(n, struct template_build, node)->layer);
	need_strangers(&w);
	engine_each_layer(state_opts(st)->engine, on_layer, &w);
	map_fini(&w.needed);
}
