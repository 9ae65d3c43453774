/* SPDX-License-Identifier: MIT */
#include "daemon/auth/users.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/access.h"
#include "daemon/common/ev/worker.h"
#include "daemon/common/obs/log.h"
#include "proto/base/map.h"
#include "proto/base/must.h"

struct known {
	struct job job;
	struct list node;	/* in users.kept, the one looked up last at the end */
	struct users *all;
	struct user user;	/* what was found last … */
	uint64_t found_at_ms;	/* … and when; 0 = nothing was yet */
	struct user fresh;	/* the thread's, while it looks */
	bool is_asked;
	struct list waits, late;	/* for the look that goes on; for one that begins after they came */
};

struct users {
	struct loop *loop;
	struct worker *worker;	/* NULL before the first look */
	void (*look)(uid_t uid, struct user *ret);
	struct map map;		/* uid → struct known */
	struct list kept;
};

int users_new(const struct users_options *o, struct users **ret)
{
	struct users *u = calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	u->loop = o->loop;
	u->look = o->look ? o->look : users_look;
	list_init(&u->kept);
	*ret = u;
	return 0;
}

static void known_free(struct known *k)
{
	must(list_is_empty(&k->waits) && list_is_empty(&k->late));
	map_del_u64(&k->all->map, k->user.uid);
	list_del(&k->node);
	free(k);
}

struct users *users_free(struct users *u)
{
	if (!u)
		return NULL;
	u->worker = worker_free(u->worker);
	while (!list_is_empty(&u->kept))
		known_free(list_entry(u->kept.next, struct known, node));
	map_fini(&u->map);
	free(u);
	return NULL;
}

/* --- looking --- */

static void on_thread(struct job *j)
{
	struct known *k = container_of(j, struct known, job);

	k->all->look(k->user.uid, &k->fresh);
}

static void answer(struct list *waits, const struct user *u)
{
	struct list now;

	list_init(&now);
	list_take(&now, waits);
	while (!list_is_empty(&now)) {
		struct users_wait *w = list_entry(now.next, struct users_wait, node);

		list_del(&w->node);
		timer_clear(&w->timer);
		w->fn(w, u);
	}
}

static int users_begin(struct known *k);

static void users_on_found(struct job *j)
{
	struct known *k = container_of(j, struct known, job);
	struct user found = k->fresh;
	struct list now;

	k->is_asked = false;
	k->user = found;
	k->found_at_ms = MAX(loop_now_ms(k->all->loop), (uint64_t)1);
	list_del(&k->node);
	list_add_tail(&k->all->kept, &k->node);
	list_init(&now);
	list_take(&now, &k->waits);
	list_take(&k->waits, &k->late);
	if (!list_is_empty(&k->waits) && k->all->worker)
		(void)!users_begin(k);	/* there is a worker: it cannot fail */
	answer(&now, &found);
}

static int users_begin(struct known *k)
{
	const struct worker_options o = { .loop = k->all->loop, .name = "users" };
	int r = k->all->worker ? 0 : worker_new(&o, &k->all->worker);

	if (r < 0)
		return r;
	k->is_asked = true;
	k->job = (struct job){ .run = on_thread, .done = users_on_found };
	worker_submit(k->all->worker, &k->job);
	return 0;
}

/* Room for one more: the one that was looked up longest ago goes. */
static void users_make_room(struct users *all)
{
	if (map_size(&all->map) < USERS_MAX)
		return;
	list_for_each(n, &all->kept) {
		struct known *k = list_entry(n, struct known, node);

		if (k->is_asked || !list_is_empty(&k->waits))
			continue;
		known_free(k);
		return;
	}
}

static struct known *find_or_add(struct users *all, uid_t uid)
{
	struct known *k = map_get_u64(&all->map, uid);

	if (k)
		return k;
	users_make_room(all);
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->all = all;
	k->user = (struct user){ .uid = uid, .gid = (gid_t)-1 };
	list_init(&k->waits);
	list_init(&k->late);
	list_init(&k->node);
	if (map_put_u64(&all->map, uid, k) < 0) {
		free(k);
		return NULL;
	}
	list_add_tail(&all->kept, &k->node);
	return k;
}

/* --- who asks --- */

static void on_late(struct timer *t, void *user)
{
	struct users_wait *w = user;
	const struct user nobody = { .uid = w->uid, .gid = (gid_t)-1, .error = -ETIMEDOUT };

	list_del(&w->node);
	log_warn("user_unknown", "uid=%u error=\"the system's tables of users do not answer\"", w->uid);
	w->fn(w, &nobody);
}

static int wait_for(struct known *k, struct users_wait *w)
{
	struct list *to = k->is_asked && access_is_dynamic(k->user.uid) ? &k->late : &k->waits;
	int r = k->is_asked ? 0 : users_begin(k);

	w->all = k->all;
	w->uid = k->user.uid;
	list_init(&w->node);
	timer_init(&w->timer, k->all->loop, on_late, w);
	if (!r)
		r = timer_set(&w->timer, loop_now_ms(k->all->loop) + USERS_WAIT_MS);
	if (!r)
		list_add_tail(to, &w->node);
	return r;
}

int users_find(struct users *all, uid_t uid, struct users_wait *w, const struct user **ret)
{
	struct known *k = find_or_add(all, uid);

	if (!k)
		return -ENOMEM;
	if (!k->found_at_ms || access_is_dynamic(uid) || (k->user.error && k->user.error != -ENOENT))
		return wait_for(k, w);
	if (!k->is_asked && loop_now_ms(all->loop) >= k->found_at_ms + USERS_FRESH_MS && users_begin(k) < 0)
		return -ENOMEM;
	*ret = &k->user;
	return 1;
}

void users_cancel(struct users_wait *w)
{
	if (!w->all)
		return;
	timer_clear(&w->timer);
	list_del(&w->node);
}

const struct user *users_get(struct users *all, uid_t uid)
{
	struct known *k = find_or_add(all, uid);
	uint64_t fresh_ms = access_is_dynamic(uid) ? USERS_WAIT_MS : USERS_FRESH_MS;

	if (!k)
		return NULL;
	if (!k->is_asked && (!k->found_at_ms || loop_now_ms(all->loop) >= k->found_at_ms + fresh_ms) && users_begin(k) < 0)
		return NULL;
	return k->found_at_ms ? &k->user : NULL;
}

int users_prime(struct users *all, uid_t uid)
{
	struct known *k = find_or_add(all, uid);

	if (!k)
		return -ENOMEM;
	if (!k->is_asked && !k->found_at_ms) {
		all->look(uid, &k->user);
		k->found_at_ms = MAX(loop_now_ms(all->loop), (uint64_t)1);
	}
	return 0;
}

void users_refresh(struct users *all)
{
	list_for_each(n, &all->kept) {
		struct known *k = list_entry(n, struct known, node);

		if (!k->is_asked && users_begin(k) < 0)
			return;
	}
}
