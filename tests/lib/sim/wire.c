/* SPDX-License-Identifier: MIT */
/* The way to the cloud and back: a request may be late, lost, cut off before or after it acted, refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/ev/loop.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/lib/sim/fake.h"

#define DEADLINE_MS   75000u
#define LATE_MAX_MS   90000u	/* a request acts at most so late: sometimes after the horizon */
#define AGAIN_MAX_MS  3000u
#define PROBE_MAX_MS  500u
#define TRY_EVERY_MS  10u	/* while the cloud is away, or holds an answer back */

static const char *const what_names[FAKE_CALLS] = {
	"create", "get",  "list",     "kill",	   "connect",	      "timeout", "refresh",
	"pause",  "fork", "snapshot", "snapshots", "delete snapshot", "network", "metrics",
	"templates",
};
static const char *const fate_names[] = {
	"ok",      "unsent", "lost before", "lost after", "late", "500 before", "500 after",
	"refused", "429",    "stall",       "ok, twice",  "409",  "held",
};

struct cloud {
	struct fake *fake;
	struct loop *loop;
	struct list calls;
	unsigned run;
	uint64_t failed_at_ms, ok_at_ms;
	void (*on_date)(void *user, int64_t date_ms);
	void *date_user;
};

struct cloud_call {
	struct list node;
	struct cloud *cloud;
	struct fake_request *q;	/* NULL: of a run that has crashed */
	cloud_done_fn *done;
	int (*sending)(void *user);
	void *user;
};

/* At most once. */
static bool makes(enum fake_call what)
{
	return what == FAKE_CREATE || what == FAKE_FORK || what == FAKE_SNAPSHOT;
}

static uint64_t between(struct fake *f, uint64_t lo, uint64_t hi)
{
	return lo + rng_below(&f->rng, hi - lo + 1);
}

static void tell_over(const struct fake_request *q, enum cloud_outcome outcome)
{
	if (q->fake->observer)
		q->fake->observer->over(q, outcome);
}

static void drop_answer(struct cloud_result *r)
{
	cloud_sandbox_free(r->sandbox);
	cloud_list_free(r->list);
	cloud_children_free(r->children);
	cloud_metrics_free(r->metrics);
	cloud_snapshot_free(r->snapshot);
	cloud_snapshots_free(r->snapshots);
	cloud_templates_free(r->templates);
	*r = (struct cloud_result){ 0 };
}

/* One of its events is over. */
static void event_over(struct fake_request *q)
{
	if (--q->events)
		return;
	if (q->call)
		q->call->q = NULL;	/* crashed in its answer */
	cloud_kvs_fini(&q->kvs);
	drop_answer(&q->result);
	free(q);
}

static void event_at(struct fake_request *q, uint64_t at_ms, sim_event_fn *fn)
{
	q->events++;
	sim_at(at_ms, fn, q);
}

/* --- there --- */

static void on_send(void *arg)
{
	struct fake_request *q = arg;

	if (!q->withdrawn && q->call)
		q->sent = !q->call->sending || q->call->sending(q->call->user) == 0;
	event_over(q);
}

static bool acts(const struct fake_request *q)
{
	switch (q->fate) {
	case FAKE_OK:
	case FAKE_LOST_AFTER:
	case FAKE_LATE:
	case FAKE_ERR_AFTER:
	case FAKE_STALL:
	case FAKE_TWICE:
	case FAKE_HOLD:
		return true;
	default:
		return false;
	}
}

/* What was on the wire when its sender crashed. */
static bool is_cut(const struct fake_request *q)
{
	struct fake *f = q->fake;

	return !q->call && q->run != f->runs && rng_below(&f->rng, 1000) < f->faults.cut;
}

static void on_arrive(void *arg)
{
	struct fake_request *q = arg;
	bool cut = is_cut(q);

	if (!sim->ending && q->sent && !q->acted) {
		q->fake->seen[q->what]++;
		if (acts(q) && !cut)
			fake_act(q);
	}
	event_over(q);
}

static void on_arrive_again(void *arg)
{
	struct fake_request *q = arg;
	struct fake_request again = { .fake = q->fake, .what = q->what, .timeout_s = q->timeout_s };

	(void)str_copy(again.id, sizeof(again.id), q->id);
	if (!sim->ending && q->acted) {
		sim_trace("cloud: %s %s again", what_names[q->what], q->id);
		fake_act(&again);
		drop_answer(&again.result);
	}
	event_over(q);
}

/* --- and back --- */

