/* SPDX-License-Identifier: MIT */
/*
 * A request that goes on to a port of a sandbox: who may is judged, the sandbox is found awake or woken as its policy says, the request
 * is opened through the pool, and the two exchanges are joined.
 *
 *   look     the rows; tokens that they do not have are asked for first, those that the caller's contradicts are asked for again
 *   judge    relay_right.h
 *   resolve  the core says where it is now, or why it cannot be used
 *   open     head, body, credentials as the account's edge wants them (relay_open.c)
 *   pump     bytes both ways until an end; what an error of the edge says about the sandbox is told to the core
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/cloud/relay.h"
#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/http/route.h"
#include "daemon/auth/token.h"
#include "daemon/gateway/access.h"
#include "daemon/gateway/audit.h"
#include "daemon/gateway/durable.h"
#include "daemon/gateway/relay_impl.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"
#include "proto/cloud/error.h"
#include "proto/wire/h2.h"

#define RESOLVE_MS   60000u	/* as long as the edge waits for a sandbox that changes its state */
#define UNASKED_MS   1000u	/* programs need not answer Expect: after that the body is asked for here, as clients do by themselves */
#define REASON_MS    5000u	/* to find out why a request failed */
#define ERROR_MAX    4096u	/* an error's body that is looked at */
#define HEAD_COPIES  2u		/* of the request's head, on its way up */
#define LINKS_MAX    4096u	/* sandboxes whose signature a link is compared with */
#define LINKS_PER_S  16384u	/* … for one uid in a second */
#define SEARCH_COST  64u	/* of a search itself, in comparisons */
#define LINKS_KEPT   1024u	/* links whose sandbox is remembered */

static void look(struct gateway_relay *rl);

static struct gateway_relay *relay_from(void *p)
{
	struct gateway_relay *rl = p;

	must(rl && rl->magic == GATEWAY_RELAY_MAGIC);
	return rl;
}

/* --- the end --- */

static void bury(void *p)
{
	struct gateway_relay *rl = relay_from(p);

	rl->magic = 0;
	quota_give(rl->quota, rl->charged);
	quota_unref(rl->quota);
	token_unref(rl->token);
	free(rl->account);
	free(rl);
}

/* The client's exchange is the caller's now. */
static struct http_stream *relay_end(struct gateway_relay *rl)
{
	must(!rl->over);
	if (rl->up)
		gateway_audit_relay(rl);
	rl->over = true;
	list_del(&rl->node);
	rl->g->counts.relays--;
	timer_clear(&rl->limit);
	timer_clear(&rl->unasked);
	defer_cancel(&rl->again);
	sandbox_cancel(rl->op);
	sandbox_untie(&rl->tie);
	rl->up = cloud_relay_free(rl->up);
	buf_fini(&rl->body);
	if (rl->in_use)
		sandbox_use_end(rl->g->o.core, rl->account, rl->to.sandbox);
	loop_bury(rl->g->loop, &rl->grave, bury, rl);
	return give(rl->x);
}

static void leave(struct gateway_relay *rl)
{
	http_stream_release(relay_end(rl));
}

static void cut(struct gateway_relay *rl)
{
	struct http_stream *x = relay_end(rl);

	http_stream_reset(x, H2_CANCEL);
	http_stream_detach(x);
}

static void answer_absent(struct gateway_relay *rl)
{
	const struct plane_port to = rl->to;

	edge_reply_not_found(relay_end(rl), to.sandbox);
}

static void answer_as(struct gateway_relay *rl, unsigned status, const char *message)
{
	const struct plane_port to = rl->to;

	edge_reply_refused(relay_end(rl), to.sandbox, status, message);
}

/* Not 502: clients would take it for the end of the sandbox, of which nothing is known. */
static void answer_failure(struct gateway_relay *rl, const struct status *st)
{
	char text[140];

	str_copy(text, sizeof(text), st->text[0] ? st->text : "the sandbox cannot be reached");
	reply_text(relay_end(rl), st->code == CODE_RESOURCE_EXHAUSTED && st->reason != R_UNREACHABLE ? 429 : 503, text);
}

static void answer_errno(struct gateway_relay *rl, int err)
{
	struct status st;

	status_errno(&st, err, "relay");
	answer_failure(rl, &st);
}

