/* SPDX-License-Identifier: MIT */
/*
 * The cloud of a simulated host: a ledger that is the truth, and messages that may be late, lost,
 * cut off before or after the cloud acted, refused, or answered by a list that lies. A request that
 * has left goes on without its sender: it acts when it arrives, also after a crash.
 */
#include "daemon/cloud/cloud.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandbox/rules/tags.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define DEADLINE_MS  75000u
#define LATE_MAX_MS  90000u	/* a request acts at most so late: sometimes after the horizon */
#define HIDDEN_MAX_MS 8000u	/* made, and in no list yet */
#define AGAIN_MAX_MS 3000u
#define BUSY_MAX_MS  2000u	/* a sandbox that is being copied is in no list */

enum what { W_CREATE, W_GET, W_LIST, W_KILL, W_CONNECT, W_TIMEOUT, W_REFRESH, W_PAUSE, W_FORK,
	    W_SNAPSHOT, W_SNAPSHOTS, W_SNAPSHOT_DELETE, W_OTHER };
static const char *const what_names[] = { "create", "get",     "list",    "kill", "connect",
					  "timeout", "refresh", "pause", "fork", "snapshot", "snapshots",
					  "delete snapshot", "other" };

enum fate { F_OK, F_UNSENT, F_LOST_BEFORE, F_LOST_AFTER, F_LATE, F_ERR_BEFORE, F_ERR_AFTER, F_REFUSED,
	    F_LIMITED, F_STALL, F_TWICE };
static const char *const fate_names[] = { "ok", "unsent", "lost before", "lost after", "late", "500 before",
					  "500 after", "refused", "429", "stall", "ok, twice" };

struct cloud {
	struct list calls;
	uint64_t failed_at_ms, ok_at_ms;
};

struct wire {			/* a request on its way */
	struct cloud_call *call;	/* NULL: nobody waits any more */
	enum what what;
	enum fate fate;
	char id[64], tag[40];	/* tag: of a create; of a copy its key; of a list of snapshots the name */
	uint32_t timeout_s;
	struct sim_copy *copy;
	uint64_t reply_at_ms;
	struct cloud_kvs kvs;	/* create: metadata; list: filter */
	bool sent, acted, answered, withdrawn;
	unsigned events;	/* still to come */
	unsigned core;
	struct cloud_result result;
};

struct cloud_call {
	struct list node;
	struct cloud *cloud;
	struct wire *wire;	/* NULL: of a life that has crashed */
	cloud_done_fn *done;
	void *user;
};

/* --- the ledger --- */

int64_t ledger_now(void)
{
	return (int64_t)W->now_ms + W->cloud_offset_ms;
}

void ledger_end(struct sim_sandbox *b, const char *how)
{
	b->alive = false;
	b->how = how;
	b->died_at_ms = W->now_ms;
	sim_trace("cloud: %s is no more: %s", b->id, how);
}

void ledger_expire(void)
{
	for (unsigned i = 0; i < W->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];

		if (b->alive && !b->paused && b->end_at_ms <= ledger_now())
			ledger_end(b, "its end came");
	}
}

struct sim_sandbox *ledger_find(const char *id)
{
	for (unsigned i = 0; i < W->n_sandboxes; i++)
		if (str_eq(W->sandboxes[i].id, id))
			return &W->sandboxes[i];
	return NULL;
}

static struct sim_sandbox *alive(const char *id)
{
	struct sim_sandbox *b = ledger_find(id);

	return b && b->alive ? b : NULL;
}

struct sim_sandbox *ledger_add(uint32_t timeout_s)
{
	struct sim_sandbox *b = &W->sandboxes[W->n_sandboxes++];

	must(W->n_sandboxes < SIM_BOXES);
	*b = (struct sim_sandbox){ .alive = true, .timeout_s = timeout_s };
	snprintf(b->id, sizeof(b->id), "i%020u", W->n_sandboxes);
	b->started_at_ms = ledger_now();
	b->end_at_ms = b->started_at_ms + (W->cap_s ? MIN(timeout_s, W->cap_s) : timeout_s) * 1000ll;
	b->listed_at_ms = b->touched_at_ms = W->now_ms;
	policy_default(&b->may[0]);
	b->n_may = 1;
	return b;
}

struct sim_sandbox *ledger_plant(const char *of)
{
	struct sim_sandbox *b = ledger_add(3600);

	b->foreign = true;
	if (of)
		must(!cloud_kvs_add(&b->tags, TAG_HOST, of));
	return b;
}