static void unknown(struct cloud_result *r, enum cloud_outcome outcome, unsigned http)
{
	drop_answer(r);
	*r = (struct cloud_result){ .outcome = outcome, .http_status = http };
	status_set(&r->status, R_UNREACHABLE, http ? "the fake cloud says %u" : "no answer (%u)", http);
}

static void limited(struct cloud_result *r)
{
	fake_refuse(r, 429, R_RATE_LIMITED);
	r->retry_later = true;
	r->status.retry_after_ms = 1000;
}

static void judge(struct fake_request *q)
{
	struct cloud_result *r = &q->result;

	if (!q->sent)
		unknown(r, CLOUD_UNSENT, 0);
	else if ((q->fate == FAKE_OK || q->fate == FAKE_TWICE || q->fate == FAKE_HOLD) && q->acted)
		return;
	else if (q->fate == FAKE_REFUSED)
		fake_refuse(r, 400, R_CLOUD_REFUSED);
	else if (q->fate == FAKE_CONFLICT)
		fake_conflict(r);
	else if (q->fate == FAKE_ERR_BEFORE || q->fate == FAKE_ERR_AFTER)
		unknown(r, CLOUD_UNKNOWN, 500);
	else if (q->fate == FAKE_LIMITED)
		limited(r);
	else
		unknown(r, CLOUD_UNKNOWN, 0);
}

static void note_health(struct cloud *c, const struct cloud_result *r)
{
	if (r->http_status)
		c->ok_at_ms = clock_boot_ms();
	else
		c->failed_at_ms = clock_boot_ms();
}

static void answer(struct fake_request *q)
{
	struct cloud_call *k = q->call;

	q->answered = true;
	if (q->fate == FAKE_LATE)
		q->acted = q->acted || !q->sent;
	if (q->fate == FAKE_UNSENT && !q->withdrawn)
		q->fake->seen[q->what]++;
	judge(q);
	sim_trace("%s %s%s: outcome %d http %u", what_names[q->what], q->id, q->label,
		  (int)q->result.outcome, q->result.http_status);
	note_health(k->cloud, &q->result);
	tell_over(q, q->result.outcome);
	q->call = NULL;
	list_del(&k->node);
	if (q->result.date_ms && k->cloud->on_date)
		k->cloud->on_date(k->cloud->date_user, q->result.date_ms);
	k->done(&q->result, k->user);
	free(k);
	drop_answer(&q->result);
}

static void on_answer(void *arg)
{
	struct fake_request *q = arg;

	if (!sim->ending && q->call && !q->answered) {
		if (q->fate == FAKE_HOLD && q->acted && !q->fake->released)
			event_at(q, sim->now_ms + TRY_EVERY_MS, on_answer);
		else if (!sim_seam("cloud.answer"))
			answer(q);
		else if (!q->sent)	/* as in cloud_call_cancel(), which does not find it any more */
			tell_over(q, CLOUD_UNSENT);
	}
	event_over(q);
}

/* --- a call begins --- */

/* Is it a fate that such a call may have? */
static bool may_have(enum fake_call what, enum fake_fate fate)
{
	/* What only asks is not refused; 400 of an extension has a meaning of its own: the cap. */
	if (fate == FAKE_REFUSED)
		return what != FAKE_GET && what != FAKE_LIST && what != FAKE_REFRESH &&
		       what != FAKE_SNAPSHOTS_LIST && what != FAKE_TEMPLATES;
	/* What is made at most once is not asked for in a form that anybody may repeat. */
	return fate != FAKE_TWICE || !makes(what);
}

static enum fake_fate draw(struct fake *f, enum fake_call what)
{
	const struct fake_faults *c = &f->faults;
	const struct {
		unsigned chance;
		enum fake_fate fate;
	} row[] = {
		{ c->unsent, FAKE_UNSENT },
		{ c->lost_before, FAKE_LOST_BEFORE },
		{ c->lost_after, FAKE_LOST_AFTER },
		{ c->late, FAKE_LATE },
		{ c->err_before, FAKE_ERR_BEFORE },
		{ c->err_after, FAKE_ERR_AFTER },
		{ c->refused, FAKE_REFUSED },
		{ c->limited, FAKE_LIMITED },
		{ c->stall, FAKE_STALL },
		{ c->twice, FAKE_TWICE },
	};
	unsigned n = (unsigned)rng_below(&f->rng, 1000);

	if (f->next[what].n) {
		f->next[what].n--;
		return f->next[what].fate;
	}
	if (sim->now_ms < f->down_until_ms)
		return rng_below(&f->rng, 2) ? FAKE_UNSENT : FAKE_LOST_BEFORE;
	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		if (!may_have(what, row[i].fate))
			continue;
		if (n < row[i].chance)
			return row[i].fate;
		n -= MIN(n, row[i].chance);
	}
	return FAKE_OK;
}

