/* SPDX-License-Identifier: MIT */
/* The calls of the control plane: method, path and body of each. What happens to them is in rest.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/rest.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/json.h"
#include "proto/cloud/list.h"
#include "proto/cloud/route.h"

#define REFRESH_MAX_S	 3600u
#define ENV_SECRET_BYTES 16u	/* a shorter value of a variable is a word that a message needs as often as a secret */

/* One call: its route, the sandbox or template in the path, its body. */
struct request {
	enum fault_op op;
	enum cloud_route route;
	const char *id;			/* in the path; NULL = none */
	bool of_template;		/* `id` is not a sandbox's */
	enum cloud_doc_id doc;
	const void *body;		/* by doc; NULL = none */
	const struct cloud_network *network;	/* part of the body, for the secrets in it; NULL = none */
	const struct cloud_kvs *envs;
};

static int add_values(struct cloud_strs *to, const struct cloud_kvs *from, size_t least_bytes)
{
	int r = 0;

	for (size_t i = 0; from && i < from->n && !r; i++)
		if (strlen(from->v[i].value) >= least_bytes)
			r = cloud_strs_add(to, from->v[i].value);
	return r;
}

/* What the caller sends that nobody but the sandbox and its peers is to see. */
static int note_secrets(struct cloud_call *c, const struct request *q)
{
	int r = add_values(&c->secrets, q->envs, ENV_SECRET_BYTES);

	if (!r && q->network && q->network->egress_password)
		r = cloud_strs_add(&c->secrets, q->network->egress_password);
	for (size_t i = 0; q->network && i < q->network->n_rules && !r; i++)
		r = add_values(&c->secrets, &q->network->rules[i].headers, 1);
	return r;
}

/* NULL only without memory. A body that cannot be made is refused before anything is sent. */
static struct cloud_call *request(struct cloud *c, const struct request *q, const struct cloud_ask *ask)
{
	const char *sandbox = q->of_template ? NULL : q->id;
	struct cloud_call *call;
	char *body = NULL;
	int r = 0;

	if (q->body)
		body = cloud_json_text(q->doc, q->body, c->flavour, CLOUD_EGRESS | CLOUD_INGRESS | CLOUD_PASSWORD, &r);
	if (r == -ENOMEM)
		return NULL;
	call = call_new(c, q->op, q->route, cloud_route_path(q->route, q->id), body, ask);
	if (call && note_secrets(call, q) < 0) {
		call_free(call);
		return NULL;
	}
	if (!call || r >= 0)
		return call_begin(call, sandbox);
	call->result.outcome = CLOUD_REFUSED;
	status_set(&call->result.status, R_FIELD_INVALID, "a text of the request is not valid UTF-8");
	call_over(call);
	return call;
}

struct cloud_call *cloud_create(struct cloud *c, const struct cloud_create *what,
				const struct cloud_ask *ask)
{
	struct cloud_create full = *what;

	/* Older clouds have other defaults than newer ones: both are always said. */
	if (full.secure == TRI_UNSET)
		full.secure = TRI_TRUE;
	if (full.allow_internet_access == TRI_UNSET)
		full.allow_internet_access = TRI_TRUE;
	return request(c, &(struct request){ FAULT_CREATE, CLOUD_ROUTE_CREATE, .doc = CLOUD_DOC_CREATE, .body = &full,
					     .network = full.network, .envs = &full.envs }, ask);
}

struct cloud_call *cloud_connect(struct cloud *c, const char *id, uint32_t timeout_s,
				 const struct cloud_ask *ask)
{
	struct cloud_connect body = { .timeout_s = timeout_s };

	must(timeout_s > 0);
	return request(c, &(struct request){ FAULT_CONNECT, CLOUD_ROUTE_CONNECT, id, .doc = CLOUD_DOC_CONNECT,
					     .body = &body }, ask);
}

struct cloud_call *cloud_get(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return request(c, &(struct request){ FAULT_GET, CLOUD_ROUTE_GET, id }, ask);
}

struct cloud_call *cloud_kill(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return request(c, &(struct request){ FAULT_KILL, CLOUD_ROUTE_DELETE, id }, ask);
}

struct cloud_call *cloud_set_timeout(struct cloud *c, const char *id, uint32_t timeout_s,
				     const struct cloud_ask *ask)
{
	struct cloud_connect body = { .timeout_s = timeout_s };

	return request(c, &(struct request){ FAULT_TIMEOUT, CLOUD_ROUTE_TIMEOUT, id, .doc = CLOUD_DOC_CONNECT,
					     .body = &body }, ask);
}

struct cloud_call *cloud_refresh(struct cloud *c, const char *id, uint32_t for_s,
				 const struct cloud_ask *ask)
{
	struct cloud_refresh body = { .duration_s = MIN(for_s, REFRESH_MAX_S) };

	return request(c, &(struct request){ FAULT_REFRESH, CLOUD_ROUTE_REFRESH, id, .doc = CLOUD_DOC_REFRESH,
					     .body = &body }, ask);
}

