/* SPDX-License-Identifier: MIT */
/*
 * The attempt_kind of creations. Their tags are in the POST's metadata, so that one list by tag finds what was
 * made; a creation may take a name; its creator may hold a lease from the first moment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/creation.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/resolve.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define DETAIL_WAIT_MS	 2000u	/* for times and sizes, which the POST's answer lacks */
#define AGENT_MIN	 "0.1.0"
#define RESOLVE_LIST_MS	 30000u

static const struct attempt_kind protocol;

struct creation *creation_from(struct attempt *a)
{
	struct creation *c = container_of(a, struct creation, att);

	must(a->kind == &protocol && c->magic == CREATION_MAGIC);
	return c;
}

/* --- its end --- */

static void creation_free(struct attempt *a)
{
	struct creation *c = creation_from(a);

	c->magic = 0;
	cloud_create_fini(&c->what);
	cloud_sandbox_free(c->found);
	holder_unref(c->holder);
	for (size_t i = 0; i < c->n_heirs; i++) {
		holder_unref(c->heirs[i].holder);
		free(c->heirs[i].label);
	}
	free(c->heirs);
	free(c->replaces);
	free(c->warm);
	recipe_fini(&c->recipe);
	free(c);
}

static void creation_unlink(struct attempt *a)
{
	struct creation *c = creation_from(a);

	fetch_leave(&c->detail);
	if (c->name && c->name->creation == c)
		c->name->creation = NULL;
	if (a->uid == WARM_UID && c->warm)
		warm_made(c);
}

/* An event of the sandbox that vanished says that nothing replaces it. */
static void create_failed_one(struct attempt *a, struct store_tx *t, const struct status *st)
{
	struct creation *c = creation_from(a);
	struct sandbox *b = c->replaces[0] ? core_find(a->core, a->account, c->replaces) : NULL;

	c->failure = *st;
	if (b)
		event_put(a->core, t, b, EVENT_UPDATED, "recreate=failed\nrecreate_reason=%s\n",
			  status_reason_name(st->reason));
}

#define ROOM_MS	  250u	/* wait for the end of a warm sandbox that gives way, before the POST is repeated */
#define ROOM_TRIES 40u

/* Where the account is full because of unclaimed warm sandboxes, one of them is ended for this creation. */
static void refused(struct attempt *a, const struct cloud_result *r)
{
	struct creation *c = creation_from(a);

	if (r->status.reason == R_CONCURRENCY_LIMIT && a->uid != WARM_UID && c->room_tries++ < ROOM_TRIES &&
	    warm_gives_way(a->core, a->account))
		attempt_post_after(a, ROOM_MS, &r->status);
	else
		attempt_end_without(a, &r->status, true);
}

/* --- intent --- */

static void intent_row(const struct creation *c, enum row_intent_state step, struct row_intent *ret)
{
	*ret = (struct row_intent){
		.seq = c->att.seq,
		.kind = ROW_INTENT_CREATE,
		.state = step,
		.account = c->att.account->name,
		.uid = c->att.uid,
		.request_id = c->att.request ? c->att.request->id : "",
		.req_tag = c->att.req_tag,
		.name = c->name ? c->name->name : "",
		.generation = c->generation,
		.template_id = c->what.template_id,
		.policy = c->policy_text,
		.claimed = !list_is_empty(&c->att.waiters),
		.made_at_ms = c->att.made_at_ms,
		.recipe = c->recipe.p,
		.recipe_len = c->recipe.len,
		.replaces = c->replaces,
	};
}

void creation_on_intent(void *user, const struct status *st)
{
	struct attempt *a = attempt_from(user);

	FAILPOINT("create.intent_committed");
	if (status_ok(st)) {
		attempt_post(a);
		return;
	}
	/* The transaction of a recreation also had the end of the sandbox that it replaces. */
	a->core->resave |= a->alone;
	attempt_end_without(a, st, false);
}

static void put_intent(struct creation *c, struct store_tx *t)
{
	struct row_intent row;

	c->att.step = ATTEMPT_INTENT;
	intent_row(c, ROW_INTENT_OPEN, &row);
	store_tx_put_intent(t, &row);
	if (c->att.request)
		core_put_request(t, c->att.request);
	FAILPOINT("create.before_intent");
}

/* --- post --- */

static void on_posted(struct cloud_result *r, void *user)
{
	FAILPOINT("create.answered");
	attempt_posted(attempt_from(user), r);
}

