/* SPDX-License-Identifier: MIT */
/* The routes of the control plane: one table (route.def), from which a client makes its paths and a server finds
 * whose request it is. */
#ifndef AB_PROTO_CLOUD_ROUTE_H
#define AB_PROTO_CLOUD_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

enum cloud_route_flag {
	ROUTE_CHANGES = 1,	/* the call changes something */
	ROUTE_BODY = 2,		/* a request without a body is refused */
};

enum cloud_route {
#define ROUTE(name, method, path, success, flags) CLOUD_ROUTE_##name,
#include "proto/cloud/route.def"
#undef ROUTE
	CLOUD_ROUTES,
	CLOUD_ROUTE_UNKNOWN = CLOUD_ROUTES,
	CLOUD_ROUTE_METHOD,	/* the path is known, and not with this method */
};

struct cloud_route_info {
	const char *method, *path;	/* "/sandboxes/{id}/pause" */
	unsigned success, flags;
};

const struct cloud_route_info *cloud_route_info(enum cloud_route r);
/* Whether an answer with that status is a success of the route. */
bool cloud_route_is_success(enum cloud_route r, unsigned status);
/* The path with `value` in the place of its one parameter, percent-encoded; NULL for a path without. Heap; NULL
 * without memory. */
char *cloud_route_path(enum cloud_route r, const char *value);
/* By the segments of a path, each decoded. A path of words beats one with parameters: /templates/tags is never the
 * template "tags". Else UNKNOWN or METHOD. */
enum cloud_route cloud_route_find(const char *method, const char *const *segments, size_t n);
/* Number of the segment that is this parameter ("{id}"), or `n` of the path if it has none. */
size_t cloud_route_parameter(enum cloud_route r, const char *name);

#endif
