/* SPDX-License-Identifier: MIT */
/*
 * POST /sandboxes and /v2/sandboxes. The order of checks is the cloud's: reference, timeout,
 * auto-pause, then what this runtime does not have, then placement.
 */
#include <errno.h>
#include <string.h>

#include "daemon/local/api/rest.h"
#include "daemon/local/state/list.h"
#include "proto/base/str.h"

#define TIMEOUT_V1_S 15
#define TIMEOUT_V2_S 300

/* False after the call ended. */
static bool take_template(struct rest *r, struct sandbox_params *p)
{
	json_t *v = json_object_get(r->in, "templateID");
	struct template_build *build = NULL;
	struct template_ref ref;

	if (!json_is_string(v)) {
		rest_invalid(r, "request body has an error: property \"templateID\" is missing");
		return false;
	}
	if (template_ref_parse(json_string_value(v), &ref) < 0) {
		rest_fail(r, 400, "Invalid template reference");
		return false;
	}
	if (templates_find(state_templates(r->l->state), r->team, &ref, &p->template, &build) !=
	    TEMPLATE_FOUND) {
		rest_fail(r, 404, "template \"%s\" with tag \"%s\" not found", ref.name,
			  ref.tag[0] ? ref.tag : "default");
		return false;
	}
	p->root = build ? build->root : p->template->name;
	p->layer = build ? build->layer : NULL;
	if (engine_has_template(state_opts(r->l->state)->engine, p->root))
		return true;
	rest_fail(r, 400, "the template \"%s\" below this snapshot is not registered (--template)", p->root);
	return false;
}

/* Whether the caller's field asks for something: not absent, null, {} or []. */
static bool asks(const struct rest *r, const char *key)
{
	json_t *v = json_object_get(r->in, key);

	return v && !json_is_null(v) && !(json_is_object(v) && !json_object_size(v)) &&
	       !(json_is_array(v) && !json_array_size(v));
}

/* False after the call ended. */
static bool check_pause(struct rest *r, struct sandbox_policy *p)
{
	json_t *resume = json_object_get(r->in, "autoResume");

	p->auto_pause_memory = true;
	if (rest_bool(r, "autoPause", &p->auto_pause) < 0 ||
	    rest_bool(r, "autoPauseMemory", &p->auto_pause_memory) < 0)
		return false;
	if (resume && !json_is_null(resume) && !json_is_boolean(json_object_get(resume, "enabled"))) {
		rest_invalid(r, "autoResume must be {\"enabled\": true or false}");
		return false;
	}
	p->auto_resume = json_is_true(json_object_get(resume, "enabled"));
	if (!p->auto_pause_memory && !p->auto_pause)
		rest_fail(r, 400, "autoPauseMemory=false needs autoPause=true");
	else if (!p->auto_pause_memory && p->auto_resume)
		rest_fail(r, 400, "autoPauseMemory=false cannot be combined with autoResume");
	else
		return true;
	return false;
}

static bool check_unbuilt(struct rest *r)
{
	json_t *tokens = json_object_get(json_object_get(r->in, "iam"), "tokens");

	if (json_object_size(tokens))
		rest_unsupported(r, "iam");
	else if (asks(r, "mcp"))
		rest_unsupported(r, "mcp");
	else if (asks(r, "volumeMounts"))
		rest_unsupported(r, "volumeMounts");
	else
		return true;
	return false;
}

/* A variable's name must be able to be one. */
static bool check_env(struct rest *r, json_t *env)
{
	const char *key;
	json_t *v;

	json_object_foreach(env, key, v) {
		if (*key && !strchr(key, '='))
			continue;
		rest_invalid(r, "envVars: \"%.60s\" cannot be the name of a variable", key);
		return false;
	}
	return true;
}

static void on_created(void *user, struct sandbox *s, int e, const char *why)
{
	struct rest *r = user;

	if (!e) {
		str_copy(r->id, sizeof(r->id), s->id);
		rest_limits(r, s->network, s->template->team);
		rest_reply(r, 201, rest_sandbox_json(r, s));
	} else {
		rest_fail_code(r, 500, "sandbox_create_failed", "Failed to create sandbox: %s",
			       why ? why : "out of memory");
	}
}

static void place(struct rest *r, const struct sandbox_params *p)
{
	uint32_t max = state_opts(r->l->state)->max_sandboxes;
	int e = sandbox_create(r->l->state, p, on_created, r);

	if (!e)
		return;
	if (e == STATE_FULL)
		rest_fail(r, 429, "you have reached the maximum number of concurrent sandboxes (%u)",
			  max);
	else if (e == -ENOENT)
		rest_fail(r, 404, "template \"%s\" not found", p->template->name);
	else if (e == -EAGAIN)
		rest_fail_code(r, 503, "sandbox_capacity_unavailable",
			       "Failed to place sandbox: this machine has no room for another one");
	else
		rest_fail_code(r, 500, "sandbox_create_failed", "Failed to create sandbox: %s",
			       strerror(-e));
}

static bool take_policy(struct rest *r, bool v2, struct sandbox_params *p)
{
	int64_t timeout_s = v2 ? TIMEOUT_V2_S : TIMEOUT_V1_S;
	int has;

	if (rest_timeout_s(r, &timeout_s) < 0)
		return false;
	p->timeout_s = (uint32_t)timeout_s;
	if (!v2 && rest_bool(r, "secure", &p->policy.secure) < 0)
		return false;
	has = rest_bool(r, "allow_internet_access", &p->policy.internet);
	p->policy.has_internet = has > 0;
	p->policy.is_blocked = has > 0 && !p->policy.internet;
	return has >= 0 && rest_string_map(r, "metadata", &p->metadata) >= 0 &&
	       rest_string_map(r, "envVars", &p->env_vars) >= 0 && check_pause(r, &p->policy);
}

static void create(struct rest *r, bool v2)
{
	struct sandbox_params p = { .team = r->team, .policy = { .secure = v2 } };
	json_t *network = json_object_get(r->in, "network");

	if (!take_template(r, &p) || !take_policy(r, v2, &p) ||
	    rest_network(r, network, true, p.policy.secure, &p.network) < 0)
		return;
	p.policy.is_private = json_is_false(json_object_get(network, "allowPublicTraffic"));
	if (check_unbuilt(r) && check_env(r, p.env_vars))
		place(r, &p);
	json_decref(p.network);
}

void rest_create_v1(struct rest *r)
{
	create(r, false);
}

void rest_create_v2(struct rest *r)
{
	create(r, true);
}