static bool create_names_another(struct attempt *a, const struct cloud_result *r)
{
	const struct sandbox *b = core_find_any(a->core, a->account, r->sandbox->id);

	return b && !str_eq(b->req_tag, a->req_tag);
}

static void create_take(struct attempt *a, struct cloud_result *r)
{
	must(r->sandbox);
	creation_from(a)->found = give(r->sandbox);
}

/* The timeout to ask for: one that is leased from the first moment gets what its first extension would ask for. */
static uint32_t life_of(const struct creation *c)
{
	if ((!c->holder && !c->n_heirs) || !c->att.policy.keep_alive)
		return c->what.timeout_s;
	return MAX(c->what.timeout_s, extend_span_with_new_s(c->att.account));
}

static struct cloud_call *create_post(struct attempt *a)
{
	const struct creation *c = creation_from(a);
	struct cloud_create what = c->what;
	/* The caller's deadline ends the caller's waiting, not this: once sent it is worth reading. */
	struct cloud_ask ask = { .uid = a->uid, .trace = a->trace, .done = on_posted, .sending = attempt_sending, .user = a,
				 .background = a->uid == WARM_UID };
	struct cloud_call *call;

	what.timeout_s = life_of(c);
	a->lives_ms = what.timeout_s * 1000ull;
	FAILPOINT("create.before_send");
	call = cloud_create(a->account->cloud, &what, &ask);
	FAILPOINT("create.after_send");
	return call;
}

/* --- record --- */

/* A text that is not a version does not count as old. */
static bool has_old_agent(const struct sandbox *b)
{
	const char *v = b->envd_version + (b->envd_version[0] == 'v');

	return *v >= '0' && *v <= '9' && cloud_version_cmp(v, AGENT_MIN) < 0 && sandbox_is_live(b);
}

/* Nothing of ours works with such an agent: fails the creation and kills the sandbox, unless somebody has leased it meanwhile. */
static void refuse_old(struct creation *c, struct sandbox *b)
{
	struct status st;

	status_set(&st, R_TEMPLATE_TOO_OLD, "template %s has agent %s, at least " AGENT_MIN " is needed; build it "
					    "anew", b->template_id, b->envd_version);
	status_evidence(&st, "sandbox_id", "%s", b->id);
	log_warn("create_old", "sandbox=%s agent=%s", b->id, b->envd_version);
	if (!b->killing && !b->n_leases && kill_by_policy(c->att.core, b, "template_too_old") < 0)
		log_warn("create_old", "sandbox=%s error=nomem kill=no", b->id);
	attempt_finish(&c->att, &st);
}

struct sandbox *creation_sandbox(const struct creation *c)
{
	return core_find(c->att.core, c->att.account, c->found->id);
}

/* Did another attempt for the request id make it? Then this one was over, and a full disk kept its intent. */
static bool is_of_another(const struct creation *c, const struct sandbox *b)
{
	return b->seq && b->seq != c->att.seq;
}

static bool owner_is_dead(const struct creation *c)
{
	return c->holder && c->holder->dead;
}

static void create_answer_with(struct creation *c)
{
	struct sandbox *b = creation_sandbox(c);
	struct lease *x = c->holder && b ? lease_of_process(b, c->holder) : NULL;
	struct status ok = STATUS_OK;

	must(b);
	FAILPOINT("create.before_reply");
	/* Nobody waits any more: it is unclaimed, unless another call has used it meanwhile or its owner's death has released it. */
	if (!c->att.alone && list_is_empty(&c->att.waiters) && b->claimed && b->used_at_ms == c->used_at_ms &&
	    !owner_is_dead(c) && !is_of_another(c, b))
		lease_unclaim(b, x);
	if (has_old_agent(b)) {
		refuse_old(c, b);
		return;
	}
	log_info("create_done", "seq=%llu sandbox=%s uid=%u posts=%u resolved=%d claimed=%d",
		 (unsigned long long)c->att.seq, b->id, owner_uid(c->att.uid), c->att.posts, c->resolved,
		 b->claimed);
	attempt_finish(&c->att, &ok);
}

static void answer_when_complete(struct creation *c)
{
	if (c->recorded && c->detailed)
		create_answer_with(c);
}

