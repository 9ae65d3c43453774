/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/users.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/clock.h"
#include "proto/base/map.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/fuzz/model.h"
#include "tests/sim/sim.h"

#define CALLS 24u

/* --- users --- */

struct call {
	struct sandbox_op *op;
	bool open;
	uid_t uid;		/* whose it is */
};

static struct call calls[CALLS];
struct sandbox_core *core;

static void call_over(struct call *c)
{
	if (!c->open)
		FINDING("a call was answered twice");
	c->open = false;
	c->op = NULL;
}

static void on_view(void *user, const struct status *st, const struct sandbox_view *b)
{
	call_over(user);
}

static void on_bool(void *user, const struct status *st, bool yes)
{
	call_over(user);
}

static void on_list(void *user, const struct status *st, const struct sandbox_page *p)
{
	call_over(user);
}

static void on_snapshot(void *user, const struct status *st, const struct sandbox_snapshot *s)
{
	call_over(user);
}

static void on_snapshots(void *user, const struct status *st, const struct sandbox_snapshot_page *p)
{
	call_over(user);
}

static void on_templates(void *user, const struct status *st, const struct sandbox_template_page *p)
{
	call_over(user);
}

static void on_metrics(void *user, const struct status *st, const struct sandbox_metrics *m)
{
	call_over(user);
}

struct held {
	struct list node;
	struct sandbox_held *h;
	struct box *box;
	uid_t uid;
};
static struct list held;

static void on_held(void *user, enum sandbox_held_change change, const struct status *st, const struct sandbox_lease *lease)
{
	struct held *h = user;

	if (change != SANDBOX_HELD_LOST || !h->box)
		return;
	h->box->leases--;
	h->box = NULL;
}

static void on_lease(void *user, const struct status *st, const struct sandbox_lease *lease)
{
	struct call *c = user;
	struct held *h;

	call_over(c);
	if (!lease)
		return;
	h = calloc(1, sizeof(*h));
	must(h);
	h->box = box_of(lease->sandbox, strlen(lease->sandbox));
	h->uid = c->uid;
	must(!sandbox_held_new(core, lease->id, on_held, h, &h->h));
	if (h->box)
		h->box->leases++;
	list_add_tail(&held, &h->node);
}

static void let_go(struct held *h)
{
	if (h->box)
		h->box->leases--;
	list_del(&h->node);
	sandbox_held_free(h->h, false);
	free(h);
}

static bool is_of(const struct box *x, uid_t uid)
{
	char tag[48];

	snprintf(tag, sizeof(tag), "\"" TAG_UID "\":\"%u\"", (unsigned)uid);
	return strstr(x->metadata, tag) != NULL;
}

/* May this uid end it? Its tag says so, or, in an answer that lost the tag, it was nobody's, and became theirs who took a lease. */
static bool may_end(const struct box *x, uid_t uid)
{
	list_for_each(n, &held) {
		const struct held *h = list_entry(n, struct held, node);

		if (h->box == x && h->uid == uid)
			return true;
	}
	return is_of(x, uid);
}

static struct call *free_call(void)
{
	for (unsigned i = 0; i < CALLS; i++)
		if (!calls[i].open)
			return &calls[i];
	return NULL;
}

static int create(const struct sandbox_call *head, struct call *c)
{
	static const char *const ids[] = { NULL, "r0", "r1", "r2" }, *const names[] = { NULL, NULL, "n0", "n1" };
	const char *id = ids[choose(4)], *name = names[choose(4)];
	struct sandbox_create q = { .request_id = id ? str_dup(id) : NULL, .name = name ? str_dup(name) : NULL,
				    .timeout_ms = 10000 + choose(256) * 1000u };

	q.what.metadata = (struct cloud_kvs){ 0 };
	return sandbox_create(core, head, &q, on_view, &c->op);
}

