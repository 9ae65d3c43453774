/* SPDX-License-Identifier: MIT */
/*
 * G-2: the agent's side as a sequence. The real core, commands, client of the control plane and of the agent, pool and HTTP/2, on
 * simulated time, before a model cloud (model.c) and model agents (agent.c) at the other end of pairs of sockets (peers.c). Users
 * create and end sandboxes, start commands, read, write, signal, watch; meanwhile streams of the agent come in pieces, are cut in the
 * middle, end without their record, say other things, and frames of HTTP/2 are changed, lost, twice. At least ANSWERS answers make a
 * sequence. Whatever comes:
 *
 *   - nothing aborts, and nothing of a sequence is left: requests, calls, charges, descriptors;
 *   - each call is answered, once, when the cloud has come to reason at the latest, and each command ends;
 *   - no create and no command that may have been processed is sent again, and no input twice;
 *   - offsets of a reader have no holes, and what was lost between two bytes is a Gap;
 *   - an exit status is one that the agent said.
 *
 * The last two, and those of starts and input, are judged in sequences in which the agent said nothing but the truth.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/auth/uid_quota.h"
#include "daemon/cloud/envd.h"
#include "daemon/command/command.h"
#include "daemon/common/ev/loop.h"
#include "daemon/upstream/pool.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"
#include "tests/fuzz/agent.h"
#include "tests/fuzz/model.h"
#include "tests/fuzz/peers.h"
#include "tests/fuzz/users.h"
#include "tests/sim/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define COMMANDS   16u
#define ACTS	   16u
#define FILES	   6u
#define INPUT_MAX  64u		/* bytes of one chunk */
#define CALM_MS	   900000u	/* longer than every deadline, grace, repeat and limit of the rate */
#define POOL_BYTES (64u << 20)

static struct commands *commands;
static struct uid_quotas *uids;
static struct quota *pool_bytes;
static struct pool *pool;

/* --- commands of users --- */

struct user_command {
	struct command *c;
	struct command_reader *reader;
	uint64_t next[SPOOL_STREAMS];	/* offset that must come */
	uint8_t last[SPOOL_STREAMS];
	bool known[SPOOL_STREAMS];	/* last is the byte before it */
	uint64_t input_at;
	bool writing;
};

struct act {			/* a call about one */
	struct command_op *op;
	struct user_command *u;
	const char *what;
	bool open, is_input, is_run;
};

static struct user_command mine[COMMANDS];
static struct act acts[ACTS];
static const struct principal owner = { .uid = 1000, .gid = 1000, .pidfd = -1 };

static void act_over(struct act *a)
{
	if (!a->open)
		FINDING("%s was answered twice", a->what ? a->what : "a call about a command");
	a->open = false;
	a->op = NULL;
	if (a->is_input) {
		a->u->writing = false;
		command_input_close(a->u->c);
	}
}

static struct act *free_act(void)
{
	for (unsigned i = 0; i < ACTS; i++)
		if (!acts[i].open) {
			acts[i] = (struct act){ .open = true };
			return &acts[i];
		}
	return NULL;
}

/* One byte follows the other, unless a Gap is between them. */
static void check_piece(struct user_command *u, const struct spool_piece *p)
{
	if (p->offset != u->next[p->stream])
		FINDING("a piece at %llu instead of %llu", (unsigned long long)p->offset, (unsigned long long)u->next[p->stream]);
	u->next[p->stream] += p->size;
	if (p->gap) {
		u->known[p->stream] = false;
		return;
	}
	for (uint64_t i = 0; i < p->size; i++) {
		if (u->known[p->stream] && p->data[i] != byte_after(u->last[p->stream]) && agent_is_judged())
			FINDING("bytes are missing, or twice, before %llu", (unsigned long long)(p->offset + i));
		u->last[p->stream] = p->data[i];
		u->known[p->stream] = true;
	}
}

static void read_some(struct user_command *u)
{
	static uint8_t buf[1 << 16];
	struct spool_piece p;
	unsigned n = peers_are_calm() ? UINT32_MAX : choose(64);

	while (n-- && command_reader_next(u->reader, true, buf, sizeof(buf), &p) == COMMAND_READ_PIECE)
		check_piece(u, &p);
}