static int64_t refresh_tokens(const struct fake *f)
{
	int64_t full = f->refresh_burst * 1000ll;

	if (!f->refresh_filled_ms)
		return full;
	return MIN(full, f->refresh_tokens_milli +
				 (int64_t)((sim->now_ms - f->refresh_filled_ms) * f->refresh_per_s_milli / 1000));
}

/* As it leaves: the limiter of the real client waits for a token in the same way, or says at once that it
 * comes too late. */
static bool is_over_budget(struct fake *f)
{
	int64_t tokens = refresh_tokens(f);

	if (!f->refresh_burst)
		return false;
	f->refresh_told = true;
	f->refresh_tokens_milli = tokens >= 1000 ? tokens - 1000 : tokens;
	f->refresh_filled_ms = sim->now_ms;
	f->refreshes_refused += tokens < 1000;
	return tokens < 1000;
}

static uint64_t latency(struct fake *f)
{
	uint64_t n = rng_below(&f->rng, 100);

	if (n < 70 || !f->faults.slow)
		return between(f, 1, f->latency_ms);
	return n < 97 ? between(f, 20, 300) : between(f, 300, 5000);
}

/* When what happens to it. */
static void plan(struct fake_request *q)
{
	struct fake *f = q->fake;
	uint64_t send = sim->now_ms + (q->fate == FAKE_UNSENT ? 0 : between(f, 0, f->latency_ms));
	uint64_t arrive = send + latency(f), reply = arrive + latency(f);

	if (q->fate == FAKE_STALL)
		reply = q->until_ms;
	else if (q->fate == FAKE_LATE)
		arrive = reply + between(f, 1, LATE_MAX_MS);
	else if (q->fate == FAKE_UNSENT)
		reply = send + latency(f);
	q->reply_at_ms = reply;
	if (q->fate != FAKE_UNSENT) {
		event_at(q, send, on_send);
		event_at(q, arrive, on_arrive);
	}
	if (q->fate == FAKE_TWICE)
		event_at(q, arrive + between(f, 1, AGAIN_MAX_MS), on_arrive_again);
	event_at(q, MIN(reply, MAX(q->until_ms, sim->now_ms + 1)), on_answer);
}

/* The cloud was away: as the real client, it tries again until its deadline. */
static void on_wait(void *arg)
{
	struct fake_request *q = arg;

	if (sim->ending || !q->call || q->withdrawn) {
		/* nobody waits */
	} else if (!q->fake->down) {
		plan(q);
	} else if (sim->now_ms + TRY_EVERY_MS < q->until_ms) {
		q->call->cloud->failed_at_ms = clock_boot_ms();
		event_at(q, sim->now_ms + TRY_EVERY_MS, on_wait);
	} else {
		event_at(q, sim->now_ms, on_answer);
	}
	event_over(q);
}

static struct cloud_call *call_new(struct cloud *c, enum fake_call what, const char *id,
				   const struct cloud_ask *ask)
{
	struct cloud_call *k = calloc(1, sizeof(*k));
	struct fake_request *q;

	must(k);
	k->cloud = c;
	k->done = ask->done;
	k->sending = ask->sending;
	k->user = ask->user;
	list_add_tail(&c->calls, &k->node);
	if (sim_seam("cloud.call"))
		return k;
	k->q = q = calloc(1, sizeof(*q));
	must(q);
	q->fake = c->fake;
	q->call = k;
	q->what = what;
	q->run = c->run;
	q->until_ms = (ask->deadline_ms ? ask->deadline_ms : clock_boot_ms() + DEADLINE_MS) +
		      sim->booted_at_ms;
	(void)str_copy(q->id, sizeof(q->id), id);
	return k;
}

static struct cloud_call *start(struct cloud_call *k)
{
	struct fake_request *q = k->q;

	if (!q)
		return k;
	q->fate = draw(q->fake, q->what);
	if (q->what == FAKE_REFRESH && q->fate == FAKE_OK && is_over_budget(q->fake))
		q->fate = FAKE_LIMITED;
	sim_trace("%s %s %u s (will be: %s)", what_names[q->what], q->id, q->timeout_s,
		  fate_names[q->fate]);
	if (q->fake->observer)
		q->fake->observer->begins(q);
	if (q->fake->down)
		event_at(q, sim->now_ms, on_wait);
	else
		plan(q);
	return k;
}