void some_call(void)
{
	static const struct principal users[] = { { .uid = 1000, .gid = 1000, .pidfd = -1 }, { .uid = 1001, .gid = 1001, .pidfd = -1 } };
	struct box *x = n_boxes ? &boxes[choose(n_boxes)] : NULL;
	struct sandbox_snapshot_create snap = { .request_id = choose(2) ? "s0" : "", .name = "" };
	struct sandbox_snapshot_list snaps = { .cached = false };
	struct sandbox_template_list templates = { .page_size = 1 };
	struct sandbox_acquire lease = { .kind = SANDBOX_LEASE_STREAM };
	struct sandbox_connect connect = { .timeout_ms = 60000 };
	struct sandbox_list list = { .page_size = 100 };
	struct call *c = free_call();
	struct sandbox_call head = { .who = &users[choose(8) == 0], .sandbox = x ? x->id : "n0", .user = c,
				     .deadline_ms = clock_boot_ms() + 1000 + choose(64) * 1000u };
	int r = -ENOMEM;

	if (!c)
		return;
	c->open = true;
	c->uid = head.who->uid;
	switch (choose(15)) {
	case 0: case 1: case 2: case 3:
		r = create(&head, c);
		break;
	case 4: case 5:
		r = sandbox_get(core, &head, choose(2) ? 0 : SANDBOX_STALENESS_DEFAULT, on_view, &c->op);
		break;
	case 6:
		r = sandbox_list(core, &head, &list, on_list, &c->op);
		break;
	case 7:
		if (x && may_end(x, head.who->uid))
			x->kill_asked = true;
		r = sandbox_kill(core, &head, on_bool, &c->op);
		break;
	case 8:
		r = sandbox_connect(core, &head, &connect, on_view, &c->op);
		break;
	case 9:
		r = sandbox_pause(core, &head, true, on_bool, &c->op);
		break;
	case 10:
		r = sandbox_acquire(core, &head, &lease, on_lease, &c->op);
		break;
	case 11:
		r = sandbox_snapshot_create(core, &head, &snap, on_snapshot, &c->op);
		break;
	case 12:
		r = choose(2) ? sandbox_list_snapshots(core, &head, &snaps, on_snapshots, &c->op)
			      : sandbox_delete_snapshot(core, &head, "snap1:default", on_bool, &c->op);
		break;
	case 13:
		r = sandbox_list_templates(core, &head, &templates, on_templates, &c->op);
		break;
	default:
		r = choose(2) ? sandbox_get_metrics(core, &head, 0, 0, on_metrics, &c->op)
			      : sandbox_set_timeout(core, &head, 60000, on_view, &c->op);
		break;
	}
	if (r < 0) {
		c->open = false;
		c->op = NULL;
	}
}

void pass(uint64_t ms)
{
	uint64_t until = sim->now_ms + ms;

	while (sim_step(until))
		;
}

void let_one_go(void)
{
	if (!list_is_empty(&held))
		let_go(list_entry(held.next, struct held, node));
}

void users_begin(void)
{
	list_init(&held);
}

bool users_wait(void)
{
	for (unsigned i = 0; i < CALLS; i++)
		if (calls[i].open)
			return true;
	return false;
}

void users_end(void)
{
	if (users_wait())
		FINDING("a call was never answered");
	while (!list_is_empty(&held))
		let_one_go();
	memset(calls, 0, sizeof(calls));
}

void core_open(struct pool *pool, const char *api_url, const char *sandbox_url)
{
	struct cloud_options co = { .loop = W->loop, .pool = pool, .account = "default", .domain = "x.test", .api_url = api_url,
				    .sandbox_url = sandbox_url, .api_key = "ab_key", .no_proxy = "*",
				    .allow_plain_http = api_url, .plain_http2 = api_url };
	struct sandbox_core_account account = { .name = "default" };
	struct sandbox_core_options o = { .loop = W->loop, .store = W->store, .accounts = &account, .n_accounts = 1,
					  .sha256 = model_hash, .rng_seed = 7, .resolve_horizon_ms = 20000,
					  .reconcile_period_ms = 30000, .unclaimed_grace_ms = 3600000 };
	struct status why;

	must(!cloud_new(&co, &W->cloud, &why));
	account.cloud = W->cloud;
	policy_default(&o.rules.policy);
	must(!sandbox_core_new(&o, &core));
}

/* What is made once, so that no sequence differs from itself played alone. */
static void begin_program(void)
{
	static bool begun;
	struct map m = { 0 };

	if (begun)
		return;
	begun = true;
	log_setup(getenv("FUZZ_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	must(!map_put_u64(&m, 1, &m));	/* the key of all maps, before chance is the sequence's */
	map_fini(&m);
}

void world_begin(const uint8_t *p, size_t n)
{
	static struct fake fake;

	begin_program();
	W = calloc(1, sizeof(*W));
	must(W);
	memset(&fake, 0, sizeof(fake));
	W->fake = &fake;
	model_begin(p, n);
	sim_begin(&fake.time);
	disk_reset(1);
	must(!loop_new(&W->loop));
	W->store = disk_open();
	users_begin();
}

void world_end(void)
{
	disk_lose();
	sim_end();
	model_end();
	free(W);
	W = NULL;
}
