/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/pass.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/cloud/account.h"
#include "daemon/common/obs/redact.h"
#include "proto/base/str.h"

static int put_pass_fields(struct fields *f, const struct cloud_pass_ask *a)
{
	int r = fields_put_secret(f, "x-api-key", a->cloud->key);

	redact_note(a->cloud->key);
	if (r == 0)
		r = fields_put(f, CLOUD_HOP, "1");
	for (uint32_t i = 0; r == 0 && i < a->head->n; i++) {
		const char *name = fields_name(a->head, i);

		if (name[0] != ':' && !str_eq(name, "cookie"))
			r = fields_add(f, name, a->head->v[i].name_len, fields_value(a->head, i), a->head->v[i].value_len,
				       a->head->v[i].secret);
	}
	return r;
}

int cloud_pass(const struct cloud_pass_ask *a, struct pool_req **ret, struct status *ret_why)
{
	struct cloud *c = a->cloud;
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	struct pool_target target;
	char *path;

	if (cloud_key_is_unfit(c, ret_why))
		return -EACCES;
	if (put_pass_fields(&f, a) < 0)
		return -ENOMEM;
	cloud_target(c, &c->api, &target);
	target.group = c->key_group;
	path = str_printf("%s%s", c->api.prefix, fields_get(a->head, ":path"));
	if (!path)
		return -ENOMEM;
	*ret = pool_request(c->pool, &(struct pool_ask){
		.target = &target,
		.method = fields_get(a->head, ":method"),
		.path = path,
		.fields = &f,
		.body_mode = a->has_body ? POOL_BODY_STREAM : POOL_BODY_NONE,
		.cls = POOL_LONG,
		.idempotent = a->idempotent,
		.on_ready = a->on_ready,
		.user = a->user,
	});
	free(path);
	return *ret ? 0 : -ENOMEM;
}
