/* SPDX-License-Identifier: MIT */
/* The real core and store in a test, over simulated time and the fake cloud; and calls that wait. */
#ifndef AB_TESTS_UNIT_SANDBOX_WORLD_H
#define AB_TESTS_UNIT_SANDBOX_WORLD_H

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/store.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"
#include "tests/lib/sim/fake.h"
#include "tests/lib/test.h"


#define HORIZON_MS 300u

struct world {
	struct fake *fake;
	struct loop *loop;
	struct store *store;
	struct cloud *cloud;
	struct sandbox_core *core;
	struct store_report report;
	/* 0 = default */
	uint64_t restart_grace_ms, unclaimed_grace_ms;
	uint64_t reconcile_period_ms;	/* 0 = an hour */
	enum sandbox_identity identity;
	const struct sandbox_warm_entry *warm;
	size_t n_warm;
	bool recreates;			/* by the configured policy */
	uint32_t max_sandboxes;		/* of the account */
	const struct sandbox_core_uid *uids;
	size_t n_uids;
	struct sandbox_preparer preparer;
	void (*on_open)(struct world *w);	/* the store is open, and not started; NULL = nothing */
};

static char world_dir[64];
static const struct principal alice = { .uid = 1000, .gid = 1000, .pidfd = -1 };
static const struct principal bob unused_ = { .uid = 1001, .gid = 1001, .pidfd = -1 };
static const struct principal root unused_ = { .admin = true, .pidfd = -1 };

/* By the failpoint, not by a mistake of its own. */
static inline bool was_killed(int wstatus)
{
	return WIFSIGNALED(wstatus) && WTERMSIG(wstatus) == SIGKILL;
}

printf_like(1, 2) static inline void run_sh(const char *fmt, ...)
{
	char cmd[512];
	const char *argv[] = { "sh", "-c", cmd, NULL };
	va_list ap;
	int wstatus;
	pid_t pid;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	pid = fork();
	if (!pid) {
		execv("/bin/sh", (char *const *)argv);
		_exit(127);
	}
	CHECK(waitpid(pid, &wstatus, 0) == pid);
	CHECK_INT(wstatus, 0);
}

static pid_t world_dir_owner;	/* not its children; 0 = there is none */

static inline void world_dir_free(void)
{
	bool mine = world_dir_owner == getpid();

	world_dir_owner = 0;
	if (mine)
		run_sh("rm -rf %s", world_dir);
}

static inline void world_dir_new(void)
{
	static bool at_exit;

	/* Nothing here is about power failures: in memory a sync costs nothing. */
	snprintf(world_dir, sizeof(world_dir), "%s/ab-sandbox-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	CHECK(mkdtemp(world_dir));
	world_dir_owner = getpid();
	at_exit = at_exit || !atexit(world_dir_free);	/* a failed test leaves nothing in memory */
	log_setup(LOG_LEVEL_ERROR);
}

/* A process that does nothing, and ends with this one. */
static inline pid_t idle_child(void)
{
	pid_t us = getpid(), pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == us)
		pause();
	_exit(0);
}

/* Runs fn in a child; its wait status. */
static inline int in_child(void (*fn)(void *arg), void *arg)
{
	int wstatus;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		fn(arg);
		exit(0);
	}
	CHECK(waitpid(pid, &wstatus, 0) == pid);
	return wstatus;
}

/* The two ways to play a scene with crashes: what was handed over to the store is lost and the cloud is
 * quicker than the disk, or it is written, though unheard, and the cloud takes its time. */
static inline void crash_way(struct fake *f, int way)
{
	sim_worker_eager = way;
	f->latency_ms = way ? 20 : 1;
}

/* This process dies at a crash point, "name" or "name@2"; NULL: at none. */
static inline void die_at(const char *point)
{
	const char *nth = point ? strchr(point, '@') : NULL;
	char text[64];

	if (!point) {
		unsetenv("AGENTBOXD_FAILPOINT");
		return;
	}
	snprintf(text, sizeof(text), "%.*s=kill%s", nth ? (int)(nth - point) : 60, point,
		 nth ? nth : "");
	setenv("AGENTBOXD_FAILPOINT", text, 1);
}

static inline void world_start(struct world *w)
{
	struct sandbox_core_account accounts[] = { { .name = "default" }, { .name = "second" } };
	struct store_options so = { .state_dir = world_dir, .now_wall_ms = clock_wall_ms(), .boot = "one" };
	struct sandbox_core_options o = {
		.accounts = accounts,
		.n_accounts = 1,
		.sha256 = fake_hash,
		.resolve_horizon_ms = HORIZON_MS,
		.reconcile_period_ms = w->reconcile_period_ms ? w->reconcile_period_ms : 3600000,
		.rng_seed = 7,
		.restart_grace_ms = w->restart_grace_ms,
		.unclaimed_grace_ms = w->unclaimed_grace_ms,
		.identity = w->identity,
	};

	CHECK(!loop_new(&w->loop));
	so.loop = w->loop;
	CHECK_INT(store_open(&so, &w->report, &w->store), STORE_OPENED);
	if (w->on_open)
		w->on_open(w);
	w->cloud = fake_cloud(w->fake, w->loop);
	accounts[0].cloud = w->cloud;
	o.loop = w->loop;
	o.store = w->store;
	o.prober = fake_prober(w->cloud);
	policy_default(&o.rules.policy);
	if (w->recreates)
		o.rules.policy.on_gone = POLICY_RECREATE;
	o.rules.warm = w->warm;
	o.rules.n_warm = w->n_warm;
	o.rules.uids = w->uids;
	o.rules.n_uids = w->n_uids;
	o.preparer = w->preparer;
	accounts[0].max_sandboxes = w->max_sandboxes;
	CHECK(!sandbox_core_new(&o, &w->core));
}

