/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/plane.h"

#include <string.h>

#include "daemon/common/http/query.h"
#include "daemon/common/http/route.h"
#include "proto/base/host.h"
#include "proto/base/str.h"
#include "proto/cloud/flavour.h"
#include "proto/cloud/route.h"

#define DIGITS "0123456789"

static void plane_refuse(struct plane *ret, const char *why)
{
	ret->kind = PLANE_BAD;
	ret->why = why;
}

static void plane_take(struct plane *ret, const char *id, size_t n_id, const char *port, size_t n_port)
{
	uint64_t number = 0;

	if (n_id > CLOUD_SANDBOX_ID_MAX) {
		plane_refuse(ret, "Invalid sandbox ID");
		return;
	}
	memcpy(ret->port.sandbox, id, n_id);
	ret->port.sandbox[n_id] = 0;
	if (!cloud_is_sandbox_id(ret->port.sandbox)) {
		plane_refuse(ret, "Invalid sandbox ID");
	} else if (str_u64(port, n_port, UINT16_MAX, &number) < 0 || !number) {
		plane_refuse(ret, "Invalid sandbox port");
	} else {
		ret->port.port = (uint16_t)number;
		ret->kind = PLANE_PORT;
	}
}

/* "3000-ID." or, of older clouds, "3000-ID-CLIENT.". False: the host names no port of a sandbox. */
static bool by_label(const char *host, struct plane *ret)
{
	const char *dot = strchr(host, '.'), *id = host + strspn(host, DIGITS), *end;
	size_t n_port = (size_t)(id - host);

	if (!dot || !n_port || *id++ != '-')
		return false;
	end = memchr(id, '-', (size_t)(dot - id));
	plane_take(ret, id, (size_t)((end ? end : dot) - id), host, n_port);
	ret->port.by_label = true;
	return true;
}

/* The one value of a header in any spelling. False: there are several, and they differ. */
static bool only_value(const struct fields *head, enum flavour_header which, const char **ret)
{
	*ret = NULL;
	for (unsigned i = 0; i < FLAVOURS; i++) {
		const char *name = flavour_get((enum flavour_id)i)->headers[which];

		for (int at = fields_find(head, name, 0); at >= 0; at = fields_find(head, name, (uint32_t)at + 1)) {
			const char *value = fields_value(head, (uint32_t)at);

			if (*ret && !str_eq(*ret, value))
				return false;
			*ret = value;
		}
	}
	return true;
}

/* Paths that both have are the agent's when the headers name it. */
static bool is_of_control(const struct fields *head, const struct query *q)
{
	const char *method = fields_get(head, ":method");
	enum cloud_route r;

	if (!q || !method)
		return false;
	r = cloud_route_find(method, q->segments, q->n_segments);
	return r != CLOUD_ROUTE_UNKNOWN && r != CLOUD_ROUTE_HEALTH &&
	       !(q->n_segments == 1 && str_eq(q->segments[0], "health"));
}

/* False: there are no routing headers. */
static bool by_headers(const struct fields *head, const struct query *q, struct plane *ret)
{
	const char *id, *port;

	if (!only_value(head, FLAVOUR_SANDBOX_ID, &id)) {
		plane_refuse(ret, "Invalid sandbox ID");
		return true;
	}
	if (!only_value(head, FLAVOUR_SANDBOX_PORT, &port)) {
		plane_refuse(ret, "Invalid sandbox port");
		return true;
	}
	if (!id && !port)
		return false;
	if (str_is_empty(id) || str_is_empty(port)) {
		plane_refuse(ret, "missing header");
		return true;
	}
	plane_take(ret, id, strlen(id), port, strlen(port));
	if (ret->kind == PLANE_PORT && ret->port.port == ENVD_PORT && is_of_control(head, q))
		*ret = (struct plane){ .kind = PLANE_CONTROL };
	return true;
}

static bool is_link(const struct query *q)
{
	return q && q->n_segments == 1 && str_eq(q->segments[0], "files") && query_get(q, "signature");
}

void plane_find(const struct fields *head, struct plane *ret)
{
	const char *authority = fields_get(head, ":authority"), *path = fields_get(head, ":path");
	scoped(query_fini) struct query parsed = QUERY_NULL;
	const struct query *q = path && query_parse(path, &parsed) == 0 ? &parsed : NULL;
	struct host_port at;

	*ret = (struct plane){ .kind = PLANE_CONTROL };
	/* A user in it is nobody's name, and a host to whoever reads from the other end. */
	if (!authority || strchr(authority, '@') || host_port_parse(authority, strlen(authority), &at) < 0) {
		plane_refuse(ret, "Invalid host");
		return;
	}
	str_lower(at.host);
	if ((!host_is_address(at.host) && by_label(at.host, ret)) || by_headers(head, q, ret))
		return;
	if (is_link(q))
		ret->kind = PLANE_LINK;
}