static void on_output(struct command_reader *r, void *user)
{
	struct user_command *u = user;

	if (u->reader)
		read_some(u);
}

static void begin_to_read(struct user_command *u, bool run)
{
	struct command_read_from from = { .run = run };

	if (u->reader || command_reader_new(u->c, &from, on_output, u, &u->reader) < 0)
		return;
	memset(u->next, 0, sizeof(u->next));
	memset(u->known, 0, sizeof(u->known));
}

static void stop_to_read(struct user_command *u, bool end_it)
{
	u->reader = command_reader_free(u->reader, end_it);
}

/* The status is the agent's, or there is none. */
static void check_result(const struct command *c)
{
	const struct command_result *r = command_result(c);
	struct command_view v;
	struct proc *p;

	command_look(c, &v);
	if (!r || v.foreign || !agent_is_judged())
		return;
	p = proc_of_tag(v.tag);
	if (r->outcome == COMMAND_EXITED && (!p || p->alive || p->killed || p->exit_code != r->exit_code))
		FINDING("%s exited with %d: nobody said so", v.tag, (int)r->exit_code);
	if (r->outcome == COMMAND_SIGNALED && (!p || p->alive || !p->killed))
		FINDING("%s ended by a signal: nobody said so", v.tag);
}

static void forget(struct user_command *u)
{
	if (u->c)
		check_result(u->c);
	stop_to_read(u, false);
	u->c = command_unref(u->c);
	*u = (struct user_command){ 0 };
}

static void on_nothing(struct command_reader *r, void *user)
{
}

/* Its caller comes, and goes at once. */
static void leave_run(struct command *c)
{
	struct command_reader *r;

	must(!command_reader_new(c, &(struct command_read_from){ .run = true }, on_nothing, NULL, &r));
	command_reader_free(r, choose(2));
}

static void on_command(void *user, const struct status *st, struct command *c)
{
	struct act *a = user;
	struct user_command *u = NULL;

	act_over(a);
	for (unsigned i = 0; c && i < COMMANDS && !u; i++)
		u = mine[i].c ? NULL : &mine[i];
	if (!u && c && a->is_run)
		leave_run(c);
	if (!u)
		return;
	u->c = command_ref(c);
	if (a->is_run || choose(4))
		begin_to_read(u, a->is_run);
}

static void on_killed(void *user, const struct status *st, bool found, const uint32_t *survivors, size_t n)
{
	act_over(user);
}

static void on_resized(void *user, const struct status *st)
{
	act_over(user);
}

static void on_input(void *user, const struct status *st, uint64_t accepted)
{
	struct act *a = user;

	a->u->input_at = accepted;
	act_over(a);
}

static void on_list(void *user, const struct status *st, const struct command_view *v, size_t n)
{
	act_over(user);
}

static int start(struct act *a)
{
	static const char *const ids[] = { NULL, NULL, "q0", "q1", "q2" };
	static const char *const args[] = { "/bin/work", "x" };
	bool shell = choose(2), pty = choose(4) == 0;
	struct command_start s = {
		.who = &owner,
		.deadline_ms = choose(4) ? clock_boot_ms() + 1000 + choose(64) * 500u : 0,
		.sandbox = boxes[choose(n_boxes)].id,
		.shell = shell ? "work" : NULL,
		.args = shell ? NULL : args,
		.n_args = shell ? 0 : ARRAY_SIZE(args),
		.timeout_ms = choose(4) ? 0 : choose(256) * 100u,
		.kill_grace_ms = choose(2) ? -1 : (int64_t)choose(256) * 10,
		.stdin_open = choose(2),
		.detach = choose(2),
		.spool_limit = choose(3) ? 0 : 4096,
		.overflow = (enum command_overflow)choose(3),
		.blocking_reader = choose(2),
		.request_id = ids[choose(ARRAY_SIZE(ids))],
		.pty = pty,
		.cols = pty ? 80 : 0,
		.rows = pty ? 24 : 0,
	};

	a->is_run = s.blocking_reader;
	a->what = "a start";
	return commands_start(commands, &s, on_command, a, &a->op);
}

