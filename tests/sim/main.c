/* SPDX-License-Identifier: MIT */
/*
 * Worlds, one after the other: each has a seed, lives through a number of crashes, comes to rest, and
 * is checked. `sim --seed N --trace` shows one of them again.
 *
 *   sim [--cycles N] [--seed N] [--worlds N] [--warm] [--trace]      --warm: all have entries [warm], not just some
 *   sim --seeds FILE           worlds that found something once: a number at the start of each line, with " --warm" or not, or '#'
 */
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/clock.h"
#include "proto/base/map.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define CYCLES_A_WORLD 40u
#define QUIET_MS       420000u	/* longer than the horizon, every grace and every ttl together */
#define WARM_ENDS_MS   150000u	/* nobody wants a warm one any more: they end */
#define TRACE_LINES    120u
#define TRACE_WIDTH    200u

struct world *W;
bool sim_trace_on;
static bool all_warm;
static char lines[TRACE_LINES][TRACE_WIDTH];
static unsigned n_lines;

/* --- saying what happened --- */

void sim_trace(const char *fmt, ...)
{
	char *to = lines[n_lines++ % TRACE_LINES];
	va_list ap;
	int n = snprintf(to, TRACE_WIDTH, "%3u %9.3f ", W->run_no, (double)sim->now_ms / 1000);

	va_start(ap, fmt);
	vsnprintf(to + n, TRACE_WIDTH - (size_t)n, fmt, ap);
	va_end(ap);
	if (sim_trace_on)
		puts(to);
}

static void show_last(void)
{
	unsigned n = MIN(n_lines, TRACE_LINES);

	for (unsigned i = n_lines - n; i < n_lines && !sim_trace_on; i++)
		printf("  %s\n", lines[i % TRACE_LINES]);
	printf("seed %llu after %lu crashes%s; again: sim --seed %llu%s --trace\n",
	       (unsigned long long)W->seed, W->cycles,
	       W->no_crash ? W->step_wall ? ", wall clock stepped" : ", none meant" : "",
	       (unsigned long long)W->seed, all_warm ? " --warm" : "");
	fflush(stdout);
}

void sim_fail(const char *invariant, const char *fmt, ...)
{
	va_list ap;

	printf("\nVIOLATION of %s: ", invariant);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	show_last();
	_exit(1);
}

