/* SPDX-License-Identifier: MIT */
#include "tests/unit/command/world.h"

struct loop *world_loop;

#define OR(value, otherwise) ((value) ? (value) : (otherwise))

static void on_open(struct world *w)
{
	struct shop *s = container_of(w, struct shop, w);
	struct commands_options o = {
		.loop = w->loop,
		.store = w->store,
		.state_dir = world_dir,
		.limits.kill_grace_ms = 5000,
		.history_ms = OR(s->history_ms, 86400000u),
		.limits.spool_per_command = OR(s->spool_per_command, 1u << 20),
		.limits.spool_per_uid = OR(s->spool_per_uid, 16u << 20),
		.limits.spool_total = OR(s->spool_total, 64u << 20),
		.spools_open = 4,
	};

	world_loop = w->loop;
	CHECK_INT(commands_new(&o, &s->cs), 0);
}

void shop_open(struct shop *s)
{
	struct create c;
	struct answer a;

	agent_begin();
	s->w.on_open = on_open;
	world_new_with(&s->w);
	commands_take_up(s->cs, s->w.core);
	c = a_create(NULL);
	c.timeout_ms = 86400000;
	a = do_create(&s->w, &c);
	CHECK(status_ok(&a.st));
	(void)str_copy(s->sandbox, sizeof(s->sandbox), a.id);
}

void shop_close(struct shop *s)
{
	s->cs = commands_free(s->cs);
	world_free(&s->w);
	agent_end();
}

void shop_restart(struct shop *s)
{
	s->cs = commands_free(s->cs);
	world_restart(&s->w);
	commands_take_up(s->cs, s->w.core);
}

void turn(struct shop *s)
{
	while (sim_step(sim->now_ms))
		;
}

const char *world_dir_name(void)
{
	return world_dir;
}

unsigned open_files(void)
{
	char path[32];
	unsigned n = 0;

	for (int fd = 0; fd < 4096; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n += !access(path, F_OK);
	}
	return n;
}

/* --- calls --- */

static void take(struct got *g, const struct status *st)
{
	CHECK(!g->done);
	g->done = true;
	g->op = NULL;
	g->st = *st;
}

static void on_command(void *user, const struct status *st, struct command *c)
{
	struct got *g = user;

	take(g, st);
	CHECK(status_ok(st) == (c != NULL));
	if (c)
		g->c = command_ref(c);
}

static void on_killed(void *user, const struct status *st, bool found, const uint32_t *survivors, size_t n)
{
	struct got *g = user;

	take(g, st);
	g->found = found;
	g->n = MIN(n, ARRAY_SIZE(g->survivors));
	if (g->n)
		memcpy(g->survivors, survivors, g->n * sizeof(*survivors));
}

static void on_input(void *user, const struct status *st, uint64_t accepted)
{
	struct got *g = user;

	take(g, st);
	g->accepted = accepted;
}

static void on_resized(void *user, const struct status *st)
{
	take(user, st);
}

static void on_listed(void *user, const struct status *st, const struct command_view *v, size_t n)
{
	struct got *g = user;

	take(g, st);
	g->n = n;
	for (size_t i = 0; i < n && i < ARRAY_SIZE(g->ids); i++) {
		(void)str_copy(g->ids[i], sizeof(g->ids[i]), v[i].id);
		g->pids[i] = v[i].pid;
	}
}

struct command_start a_start(const struct shop *s, const char *shell)
{
	return (struct command_start){ .who = &alice, .sandbox = s->sandbox, .shell = shell, .kill_grace_ms = -1 };
}

void start(struct shop *s, struct got *g, const struct command_start *what)
{
	*g = (struct got){ 0 };
	CHECK_INT(commands_start(s->cs, what, on_command, g, &g->op), 0);
}

struct command *running_as(struct shop *s, const struct command_start *what, uint32_t pid)
{
	unsigned before = agent_count(AGENT_START);
	struct got g;