static int send_input(struct act *a, struct user_command *u)
{
	uint8_t chunk[INPUT_MAX];
	size_t n = 4 * (1 + choose(INPUT_MAX / 4));

	if (u->writing || command_input_open(u->c) < 0)
		return -EBUSY;
	for (size_t i = 0; i < n; i++) {
		uint32_t word = (uint32_t)(u->input_at / 4 + i / 4);

		chunk[i] = (uint8_t)(word >> (24 - 8 * (i % 4)));
	}
	u->writing = a->is_input = true;
	a->u = u;
	return command_input_send(u->c, u->input_at, chunk, n, clock_boot_ms() + 5000, on_input, a, &a->op);
}

static int act_on(struct act *a, struct user_command *u)
{
	static const char *const names[] = { "input", "input", "input", "input", "a kill", "a signal", "an end of input", "a size",
					     "a list", "a search" };
	unsigned what = choose(ARRAY_SIZE(names));

	a->what = names[what];
	switch (what) {
	case 0: case 1: case 2: case 3:
		return send_input(a, u);
	case 4:
		return command_kill(u->c, on_killed, a, &a->op);
	case 5:
		return command_signal(u->c, choose(2) ? 9 : 15, clock_boot_ms() + 10000, on_killed, a, &a->op);
	case 6:
		a->u = u;
		return command_input_end(u->c, clock_boot_ms() + 5000, on_input, a, &a->op);
	case 7:
		return command_resize(u->c, 1 + choose(256), 1 + choose(256), on_resized, a, &a->op);
	case 8:
		return commands_list(commands, CALL(&owner, boxes[choose(n_boxes)].id, clock_boot_ms() + 5000, a), choose(2), on_list,
				     &a->op);
	default:
		return commands_find_pid(commands, CALL(&owner, boxes[choose(n_boxes)].id, clock_boot_ms() + 5000, a), 100 + choose(8),
					 on_command, &a->op);
	}
}

static void command_call(void)
{
	struct user_command *u = &mine[choose(COMMANDS)];
	struct act *a = n_boxes ? free_act() : NULL;
	int r;

	if (!a)
		return;
	r = u->c ? act_on(a, u) : start(a);
	if (r >= 0)
		return;
	if (a->is_input) {
		u->writing = false;
		command_input_close(u->c);
	}
	*a = (struct act){ 0 };
}

/* A user reads on, goes away, or comes back. */
static void reader_call(void)
{
	struct user_command *u = &mine[choose(COMMANDS)];
	unsigned what = choose(16);

	if (!u->c)
		return;
	if (what < 8 && u->reader)
		read_some(u);
	else if (what < 12)
		begin_to_read(u, false);
	else if (what == 12)
		stop_to_read(u, choose(2));
	else if (what == 13 && !u->writing && command_result(u->c))
		forget(u);
}

/* Its caller is gone: no answer comes. */
static void cancel_one(void)
{
	struct act *a = &acts[choose(ACTS)];

	if (!a->open)
		return;
	command_op_cancel(a->op, choose(2));
	act_over(a);
}

/* --- files of users --- */

struct file_call {
	struct envd_call *call;
	struct envd_watch *watch;
	struct envd_list *list;
	struct envd_read *read;
	bool over;
};

static struct file_call files[FILES];

static void file_end(struct file_call *f)
{
	envd_call_cancel(f->call);
	envd_watch_free(f->watch);
	envd_list_free(f->list);
	envd_read_free(f->read);
	*f = (struct file_call){ 0 };
}

static void on_entry(struct envd_result *r, void *user)
{
	struct file_call *f = user;

	f->call = NULL;
	f->over = true;
}

static void on_watch(struct envd_watch *w, void *user)
{
	struct file_call *f = user;
	struct envd_watch_event e;

	while (f->watch && envd_watch_next(f->watch, &e) != ENVD_WATCH_NONE) {
		if (f->over)
			FINDING("something came behind a watch's end");
		f->over = e.type == ENVD_WATCH_CLOSED;
	}
}

