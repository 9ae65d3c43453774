/* SPDX-License-Identifier: MIT */
/* The tables of the contract's documents. */
#include "proto/cloud/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/host.h"
#include "proto/base/str.h"
#include "proto/cloud/doc.h"
#include "proto/cloud/model.h"

#define CPUS_MAX    1000000
#define REFRESH_MAX 3600
#define FORKS_MAX   100
#define LIST_MAX    65536	/* entries of allowOut and denyOut each */
#define TAGS_MAX    64
#define ENVS_MAX    (1 << 20)	/* the size of the request bounds them */

/* One row: the document's name, what it is, the member of T. */
#define F(id, what, member, ...) { .name = id, .kind = DOC_##what, .at = offsetof(T, member), __VA_ARGS__ }
#define DOC(of_table, ...) { .size = sizeof(T), .fields = of_table, .n = ARRAY_SIZE(of_table), __VA_ARGS__ }

/* --- network settings --- */

#define T struct cloud_rule
static const struct doc_field transform_fields[] = {
	F("headers", KVS, headers, .flags = DOC_KEEP),
};
static const struct doc doc_transform = DOC(transform_fields);
static const struct doc_field rule_fields[] = {
	F("", KEY, domain),
	F("transform", SAME, domain, .of = &doc_transform),
};
static const struct doc doc_rule = DOC(rule_fields);
#undef T

#define T struct cloud_network
static const struct doc_field proxy_fields[] = {
	F("address", TEXT, egress_address),
	F("username", TEXT, egress_username),
	F("password", TEXT, egress_password, .flags = DOC_SECRET, .in = CLOUD_PASSWORD),
};
static const struct doc doc_proxy = DOC(proxy_fields);
static const struct doc_field network_fields[] = {
	F("allowOut", STRS, allow_out, .max = LIST_MAX),
	F("denyOut", STRS, deny_out, .max = LIST_MAX),
	F("allowPublicTraffic", TRI, allow_public_traffic, .in = CLOUD_INGRESS),
	F("maskRequestHost", TEXT, mask_request_host, .in = CLOUD_INGRESS),
	F("egressProxy", SAME, egress_address, .of = &doc_proxy),
	F("rules", RULES, rules, .of = &doc_rule),
	F("httpsPorts", ASKED, asks_https_ports),
};
static const struct doc doc_network = DOC(network_fields);
#undef T

#define T struct cloud_egress
static const struct doc_field egress_fields[] = {
	F("", INLINE, network, .of = &doc_network, .part = CLOUD_EGRESS | CLOUD_PASSWORD),
	F("allow_internet_access", TRI, allow_internet_access),
};
static const struct doc doc_egress = DOC(egress_fields);
#undef T

/* --- a sandbox --- */

static const char *const state_words[] = { "running", "paused", NULL };
/* The contract keeps both for clients that cannot do without. */
static const char *const client_id[] = { "\"6532622b\"" }, *const no_volumes[] = { "[]" };

static int settle_sandbox(void *v, struct cloud_json_error *why)
{
	struct cloud_sandbox *s = v;

	s->id[strcspn(s->id, "-")] = 0;		/* a legacy "-clientID" */
	if (!cloud_is_sandbox_id(s->id))
		return doc_bad(why, "sandboxID is not an id");
	if (!str_is_empty(s->domain) && !host_port_is_valid(s->domain)) {
		s->has_odd_domain = true;
		free(s->domain);
		s->domain = NULL;
	}
	if (!str_is_empty(s->envd_version))
		return 0;
	free(s->envd_version);
	s->envd_version = str_dup(CLOUD_VERSION_UNKNOWN);
	return s->envd_version ? 0 : -ENOMEM;
}