static struct cloud_call *simple(struct cloud *c, enum fake_call what, const char *id,
				 uint32_t timeout_s, const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, what, id, ask);

	if (k->q)
		k->q->timeout_s = timeout_s;
	return start(k);
}

/* --- agents --- */

struct probe {
	struct timer timer;
	struct grave grave;
	struct cloud *cloud;
	sandbox_probed_fn *done;
	void *user;
};

static void on_probed(struct timer *t, void *user)
{
	struct status st = STATUS_OK;
	struct probe *p = user;
	enum sandbox_probe_result result = p->cloud->fake->probe;

	if (result != SANDBOX_PROBE_HEALTHY)
		status_set(&st, R_UNREACHABLE, "the fake agent does not answer");
	loop_bury(p->cloud->loop, &p->grave, free, p);
	p->done(p->user, result, &st);
}

static void *probe_start(const struct sandbox_target *t, uint64_t deadline_ms,
			 sandbox_probed_fn *done, void *done_user, void *user)
{
	struct probe *p = calloc(1, sizeof(*p));

	must(p);
	*p = (struct probe){ .cloud = user, .done = done, .user = done_user };
	timer_init(&p->timer, p->cloud->loop, on_probed, p);
	must(!timer_set(&p->timer, clock_boot_ms() + between(p->cloud->fake, 1, PROBE_MAX_MS)));
	return p;
}

static void probe_cancel(void *probe, void *user)
{
	struct probe *p = probe;

	timer_clear(&p->timer);
	free(p);
}

struct sandbox_prober fake_prober(struct cloud *c)
{
	return (struct sandbox_prober){ probe_start, probe_cancel, c };
}

/* --- cloud.h --- */

struct cloud *fake_cloud(struct fake *f, struct loop *l)
{
	struct cloud *c = calloc(1, sizeof(*c));

	must(c);
	c->fake = f;
	c->loop = l;
	c->run = ++f->runs;
	list_init(&c->calls);
	return c;
}

struct cloud *fake_cloud_free(struct cloud *c)
{
	must(list_is_empty(&c->calls));
	free(c);
	return NULL;
}

void cloud_call_cancel(struct cloud_call *k)
{
	if (!k)
		return;
	if (k->q) {
		k->q->call = NULL;
		if (!k->q->sent)	/* also in a crash: the mark that was not written proves it */
			tell_over(k->q, CLOUD_UNSENT);
	}
	list_del(&k->node);
	free(k);
}

void cloud_call_abandon(struct cloud_call *k)
{
	if (!k->q || k->q->sent)
		return;
	k->q->withdrawn = true;
	event_at(k->q, sim->now_ms, on_answer);
}

bool cloud_call_was_sent(const struct cloud_call *k)
{
	return !k->q || k->q->sent;
}

struct cloud_call *cloud_create(struct cloud *c, const struct cloud_create *what,
				const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, FAKE_CREATE, "", ask);
	const char *tag, *env;

	if (!k->q)
		return k;
	k->q->timeout_s = what->timeout_s;
	for (size_t i = 0; i < what->metadata.n; i++)
		must(!cloud_kvs_add(&k->q->kvs, what->metadata.v[i].key, what->metadata.v[i].value));
	tag = cloud_kvs_get(&k->q->kvs, TAG_REQ);
	env = cloud_kvs_get(&what->envs, FAKE_ENV);
	(void)str_copy(k->q->label, sizeof(k->q->label), tag ? tag : "");
	(void)str_copy(k->q->env, sizeof(k->q->env), env ? env : "");
	return start(k);
}

struct cloud_call *cloud_get(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return simple(c, FAKE_GET, id, 0, ask);
}

struct cloud_call *cloud_kill(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return simple(c, FAKE_KILL, id, 0, ask);
}

struct cloud_call *cloud_pause(struct cloud *c, const char *id, bool keep_memory,
			       const struct cloud_ask *ask)
{
	return simple(c, FAKE_PAUSE, id, 0, ask);
}

struct cloud_call *cloud_connect(struct cloud *c, const char *id, uint32_t timeout_s,
				 const struct cloud_ask *ask)
{
	return simple(c, FAKE_CONNECT, id, timeout_s, ask);
}

struct cloud_call *cloud_set_timeout(struct cloud *c, const char *id, uint32_t timeout_s,
				     const struct cloud_ask *ask)
{
	return simple(c, FAKE_TIMEOUT, id, timeout_s, ask);
}

struct cloud_call *cloud_refresh(struct cloud *c, const char *id, uint32_t for_s,
				 const struct cloud_ask *ask)
{
	must(for_s);
	return simple(c, FAKE_REFRESH, id, for_s, ask);
}