static void on_listed(struct envd_list *l, void *user)
{
	struct file_call *f = user;
	struct envd_entry e;

	while (f->list && envd_list_next(f->list, &e))
		envd_entry_fini(&e);
	f->over = f->list && envd_list_state(f->list) >= ENVD_XFER_DONE;
}

static void on_read(struct envd_read *r, void *user)
{
	struct file_call *f = user;
	const uint8_t *p;
	size_t n;

	if (!f->read)
		return;
	n = envd_read_peek(f->read, &p);
	if (n)
		envd_read_consume(f->read, n);
	f->over = envd_read_state(f->read) >= ENVD_XFER_DONE;
}

static void begin_file(struct file_call *f, const struct envd_target *t)
{
	static const char *const paths[] = { "/home/user/a-file", "a-file", "/", "/home/user/\xff" };
	struct envd_watch_options w = { .path = "/home/user", .recursive = choose(2), .entries = choose(2) };
	struct envd_read_options r = { .path = paths[choose(ARRAY_SIZE(paths))], .length = UINT64_MAX, .streamed = choose(2) };

	switch (choose(5)) {
	case 0:
		f->call = envd_stat(t, paths[choose(ARRAY_SIZE(paths))], on_entry, f);
		break;
	case 1:
		f->call = envd_move(t, "/a", paths[choose(ARRAY_SIZE(paths))], on_entry, f);
		break;
	case 2:
		f->watch = envd_watch(t, &w, on_watch, f);
		break;
	case 3:
		f->list = envd_list(t, paths[choose(ARRAY_SIZE(paths))], 1 + choose(3), on_listed, f);
		break;
	default:
		f->read = envd_read(t, &r, on_read, f);
		break;
	}
}

static void file_some(void)
{
	struct file_call *f = &files[choose(FILES)];
	static char none[] = "", account[] = "default", token[] = "tok", version[] = "0.6.13";
	struct envd_target t = { .at = { .cloud = W->cloud, .account = account, .domain = none, .token = token, .traffic_token = none,
					 .version = version } };

	if (!n_boxes || (!f->over && choose(4)))
		return;
	file_end(f);
	t.at.id = boxes[choose(n_boxes)].id;
	begin_file(f, &t);
}

/* --- a sequence --- */

/* As pass(), with the connections looked at. */
static void let_pass(uint64_t ms)
{
	uint64_t until = clock_boot_ms() + ms;

	while (clock_boot_ms() < until)
		must(loop_once(W->loop, (int)MIN(until - clock_boot_ms(), 1000u)) == 0);
}

static char state_dir[] = "/dev/shm/fuzz-agent-XXXXXX";

/* With what the last sequence left for the next run of its daemon. */
static void remove_state(void)
{
	char spool[sizeof(state_dir) + 8];
	struct dirent *e;
	DIR *d;

	snprintf(spool, sizeof(spool), "%s/spool", state_dir);
	d = opendir(spool);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	(void)rmdir(spool);
	(void)rmdir(state_dir);
}

static void open_commands(void)
{
	struct commands_options o = { .loop = W->loop, .store = W->store, .state_dir = state_dir, .history_ms = 3600000,
				      .limits = { .kill_grace_ms = 2000, .spool_per_command = 1 << 20, .spool_per_uid = 4 << 20,
						  .spool_total = 8 << 20 }, .spools_open = 4, .quotas = uids };

	must(!commands_new(&o, &commands));
}

static void begin(const uint8_t *p, size_t n)
{
	struct pool_options o = { .seed = 7 };
	static bool made;
	unsigned temper;

	if (!made)
		must(mkdtemp(state_dir) && !atexit(remove_state));
	made = true;
	world_begin(p, n);
	temper = choose(4);
	peers_begin(temper == 3 ? PEER_FRAMES : temper ? PEER_CUTS : (enum peer_fault)choose(2));
	agent_begin(temper == 2);
	pool_bytes = quota_new(&(struct quota_options){ .name = "pool", .max = POOL_BYTES });
	uids = uid_quotas_new(&(struct uid_quotas_options){ .max = 16u << 20, .max_per_uid = 8u << 20 });
	must(pool_bytes && uids);
	o.loop = W->loop;
	o.quota = pool_bytes;
	must(!pool_new(&o, &pool));
	open_commands();
	core_open(pool, "http://192.0.2.1:80", "http://192.0.2.2:80");
	commands_take_up(commands, core);
}

