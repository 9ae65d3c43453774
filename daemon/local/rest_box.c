/* SPDX-License-Identifier: MIT */
/* Calls on one sandbox, and the objects of the contract that describe one. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/local/reply.h"
#include "daemon/local/rest.h"
#include "proto/base/str.h"

#define REFRESH_MIN_S	 15
#define REFRESH_MAX_S	 3600
#define CONNECT_V2_S	 300
#define DISK_MB		 10240	/* shown; the space is the machine's */
#define MEMORY_MIN_MB	 128	/* of the contract's schema */

/* --- objects --- */

static json_t *domain_json(const struct rest *r)
{
	return r->l->domain ? json_string(r->l->domain) : json_null();
}

json_t *rest_sandbox_json(const struct rest *r, const struct sbox *s)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:n, s:o}", "templateID", s->template->id,
			      "alias", s->template->name, "sandboxID", s->id, "clientID",
			      STATE_CLIENT_ID, "envdVersion", STATE_ENVD_VERSION,
			      "trafficAccessToken", "domain", domain_json(r));

	if (o && s->secure)
		(void)json_object_set_new(o, "envdAccessToken", json_string(s->token));
	return o;
}

json_t *rest_listed_json(const struct sbox *s)
{
	uint64_t memory_mb = state_opts(s->st)->memory_bytes / (1024 * 1024);
	uint32_t cpus = state_opts(s->st)->cpus;
	char started[40], ends[40];

	str_rfc3339(s->started_us, 6, started);
	str_rfc3339(s->end_us, 6, ends);
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:O, s:[]}",
			 "templateID", s->template->id, "alias", s->template->name, "sandboxID",
			 s->id, "clientID", STATE_CLIENT_ID, "startedAt", started, "endAt", ends,
			 "envdVersion", STATE_ENVD_VERSION, "cpuCount", (int)MAX(cpus, 1u),
			 "memoryMB", (int)MAX(memory_mb, (uint64_t)MEMORY_MIN_MB), "diskSizeMB",
			 DISK_MB, "state", "running", "metadata", s->metadata, "volumeMounts");
}

json_t *rest_detail_json(const struct rest *r, const struct sbox *s)
{
	json_t *o = rest_listed_json(s), *life;

	if (!o)
		return NULL;
	life = json_pack("{s:b, s:s}", "autoResume", 0, "onTimeout", "kill");
	if (json_object_set_new(o, "domain", domain_json(r)) < 0 ||
	    json_object_set_new(o, "lifecycle", life) < 0 ||
	    json_object_set_new(o, "allowInternetAccess",
				s->has_internet ? json_boolean(s->internet) : json_null()) < 0 ||
	    (s->secure &&
	     json_object_set_new(o, "envdAccessToken", json_string(s->token)) < 0)) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* --- calls --- */

void rest_health(struct rest *r)
{
	struct http_x *x = give(r->x);

	reply_text(x, 200, "Health check successful");
	rest_reply(r, 200, NULL);
}

void rest_get(struct rest *r)
{
	struct sbox *s = rest_sandbox(r);

	if (s)
		rest_reply(r, 200, rest_detail_json(r, s));
}

static void on_killed(struct kill_wait *w)
{
	rest_reply(container_of(w, struct rest, wait), 204, NULL);
}

void rest_delete(struct rest *r)
{
	struct sbox *s = state_find(r->l->state, r->id);

	/* One that is being killed already is joined. */
	if (!s || s->team != r->team || s->state == SBOX_CREATING) {
		(void)rest_sandbox(r);
		return;
	}
	r->wait.done = on_killed;
	sbox_kill(s, "deleted", &r->wait);
}

void rest_timeout(struct rest *r)
{
	struct sbox *s;
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
	sbox_set_timeout(s, (uint64_t)timeout_s * 1000);
	rest_reply(r, 204, NULL);
}

void rest_refreshes(struct rest *r)
{
	struct sbox *s;
	int64_t duration_s = REFRESH_MIN_S;

	if (rest_int(r, "duration", 0, REFRESH_MAX_S, &duration_s) < 0)
		return;
	s = rest_running(r);
	if (!s)
		return;
	sbox_extend(s, (uint64_t)MAX(duration_s, (int64_t)REFRESH_MIN_S) * 1000);
	rest_reply(r, 204, NULL);
}

static void connect_for(struct rest *r, int64_t timeout_s)
{
	uint32_t max_s = state_opts(r->l->state)->max_length_s;
	bool memory = true;
	struct sbox *s;

	if (rest_bool(r, "memory", &memory) < 0)
		return;
	if (timeout_s > max_s) {
		rest_fail(r, 400, "Timeout cannot be greater than %u seconds", max_s);
		return;
	}
	s = rest_running(r);
	if (!s)
		return;
	sbox_extend(s, (uint64_t)timeout_s * 1000);
	rest_reply(r, 200, rest_sandbox_json(r, s));
}

void rest_connect_v1(struct rest *r)
{
	int64_t timeout_s;
	int has = rest_int(r, "timeout", 0, INT32_MAX, &timeout_s);

	if (has > 0)
		connect_for(r, timeout_s);
	else if (!has)
		rest_invalid(r, "request body has an error: property \"timeout\" is missing");
}

void rest_connect_v2(struct rest *r)
{
	int64_t timeout_s = CONNECT_V2_S;

	if (rest_int(r, "timeout", 0, INT32_MAX, &timeout_s) >= 0)
		connect_for(r, timeout_s);
}

/* Nothing here is ever paused. */
void rest_resume(struct rest *r)
{
	struct sbox *s = rest_sandbox(r);

	if (s)
		rest_fail(r, 409, "Sandbox %s is already running", s->id);
}
