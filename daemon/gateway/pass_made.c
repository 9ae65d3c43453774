/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/pass_made.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/templates.h"
#include "daemon/cloud/pass.h"
#include "daemon/common/ev/loop.h"
#include "daemon/common/net/http.h"
#include "daemon/common/obs/log.h"
#include "daemon/gateway/gateway.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/json.h"
#include "proto/cloud/model.h"

#define MADE_MAGIC    0x67774d44u
#define ANSWER_MAX    (32u * 1024)	/* of one that is looked at: it lies in its exchange until then, below the window */
#define CHECK_TURN_MS 30000u

enum made_state {
	MADE_LOOKS,	/* the answer comes */
	MADE_CHECKS,	/* the template is asked for */
	MADE_NOTES,
	MADE_OVER,	/* the answer may pass */
};

struct pass_made {
	uint32_t magic;
	struct pass_made_options o;
	enum made_state state;
	char *id, *build;
	struct cloud_pass *check;
	struct template_note *note;
	struct grave grave;
};

static struct pass_made *made_from(void *p)
{
	struct pass_made *m = p;

	must(m && m->magic == MADE_MAGIC);
	return m;
}

struct pass_made *pass_made_new(const struct pass_made_options *o)
{
	struct pass_made *m = calloc(1, sizeof(*m));

	if (m)
		*m = (struct pass_made){ .magic = MADE_MAGIC, .o = *o };
	return m;
}

static void made_free(void *p)
{
	struct pass_made *m = made_from(p);

	m->magic = 0;
	free(m->id);
	free(m->build);
	free(m);
}

struct pass_made *pass_made_free(struct pass_made *m)
{
	if (!m)
		return NULL;
	template_note_cancel(m->note);
	m->check = cloud_pass_free(m->check);
	loop_bury(m->o.loop, &m->grave, made_free, m);
	return NULL;
}

/* --- the answers --- */

enum gathered {
	MADE_MORE,
	MADE_WHOLE,
	MADE_USELESS,	/* no success, cut, or too long */
};

/* Nothing is consumed: what is there stays for who passes it on. */
static enum gathered gather(struct http_stream *y, const uint8_t **ret, size_t *ret_n)
{
	unsigned status = http_stream_status(y);

	*ret_n = http_stream_peek(y, ret);
	if ((status && (status < 200 || status > 299)) || *ret_n > ANSWER_MAX)
		return MADE_USELESS;
	if (status && http_stream_ended(y))
		return MADE_WHOLE;
	return http_stream_closed(y, NULL) == HTTP_OPEN ? MADE_MORE : MADE_USELESS;
}

/* Goes into a path. */
static bool is_plain_id(const char *id)
{
	return *id && !id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-_")];
}

static bool read_made(struct pass_made *m, const uint8_t *p, size_t n)
{
	struct cloud_template t = { 0 };
	struct cloud_json_error why;

	if (cloud_json_read(CLOUD_DOC_TEMPLATE, p, n, 0, &t, &why) == 0 && is_plain_id(t.id) && !str_is_empty(t.build_id)) {
		m->id = give(t.id);
		m->build = give(t.build_id);
	}
	cloud_doc_fini(CLOUD_DOC_TEMPLATE, &t);
	return m->id;
}

static bool is_new(const struct pass_made *m, const uint8_t *p, size_t n)
{
	struct cloud_template t = { 0 };
	struct cloud_json_error why;
	bool yes = cloud_json_read(CLOUD_DOC_TEMPLATE, p, n, 0, &t, &why) == 0 && str_eq(t.id, m->id);

	for (size_t i = 0; yes && i < t.n_builds; i++)
		yes = str_eq(t.builds[i].id, m->build);
	cloud_doc_fini(CLOUD_DOC_TEMPLATE, &t);
	return yes;
}

/* --- steps --- */

static void made_over(struct pass_made *m, const char *why)
{
	m->state = MADE_OVER;
	if (why)
		log_warn("gateway_template", "account=%s template=%s uid=%u owner=nobody why=%s", m->o.account->name, log_q(m->id), m->o.uid,
			 log_q(why));
}

static void on_noted(void *user, const struct status *st)
{
	struct pass_made *m = made_from(user);

	m->note = NULL;
	made_over(m, status_ok(st) ? NULL : st->text);
	m->o.done(m->o.user);
}

static void take_checked(struct pass_made *m, const uint8_t *p, size_t n)
{
	if (!is_new(m, p, n)) {
		made_over(m, NULL);	/* it was there before: nothing to be said */
		return;
	}
	m->state = MADE_NOTES;
	m->note = templates_note(m->o.templates, m->o.account->name, m->id, m->o.uid, on_noted, m);
	if (!m->note)
		made_over(m, "memory is short, or the same answer came to another call before");
}

static void on_check(struct cloud_pass *check, void *user)
{
	struct pass_made *m = made_from(user);
	const struct status *failure = cloud_pass_failure(check);
	struct http_stream *y = cloud_pass_stream(check);
	const uint8_t *p;
	size_t n;

	if (m->state != MADE_CHECKS || (!y && !failure))
		return;
	switch (y ? gather(y, &p, &n) : MADE_USELESS) {
	case MADE_MORE:
		return;
	case MADE_WHOLE:
		take_checked(m, p, n);
		break;
	case MADE_USELESS:
		made_over(m, failure ? failure->text : "the cloud did not say what is in it");
		break;
	}
	m->check = cloud_pass_free(m->check);
	if (m->state == MADE_OVER)
		m->o.done(m->o.user);
}

static int put_check(const struct pass_made *m, struct fields *head)
{
	int r = fields_put(head, ":method", "GET");

	if (r == 0)
		r = fields_printf(head, ":path", "/templates/%s", m->id);
	return r < 0 ? r : fields_put(head, "accept", "application/json");
}

static int begin_check(struct pass_made *m)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	const struct cloud_pass_ask a = { .cloud = m->o.account->cloud, .head = &head, .uid = m->o.uid, .idempotent = true,
					  .turn_by_ms = loop_now_ms(m->o.loop) + CHECK_TURN_MS, .on_ready = on_check, .user = m };
	struct status why = STATUS_OK;
	int r = put_check(m, &head);

	return r < 0 ? r : cloud_pass(&a, &m->check, &why);
}

static void take_made(struct pass_made *m, const uint8_t *p, size_t n)
{
	uid_t uid;

	if (!read_made(m, p, n) || templates_owner(m->o.templates, m->o.account->name, m->id, &uid)) {
		made_over(m, NULL);
		return;
	}
	m->state = MADE_CHECKS;
	if (begin_check(m) < 0)
		made_over(m, "it could not be asked for");
}

bool pass_made_look(struct pass_made *m, struct http_stream *y)
{
	const uint8_t *p;
	size_t n;

	if (m->state != MADE_LOOKS)
		return m->state == MADE_OVER;
	switch (gather(y, &p, &n)) {
	case MADE_MORE:
		return false;
	case MADE_WHOLE:
		take_made(m, p, n);
		break;
	case MADE_USELESS:
		made_over(m, NULL);
		break;
	}
	return m->state == MADE_OVER;
}
