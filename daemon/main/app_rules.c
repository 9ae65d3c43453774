/* SPDX-License-Identifier: MIT */
/* The [policy] and [uid] sections as the core takes them, at the start and at a reload. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/main/app_impl.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* What one section sets; the configuration has checked it. */
static void read_policy(const struct conf *c, const char *instance, struct policy_change *ret)
{
	*ret = (struct policy_change){ 0 };
	for (unsigned f = 0; f < POLICY_FIELDS; f++) {
		const char *key = policy_field_name((enum policy_field)f);
		int r = 0;

		if (conf_is_set(c, "policy", instance, key))
			r = policy_change_text(ret, (enum policy_field)f, conf_get(c, "policy", instance, key));
		must(r == 0);
	}
}

static int read_policies(const struct conf *c, struct sandbox_core_rules *ret)
{
	size_t n = conf_n_instances(c, "policy");
	struct sandbox_core_policy *v = calloc(n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	policy_default(&ret->policy);
	for (size_t i = 0; i < n; i++) {
		const char *instance = conf_instance(c, "policy", i);
		struct sandbox_core_policy p = { .uid = (uid_t)-1, .warm = app_warm_mode(c, instance) };

		read_policy(c, instance, &p.change);
		if (!*instance) {
			policy_merge(&ret->policy, &p.change);
			ret->warm_mode = p.warm;
			continue;
		}
		if (str_starts(instance, "template:"))
			p.template_id = instance + strlen("template:");
		else
			p.uid = app_uid_of(c, instance + strlen("uid:"));
		v[ret->n_policies++] = p;
	}
	ret->policies = v;
	return 0;
}

uid_t app_uid_of(const struct conf *c, const char *instance)
{
	uint32_t uid = 0;

	must(conf_id(c, CONF_ID_USER, instance, &uid));
	return (uid_t)uid;
}

const char *app_uid_instance(const struct conf *c, uid_t uid)
{
	const char *name;

	for (size_t i = 0; (name = conf_instance(c, "uid", i)); i++)
		if (!str_eq(name, "*") && app_uid_of(c, name) == uid)
			return name;
	return "*";
}

const char *app_uid_section(const struct conf *c, const char *instance, const char *key)
{
	return conf_is_set(c, "uid", instance, key) ? instance : "*";
}

static uint32_t number_of(const struct conf *c, const char *instance, const char *key)
{
	return (uint32_t)conf_get_number(c, "uid", app_uid_section(c, instance, key), key);
}

struct reader {
	const struct conf *now, *c;
	const struct app_known_accounts *accounts;
};

/* What a section says when the configuration is taken: one that cannot begin before a restart is not there yet. */
static const char *account_in(const struct reader *r, const char *section)
{
	const char *account = conf_get(r->c, "uid", section, "account");

	if (!str_is_empty(account) && !r->accounts->has(r->accounts->user, account))
		account = conf_get(r->now, "uid", section, "account");
	return str_is_empty(account) ? NULL : account;
}

static const char *account_for(const struct reader *r, const char *name)
{
	const char *own = account_in(r, name);

	return own ? own : account_in(r, "*");
}

static struct sandbox_core_uid read_uid(const struct reader *r, const char *name)
{
	const struct conf *c = r->c;

	return (struct sandbox_core_uid){
		.uid = str_eq(name, "*") ? (uid_t)-1 : app_uid_of(c, name),
		.account = account_for(r, name),
		.max_sandboxes = number_of(c, name, "max_sandboxes"),
		.creates_per_minute = number_of(c, name, "creates_per_minute"),
	};
}

static int read_uids(const struct reader *r, struct sandbox_core_rules *ret)
{
	struct sandbox_core_uid *v = calloc(conf_n_instances(r->c, "uid") + 1, sizeof(*v));
	const char *name;

	if (!v)
		return -ENOMEM;
	ret->any = read_uid(r, "*");
	for (size_t i = 0; (name = conf_instance(r->c, "uid", i)); i++)
		if (!str_eq(name, "*"))
			v[ret->n_uids++] = read_uid(r, name);
	ret->uids = v;
	return 0;
}

int app_rules_read(const struct conf *now, const struct conf *c, const struct app_known_accounts *accounts, const struct app_warm *warm,
		   struct sandbox_core_rules *ret)
{
	const struct reader reader = { .now = now, .c = c, .accounts = accounts };
	int r;

	*ret = (struct sandbox_core_rules){ .warm = warm->v, .n_warm = warm->n };
	r = read_policies(c, ret);
	if (!r)
		r = read_uids(&reader, ret);
	if (r < 0)
		app_rules_free(ret);
	return r;
}

void app_rules_free(struct sandbox_core_rules *rules)
{
	free((void *)rules->policies);
	free((void *)rules->uids);
}

int app_rules_take(struct app *a, const struct conf *fresh, const struct app_known_accounts *accounts, const struct app_warm *warm)
{
	struct sandbox_core_rules rules;
	int r = app_rules_read(a->conf, fresh, accounts, warm, &rules);

	if (r < 0)
		return r;
	r = sandbox_core_set_rules(a->core, &rules);
	app_rules_free(&rules);
	return r;
}