static void on_abort(int signo)
{
	signal(SIGABRT, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	printf("\nVIOLATION: the code stopped itself (signal %d)\n", signo);
	show_last();
	_exit(1);
}

/* The daemon's own log is part of the story. */
void log_setup(enum log_level max)
{
}

bool log_is_on(enum log_level level)
{
	return true;
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
	char text[TRACE_WIDTH];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sim_trace("  [%s %s]", event, text);
}

const char *log_q(const char *s)
{
	return s ? s : "";
}

/* --- chance --- */

bool sim_chance(struct rng *r, unsigned of_1000)
{
	return rng_below(r, 1000) < of_1000;
}

uint64_t sim_between(struct rng *r, uint64_t lo, uint64_t hi)
{
	return lo + rng_below(r, hi - lo + 1);
}

bool sim_seam(const char *name)
{
	bool counts = !W->crash_at || str_eq(W->crash_at, name);

	if (!sim->dead && !W->quiet && counts && W->crash_in > 0 && --W->crash_in == 0) {
		sim_trace("CRASH at %s", name);
		sim->dead = true;
	}
	return sim->dead;
}

/* In place of daemon/common/obs/failpoint.c, whose header declares it only for its own build. */
void failpoint_hit(const char *name);
void failpoint_hit(const char *name)
{
	(void)sim_seam(name);
}

/* --- one run of the daemon --- */

static void run_begin(void)
{
	struct sandbox_core_account account = { .name = "default" };
	struct sandbox_core_options o = {
		.accounts = &account,
		.n_accounts = 1,
		.sha256 = fake_hash,
		.resolve_horizon_ms = W->horizon_ms,
		.restart_grace_ms = W->restart_grace_ms,
		.unclaimed_grace_ms = W->unclaimed_grace_ms,
		.rng_seed = rng_u64(&W->sys_rng),
	};

	W->run_no++;
	W->run_began_ms = W->hung_at_ms = sim->now_ms;
	W->sweeps = 0;
	W->clock_told = false;
	sim->dead = false;
	sim_trace("START");
	must(!loop_new(&W->loop));
	W->store = disk_open();
	W->cloud = fake_cloud(W->fake, W->loop);
	account.cloud = W->cloud;
	account.max_sandboxes = W->max_sandboxes;
	o.prober = fake_prober(W->cloud);
	o.loop = W->loop;
	o.store = W->store;
	policy_default(&o.rules.policy);
	warm_rules(&o.rules);
	o.preparer = warm_preparer();
	must(!sandbox_core_new(&o, &W->core));
}

static void run_end(enum disk_loss loss)
{
	if (loss == DISK_STOP) {
		sim_trace("STOP");
		for (unsigned i = 0; i < SIM_WANTS; i++)
			if (W->wants[i].op)
				sandbox_cancel(W->wants[i].op);
		clients_close_streams(true);
	} else {
		sim_trace("END (%s)", loss == DISK_POWER ? "power" : "kill -9");
		sim->dead = true;
	}
	W->core = sandbox_core_free(W->core);
	W->cloud = fake_cloud_free(W->cloud);
	W->store = disk_close(W->store, loss);
	W->loop = loop_free(W->loop);
	warm_after_crash();
	check_disk();
	clients_close_streams(false);
	clients_forget_calls();
	sim->dead = false;
}

/* --- a world --- */

static void on_clients(void *arg)
{
	bool pause = sim_chance(&W->rng, 40);

	if (sim->ending || W->quiet)
		return;
	if (!sim->dead)
		clients_act();
	if (pause)
		warm_pause();
	if (pause && sim_chance(&W->rng, W->faults.outage)) {
		W->fake->down_until_ms = sim->now_ms + sim_between(&W->rng, 100, 40000);
		sim_trace("the cloud is away for a while");
	}
	if (pause && sim_chance(&W->rng, W->faults.hang)) {
		sim->now_ms += sim_between(&W->rng, 2000, 60000);
		W->hung_at_ms = sim->now_ms;
		sim_trace("the loop hung until now");
	}
	if (W->step_wall && pause)
		sim->wall_offset_ms += (int64_t)rng_below(&W->wall_rng, 7200000) - 3600000;
	sim_at(sim->now_ms +
		       (pause ? sim_between(&W->rng, 1000, 40000) : sim_between(&W->rng, 1, 400)),
	       on_clients, NULL);
}

/* What is so in every cloud. */
static const struct fake_faults nature = { .child_fails = 50, .cut = 300 };

static void draw_faults(struct rng *r, struct sim_faults *own, struct fake_faults *f)
{
	unsigned level = (unsigned)rng_below(r, 4);
	unsigned *all[] = { &f->unsent, &f->lost_before, &f->lost_after, &f->late, &f->err_before, &f->err_after,
			    &f->refused, &f->limited, &f->stall, &f->twice };

	*f = nature;
	f->slow = true;
	if (!level)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		*all[i] = (unsigned)rng_below(r, 1 + 30 * level);
	f->list_omit = (unsigned)rng_below(r, 200 * level);
	f->list_empty = (unsigned)rng_below(r, 60 * level);
	f->list_lag = (unsigned)rng_below(r, 300 * level);
	own->store_fails = sim_chance(r, 300) ? (unsigned)rng_below(r, 40) : 0;
	own->outage = (unsigned)rng_below(r, 100 * level);
	own->hang = (unsigned)rng_below(r, 100 * level);
}

static void plant_foreign(const char *host)
{
	struct fake_sandbox *b = fake_add(W->fake, 3600);

	b->end_at_ms += 86400000;
	if (host)
		fake_plant_tag(b, TAG_HOST, host);
	ledger_sandbox(b)->foreign = true;
}

/* What our clients know: nothing. */
static void clear_ledger(void)
{
	for (unsigned i = 0; i < FAKE_SANDBOXES; i++) {
		W->sandboxes[i].real = &W->fake->sandboxes[i];
		policy_default(&W->sandboxes[i].may[0]);
		W->sandboxes[i].n_may = 1;
	}
	for (unsigned i = 0; i < FAKE_SNAPSHOTS; i++)
		W->snaps[i].real = &W->fake->snapshots[i];
}

static void world_begin(uint64_t seed)
{
	uint64_t n = seed;

	W->seed = seed;
	W->losses = seed % 4 == 3;
	n_lines = 0;
	rng_seed(&W->rng, n * 3 + 1);
	W->fake = fake_new();
	W->fake->observer = &check_observer;
	W->fake->latency_ms = 20;
	rng_seed(&W->fake->rng, n * 3 + 2);
	rng_seed(&W->sys_rng, n * 3 + 3);
	rng_seed(&W->wall_rng, n * 3 + 3);
	sim->wall_offset_ms = 1700000000000 + (int64_t)rng_below(&W->rng, 100000);
	W->fake->clock_offset_ms = sim->wall_offset_ms + (int64_t)rng_below(&W->rng, 1200000) - 600000;
	(void)str_copy(W->boot_id, sizeof(W->boot_id), "boot-0");
	W->horizon_ms = sim_chance(&W->rng, 700) ? 60000 : 180000;
	W->restart_grace_ms = sim_between(&W->rng, 2000, 30000);
	W->unclaimed_grace_ms = sim_between(&W->rng, 5000, 120000);
	W->fake->cap_s = sim_chance(&W->rng, 200) ? (uint32_t)sim_between(&W->rng, 60, 600) : 0;
	draw_faults(&W->rng, &W->faults, &W->fake->faults);
	W->warm = all_warm || seed % 5 == 1 || seed % 5 == 4;
	warm_begin();
	clear_ledger();
	disk_reset(seed);
	clients_start();
	for (unsigned i = 0; i < 2; i++)
		plant_foreign(i ? "another-host" : NULL);
	sim_at(sim->now_ms + 10, on_clients, NULL);
}

static long next_crash(void)
{
	uint64_t n = rng_below(&W->rng, 100);

	if (W->no_crash)
		return 0;
	if (n < 35)
		return (long)sim_between(&W->rng, 1, 40);
	return (long)(n < 80 ? sim_between(&W->rng, 20, 500) : sim_between(&W->rng, 300, 4000));
}

static void one_cycle(void)
{
	uint64_t until = sim->now_ms + sim_between(&W->rng, 1000, 400000), down;
	unsigned how = (unsigned)rng_below(&W->rng, 100);

	W->crash_in = next_crash();
	warm_crash_point();
	if (!W->core)
		run_begin();
	while (!sim->dead && sim_step(until))
		;
	if (W->no_crash)
		return;
	W->cycles++;
	run_end(sim->dead || how < 70 ? (how < 35 ? DISK_POWER : DISK_KILL)
		    : how < 85		  ? DISK_POWER
					  : DISK_STOP);
	if (sim_chance(&W->rng, 15)) {
		bool claims_too = W->warm && sim_chance(&W->rng, 300);

		sim_trace("the database is LOST%s", claims_too ? ", and the claims" : "");
		disk_lose();
		if (claims_too)
			disk_lose_claims();
		clients_lose_store();
		warm_lose_store(claims_too);
	}
	down = sim->now_ms + (sim_chance(&W->rng, 900) ? sim_between(&W->rng, 10, 3000)
						      : sim_between(&W->rng, 3000, 200000));
	if (sim_chance(&W->rng, 40)) {
		sim_trace("REBOOT");
		clients_reboot();
		sim->booted_at_ms = sim->now_ms - 500;
	}
	if (sim_chance(&W->rng, 300))
		clients_exchange();
	if (W->warm && sim_chance(&W->rng, 200))
		warm_change();
	while (sim_step(down))
		;
}

/* Faults stop, nobody asks for anything: it must come to rest, and be right. */
static void come_to_rest(void)
{
	uint64_t end, since = sim->now_ms;

	W->quiet = true;
	W->faults = (struct sim_faults){ 0 };
	W->fake->faults = nature;
	W->fake->down_until_ms = 0;
	sim_trace("QUIET");
	if (!W->core)
		run_begin();
	clients_end_commands();
	end = sim->now_ms + QUIET_MS + W->horizon_ms;
	for (uint64_t at = sim->now_ms + 90000; at < end; at += 5000) {
		while (sim_step(at))
			;
		check_kept_alive();
		check_known(since);
		warm_check_rest();
	}
	check_released();
	warm_release();
	while (W->warm && sim_step(end + WARM_ENDS_MS))
		;
	run_end(DISK_STOP);
	check_quiet();
	warm_check_released();
}

static void world_end(void)
{
	for (unsigned i = 0; i < SIM_PROCS; i++)
		close(W->procs[i].fd);
	disk_reset(0);
	fake_free(W->fake);
}

struct action {
	uint64_t at_ms;
	char text[96];
};

/* What was sent to the cloud, and when, of the last two worlds. */
static struct action *actions[2];
static size_t n_actions[2];
static unsigned which;

void sim_action(const struct fake_request *q)
{
	struct action *a;

	if (!W->no_crash)
		return;
	if (n_actions[which] % 1024 == 0) {
		actions[which] = realloc(actions[which], (n_actions[which] + 1024) * sizeof(*a));
		must(actions[which]);
	}
	a = &actions[which][n_actions[which]++];
	a->at_ms = sim->now_ms;
	snprintf(a->text, sizeof(a->text), "%u %s %u", q->what, q->id, q->timeout_s);
}

struct totals {
	unsigned long worlds, cycles, steps, answers, sandboxes, recreated, warm_cycles, claims, quarantined, given_back;
};

static void run_world(uint64_t seed, bool no_crash, bool step_wall, struct totals *t)
{
	W = calloc(1, sizeof(*W));
	must(W);
	W->no_crash = no_crash;
	W->step_wall = step_wall;
	world_begin(seed);
	for (unsigned i = 0; i < (no_crash ? 4 : CYCLES_A_WORLD); i++)
		one_cycle();
	come_to_rest();
	t->worlds++;
	t->cycles += W->cycles;
	t->steps += sim->steps;
	t->answers += W->answers;
	t->sandboxes += W->fake->n_sandboxes;
	t->recreated += W->recreated;
	t->warm_cycles += W->warm ? W->cycles : 0;
	t->claims += W->claims;
	t->quarantined += W->quarantined;
	t->given_back += W->given_back;
	world_end();
	free(W);
	W = NULL;
}

/* I18: the same world with another wall clock does the same things at the same moments. */
static void compare_clocks(uint64_t seed, struct totals *t)
{
	size_t i = 0;

	for (which = 0; which < 2; which++) {
		n_actions[which] = 0;
		run_world(seed, true, which, t);
	}
	which = 0;
	while (i < n_actions[0] && i < n_actions[1] && actions[0][i].at_ms == actions[1][i].at_ms &&
	       str_eq(actions[0][i].text, actions[1][i].text))
		i++;
	if (i == n_actions[0] && i == n_actions[1])
		return;
	printf("\nVIOLATION of I18: steps of the wall clock change what is done: %s at %.3f, with them %s at %.3f\n",
	       i < n_actions[0] ? actions[0][i].text : "nothing", (double)actions[0][i].at_ms / 1000,
	       i < n_actions[1] ? actions[1][i].text : "nothing", (double)actions[1][i].at_ms / 1000);
	printf("seed %llu; again: sim --seed %llu --worlds 1\n", (unsigned long long)seed, (unsigned long long)seed);
	exit(1);
}

static bool run_file(const char *path, struct totals *t)
{
	FILE *f = fopen(path, "re");
	char line[256];

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		uint64_t seed;
		size_t n = strspn(line, "0123456789");

		if (!n)
			continue;
		must(!str_u64(line, n, UINT64_MAX / 8, &seed));
		all_warm = strncmp(line + n, " --warm\t", strlen(" --warm\t")) == 0;
		run_world(seed, false, false, t);
		compare_clocks(seed, t);
	}
	fclose(f);
	return true;
}

