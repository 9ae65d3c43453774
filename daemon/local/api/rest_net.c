/* SPDX-License-Identifier: MIT */
/*
 * Network settings. They are kept to by egress.c; where the machine does not let sandboxes have a way
 * out, nothing can be reached, and what would need one is refused and never pretended.
 */
#include <errno.h>

#include "daemon/local/api/rest.h"
#include "daemon/local/egress/netrule.h"
#include "proto/base/str.h"

static const char *const ingress[] = { "allowPublicTraffic", "maskRequestHost" };
static const char *const egress[] = { "allowOut", "denyOut", "egressProxy", "rules" };

static int put_fields(json_t *to, const json_t *from, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		json_t *v = json_object_get(from, names[i]);

		if (v && !json_is_null(v) && json_object_set(to, names[i], v) < 0)
			return -ENOMEM;
	}
	return 0;
}

static bool check(struct rest *r, const json_t *network, bool all, bool secure)
{
	struct netrule_fault f;
	bool has_egress;
	const char *out;

	if (!netrule_egress_ok(network, &f) || (all && !netrule_ingress_ok(network, secure, &f))) {
		if (f.schema)
			rest_invalid(r, "%s", f.text);
		else
			rest_fail(r, f.status, "%s", f.text);
		return false;
	}
	has_egress = engine_have_egress(state_opts(r->l->state)->engine);
	if (!has_egress && json_is_object(json_object_get(network, "egressProxy"))) {
		/* The cloud's status for a team without it. */
		rest_fail(r, 403, "egressProxy is not enabled (sandboxes of agentbox-local have no network "
				  "outside on this machine)");
		return false;
	}
	out = netrule_unsupported(network, has_egress);
	if (!out)
		return true;
	rest_unsupported(r, out);
	return false;
}

int rest_network(struct rest *r, const json_t *network, bool all, bool secure, json_t **ret)
{
	json_t *o;
	int e = 0;

	*ret = NULL;
	if (!network || json_is_null(network))
		return 0;
	if (!json_is_object(network)) {
		rest_invalid(r, "network must be an object");
		return -EINVAL;
	}
	if (!check(r, network, all, secure))
		return -EINVAL;
	o = json_object();
	e = o ? put_fields(o, network, egress, ARRAY_SIZE(egress)) : -ENOMEM;
	if (!e && all)
		e = put_fields(o, network, ingress, ARRAY_SIZE(ingress));
	if (e < 0) {
		json_decref(o);
		rest_fail(r, 500, "out of memory");
		return -EINVAL;
	}
	if (json_object_size(o))
		*ret = o;
	else
		json_decref(o);
	return 0;
}

/* Replaces what goes out; what comes in stays. */
void rest_set_network(struct rest *r)
{
	json_t *o = NULL, *now;
	struct sandbox *s;
	bool internet;
	int has = rest_bool(r, "allow_internet_access", &internet);

	if (has < 0 || rest_network(r, r->in, false, true, &o) < 0)
		return;
	s = rest_running(r);
	now = s ? json_object() : NULL;
	if (now && put_fields(now, s->network, ingress, ARRAY_SIZE(ingress)) == 0 &&
	    (!o || json_object_update(now, o) == 0) &&
	    sandbox_set_network(s, json_object_size(now) ? now : NULL, has && !internet) == 0) {
		if (has) {
			s->policy.has_internet = true;
			s->policy.internet = internet;
		}
		rest_limits(r, s->network, false);
		rest_reply(r, 204, NULL);
	} else if (s) {
		rest_fail(r, 500, "out of memory");
	}
	json_decref(now);
	json_decref(o);
}