/* What the control plane knows: the sandbox is not there, or not now. */
static bool is_absent(const struct status *st)
{
	return st->code == CODE_NOT_FOUND || st->reason == R_SANDBOX_PAUSED;
}

/* --- calls of the core --- */

static int ask_core(struct gateway_relay *rl, const char *account, enum sandbox_evidence what, uint32_t for_ms,
		    sandbox_target_fn *done)
{
	const struct sandbox_call call = { .sandbox = rl->to.sandbox, .deadline_ms = loop_now_ms(rl->g->loop) + for_ms, .user = rl };

	return sandbox_note_evidence(rl->g->o.core, &call, account, what, done, &rl->op);
}

static int resolve_as(struct gateway_relay *rl, uid_t uid, sandbox_target_fn *done)
{
	const struct principal who = { .uid = uid, .gid = (gid_t)-1, .pidfd = -1 };
	const struct sandbox_call call = { .who = &who, .sandbox = rl->to.sandbox, .user = rl,
					   .deadline_ms = loop_now_ms(rl->g->loop) + RESOLVE_MS };

	return sandbox_resolve(rl->g->o.core, &call, done, &rl->op);
}

static void on_evidence_noted(void *user, const struct status *st, const struct sandbox_target *t)
{
	/* Whoever needs to know is told by the core. */
}

/* Told once, for nobody who waits. */
static void tell_core(struct gateway_relay *rl, enum sandbox_evidence what)
{
	const struct sandbox_call call = { .sandbox = rl->to.sandbox, .deadline_ms = loop_now_ms(rl->g->loop) + RESOLVE_MS };
	struct sandbox_op *op;

	(void)!sandbox_note_evidence(rl->g->o.core, &call, rl->account, what, on_evidence_noted, &op);
}

/* --- bytes --- */

static void count_bytes(struct gateway_relay *rl)
{
	rl->g->counts.relayed_up += rl->join.up - rl->counted_up;
	rl->g->counts.relayed_down += rl->join.down - rl->counted_down;
	rl->counted_up = rl->join.up;
	rl->counted_down = rl->join.down;
}

/* An answer may say something of the sandbox itself. False: it is an error, whose short body is not all here yet. */
static bool look_at_answer(struct gateway_relay *rl, const struct http_stream *y)
{
	const char *length = fields_get(http_stream_head(y), "content-length");
	unsigned status = http_stream_status(y);
	struct cloud_error_body e;
	const uint8_t *p;
	uint64_t size;
	size_t n;

	if (rl->is_asleep && status != 502) {
		rl->is_asleep = false;
		tell_core(rl, SANDBOX_SAW_AWAKE);
	}
	rl->looked = status != 502 && (status != 401 || rl->to.port != ENVD_PORT);
	if (rl->looked || !length || str_u64(length, strlen(length), ERROR_MAX, &size) < 0)
		return rl->looked = true;
	n = http_stream_peek(y, &p);
	if (n < size && !http_stream_ended(y) && http_stream_closed(y, NULL) == HTTP_OPEN)
		return false;
	cloud_error_read(p, n, &e);
	if (status == 502 && e.is_json && e.code == 502 && !e.has_port)
		tell_core(rl, SANDBOX_SAW_ABSENT);
	else if (status == 401 && e.is_json && e.code == 401 && rl->right == RELAY_BY_ACCESS)
		tell_core(rl, SANDBOX_SAW_REFUSED);
	return rl->looked = true;
}

static void on_reason(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct gateway_relay *rl = relay_from(user);

	rl->op = NULL;
	if (is_absent(st))
		answer_absent(rl);
	else
		answer_failure(rl, &rl->failure);
}

/* Nothing was said to the client yet, and nothing will come: the core may know why. */
static void fail(struct gateway_relay *rl, const struct status *st)
{
	rl->failure = *st;
	rl->up = cloud_relay_free(rl->up);
	if (ask_core(rl, rl->account, SANDBOX_SAW_LOST, REASON_MS, on_reason) < 0)
		answer_failure(rl, st);
}

