/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/relay_right.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/auth/token.h"
#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/http/route.h"
#include "proto/base/str.h"
#include "proto/cloud/flavour.h"
#include "proto/cloud/link.h"

#define ACCESS_TOKEN "x-access-token"

static const char *traffic_token(const struct fields *head)
{
	const char *value = NULL;

	for (unsigned i = 0; i < FLAVOURS && !value; i++)
		value = fields_get(head, flavour_get((enum flavour_id)i)->headers[FLAVOUR_TRAFFIC_TOKEN]);
	return value;
}

static bool fits_secret(const char *shown, const char *secret)
{
	return !str_is_empty(secret) && reply_is_secret(shown, secret);
}

/* --- links --- */

static bool is_files(const struct query *q)
{
	return q->n_segments == 1 && str_eq(q->segments[0], "files");
}

static bool reads_or_writes(const struct fields *head, bool *ret_write)
{
	const char *method = fields_get(head, ":method");

	*ret_write = method && str_eq(method, "POST");
	return method && (*ret_write || str_eq(method, "GET") || str_eq(method, "HEAD"));
}

bool relay_is_link(const struct fields *head)
{
	const char *path = fields_get(head, ":path");
	scoped(query_fini) struct query q = QUERY_NULL;
	bool write;

	return path && query_parse(path, &q) == 0 && is_files(&q) && query_get(&q, "signature") && reads_or_writes(head, &write);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

static bool link_take(const struct relay_asker *a, struct relay_link *l)
{
	const char *until = query_get(&l->q, "signature_expiration");
	uint64_t expires_s = 0;

	l->signature = query_get(&l->q, "signature");
	if (!is_files(&l->q) || !reads_or_writes(a->head, &l->writes) || !l->signature)
		return false;
	if (until && str_u64(until, strlen(until), INT64_MAX, &expires_s) < 0)
		return false;
	l->is_over = until && (int64_t)expires_s < a->now_s;
	l->until_s = until ? (int64_t)expires_s : CLOUD_LINK_FOREVER;
	l->path = or_empty(query_get(&l->q, "path"));
	l->user = or_empty(query_get(&l->q, "username"));
	return true;
}

bool relay_link_read(const struct relay_asker *a, struct relay_link *ret)
{
	const char *path = fields_get(a->head, ":path");

	*ret = (struct relay_link){ 0 };
	if (!path || query_parse(path, &ret->q) < 0)
		return false;
	if (link_take(a, ret))
		return true;
	query_fini(&ret->q);
	return false;
}

bool relay_link_is_of(const struct relay_link *l, const char *access_token)
{
	char *own = str_is_empty(access_token) ? NULL : cloud_link_sign(l->path, l->writes, l->user, access_token, l->until_s);
	bool fits = own && reply_is_secret(l->signature, own);

	free(own);
	return fits;
}

void relay_link_fini(struct relay_link *l)
{
	query_fini(&l->q);
}

static enum relay_right judge_link(const struct relay_asker *a, const char *access_token)
{
	enum relay_right r = RELAY_WRONG_ACCESS_TOKEN;
	struct relay_link l;

	if (!relay_link_read(a, &l))
		return r;
	if (relay_link_is_of(&l, access_token))
		r = l.is_over ? RELAY_LINK_OVER : RELAY_BY_LINK;
	relay_link_fini(&l);
	return r;
}

/* --- the judgement --- */

static bool is_owner(const struct relay_asker *a, const struct relay_door *d)
{
	return a->is_own_program && a->uid == d->owner;
}

/* That which opens it, whoever made it; "" = nothing does. */
static const char *access_token(const struct relay_door *d)
{
	return or_empty(str_is_empty(d->access_token) ? d->made_token : d->access_token);
}

static enum relay_right judge_agent(const struct relay_asker *a, const struct relay_door *d)
{
	const char *shown = fields_get(a->head, ACCESS_TOKEN);

	if (str_is_empty(d->access_token) && is_owner(a, d))	/* open to everybody at the edge */
		return RELAY_BY_UID;
	if (!*access_token(d))
		return RELAY_NO_ACCESS_TOKEN;
	if (shown)
		return fits_secret(shown, access_token(d)) ? RELAY_BY_ACCESS : RELAY_WRONG_ACCESS_TOKEN;
	if (!relay_is_link(a->head))
		return d->is_health && is_owner(a, d) ? RELAY_BY_UID : RELAY_NO_ACCESS_TOKEN;
	return judge_link(a, access_token(d));
}

static enum relay_right judge_port(const struct relay_asker *a, const struct relay_door *d)
{
	const char *traffic = traffic_token(a->head);

	if (fits_secret(fields_get(a->head, ACCESS_TOKEN), access_token(d)))
		return RELAY_BY_ACCESS;
	if (fits_secret(traffic, d->traffic_token))
		return RELAY_BY_TRAFFIC;
	if (!str_is_empty(d->traffic_token))
		return traffic ? RELAY_WRONG_TRAFFIC_TOKEN : RELAY_NO_TRAFFIC_TOKEN;
	return is_owner(a, d) ? RELAY_BY_UID : RELAY_NOT_OWNER;
}

enum relay_right relay_judge(const struct relay_asker *a, const struct relay_door *d)
{
	bool is_own = a->token && a->token->uid == d->owner;
	enum relay_right r;

	if (is_own && token_covers(a->token, d->sandbox))
		return RELAY_BY_TOKEN;
	r = d->port == ENVD_PORT ? judge_agent(a, d) : judge_port(a, d);
	return r > RELAY_ALLOWED && is_own ? RELAY_OUT_OF_SCOPE : r;
}

bool relay_shows_secret(const struct relay_asker *a)
{
	return a->token || fields_get(a->head, ACCESS_TOKEN) || traffic_token(a->head) || relay_is_link(a->head);
}