/* The cloud may give less time than it was asked for. */
static void warn_if_capped(struct creation *c, struct sandbox *b)
{
	char *text;

	uint32_t asked_s = c->what.timeout_s;

	if (!asked_s || !b->started_at_ms || !b->end_at_ms || b->warning[0] ||
	    b->end_at_ms + 5000 >= b->started_at_ms + asked_s * 1000ll)
		return;
	b->account->cap_ms = (uint64_t)(b->end_at_ms - b->started_at_ms);
	text = str_printf("the cloud capped the timeout of %u s to %lld s", asked_s,
			  (long long)(b->end_at_ms - b->started_at_ms) / 1000);
	if (!text)
		return;
	text_give(&b->warning, text);
	sandbox_save(c->att.core, b, false);
}

static void on_detail(struct fetch_wait *w, const struct fetch_result *result)
{
	struct creation *c = container_of(w, struct creation, detail);

	if (result->end == FETCH_ALIVE && result->sandbox)
		warn_if_capped(c, result->sandbox);
	c->detailed = true;
	answer_when_complete(c);
}

static void on_detail_late(struct timer *t, void *user)
{
	struct creation *c = creation_from(attempt_from(user));

	fetch_leave(&c->detail);
	c->detailed = true;
	answer_when_complete(c);
}

/* The commit of the row had the leases too: lease.written. */
static void leases_written(struct creation *c)
{
	struct sandbox *b = creation_sandbox(c);

	for (size_t i = 0; i <= c->n_heirs && b; i++) {
		struct holder *h = i < c->n_heirs ? c->heirs[i].holder : c->lease_put ? c->holder : NULL;
		struct lease *x = h ? lease_of_process(b, h) : NULL;

		if (x)
			x->written = true;
	}
}

static void on_recorded(void *user, const struct status *st)
{
	struct creation *c = creation_from(attempt_from(user));

	FAILPOINT("create.active_committed");
	if (!attempt_recorded(&c->att, st))
		return;
	c->recorded = true;
	leases_written(c);
	if (!c->detailed)
		attempt_wait(&c->att, DETAIL_WAIT_MS, on_detail_late);
	answer_when_complete(c);
}

/* The entry's name comes from the tag after a restart, since the intent does not have it. */
static int set_warm(const struct creation *c, struct sandbox *b)
{
	struct tags t;

	tags_read(&c->found->metadata, &t);
	return text_set(&b->warm, c->warm[0] ? c->warm : t.warm);
}

static int make_sandbox(struct creation *c, struct sandbox **ret)
{
	scoped(sandbox_freep) struct sandbox *b = NULL;
	int r = sandbox_from_cloud(c->att.account, c->found, &b);

	if (!r && !c->resolved) {
		pairs_fini(&b->metadata);	/* an answer may have some */
		r = pairs_from_cloud(&b->metadata, &c->what.metadata);
	}
	if (!r)
		r = text_set(&b->req_tag, c->att.req_tag);
	if (!r)
		r = text_set(&b->replaces, c->replaces);
	if (!r)
		r = set_warm(c, b);
	if (!r)
		r = recipe_set(&b->recipe, c->recipe.p, c->recipe.len);
	if (r < 0)
		return r;
	/* The intent is an old database's: nobody knows who uses the sandbox by now. */
	b->ours = !(c->resolved && c->loaded && c->att.core->doubt == STORE_OLD);
	b->adopted = !b->ours;
	b->uid = c->att.uid;
	b->seq = c->att.seq;
	b->generation = c->generation;
	b->policy = c->att.policy;
	b->timeout_s = c->what.timeout_s;
	b->used_at_ms = (int64_t)clock_boot_ms();
	b->token_known = !c->resolved;
	b->allow_internet_access = c->what.allow_internet_access;
	b->lifecycle = c->what.lifecycle;
	if (c->att.uid == WARM_UID)
		b->warm_state = WARM_PREPARING;
	memcpy(b->warm_print, c->warm_print, sizeof(b->warm_print));
	r = core_insert(c->att.core, b);
	if (!r)
		*ret = give(b);
	return r;
}

static int lease_of(struct creation *c, struct sandbox *b, struct holder *h, const char *label,
		    struct store_tx *t)
{
	struct lease_make m = { .uid = c->att.uid, .pid = h->pid, .label = label, .kind = ROW_LEASE_PROCESS,
				.holder = h };
	struct lease *x = lease_of_process(b, h);
	int r = x ? 0 : lease_take(c->att.core, b, &m, NULL, &x);

	if (!r)
		lease_put(t, x);
	return r;
}

/* The creator's lease, in the transaction that makes the row. If the creator died meanwhile, the sandbox is
 * released instead. */
