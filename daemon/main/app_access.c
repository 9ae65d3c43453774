/* SPDX-License-Identifier: MIT */
/* The section [access] as the doors take it. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/main/app_impl.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* Those that nobody has now stay unknown, and count by their name. */
static void fill_numbers(const struct conf *c, struct access_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct access_item *x = &l->v[i];

		if (!x->name[0])
			continue;
		x->is_known = conf_id(c, x->kind == ACCESS_GROUP ? CONF_ID_GROUP : CONF_ID_USER, x->name, &x->first);
		x->last = x->first;
	}
}

static int read_list(const struct conf *c, enum access_key k, struct access_rules *ret)
{
	const char *key = access_key_name(k);
	char at[512], why[ACCESS_WHY_BYTES];
	int r = 0;

	ret->is_set[k] = conf_is_set(c, "access", NULL, key);
	if (ret->is_set[k])
		r = access_parse(conf_get(c, "access", NULL, key), &ret->lists[k], why);
	must(r == 0 || r == -ENOMEM);	/* app_check_names() has read it */
	if (r < 0)
		return r;
	fill_numbers(c, &ret->lists[k]);
	conf_place(c, "access", NULL, key, at);
	ret->places[k] = ret->is_set[k] ? strdup(at) : str_printf("%s (the default)", at);
	return ret->places[k] ? 0 : -ENOMEM;
}

int app_access_read(const struct conf *c, struct access_rules *ret)
{
	const char *group = conf_get(c, "daemon", NULL, "admin_group");
	int r = 0;

	*ret = (struct access_rules)ACCESS_RULES_NULL;
	ret->own_uid = geteuid();
	if (!str_is_empty(group))
		must(conf_id(c, CONF_ID_GROUP, group, &ret->admin_gid));
	for (int k = 0; k < ACCESS_KEYS && !r; k++)
		r = read_list(c, (enum access_key)k, ret);
	if (r < 0)
		access_rules_fini(ret);
	return r;
}