struct cloud_sandbox *ledger_view(const struct sim_sandbox *b, bool tokens, bool listed)
{
	struct cloud_sandbox *s = calloc(1, sizeof(*s));

	must(s);
	s->id = str_dup(b->id);
	s->template_id = str_dup("base");
	s->envd_version = str_dup("0.6.13");
	if (tokens)
		s->envd_access_token = str_printf("token-%s", b->id);
	s->state = b->paused ? CLOUD_STATE_PAUSED : CLOUD_STATE_RUNNING;
	if (!listed)
		return s;
	s->started_at_ms = b->started_at_ms;
	s->end_at_ms = b->end_at_ms;
	s->cpu_count = 2;
	s->memory_mb = 512;
	for (size_t i = 0; i < b->tags.n; i++)
		must(!cloud_kvs_add(&s->metadata, b->tags.v[i].key, b->tags.v[i].value));
	return s;
}

/* --- acting --- */

static void refuse(struct cloud_result *r, unsigned http, enum ab_reason reason)
{
	r->outcome = CLOUD_REFUSED;
	r->http_status = http;
	status_set(&r->status, reason, "the simulated cloud says %u", http);
}

static void missing(struct cloud_result *r)
{
	refuse(r, 404, R_SANDBOX_NOT_FOUND);
	r->not_found = true;
}

static void act_create(struct wire *w)
{
	struct sim_sandbox *b = ledger_add(w->timeout_s);

	b->orphan = w->core <= W->lost_life;
	b->tags = w->kvs;
	w->kvs = (struct cloud_kvs){ 0 };
	b->listed_at_ms = W->now_ms + (W->quiet ? 0 : sim_between(&W->cloud_rng, 0, HIDDEN_MAX_MS));
	sim_trace("cloud: %s made for %s", b->id, w->tag);
	check_accepted(b);
	w->result.sandbox = ledger_view(b, true, false);
}

static bool shown(const struct sim_sandbox *b, uint64_t lag_ms)
{
	uint64_t then = W->now_ms - MIN(lag_ms, W->now_ms);

	return b->listed_at_ms <= then && b->busy_until_ms <= W->now_ms && (b->alive || b->died_at_ms > then);
}

static bool matches(const struct sim_sandbox *b, const struct cloud_kvs *want)
{
	for (size_t i = 0; i < want->n; i++) {
		const char *v = cloud_kvs_get(&b->tags, want->v[i].key);

		if (!v || !str_eq(v, want->v[i].value))
			return false;
	}
	return true;
}

static void act_list(struct wire *w)
{
	struct cloud_list *l = calloc(1, sizeof(*l));
	struct rng *r = &W->cloud_rng;
	uint64_t lag = sim_chance(r, W->faults.list_lag) ? sim_between(r, 1, 5000) : 0;
	bool empty = sim_chance(r, W->faults.list_empty), omits = sim_chance(r, W->faults.list_omit);

	must(l);
	l->total_running = -1;
	l->v = calloc(W->n_sandboxes + 1, sizeof(*l->v));
	must(l->v);
	for (unsigned i = 0; i < W->n_sandboxes && !empty; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];

		if (shown(b, lag) && matches(b, &w->kvs) && !(omits && sim_chance(r, 400)))
			l->v[l->n++] = ledger_view(b, false, true);
	}
	w->result.list = l;
	sim_trace("cloud: a list of %zu%s%s%s", l->n, lag ? ", stale" : "", empty ? ", empty" : "",
		  omits ? ", not complete" : "");
}

static void extend_to(struct sim_sandbox *b, int64_t end)
{
	if (W->cap_s)
		end = MIN(end, b->started_at_ms + W->cap_s * 1000ll);
	b->end_at_ms = end;
	b->touched_at_ms = W->now_ms;
}

/* Its copy, or what a checkpoint that fails does. */
static void act_copy(struct wire *w, struct sim_sandbox *b)
{
	if (w->what == W_SNAPSHOT && b->paused) {
		missing(&w->result);
	} else if (b->paused || b->busy_until_ms > W->now_ms) {
		refuse(&w->result, 409, R_STATE_CHANGING);
		w->result.conflict = true;
	} else if (w->fate == F_ERR_AFTER && sim_chance(&W->cloud_rng, 200)) {
		ledger_end(b, "its checkpoint failed");
	} else {
		b->busy_until_ms = MIN(MAX(w->reply_at_ms, W->now_ms), W->now_ms + BUSY_MAX_MS);
		if (w->core > W->lost_life)
			check_copied(w->copy);
		if (w->what == W_FORK)
			ledger_fork(b, w->copy, &w->result);
		else
			ledger_snapshot(b, w->copy, &w->result);
	}
}

