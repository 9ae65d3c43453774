/* SPDX-License-Identifier: MIT */
/*
 * The status page, for browsers: what agentboxctl shows, to look at only. A link with a ticket opens it once and leaves a session in a
 * cookie; who looks is that session's uid, and the kernel has to know the browser's socket as that uid's too, since a cookie of localhost
 * goes to every port there. A page is made whole for each request; where the browser runs scripts, an event stream sends what has changed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/common/http/html.h"
#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/obs/log.h"
#include "daemon/gateway/access.h"
#include "daemon/gateway/impl.h"
#include "daemon/gateway/page_shell.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "proto/wire/h2.h"

#define PAGE_MAGIC     0x67775047u
#define PAGES_MAX      64u	/* at once; of one uid … */
#define PAGES_OF_UID   16u	/* … so many */
#define TICK_MS	       2000u
#define SILENCE_MS     15000u	/* then a comment says that the stream is alive */
#define NAME_WAIT_MS   5000u	/* for the name of a uid that is being looked up … */
#define NAME_TICK_MS   50u	/* … and asked for so often */
#define TARGET_MAX     512u	/* of what is shown, as text */

struct gateway_page {
	uint32_t magic;
	struct list node;		/* in gateway.pages */
	struct gateway *g;
	struct http_stream *x;
	struct page_pass pass;
	bool live, head_sent, over;
	char sandbox[CLOUD_SANDBOX_ID_MAX + 1], page_token[TARGET_MAX];
	void *view;			/* being made; NULL = none */
	struct timer timer;		/* the next look: of a live one, or once the uid has a name */
	uint64_t begun_ms;
	uint64_t shown;			/* a hash of what was sent last */
	uint64_t sent_at_ms;
	struct quota *quota;		/* of the connection; a reference */
	size_t charged;
	struct grave grave;
};

static struct gateway_page *page_from(void *p)
{
	struct gateway_page *s = p;

	must(s && s->magic == PAGE_MAGIC);
	return s;
}

bool gateway_page_is(const char *path)
{
	return path && str_starts(path, GATEWAY_PAGE_PATH);
}

/* --- the end --- */

static void page_free(void *p)
{
	struct gateway_page *s = page_from(p);

	s->magic = 0;
	quota_give(s->quota, s->charged);
	quota_unref(s->quota);
	free(s);
}

/* The exchange is the caller's now. */
static struct http_stream *page_end(struct gateway_page *s)
{
	must(!s->over);
	s->over = true;
	list_del(&s->node);
	s->g->counts.pages--;
	timer_clear(&s->timer);
	if (s->view)
		s->g->o.view_cancel(s->g->o.user, s->view);
	s->view = NULL;
	loop_bury(s->g->loop, &s->grave, page_free, s);
	return give(s->x);
}

/* `nonce` NULL: there is neither a script nor a style in it. */
static int put_common(struct fields *f, const char *nonce)
{
	int r = fields_put(f, "cache-control", "no-store");

	if (!r)
		r = fields_put(f, "x-content-type-options", "nosniff");
	if (!r)
		r = fields_put(f, "referrer-policy", "no-referrer");
	if (!r)
		r = fields_put(f, "cross-origin-resource-policy", "same-origin");
	if (!r)
		r = fields_put(f, "cross-origin-opener-policy", "same-origin");
	if (r || !nonce)
		return r ? r : fields_put(f, "content-security-policy", PAGE_SHELL_NO_SCRIPT);
	return fields_printf(f, "content-security-policy", PAGE_SHELL_POLICY, nonce, nonce);
}

static void say(struct http_stream *x, unsigned status, const char *text)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	struct html h = { .b = BUF_NULL };

	page_shell_say(&h, text);
	if (h.failed || put_common(&f, NULL) < 0 || (status == 405 && fields_put(&f, "allow", "GET") < 0) ||
	    (status == 503 && fields_put(&f, "retry-after", "1") < 0))
		reply_abort(x);
	else
		reply_send(x, status, PAGE_SHELL_TYPE, &f, buf_data(&h.b), buf_len(&h.b));
	buf_fini(&h.b);
}

/* --- a whole page --- */

