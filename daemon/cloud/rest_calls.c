/* SPDX-License-Identifier: MIT */
/* The calls of the control plane: method, path and body of each. What happens to them is in rest.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/json.h"
#include "daemon/cloud/rest.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define REFRESH_MAX_S 3600u

/* Goes on with a call whose body may not have been made (r < 0). */
static struct cloud_call *or_not_utf8(struct cloud_call *call, int r, const char *id)
{
	if (!call || r >= 0)
		return call_begin(call, id);
	call->result.outcome = CLOUD_REFUSED;
	status_set(&call->result.status, R_FIELD_INVALID, "a text of the request is not valid UTF-8");
	call_over(call);
	return call;
}

/* Takes `body`. Not begun yet. */
static struct cloud_call *with_body(struct cloud *c, enum fault_op op, const char *method, const char *id,
				    const char *suffix, char *body, size_t n,
				    const struct cloud_ask *ask)
{
	char *route = str_printf("/sandboxes/{id}%s", suffix);
	struct cloud_call *call;

	if (!route) {
		free(body);
		return NULL;
	}
	call = call_new(c, op, method, str_printf("/sandboxes/%s%s", id, suffix), route, body, n, ask);
	free(route);
	return call;
}

struct cloud_call *cloud_create(struct cloud *c, const struct cloud_create *what,
				const struct cloud_ask *ask)
{
	char *body = NULL;
	size_t n = 0;
	int r = json_create(what, &body, &n);
	struct cloud_call *call = call_new(c, FAULT_CREATE, "POST", str_dup("/sandboxes"), "/sandboxes",
					   body, n, ask);

	return or_not_utf8(call, r, NULL);
}

static struct cloud_call *sandbox_call(struct cloud *c, enum fault_op op, const char *method,
				       const char *id, const char *suffix, const char *key,
				       uint32_t value, const struct cloud_ask *ask)
{
	char *body = NULL;
	size_t n = 0;
	struct cloud_call *call = NULL;

	if (!key || json_number(key, value, &body, &n) == 0)
		call = with_body(c, op, method, id, suffix, body, n, ask);
	return call_begin(call, id);
}

struct cloud_call *cloud_connect(struct cloud *c, const char *id, uint32_t timeout_s,
				 const struct cloud_ask *ask)
{
	must(timeout_s > 0);
	return sandbox_call(c, FAULT_CONNECT, "POST", id, "/connect", "timeout", timeout_s, ask);
}

struct cloud_call *cloud_get(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return sandbox_call(c, FAULT_GET, "GET", id, "", NULL, 0, ask);
}

struct cloud_call *cloud_kill(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return sandbox_call(c, FAULT_KILL, "DELETE", id, "", NULL, 0, ask);
}

struct cloud_call *cloud_set_timeout(struct cloud *c, const char *id, uint32_t timeout_s,
				     const struct cloud_ask *ask)
{
	must(timeout_s > 0);
	return sandbox_call(c, FAULT_TIMEOUT, "POST", id, "/timeout", "timeout", timeout_s, ask);
}

struct cloud_call *cloud_refresh(struct cloud *c, const char *id, uint32_t for_s,
				 const struct cloud_ask *ask)
{
	return sandbox_call(c, FAULT_REFRESH, "POST", id, "/refreshes", "duration",
			    MIN(for_s, REFRESH_MAX_S), ask);
}

/* Pairs are coded twice, joined, and the whole once more (CLOUD-WIRE §3.4). */
static char *filter_metadata(const struct cloud_kv *v, size_t n)
{
	char *all = str_dup("");

	for (size_t i = 0; all && i < n; i++) {
		char *k1 = str_percent_encode(v[i].key, strlen(v[i].key));
		char *k2 = k1 ? str_percent_encode(k1, strlen(k1)) : NULL;
		char *v1 = str_percent_encode(v[i].value, strlen(v[i].value));
		char *v2 = v1 ? str_percent_encode(v1, strlen(v1)) : NULL;
		char *next = k2 && v2 ? str_printf("%s%s%s=%s", all, i ? "&" : "", k2, v2) : NULL;

		free(k1);
		free(k2);
		free(v1);
		free(v2);
		free(all);
		all = next;
	}
	if (all) {
		char *coded = str_percent_encode(all, strlen(all));

		free(all);
		all = coded;
	}
	return all;
}

static char *list_query(const struct cloud_filter *f)
{
	uint32_t limit = f->limit ? MIN(f->limit, 100u) : 100;
	const char *state = f->running == f->paused ? "" : f->running ? "&state=running" : "&state=paused";
	char *meta = f->n_metadata ? filter_metadata(f->metadata, f->n_metadata) : str_dup("");
	char *q = meta ? str_printf("/v2/sandboxes?limit=%u%s%s%s", limit, state,
				    f->n_metadata ? "&metadata=" : "", meta) : NULL;

	free(meta);
	return q;
}