static void act_snapshot_delete(struct wire *w)
{
	struct sim_snap *s = ledger_snapshot_find(w->id);

	if (s && s->alive)
		s->alive = false;
	else
		missing(&w->result);
}

static void act_on(struct wire *w, struct sim_sandbox *b)
{
	struct cloud_result *r = &w->result;
	int64_t end = ledger_now() + w->timeout_s * 1000ll;

	switch (w->what) {
	case W_GET:
		r->sandbox = ledger_view(b, true, true);
		break;
	case W_KILL:
		ledger_end(b, "deleted");
		break;
	case W_PAUSE:
		if (b->paused) {
			refuse(r, 409, R_STATE_CHANGING);
			r->conflict = true;
		}
		else
			extend_to(b, ledger_now());
		b->paused = true;
		break;
	case W_REFRESH:
		end = ledger_now() + MAX(w->timeout_s, 15u) * 1000ll;
		if (b->paused)
			missing(r);
		else
			extend_to(b, MAX(b->end_at_ms, end));
		break;
	case W_TIMEOUT:
		if (b->paused)
			missing(r);
		else
			extend_to(b, end);
		break;
	case W_CONNECT:
		extend_to(b, b->paused ? end : MAX(b->end_at_ms, end));
		b->paused = false;
		r->sandbox = ledger_view(b, true, false);
		break;
	case W_FORK:
	case W_SNAPSHOT:
		act_copy(w, b);
		break;
	default:
		refuse(r, 400, R_CLOUD_REFUSED);
		break;
	}
}

static void act(struct wire *w)
{
	struct sim_sandbox *b = alive(w->id);

	ledger_expire();
	b = b && b->alive ? b : NULL;
	w->acted = true;
	w->result.outcome = CLOUD_DONE;
	w->result.http_status = 200;
	w->result.date_ms = ledger_now() / 1000 * 1000;
	if (w->what == W_CREATE)
		act_create(w);
	else if (w->what == W_LIST)
		act_list(w);
	else if (w->what == W_SNAPSHOTS)
		ledger_snapshots(w->id, w->tag, &w->result);
	else if (w->what == W_SNAPSHOT_DELETE)
		act_snapshot_delete(w);
	else if (b)
		act_on(w, b);
	else
		missing(&w->result);
	if (w->what == W_KILL && !b) {
		w->result.outcome = CLOUD_DONE;
		w->result.status = (struct status)STATUS_OK;
	}
}

/* --- messages --- */

static void drop_answer(struct cloud_result *r)
{
	cloud_sandbox_free(r->sandbox);
	cloud_list_free(r->list);
	cloud_children_free(r->children);
	cloud_snapshot_free(r->snapshot);
	cloud_snapshots_free(r->snapshots);
	*r = (struct cloud_result){ 0 };
}

static void wire_over(struct wire *w)
{
	if (--w->events)
		return;
	if (w->call)
		w->call->wire = NULL;	/* crashed in its answer */
	cloud_kvs_fini(&w->kvs);
	drop_answer(&w->result);
	free(w);
}

static void on_send(void *arg)
{
	struct wire *w = arg;

	if (!w->withdrawn && w->call)
		w->sent = true;
	wire_over(w);
}

static void on_arrive(void *arg)
{
	struct wire *w = arg;
	bool acts = w->fate == F_OK || w->fate == F_LOST_AFTER || w->fate == F_LATE || w->fate == F_ERR_AFTER ||
		    w->fate == F_STALL || w->fate == F_TWICE;

	/* With its connection, what is on the wire may be cut off. */
	if (!w->call && w->core != W->sandbox_no && sim_chance(&W->cloud_rng, 300))
		acts = false;
	if (!W->ending && w->sent && acts && !w->acted)
		act(w);
	wire_over(w);
}

/* Somebody on the way sent it again. */
static void on_arrive_again(void *arg)
{
	struct wire *w = arg;
	struct wire again = { .what = w->what, .timeout_s = w->timeout_s, .core = w->core };

	(void)str_copy(again.id, sizeof(again.id), w->id);
	if (!W->ending && w->acted) {
		sim_trace("cloud: %s %s again", what_names[w->what], w->id);
		act(&again);
		drop_answer(&again.result);
	}
	wire_over(w);
}