struct cloud_call *cloud_list_all(struct cloud *c, const struct cloud_filter *f,
				  const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, FAKE_LIST, "", ask);

	for (size_t i = 0; k->q && i < f->n_metadata; i++)
		must(!cloud_kvs_add(&k->q->kvs, f->metadata[i].key, f->metadata[i].value));
	return start(k);
}

struct cloud_call *cloud_list_page(struct cloud *c, const struct cloud_filter *f,
				   const struct cloud_ask *ask)
{
	return cloud_list_all(c, f, ask);
}

struct cloud_call *cloud_put_network(struct cloud *c, const char *id,
				     const struct cloud_network *network,
				     enum tri allow_internet_access, const struct cloud_ask *ask)
{
	return simple(c, FAKE_NETWORK, id, 0, ask);
}

struct cloud_call *cloud_metrics(struct cloud *c, const char *id, int64_t start_s, int64_t end_s,
				 const struct cloud_ask *ask)
{
	return simple(c, FAKE_METRICS, id, 0, ask);
}

struct cloud_call *cloud_fork(struct cloud *c, const char *id, uint32_t count, uint32_t timeout_s,
			      const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, FAKE_FORK, id, ask);

	if (!k->q)
		return k;
	k->q->count = count;
	k->q->timeout_s = timeout_s;
	snprintf(k->q->label, sizeof(k->q->label), "fork %u", timeout_s);
	return start(k);
}

struct cloud_call *cloud_snapshot(struct cloud *c, const char *id, const char *name,
				  const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, FAKE_SNAPSHOT, id, ask);

	if (!k->q)
		return k;
	(void)str_copy(k->q->name, sizeof(k->q->name), name ? name : "");
	snprintf(k->q->label, sizeof(k->q->label), "snapshot %s", k->q->name);
	return start(k);
}

struct cloud_call *cloud_snapshots(struct cloud *c, const char *sandbox, const char *name,
				   const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, FAKE_SNAPSHOTS_LIST, sandbox ? sandbox : "", ask);

	if (!k->q)
		return k;
	(void)str_copy(k->q->name, sizeof(k->q->name), name ? name : "");
	(void)str_copy(k->q->label, sizeof(k->q->label), k->q->name);
	return start(k);
}

struct cloud_call *cloud_templates(struct cloud *c, bool whole, const struct cloud_ask *ask)
{
	return simple(c, FAKE_TEMPLATES, whole ? "whole" : "", 0, ask);
}

struct cloud_call *cloud_snapshot_delete(struct cloud *c, const char *snapshot,
					 const struct cloud_ask *ask)
{
	return simple(c, FAKE_SNAPSHOT_DELETE, snapshot, 0, ask);
}

char *cloud_port_host(const struct cloud *c, const char *sandbox_id, uint16_t port, const char *domain)
{
	return str_printf("%u-%s.%s", port, sandbox_id, domain ? domain : "fake.test");
}

const char *cloud_port_scheme(const struct cloud *c)
{
	return "https";
}

const char *cloud_traffic_header(const struct cloud *c)
{
	return "e2b-traffic-access-token";
}

const char *cloud_api_url(const struct cloud *c)
{
	return "https://api.fake.test";
}

void cloud_health(const struct cloud *c, struct cloud_health *ret)
{
	*ret = (struct cloud_health){ .key_present = true, .last_ok_at_ms = c->ok_at_ms,
				      .last_failure_at_ms = c->failed_at_ms };
	if (c->failed_at_ms)
		status_set(&ret->last_failure, R_UNREACHABLE, "the fake cloud does not answer");
}

bool cloud_extend_rate(const struct cloud *c, struct cloud_rate *ret)
{
	const struct fake *f = c->fake;

	if (!f->refresh_told)
		return false;
	*ret = (struct cloud_rate){ .per_s_milli = f->refresh_per_s_milli,
				    .tokens = (uint32_t)(refresh_tokens(f) / 1000) };
	return true;
}

void cloud_on_key_changed(struct cloud *c, void (*fn)(void *user), void *user)
{
}

void cloud_on_date(struct cloud *c, void (*fn)(void *user, int64_t date_ms), void *user)
{
	c->on_date = fn;
	c->date_user = user;
}

void cloud_key_trust(struct cloud *c, enum cloud_trust trust, const struct status *why)
{
}

/* It has no keys: there is nothing to prove. */
bool cloud_key_hash(const struct cloud *c, void (*sha256)(const void *p, size_t n, uint8_t ret[32]), uint8_t ret[32])
{
	return false;
}