/* What extensions keep alive is counted as it changes; here it is counted anew. */
static inline void check_kept(const struct sandbox_core *core)
{
	for (size_t i = 0; i < core->n_accounts; i++) {
		uint32_t want = 0;
		int64_t left;

		list_for_each(n, &core->sandboxes) {
			const struct sandbox *b = list_entry(n, struct sandbox, node);

			want += b->account == &core->accounts[i] && runner_keeps(b, &left);
		}
		CHECK_INT(core->accounts[i].extensions.book.kept, want);
	}
}

static inline void world_stop(struct world *w)
{
	if (w->core)
		check_kept(w->core);
	w->core = sandbox_core_free(w->core);
	w->store = store_close(w->store);
	fake_cloud_free(w->cloud);
	w->loop = loop_free(w->loop);
}

/* What *w says of the options stays. */
static inline void world_new_with(struct world *w)
{
	w->fake = fake_new();
	world_dir_new();
	world_start(w);
}

static inline void world_new(struct world *w)
{
	*w = (struct world){ 0 };
	world_new_with(w);
}

static inline void world_free(struct world *w)
{
	if (w->core)
		world_stop(w);
	fake_free(w->fake);
	world_dir_free();
}

static inline void world_restart(struct world *w)
{
	world_stop(w);
	world_start(w);
}

/* --- calls --- */

struct answer {
	struct world *w;
	struct sandbox_op *op;
	bool done, yes, has_sandbox;
	struct status st;
	char id[64], name[80], warning[128], token[64], host[128];
	enum sandbox_state state;
	enum sandbox_source source;
	enum ab_reason gone_reason;
	uint32_t generation, cpu_count, leases;
	struct policy policy;
	int64_t started_at_ms, end_at_ms;
	bool adopted, resumed, is_detail, warm, end_pending;
	uid_t owner;
	size_t n_metadata, n, n_running;
	char ids[64][64];
	char next[512];
};

static inline void on_sandbox(void *user, const struct status *st, const struct sandbox_view *b)
{
	struct answer *a = user;

	CHECK(!a->done);
	a->done = true;
	a->st = *st;
	CHECK(status_ok(st) == (b != NULL));
	if (!b)
		return;
	a->has_sandbox = true;
	(void)str_copy(a->id, sizeof(a->id), b->id);
	(void)str_copy(a->name, sizeof(a->name), b->name);
	(void)str_copy(a->warning, sizeof(a->warning), b->warning);
	a->state = b->state;
	a->source = b->source;
	a->gone_reason = b->gone_reason;
	a->generation = b->generation;
	a->cpu_count = b->cpu_count;
	a->leases = b->leases;
	a->policy = b->policy;
	a->started_at_ms = b->started_at_ms;
	a->end_at_ms = b->end_at_ms;
	a->adopted = b->adopted;
	a->warm = b->warm;
	a->end_pending = b->end_pending;
	a->owner = b->owner_uid;
	a->resumed = b->resumed;
	a->is_detail = b->is_detail;
	a->n_metadata = b->n_metadata;
}

static inline void on_yes(void *user, const struct status *st, bool yes)
{
	struct answer *a = user;

	CHECK(!a->done);
	a->done = true;
	a->st = *st;
	a->yes = yes;
}

static inline void on_target(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct answer *a = user;

	CHECK(!a->done);
	a->done = true;
	a->st = *st;
	if (!t)
		return;
	a->has_sandbox = true;
	(void)str_copy(a->id, sizeof(a->id), t->at.id);
	(void)str_copy(a->token, sizeof(a->token), t->at.token);
}

static inline void on_page(void *user, const struct status *st, const struct sandbox_page *p)
{
	struct answer *a = user;

	CHECK(!a->done);
	a->done = true;
	a->st = *st;
	if (!p)
		return;
	a->n = p->n;
	a->n_running = p->n_running;
	a->source = p->source;
	for (size_t i = 0; i < p->n && i < 64; i++)
		(void)str_copy(a->ids[i], sizeof(a->ids[i]), p->sandboxes[i].id);
	(void)str_copy(a->next, sizeof(a->next), p->next_page_token);
}

static inline void on_host(void *user, const struct status *st, const struct sandbox_host *h)
{
	struct answer *a = user;

	a->done = true;
	a->st = *st;
	if (h)
		(void)str_copy(a->host, sizeof(a->host), h->url);
}

