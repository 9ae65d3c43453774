/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/relay.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/cloud/account.h"
#include "daemon/common/obs/redact.h"
#include "proto/base/host.h"
#include "proto/base/str.h"

/* Where the port is reached: *ret is valid as long as the account and `own`, which holds it where it is not the account's. */
static int port_url(const struct cloud_relay_ask *a, struct url *own, const struct url **ret)
{
	const struct cloud *c = a->cloud;
	const struct envd_target t = { .at = { .cloud = a->cloud, .id = (char *)a->sandbox_id, .domain = (char *)a->domain } };
	char *host, *text;
	int r;

	*ret = c->sandbox.host ? &c->sandbox : own;
	if (a->port == CLOUD_AGENT_PORT)
		return c->sandbox.host ? 0 : agent_url(&t, own);
	if (c->sandbox.host && !cloud_names_ports(c))
		return 0;
	*ret = own;
	host = cloud_port_host(c, a->sandbox_id, a->port, a->domain);
	text = host ? str_printf("%s://%s", cloud_port_scheme(c), host) : NULL;
	r = text ? url_parse(text, own) : -ENOMEM;
	free(host);
	free(text);
	return r;
}

/* Nobody tells servers apart by the name that they are asked for there. */
static bool is_bare(const struct url *u)
{
	return host_is_address(u->host) || host_is_loopback(u->host);
}

static bool holds_secret(const char *name)
{
	return str_eq(name, "x-access-token") || str_eq(name, "authorization") || str_eq(name, "x-api-key") || str_eq(name, "cookie");
}

/* A host that names port and sandbox by itself needs no routing headers, which the program inside would see. */
static int put_relay_fields(struct fields *f, const struct cloud_relay_ask *a, bool is_named)
{
	const struct cloud *c = a->cloud;
	int r = is_named ? 0 : fields_put(f, c->header_sandbox_id, a->sandbox_id);

	if (r == 0 && !is_named)
		r = fields_printf(f, c->header_sandbox_port, "%u", a->port);
	redact_note(a->access_token);
	redact_note(a->traffic_token);
	if (r == 0 && !str_is_empty(a->access_token))
		r = fields_put_secret(f, "x-access-token", a->access_token);
	if (r == 0 && !str_is_empty(a->traffic_token))
		r = fields_put_secret(f, c->header_traffic_token, a->traffic_token);
	/* A gateway that gets it answers 508: the account's address leads back to one. The agent of a sandbox does not mind. */
	if (r == 0 && a->port == CLOUD_AGENT_PORT)
		r = fields_put(f, CLOUD_HOP, "1");
	for (uint32_t i = 0; r == 0 && i < a->head->n; i++) {
		const char *name = fields_name(a->head, i);

		if (name[0] != ':')
			r = fields_add(f, name, a->head->v[i].name_len, fields_value(a->head, i), a->head->v[i].value_len,
				       a->head->v[i].secret || holds_secret(name));
	}
	return r;
}

struct pool_req *cloud_relay(const struct cloud_relay_ask *a)
{
	static const enum pool_body modes[] = { [CLOUD_RELAY_NONE] = POOL_BODY_NONE,
						[CLOUD_RELAY_WHOLE] = POOL_BODY_WHOLE,
						[CLOUD_RELAY_STREAM] = POOL_BODY_STREAM };
	struct cloud *c = a->cloud;
	scoped(url_fini) struct url own = { 0 };
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	const struct url *u;
	const char *authority;
	struct pool_target target;
	struct pool_req *req;
	char *path;

	if (port_url(a, &own, &u) < 0)
		return NULL;
	authority = u == &c->sandbox && is_bare(u) ? a->authority : NULL;
	if (put_relay_fields(&f, a, authority ? a->is_named : u == &own && a->port != CLOUD_AGENT_PORT) < 0)
		return NULL;
	cloud_target(c, u, &target);
	target.http1 = a->upgrade;
	path = str_printf("%s%s", u->prefix, fields_get(a->head, ":path"));
	if (!path)
		return NULL;
	req = pool_request(c->pool, &(struct pool_ask){
		.target = &target,
		.authority = authority,
		.method = fields_get(a->head, ":method"),
		.path = path,
		.fields = &f,
		.body_mode = modes[a->body_mode],
		.body = a->body,
		.n_body = a->n_body,
		.idempotent = a->idempotent,
		.cls = a->is_call ? POOL_SHORT : POOL_LONG,
		.refused = c->gate == CLOUD_OPEN ? NULL : &c->gate_why,
		.on_ready = a->on_ready,
		.user = a->user,
	});
	free(path);
	return req;
}

struct http_stream *cloud_relay_stream(const struct pool_req *r)
{
	return pool_req_x(r);
}

const struct status *cloud_relay_failure(const struct pool_req *r)
{
	return pool_req_failure(r);
}

struct pool_req *cloud_relay_free(struct pool_req *r)
{
	return pool_req_free(r);
}
