/* SPDX-License-Identifier: MIT */
/*
 * POST /sandboxes and /v2/sandboxes. The order of checks is the cloud's: reference, timeout,
 * auto-pause, then what this runtime does not have, then placement.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/local/list.h"
#include "daemon/local/rest.h"
#include "proto/base/str.h"

#define TIMEOUT_V1_S 15
#define TIMEOUT_V2_S 300

/* NULL after the call ended. */
static const struct state_template *take_template(struct rest *r)
{
	json_t *v = json_object_get(r->in, "templateID");
	const struct state_template *t;
	struct template_ref ref;

	if (!json_is_string(v)) {
		rest_invalid(r, "request body has an error: property \"templateID\" is missing");
		return NULL;
	}
	if (template_ref_parse(json_string_value(v), &ref) < 0) {
		rest_fail(r, 400, "Invalid template reference");
		return NULL;
	}
	t = state_template(r->l->state, ref.name);
	if (t && (!ref.space[0] || str_eq(ref.space, r->team)) &&
	    (!ref.tag[0] || str_eq(ref.tag, "default")))
		return t;
	rest_fail(r, 404, "template \"%s\" with tag \"%s\" not found", ref.name,
		  ref.tag[0] ? ref.tag : "default");
	return NULL;
}

/* Whether the caller's field asks for something: not absent, null, {} or []. */
static bool asks(const struct rest *r, const char *key)
{
	json_t *v = json_object_get(r->in, key);

	return v && !json_is_null(v) && !(json_is_object(v) && !json_object_size(v)) &&
	       !(json_is_array(v) && !json_array_size(v));
}

/* False after the call ended. */
static bool check_pause(struct rest *r)
{
	json_t *resume = json_object_get(r->in, "autoResume");
	bool pause = false, memory = true, wakes;

	if (rest_bool(r, "autoPause", &pause) < 0 || rest_bool(r, "autoPauseMemory", &memory) < 0)
		return false;
	if (resume && !json_is_null(resume) && !json_is_boolean(json_object_get(resume, "enabled"))) {
		rest_invalid(r, "autoResume must be {\"enabled\": true or false}");
		return false;
	}
	wakes = json_is_true(json_object_get(resume, "enabled"));
	if (!memory && !pause)
		rest_fail(r, 400, "autoPauseMemory=false needs autoPause=true");
	else if (!memory && wakes)
		rest_fail(r, 400, "autoPauseMemory=false cannot be combined with autoResume");
	else if (pause)
		rest_unsupported(r, "autoPause");
	else if (wakes)
		rest_unsupported(r, "autoResume");
	else
		return true;
	return false;
}

static bool check_network(struct rest *r, bool secure)
{
	json_t *network = json_object_get(r->in, "network"), *v;
	const char *key;
	char what[80];

	if (network && !json_is_null(network) && !json_is_object(network)) {
		rest_invalid(r, "network must be an object");
		return false;
	}
	if (json_is_false(json_object_get(network, "allowPublicTraffic")) && !secure) {
		rest_fail(r, 400, "allowPublicTraffic=false needs secure=true");
		return false;
	}
	json_object_foreach(network, key, v) {
		if (json_is_null(v) || (str_eq(key, "allowPublicTraffic") && json_is_true(v)))
			continue;
		snprintf(what, sizeof(what), "network.%.60s", key);
		rest_unsupported(r, what);
		return false;
	}
	return true;
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

static void on_created(void *user, struct sbox *s, int e, const char *why)
{
	struct rest *r = user;

	if (!e) {
		str_copy(r->id, sizeof(r->id), s->id);
		/* What the cloud would give and this machine cannot. */
		if (fields_put(&r->extra, "x-agentbox-local-limits", "no-internet") < 0)
			e = -ENOMEM;
	}
	if (!e)
		rest_reply(r, 201, rest_sandbox_json(r, s));
	else
		rest_fail_code(r, 500, "sandbox_create_failed", "Failed to create sandbox: %s",
			       why ? why : "out of memory");
}

static void place(struct rest *r, const struct sbox_params *p)
{
	uint32_t max = state_opts(r->l->state)->max_sandboxes;
	struct sbox *s;
	int e = sbox_create(r->l->state, p, on_created, r, &s);

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

static void create(struct rest *r, bool v2)
{
	struct sbox_params p = { .team = r->team, .secure = v2 };
	int64_t timeout_s = v2 ? TIMEOUT_V2_S : TIMEOUT_V1_S;
	uint32_t max_s = state_opts(r->l->state)->max_length_s;
	int has;

	p.template = take_template(r);
	if (!p.template)
		return;
	has = rest_int(r, "timeout", 0, INT32_MAX, &timeout_s);
	if (has < 0)
		return;
	if (!timeout_s || timeout_s > max_s) {
		rest_fail(r, 400, timeout_s ? "Timeout cannot be greater than %u seconds"
					    : "Timeout must be between 1 and %u seconds",
			  max_s);
		return;
	}
	p.timeout_s = (uint32_t)timeout_s;
	if (!v2 && rest_bool(r, "secure", &p.secure) < 0)
		return;
	has = rest_bool(r, "allow_internet_access", &p.internet);
	if (has < 0)
		return;
	p.has_internet = has > 0;
	if (rest_string_map(r, "metadata", &p.metadata) < 0 ||
	    rest_string_map(r, "envVars", &p.env_vars) < 0)
		return;
	if (!check_pause(r) || !check_network(r, p.secure) || !check_unbuilt(r) ||
	    !check_env(r, p.env_vars))
		return;
	place(r, &p);
}

void rest_create_v1(struct rest *r)
{
	create(r, false);
}

void rest_create_v2(struct rest *r)
{
	create(r, true);
}