static void join(struct gateway_relay *rl, struct http_stream *y)
{
	const struct status *failure = cloud_relay_failure(rl->up);

	switch (http_join_pump(&rl->join, rl->x, y)) {
	case HTTP_JOIN_OPEN:
		count_bytes(rl);
		break;
	case HTTP_JOIN_DONE:
		count_bytes(rl);
		http_stream_detach(relay_end(rl));
		break;
	case HTTP_JOIN_LEFT:
		count_bytes(rl);
		leave(rl);
		break;
	case HTTP_JOIN_LOST:
		count_bytes(rl);
		if (rl->join.answered)
			cut(rl);
		else if (failure)
			fail(rl, failure);
		/* Else the pool decides whether it is sent again. */
		break;
	}
}

static void pump(struct gateway_relay *rl)
{
	struct http_stream *y = cloud_relay_stream(rl->up);
	const struct status *failure = cloud_relay_failure(rl->up);

	if (http_stream_closed(rl->x, NULL) != HTTP_OPEN)
		leave(rl);
	else if (!y && failure)
		fail(rl, failure);
	else if (y && (rl->looked || !http_stream_head(y) || look_at_answer(rl, y)))
		join(rl, y);
}

static void on_up_ready(struct pool_req *r, void *user)
{
	struct gateway_relay *rl = relay_from(user);

	if (!rl->over)
		pump(rl);
}

static void read_whole(struct gateway_relay *rl);

static void on_down_ready(struct http_stream *x, void *user)
{
	struct gateway_relay *rl = relay_from(user);

	if (rl->up)
		pump(rl);
	else if (http_stream_closed(x, NULL) != HTTP_OPEN)
		leave(rl);
	else if (rl->gathers)
		read_whole(rl);
}

/* --- opening --- */

static void on_tied(void *user, enum sandbox_tie_event event, const struct status *st)
{
	struct gateway_relay *rl = relay_from(user);

	if (event == SANDBOX_TIE_RUNNING && timer_is_set(&rl->limit)) {
		defer_post(&rl->again);
	} else if (event == SANDBOX_TIE_GONE) {
		if (rl->join.answered)
			cut(rl);
		else
			answer_absent(rl);
	}
}

static int tie(struct gateway_relay *rl, const char *account)
{
	if (!rl->account)
		rl->account = str_dup(account);
	if (!rl->account)
		return -ENOMEM;
	sandbox_tie(rl->g->o.core, rl->account, rl->to.sandbox, &rl->tie);
	return 0;
}

static void read_whole(struct gateway_relay *rl)
{
	int r = gateway_relay_gather(rl);

	if (r == -EMSGSIZE)
		reply_text(relay_end(rl), 413, "Request Entity Too Large");
	else if (r < 0)
		answer_errno(rl, r);
	else if (r > 0)
		defer_post(&rl->again);
}

/* True: the request is another's, or was answered. */
static bool open_durable(struct gateway_relay *rl, const struct sandbox_target *t)
{
	struct gateway_durable *d;
	int r;

	if (!gateway_relay_is_durable(rl))
		return false;
	if (!rl->gathered) {
		read_whole(rl);
		return true;
	}
	r = gateway_relay_make_durable(rl, t, &d);
	if (r == -EINVAL || r == -ENOENT)
		return false;
	if (r < 0) {
		answer_errno(rl, r);
		return true;
	}
	rl->join.answered = true; /* by the stream that it becomes */
	rl->g->counts.relayed_up += buf_len(&rl->body);
	gateway_audit_relay(rl);
	gateway_durable_begin(d, relay_end(rl));
	return true;
}

static void open_to(struct gateway_relay *rl, const struct sandbox_target *t)
{
	int r;

	if (open_durable(rl, t))
		return;
	r = tie(rl, t->at.account);

	if (r == 0 && !rl->is_health) {
		sandbox_use_begin(rl->g->o.core, rl->account, rl->to.sandbox);
		rl->in_use = true;
	}
	if (r == 0)
		r = gateway_relay_open(rl, t, on_up_ready);
	if (r == 0 && rl->join.expects)
		r = timer_set(&rl->unasked, loop_now_ms(rl->g->loop) + UNASKED_MS);
	if (r == -EMSGSIZE)
		reply_text(relay_end(rl), 431, "Request Header Fields Too Large");
	else if (r < 0)
		answer_errno(rl, r);
}

static void on_unasked(struct timer *t, void *user)
{
	struct gateway_relay *rl = relay_from(user);

	rl->join.expects = false;
	pump(rl);
}

