/* SPDX-License-Identifier: MIT */
/*
 * Names of users and groups in the configuration. They are looked up once, at the start and by a reload's worker, since a system's tables
 * may be far away.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"
#include "proto/base/str.h"

struct names {
	struct conf *c;
	size_t n_away;		/* problems that are the tables' */
};

/* -ENOENT: there is none; else what is wrong was added. */
static int look(struct names *x, enum conf_id kind, const char *name, const char *at)
{
	uint32_t id;
	int r = 0;

	if (conf_id(x->c, kind, name, &id))
		return 0;
	r = kind == CONF_ID_USER ? users_look_name(name, &id) : users_look_group(name, &id);
	if (!r)
		r = conf_note_id(x->c, kind, name, id);
	if (r == 0 || r == -ENOENT)
		return r;
	conf_problem(x->c, "%s: %s \"%s\" cannot be looked up: %s", at, kind == CONF_ID_USER ? "user" : "group", name,
		     strerrordesc_np(-r));
	x->n_away++;
	return r;
}

static void need(struct names *x, enum conf_id kind, const char *name, const char *at)
{
	if (look(x, kind, name, at) == -ENOENT)
		conf_problem(x->c, "%s: there is no %s \"%s\" on this machine", at, kind == CONF_ID_USER ? "user" : "group", name);
}

static void need_group(struct names *x, const char *key)
{
	const char *name = conf_get(x->c, "daemon", NULL, key);
	char at[512];

	if (!str_is_empty(name))
		need(x, CONF_ID_GROUP, name, conf_place(x->c, "daemon", NULL, key, at));
}

/* [uid alice] and [uid 1000] are one user's. */
static void check_twice(struct names *x, size_t i)
{
	const char *name = conf_instance(x->c, "uid", i), *other;
	uint32_t id, id2;

	if (!conf_id(x->c, CONF_ID_USER, name, &id))
		return;
	for (size_t k = 0; k < i && (other = conf_instance(x->c, "uid", k)); k++)
		if (conf_id(x->c, CONF_ID_USER, other, &id2) && id == id2)
			conf_problem(x->c, "[uid %s] and [uid %s] are the same user: write one section", other, name);
}

static void check_sections(struct names *x)
{
	const char *name;
	char at[128];

	for (size_t i = 0; (name = conf_instance(x->c, "uid", i)); i++) {
		snprintf(at, sizeof(at), "[uid %s]", name);
		if (str_eq(name, "*"))
			continue;
		need(x, CONF_ID_USER, name, at);
		check_twice(x, i);
	}
	for (size_t i = 0; (name = conf_instance(x->c, "policy", i)); i++) {
		snprintf(at, sizeof(at), "[policy %s]", name);
		if (str_starts(name, "uid:"))
			need(x, CONF_ID_USER, name + strlen("uid:"), at);
	}
}

static void check_item(struct names *x, const struct access_item *i, const char *at)
{
	if (i->kind == ACCESS_GROUP && i->name[0])
		need(x, CONF_ID_GROUP, i->name, at);
	/* A service with DynamicUser= has its user while it runs, and not before. */
	if (i->kind == ACCESS_USER && look(x, CONF_ID_USER, i->name, at) == -ENOENT)
		log_warn("access_unknown", "user=%s rule=%s action=\"it counts when somebody of this name connects\"", log_q(i->name),
			 log_q(at));
}

static void check_list(struct names *x, const char *key)
{
	const char *text = conf_get(x->c, "access", NULL, key);
	char at[512], why[ACCESS_WHY_BYTES];
	struct access_list l;
	int r;

	if (!conf_is_set(x->c, "access", NULL, key))
		return;
	conf_place(x->c, "access", NULL, key, at);
	r = access_parse(text, &l, why);
	if (r < 0)
		conf_problem(x->c, "%s: %s", at, r == -ENOMEM ? "out of memory" : why);
	for (size_t i = 0; i < l.n; i++)
		check_item(x, &l.v[i], at);
	access_list_fini(&l);
}

size_t app_check_names(struct conf *c)
{
	struct names x = { .c = c };

	need_group(&x, "socket_group");
	need_group(&x, "admin_group");
	check_sections(&x);
	for (int k = 0; k < ACCESS_KEYS; k++)
		check_list(&x, access_key_name((enum access_key)k));
	return x.n_away;
}