static int lease_of_creator(struct creation *c, struct sandbox *b, struct store_tx *t)
{
	int r;

	if (owner_is_dead(c)) {
		b->released_at_ms = (int64_t)clock_boot_ms();
		return 0;
	}
	r = lease_of(c, b, c->holder, "", t);
	c->lease_put = !r;
	return r;
}

static int leases_of_heirs(struct creation *c, struct sandbox *b, struct store_tx *t)
{
	int r = 0;

	for (size_t i = 0; i < c->n_heirs && !r; i++)
		if (!c->heirs[i].holder->dead && sandbox_is_live(b)) {
			r = lease_of(c, b, c->heirs[i].holder, c->heirs[i].label, t);
			b->claimed = true;
		}
	if (b->claimed)
		b->unclaimed_at_ms = b->unclaimed_boot_ms = 0;
	return r;
}

/* The rows of the sandbox, its leases, its name, and the event. */
static int create_record(struct attempt *a, struct store_tx *t)
{
	struct creation *c = creation_from(a);
	struct sandbox *b = creation_sandbox(c);
	int r = b ? 0 : make_sandbox(c, &b);

	if (!r)
		r = text_set(&a->object, c->found->id);
	if (r < 0)
		return r;
	c->lease_put = false;
	c->used_at_ms = b->used_at_ms;
	if (is_of_another(c, b))
		return 0;
	/* One whose owner died before the answer counts as claimed and released: nobody will come to claim it. */
	b->claimed = !list_is_empty(&a->waiters) || owner_is_dead(c) || a->uid == WARM_UID;
	b->unclaimed_at_ms = b->claimed ? 0 : clock_wall_ms();
	b->unclaimed_boot_ms = b->claimed ? 0 : (int64_t)clock_boot_ms();
	/* No lease where nobody waits for the answer: a holder that does not know of its lease would not release it. */
	if (c->holder && b->claimed && sandbox_is_live(b)) {
		r = lease_of_creator(c, b, t);
		if (r < 0)
			return r;
	}
	r = leases_of_heirs(c, b, t);
	if (r < 0)
		return r;
	if (c->name && !c->name->id[0] && sandbox_is_live(b)) {
		c->name->generation = c->generation;
		sandbox_give_name(a->core, b, c->name);
	}
	if (c->name)
		core_put_name(t, c->name);
	sandbox_put(t, b);
	if (c->replaces[0])
		event_put(a->core, t, b, EVENT_CREATED, "by=on_gone\nreplaces=%s\n", c->replaces);
	else
		event_put(a->core, t, b, EVENT_CREATED, a->uid == WARM_UID ? "by=refill\n" : "by=create\n");
	runner_poke(b);
	FAILPOINT("create.before_active");
	if (c->detailed || !list_is_empty(&c->detail.node))
		return 0;
	c->detail.fn = on_detail;
	if (fetch_join(a->core, a->account, c->found->id, false, &c->detail) < 0)
		c->detailed = true;
	return 0;
}

/* --- resolve --- */

static void create_on_listed(struct cloud_result *r, void *user)
{
	attempt_listed(attempt_from(user), r);
}

static struct cloud_call *list(struct attempt *a)
{
	struct cloud_kv want[] = {
		{ (char *)TAG_HOST, (char *)store_host_id(a->core->store) },
		{ (char *)TAG_REQ, a->req_tag },
	};
	struct cloud_filter f = { .metadata = want, .n_metadata = ARRAY_SIZE(want) };
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + RESOLVE_LIST_MS,
		.uid = a->uid,
		.done = create_on_listed,
		.user = a,
	};
	struct cloud_call *call = cloud_list_all(a->account->cloud, &f, &ask);

	FAILPOINT("resolve.list_sent");
	return call;
}

static enum resolve_next create_resolve(struct attempt *a, struct cloud_result *r,
					uint64_t *ret_wait_ms)
{
	struct creation *c = creation_from(a);
	struct cloud_list *l = r->outcome == CLOUD_DONE ? r->list : NULL;
	struct resolve_when when = attempt_when(a);
	size_t i = 0;
	enum resolve_next next =
		resolve_plan(l, store_host_id(a->core->store), a->req_tag, &when, &i, ret_wait_ms);

	if (next == RESOLVE_FOUND) {
		FAILPOINT("resolve.found");
		c->found = give(l->v[i]);
		c->resolved = true;
	}
	return next;
}