static void on_again(struct defer *d, void *user)
{
	struct gateway_relay *rl = relay_from(user);

	timer_clear(&rl->limit);
	look(rl);
}

static void on_limit(struct timer *t, void *user)
{
	answer_as(relay_from(user), 409, "The sandbox is changing its state");
}

/* Until its tie says that it runs. */
static void wait_for_change(struct gateway_relay *rl)
{
	struct sandbox_glance s;

	if (!sandbox_glance(rl->g->o.core, rl->to.sandbox, &s))
		answer_absent(rl);
	else if (s.is_sure)
		defer_post(&rl->again);
	else if (tie(rl, s.target.at.account) < 0 || timer_set(&rl->limit, loop_now_ms(rl->g->loop) + RESOLVE_MS) < 0)
		answer_errno(rl, -ENOMEM);
}

/* The cloud would resume it for any traffic: the edge decides. */
static void paused(struct gateway_relay *rl)
{
	struct sandbox_glance s;

	rl->is_asleep = true;
	if (!rl->is_health && sandbox_glance(rl->g->o.core, rl->to.sandbox, &s) && s.target.at.wakes)
		open_to(rl, &s.target);
	else
		answer_absent(rl);
}

static void on_found(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct gateway_relay *rl = relay_from(user);

	rl->op = NULL;
	if (status_ok(st))
		open_to(rl, t);
	else if (st->reason == R_SANDBOX_PAUSED)
		paused(rl);
	else if (is_absent(st))
		answer_absent(rl);
	else if (st->reason == R_STATE_CHANGING && !rl->is_health)
		wait_for_change(rl);
	else
		answer_failure(rl, st);
}

/* --- who may --- */

static void refuse_for(struct gateway_relay *rl, enum relay_right why)
{
	const struct plane_port to = rl->to;

	rl->g->counts.refused++;
	switch (why) {
	case RELAY_NO_TRAFFIC_TOKEN:
		edge_reply_traffic_missing(relay_end(rl), to.sandbox);
		break;
	case RELAY_WRONG_TRAFFIC_TOKEN:
		edge_reply_traffic_wrong(relay_end(rl), to.sandbox);
		break;
	case RELAY_NOT_OWNER:
		answer_as(rl, 403, "This port is open to its owner's own programs; show the header Agentboxd-Token");
		break;
	case RELAY_OUT_OF_SCOPE:
		answer_as(rl, 403, "The token is good for other sandboxes only");
		break;
	case RELAY_NO_ACCESS_TOKEN:
		reply_envd_error(relay_end(rl), 401, "the access token (X-Access-Token) or a signature is missing");
		break;
	case RELAY_LINK_OVER:
		reply_envd_error(relay_end(rl), 401, "signature is already expired");
		break;
	default:
		reply_envd_error(relay_end(rl), 401, "the access token or the signature is wrong");
		break;
	}
}

static void asker_of(const struct gateway_relay *rl, struct relay_asker *ret)
{
	const struct fields *head = http_stream_head(rl->x);
	const struct http_conn *c = http_stream_conn(rl->x);
	const struct gateway_conn *conn = c ? http_conn_user(c) : NULL;

	*ret = (struct relay_asker){
		.head = head,
		.token = rl->token && !token_is_over(rl->token) ? rl->token : NULL,
		.is_own_program = conn && conn->peer.is_known && !who_is_foreign_page(head, conn->door->is_tls),
		.uid = conn && conn->peer.is_known ? conn->peer.uid : (uid_t)-1,
		.now_s = clock_wall_ms() / 1000,
	};
}

static void judge(struct gateway_relay *rl, const struct sandbox_target *t)
{
	char made[MADE_TOKEN_TEXT] = "";
	struct relay_asker a;

	asker_of(rl, &a);
	if (str_is_empty(t->at.token))
		made_token(rl->g->o.secret, t->at.id, made);
	rl->right = relay_judge(&a, &(struct relay_door){ .sandbox = t->at.id, .port = rl->to.port, .owner = t->owner_uid, .is_health = rl->is_health,
							  .access_token = t->at.token, .made_token = made, .traffic_token = t->at.traffic_token });
}

