/* SPDX-License-Identifier: MIT */
/*
 * Network settings. They are kept to by egress.c; where the machine does not let sandboxes have a way
 * out, nothing can be reached, and what would need one is refused and never pretended.
 */
#include <errno.h>

#include "daemon/local/api/rest.h"
#include "daemon/local/egress/netrule.h"
#include "proto/base/str.h"

/* Fields by the names of the contract. */
static const char *field_name(enum netrules_field f)
{
	static const char *const names[] = {
		[NETRULES_ALLOW_OUT] = "allowOut",	  [NETRULES_DENY_OUT] = "denyOut",
		[NETRULES_PROXY] = "egressProxy",	  [NETRULES_PROXY_ADDRESS] = "egressProxy.address",
		[NETRULES_PROXY_USERNAME] = "egressProxy.username", [NETRULES_RULES] = "rules",
		[NETRULES_PUBLIC] = "allowPublicTraffic", [NETRULES_MASK] = "maskRequestHost",
		[NETRULES_TOKENS] = "iam.tokens",
	};

	return names[f];
}

bool rest_network_ok(struct rest *r, const struct cloud_network *n, const struct netrules_with *with)
{
	bool has_egress = engine_have_egress(state_opts(r->l->state)->engine);
	struct netrules_fault f;
	const char *out;

	if (!netrules_network_ok(n, with, &f)) {
		rest_fail(r, 400, "%s: %s", field_name(f.field), f.text);
		return false;
	}
	if (netrule_is_too_long(n)) {
		rest_fail(r, 400, "allowOut, denyOut: too many entries");
		return false;
	}
	if (!has_egress && n->egress_address) {
		/* The cloud's status for a team without it. */
		rest_fail(r, 403, "egressProxy is not enabled (sandboxes of agentbox-local have no network "
				  "outside on this machine)");
		return false;
	}
	out = netrule_unsupported(n, has_egress);
	if (!out)
		return true;
	rest_unsupported(r, out);
	return false;
}

/* What goes out from now on; what comes in stays as it was. */
static struct cloud_network *with_ingress(const struct cloud_network *egress, const struct cloud_network *now)
{
	scoped(cloud_network_freep) struct cloud_network *n = cloud_network_dup(egress);

	if (!n || !now)
		return give(n);
	n->allow_public_traffic = now->allow_public_traffic;
	free(n->mask_request_host);
	n->mask_request_host = str_dup(now->mask_request_host);
	return n->mask_request_host || !now->mask_request_host ? give(n) : NULL;
}

static void set_network(struct rest *r, struct sandbox *s, const struct cloud_egress *e)
{
	scoped(cloud_network_freep) struct cloud_network *n = with_ingress(&e->network, s->network);
	bool blocked = e->allow_internet_access == TRI_FALSE;

	if (!n || sandbox_set_network(s, n, blocked) < 0) {
		rest_fail(r, 500, "out of memory");
		return;
	}
	if (e->allow_internet_access) {
		s->policy.has_internet = true;
		s->policy.internet = !blocked;
	}
	rest_limits(r, s->network, false);
	rest_reply(r, 204, NULL);
}

void rest_set_network(struct rest *r)
{
	static const struct netrules_with with = { .replaces_egress = true };
	struct cloud_egress e = { 0 };
	struct sandbox *s;

	if (!rest_take(r, CLOUD_DOC_EGRESS, &e))
		return;
	if (rest_network_ok(r, &e.network, &with)) {
		s = rest_running(r);
		if (s)
			set_network(r, s, &e);
	}
	cloud_doc_fini(CLOUD_DOC_EGRESS, &e);
}
