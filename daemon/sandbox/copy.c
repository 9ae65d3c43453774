/* SPDX-License-Identifier: MIT */
/*
 * The attempt_kind of forks and snapshots. Two steps come before the intent:
 *
 *   turn     no other change of the source meanwhile
 *   known    what is there already, asked from the cloud
 *
 * While a copy is being resolved its source is free again. Where lists cannot tell what it made, the outcome stays
 * OUTCOME_UNKNOWN, and nothing is killed or deleted.
 */
#include "daemon/sandbox/copy.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/lines.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define POST_BACKOFF_MS	 200u
#define CONFLICTS_MAX	 30u
#define CONFLICT_BACKOFF_MAX 2000u
#define LIST_MS		 30000u
#define DETAIL_MS	 2000u
#define BEHIND_MS	 500u	/* between looks whether an earlier copy of the source is still being resolved */
#define AGENT_MIN	 "0.5.0"

static const struct attempt_kind protocol;

static void copy_begin(struct copy *c);

bool attempt_is_copy(const struct attempt *a)
{
	return a->kind == &protocol;
}

struct copy *copy_from(struct attempt *a)
{
	struct copy *c = container_of(a, struct copy, att);

	must(attempt_is_copy(a) && c->magic == COPY_MAGIC);
	return c;
}

static struct copy *copy_of(void *user)
{
	return copy_from(attempt_from(user));
}

static struct sandbox *source_of(const struct copy *c)
{
	return core_find(c->att.core, c->att.account, c->att.source);
}

/* --- its end --- */

static void copy_free(struct attempt *a)
{
	struct copy *c = copy_from(a);

	c->magic = 0;
	free(c->name);
	cloud_strs_fini(&c->known);
	cloud_children_free(c->children);
	cloud_snapshot_free(c->snapshot);
	free(c);
}

/* The source is free for other changes. */
static void let_go(struct copy *c)
{
	struct sandbox *b = c->changing ? source_of(c) : NULL;

	c->changing = false;
	if (b) {
		b->changing = false;
		if (b->state == SANDBOX_SNAPSHOTTING)
			sandbox_changed(c->att.core, b, SANDBOX_RUNNING, "");
	}
	turn_end(&c->turn);
}

static void copy_unlink(struct attempt *a)
{
	struct copy *c = copy_from(a);

	fetch_leave(&c->look);
	let_go(c);
}

static void end_without_memory(struct copy *c)
{
	struct status st;

	status_errno(&st, -ENOMEM, c->kind->what);
	attempt_end_without(&c->att, &st, false);
}

/* --- intent --- */

static void on_intent(void *user, const struct status *st)
{
	struct attempt *a = attempt_from(user);

	FAILPOINT("copy.intent_committed");
	if (status_ok(st))
		attempt_post(a);
	else
		attempt_end_without(a, st, false);
}

static int write_intent(struct copy *c)
{
	char policy[POLICY_TEXT_MAX], *known = lines_join(&c->known);
	struct row_copy row = {
		.kind = c->kind->row,
		.account = c->att.account->name,
		.uid = c->att.uid,
		.request_id = c->att.request ? c->att.request->id : "",
		.source = c->att.source,
		.name = c->name,
		.count = c->count,
		.policy = policy,
		.known = known,
		.made_at_ms = c->att.made_at_ms,
	};
	struct store_tx *t;
	int r = known ? store_next_seq(c->att.core->store, &c->att.seq) : -ENOMEM;

	if (!r)
		r = store_tx_new(c->att.core->store, &t);
	if (r < 0) {
		free(known);
		return r;
	}
	policy_format(&c->att.policy, policy);
	row.seq = c->att.seq;
	c->att.step = ATTEMPT_INTENT;
	store_tx_put_copy(t, &row);
	if (c->att.request)
		core_put_request(t, c->att.request);
	free(known);
	FAILPOINT("copy.before_intent");
	store_tx_commit(t, true, on_intent, &c->att);
	return 0;
}

static void intend(struct copy *c)
{
	struct status st;
	int r;

	if (attempt_nobody_waits(&c->att))
		return;
	r = write_intent(c);
	if (!r)
		return;
	if (r == -EAGAIN) {
		core_store_refusal(c->att.core, &st);
	} else {
		status_errno(&st, r, c->kind->what);
	}
	attempt_end_without(&c->att, &st, false);
}

/* --- known --- */

static void on_known(struct cloud_result *r, void *user)
{
	struct copy *c = copy_of(user);

	c->att.call = NULL;
	if (r->outcome != CLOUD_DONE) {
		attempt_end_without(&c->att, &r->status, false);
		return;
	}
	if (r->date_ms)
		c->att.made_at_ms = r->date_ms;
	if (c->kind->take_known(c, r) < 0)
		end_without_memory(c);
	else
		intend(c);
}