#define T struct cloud_sandbox
static const struct doc_field lifecycle_fields[] = {
	F("autoResume", TRI, lifecycle.auto_resume),
	F("onTimeout", PAUSE, lifecycle.pause),
};
static const struct doc doc_lifecycle = DOC(lifecycle_fields);
static const struct doc_field sandbox_fields[] = {
	F("templateID", TEXT, template_id, .flags = DOC_REQUIRED),
	F("alias", TEXT, alias),
	F("sandboxID", TEXT, id, .flags = DOC_REQUIRED),
	F("clientID", CONST, id, .words = client_id, .flags = DOC_EXTRA),
	F("envdVersion", TEXT, envd_version),
	F("startedAt", MOMENT, started_at_ms, .in = CLOUD_LISTED),
	F("endAt", MOMENT, end_at_ms, .in = CLOUD_LISTED),
	F("cpuCount", U32, cpu_count, .in = CLOUD_LISTED, .max = CPUS_MAX),
	F("memoryMB", U32, memory_mb, .in = CLOUD_LISTED),
	F("diskSizeMB", U32, disk_size_mb, .in = CLOUD_LISTED),
	F("state", WORD, state, .in = CLOUD_LISTED, .words = state_words),
	F("metadata", KVS, metadata, .in = CLOUD_LISTED, .flags = DOC_KEEP),
	F("volumeMounts", CONST, id, .in = CLOUD_LIVE, .words = no_volumes, .flags = DOC_EXTRA),
	F("trafficAccessToken", TEXT, traffic_access_token, .in = CLOUD_CREATED, .flags = DOC_NULL | DOC_SECRET,
	  .max = CLOUD_TOKEN_MAX),
	F("domain", TEXT, domain, .in = CLOUD_CREATED | CLOUD_DETAIL, .flags = DOC_NULL),
	F("envdAccessToken", TEXT, envd_access_token, .in = CLOUD_CREATED | CLOUD_DETAIL, .flags = DOC_SECRET,
	  .max = CLOUD_TOKEN_MAX),
	F("lifecycle", SAME, id, .in = CLOUD_DETAIL, .of = &doc_lifecycle),
	F("allowInternetAccess", TRI, allow_internet_access, .in = CLOUD_DETAIL, .flags = DOC_NULL),
	F("network", NEW, network, .in = CLOUD_DETAIL, .of = &doc_network, .part = CLOUD_EGRESS | CLOUD_INGRESS),
};
static const struct doc doc_sandbox = DOC(sandbox_fields, .settle = settle_sandbox);
#undef T

/* --- requests --- */

#define T struct cloud_iam_token
static const struct doc_field token_fields[] = {
	F("", KEY, name),
	F("audience", TEXT, audience, .flags = DOC_REQUIRED),
	F("tokenType", TEXT, token_type, .flags = DOC_REQUIRED),
};
static const struct doc doc_token = DOC(token_fields);
#undef T

#define T struct cloud_create
static const struct doc_field resume_fields[] = {
	F("enabled", TRI, lifecycle.auto_resume, .flags = DOC_REQUIRED),
};
static const struct doc doc_resume = DOC(resume_fields);
static const struct doc_field iam_fields[] = {
	F("tokens", MAP, iam_tokens, .of = &doc_token),
};
static const struct doc doc_iam = DOC(iam_fields);
static const struct doc_field create_fields[] = {
	F("templateID", TEXT, template_id, .flags = DOC_REQUIRED),
	F("timeout", U32, timeout_s),
	F("secure", TRI, secure),
	F("allow_internet_access", TRI, allow_internet_access),
	F("autoPause", TRI, lifecycle.pause),
	F("autoPauseMemory", TRI, lifecycle.keep_memory),
	F("autoResume", SAME, lifecycle, .of = &doc_resume),
	F("metadata", KVS, metadata, .max = ENVS_MAX, .flags = DOC_KEEP | DOC_LONG),
	F("envVars", KVS, envs, .max = ENVS_MAX, .flags = DOC_KEEP | DOC_LONG),
	F("network", NEW, network, .of = &doc_network, .part = CLOUD_EGRESS | CLOUD_INGRESS | CLOUD_PASSWORD),
	F("iam", SAME, iam_tokens, .of = &doc_iam),
	F("volumeMounts", ASKED, asks_volumes),
};
static const struct doc doc_create = DOC(create_fields);
#undef T

#define T struct cloud_connect
static const struct doc_field connect_fields[] = {
	F("timeout", U32, timeout_s),
	F("memory", TRI, memory),
	F("autoPause", TRI, auto_pause),
};
static const struct doc doc_connect = DOC(connect_fields);
#undef T

#define T struct cloud_refresh
static const struct doc_field refresh_fields[] = { F("duration", U32, duration_s, .max = REFRESH_MAX) };
static const struct doc doc_refresh = DOC(refresh_fields);
#undef T