/* The state in the row is for people who read the database: an open intent would be resolved just so. */
static bool resolve_begin(struct attempt *a)
{
	struct row_intent row;
	struct store_tx *t;

	intent_row(creation_from(a), ROW_INTENT_SETTLING, &row);
	if (!store_tx_new(a->core->store, &t)) {
		store_tx_put_intent(t, &row);
		core_commit(a->core, t, false);
	}
	return true;
}

/* The listed sandbox is left to this attempt, whose own list is asked for now and will find it. */
static bool makes(struct attempt *a, const char *id)
{
	if (a->step == ATTEMPT_RESOLVE && !a->call)
		attempt_wait(a, 0, attempt_resolve_timer);
	return true;
}

static const struct attempt_kind protocol = {
	.del_intent = store_tx_del_intent,
	.post = create_post,
	.names_another = create_names_another,
	.take = create_take,
	.refused = refused,
	.record = create_record,
	.on_recorded = on_recorded,
	.resolve_begin = resolve_begin,
	.list = list,
	.resolve = create_resolve,
	.makes = makes,
	.failed = create_failed_one,
	.unlink = creation_unlink,
	.free = creation_free,
};

/* --- what others see --- */

int creation_intend(struct creation *c, struct store_tx *tx)
{
	int r = store_next_seq(c->att.core->store, &c->att.seq);
	struct tags t = {
		.host = store_host_id(c->att.core->store),
		.req = c->att.req_tag,
		.name = c->name ? c->name->name : "",
		.uid = c->att.uid,
		.has_uid = true,
		.policy = c->policy_text,
		.warm = c->warm,
	};

	if (r < 0)
		return r;
	t.seq = c->att.seq;
	if (c->att.policy.on_gone == POLICY_RECREATE)
		r = recipe_pack(&c->what, &c->recipe);
	if (!r)
		r = tags_add(&c->what.metadata, &t);
	if (r < 0)
		return r;
	put_intent(c, tx);
	if (c->name)
		c->name->creation = c;
	return 0;
}

int creation_start(struct creation *c)
{
	struct store_tx *t;
	int r = store_tx_new(c->att.core->store, &t);

	if (r < 0)
		return r;
	r = creation_intend(c, t);
	if (r < 0)
		store_tx_drop(t);
	else
		store_tx_commit(t, true, creation_on_intent, &c->att);
	return r;
}

int creation_new(struct sandbox_core *core, struct account *a, uid_t uid, const char *req_tag,
		 struct creation **ret)
{
	struct creation *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->magic = CREATION_MAGIC;
	c->generation = 1;
	list_init(&c->detail.node);
	c->att.what = "create";
	if (attempt_init(&c->att, &protocol, a, uid, "", req_tag) < 0)
		return -ENOMEM;
	if (text_set(&c->replaces, "") < 0 || text_set(&c->warm, "") < 0) {
		attempt_drop(&c->att);
		return -ENOMEM;
	}
	c->att.sandboxes = 1;
	policy_format(&c->att.policy, c->policy_text);
	*ret = c;
	return 0;
}

int creation_take_up(struct sandbox_core *core, const struct row_intent *r)
{
	struct account *a = attempt_account(core, r->account, r->seq);
	struct creation *c;
	int e;

	if (!a)
		return 0;
	e = creation_new(core, a, r->uid, r->req_tag, &c);
	if (e < 0)
		return e;
	c->att.seq = r->seq;
	c->loaded = true;
	c->generation = r->generation;
	c->att.made_at_ms = r->made_at_ms;
	if (policy_parse(r->policy, &c->att.policy) < 0)
		c->att.policy = core->policy;
	policy_format(&c->att.policy, c->policy_text);
	if (r->name[0] && !core_need_name(core, r->uid, r->name, &c->name) && !c->name->creation)
		c->name->creation = c;
	attempt_find_request(&c->att, REQUEST_CREATE, r->request_id);
	c->att.alone = r->replaces[0] || r->uid == WARM_UID;
	if (text_set(&c->what.template_id, r->template_id) < 0 ||
	    text_set(&c->replaces, r->replaces) < 0 ||
	    recipe_set(&c->recipe, r->recipe, r->recipe_len) < 0) {
		attempt_drop(&c->att);
		return -ENOMEM;
	}
	log_info("intent_taken_up", "seq=%llu uid=%u req=%s", (unsigned long long)c->att.seq, owner_uid(c->att.uid),
		 c->att.req_tag);
	attempt_take_up(&c->att);
	return 0;
}