static void ask_known(struct copy *c)
{
	struct cloud_ask ask = { .deadline_ms = clock_boot_ms() + LIST_MS, .uid = c->att.uid,
				 .done = on_known, .user = &c->att };

	c->att.step = ATTEMPT_KNOWN;
	c->att.made_at_ms = clock_wall_ms();
	if (c->kind == &copy_fork && !c->att.req_tag[0]) {
		intend(c);	/* without a tag a list could not tell its children from others */
		return;
	}
	c->att.call = c->kind->ask_known(c, &ask);
	if (!c->att.call)
		end_without_memory(c);
}

/* --- turn --- */

static void copy_on_turn(struct turn *t)
{
	copy_begin(container_of(t, struct copy, turn));
}

static void on_behind(struct timer *t, void *user)
{
	copy_start(copy_of(user));
}

static bool is_relative(struct attempt *a, struct attempt *b)
{
	return attempt_is_copy(b) && copy_from(a)->kind == copy_from(b)->kind &&
	       a->account == b->account &&
	       (str_eq(a->source, b->source) || (a->req_tag[0] && str_eq(a->req_tag, b->req_tag)));
}

/* Waits for a relative that is being resolved: lists could not tell what the two make. */
static bool is_behind(struct copy *c)
{
	struct status st;

	list_for_each(n, &c->att.core->attempts) {
		struct attempt *o = list_entry(n, struct attempt, node);

		if (o == &c->att || o->step != ATTEMPT_RESOLVE || !is_relative(&c->att, o))
			continue;
		status_set(&st, R_STATE_CHANGING, "the outcome of an earlier %s of sandbox %s is still being looked "
						  "for; repeat", c->kind->what, c->att.source);
		op_note_pending_error(&c->att.waiters, &st);
		turn_end(&c->turn);
		attempt_wait(&c->att, BEHIND_MS, on_behind);
		return true;
	}
	return false;
}

static void on_source_looked(struct fetch_wait *w, const struct fetch_result *result)
{
	copy_begin(container_of(w, struct copy, look));
}

/* Can the source not be copied? True: the attempt has ended, or, since the row may be old, the cloud is being asked about it. */
static bool is_refused(struct copy *c, struct sandbox *b)
{
	struct status st;

	if (sandbox_is_live(b) && b->state != SANDBOX_RUNNING && !c->looked) {
		c->looked = true;
		c->look.fn = on_source_looked;
		if (fetch_join(c->att.core, c->att.account, c->att.source, false, &c->look) == 0)
			return true;
	}
	if (b->state != SANDBOX_RUNNING) {
		sandbox_refusal(b, &st);
		attempt_end_without(&c->att, &st, false);
		return true;
	}
	if (b->envd_version[0] && cloud_version_cmp(b->envd_version, AGENT_MIN) < 0 &&
	    !str_eq(b->envd_version, CLOUD_VERSION_UNKNOWN)) {
		status_set(&st, R_TEMPLATE_TOO_OLD, "a %s needs agent " AGENT_MIN ", sandbox %s has %s",
			   c->kind->what, b->id, b->envd_version);
		attempt_end_without(&c->att, &st, false);
		return true;
	}
	return false;
}

static void copy_begin(struct copy *c)
{
	struct sandbox *b = source_of(c);

	if (attempt_nobody_waits(&c->att) || is_behind(c))
		return;
	if (b) {
		if (is_refused(c, b))
			return;
		b->changing = c->changing = true;
		sandbox_set_state(b, SANDBOX_SNAPSHOTTING);
	}
	ask_known(c);
}

static void on_start(struct timer *t, void *user)
{
	copy_begin(copy_of(user));
}

void copy_start(struct copy *c)
{
	struct sandbox *b = source_of(c);

	c->att.step = ATTEMPT_WAIT;
	if (b)
		turn_take(&c->turn, b);
	else
		attempt_wait(&c->att, 0, on_start);
}

/* --- post --- */

/* A 409 means that somebody else is changing the source, which passes. */
static bool waits_for_change(struct copy *c, const struct cloud_result *r)
{
	uint64_t wait;

	if (!r->conflict || list_is_empty(&c->att.waiters) || c->att.core->draining ||
	    c->conflicts >= CONFLICTS_MAX)
		return false;
	wait = rules_backoff_ms(c->conflicts++, POST_BACKOFF_MS, CONFLICT_BACKOFF_MAX,
				rng_u64(&c->att.core->rng));
	c->att.posts--;	/* a 409 does not count */
	attempt_post_after(&c->att, wait, &r->status);
	return true;
}