static bool sees(const struct gateway *g, uid_t uid, uid_t owner)
{
	return uid == owner || (g->o.whole_account && uid == g->o.own_uid);
}

/*
 * A sandbox exists for who may see it and for whoever shows a secret of it. Anybody else, a peer that the kernel does not know among
 * them, is answered as about an id of nobody. A link that is over was one of its secrets.
 */
static bool is_hidden(const struct gateway_relay *rl, uid_t owner)
{
	struct relay_asker a;

	if (rl->right < RELAY_ALLOWED || rl->right == RELAY_LINK_OVER)
		return false;
	asker_of(rl, &a);
	return !sees(rl->g, a.uid, owner) && !(a.token && sees(rl->g, a.token->uid, owner));
}

static void refuse_relay(struct gateway_relay *rl, uid_t owner)
{
	if (is_hidden(rl, owner)) {
		rl->g->counts.refused++;
		answer_absent(rl);
	} else {
		refuse_for(rl, rl->right);
	}
}

/* The agent's own control routes pass no edge; it is not said of a sandbox that is not there. True: it was answered. */
static bool refuse_internal(struct gateway_relay *rl)
{
	char *clean = rl->to.port == ENVD_PORT ? query_clean_path(fields_get(http_stream_head(rl->x), ":path")) : NULL;
	bool is_bad = rl->to.port == ENVD_PORT && !clean, is_internal = clean && route_is_internal(clean);

	if (is_bad)
		reply_text(relay_end(rl), 400, "Bad Request");
	else if (is_internal)
		edge_reply_internal(relay_end(rl), clean);
	free(clean);
	return is_bad || is_internal;
}

/* One that no row is about: the account's, as far as its cloud says. */
static void on_stranger(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct gateway_relay *rl = relay_from(user);

	rl->op = NULL;
	if (!status_ok(st)) {
		on_found(user, st, t);
		return;
	}
	judge(rl, t);
	if (!is_hidden(rl, t->owner_uid) && refuse_internal(rl))
		return;
	if (rl->right < RELAY_ALLOWED)
		open_to(rl, t);
	else
		refuse_relay(rl, t->owner_uid);
}

static void stranger(struct gateway_relay *rl)
{
	struct relay_asker a;
	uid_t uid = rl->g->o.own_uid;

	asker_of(rl, &a);
	if (a.token)
		uid = a.token->uid;
	if (!relay_shows_secret(&a) || (!a.token && !rl->g->o.whole_account))
		answer_absent(rl);
	else if (resolve_as(rl, uid, on_stranger) < 0)
		answer_errno(rl, -ENOMEM);
}

static void on_learnt(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct gateway_relay *rl = relay_from(user);

	rl->op = NULL;
	if (status_ok(st) || st->reason == R_SANDBOX_PAUSED || st->reason == R_STATE_CHANGING)
		look(rl);
	else if (rl->was_hidden)
		stranger(rl);
	else
		on_found(rl, st, t);
}

static void learn(struct gateway_relay *rl, const char *account)
{
	rl->learnt = true;
	if (ask_core(rl, account, SANDBOX_SAW_LOST, RESOLVE_MS, on_learnt) < 0)
		answer_errno(rl, -ENOMEM);
}

/* Asked for again because of a token that does not fit: at most so often, whoever guesses. */
static bool may_ask_again(struct gateway *g)
{
	uint64_t now = loop_now_ms(g->loop);

	if (now < g->asked_at_ms + GATEWAY_ASK_GAP_MS)
		return false;
	g->asked_at_ms = now;
	return true;
}

/* It may pass. GET /health neither wakes it nor counts as use. */
static void proceed(struct gateway_relay *rl, const struct sandbox_glance *s)
{
	enum sandbox_state state = s->target.state;

	if (s->is_sure)
		open_to(rl, &s->target);
	else if (rl->is_health && (rl->learnt || state == SANDBOX_PAUSED || state == SANDBOX_PAUSING))
		answer_absent(rl);
	else if (rl->is_health)
		learn(rl, s->target.at.account);
	else if (resolve_as(rl, s->target.owner_uid, on_found) < 0)
		answer_errno(rl, -ENOMEM);
}