static void unknown(struct cloud_result *r, enum cloud_outcome outcome, unsigned http)
{
	drop_answer(r);
	*r = (struct cloud_result){ .outcome = outcome, .http_status = http };
	status_set(&r->status, R_UNREACHABLE, http ? "the simulated cloud says %u" : "no answer (%u)", http);
}

static void judge(struct wire *w)
{
	struct cloud_result *r = &w->result;

	if (!w->sent)
		unknown(r, CLOUD_UNSENT, 0);
	else if ((w->fate == F_OK || w->fate == F_TWICE) && w->acted)
		return;
	else if (w->fate == F_REFUSED)
		refuse(r, 400, R_CLOUD_REFUSED);
	else if (w->fate == F_ERR_BEFORE || w->fate == F_ERR_AFTER)
		unknown(r, CLOUD_UNKNOWN, 500);
	else if (w->fate == F_LIMITED) {
		refuse(r, 429, R_RATE_LIMITED);
		r->retry_later = true;
		r->status.retry_after_ms = 1000;
	} else {
		unknown(r, CLOUD_UNKNOWN, 0);
	}
}

/* At most once. */
static bool makes(enum what what)
{
	return what == W_CREATE || what == W_FORK || what == W_SNAPSHOT;
}

static void note(struct wire *w, struct cloud *c)
{
	struct sim_sandbox *b = ledger_find(w->id);

	if (w->result.http_status)
		c->ok_at_ms = sim_boot_now();
	else
		c->failed_at_ms = sim_boot_now();
	if (makes(w->what))
		check_create_done(w->tag, w->result.outcome == CLOUD_UNKNOWN || w->result.outcome == CLOUD_DONE);
	if (w->what == W_GET && b && w->result.sandbox)
		b->seen_alive_ms = W->now_ms;
}

static void on_answer(void *arg)
{
	struct wire *w = arg;
	struct cloud_call *k = w->call;

	if (!W->ending && k && !w->answered && !sim_seam("cloud.answer")) {
		w->answered = true;
		if (w->fate == F_LATE)
			w->acted = w->acted || !w->sent;
		judge(w);
		sim_trace("%s %s%s: outcome %d http %u", what_names[w->what], w->id, w->tag,
			  (int)w->result.outcome, w->result.http_status);
		note(w, k->cloud);
		w->call = NULL;
		list_del(&k->node);
		k->done(&w->result, k->user);
		free(k);
		drop_answer(&w->result);
	}
	wire_over(w);
}

/* --- a call begins --- */

static enum fate draw(enum what what)
{
	const struct sim_faults *f = &W->faults;
	struct { unsigned chance; enum fate fate; } row[] = {
		{ f->unsent, F_UNSENT }, { f->lost_before, F_LOST_BEFORE }, { f->lost_after, F_LOST_AFTER },
		{ f->late, F_LATE }, { f->err_before, F_ERR_BEFORE }, { f->err_after, F_ERR_AFTER },
		{ f->refused, F_REFUSED }, { f->limited, F_LIMITED }, { f->stall, F_STALL },
		{ f->twice, F_TWICE },
	};
	unsigned n = (unsigned)rng_below(&W->cloud_rng, 1000);

	if (W->now_ms < W->cloud_down_until_ms)
		return rng_below(&W->cloud_rng, 2) ? F_UNSENT : F_LOST_BEFORE;
	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		/* What only asks is not refused; 400 of an extension has a meaning of its own: the cap. */
		if (row[i].fate == F_REFUSED && (what == W_GET || what == W_LIST || what == W_REFRESH ||
						    what == W_SNAPSHOTS))
			continue;
		/* What is made at most once is not asked for in a form that anybody may repeat. */
		if (row[i].fate == F_TWICE && makes(what))
			continue;
		if (n < row[i].chance)
			return row[i].fate;
		n -= MIN(n, row[i].chance);
	}
	return F_OK;
}

static uint64_t latency(void)
{
	uint64_t n = rng_below(&W->cloud_rng, 100);

	if (n < 70 || W->quiet)
		return sim_between(&W->cloud_rng, 1, 20);
	return n < 97 ? sim_between(&W->cloud_rng, 20, 300) : sim_between(&W->cloud_rng, 300, 5000);
}

