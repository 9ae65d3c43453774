/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/tags.h"

#include <stdio.h>
#include <string.h>

#include "proto/cloud/model.h"
#include "proto/base/str.h"

int tags_add(struct cloud_kvs *kvs, const struct tags *t)
{
	char uid[24], seq[24];
	int r;

	snprintf(uid, sizeof(uid), "%u", t->uid);
	snprintf(seq, sizeof(seq), "%llu", (unsigned long long)t->seq);
	r = cloud_kvs_add(kvs, TAG_HOST, t->host);
	if (!r)
		r = cloud_kvs_add(kvs, TAG_UID, uid);
	if (!r)
		r = cloud_kvs_add(kvs, TAG_REQ, t->req);
	if (!r)
		r = cloud_kvs_add(kvs, TAG_SEQ, seq);
	if (!r && !str_is_empty(t->name))
		r = cloud_kvs_add(kvs, TAG_NAME, t->name);
	if (!r)
		r = cloud_kvs_add(kvs, TAG_POLICY, t->policy);
	if (!r && !str_is_empty(t->warm))
		r = cloud_kvs_add(kvs, TAG_WARM, t->warm);
	return r;
}

static const char *text(const struct cloud_kvs *kvs, const char *key)
{
	const char *s = cloud_kvs_get(kvs, key);

	return s ? s : "";
}

void tags_read(const struct cloud_kvs *kvs, struct tags *ret)
{
	const char *uid = text(kvs, TAG_UID), *seq = text(kvs, TAG_SEQ);
	uint64_t n;

	*ret = (struct tags){
		.host = cloud_kvs_get(kvs, TAG_HOST),
		.req = text(kvs, TAG_REQ),
		.name = text(kvs, TAG_NAME),
		.policy = text(kvs, TAG_POLICY),
		.warm = text(kvs, TAG_WARM),
	};
	if (str_is_empty(ret->host))
		ret->host = NULL;
	if (!str_u64(uid, strlen(uid), UINT32_MAX - 1, &n)) {
		ret->uid = (uid_t)n;
		ret->has_uid = true;
	}
	if (!str_u64(seq, strlen(seq), INT64_MAX / 2, &n))
		ret->seq = n;
}

bool tags_are_of(const struct tags *t, const char *host_id)
{
	return t->host && str_eq(t->host, host_id);
}