static void on_refusal_looked(struct fetch_wait *w, const struct fetch_result *result)
{
	struct copy *c = container_of(w, struct copy, look);
	struct status st = c->att.lost;

	if (result->sandbox && result->sandbox->state != SANDBOX_RUNNING &&
	    result->sandbox->state != SANDBOX_SNAPSHOTTING)
		sandbox_refusal(result->sandbox, &st);
	else if (result->end == FETCH_ABSENT)
		ref_not_found(&st, c->att.source);
	else if (result->s && result->s->state == CLOUD_STATE_PAUSED)
		status_set(&st, R_SANDBOX_PAUSED, "sandbox %s is paused; ConnectSandbox (agentboxctl resume) resumes it", c->att.source);
	/* A refusal that passes by itself is not kept for repeats of the request id. */
	attempt_end_without(&c->att, &st, st.reason != R_STATE_CHANGING);
}

/* 404 and 409 do not say whether the source is paused or gone: the cloud is asked, and the refusal says so. */
static void refused(struct attempt *a, const struct cloud_result *r)
{
	struct copy *c = copy_from(a);
	struct sandbox *b = source_of(c);

	if (waits_for_change(c, r))
		return;
	a->lost = r->status;
	if (r->not_found || r->conflict) {
		if (b)
			b->changing = false;
		c->look.fn = on_refusal_looked;
		if (list_is_empty(&c->look.node) &&
		    fetch_join(a->core, a->account, a->source, false, &c->look) == 0)
			return;
	}
	attempt_end_without(a, &r->status, !r->conflict);
}

static void on_posted(struct cloud_result *r, void *user)
{
	FAILPOINT("copy.answered");
	attempt_posted(attempt_from(user), r);
}

static bool copy_names_another(struct attempt *a, const struct cloud_result *r)
{
	const struct copy *c = copy_from(a);

	return c->kind->names_another(c, r);
}

static void copy_take(struct attempt *a, struct cloud_result *r)
{
	struct copy *c = copy_from(a);

	c->kind->take(c, r);
}

static struct cloud_call *copy_post(struct attempt *a)
{
	/* The caller's deadline ends the caller's waiting, not this: once sent it is worth reading. */
	struct cloud_ask ask = { .uid = a->uid, .trace = a->trace, .done = on_posted, .sending = attempt_sending, .user = a };
	struct copy *c = copy_from(a);
	struct cloud_call *call;

	FAILPOINT("copy.before_send");
	call = c->kind->post(c, &ask);
	FAILPOINT("copy.after_send");
	return call;
}

/* --- record --- */

static void end_well(struct copy *c)
{
	struct status ok = STATUS_OK;

	log_info("copy_done", "what=%s seq=%llu sandbox=%s uid=%u made=%s posts=%u", c->kind->what,
		 (unsigned long long)c->att.seq, c->att.source, owner_uid(c->att.uid), log_q(c->att.object),
		 c->att.posts);
	attempt_finish(&c->att, &ok);
}

static void on_detail(struct cloud_result *r, void *user)
{
	struct copy *c = copy_of(user);

	c->att.call = NULL;
	for (size_t i = 0; r->list && i < r->list->n; i++) {
		struct sandbox *b = core_find(c->att.core, c->att.account, r->list->v[i]->id);

		if (b && !str_eq(b->id, c->att.source))
			sandbox_seen(c->att.core, b, r->list->v[i]);
	}
	end_well(c);
}

/* The answer of a fork lacks times and sizes. */
static bool wants_detail(const struct copy *c)
{
	bool any = false;

	for (size_t i = 0; c->children && i < c->children->n; i++)
		any |= c->children->v[i].sandbox && !c->children->v[i].sandbox->started_at_ms;
	return any;
}

static void on_recorded(void *user, const struct status *st)
{
	struct copy *c = copy_of(user);
	struct cloud_kv want[] = {
		{ (char *)TAG_HOST, (char *)store_host_id(c->att.core->store) },
		{ (char *)TAG_REQ, c->att.req_tag },
	};
	struct cloud_filter f = { .metadata = want, .n_metadata = c->att.req_tag[0] ? ARRAY_SIZE(want) : 0 };
	struct cloud_ask ask = { .deadline_ms = clock_boot_ms() + DETAIL_MS, .uid = c->att.uid,
				 .done = on_detail, .user = &c->att };

	FAILPOINT("copy.recorded");
	if (!attempt_recorded(&c->att, st))
		return;
	c->att.step = ATTEMPT_DETAIL;
	let_go(c);
	c->att.call = wants_detail(c) ? cloud_list_all(c->att.account->cloud, &f, &ask) : NULL;
	if (!c->att.call)
		end_well(c);
}

