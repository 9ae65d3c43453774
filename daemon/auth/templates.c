/* SPDX-License-Identifier: MIT */
#include "daemon/auth/templates.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/clock.h"
#include "proto/base/list.h"
#include "proto/base/map.h"
#include "proto/base/str.h"

struct template_owner {
	struct list node;		/* in struct templates, the oldest first */
	char *account, *id;
	uid_t uid;
};

struct template_note {
	struct list node;		/* in struct templates */
	template_noted_fn *done;	/* NULL: it was cancelled */
	void *user;
};

struct templates {
	struct store *store;
	struct list list, notes;
	struct map by_id;		/* "account/id" → struct template_owner */
	bool failed;			/* while rows are read */
};

static void *template_get(const struct templates *all, const char *account, const char *id)
{
	char *key = str_printf("%s/%s", account, id);
	void *x = key ? map_get_str(&all->by_id, key) : NULL;

	free(key);
	return x;
}

static void template_drop(struct templates *all, struct template_owner *x)
{
	char *key = str_printf("%s/%s", x->account, x->id);

	if (key)
		map_del_str(&all->by_id, key);
	free(key);
	list_del(&x->node);
	free(x->account);
	free(x->id);
	free(x);
}

static struct template_owner *template_add(struct templates *all, const char *account, const char *id, uid_t uid)
{
	struct template_owner *x = calloc(1, sizeof(*x));
	char *key = str_printf("%s/%s", account, id);

	if (x) {
		*x = (struct template_owner){ .account = strdup(account), .id = strdup(id), .uid = uid };
		list_init(&x->node);
	}
	if (x && x->account && x->id && key && map_put_str(&all->by_id, key, x) == 0) {
		list_add_tail(&all->list, &x->node);
		free(key);
		return x;
	}
	free(key);
	if (x) {
		free(x->account);
		free(x->id);
	}
	free(x);
	return NULL;
}

static void template_on_row(const struct row_template *r, void *user)
{
	struct templates *all = user;

	if (!template_add(all, r->account, r->id, r->uid))
		all->failed = true;
}

int templates_new(struct store *store, struct templates **ret)
{
	struct templates *all = calloc(1, sizeof(*all));
	struct store_visitor v = { .user = all, .template = template_on_row };
	int r;

	if (!all)
		return -ENOMEM;
	all->store = store;
	list_init(&all->list);
	list_init(&all->notes);
	r = store_load(store, &v);
	if (!r && all->failed)
		r = -ENOMEM;
	if (r < 0) {
		templates_free(all);
		return r;
	}
	*ret = all;
	return 0;
}

struct templates *templates_free(struct templates *all)
{
	if (!all)
		return NULL;
	list_for_each_safe(n, &all->list)
		template_drop(all, list_entry(n, struct template_owner, node));
	list_for_each_safe(n, &all->notes) {
		list_del(n);
		free(list_entry(n, struct template_note, node));
	}
	map_fini(&all->by_id);
	free(all);
	return NULL;
}

bool templates_owner(const struct templates *all, const char *account, const char *id, uid_t *ret)
{
	const struct template_owner *x = template_get(all, account, id);

	if (x)
		*ret = x->uid;
	return x;
}

/* --- changes --- */

static void on_noted(void *user, const struct status *st)
{
	struct template_note *n = user;

	list_del(&n->node);
	if (n->done)
		n->done(n->user, st);
	free(n);
}

void template_note_cancel(struct template_note *n)
{
	if (n)
		n->done = NULL;
}

/* The oldest one of a uid that has too many goes with the new one. */
static void make_room_for(struct templates *all, uid_t uid, struct store_tx *t)
{
	struct template_owner *oldest = NULL;
	size_t n = 0;

	list_for_each(i, &all->list) {
		struct template_owner *x = list_entry(i, struct template_owner, node);

		if (x->uid != uid)
			continue;
		n++;
		oldest = oldest ? oldest : x;
	}
	if (n < TEMPLATES_PER_UID)
		return;
	store_tx_del_template(t, oldest->account, oldest->id);
	template_drop(all, oldest);
}

struct template_note *templates_note(struct templates *all, const char *account, const char *id, uid_t uid, template_noted_fn *done,
				     void *user)
{
	const struct row_template row = { .account = account, .id = id, .uid = uid, .made_at_ms = clock_wall_ms() };
	struct template_note *n = NULL;
	struct store_tx *t;

	if (template_get(all, account, id) || store_tx_new(all->store, &t) < 0)
		return NULL;
	n = calloc(1, sizeof(*n));
	if (n)
		make_room_for(all, uid, t);
	if (!n || !template_add(all, account, id, uid)) {
		store_tx_drop(t);
		free(n);
		return NULL;
	}
	*n = (struct template_note){ .done = done, .user = user };
	list_add_tail(&all->notes, &n->node);
	store_tx_put_template(t, &row);
	store_tx_commit(t, true, on_noted, n);
	return n;
}

void templates_forget(struct templates *all, const char *account, const char *id)
{
	struct template_owner *x = template_get(all, account, id);
	struct store_tx *t;

	if (!x)
		return;
	if (store_tx_new(all->store, &t) == 0) {
		store_tx_del_template(t, account, id);
		store_tx_commit(t, false, NULL, NULL);
	}
	template_drop(all, x);
}