#define T struct cloud_pause
static const struct doc_field pause_fields[] = { F("memory", TRI, memory) };
static const struct doc doc_pause = DOC(pause_fields);
#undef T

#define T struct cloud_fork
static const struct doc_field fork_fields[] = {
	F("timeout", U32, timeout_s),
	F("count", U32, count, .max = FORKS_MAX),
};
static const struct doc doc_fork = DOC(fork_fields);
#undef T

#define T struct cloud_snapshot_name
static const struct doc_field snapshot_name_fields[] = { F("name", TEXT, name) };
static const struct doc doc_snapshot_name = DOC(snapshot_name_fields);
#undef T

/* --- other answers --- */

/* `code` is a number of HTTP or, of the agent, a word of Connect. */
#define T struct cloud_error
static const struct doc_field error_fields[] = {
	F("code", I64, code, .flags = DOC_LOOSE),
	F("code", TEXT, code_word, .flags = DOC_LOOSE, .in = CLOUD_ANSWER_ONLY),
	F("message", TEXT, message, .flags = DOC_LOOSE),
	F("error_code", TEXT, error_code, .flags = DOC_LOOSE | DOC_EXTRA),
	F("port", ASKED, has_port),
};
static const struct doc doc_error = DOC(error_fields);
#undef T

#define T struct cloud_fork_result
static const struct doc_field fork_result_fields[] = {
	F("sandbox", NEW, sandbox, .of = &doc_sandbox, .part = CLOUD_CREATED),
	F("error", NEW, error, .of = &doc_error),
};
static const struct doc doc_fork_result = DOC(fork_result_fields);
#undef T

#define T struct cloud_stream_end
static const struct doc_field stream_end_fields[] = { F("error", NEW, error, .of = &doc_error) };
static const struct doc doc_stream_end = DOC(stream_end_fields);
#undef T

#define T struct cloud_metric
static const struct doc_field metric_fields[] = {
	F("timestamp", MOMENT, at_ms, .flags = DOC_EXTRA),
	F("timestampUnix", SECONDS, at_ms),
	F("cpuCount", U32, cpu_count, .max = CPUS_MAX),
	F("cpuUsedPct", REAL, cpu_used_pct),
	F("memUsed", I64, mem_used),
	F("memTotal", I64, mem_total),
	F("memCache", I64, mem_cache),
	F("diskUsed", I64, disk_used),
	F("diskTotal", I64, disk_total),
};
static const struct doc doc_metric = DOC(metric_fields);
#undef T

#define T struct cloud_snapshot
static const struct doc_field snapshot_fields[] = {
	F("snapshotID", TEXT, id, .flags = DOC_REQUIRED, .max = CLOUD_ID_MAX),
	F("names", STRS, names, .flags = DOC_KEEP),
};
static const struct doc doc_snapshot = DOC(snapshot_fields);
#undef T

/* --- templates --- */

static const char *const nobody[] = { "null" }, *const ready[] = { "\"ready\"" };

#define T struct cloud_template_build
static const struct doc_field template_build_fields[] = {
	F("buildID", TEXT, id, .flags = DOC_REQUIRED),
	{ .name = "status", .kind = DOC_CONST, .words = ready },
	F("createdAt", MOMENT, created_at_ms),
	F("updatedAt", MOMENT, created_at_ms),
	F("finishedAt", MOMENT, created_at_ms),
	F("cpuCount", U32, cpu_count, .max = CPUS_MAX),
	F("memoryMB", U32, memory_mb),
	F("diskSizeMB", U32, disk_size_mb),
	F("envdVersion", TEXT, envd_version),
};
static const struct doc doc_template_build = DOC(template_build_fields);
#undef T

