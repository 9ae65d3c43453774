/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/relay_head.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "proto/base/buf.h"
#include "proto/base/str.h"

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (*name == *list[i] && str_eq(name, list[i]))
			return true;
	return false;
}

static bool is_hop_by_hop(const char *name)
{
	static const char *const names[] = { "connection",	    "keep-alive", "proxy-connection",
					     "proxy-authenticate",  "te",	  "proxy-authorization",
					     "transfer-encoding",   "trailer",	  "upgrade" };

	return is_one_of(name, names, ARRAY_SIZE(names));
}

static bool is_forwarded(const char *name)
{
	static const char *const names[] = { "forwarded", "x-forwarded-for", "x-forwarded-host",
					     "x-forwarded-proto" };

	return is_one_of(name, names, ARRAY_SIZE(names));
}

/* Does one of the Connection fields name it? */
static bool is_named(const struct fields *in, const char *name)
{
	size_t n = strlen(name);

	for (int i = fields_find(in, "connection", 0); i >= 0; i = fields_find(in, "connection", (uint32_t)i + 1)) {
		const char *s = fields_value(in, (uint32_t)i);

		while (*s) {
			size_t k;

			s += strspn(s, ", \t");
			k = strcspn(s, ", \t");
			if (k == n && !strncasecmp(s, name, n))
				return true;
			s += k;
		}
	}
	return false;
}

/* HTTP/2 may send it in crumbs, HTTP/1.1 may not. */
static int put_cookies(const struct fields *in, struct fields *out)
{
	scoped(buf_fini) struct buf all = BUF_NULL;
	int r = 0;

	for (uint32_t i = 0; i < in->n && r == 0; i++)
		if (str_eq(fields_name(in, i), "cookie"))
			r = buf_printf(&all, "%s%s", buf_len(&all) ? "; " : "", fields_value(in, i));
	if (r == 0 && buf_len(&all)) {
		r = buf_put(&all, "", 1);
		if (r == 0)
			r = fields_put(out, "cookie", (const char *)buf_data(&all));
	}
	return r;
}

static int put_request_line(const struct fields *in, const char *host, struct fields *out)
{
	const char *method = fields_get(in, ":method"), *path = fields_get(in, ":path");
	const char *authority = fields_get(in, ":authority");
	int r;

	if (!method || !path || !authority)
		return -EINVAL;
	r = fields_put(out, ":method", method);
	if (r == 0)
		r = fields_put(out, ":scheme", "http");
	if (r == 0)
		r = fields_put(out, ":authority", host ? host : authority);
	if (r == 0)
		r = fields_put(out, ":path", path);
	if (r == 0 && host)
		r = fields_put(out, "x-forwarded-host", authority);
	return r;
}

int relay_request_head(const struct fields *in, const char *host, bool upgrade, relay_keep_fn *keep, const void *user,
		       struct fields *out)
{
	bool names = fields_find(in, "connection", 0) >= 0;
	int r = put_request_line(in, host, out);

	for (uint32_t i = 0; i < in->n && r == 0; i++) {
		const char *name = fields_name(in, i);
		bool asked = upgrade && str_eq(name, "upgrade");

		/* 100-continue is between the client and us; the host is in the first line. */
		if (name[0] == ':' || is_forwarded(name) || str_eq(name, "host") || str_eq(name, "cookie") ||
		    str_eq(name, "expect"))
			continue;
		if (asked || (!is_hop_by_hop(name) && !(names && is_named(in, name)) && (!keep || keep(user, name))))
			r = fields_add(out, name, in->v[i].name_len, fields_value(in, i), in->v[i].value_len, in->v[i].secret);
	}
	return r < 0 ? r : put_cookies(in, out);
}

int relay_response_head(const struct fields *in, bool upgrade, struct fields *out)
{
	bool names = fields_find(in, "connection", 0) >= 0;
	const char *status = fields_get(in, ":status");
	int r = status ? fields_put(out, ":status", status) : -EINVAL;

	for (uint32_t i = 0; i < in->n && r == 0; i++) {
		const char *name = fields_name(in, i);
		bool keep = upgrade && str_eq(name, "upgrade");

		if (name[0] != ':' && (keep || (!is_hop_by_hop(name) && !(names && is_named(in, name)))))
			r = fields_put(out, name, fields_value(in, i));
	}
	return r;
}
