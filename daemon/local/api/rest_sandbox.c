/* SPDX-License-Identifier: MIT */
/* Calls on one sandbox, and the objects of the contract that describe one. */
#include <string.h>
#include <unistd.h>

#include "daemon/common/http/reply.h"
#include "daemon/local/api/rest.h"
#include "proto/base/str.h"

#define REFRESH_MIN_S	 15
#define MEMORY_MIN_MB	 128	/* of the contract's schema */

/* --- what is told of one --- */

enum cloud_state rest_state(const struct sandbox *s)
{
	switch (s->state) {
	case SANDBOX_RUNNING:
		return s->is_served ? CLOUD_STATE_UNKNOWN : CLOUD_STATE_RUNNING;
	case SANDBOX_PAUSING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
		return CLOUD_STATE_PAUSED;
	default:
		return CLOUD_STATE_UNKNOWN;
	}
}

unsigned rest_listed_part(const struct sandbox *s)
{
	return CLOUD_LISTED | (s->state == SANDBOX_PAUSED ? 0 : CLOUD_LIVE);
}

uint32_t rest_cpu_count(const struct state *st)
{
	return container_cpus(state_opts(st)->cpus);
}

uint32_t rest_memory_mb(const struct state *st)
{
	uint64_t mb = container_memory_bytes(state_opts(st)->memory_bytes) >> 20;

	return (uint32_t)MIN(MAX(mb, (uint64_t)MEMORY_MIN_MB), (uint64_t)INT32_MAX);
}

void rest_view(const struct rest *r, const struct sandbox *s, struct cloud_sandbox *ret)
{
	enum cloud_state state = rest_state(s);

	*ret = (struct cloud_sandbox){
		.template_id = s->template->id,
		.alias = s->template->name,
		.id = (char *)s->id,
		.envd_version = (char *)STATE_ENVD_VERSION,
		.envd_access_token = s->policy.secure ? (char *)s->token : NULL,
		.traffic_access_token = s->policy.is_private ? (char *)s->traffic_token : NULL,
		.domain = s->state == SANDBOX_PAUSED ? NULL : (char *)r->l->domain,
		.started_at_ms = s->started_us / 1000,
		.end_at_ms = s->end_us / 1000,
		.cpu_count = rest_cpu_count(s->st),
		.memory_mb = rest_memory_mb(s->st),
		.disk_size_mb = REST_DISK_MB,
		.state = state ? state : CLOUD_STATE_RUNNING,
		.metadata = s->metadata,
		.lifecycle = {.pause = tri_of(s->policy.auto_pause),
			      .auto_resume = tri_of(s->policy.auto_resume)},
		.allow_internet_access =
			s->policy.has_internet ? tri_of(s->policy.internet) : TRI_UNSET,
		.network = s->network,
	};
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

	struct cloud_sandbox view;

	if (!s)
		return;
	rest_view(r, s, &view);
	rest_reply_doc(r, 200, CLOUD_DOC_SANDBOX, &view, rest_listed_part(s) | CLOUD_DETAIL);
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
	struct cloud_connect body = { .timeout_s = UINT32_MAX };
	struct sandbox *s;

	if (!rest_take(r, CLOUD_DOC_CONNECT, &body))
		return;
	if (body.timeout_s == UINT32_MAX) {
		rest_invalid(r, "request body has an error: timeout is missing");
		return;
	}
	s = rest_running(r);
	if (!s)
		return;
	sandbox_set_timeout(s, (uint64_t)body.timeout_s * 1000);
	rest_reply(r, 204, NULL);
}

void rest_refreshes(struct rest *r)
{
	struct cloud_refresh body = { .duration_s = REFRESH_MIN_S };
	struct sandbox *s;

	if (!rest_take(r, CLOUD_DOC_REFRESH, &body))
		return;
	s = rest_running(r);
	if (!s)
		return;
	sandbox_extend(s, (uint64_t)MAX(body.duration_s, (uint32_t)REFRESH_MIN_S) * 1000);
	rest_reply(r, 204, NULL);
}
