/* SPDX-License-Identifier: MIT */
#include "daemon/auth/owners.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/owner.h"
#include "daemon/auth/principal.h"
#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/list.h"
#include "proto/base/str.h"

struct owner_name {
	struct list node;		/* in struct owners, the one that connected last at the end */
	uid_t number, uid;
	enum row_owner_state state;
	char name[PRINCIPAL_USER_BYTES];
};

struct owners {
	struct owners_options o;
	struct list list;
	size_t n;
	bool failed;			/* while rows are read */
};

/* --- rows --- */

static struct owner_name *owner_add(struct owners *all, uid_t number, uid_t uid, const char *name)
{
	struct owner_name *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->number = number;
	x->uid = uid;
	x->state = ROW_OWNER_PRESENT;
	(void)str_copy(x->name, sizeof(x->name), name);
	list_add_tail(&all->list, &x->node);
	all->n++;
	return x;
}

static void owner_drop(struct owners *all, struct owner_name *x)
{
	list_del(&x->node);
	all->n--;
	free(x);
}

static void owner_on_row(const struct row_owner *r, void *user)
{
	struct owners *all = user;
	struct owner_name *x = owner_add(all, r->number, r->uid, r->name);

	if (x)
		x->state = r->state;
	else
		all->failed = true;
}

/* Not waited for: what the owner makes is committed behind it, and a row that is missing costs no more than its release. */
static void owner_save(struct owners *all, const struct owner_name *x)
{
	const struct row_owner row = { .number = x->number, .uid = x->uid, .name = x->name, .state = x->state };
	struct store_tx *t;

	if (store_tx_new(all->o.store, &t) < 0) {
		log_warn("owner_unsaved", "uid=%u user=%s error=\"out of memory\"", x->uid, log_q(x->name));
		return;
	}
	store_tx_put_owner(t, &row);
	store_tx_commit(t, false, NULL, NULL);
}

static void owner_forget(struct owners *all, struct owner_name *x)
{
	struct store_tx *t;

	if (store_tx_new(all->o.store, &t) == 0) {
		store_tx_del_owner(t, x->number);
		store_tx_commit(t, false, NULL, NULL);
	}
	owner_drop(all, x);
}

int owners_new(const struct owners_options *o, struct owners **ret)
{
	struct owners *all = calloc(1, sizeof(*all));
	struct store_visitor v = { .user = all, .owner = owner_on_row };
	int r;

	if (!all)
		return -ENOMEM;
	all->o = *o;
	list_init(&all->list);
	r = store_load(o->store, &v);
	if (!r && all->failed)
		r = -ENOMEM;
	if (r < 0) {
		owners_free(all);
		return r;
	}
	*ret = all;
	return 0;
}

struct owners *owners_free(struct owners *all)
{
	if (!all)
		return NULL;
	while (!list_is_empty(&all->list))
		owner_drop(all, list_entry(all->list.next, struct owner_name, node));
	free(all);
	return NULL;
}

/* --- who it is --- */

static struct owner_name *owner_of_number(const struct owners *all, uid_t number)
{
	list_for_each(n, &all->list)
		if (list_entry(n, struct owner_name, node)->number == number)
			return list_entry(n, struct owner_name, node);
	return NULL;
}

/* One of that name, or one that waits for the first name. */
static struct owner_name *owner_find(const struct owners *all, uid_t uid, const char *name)
{
	struct owner_name *open = NULL;

	list_for_each(n, &all->list) {
		struct owner_name *x = list_entry(n, struct owner_name, node);

		if (x->uid != uid)
			continue;
		if (x->state == ROW_OWNER_UNNAMED)
			open = x;
		else if (str_eq(x->name, name))
			return x;
	}
	return open;
}

/* The longest ago of those whose number is made of its name again. */
static void owners_make_room(struct owners *all)
{
	if (all->n < OWNERS_MAX)
		return;
	list_for_each(n, &all->list) {
		struct owner_name *x = list_entry(n, struct owner_name, node);

		if (x->state == ROW_OWNER_FORMER && x->number == owner_make(x->uid, x->name, 0)) {
			owner_forget(all, x);
			return;
		}
	}
}

static struct owner_name *owner_new(struct owners *all, uid_t uid, const char *name)
{
	uint32_t turn = 0;

	owners_make_room(all);
	while (owner_of_number(all, owner_make(uid, name, turn)))
		turn++;
	return owner_add(all, owner_make(uid, name, turn), uid, name);
}

static void release_others(struct owners *all, const struct owner_name *now)
{
	list_for_each_safe(n, &all->list) {
		struct owner_name *x = list_entry(n, struct owner_name, node);

		if (x == now || x->uid != now->uid || x->state != ROW_OWNER_PRESENT)
			continue;
		x->state = ROW_OWNER_FORMER;
		owner_save(all, x);
		log_info("owner_over", "uid=%u user=%s now=%s", x->uid, log_q(x->name), log_q(now->name));
		all->o.over(all->o.user, x->number);
	}
}

/* As if it had connected for the first time. */
static void owner_present(struct owners *all, struct owner_name *x, const char *name)
{
	list_del(&x->node);
	list_add_tail(&all->list, &x->node);
	if (x->state == ROW_OWNER_PRESENT)
		return;
	x->state = ROW_OWNER_PRESENT;
	(void)str_copy(x->name, sizeof(x->name), name);
	owner_save(all, x);
}

int owners_take(struct owners *all, uid_t uid, const char *name, uid_t *ret)
{
	struct owner_name *x;

	*ret = uid;
	if (!access_is_dynamic(uid))
		return 0;
	x = owner_find(all, uid, name);
	if (x) {
		owner_present(all, x, name);
	} else {
		x = owner_new(all, uid, name);
		if (!x)
			return -ENOMEM;
		owner_save(all, x);
	}
	*ret = x->number;
	release_others(all, x);
	return 0;
}

const char *owners_name(const struct owners *all, uid_t owner)
{
	const struct owner_name *x = access_is_dynamic(owner_uid(owner)) ? owner_of_number(all, owner) : NULL;

	if (x)
		return x->name;
	return access_is_dynamic(owner_uid(owner)) ? "" : NULL;
}
