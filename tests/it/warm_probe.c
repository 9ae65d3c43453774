/* SPDX-License-Identifier: MIT */
/*
 * warm_probe SOCKET burst N ROUNDS EVERY_MS never|prefer|require
 *	N creates at once, again and again at its moment whatever became of those before. Prints of each: microseconds until it was
 *	told, whether it was ready before, its id. Each is killed when it was told.
 * warm_probe SOCKET claims PREFIX N
 *	N creates that require one that is ready, one after the other, with a name and a request id each (PREFIX-I), leased to this
 *	process, and killed when it ends. The daemon may die meanwhile. Prints of each: its number and its id; then "held", when all of
 *	them were seen to be still its own. Ends with its input.
 */
#include <agentbox.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 300000u
#define TRIES	   100u
#define PATIENCE_MS 600000u	/* for one that is ready: a slow machine gives nothing twice */

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

_Noreturn static void die(const char *what, const struct ab_error *e)
{
	fprintf(stderr, "warm_probe: %s: %s: %s\n", what, e ? e->status_name : "", e ? e->message : "");
	exit(1);
}

static struct ab_client *client_new(const char *socket)
{
	const struct ab_client_options o = { .socket = socket, .wait_ms = 30000 };
	struct ab_client *c;

	if (ab_client_new(&o, &c) < 0 || ab_connect(c))
		die("connecting", NULL);
	return c;
}

/* --- bursts --- */

struct bursts {
	struct ab_client *c;
	enum ab_warm_mode mode;
	size_t open;		/* calls */
};

struct asked {
	struct bursts *all;
	uint64_t at_us;
};

static void on_killed(struct ab_call *call, void *user)
{
	struct bursts *all = user;

	if (!ab_call_is_done(call))
		return;
	if (ab_call_status(call))
		die("kill", ab_call_error(call));
	all->open--;
	ab_call_free(call);
}

static void on_made(struct ab_call *call, void *user)
{
	struct asked *a = user;
	const struct ab_call_options how = { .ready = on_killed, .user = a->all };
	uint64_t took = now_us() - a->at_us;
	struct ab_sandbox *b;
	struct ab_call *kill;

	if (!ab_call_is_done(call))
		return;
	if (ab_call_status(call))
		die("create", ab_call_error(call));
	b = ab_call_take(call);
	printf("%llu %d %s\n", (unsigned long long)took, b->warm, b->id);
	if (ab_sandbox_kill_start(a->all->c, b->id, &how, &kill))
		die("kill", NULL);
	ab_free(b);
	ab_call_free(call);
	free(a);
}

static void ask(struct bursts *all)
{
	const struct ab_sandbox_create_options o = { .warm = all->mode, .sandbox_timeout_ms = TIMEOUT_MS };
	struct asked *a = malloc(sizeof(*a));
	const struct ab_call_options how = { .ready = on_made, .user = a };
	struct ab_call *call;

	if (!a)
		die("memory", NULL);
	*a = (struct asked){ all, now_us() };
	all->open++;
	if (ab_sandbox_create_start(all->c, &o, &how, &call))
		die("create", NULL);
}

static void go_on(struct ab_client *c, uint64_t until_us)
{
	uint64_t now = now_us();
	int64_t left = until_us > now ? (int64_t)(until_us - now) : 0, timeout = ab_timeout(c);
	struct pollfd p = { .fd = ab_fd(c), .events = (short)ab_events(c) };
	struct timespec t;

	if (timeout >= 0 && timeout * 1000 < left)
		left = timeout * 1000;
	t = (struct timespec){ left / 1000000, left % 1000000 * 1000 };
	if (ppoll(&p, 1, &t, NULL) < 0 && errno != EINTR)
		die("poll", NULL);
	if (ab_process(c) < 0)
		die("process", NULL);
}

static void bursts(const char *socket, char **args)
{
	static const char *const modes[] = { "", "never", "prefer", "require" };
	unsigned long n = strtoul(args[0], NULL, 10), rounds = strtoul(args[1], NULL, 10), every_us = strtoul(args[2], NULL, 10) * 1000;
	struct bursts all = { .c = client_new(socket) };
	uint64_t at = now_us();

	for (size_t i = 1; i < 4; i++)
		if (!strcmp(modes[i], args[3]))
			all.mode = (enum ab_warm_mode)i;
	for (unsigned long round = 0; round < rounds; round++, at += every_us) {
		while (now_us() < at)
			go_on(all.c, at);
		for (unsigned long i = 0; i < n; i++)
			ask(&all);
	}
	while (all.open)
		go_on(all.c, now_us() + 1000000);
	ab_client_free(all.c);
}

/* --- claims --- */

static struct ab_sandbox *claim(struct ab_client *c, const char *name)
{
	const struct ab_policy policy = { .on_release = AB_ACTION_KILL, .release_grace_ms = AB_ZERO_MS };
	const struct ab_sandbox_create_options o = {
		.request_id = name, .name = name, .warm = AB_WARM_REQUIRE, .sandbox_timeout_ms = TIMEOUT_MS, .policy = &policy,
		.process_lease = true,
	};
	const struct ab_call_options how = { .deadline_ms = PATIENCE_MS };
	struct ab_sandbox *b = NULL;

	for (unsigned i = 0; i < TRIES; i++) {
		if (!ab_sandbox_create(c, &o, &how, &b))
			return b;
		if (ab_client_error(c)->status != AB_UNAVAILABLE)
			break;
	}
	die(name, ab_client_error(c));
}

static void check(struct ab_client *c, const char *name, const char *id)
{
	struct ab_sandbox *b = NULL;

	for (unsigned i = 0; i < TRIES && !b; i++)
		if (ab_sandbox_get(c, name, 0, NULL, &b) && ab_client_error(c)->status != AB_UNAVAILABLE)
			die(name, ab_client_error(c));
	if (!b || strcmp(b->id, id) || strcmp(b->name, name) || b->owner_uid != getuid() || !b->warm || b->state != AB_SANDBOX_RUNNING) {
		fprintf(stderr, "warm_probe: %s is %s of uid %u, state %d; told was %s\n", name, b ? b->id : "", b ? b->owner_uid : 0,
			b ? (int)b->state : 0, id);
		exit(1);
	}
	ab_free(b);
}

static void claims(const char *socket, const char *prefix, size_t n)
{
	struct ab_client *c = client_new(socket);
	struct ab_sandbox **told = calloc(n + 1, sizeof(*told));
	char name[64];

	for (size_t i = 0; told && i < n; i++) {
		snprintf(name, sizeof(name), "%s-%zu", prefix, i);
		told[i] = claim(c, name);
		printf("%zu %s\n", i, told[i]->id);
		fflush(stdout);
	}
	for (size_t i = 0; told && i < n; i++) {
		snprintf(name, sizeof(name), "%s-%zu", prefix, i);
		check(c, name, told[i]->id);
		ab_free(told[i]);
	}
	puts("held");
	fflush(stdout);
	while (read(STDIN_FILENO, name, sizeof(name)) > 0)
		;
	free(told);
	ab_client_free(c);
}

int main(int argc, char **argv)
{
	if (argc == 7 && !strcmp(argv[2], "burst"))
		bursts(argv[1], argv + 3);
	else if (argc == 5 && !strcmp(argv[2], "claims"))
		claims(argv[1], argv[3], strtoul(argv[4], NULL, 10));
	else
		return 2;
	return 0;
}