/* Turns the loop until it is so; a minute of simulated time must do. */
#define UNTIL(w, cond) do { \
	uint64_t until_limit = clock_boot_ms() + 60000; \
	while (!(cond)) { \
		CHECK(loop_once((w)->loop, 20) >= 0); \
		CHECK(clock_boot_ms() < until_limit); \
	} \
} while (0)

static inline void wait_for(struct world *w, struct answer *a)
{
	CHECK(!a->done); /* never from inside */
	UNTIL(w, a->done);
}

/* Lets so much time pass. */
static inline void spin(struct world *w, unsigned ms)
{
	uint64_t until = clock_boot_ms() + ms;

	while (clock_boot_ms() < until) {
		CHECK(loop_once(w->loop, 5) >= 0);
		check_kept(w->core);
	}
}

static inline struct sandbox_core_counts counts(struct world *w)
{
	struct sandbox_core_counts n;

	sandbox_core_count(w->core, (uid_t)-1, &n);
	return n;
}

static inline void until_intents_end(struct world *w)
{
	do
		CHECK(loop_once(w->loop, 20) >= 0);
	while (counts(w).intents);
}

/* The head of a call. */
#define CALL(...) (&(struct sandbox_call){ __VA_ARGS__ })

/* A Create and its head, of what the test owns. */
struct create {
	const struct principal *who;
	uint64_t deadline_ms;
	const char *request_id;
	uint8_t params_hash[32];
	const char *account, *template_id;
	uint64_t timeout_ms;
	const struct sandbox_pair *metadata, *envs;
	size_t n_metadata, n_envs;
	enum tri secure, allow_internet_access;
	const char *name;
	bool must_create, wait_ready;
	struct policy_change policy;
	bool process_lease;
	const struct cloud_network *network;
	const struct cloud_iam_token *iam_tokens;
	size_t n_iam_tokens;
	struct cloud_lifecycle lifecycle;
	enum sandbox_warm_mode warm;
};

static inline char *dup_or_none(const char *s)
{
	return s && s[0] ? str_dup(s) : NULL;
}

static inline void add_pairs(struct cloud_kvs *to, const struct sandbox_pair *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK(!cloud_kvs_add(to, v[i].key, v[i].value));
}

static inline struct sandbox_create create_of(const struct create *c)
{
	struct sandbox_create q = {
		.request_id = dup_or_none(c->request_id),
		.account = dup_or_none(c->account),
		.name = dup_or_none(c->name),
		.timeout_ms = c->timeout_ms,
		.must_create = c->must_create,
		.wait_ready = c->wait_ready,
		.policy = c->policy,
		.process_lease = c->process_lease,
		.warm = c->warm,
		.what = {.template_id = dup_or_none(c->template_id),
			 .secure = c->secure,
			 .allow_internet_access = c->allow_internet_access,
			 .lifecycle = c->lifecycle,
			 .network = c->network ? cloud_network_dup(c->network) : NULL,
			 .iam_tokens = calloc(c->n_iam_tokens + 1, sizeof(*c->iam_tokens)),
			 .n_iam_tokens = c->n_iam_tokens},
	};

	memcpy(q.params_hash, c->params_hash, sizeof(q.params_hash));
	add_pairs(&q.what.metadata, c->metadata, c->n_metadata);
	add_pairs(&q.what.envs, c->envs, c->n_envs);
	for (size_t i = 0; i < c->n_iam_tokens; i++)
		q.what.iam_tokens[i] = (struct cloud_iam_token){
			.name = str_dup(c->iam_tokens[i].name),
			.audience = str_dup(c->iam_tokens[i].audience),
			.token_type = str_dup(c->iam_tokens[i].token_type)};
	return q;
}

static inline struct create a_create(const char *request_id)
{
	return (struct create){ .who = &alice, .request_id = request_id,
				.deadline_ms = clock_boot_ms() + 10000 };
}

static inline void begin_create(struct world *w, struct answer *a, const struct create *c)
{
	struct sandbox_create q = create_of(c);

	*a = (struct answer){ .w = w };
	CHECK(!sandbox_create(w->core, CALL(c->who, NULL, c->deadline_ms, a), &q, on_sandbox, &a->op));
}

static inline struct answer do_create(struct world *w, const struct create *c)
{
	struct answer a;

	begin_create(w, &a, c);
	wait_for(w, &a);
	return a;
}

static inline struct answer do_get(struct world *w, const struct principal *who, const char *ref,
				   uint64_t staleness)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_get(w->core, CALL(who, ref, clock_boot_ms() + 1000, &a), staleness,
			   on_sandbox, &a.op));
	wait_for(w, &a);
	return a;
}

static inline struct answer do_kill(struct world *w, const struct principal *who, const char *ref)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_kill(w->core, CALL(who, ref, clock_boot_ms() + 5000, &a), on_yes, &a.op));
	wait_for(w, &a);
	return a;
}

static inline struct answer do_list(struct world *w, const struct principal *who, struct sandbox_list q)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_list(w->core, CALL(who, NULL, clock_boot_ms() + 1000, &a), &q, on_page, &a.op));
	wait_for(w, &a);
	return a;
}

#endif