static void plan(struct wire *w, uint64_t deadline_ms)
{
	uint64_t boot_to_true = W->boot_base_ms;
	uint64_t by = (deadline_ms ? deadline_ms : sim_boot_now() + DEADLINE_MS) + boot_to_true;
	uint64_t send = W->now_ms + (w->fate == F_UNSENT ? 0 : sim_between(&W->cloud_rng, 0, 20));
	uint64_t arrive = send + latency(), reply = arrive + latency();

	if (w->fate == F_STALL)
		reply = by;
	else if (w->fate == F_LATE)
		arrive = reply + sim_between(&W->cloud_rng, 1, LATE_MAX_MS);
	else if (w->fate == F_UNSENT)
		reply = send + latency();
	w->reply_at_ms = reply;
	if (w->fate != F_UNSENT) {
		w->events += 2;
		sim_at(send, on_send, w);
		sim_at(arrive, on_arrive, w);
	}
	if (w->fate == F_TWICE) {
		w->events++;
		sim_at(arrive + sim_between(&W->cloud_rng, 1, AGAIN_MAX_MS), on_arrive_again, w);
	}
	w->events++;
	sim_at(MIN(reply, MAX(by, W->now_ms + 1)), on_answer, w);
}

static struct cloud_call *call_new(struct cloud *c, enum what what, const char *id, uint32_t timeout_s,
				   const struct cloud_ask *ask, struct wire **ret)
{
	struct cloud_call *k = calloc(1, sizeof(*k));
	struct wire *w;

	must(k);
	*ret = NULL;
	k->cloud = c;
	k->done = ask->done;
	k->user = ask->user;
	list_add_tail(&c->calls, &k->node);
	if (sim_seam("cloud.call"))
		return k;
	w = calloc(1, sizeof(*w));
	must(w);
	w->call = k;
	w->what = what;
	w->timeout_s = timeout_s;
	w->core = W->sandbox_no;
	w->fate = draw(what);
	(void)str_copy(w->id, sizeof(w->id), id);
	k->wire = w;
	sim_action(what_names[what], id, timeout_s);
	sim_trace("%s %s %u s (will be: %s)", what_names[what], id, timeout_s, fate_names[w->fate]);
	*ret = w;
	return k;
}

static struct cloud_call *simple(struct cloud *c, enum what what, const char *id, uint32_t timeout_s,
				 const struct cloud_ask *ask)
{
	struct wire *w;
	struct cloud_call *k = call_new(c, what, id, timeout_s, ask, &w);

	if (w)
		plan(w, ask->deadline_ms);
	return k;
}

/* --- cloud.h --- */

struct cloud *sim_cloud_new(void)
{
	struct cloud *c = calloc(1, sizeof(*c));

	must(c);
	list_init(&c->calls);
	return c;
}

struct cloud *sim_cloud_free(struct cloud *c)
{
	must(list_is_empty(&c->calls));
	free(c);
	return NULL;
}

void cloud_call_cancel(struct cloud_call *k)
{
	if (!k)
		return;
	if (k->wire) {
		k->wire->call = NULL;
		if (makes(k->wire->what) && !W->dead && !k->wire->sent)
			check_create_done(k->wire->tag, false);
	}
	list_del(&k->node);
	free(k);
}

void cloud_call_abandon(struct cloud_call *k)
{
	if (!k->wire || k->wire->sent)
		return;
	k->wire->withdrawn = true;
	k->wire->events++;
	sim_at(W->now_ms, on_answer, k->wire);
}

bool cloud_call_was_sent(const struct cloud_call *k)
{
	return !k->wire || k->wire->sent;
}

struct cloud_call *cloud_create(struct cloud *c, const struct cloud_create *what, const struct cloud_ask *ask)
{
	struct wire *w;
	struct cloud_call *k = call_new(c, W_CREATE, "", what->timeout_s, ask, &w);

	if (!w)
		return k;
	for (size_t i = 0; i < what->n_metadata; i++)
		must(!cloud_kvs_add(&w->kvs, what->metadata[i].key, what->metadata[i].value));
	(void)str_copy(w->tag, sizeof(w->tag), cloud_kvs_get(&w->kvs, TAG_REQ));
	check_create_sent(w->tag);
	plan(w, ask->deadline_ms);
	return k;
}

struct cloud_call *cloud_get(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return simple(c, W_GET, id, 0, ask);
}

struct cloud_call *cloud_kill(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	if (!W->dead)
		check_end_sent(ledger_find(id), false);
	return simple(c, W_KILL, id, 0, ask);
}

struct cloud_call *cloud_pause(struct cloud *c, const char *id, bool keep_memory, const struct cloud_ask *ask)
{
	if (!W->dead)
		check_end_sent(ledger_find(id), true);
	return simple(c, W_PAUSE, id, 0, ask);
}