static int usage(void)
{
	fprintf(stderr, "usage: sim [--cycles N] [--seed N] [--worlds N] [--warm] [--trace]\n       sim --seeds FILE\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "cycles", 1, NULL, 'c' }, { "seed", 1, NULL, 's' },
						 { "worlds", 1, NULL, 'w' }, { "trace", 0, NULL, 't' }, { "warm", 0, NULL, 'W' },
						 { "seeds", 1, NULL, 'f' }, { 0 } };
	const char *file = NULL;
	uint64_t cycles = 2400, seed = 1, worlds = 0, *number;
	struct timespec begin, end;
	struct totals t = { 0 };
	struct map first = MAP_NULL;
	bool more = false;
	double took;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		number = c == 'c' ? &cycles : c == 's' ? &seed : c == 'w' ? &worlds : NULL;
		if (c == 't')
			sim_trace_on = true;
		else if (c == 'W')
			all_warm = true;
		else if (c == 'f')
			file = optarg;
		else if (!number || str_u64(optarg, strlen(optarg), UINT64_MAX / 8, number) < 0)
			return usage();
		more |= c == 'c';
	}
	if (sim_trace_on && !more && !worlds)
		worlds = 1;
	if (optind != argc)
		return usage();
	/* The maps' seed is drawn by the first of them: outside of any world, so that each is the same alone. */
	must(!map_put_str(&first, "", NULL));
	map_fini(&first);
	signal(SIGABRT, on_abort);
	signal(SIGSEGV, on_abort);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (file && !run_file(file, &t))
		return usage();
	for (uint64_t i = 0; !file && (worlds ? i < worlds : t.cycles < cycles); i++) {
		run_world(seed + i, false, false, &t);
		if (i % 4 == 0)
			compare_clocks(seed + i, &t);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	took = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
	printf("%lu crashes in %lu worlds", t.cycles, t.worlds);
	if (!file)
		printf(" from seed %llu", (unsigned long long)seed);
	printf(": %lu sandboxes (%lu made again), %lu answers, %lu steps; %.1f s\n", t.sandboxes,
	       t.recreated, t.answers, t.steps, took);
	printf("%lu of the crashes with warm entries: %lu claims, %lu quarantined, %lu given to whom STATE/claims names\n", t.warm_cycles,
	       t.claims, t.quarantined, t.given_back);
	/* What never happens proves nothing. */
	return t.cycles >= 2000 && (!t.recreated || !t.claims || !t.quarantined || !t.given_back);
}
