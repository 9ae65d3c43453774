/* SPDX-License-Identifier: MIT */
/* Calls on one sandbox, and the objects of the contract that describe one. */
#include <string.h>
#include <unistd.h>

#include "daemon/local/api/rest.h"
#include "daemon/local/http/reply.h"
#include "proto/base/str.h"

#define REFRESH_MIN_S	 15
#define REFRESH_MAX_S	 3600
#define DISK_MB		 10240	/* shown; the space is the machine's */
#define MEMORY_MIN_MB	 128	/* of the contract's schema */

/* --- objects --- */

static json_t *domain_json(const struct rest *r)
{
	return r->l->domain ? json_string(r->l->domain) : json_null();
}

json_t *rest_sandbox_json(const struct rest *r, const struct sandbox *s)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?, s:o}", "templateID", s->template->id,
			      "alias", s->template->name, "sandboxID", s->id, "clientID",
			      STATE_CLIENT_ID, "envdVersion", STATE_ENVD_VERSION,
			      "trafficAccessToken", s->policy.is_private ? s->traffic_token : NULL,
			      "domain", domain_json(r));

	if (o && s->policy.secure)
		(void)json_object_set_new(o, "envdAccessToken", json_string(s->token));
	return o;
}

const char *rest_state_name(const struct sandbox *s)
{
	switch (s->state) {
	case SANDBOX_RUNNING:
		return "running";
	case SANDBOX_PAUSING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
		return "paused";
	default:
		return NULL;
	}
}

json_t *rest_listed_json(const struct sandbox *s)
{
	uint64_t memory_mb = state_opts(s->st)->memory_bytes / (1024 * 1024);
	uint32_t cpus = state_opts(s->st)->cpus;
	const char *state = rest_state_name(s);
	char started[40], ends[40];
	json_t *o;

	str_rfc3339(s->started_us, 6, started);
	str_rfc3339(s->end_us, 6, ends);
	o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:O}",
			 "templateID", s->template->id, "alias", s->template->name, "sandboxID",
			 s->id, "clientID", STATE_CLIENT_ID, "startedAt", started, "endAt", ends,
			 "envdVersion", STATE_ENVD_VERSION, "cpuCount", (int)MAX(cpus, 1u),
			 "memoryMB", (int)MAX(memory_mb, (uint64_t)MEMORY_MIN_MB), "diskSizeMB",
			 DISK_MB, "state", state ? state : "running", "metadata", s->metadata);
	if (o && s->state != SANDBOX_PAUSED)
		(void)json_object_set_new(o, "volumeMounts", json_array());
	return o;
}

/* The password stays here. */
static json_t *shown_network(const json_t *network)
{
	json_t *o = json_copy((json_t *)network);
	json_t *proxy = json_copy(json_object_get(network, "egressProxy"));

	if (!proxy)
		return o;
	(void)json_object_del(proxy, "password");
	if (o && json_object_set_new(o, "egressProxy", proxy) == 0)
		return o;
	json_decref(o);
	return NULL;
}

json_t *rest_detail_json(const struct rest *r, const struct sandbox *s)
{
	json_t *o = rest_listed_json(s), *life;

	if (!o)
		return NULL;
	life = json_pack("{s:b, s:s}", "autoResume", s->policy.auto_resume, "onTimeout",
			 s->policy.auto_pause ? "pause" : "kill");
	if (json_object_set_new(o, "domain",
				s->state == SANDBOX_PAUSED ? json_null() : domain_json(r)) < 0 ||
	    json_object_set_new(o, "lifecycle", life) < 0 ||
	    json_object_set_new(o, "allowInternetAccess",
				s->policy.has_internet ? json_boolean(s->policy.internet)
						       : json_null()) < 0 ||
	    (s->network && json_object_set_new(o, "network", shown_network(s->network)) < 0) ||
	    (s->policy.secure &&
	     json_object_set_new(o, "envdAccessToken", json_string(s->token)) < 0)) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* --- calls --- */

void rest_health(struct rest *r)
{
	struct http_stream *x = give(r->x);

	reply_text(x, 200, "Health check successful");
	rest_reply(r, 200, NULL);
}

void rest_get(struct rest *r)
{
	struct sandbox *s = rest_sandbox(r);

	if (s)
		rest_reply(r, 200, rest_detail_json(r, s));
}

static void on_killed(struct sandbox_wait *w)
{
	rest_reply(container_of(w, struct rest, wait), 204, NULL);
}

void rest_delete(struct rest *r)
{
	struct sandbox *s = rest_find(r);

	if (!s) {
		rest_no_sandbox(r);
	} else if (s->state == SANDBOX_PAUSING || s->state == SANDBOX_RESUMING ||
		   s->state == SANDBOX_SNAPSHOTTING) {
		rest_wait(r, s);
	} else { /* one that is being killed already is joined */
		r->wait.done = on_killed;
		sandbox_kill(s, "deleted", &r->wait);
	}
}

void rest_timeout(struct rest *r)
{
	struct sandbox *s;
	int64_t timeout_s;
	int has = rest_int(r, "timeout", 0, INT32_MAX, &timeout_s);

	if (has < 0)
		return;
	if (!has) {
		rest_invalid(r, "request body has an error: property \"timeout\" is missing");
		return;
	}
	s = rest_running(r);
	if (!s)
		return;
	sandbox_set_timeout(s, (uint64_t)timeout_s * 1000);
	rest_reply(r, 204, NULL);
}

void rest_refreshes(struct rest *r)
{
	struct sandbox *s;
	int64_t duration_s = REFRESH_MIN_S;

	if (rest_int(r, "duration", 0, REFRESH_MAX_S, &duration_s) < 0)
		return;
	s = rest_running(r);
	if (!s)
		return;
	sandbox_extend(s, (uint64_t)MAX(duration_s, (int64_t)REFRESH_MIN_S) * 1000);
	rest_reply(r, 204, NULL);
}
