/* SPDX-License-Identifier: MIT */
/*
 * The accounts, and the rules for those who make sandboxes in them: which account a uid has, how many it may have and make, by which
 * policy. Both are replaced while the daemon runs.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/owner.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* --- accounts --- */

const char *account_name(const struct account *a)
{
	return a->name;
}

struct account *core_account_by_name(struct sandbox_core *core, const char *name)
{
	for (size_t i = 0; i < core->n_accounts; i++)
		if (str_eq(core->accounts[i].name, name))
			return &core->accounts[i];
	return NULL;
}

void sandbox_core_set_plain_ports(struct sandbox_core *core, const char *account, bool plain_ports)
{
	struct account *a = core_account_by_name(core, account);

	if (a)
		a->plain_ports = plain_ports;
}

static void account_fini(struct account *a)
{
	account_clock_stop(a);
	free(a->name);
	free(a->default_user);
	*a = (struct account){ 0 };
}

static int account_init(struct sandbox_core *core, unsigned index, const struct sandbox_core_account *o)
{
	struct account *a = &core->accounts[index];

	a->core = core;
	a->index = index;
	a->cloud = o->cloud;
	a->plain_ports = o->plain_ports;
	a->max_sandboxes = o->max_sandboxes;
	a->proof.is_needless = o->is_own_cloud;
	extend_init(&a->extensions);
	account_clock_start(a);
	if (text_set(&a->name, o->name) == 0 && text_set(&a->default_user, o->default_user) == 0)
		return 0;
	account_fini(a);
	return -ENOMEM;
}

int core_make_accounts(struct sandbox_core *core, const struct sandbox_core_options *o)
{
	int r = 0;

	core->accounts = calloc(SANDBOX_ACCOUNTS_MAX, sizeof(*core->accounts));
	if (!core->accounts)
		return -ENOMEM;
	for (size_t i = 0; !r && i < o->n_accounts; i++) {
		r = account_init(core, (unsigned)i, &o->accounts[i]);
		core->n_accounts += !r;
	}
	return r;
}

int sandbox_core_add_account(struct sandbox_core *core, const struct sandbox_core_account *o)
{
	struct account *a = &core->accounts[core->n_accounts];
	int r;

	must(core->n_accounts < SANDBOX_ACCOUNTS_MAX && !core_account_by_name(core, o->name));
	r = account_init(core, (unsigned)core->n_accounts, o);
	if (r < 0)
		return r;
	r = sync_add(core, a);
	if (r < 0) {
		account_fini(a);
		return r;
	}
	core->n_accounts++;
	proof_add(a);
	return 0;
}

void sandbox_core_drop_account(struct sandbox_core *core)
{
	struct account *a = &core->accounts[core->n_accounts - 1];

	must(!a->n_alive);
	proof_drop(a);
	sync_drop(a);
	account_fini(a);
	core->n_accounts--;
}

void sandbox_core_set_account(struct sandbox_core *core, const char *name, uint32_t max_sandboxes, bool retired)
{
	struct account *a = core_account_by_name(core, name);

	if (!a)
		return;
	a->max_sandboxes = max_sandboxes;
	a->retired = retired;
	warm_poke_all(core);
}

bool sandbox_core_left_rows(const struct sandbox_core *core, const char *account)
{
	return map_get_str(&core->strangers, account) != NULL;
}

/* --- limits of uids --- */

struct uid_limit *core_uid_limit(struct sandbox_core *core, uid_t uid)
{
	for (size_t i = 0; i < core->n_uids; i++)
		if (core->uids[i].uid == uid)
			return &core->uids[i];
	return NULL;
}

/* What is set for it, or for its user. */
static const struct uid_limit *set_limit(const struct sandbox_core *core, uid_t uid)
{
	const struct uid_limit *u = core_uid_limit((struct sandbox_core *)core, uid);

	return u || !owner_is_made(uid) ? u : core_uid_limit((struct sandbox_core *)core, owner_uid(uid));
}

struct account *core_account_of(struct sandbox_core *core, uid_t uid)
{
	const struct uid_limit *u = set_limit(core, uid);

	if (u)
		return u->account;
	return core->any.account ? core->any.account : &core->accounts[0];
}

