/* SPDX-License-Identifier: MIT */
/* The [policy] sections as the core takes them, at the start and at a reload. */
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

int app_policies_read(const struct conf *c, struct app_policies *ret)
{
	size_t n = conf_n_instances(c, "policy");

	*ret = (struct app_policies){ .v = calloc(n + 1, sizeof(*ret->v)) };
	if (!ret->v)
		return -ENOMEM;
	policy_default(&ret->general);
	for (size_t i = 0; i < n; i++) {
		const char *instance = conf_instance(c, "policy", i);
		struct sandbox_core_policy p = { .uid = (uid_t)-1 };

		read_policy(c, instance, &p.change);
		if (!*instance) {
			policy_merge(&ret->general, &p.change);
			continue;
		}
		if (str_starts(instance, "template:"))
			p.template_id = instance + strlen("template:");
		else
			p.uid = app_uid_of(instance + strlen("uid:"));
		ret->v[ret->n++] = p;
	}
	return 0;
}

int app_policies_take(struct app *a, const struct conf *c)
{
	struct app_policies p;
	int r = app_policies_read(c, &p);

	if (!r)
		r = sandbox_core_set_policies(a->core, &p.general, p.v, p.n);
	free(p.v);
	return r;
}
