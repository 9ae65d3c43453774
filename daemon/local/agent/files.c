/* SPDX-License-Identifier: MIT */
#include "daemon/local/agent/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/local/agent/envd.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"
#include "proto/cloud/link.h"

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

/* Until when the link is good. -EINVAL. */
static int take_end(const struct query *q, int64_t *ret_s)
{
	const char *until = query_get(q, "signature_expiration");
	uint64_t n;

	*ret_s = CLOUD_LINK_FOREVER;
	if (!until)
		return 0;
	if (str_u64(until, strlen(until), INT64_MAX, &n) < 0)
		return -EINVAL;
	*ret_s = (int64_t)n;
	return 0;
}

bool files_is_signed(const struct sandbox *s, const struct query *q, bool write)
{
	const char *given = query_get(q, "signature");
	int64_t until_s;
	char *right;
	bool same;

	if (!given || !s->token[0] || take_end(q, &until_s) < 0)
		return false;
	right = cloud_link_sign(or_empty(query_get(q, "path")), write, or_empty(query_get(q, "username")), s->token,
				until_s);
	same = right && str_eq_secret(given, strlen(given), right, strlen(right));
	free(right);
	return same;
}

static bool check_signature(const struct sandbox *s, struct http_stream *x, const struct query *q,
			    bool write)
{
	int64_t until_s = CLOUD_LINK_FOREVER;

	if (!query_get(q, "signature"))
		reply_envd_error(x, 401, "missing signature query parameter");
	else if (take_end(q, &until_s) < 0)
		reply_envd_error(x, 400, "signature_expiration must be unix seconds");
	else if (!files_is_signed(s, q, write))
		reply_envd_error(x, 401, "invalid signature");
	else if (until_s != CLOUD_LINK_FOREVER && until_s < clock_wall_ms() / 1000)
		reply_envd_error(x, 401, "signature is already expired");
	else
		return true;
	return false;
}

static bool check_token(const struct sandbox *s, struct http_stream *x, const struct query *q,
			bool write)
{
	if (!s->policy.secure || reply_request_has(x, "x-access-token", s->token))
		return true;
	if (!reply_request(x, "x-access-token"))
		return check_signature(s, x, q, write);
	reply_envd_error(x, 401, "access token present in header but does not match");
	return false;
}

bool files_authorize(const struct sandbox *s, struct http_stream *x, const struct query *q,
		     bool write, struct container_user *ret)
{
	const char *name = query_get(q, "username");

	if (!check_token(s, x, q, write))
		return false;
	if (!name)
		name = envd_default_user(s);
	if (*name && !container_user_lookup(s->container, name, ret))
		return true;
	reply_envd_error(x, 401, "error looking up user '%.64s'", name);
	return false;
}

void files_fail(struct http_stream *x, int r, const char *path)
{
	switch (-r) {
	case ENOENT:
		reply_envd_error(x, 404, "path '%.300s' does not exist", path);
		break;
	case EISDIR:
		reply_envd_error(x, 400, "path '%.300s' is a directory", path);
		break;
	case EMEDIUMTYPE:
		reply_envd_error(x, 400, "path '%.300s' is not a regular file", path);
		break;
	case ENOSPC:
	case EDQUOT:
		reply_envd_error(x, 507, "not enough disk space available");
		break;
	default:
		reply_envd_error(x, 500, "path '%.300s': %s", path, strerror(-r));
		break;
	}
}