struct cloud_call *cloud_connect(struct cloud *c, const char *id, uint32_t timeout_s, const struct cloud_ask *ask)
{
	if (!W->dead)
		check_connect_sent(ledger_find(id));
	return simple(c, W_CONNECT, id, timeout_s, ask);
}

struct cloud_call *cloud_set_timeout(struct cloud *c, const char *id, uint32_t timeout_s,
				     const struct cloud_ask *ask)
{
	must(timeout_s);
	if (!W->dead)
		check_timeout_sent(ledger_find(id));
	return simple(c, W_TIMEOUT, id, timeout_s, ask);
}

struct cloud_call *cloud_refresh(struct cloud *c, const char *id, uint32_t for_s, const struct cloud_ask *ask)
{
	must(for_s);
	return simple(c, W_REFRESH, id, for_s, ask);
}

struct cloud_call *cloud_list_all(struct cloud *c, const struct cloud_filter *f, const struct cloud_ask *ask)
{
	struct wire *w;
	struct cloud_call *k = call_new(c, W_LIST, "", 0, ask, &w);

	for (size_t i = 0; w && i < f->n_metadata; i++)
		must(!cloud_kvs_add(&w->kvs, f->metadata[i].key, f->metadata[i].value));
	if (w)
		plan(w, ask->deadline_ms);
	return k;
}

static struct cloud_call *copy(struct cloud *c, enum what what, const char *id, struct sim_copy *of,
			       const struct cloud_ask *ask)
{
	struct wire *w;
	struct cloud_call *k = call_new(c, what, id, of->timeout_s, ask, &w);

	if (!w)
		return k;
	w->copy = of;
	(void)str_copy(w->tag, sizeof(w->tag), copy_key(of));
	check_create_sent(w->tag);
	plan(w, ask->deadline_ms);
	return k;
}

struct cloud_call *cloud_fork(struct cloud *c, const char *id, uint32_t count, uint32_t timeout_s,
			      const struct cloud_ask *ask)
{
	return copy(c, W_FORK, id, copy_by_timeout(timeout_s), ask);
}

struct cloud_call *cloud_snapshot(struct cloud *c, const char *id, const char *name, const struct cloud_ask *ask)
{
	return copy(c, W_SNAPSHOT, id, copy_by_name(name), ask);
}

struct cloud_call *cloud_snapshots(struct cloud *c, const char *sandbox, const char *name,
				   const struct cloud_ask *ask)
{
	struct wire *w;
	struct cloud_call *k = call_new(c, W_SNAPSHOTS, sandbox ? sandbox : "", 0, ask, &w);

	if (w) {
		(void)str_copy(w->tag, sizeof(w->tag), name ? name : "");
		plan(w, ask->deadline_ms);
	}
	return k;
}

struct cloud_call *cloud_snapshot_delete(struct cloud *c, const char *snapshot, const struct cloud_ask *ask)
{
	if (!W->dead)
		check_snapshot_deleted(snapshot);
	return simple(c, W_SNAPSHOT_DELETE, snapshot, 0, ask);
}

/* What no scripted client asks for is refused. */

struct cloud_call *cloud_put_network(struct cloud *c, const char *id, const struct cloud_network *network,
				     enum tri allow_internet_access, const struct cloud_ask *ask)
{
	return simple(c, W_OTHER, id, 0, ask);
}

struct cloud_call *cloud_metrics(struct cloud *c, const char *id, int64_t start_s, int64_t end_s,
				 const struct cloud_ask *ask)
{
	return simple(c, W_OTHER, id, 0, ask);
}

struct cloud_call *cloud_list_page(struct cloud *c, const struct cloud_filter *f, const struct cloud_ask *ask)
{
	return cloud_list_all(c, f, ask);
}

char *cloud_port_host(const struct cloud *c, const char *sandbox_id, uint16_t port, const char *domain)
{
	return str_printf("%u-%s.%s", port, sandbox_id, domain ? domain : "sim.test");
}

const char *cloud_traffic_header(const struct cloud *c)
{
	return "e2b-traffic-access-token";
}

const char *cloud_api_url(const struct cloud *c)
{
	return "https://api.sim.test";
}

void cloud_health(const struct cloud *c, struct cloud_health *ret)
{
	*ret = (struct cloud_health){ .key_present = true, .last_ok_at_ms = c->ok_at_ms,
				      .last_failure_at_ms = c->failed_at_ms };
	if (c->failed_at_ms)
		status_set(&ret->last_failure, R_UNREACHABLE, "the simulated cloud does not answer");
}
