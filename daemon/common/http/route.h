/* SPDX-License-Identifier: MIT */
/*
 * Whose request is it: the control plane's, or that of a port of a sandbox. The cloud has different
 * hosts for the two; here they share one address, so a local host without routing headers and the
 * host api.* are the control plane, and the rest follows the cloud's edge. Pure.
 */
#ifndef AB_DAEMON_COMMON_HTTP_ROUTE_H
#define AB_DAEMON_COMMON_HTTP_ROUTE_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/cloud/model.h"

#define ROUTE_ID_MAX CLOUD_SANDBOX_ID_MAX
#define ENVD_PORT    49983u

enum route_kind {
	ROUTE_CONTROL,
	ROUTE_SANDBOX,
	ROUTE_BAD,		/* 400 with `why` */
};

struct route {
	enum route_kind kind;
	bool is_shared;		/* the host serves both planes: what the request is may tell better than its head */
	uint64_t port;
	const char *why;
	char id[ROUTE_ID_MAX + 1];
};

/* `authority` may have a port; the header values may be NULL. */
void route_parse(const char *authority, const char *sandbox_id, const char *sandbox_port,
		 struct route *ret);

/* Control routes inside the agent that never pass the edge; `clean` is from query_clean_path(). */
bool route_is_internal(const char *clean);

/* Would the cloud's edge answer this browser with a page instead of JSON? NULLs are absent. */
bool route_wants_html(const char *user_agent, const char *accept, const char *sec_fetch_mode,
		      const char *x_requested_with);

#endif
