/* SPDX-License-Identifier: MIT */
/* Requests to the agent in a sandbox: its address and the headers of a request. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/account.h"
#include "daemon/cloud/relay.h"
#include "daemon/common/obs/redact.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/name.h"
#include "proto/base/str.h"
#include "proto/wire/trace.h"

#define AGENT_DEFAULT_MS 60000u

bool agent_has(const struct envd_target *t, const char *version)
{
	return str_is_empty(t->at.version) || cloud_version_cmp(t->at.version, version) >= 0;
}

const char *agent_user(const struct envd_target *t)
{
	if (!str_is_empty(t->user))
		return t->user;
	return agent_has(t, "0.4.0") ? NULL : t->at.cloud->default_user;
}

uint64_t agent_deadline_ms(const struct envd_target *t)
{
	return t->deadline_ms ? t->deadline_ms : loop_now_ms(t->at.cloud->loop) + AGENT_DEFAULT_MS;
}

bool agent_is_foreign_home(const char *path)
{
	return path[0] == '~' && path[1] && path[1] != '/';
}

int agent_url(const struct envd_target *t, struct url *ret)
{
	const char *domain = str_is_empty(t->at.domain) ? t->at.cloud->domain : t->at.domain;
	char *s = flavour_has_shared_host(t->at.cloud->flavour, domain) ?
			  str_printf("https://sandbox.%s", domain) :
			  str_printf("https://%d-%s.%s", CLOUD_AGENT_PORT, t->at.id, domain);
	int r = s ? url_parse(s, ret) : -ENOMEM;

	free(s);
	return r;
}

char *agent_direct_url(const struct envd_target *t, bool plain)
{
	const struct url *u = &t->at.cloud->sandbox;
	const char *scheme;
	char *host, *out;

	if (!plain && u->host && !cloud_names_ports(t->at.cloud))
		return str_printf(strchr(u->host, ':') ? "%s://[%s]:%u%s" : "%s://%s:%u%s", u->scheme,
				  u->host, u->port, u->prefix);
	host = cloud_port_host(t->at.cloud, t->at.id, CLOUD_AGENT_PORT,
			       str_is_empty(t->at.domain) ? NULL : t->at.domain);
	scheme = plain ? "http" : cloud_port_scheme(t->at.cloud);
	out = host ? str_printf("%s://%s", scheme, host) : NULL;
	free(host);
	return out;
}

static int put_basic(struct fields *f, const char *user)
{
	char *plain = str_printf("%s:", user);
	char *coded = plain ? str_base64_encode(plain, strlen(plain), true) : NULL;
	int r = coded ? fields_printf(f, "authorization", "Basic %s", coded) : -ENOMEM;

	free(plain);
	free(coded);
	return r;
}

static int put_fields(struct fields *f, const struct agent_ask *a)
{
	const struct envd_target *t = a->t;
	const char *user = a->basic_user ? agent_user(t) : NULL;
	int r = fields_put(f, "user-agent", CLOUD_USER_AGENT);

	redact_note(t->at.token);
	redact_note(t->at.traffic_token);
	if (r == 0)
		r = fields_put(f, CLOUD_HOP, "1");
	if (r == 0 && t->trace)
		r = trace_put(f, t->trace);
	if (r == 0)
		r = fields_put(f, t->at.cloud->header_sandbox_id, t->at.id);
	if (r == 0)
		r = fields_printf(f, t->at.cloud->header_sandbox_port, "%u", CLOUD_AGENT_PORT);
	if (r == 0)
		r = fields_put(f, "accept-encoding", a->takes_gzip ? "gzip" : "identity");
	if (r == 0 && !str_is_empty(t->at.token))
		r = fields_put_secret(f, "x-access-token", t->at.token);
	if (r == 0 && t->at.cloud->flavour->traffic_token_to_agent &&
	    !str_is_empty(t->at.traffic_token))
		r = fields_put_secret(f, t->at.cloud->header_traffic_token, t->at.traffic_token);
	if (r == 0 && user)
		r = put_basic(f, user);
	if (r == 0 && a->content_type)
		r = fields_put(f, "content-type", a->content_type);
	/* A stream never announces a length: the cloud's proxy (Go's) relays a body of known length in the background, and
	 * cuts one such stream in a hundred if the answer begins before the body was read. */
	if (r == 0 && a->body_mode == POOL_BODY_WHOLE && !a->is_stream)
		r = fields_printf(f, "content-length", "%zu", a->n_body);
	for (size_t i = 0; r == 0 && i < a->n_headers; i++)
		r = fields_put(f, a->headers[i].key, a->headers[i].value);
	return r;
}

