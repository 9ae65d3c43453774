/* SPDX-License-Identifier: MIT */
/*
 * load_probe SOCKET SANDBOX N PERIOD_MS
 *	N clients of the library in one process, each with a connection of its own: a stream of the sandbox's events, which is begun again
 *	behind the last event when it ended, and a call each PERIOD_MS: of ten, one is a SetTimeout, one a Create and its Kill, one the
 *	Start of `true`, seven are a Get. One line for each call that ended, "ok" or what was wrong; "resync" for a stream that cannot go on
 *	where it was; "gap MS" when no call of anybody was answered for so long and now one was, where that is more than GAP_MIN_MS. Ends with
 *	its input, when all calls have ended: "slowest MS", "streams N" (all that were begun).
 */
#include <agentbox.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WATCH_AGAIN_MS 100u
#define GAP_MIN_MS     40u
#define KINDS	       10u	/* turns until the same kind of call comes again */

struct load {
	const char *socket, *sandbox;
	uint64_t period_ms, slowest_ms, streams;
	uint64_t answered_ms;	/* the last good answer of all; 0 = none yet */
	size_t open;		/* calls */
	bool is_over;
};

struct user {
	struct load *load;
	struct ab_client *c;
	struct ab_call *watch;
	char cursor[128];	/* of the last event; "" = none */
	uint64_t next_ms, watch_ms, began_ms;
	unsigned number, turn;
	bool busy;
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "load_probe: %s\n", what);
	exit(1);
}

/* --- calls --- */

static void answered(struct load *l, uint64_t now)
{
	if (l->answered_ms && now - l->answered_ms >= GAP_MIN_MS)
		printf("gap %llu\n", (unsigned long long)(now - l->answered_ms));
	l->answered_ms = now;
	puts("ok");
}

static void ended(struct user *u, struct ab_call *call, const char *what)
{
	uint64_t now = now_ms(), took = now - u->began_ms;

	if (took > u->load->slowest_ms)
		u->load->slowest_ms = took;
	if (ab_call_status(call))
		printf("%s: %s\n", what, ab_call_error(call)->message);
	else
		answered(u->load, now);
	ab_call_free(call);
	u->busy = false;
	u->load->open--;
}

static void on_answer(struct ab_call *call, void *user)
{
	static const char *const names[] = { "SetTimeout", "Kill", "Start", "Get" };
	struct user *u = user;

	if (ab_call_is_done(call))
		ended(u, call, names[u->turn % KINDS < 3 ? u->turn % KINDS : 3]);
}

static void on_created(struct ab_call *call, void *user)
{
	struct user *u = user;
	const struct ab_call_options how = { .ready = on_answer, .user = u };
	struct ab_sandbox *b;
	struct ab_call *kill;

	if (!ab_call_is_done(call))
		return;
	if (ab_call_status(call)) {
		ended(u, call, "Create");
		return;
	}
	b = ab_call_take(call);
	if (ab_sandbox_kill_start(u->c, b->id, &how, &kill))
		die("kill");
	ab_free(b);
	ab_call_free(call);
}

static void begin(struct user *u)
{
	struct ab_call_options how = { .ready = on_answer, .user = u };
	struct ab_sandbox_create_options create = { .sandbox_timeout_ms = 60000 };
	struct ab_command_options command = { .sandbox = u->load->sandbox, .shell = "true" };
	struct ab_call *call;
	char id[64];
	int r;

	u->busy = true;
	u->began_ms = now_ms();
	u->turn++;
	u->load->open++;
	snprintf(id, sizeof(id), "load-%d-%u-%u", (int)getpid(), u->number, u->turn);
	switch (u->turn % KINDS) {
	case 0:
		r = ab_sandbox_set_timeout_start(u->c, u->load->sandbox, 600000, &how, &call);
		break;
	case 1:
		how.ready = on_created;
		r = ab_sandbox_create_start(u->c, &create, &how, &call);
		break;
	case 2:
		command.request_id = id;
		r = ab_command_spawn_start(u->c, &command, &how, &call);
		break;
	default:
		r = ab_sandbox_get_start(u->c, u->load->sandbox, 0, &how, &call);
	}
	if (r)
		die("a call cannot begin");
}

