/* SPDX-License-Identifier: MIT */
/*
 * POST /sandboxes and /v2/sandboxes. The order of checks is the cloud's: reference, timeout,
 * auto-pause, then what this runtime does not have, then placement.
 */
#include <errno.h>
#include <string.h>

#include "daemon/local/api/rest.h"
#include "proto/base/str.h"
#include "proto/cloud/error.h"
#include "proto/cloud/list.h"

#define TIMEOUT_V1_S 15
#define TIMEOUT_V2_S 300

/* False after the call ended. */
static bool take_template(struct rest *r, const char *id, struct sandbox_params *p)
{
	struct template_build *build = NULL;
	struct template_ref ref;

	if (template_ref_parse(id, &ref) < 0) {
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

/* False after the call ended. */
static bool check_pause(struct rest *r, const struct cloud_lifecycle *l)
{
	const char *fault = cloud_lifecycle_fault(l);

	if (fault)
		rest_fail(r, 400, "%s", fault);
	return !fault;
}

static bool check_unbuilt(struct rest *r, const struct cloud_create *c)
{
	if (c->n_iam_tokens)
		rest_unsupported(r, "iam");
	else if (c->asks_volumes)
		rest_unsupported(r, "volumeMounts");
	else
		return true;
	return false;
}

/* A variable's name must be able to be one. */
static bool check_env(struct rest *r, const struct cloud_kvs *env)
{
	for (size_t i = 0; i < env->n; i++) {
		const char *key = env->v[i].key;

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
	struct cloud_sandbox view;

	if (!e) {
		str_copy(r->id, sizeof(r->id), s->id);
		rest_limits(r, s->network, s->template->team);
		rest_view(r, s, &view);
		rest_reply_doc(r, 201, CLOUD_DOC_SANDBOX, &view, CLOUD_CREATED);
	} else {
		rest_fail_code(r, 500, CLOUD_ERROR_CREATE_FAILED, "Failed to create sandbox: %s",
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
		rest_fail_code(r, 503, CLOUD_ERROR_CAPACITY,
			       "Failed to place sandbox: this machine has no room for another one");
	else
		rest_fail_code(r, 500, CLOUD_ERROR_CREATE_FAILED, "Failed to create sandbox: %s",
			       strerror(-e));
}

static struct sandbox_policy policy_of(const struct cloud_create *c)
{
	return (struct sandbox_policy){
		.secure = c->secure == TRI_TRUE,
		.has_internet = c->allow_internet_access != TRI_UNSET,
		.internet = c->allow_internet_access == TRI_TRUE,
		.is_blocked = c->allow_internet_access == TRI_FALSE,
		.auto_pause = c->lifecycle.pause == TRI_TRUE,
		.auto_pause_memory = c->lifecycle.keep_memory != TRI_FALSE,
		.auto_resume = c->lifecycle.auto_resume == TRI_TRUE,
		.is_private = c->network && c->network->allow_public_traffic == TRI_FALSE,
	};
}

static void create_as(struct rest *r, const struct cloud_create *c)
{
	struct sandbox_params p = { .team = r->team, .timeout_s = c->timeout_s, .policy = policy_of(c),
				    .metadata = c->metadata, .env_vars = c->envs, .network = c->network };
	struct netrules_with with = { .secure = tri_of(p.policy.secure) };

	if (take_template(r, c->template_id, &p) && rest_timeout_ok(r, c->timeout_s) && check_pause(r, &c->lifecycle) &&
	    (!c->network || rest_network_ok(r, c->network, &with)) && check_unbuilt(r, c) && check_env(r, &c->envs))
		place(r, &p);
}

void rest_create_v1(struct rest *r)
{
	struct cloud_create c = { .timeout_s = TIMEOUT_V1_S };

	if (!rest_take(r, CLOUD_DOC_CREATE, &c))
		return;
	create_as(r, &c);
	cloud_create_fini(&c);
}

/* Always secure. */
void rest_create_v2(struct rest *r)
{
	struct cloud_create c = { .timeout_s = TIMEOUT_V2_S };

	if (!rest_take(r, CLOUD_DOC_CREATE, &c))
		return;
	c.secure = TRI_TRUE;
	create_as(r, &c);
	cloud_create_fini(&c);
}