#define T struct cloud_template
static const struct doc_field template_fields[] = {
	F("templateID", TEXT, id, .flags = DOC_REQUIRED, .max = CLOUD_ID_MAX),
	F("buildID", TEXT, build_id, .in = CLOUD_LISTED),
	F("cpuCount", U32, cpu_count, .max = CPUS_MAX, .in = CLOUD_LISTED),
	F("memoryMB", U32, memory_mb, .in = CLOUD_LISTED),
	F("diskSizeMB", U32, disk_size_mb, .in = CLOUD_LISTED),
	F("public", BOOL, is_public),
	F("aliases", STRS, aliases, .flags = DOC_KEEP),
	F("names", STRS, names, .flags = DOC_KEEP),
	F("createdAt", MOMENT, created_at_ms),
	F("updatedAt", MOMENT, updated_at_ms),
	{ .name = "createdBy", .kind = DOC_CONST, .words = nobody, .in = CLOUD_LISTED },
	F("lastSpawnedAt", MOMENT, spawned_at_ms, .flags = DOC_NULL),
	F("spawnCount", I64, spawn_count),
	F("buildCount", I64, build_count, .in = CLOUD_LISTED),
	F("envdVersion", TEXT, envd_version, .in = CLOUD_LISTED),
	F("buildStatus", TEXT, build_status, .in = CLOUD_LISTED),
	F("builds", LIST, builds, .of = &doc_template_build, .flags = DOC_KEEP, .in = CLOUD_DETAIL),
};
static const struct doc doc_template = DOC(template_fields);
#undef T

#define T struct cloud_template_alias
static const struct doc_field template_alias_fields[] = {
	F("templateID", TEXT, id, .flags = DOC_REQUIRED, .max = CLOUD_ID_MAX),
	F("public", BOOL, is_public),
};
static const struct doc doc_template_alias = DOC(template_alias_fields);
#undef T

#define T struct cloud_template_tag
static const struct doc_field template_tag_fields[] = {
	F("tag", TEXT, tag, .flags = DOC_REQUIRED),
	F("buildID", TEXT, build_id, .flags = DOC_REQUIRED),
	F("createdAt", MOMENT, created_at_ms),
};
static const struct doc doc_template_tag = DOC(template_tag_fields);
#undef T

#define T struct cloud_tags
static const struct doc_field tags_assign_fields[] = {
	F("target", TEXT, name, .flags = DOC_REQUIRED),
	F("tags", STRS, tags, .max = TAGS_MAX),
};
static const struct doc doc_tags_assign = DOC(tags_assign_fields);
static const struct doc_field tags_remove_fields[] = {
	F("name", TEXT, name, .flags = DOC_REQUIRED),
	F("tags", STRS, tags, .max = TAGS_MAX),
};
static const struct doc doc_tags_remove = DOC(tags_remove_fields);
#undef T

#define T struct cloud_tags_assigned
static const struct doc_field tags_assigned_fields[] = {
	F("tags", STRS, tags, .flags = DOC_KEEP),
	F("buildID", TEXT, build_id, .flags = DOC_REQUIRED),
};
static const struct doc doc_tags_assigned = DOC(tags_assigned_fields);
#undef T

#define T struct cloud_uploaded
static const struct doc_field uploaded_fields[] = {
	F("path", TEXT, path, .flags = DOC_REQUIRED),
	F("name", TEXT, name, .flags = DOC_LOOSE),
	F("type", TEXT, type, .flags = DOC_LOOSE),
};
static const struct doc doc_uploaded = DOC(uploaded_fields);
#undef T

static const struct doc *const docs[CLOUD_DOCS] = {
	[CLOUD_DOC_SANDBOX] = &doc_sandbox,	[CLOUD_DOC_NETWORK] = &doc_network,
	[CLOUD_DOC_CREATE] = &doc_create,	[CLOUD_DOC_CONNECT] = &doc_connect,
	[CLOUD_DOC_REFRESH] = &doc_refresh,	[CLOUD_DOC_PAUSE] = &doc_pause,
	[CLOUD_DOC_FORK] = &doc_fork,		[CLOUD_DOC_FORK_RESULT] = &doc_fork_result,
	[CLOUD_DOC_EGRESS] = &doc_egress,	[CLOUD_DOC_SNAPSHOT_NAME] = &doc_snapshot_name,
	[CLOUD_DOC_SNAPSHOT] = &doc_snapshot,	[CLOUD_DOC_METRIC] = &doc_metric,
	[CLOUD_DOC_ERROR] = &doc_error,		[CLOUD_DOC_UPLOADED] = &doc_uploaded,
	[CLOUD_DOC_STREAM_END] = &doc_stream_end,	[CLOUD_DOC_TEMPLATE] = &doc_template,
	[CLOUD_DOC_TEMPLATE_ALIAS] = &doc_template_alias, [CLOUD_DOC_TEMPLATE_TAG] = &doc_template_tag,
	[CLOUD_DOC_TAGS_ASSIGN] = &doc_tags_assign,	[CLOUD_DOC_TAGS_ASSIGNED] = &doc_tags_assigned,
	[CLOUD_DOC_TAGS_REMOVE] = &doc_tags_remove,
};