	start(s, &g, what);
	UNTIL(&s->w, agent_count(AGENT_START) > before);
	agent_started(agent_ask(AGENT_START, -1), pid);
	UNTIL(&s->w, g.done);
	CHECK(status_ok(&g.st));
	return g.c;
}

struct command *running(struct shop *s, uint32_t pid)
{
	struct command_start what = a_start(s, "work");

	return running_as(s, &what, pid);
}

void got_drop(struct got *g)
{
	command_op_cancel(g->op, false);
	g->op = NULL;
	g->c = command_unref(g->c);
}

void find_pid(struct shop *s, struct got *g, const struct principal *who, uint32_t pid)
{
	*g = (struct got){ 0 };
	CHECK_INT(commands_find_pid(
			  s->cs,
			  &(struct sandbox_call){who, s->sandbox, clock_boot_ms() + 10000, g}, pid,
			  on_command, &g->op),
		  0);
}

void list_commands(struct shop *s, struct got *g, const struct principal *who, bool ended)
{
	*g = (struct got){ 0 };
	CHECK_INT(commands_list(s->cs,
				&(struct sandbox_call){who, s->sandbox, clock_boot_ms() + 10000, g},
				ended, on_listed, &g->op),
		  0);
}

void kill_command(struct command *c, struct got *g)
{
	*g = (struct got){ 0 };
	CHECK_INT(command_kill(c, on_killed, g, &g->op), 0);
}

void signal_command(struct command *c, struct got *g, int signo)
{
	*g = (struct got){ 0 };
	CHECK_INT(command_signal(c, signo, clock_boot_ms() + 10000, on_killed, g, &g->op), 0);
}

void send_input(struct command *c, struct got *g, uint64_t offset, const char *text)
{
	*g = (struct got){ 0 };
	CHECK_INT(command_input_send(c, offset, text, strlen(text), clock_boot_ms() + 10000, on_input, g, &g->op), 0);
}

void end_input(struct command *c, struct got *g)
{
	*g = (struct got){ 0 };
	CHECK_INT(command_input_end(c, clock_boot_ms() + 10000, on_input, g, &g->op), 0);
}

void resize(struct command *c, struct got *g, uint32_t cols, uint32_t rows)
{
	*g = (struct got){ 0 };
	CHECK_INT(command_resize(c, cols, rows, on_resized, g, &g->op), 0);
}

/* --- readers --- */

void look_on(struct view *v)
{
	static uint8_t buf[1 << 16];
	struct spool_piece p;

	while (v->room) {
		switch (command_reader_next(v->r, true, buf, MIN(sizeof(buf), v->room), &p)) {
		case COMMAND_READ_PIECE:
			if (p.gap) {
				v->gaps++;
				(void)str_copy(v->reason, sizeof(v->reason), p.reason);
				break;
			}
			CHECK(v->n[p.stream] + p.size <= sizeof(v->bytes[0]));
			memcpy(v->bytes[p.stream] + v->n[p.stream], p.data, p.size);
			v->n[p.stream] += p.size;
			v->room -= MIN(v->room, p.size);
			v->pieces++;
			break;
		case COMMAND_READ_ENDED:
			v->ended = true;
			return;
		default:
			return;
		}
	}
}

static void on_ready(struct command_reader *r, void *user)
{
	struct view *v = user;

	v->told++;
	look_on(v);
}

void look_from(struct command *c, struct view *v, const struct command_read_from *from)
{
	memset(v, 0, sizeof(*v));
	v->room = SIZE_MAX;
	CHECK_INT(command_reader_new(c, from, on_ready, v, &v->r), 0);
}

void look(struct command *c, struct view *v)
{
	struct command_read_from from = { .offset = { 0 } };

	look_from(c, v, &from);
	look_on(v);
}

void look_away(struct view *v, bool end_it)
{
	v->r = command_reader_free(v->r, end_it);
}

const struct command_result *result_of(struct command *c)
{
	const struct command_result *r = command_result(c);

	CHECK(r);
	return r;
}

bool has_ended(struct command *c)
{
	return command_result(c) != NULL;
}