static void check_answered(void)
{
	for (unsigned i = 0; i < ACTS; i++)
		if (acts[i].open)
			FINDING("%s was never answered", acts[i].what);
}

static void check_over(void)
{
	check_answered();
	for (unsigned i = 0; i < COMMANDS; i++) {
		struct command_view v;

		if (mine[i].c)
			command_look(mine[i].c, &v);
		if (mine[i].c && !command_result(mine[i].c))
			FINDING("command %s of %s, pid %u%s, never ended", v.id, v.sandbox, v.pid, v.foreign ? ", foreign" : "");
		forget(&mine[i]);
	}
}

static void end(void)
{
	check_over();
	for (unsigned i = 0; i < FILES; i++)
		file_end(&files[i]);
	users_end();
	commands = commands_free(commands);
	core = sandbox_core_free(core);
	W->store = disk_close(W->store, DISK_STOP);
	W->cloud = cloud_free(W->cloud);
	pool = pool_free(pool);
	peers_end();
	if (quota_used(uid_quotas_all(uids)))
		FINDING("%zu bytes are still charged to a uid", (size_t)quota_used(uid_quotas_all(uids)));
	uids = uid_quotas_free(uids);
	for (unsigned i = 0; i < 12 && quota_used(pool_bytes); i++)
		let_pass(5000);	/* what the connections still had to do */
	loop_free(W->loop);	/* and with it what waited for its next pass */
	if (quota_used(pool_bytes))
		FINDING("%zu bytes are still charged to the pool", (size_t)quota_used(pool_bytes));
	pool_bytes = quota_unref(pool_bytes);
	memset(acts, 0, sizeof(acts));
	world_end();
}

unsigned sequence_answers(void)
{
	return n_answers;
}

/* Whoever reads takes what there is. */
static void read_all(void)
{
	for (unsigned i = 0; i < COMMANDS; i++)
		if (mine[i].c && mine[i].reader)
			read_some(&mine[i]);
}

/* One that waits for a reader that never came waits for ever. */
static void kill_all(void)
{
	for (unsigned i = 0; i < COMMANDS; i++) {
		struct act *a = mine[i].c && !command_result(mine[i].c) ? free_act() : NULL;

		if (!a)
			continue;
		a->what = "the last kill";
		must(!command_kill(mine[i].c, on_killed, a, &a->op));
	}
}

static bool is_at_rest(void)
{
	for (unsigned i = 0; i < ACTS; i++)
		if (acts[i].open)
			return false;
	for (unsigned i = 0; i < COMMANDS; i++)
		if (mine[i].c && !command_result(mine[i].c))
			return false;
	return !users_wait();
}

/* What waits for a paused one waits for ever. */
static void end_paused(void)
{
	for (unsigned i = 0; i < n_boxes; i++)
		if (boxes[i].paused)
			boxes[i].alive = false;
}

static void come_to_rest(void)
{
	for (uint64_t ms = 0; ms < CALM_MS && !is_at_rest(); ms += 5000) {
		end_paused();
		let_pass(5000);
	}
}

static void step(void)
{
	unsigned what = choose(16);

	if (what < 3)
		some_call();
	else if (what < 10)
		command_call();
	else if (what < 13)
		reader_call();
	else if (what < 15)
		file_some();
	else if (choose(4) == 0)
		cancel_one();
	else
		let_one_go();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	begin(p, n);
	for (unsigned i = 0; (n_answers < ANSWERS || messages_said() < ANSWERS) && i < STEPS_MAX && has_room_for_creates(); i++) {
		step();
		let_pass(rarely() ? choose(256) * 100u : choose(64) * 4u);
	}
	peers_calm();
	read_all();
	come_to_rest();
	check_answered();
	kill_all();
	come_to_rest();
	end();
	return 0;
}