/* --- calls --- */

int cloud_json_read(enum cloud_doc_id doc, const void *p, size_t n, unsigned flags, void *ret,
		    struct cloud_json_error *why)
{
	json_auto_t *o = NULL;
	int r = doc_load(p, n, flags, &o, why);

	if (!r)
		r = doc_read(docs[doc], o, ret, why);
	if (r < 0)
		doc_fini(docs[doc], ret);
	return r;
}

int cloud_json_take(enum cloud_doc_id doc, const json_t *o, void *ret, struct cloud_json_error *why)
{
	int r = o ? doc_read(docs[doc], o, ret, why) : 0;

	if (r < 0)
		doc_fini(docs[doc], ret);
	return r;
}

int cloud_json_read_list(enum cloud_doc_id doc, const void *p, size_t n, size_t max,
			 int (*add)(void *element, void *user), void *user, struct cloud_json_error *why)
{
	json_auto_t *a = NULL;
	int r = doc_load(p, n, 0, &a, why);

	if (!r && (!json_is_array(a) || json_array_size(a) > max))
		r = doc_bad(why, "the document is no list or too long");
	for (size_t i = 0; !r && i < json_array_size(a); i++) {
		void *v = calloc(1, docs[doc]->size);

		r = v ? doc_read(docs[doc], json_array_get(a, i), v, why) : -ENOMEM;
		if (r == 0) {
			r = add(v, user);
		} else if (v) {
			doc_fini(docs[doc], v);
			free(v);
		}
	}
	return r;
}

int cloud_json_write(enum cloud_doc_id doc, const void *v, const struct flavour *f, unsigned part, struct buf *out)
{
	return doc_write(docs[doc], v, f, part, out);
}

char *cloud_json_text(enum cloud_doc_id doc, const void *v, const struct flavour *f, unsigned part, int *ret_r)
{
	struct buf out;
	char *text = NULL;

	buf_init(&out, 0);
	*ret_r = doc_write(docs[doc], v, f, part, &out);
	if (!*ret_r) {
		text = buf_take_str(&out);
		*ret_r = text ? 0 : -ENOMEM;
	}
	buf_fini(&out);
	return text;
}

void cloud_doc_fini(enum cloud_doc_id doc, void *v)
{
	doc_fini(docs[doc], v);
}

/* --- network settings as a text --- */

static char *network_text(const struct cloud_network *n, unsigned part)
{
	int r;

	return cloud_json_text(CLOUD_DOC_NETWORK, n, flavour_get(FLAVOUR_AGENTBOX), part, &r);
}

char *cloud_network_format(const struct cloud_network *n)
{
	return network_text(n, CLOUD_EGRESS | CLOUD_INGRESS);
}

int cloud_network_parse(const char *text, struct cloud_network **ret)
{
	scoped(cloud_network_freep) struct cloud_network *n = calloc(1, sizeof(*n));
	struct cloud_json_error why;
	/* As large as the request that it may be from. */
	int r = n ? cloud_json_read(CLOUD_DOC_NETWORK, text, strlen(text), CLOUD_JSON_REQUEST, n, &why) : -ENOMEM;

	if (r == 0)
		*ret = give(n);
	return r;
}

struct cloud_network *cloud_network_dup(const struct cloud_network *n)
{
	char *text = network_text(n, CLOUD_EGRESS | CLOUD_INGRESS | CLOUD_PASSWORD);
	struct cloud_network *copy = NULL;

	if (text && cloud_network_parse(text, &copy) < 0)
		copy = NULL;
	str_free_secret(text);
	return copy;
}

bool cloud_network_equal(const struct cloud_network *a, const struct cloud_network *b)
{
	char *x = a ? cloud_network_format(a) : NULL, *y = b ? cloud_network_format(b) : NULL;
	bool same = a && b ? x && y && str_eq(x, y) : a == b;

	free(x);
	free(y);
	return same;
}