static struct cloud_call *list_call(struct cloud *c, const struct cloud_filter *f, bool all,
				    const struct cloud_ask *ask)
{
	struct cloud_call *call = call_new(c, FAULT_LIST, "GET", list_query(f), "/v2/sandboxes", NULL, 0, ask);

	if (!call)
		return NULL;
	call->all_pages = all;
	call->query = str_dup(call->path);
	call->list = calloc(1, sizeof(*call->list));
	if (!call->query || !call->list || (!all && f->token && call_set_page(call, f->token) < 0)) {
		call_free(call);
		return NULL;
	}
	call->list->total_running = -1;
	return call_begin(call, NULL);
}

struct cloud_call *cloud_list_page(struct cloud *c, const struct cloud_filter *f,
				   const struct cloud_ask *ask)
{
	return list_call(c, f, false, ask);
}

struct cloud_call *cloud_list_all(struct cloud *c, const struct cloud_filter *f,
				  const struct cloud_ask *ask)
{
	return list_call(c, f, true, ask);
}

/* --- changes of a sandbox --- */

struct cloud_call *cloud_pause(struct cloud *c, const char *id, bool keep_memory,
			       const struct cloud_ask *ask)
{
	char *body = NULL;
	size_t n = 0;

	if (json_pause(keep_memory, &body, &n) < 0)
		return NULL;
	return call_begin(with_body(c, FAULT_PAUSE, "POST", id, "/pause", body, n, ask), id);
}

struct cloud_call *cloud_put_network(struct cloud *c, const char *id, const struct cloud_network *network,
				     enum tri allow_internet_access, const struct cloud_ask *ask)
{
	char *body = NULL;
	size_t n = 0;
	int r = json_network(network, allow_internet_access, &body, &n);

	return or_not_utf8(with_body(c, FAULT_NETWORK, "PUT", id, "/network", body, n, ask), r, id);
}

/* --- copies --- */

struct cloud_call *cloud_fork(struct cloud *c, const char *id, uint32_t count, uint32_t timeout_s,
			      const struct cloud_ask *ask)
{
	char *body = NULL;
	size_t n = 0;

	must(count > 0 && timeout_s > 0);
	if (json_fork(count, timeout_s, &body, &n) < 0)
		return NULL;
	return call_begin(with_body(c, FAULT_FORK, "POST", id, "/fork", body, n, ask), id);
}

struct cloud_call *cloud_snapshot(struct cloud *c, const char *id, const char *name,
				  const struct cloud_ask *ask)
{
	char *body = NULL;
	size_t n = 0;
	int r = json_snapshot_name(name, &body, &n);

	return or_not_utf8(with_body(c, FAULT_SNAPSHOT, "POST", id, "/snapshots", body, n, ask), r, id);
}

static char *snapshot_query(const char *sandbox, const char *name)
{
	char *coded = str_is_empty(name) ? str_dup("") : str_percent_encode(name, strlen(name));
	char *q = coded ? str_printf("/snapshots?limit=100%s%s%s%s",
				     str_is_empty(sandbox) ? "" : "&sandboxID=",
				     str_is_empty(sandbox) ? "" : sandbox,
				     str_is_empty(name) ? "" : "&name=", coded)
			: NULL;

	free(coded);
	return q;
}

struct cloud_call *cloud_snapshots(struct cloud *c, const char *sandbox, const char *name,
				   const struct cloud_ask *ask)
{
	struct cloud_call *call = call_new(c, FAULT_SNAPSHOTS, "GET", snapshot_query(sandbox, name),
					   "/snapshots", NULL, 0, ask);

	if (!call)
		return NULL;
	call->all_pages = true;
	call->query = str_dup(call->path);
	call->snapshots = calloc(1, sizeof(*call->snapshots));
	if (!call->query || !call->snapshots) {
		call_free(call);
		return NULL;
	}
	return call_begin(call, str_is_empty(sandbox) ? NULL : sandbox);
}

struct cloud_call *cloud_snapshot_delete(struct cloud *c, const char *snapshot, const struct cloud_ask *ask)
{
	char *coded = str_percent_encode(snapshot, strlen(snapshot));
	char *path = coded ? str_printf("/templates/%s", coded) : NULL;

	free(coded);
	return call_begin(call_new(c, FAULT_SNAPSHOT_DELETE, "DELETE", path, "/templates/{id}", NULL, 0, ask),
			  NULL);
}

/* --- metrics --- */

struct cloud_call *cloud_metrics(struct cloud *c, const char *id, int64_t start_s, int64_t end_s,
				 const struct cloud_ask *ask)
{
	char start[40] = "", end[40] = "";

	if (start_s > 0)
		snprintf(start, sizeof(start), "?start=%lld", (long long)start_s);
	if (end_s > 0)
		snprintf(end, sizeof(end), "%cend=%lld", *start ? '&' : '?', (long long)end_s);
	return call_begin(call_new(c, FAULT_METRICS, "GET",
				   str_printf("/sandboxes/%s/metrics%s%s", id, start, end),
				   "/sandboxes/{id}/metrics", NULL, 0, ask), id);
}