static void page_answer(struct gateway_page *s, const char *html, size_t n)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	struct html h = { .b = BUF_NULL };
	char nonce[33], live[sizeof(GATEWAY_PAGE_PATH) + 2 * TARGET_MAX];
	uint8_t bytes[16];
	struct http_stream *x = page_end(s);

	buf_set_quota(&h.b, s->quota);
	rng_system(bytes, sizeof(bytes));
	str_hex(bytes, sizeof(bytes), nonce);
	snprintf(live, sizeof(live), "%slive%s%s%s%s", GATEWAY_PAGE_PATH, *s->sandbox ? "/sandbox/" : "", s->sandbox,
		 *s->page_token ? "?page=" : "", s->page_token);
	page_shell_write(&h, nonce, live, html, n);
	if (h.failed || put_common(&f, nonce) < 0)
		reply_abort(x);
	else
		reply_send(x, 200, PAGE_SHELL_TYPE, &f, buf_data(&h.b), buf_len(&h.b));
	buf_fini(&h.b);
}

/* --- a live one --- */

static uint64_t hash_of(const char *p, size_t n)
{
	uint64_t h = 14695981039346656037ull;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)p[i]) * 1099511628211ull;
	return h;
}

static void page_cut(struct gateway_page *s)
{
	struct http_stream *x = page_end(s);

	http_stream_reset(x, H2_INTERNAL_ERROR);
	http_stream_detach(x);
}

static int send_head(struct gateway_page *s)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	int r = fields_put(&f, ":status", "200");

	if (!r)
		r = fields_put(&f, "content-type", "text/event-stream");
	if (!r)
		r = put_common(&f, NULL);
	if (!r)
		r = http_stream_respond(s->x, &f, false);
	s->head_sent = !r;
	return r;
}

/* A line of the text in each line of the event. */
static int put_event(struct buf *b, const char *html, size_t n)
{
	int r = 0;

	for (size_t at = 0; at <= n && !r;) {
		const char *end = at < n ? memchr(html + at, '\n', n - at) : NULL;
		size_t len = end ? (size_t)(end - html) - at : n - at;

		r = buf_put_str(b, "data: ");
		if (!r)
			r = buf_put(b, html + at, len);
		if (!r)
			r = buf_put_str(b, "\n");
		at += len + 1;
	}
	return r ? r : buf_put_str(b, "\n");
}

/* A browser that has not taken the last one gets no more until it has. */
static int send_live(struct gateway_page *s, const char *html, size_t n)
{
	scoped(buf_fini) struct buf b = BUF_NULL;
	uint64_t hash = hash_of(html, n), now = loop_now_ms(s->g->loop);
	int r = 0;

	if (http_stream_unsent(s->x))
		return 0;
	buf_set_quota(&b, s->quota);
	if (hash != s->shown)
		r = put_event(&b, html, n);
	else if (now >= s->sent_at_ms + SILENCE_MS)
		r = buf_put_str(&b, ":\n\n");
	if (!r && buf_len(&b)) {
		r = http_stream_write(s->x, buf_data(&b), buf_len(&b));
		s->sent_at_ms = now;
		s->shown = hash;
	}
	return r;
}

static void page_show(struct gateway_page *s, const char *html, size_t n)
{
	if ((!s->head_sent && send_head(s) < 0) || send_live(s, html, n) < 0 ||
	    timer_set(&s->timer, loop_now_ms(s->g->loop) + TICK_MS) < 0)
		page_cut(s);
}

/* --- looking --- */

static void page_refuse(struct gateway_page *s, unsigned status, const char *text)
{
	if (s->head_sent)
		page_cut(s);
	else
		say(page_end(s), status, text);
}

static unsigned status_of(const struct status *st)
{
	switch (st->code) {
	case CODE_NOT_FOUND:
		return 404;
	case CODE_PERMISSION_DENIED:
		return 403;
	case CODE_INVALID_ARGUMENT:
		return 400;
	default:
		return 503;
	}
}

static void page_on_view(void *user, const struct status *st, const char *html, size_t n)
{
	struct gateway_page *s = page_from(user);

	s->view = NULL;
	if (!status_ok(st))
		page_refuse(s, status_of(st), st->text);
	else if (s->live)
		page_show(s, html, n);
	else
		page_answer(s, html, n);
}

/* A browser would not come again by itself. */
static bool wait_for_name(struct gateway_page *s)
{
	uint64_t now = loop_now_ms(s->g->loop);

	return now < s->begun_ms + NAME_WAIT_MS && timer_set(&s->timer, now + NAME_TICK_MS) == 0;
}

