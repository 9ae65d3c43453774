/* SPDX-License-Identifier: MIT */
/* The cloud's edge rules. */
#include "daemon/common/http/route.h"

#include <errno.h>
#include <string.h>

#include "proto/base/host.h"
#include "proto/base/str.h"

/* Host without port and brackets, lower case. False when it is none. */
static bool host_name(const char *authority, struct host_port *ret)
{
	if (host_port_parse(authority, strlen(authority), ret) < 0)
		return false;
	str_lower(ret->host);
	return true;
}

/* ^[a-z0-9]+$ of at most ROUTE_ID_MAX. */
static bool take_id(const char *s, size_t n, char ret[ROUTE_ID_MAX + 1])
{
	if (!n || n > ROUTE_ID_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9')))
			return false;
	memcpy(ret, s, n);
	ret[n] = 0;
	return true;
}

static void bad(struct route *ret, const char *why)
{
	ret->kind = ROUTE_BAD;
	ret->why = why;
}

static void by_label(const char *host, struct route *ret)
{
	const char *dot = strchr(host, '.'), *dash, *id_end;

	if (!dot) {
		bad(ret, "Invalid host");
		return;
	}
	dash = memchr(host, '-', (size_t)(dot - host));
	if (!dash) {
		bad(ret, "Invalid host");
		return;
	}
	id_end = memchr(dash + 1, '-', (size_t)(dot - dash - 1));
	if (!id_end)
		id_end = dot;
	if (!take_id(dash + 1, (size_t)(id_end - dash - 1), ret->id))
		bad(ret, "Invalid sandbox ID");
	else if (str_u64(host, (size_t)(dash - host), UINT64_MAX, &ret->port) < 0)
		bad(ret, "Invalid sandbox port");
	else
		ret->kind = ROUTE_SANDBOX;
}

void route_parse(const char *authority, const char *sandbox_id, const char *sandbox_port,
		 struct route *ret)
{
	struct host_port hp;
	const char *host = hp.host;
	bool shared, local;

	*ret = (struct route){ 0 };
	if (!host_name(authority ? authority : "", &hp)) {
		bad(ret, "Invalid host");
		return;
	}
	shared = str_starts(host, "sandbox.") && host[8];
	local = str_eq(host, "localhost") || host_is_address(host);
	ret->is_shared = local;
	if ((shared || local) && (sandbox_id || sandbox_port)) {
		if (str_is_empty(sandbox_id) || str_is_empty(sandbox_port))
			bad(ret, "missing header");
		else if (!take_id(sandbox_id, strlen(sandbox_id), ret->id))
			bad(ret, "Invalid sandbox ID");
		else if (str_u64(sandbox_port, strlen(sandbox_port), UINT64_MAX, &ret->port) < 0)
			bad(ret, "Invalid sandbox port");
		else
			ret->kind = ROUTE_SANDBOX;
		return;
	}
	if (local || str_starts(host, "api.")) {
		ret->kind = ROUTE_CONTROL;
		return;
	}
	by_label(host, ret);
}

bool route_is_internal(const char *clean)
{
	static const char *const internal[] = { "/init",   "/freeze", "/unfreeze", "/collapse",
						"/fsfreeze", "/fsthaw", "/upgrade" };

	for (size_t i = 0; i < ARRAY_SIZE(internal); i++)
		if (str_eq(clean, internal[i]))
			return true;
	return false;
}

bool route_wants_html(const char *user_agent, const char *accept, const char *sec_fetch_mode,
		      const char *x_requested_with)
{
	static const char *const browsers[] = { "mozilla", "chrome", "safari", "firefox",
						"edge",	   "opera",  "msie" };
	static const char *const script_modes[] = { "cors", "no-cors", "same-origin", "websocket" };
	bool is_browser = false;

	for (size_t i = 0; user_agent && i < ARRAY_SIZE(browsers); i++)
		is_browser = is_browser || strcasestr(user_agent, browsers[i]);
	if (!is_browser)
		return false;
	if (accept && strstr(accept, "application/json") && !strstr(accept, "text/html"))
		return false;
	for (size_t i = 0; sec_fetch_mode && i < ARRAY_SIZE(script_modes); i++)
		if (str_eq(sec_fetch_mode, script_modes[i]))
			return false;
	if (sec_fetch_mode && str_eq(sec_fetch_mode, "navigate"))
		return true;
	return !x_requested_with;
}