static void look(struct gateway_relay *rl)
{
	struct sandbox_glance s;

	if (!sandbox_glance(rl->g->o.core, rl->to.sandbox, &s)) {
		stranger(rl);
		return;
	}
	if (!s.token_known && !rl->learnt) {
		learn(rl, s.target.at.account);
		return;
	}
	judge(rl, &s.target);
	if (!is_hidden(rl, s.target.owner_uid) && refuse_internal(rl))
		return;
	if (rl->right < RELAY_ALLOWED) {
		proceed(rl, &s);
	} else if (!rl->learnt && rl->right == RELAY_WRONG_ACCESS_TOKEN && may_ask_again(rl->g)) {
		rl->was_hidden = is_hidden(rl, s.target.owner_uid);
		learn(rl, s.target.at.account);
	} else if (is_hidden(rl, s.target.owner_uid)) {
		stranger(rl);
	} else {
		refuse_for(rl, rl->right);
	}
}

/* --- the start --- */

static bool is_health(const struct gateway_relay *rl)
{
	const struct fields *head = http_stream_head(rl->x);
	const char *method = fields_get(head, ":method"), *path = fields_get(head, ":path");

	return rl->to.port == ENVD_PORT && str_eq(method, "GET") && strcspn(path, "?") == strlen("/health") && str_starts(path, "/health");
}

/* --- a link that names no sandbox --- */

struct link_search {
	struct relay_link link;
	const uint8_t *secret;
	uint32_t compared;
};

static bool link_fits(void *user, const struct sandbox_glance *s)
{
	struct link_search *l = user;
	char made[MADE_TOKEN_TEXT];

	l->compared++;
	if (!str_is_empty(s->target.at.token))
		return relay_link_is_of(&l->link, s->target.at.token);
	made_token(l->secret, s->target.at.id, made);
	return relay_link_is_of(&l->link, made);
}

/* One whose link was found before: whoever reads it in pieces is not searched for again. */
static bool find_again(struct gateway *g, struct link_search *l, struct sandbox_glance *ret)
{
	const char *id = map_get_str(&g->links, l->link.signature);

	return id && sandbox_glance(g->o.core, id, ret) && ret->token_known && link_fits(l, ret);
}

static void remember_link(struct gateway *g, const char *signature, const char *id)
{
	char *copy;

	if (map_size(&g->links) >= LINKS_KEPT)
		gateway_forget_links(g);
	copy = map_get_str(&g->links, signature) ? NULL : str_dup(id);
	if (copy && map_put_str(&g->links, signature, copy) < 0)
		free(copy);
}

void gateway_forget_links(struct gateway *g)
{
	size_t pos = 0;
	char *id;

	while ((id = map_next(&g->links, &pos)))
		free(id);
	map_fini(&g->links);
	g->links = (struct map)MAP_NULL;
}

/* How many sandboxes a search of this uid may look at now. */
static uint32_t may_compare(struct gateway_guest *u, uint64_t now_ms)
{
	if (now_ms >= u->compared_since_ms + 1000) {
		u->compared_since_ms = now_ms;
		u->compared = 0;
	}
	return MIN(LINKS_MAX, LINKS_PER_S - MIN(u->compared, LINKS_PER_S));
}

/* 0; -ENOENT: none of them; -EBUSY: this uid has had too many searched for. */
static int search_link(struct gateway_relay *rl, struct link_search *l, struct sandbox_glance *ret)
{
	const struct gateway_conn *conn = http_conn_user(http_stream_conn(rl->x));
	uint32_t most = may_compare(conn->guest, loop_now_ms(rl->g->loop));
	bool found;

	if (find_again(rl->g, l, ret))
		return 0;
	if (!most)
		return -EBUSY;
	found = sandbox_glance_search(rl->g->o.core, most, link_fits, l, ret);
	conn->guest->compared += l->compared + SEARCH_COST;
	if (found)
		remember_link(rl->g, l->link.signature, ret->target.at.id);
	return found ? 0 : -ENOENT;
}

static int find_by_link(struct gateway_relay *rl)
{
	struct link_search l = { .secret = rl->g->o.secret };
	struct sandbox_glance s;
	struct relay_asker a;
	int r;

	asker_of(rl, &a);
	if (!relay_link_read(&a, &l.link))
		return -ENOENT;
	r = search_link(rl, &l, &s);
	relay_link_fini(&l.link);
	if (r < 0)
		return r;
	str_copy(rl->to.sandbox, sizeof(rl->to.sandbox), s.target.at.id);
	rl->to.port = ENVD_PORT;
	return 0;
}