/* The right is asked for at each look: a session is no more than its uid may by now. */
static void page_look(struct gateway_page *s)
{
	struct gateway_view_ask ask = { .sandbox = s->sandbox, .page_token = s->page_token, .quota = s->quota };
	char why[GATEWAY_WHY_BYTES];
	struct principal who;
	enum gateway_may may = gateway_viewer(s->g, s->pass.uid, s->pass.sight, &who, why);

	if (s->pass.end_s <= clock_wall_ms() / 1000) {
		page_refuse(s, 401, PAGE_SHELL_OVER);
		return;
	}
	if (may == GATEWAY_MAY_LATER && !wait_for_name(s))
		page_refuse(s, 503, why);
	if (may == GATEWAY_MAY_NOT)
		page_refuse(s, 403, why);
	if (may != GATEWAY_MAY)
		return;
	ask.who = &who;
	s->view = s->g->o.view(s->g->o.user, &ask, page_on_view, s);
	if (!s->view)
		page_refuse(s, 503, "out of memory");
}

static void page_on_time(struct timer *t, void *user)
{
	page_look(page_from(user));
}

static void page_on_ready(struct http_stream *x, void *user)
{
	struct gateway_page *s = page_from(user);
	const uint8_t *p;
	size_t n;

	while ((n = http_stream_peek(x, &p)) > 0)
		http_stream_consume(x, n);
	if (http_stream_closed(x, NULL) != HTTP_OPEN)
		http_stream_release(page_end(s));
}

/* --- the beginning --- */

static bool has_place(const struct gateway *g, uid_t uid)
{
	unsigned n = 0;

	if (g->counts.pages >= PAGES_MAX)
		return false;
	list_for_each(i, &g->pages)
		n += list_entry(i, struct gateway_page, node)->pass.uid == uid;
	return n < PAGES_OF_UID;
}

static struct gateway_page *page_new(struct gateway *g, struct http_stream *x, const struct page_pass *pass)
{
	struct http_conn *c = http_stream_conn(x);
	struct quota *q = c ? http_conn_quota(c) : NULL;
	struct gateway_page *s;

	if (quota_take(q, sizeof(*s)) < 0)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s) {
		quota_give(q, sizeof(*s));
		return NULL;
	}
	*s = (struct gateway_page){ .magic = PAGE_MAGIC, .g = g, .x = x, .pass = *pass, .quota = quota_ref(q),
				    .charged = sizeof(*s), .begun_ms = loop_now_ms(g->loop) };
	timer_init(&s->timer, g->loop, page_on_time, s);
	return s;
}

/* "", "sandbox/ID", and both below "live". False: there is no such page. */
static bool take_target(struct gateway_page *s, const struct query *q)
{
	const char *token = query_get(q, "page");
	size_t at = 1;

	if (q->n_segments > at && str_eq(q->segments[at], "live")) {
		s->live = true;
		at++;
	}
	if (token && (strspn(token, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.~=") != strlen(token) ||
		      !str_copy(s->page_token, sizeof(s->page_token), token)))
		return false;
	if (q->n_segments == at || (q->n_segments == at + 1 && !*q->segments[at]))
		return true;
	return q->n_segments == at + 2 && str_eq(q->segments[at], "sandbox") && !cloud_id_parse(q->segments[at + 1], s->sandbox);
}

static void page_begin(struct gateway *g, struct http_stream *x, const struct page_pass *pass, const struct query *q)
{
	struct gateway_page *s = has_place(g, pass->uid) ? page_new(g, x, pass) : NULL;

	if (!s) {
		say(x, 503, "too many pages are open already");
		return;
	}
	list_add_tail(&g->pages, &s->node);
	g->counts.pages++;
	http_stream_set_owner(x, page_on_ready, s);
	if (take_target(s, q))
		page_look(s);
	else
		page_refuse(s, 404, "there is no such page");
}

/* --- tickets and sessions --- */

void gateway_page_link(struct gateway *g, const struct principal *who, char ret[GATEWAY_PAGE_LINK])
{
	struct page_pass p = { .kind = PAGE_TICKET, .uid = who->uid, .end_s = clock_wall_ms() / 1000 + PAGE_TICKET_S,
			       .sight = who->admin ? PAGE_ALL : who->observer ? PAGE_MASKED : PAGE_OWN };
	char text[PAGE_PASS_TEXT];

	rng_system(p.nonce, sizeof(p.nonce));
	memcpy(g->tickets[g->next_ticket++ % GATEWAY_TICKETS], p.nonce, sizeof(p.nonce));
	page_pass_write(g->page_key, &p, text);
	snprintf(ret, GATEWAY_PAGE_LINK, "%s?open=%s", GATEWAY_PAGE_PATH, text);
}

/* False: it was used already, or is of an earlier run. */
static bool use_ticket(struct gateway *g, const struct page_pass *p)
{
	static const uint8_t none[PAGE_PASS_NONCE];

	if (!memcmp(p->nonce, none, sizeof(none)))
		return false;
	for (unsigned i = 0; i < GATEWAY_TICKETS; i++)
		if (!memcmp(g->tickets[i], p->nonce, sizeof(p->nonce))) {
			memset(g->tickets[i], 0, sizeof(g->tickets[i]));
			return true;
		}
	return false;
}

/* The cookie takes the ticket's place, and the address loses it. */
static void open_session(struct gateway *g, struct http_stream *x, const struct gateway_conn *conn, const char *ticket)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	int64_t now_s = clock_wall_ms() / 1000;
	char text[PAGE_PASS_TEXT];
	struct page_pass p;

	if (!page_pass_read(g->page_key, ticket, PAGE_TICKET, now_s, &p) || owner_uid(p.uid) != conn->peer.uid || !use_ticket(g, &p)) {
		g->counts.refused++;
		say(x, 401, PAGE_SHELL_USED);
		return;
	}
	p.kind = PAGE_SESSION;
	p.end_s = now_s + PAGE_SESSION_S;
	rng_system(p.nonce, sizeof(p.nonce));
	page_pass_write(g->page_key, &p, text);
	log_info("page_opened", "uid=%u", owner_uid(p.uid));
	if (put_common(&f, NULL) < 0 || fields_put(&f, "location", GATEWAY_PAGE_PATH) < 0 ||
	    fields_printf(&f, "set-cookie", PAGE_COOKIE "=%s; Path=" GATEWAY_PAGE_PATH "; HttpOnly; SameSite=Strict; Max-Age=%d%s", text,
			  PAGE_SESSION_S, conn->door->is_tls ? "; Secure" : "") < 0)
		reply_abort(x);
	else
		reply_send(x, 303, NULL, &f, NULL, 0);
}