struct pool_req *agent_request(const struct agent_ask *a)
{
	struct cloud *c = a->t->at.cloud;
	scoped(url_fini) struct url own = { 0 };
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	const struct url *u = &c->sandbox;
	struct pool_target target;
	struct pool_req *req;
	char *path;

	if (!c->sandbox.host) {
		if (agent_url(a->t, &own) < 0)
			return NULL;
		u = &own;
	}
	cloud_target(c, u, &target);
	path = str_printf("%s%s", u->prefix, a->path);
	if (!path || put_fields(&f, a) < 0) {
		free(path);
		return NULL;
	}
	req = pool_request(c->pool, &(struct pool_ask){
		.target = &target,
		.method = a->method,
		.path = path,
		.fields = &f,
		.body_mode = a->body_mode,
		.body = a->body,
		.n_body = a->n_body,
		.cls = a->cls,
		.idempotent = a->idempotent,
		.refused = c->gate == CLOUD_OPEN ? NULL : &c->gate_why,
		.head_by_ms = a->head_by_ms,
		.deadline_ms = a->deadline_ms,
		.on_ready = a->on_ready,
		.user = a->user,
	});
	free(path);
	return req;
}

bool agent_names_are_text(const struct http_stream *x)
{
	const char *form = x && http_stream_head(x) ? fields_get(http_stream_head(x), NAME_FORM_FIELD) : NULL;

	return form && str_eq(form, NAME_FORM_TEXT);
}

enum envd_class agent_failure(const struct pool_req *r, struct status *ret)
{
	*ret = *pool_req_failure(r);
	redact_status(ret);
	return pool_req_fate(r) == POOL_UNSENT ? ENVD_UNSENT : ENVD_LOST;
}

int agent_collect(struct http_stream *x, struct buf *b, size_t max)
{
	const uint8_t *p;
	size_t n;
	int r;

	while ((n = http_stream_peek(x, &p)) > 0) {
		if (n > max || buf_len(b) > max - n)
			return -EMSGSIZE;
		r = buf_put(b, p, n);
		if (r < 0)
			return r;
		http_stream_consume(x, n);
	}
	return 0;
}

const char *agent_no_room(int r)
{
	return r == -ENOBUFS ? "the answers of this account take all of the pool's memory" : "out of memory";
}

void agent_answer(const struct http_stream *x, const struct buf *b, const char *route,
		  struct fault_answer *ret)
{
	const struct fields *h = http_stream_head(x);

	*ret = (struct fault_answer){
		.http_status = http_stream_status(x),
		.retry_after = fields_get(h, "retry-after"),
		.request_id = fields_get(h, "x-request-id"),
		.route = route,
		.wall_ms = clock_wall_ms(),
	};
	cloud_error_read(buf_data(b), buf_len(b), &ret->body);
}

bool agent_refused(struct http_stream *x, struct buf *b, const char *route, enum fault_subject what,
		   enum envd_class *ret_cls, struct status *ret)
{
	struct fault_answer a;
	int r = agent_collect(x, b, AGENT_ERROR_MAX);

	if (r == 0 && !http_stream_at_end(x) && http_stream_closed(x, NULL) == HTTP_OPEN)
		return false;
	agent_answer(x, b, route, &a);
	*ret_cls = fault_envd(what, &a, ret);
	redact_status(ret);
	return true;
}