/* True: it was answered. */
static bool refuse_user(struct gateway_relay *rl)
{
	char why[GATEWAY_WHY_BYTES];
	enum gateway_may may = gateway_may(rl->g, &rl->peer, rl->token, why);

	if (may == GATEWAY_MAY)
		return false;
	rl->g->counts.refused++;
	reply_text(relay_end(rl), may == GATEWAY_MAY_LATER ? 503 : 403, why);
	return true;
}

static void find_users(struct gateway_relay *rl)
{
	const struct http_conn *c = http_stream_conn(rl->x);
	const struct gateway_conn *conn = c ? http_conn_user(c) : NULL;
	const char *shown = fields_get(http_stream_head(rl->x), GATEWAY_TOKEN_FIELD);
	struct token *t = conn && conn->token ? conn->token : shown ? tokens_find(rl->g->o.tokens, shown) : NULL;

	if (conn)
		rl->peer = conn->peer;
	rl->token = t ? token_ref(t) : NULL;
}

/* Of a forwarded connection, whose programs are not those of the uid that forwards it. True: it was answered. */
static bool refuse_forwarded(struct gateway_relay *rl)
{
	const struct http_conn *c = http_stream_conn(rl->x);
	const struct gateway_conn *conn = c ? http_conn_user(c) : NULL;

	if (!conn || !conn->token || !token_is_over(conn->token))
		return false;
	rl->g->counts.refused++;
	reply_text(relay_end(rl), 401, "The token that this connection was forwarded with is over");
	return true;
}

/* NULL: no memory, or not for this client. */
static struct gateway_relay *relay_new(struct gateway *g, struct http_stream *x)
{
	struct http_conn *c = http_stream_conn(x);
	struct quota *q = c ? http_conn_quota(c) : NULL;
	size_t n = sizeof(struct gateway_relay) + HEAD_COPIES * http_stream_head(x)->bytes;
	struct gateway_relay *rl;

	if (quota_take(q, n) < 0)
		return NULL;
	rl = calloc(1, sizeof(*rl));
	if (rl)
		*rl = (struct gateway_relay){ .magic = GATEWAY_RELAY_MAGIC, .g = g, .x = x, .quota = quota_ref(q), .charged = n };
	else
		quota_give(q, n);
	return rl;
}

void gateway_relay_request(struct gateway *g, struct http_stream *x, const struct plane_port *to)
{
	struct gateway_relay *rl = relay_new(g, x);
	int r;

	if (!rl) {
		reply_text(x, 503, "Too much is held for this client already");
		return;
	}
	if (to)
		rl->to = *to;
	timer_init(&rl->limit, g->loop, on_limit, rl);
	timer_init(&rl->unasked, g->loop, on_unasked, rl);
	defer_init(&rl->again, g->loop, on_again, rl);
	sandbox_tie_init(&rl->tie, on_tied, rl);
	list_add_tail(&g->relays, &rl->node);
	g->counts.relays++;
	http_stream_set_owner(x, on_down_ready, rl);
	find_users(rl);
	if (refuse_forwarded(rl) || refuse_user(rl))
		return;
	r = to ? 0 : find_by_link(rl);
	if (r == -EBUSY) {
		reply_text(relay_end(rl), 429, "Too many links that fit no sandbox; try again in a second");
		return;
	}
	if (r < 0) {
		refuse_for(rl, RELAY_WRONG_ACCESS_TOKEN);
		return;
	}
	rl->is_health = is_health(rl);
	look(rl);
}

void gateway_relay_end_all(struct gateway *g)
{
	list_for_each_safe(n, &g->relays)
		cut(list_entry(n, struct gateway_relay, node));
}

void gateway_relay_check_all(struct gateway *g)
{
	char why[GATEWAY_WHY_BYTES];

	list_for_each_safe(n, &g->relays) {
		struct gateway_relay *rl = list_entry(n, struct gateway_relay, node);

		if (gateway_may(g, &rl->peer, rl->token, why) == GATEWAY_MAY_NOT)
			cut(rl);
	}
}