int core_uid_limit_of(struct sandbox_core *core, uid_t uid, struct uid_limit **ret)
{
	struct uid_limit *v, *u = core_uid_limit(core, uid);
	const struct uid_limit *set = set_limit(core, uid);
	struct uid_limit fresh = set ? *set : core->any;

	*ret = u;
	if (u || (!fresh.max_sandboxes && !fresh.creates_per_minute))
		return 0;
	v = reallocarray(core->uids, core->n_uids + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	core->uids = v;
	u = &v[core->n_uids++];
	*u = fresh;
	u->uid = uid;
	u->is_any = true;
	u->n_alive = index_alive(core, uid);
	u->window_creates = 0;
	*ret = u;
	return 0;
}

void sandbox_uid_use(const struct sandbox_core *core, uid_t uid, struct sandbox_uid_use *ret)
{
	const struct uid_limit *u = core_uid_limit((struct sandbox_core *)core, uid);
	const struct uid_limit *set = set_limit(core, uid), *limit = set ? set : &core->any;
	uint32_t used = u && clock_boot_ms() < u->window_at_ms + CREATES_WINDOW_MS ? u->window_creates : 0;

	*ret = (struct sandbox_uid_use){
		.account = core_account_of((struct sandbox_core *)core, uid)->name,
		.max_sandboxes = limit->max_sandboxes, .creates_per_minute = limit->creates_per_minute,
		.creates_left = limit->creates_per_minute - MIN(used, limit->creates_per_minute),
		.alive = index_alive(core, uid),
	};
}

/* --- rules --- */

void core_policy_default(const struct sandbox_core *core, uid_t uid, const char *template_id,
			 struct policy *ret)
{
	*ret = core->policy;
	for (size_t i = 0; i < core->n_policies; i++)
		if (core->policies[i].template_id && str_eq(core->policies[i].template_id, template_id))
			policy_merge(ret, &core->policies[i].change);
	for (size_t i = 0; i < core->n_policies; i++)
		if (!core->policies[i].template_id && core->policies[i].uid == owner_uid(uid))
			policy_merge(ret, &core->policies[i].change);
}

static void free_policies(struct sandbox_core_policy *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free((char *)v[i].template_id);
	free(v);
}

static int copy_policies(const struct sandbox_core_rules *r, struct sandbox_core_policy **ret)
{
	struct sandbox_core_policy *copy = calloc(r->n_policies + 1, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_policies; i++) {
		copy[i] = r->policies[i];
		copy[i].template_id = str_dup(r->policies[i].template_id);
		if (r->policies[i].template_id && !copy[i].template_id) {
			free_policies(copy, i);
			return -ENOMEM;
		}
	}
	*ret = copy;
	return 0;
}

/* The creations of the current minute stay counted. -EINVAL: there is no such account. */
static int make_limit(struct sandbox_core *core, const struct sandbox_core_uid *u, struct uid_limit *ret)
{
	const struct uid_limit *old = core_uid_limit(core, u->uid);

	*ret = (struct uid_limit){
		.uid = u->uid,
		.account = u->account ? core_account_by_name(core, u->account) : &core->accounts[0],
		.max_sandboxes = u->max_sandboxes,
		.creates_per_minute = u->creates_per_minute,
		.window_at_ms = old ? old->window_at_ms : 0,
		.window_creates = old ? old->window_creates : 0,
	};
	return ret->account ? 0 : -EINVAL;
}

/* NULL = none. */
static const struct sandbox_core_uid *find_among(const struct sandbox_core_rules *r, uid_t uid)
{
	for (size_t i = 0; i < r->n_uids; i++)
		if (r->uids[i].uid == uid)
			return &r->uids[i];
	return NULL;
}

/* The uids that rules name, and after them those that were counted with the limits of any uid. */
static int make_uids(struct sandbox_core *core, const struct sandbox_core_rules *r, struct uid_limit **ret, size_t *ret_n)
{
	struct uid_limit *v = calloc(r->n_uids + core->n_uids + 1, sizeof(*v));
	int e = v ? 0 : -ENOMEM;
	size_t n = 0;

	for (size_t i = 0; i < r->n_uids && !e; i++)
		e = make_limit(core, &r->uids[i], &v[n++]);
	for (size_t i = 0; i < core->n_uids && !e; i++) {
		const struct sandbox_core_uid *set = find_among(r, owner_uid(core->uids[i].uid));
		struct sandbox_core_uid u = set ? *set : r->any;

		u.uid = core->uids[i].uid;
		if (!core->uids[i].is_any || find_among(r, u.uid))
			continue;
		e = make_limit(core, &u, &v[n]);
		v[n++].is_any = true;
	}
	if (e < 0) {
		free(v);
		return e;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

static void use_uids(struct sandbox_core *core, struct uid_limit *v, size_t n)
{
	free(core->uids);
	core->uids = v;
	core->n_uids = n;
	for (size_t i = 0; i < n; i++)
		v[i].n_alive = index_alive(core, v[i].uid);
}

int sandbox_core_set_rules(struct sandbox_core *core, const struct sandbox_core_rules *r)
{
	struct sandbox_core_policy *policies;
	struct sandbox_core_uid every = r->any;
	struct uid_limit *uids, any;
	struct list waiters;
	size_t n_uids;
	int err;

	every.uid = (uid_t)-1;
	err = make_limit(core, &every, &any);
	if (!err)
		err = make_uids(core, r, &uids, &n_uids);
	if (err < 0)
		return err;
	err = copy_policies(r, &policies);
	if (err < 0) {
		free(uids);
		return err;
	}
	err = warm_set_entries(core, r, &waiters);
	if (err < 0) {
		free(uids);
		free_policies(policies, r->n_policies);
		return err;
	}
	core->any = any;
	use_uids(core, uids, n_uids);
	free_policies(core->policies, core->n_policies);
	core->policy = r->policy;
	core->policies = policies;
	core->n_policies = r->n_policies;
	warm_ask_again(&waiters);
	return 0;
}

void core_free_accounts(struct sandbox_core *core)
{
	free_policies(core->policies, core->n_policies);
	free(core->uids);
	for (size_t i = 0; i < core->n_accounts; i++)
		account_fini(&core->accounts[i]);
	free(core->accounts);
}