static int copy_record(struct attempt *a, struct store_tx *t)
{
	struct copy *c = copy_from(a);
	int r = c->kind->record(c, t);

	FAILPOINT("copy.before_record");
	return r;
}

/* --- resolve --- */

static void copy_on_listed(struct cloud_result *r, void *user)
{
	FAILPOINT("copy.resolve_listed");
	attempt_listed(attempt_from(user), r);
}

static struct cloud_call *list(struct attempt *a)
{
	struct cloud_ask ask = { .deadline_ms = clock_boot_ms() + LIST_MS, .uid = a->uid,
				 .done = copy_on_listed, .user = a };
	struct copy *c = copy_from(a);

	return c->kind->ask_known(c, &ask);
}

static enum resolve_next copy_resolve(struct attempt *a, struct cloud_result *r, uint64_t *ret_wait_ms)
{
	struct copy *c = copy_from(a);

	return c->kind->resolve(c, r, ret_wait_ms);
}

static void on_lost_looked(struct fetch_wait *w, const struct fetch_result *result)
{
}

static bool resolve_begin(struct attempt *a)
{
	struct copy *c = copy_from(a);

	let_go(c);
	/* A checkpoint that failed may have ended the source: its row learns of it. */
	c->look.fn = on_lost_looked;
	if (list_is_empty(&c->look.node) &&
	    fetch_join(a->core, a->account, a->source, true, &c->look) < 0)
		log_debug("copy_look", "sandbox=%s error=nomem", a->source);
	return c->kind != &copy_fork || a->req_tag[0];
}

static bool makes(struct attempt *a, const char *id)
{
	const struct copy *c = copy_from(a);

	return c->kind == &copy_fork && a->step >= ATTEMPT_POST && !cloud_strs_has(&c->known, id);
}

static const struct attempt_kind protocol = {
	.del_intent = store_tx_del_copy,
	.post = copy_post,
	.names_another = copy_names_another,
	.take = copy_take,
	.refused = refused,
	.record = copy_record,
	.on_recorded = on_recorded,
	.resolve_begin = resolve_begin,
	.list = list,
	.resolve = copy_resolve,
	.makes = makes,
	.is_relative = is_relative,
	.unlink = copy_unlink,
	.free = copy_free,
};

/* --- what others see --- */

int copy_new(struct sandbox_core *core, const struct copy_kind *kind, struct account *a, uid_t uid,
	     const char *source, struct copy **ret)
{
	struct copy *c = calloc(1, sizeof(*c));
	struct sandbox *b = core_find(core, a, source);

	if (!c)
		return -ENOMEM;
	c->magic = COPY_MAGIC;
	c->kind = kind;
	list_init(&c->look.node);
	turn_init(&c->turn, copy_on_turn);
	c->att.what = kind->what;
	if (attempt_init(&c->att, &protocol, a, uid, source, b && b->ours ? b->req_tag : "") < 0)
		return -ENOMEM;
	if (text_set(&c->name, "") < 0) {
		attempt_drop(&c->att);
		return -ENOMEM;
	}
	copy_set_count(c, 1);
	*ret = c;
	return 0;
}

void copy_set_count(struct copy *c, uint32_t count)
{
	c->count = count;
	c->att.sandboxes = c->kind == &copy_fork ? count : 0;
}

int copy_take_up(struct sandbox_core *core, const struct row_copy *r)
{
	const struct copy_kind *kind = r->kind == ROW_COPY_FORK ? &copy_fork : &copy_snapshot;
	struct account *a = attempt_account(core, r->account, r->seq);
	struct copy *c;
	int e;

	if (!a)
		return 0;
	e = copy_new(core, kind, a, r->uid, r->source, &c);
	if (e < 0)
		return e;
	c->att.seq = r->seq;
	copy_set_count(c, r->count);
	c->att.made_at_ms = r->made_at_ms;
	if (policy_parse(r->policy, &c->att.policy) < 0)
		c->att.policy = core->policy;
	attempt_find_request(&c->att, kind->method, r->request_id);
	if (text_set(&c->name, r->name) < 0 || lines_split(&c->known, r->known) < 0) {
		attempt_drop(&c->att);
		return -ENOMEM;
	}
	log_info("copy_taken_up", "what=%s seq=%llu sandbox=%s uid=%u", kind->what,
		 (unsigned long long)c->att.seq, c->att.source, owner_uid(c->att.uid));
	attempt_take_up(&c->att);
	return 0;
}