/* The first of its cookies that is a good session of this uid. */
static bool find_session(const struct gateway *g, const struct fields *head, uid_t uid, struct page_pass *ret)
{
	char text[PAGE_PASS_TEXT];

	for (int at = fields_find(head, "cookie", 0); at >= 0; at = fields_find(head, "cookie", (uint32_t)at + 1))
		if (page_cookie_find(fields_value(head, (uint32_t)at), text) &&
		    page_pass_read(g->page_key, text, PAGE_SESSION, clock_wall_ms() / 1000, ret) && owner_uid(ret->uid) == uid)
			return true;
	return false;
}

static void page_open(struct gateway *g, struct http_stream *x, const struct gateway_conn *conn, const struct query *q)
{
	const char *ticket = query_get(q, "open");
	struct page_pass pass;

	if (ticket) {
		open_session(g, x, conn, ticket);
	} else if (find_session(g, http_stream_head(x), conn->peer.uid, &pass)) {
		page_begin(g, x, &pass, q);
	} else {
		g->counts.refused++;
		say(x, 401, PAGE_SHELL_OVER);
	}
}

void gateway_page_request(struct gateway *g, struct http_stream *x, const struct gateway_conn *conn)
{
	scoped(query_fini) struct query q = QUERY_NULL;
	const struct fields *head = http_stream_head(x);
	const char *method = fields_get(head, ":method");

	if (who_is_foreign_page(head, conn->door->is_tls))
		say(x, 403, "pages of other origins may not look at this one");
	else if (!conn->peer.is_known)
		say(x, 403, "the kernel does not say whose browser this is: the page is for those of this machine");
	else if (!method || !str_eq(method, "GET"))
		say(x, 405, "this page is only to look at");
	else if (query_parse(fields_get(head, ":path"), &q) < 0)
		say(x, 400, "this address cannot be read");
	else
		page_open(g, x, conn, &q);
}

void gateway_page_end_all(struct gateway *g)
{
	list_for_each_safe(n, &g->pages) {
		struct gateway_page *s = list_entry(n, struct gateway_page, node);
		bool head_sent = s->head_sent;
		struct http_stream *x = page_end(s);

		/* The browser comes again for the rest. */
		if (!head_sent)
			say(x, 503, "agentboxd is stopping");
		else if (http_stream_finish(x, NULL) < 0)
			reply_abort(x);
		else
			http_stream_detach(x);
	}
}