static char *list_query(const struct cloud_filter *f)
{
	uint32_t limit = f->limit ? MIN(f->limit, 100u) : 100;
	const char *state = f->running == f->paused ? "" : f->running ? "&state=running" : "&state=paused";
	char *meta = f->n_metadata ? meta_filter_format(f->metadata, f->n_metadata) : str_dup("");
	char *q = meta ? str_printf("%s?limit=%u%s%s%s", cloud_route_info(CLOUD_ROUTE_LIST)->path, limit, state,
				    f->n_metadata ? "&metadata=" : "", meta) : NULL;

	free(meta);
	return q;
}

static struct cloud_call *list_call(struct cloud *c, const struct cloud_filter *f, bool all,
				    const struct cloud_ask *ask)
{
	struct cloud_call *call = call_new(c, FAULT_LIST, CLOUD_ROUTE_LIST, list_query(f), NULL, ask);

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
	struct cloud_pause body = { .memory = tri_of(keep_memory) };

	return request(c, &(struct request){ FAULT_PAUSE, CLOUD_ROUTE_PAUSE, id, .doc = CLOUD_DOC_PAUSE, .body = &body },
		       ask);
}

struct cloud_call *cloud_put_network(struct cloud *c, const char *id, const struct cloud_network *network,
				     enum tri allow_internet_access, const struct cloud_ask *ask)
{
	struct cloud_egress body = { .network = *network, .allow_internet_access = allow_internet_access };

	return request(c, &(struct request){ FAULT_NETWORK, CLOUD_ROUTE_NETWORK, id, .doc = CLOUD_DOC_EGRESS,
					     .body = &body, .network = network }, ask);
}

/* --- copies --- */

struct cloud_call *cloud_fork(struct cloud *c, const char *id, uint32_t count, uint32_t timeout_s,
			      const struct cloud_ask *ask)
{
	struct cloud_fork body = { .timeout_s = timeout_s, .count = count };

	must(count > 0 && timeout_s > 0);
	return request(c, &(struct request){ FAULT_FORK, CLOUD_ROUTE_FORK, id, .doc = CLOUD_DOC_FORK, .body = &body },
		       ask);
}

struct cloud_call *cloud_snapshot(struct cloud *c, const char *id, const char *name,
				  const struct cloud_ask *ask)
{
	struct cloud_snapshot_name body = { .name = str_is_empty(name) ? NULL : (char *)name };

	return request(c, &(struct request){ FAULT_SNAPSHOT, CLOUD_ROUTE_SNAPSHOT, id, .doc = CLOUD_DOC_SNAPSHOT_NAME,
					     .body = &body }, ask);
}

static char *snapshot_query(const char *sandbox, const char *name)
{
	char *coded = str_is_empty(name) ? str_dup("") : str_percent_encode(name, strlen(name));
	char *q = coded ? str_printf("%s?limit=100%s%s%s%s", cloud_route_info(CLOUD_ROUTE_SNAPSHOTS)->path,
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
	struct cloud_call *call = call_new(c, FAULT_SNAPSHOTS, CLOUD_ROUTE_SNAPSHOTS, snapshot_query(sandbox, name),
					   NULL, ask);

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
	return request(c, &(struct request){ FAULT_SNAPSHOT_DELETE, CLOUD_ROUTE_TEMPLATE_DELETE, snapshot,
					     .of_template = true }, ask);
}

struct cloud_call *cloud_templates(struct cloud *c, bool whole, const struct cloud_ask *ask)
{
	enum cloud_route route = whole ? CLOUD_ROUTE_TEMPLATES_V1 : CLOUD_ROUTE_TEMPLATES;
	struct cloud_call *call = call_new(c, FAULT_TEMPLATES, route,
					   str_printf("%s%s", cloud_route_info(route)->path, whole ? "" : "?limit=100"), NULL, ask);

	if (!call)
		return NULL;
	call->all_pages = !whole;
	call->query = str_dup(call->path);
	call->templates = calloc(1, sizeof(*call->templates));
	if (!call->query || !call->templates) {
		call_free(call);
		return NULL;
	}
	return call_begin(call, NULL);
}

/* --- metrics --- */

struct cloud_call *cloud_metrics(struct cloud *c, const char *id, int64_t start_s, int64_t end_s,
				 const struct cloud_ask *ask)
{
	char start[40] = "", end[40] = "", *path, *full;

	if (start_s > 0)
		snprintf(start, sizeof(start), "?start=%lld", (long long)start_s);
	if (end_s > 0)
		snprintf(end, sizeof(end), "%cend=%lld", *start ? '&' : '?', (long long)end_s);
	path = cloud_route_path(CLOUD_ROUTE_METRICS, id);
	full = path ? str_printf("%s%s%s", path, start, end) : NULL;
	free(path);
	return call_begin(call_new(c, FAULT_METRICS, CLOUD_ROUTE_METRICS, full, NULL, ask), id);
}