/* --- streams --- */

static void on_event(struct ab_call *call, void *user)
{
	struct user *u = user;
	struct ab_sandbox_event e;

	while (ab_sandbox_watch_next(call, &e)) {
		if (e.type == AB_SANDBOX_RESYNC && u->cursor[0])
			puts("resync");
		if (e.cursor[0])
			snprintf(u->cursor, sizeof(u->cursor), "%s", e.cursor);
	}
	if (!ab_call_is_done(call))
		return;
	if (ab_call_status(call) != AB_UNAVAILABLE)
		printf("Watch: %s\n", ab_call_error(call)->message);
	ab_call_free(call);
	u->watch = NULL;
	u->watch_ms = now_ms() + WATCH_AGAIN_MS;
}

static void watch(struct user *u)
{
	const struct ab_sandbox_watch_options o = { .cursor = u->cursor[0] ? u->cursor : NULL, .sandbox = u->load->sandbox };
	const struct ab_call_options how = { .ready = on_event, .user = u };

	u->load->streams++;
	if (ab_sandbox_watch_start(u->c, &o, &how, &u->watch))
		die("a stream cannot begin");
}

/* --- all of them --- */

static void user_new(struct load *l, struct user *u, unsigned number, unsigned n)
{
	const struct ab_client_options o = { .socket = l->socket, .wait_ms = 30000 };

	*u = (struct user){ .load = l, .number = number, .next_ms = now_ms() + l->period_ms * number / n, .turn = number };
	if (ab_client_new(&o, &u->c) < 0)
		die("memory");
}

/* Begins what is due. Returns when to come again. */
static uint64_t due(struct user *u, uint64_t now)
{
	if (!u->watch && !u->load->is_over && now >= u->watch_ms)
		watch(u);
	if (!u->busy && !u->load->is_over && now >= u->next_ms) {
		u->next_ms = now < u->next_ms + u->load->period_ms ? u->next_ms + u->load->period_ms : now + u->load->period_ms;
		begin(u);
	}
	return u->busy ? now + 1000 : u->next_ms;
}

static void pass(struct user *users, struct pollfd *fds, size_t n)
{
	struct load *l = users[0].load;
	uint64_t now = now_ms(), until = now + 1000;

	for (size_t i = 0; i < n; i++) {
		uint64_t at = due(&users[i], now);
		int left = ab_timeout(users[i].c);

		if (left >= 0 && now + (uint64_t)left < at)
			at = now + (uint64_t)left;
		if (at < until)
			until = at;
		fds[i] = (struct pollfd){ .fd = ab_fd(users[i].c), .events = (short)ab_events(users[i].c) };
	}
	fds[n] = (struct pollfd){ .fd = l->is_over ? -1 : STDIN_FILENO, .events = POLLIN };
	if (poll(fds, n + 1, until > now ? (int)(until - now) : 0) < 0 && errno != EINTR)
		die("poll");
	now = now_ms();
	for (size_t i = 0; i < n; i++)
		if ((fds[i].revents || !ab_timeout(users[i].c)) && ab_process(users[i].c) < 0)
			die("process");
	l->is_over |= fds[n].revents != 0;
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct load l = { .socket = argc == 5 ? argv[1] : NULL, .sandbox = argv[2] };
	size_t n = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
	struct user *users = calloc(n + 1, sizeof(*users));
	struct pollfd *fds = calloc(n + 1, sizeof(*fds));

	if (!n || !users || !fds)
		return 2;
	l.period_ms = strtoul(argv[4], NULL, 10);
	for (size_t i = 0; i < n; i++)
		user_new(&l, &users[i], (unsigned)i, (unsigned)n);
	while (!l.is_over || l.open)
		pass(users, fds, n);
	printf("slowest %llu\nstreams %llu\n", (unsigned long long)l.slowest_ms, (unsigned long long)l.streams);
	for (size_t i = 0; i < n; i++) {
		ab_call_free(users[i].watch);
		ab_client_free(users[i].c);
	}
	free(users);
	free(fds);
	return 0;
}
