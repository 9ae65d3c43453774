/* SPDX-License-Identifier: MIT */
/*
 * Commands in the store: each has a row from before its start is sent until it is forgotten, and the next run of the
 * daemon restores commands from these rows. Environments are not stored: they may have secrets,
 * and no command is ever started a second time.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

_Static_assert(COMMAND_ARGS_MAX == ROW_BLOB_MAX, "a row keeps what the next daemon finds a plain command by");

/* --- out --- */

static uint32_t flags_of(const struct command *c)
{
	return (c->detach ? ROW_COMMAND_DETACH : 0) | (c->stdin_open ? ROW_COMMAND_STDIN : 0) |
	       (c->pty ? ROW_COMMAND_PTY : 0) | (c->group ? ROW_COMMAND_GROUP : 0) |
	       (c->shell ? ROW_COMMAND_SHELL : 0) | (c->result.timed_out ? ROW_COMMAND_TIMED_OUT : 0) |
	       (c->result.killed ? ROW_COMMAND_KILLED : 0) |
	       (c->input_ended ? ROW_COMMAND_INPUT_ENDED : 0) |
	       (c->result.pipes_held ? ROW_COMMAND_PIPES_HELD : 0) |
	       (c->plain ? ROW_COMMAND_PLAIN : 0) |
	       (c->truncated || !c->result.output_complete ? ROW_COMMAND_TRUNCATED : 0);
}

int command_row_put(struct store_tx *t, const struct command *c)
{
	scoped(buf_fini) struct buf args = BUF_NULL;
	struct row_command r = {
		.id = c->id, .uid = c->share->uid, .account = c->at.account, .sandbox = c->at.id,
		.generation = c->at.generation, .flags = flags_of(c), .pid = c->pid, .shell = c->shell,
		.user = c->user, .cwd = c->cwd, .cols = c->term.cols, .rows = c->term.rows,
		.timeout_ms = c->timeout_ms, .kill_grace_ms = c->kill_grace_ms,
		.spool_limit = c->spool_limit, .boot = c->cs->boot,
		.made_at_ms = c->made_at_ms, .started_at_ms = c->started_at_ms,
		.deadline_at_ms = c->deadline_at_ms, .outcome = c->result.outcome,
		.exit_code = c->result.exit_code, .reason = c->result.reason, .signal = c->result.signal,
		.message = c->result.message, .survivors = (const char *)c->result.survivors,
		.survivors_len = c->result.n_survivors * sizeof(uint32_t),
		.exited_at_ms = c->result.exited_at_ms,
		.state = c->final ? ROW_COMMAND_ENDED
			 : c->pid ? ROW_COMMAND_RUNNING
				  : ROW_COMMAND_INTENT,
	};

	for (size_t i = 0; i < c->n_args; i++)
		if (buf_put(&args, c->args[i], strlen(c->args[i]) + 1) < 0)
			return -ENOMEM;
	r.args = (const char *)buf_data(&args);
	r.args_len = buf_len(&args);
	store_tx_put_command(t, &r);
	return 0;
}

void command_save(struct command *c)
{
	struct store_tx *t;

	if (!c->has_row || store_tx_new(c->cs->o.store, &t) < 0)
		return;
	if (command_row_put(t, c) < 0) {
		store_tx_drop(t);
		return;
	}
	store_tx_commit(t, false, NULL, NULL);
}

void command_unsave(struct command *c)
{
	struct store_tx *t;

	if (!c->has_row || store_tx_new(c->cs->o.store, &t) < 0)
		return;
	c->has_row = false;
	store_tx_del_command(t, c->id);
	store_tx_commit(t, false, NULL, NULL);
}

static void on_written(void *user, const struct status *st)
{
	struct cmd_write *w = user;
	struct command *c = w->c;

	list_del(&w->node);
	w->done(c, st);
	command_unref(c);
	free(w);
}

int command_write(struct command *c, struct store_tx *t, bool durable, command_written_fn *done)
{
	struct cmd_write *w = calloc(1, sizeof(*w));

	if (!w) {
		store_tx_drop(t);
		return -ENOMEM;
	}
	w->cs = c->cs;
	w->c = command_ref(c);
	w->done = done;
	list_add_tail(&c->cs->writes, &w->node);
	store_tx_commit(t, durable, on_written, w);
	return 0;
}

int command_write_row(struct command *c, command_written_fn *done)
{
	struct store_tx *t;
	int r;

	if (!c->has_row)
		return -ENOENT;
	r = store_tx_new(c->cs->o.store, &t);
	if (r < 0)
		return r;
	r = command_row_put(t, c);
	if (r < 0) {
		store_tx_drop(t);
		return r;
	}
	return command_write(c, t, false, done);
}

/* --- in --- */

static int restore_args(struct command *c, const struct row_command *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->args_len; i++)
		n += !r->args[i];
	c->args = calloc(n + 1, sizeof(char *));
	if (!c->args)
		return -ENOMEM;
	for (const char *p = r->args; c->n_args < n; p += strlen(p) + 1)
		if (!(c->args[c->n_args++] = strdup(p)))
			return -ENOMEM;
	return 0;
}

static int restore_texts(struct command *c, const struct row_command *r)
{
	free(c->at.account);
	free(c->at.id);
	c->at.account = strdup(r->account);
	c->at.id = strdup(r->sandbox);
	c->user = strdup(r->user);
	c->cwd = strdup(r->cwd);
	if (r->flags & ROW_COMMAND_SHELL)
		c->shell = strdup(r->shell);
	if (!c->at.account || !c->at.id || !c->user || !c->cwd ||
	    (!c->shell && (r->flags & ROW_COMMAND_SHELL)))
		return -ENOMEM;
	return restore_args(c, r);
}

static void restore_result(struct command *c, const struct row_command *r)
{
	struct command_result *to = &c->result;

	to->timed_out = r->flags & ROW_COMMAND_TIMED_OUT;
	to->killed = r->flags & ROW_COMMAND_KILLED;
	to->output_complete = !c->truncated;
	if (r->state != ROW_COMMAND_ENDED)
		return;
	to->pipes_held = r->flags & ROW_COMMAND_PIPES_HELD;
	to->outcome = (enum command_outcome)r->outcome;
	to->exit_code = r->exit_code;
	to->reason = (enum ab_reason)r->reason;
	to->exited_at_ms = r->exited_at_ms;
	str_copy(to->signal, sizeof(to->signal), r->signal);
	str_copy(to->message, sizeof(to->message), r->message);
	to->n_survivors = (uint32_t)MIN(r->survivors_len / sizeof(uint32_t), (size_t)COMMAND_SURVIVORS_MAX);
	if (to->n_survivors)
		memcpy(to->survivors, r->survivors, to->n_survivors * sizeof(uint32_t));
}

static int restore_spool(struct command *c, const struct row_command *r)
{
	struct commands *cs = c->cs;
	int e = spool_open(&cs->spools, c->id, c->spool_limit, &c->share->quota, &cs->total, &c->spool);

	if (e >= 0)
		spool_rest(c->spool);
	if (e >= 0 || e == -ENOMEM)
		return e;
	log_warn("spool_unreadable", "command=%s error=%s output=lost", c->id, log_q(strerrordesc_np(-e)));
	(void)unlinkat(cs->spools.fd, c->id, 0);
	c->truncated = true;
	return spool_new(&cs->spools, c->id, c->spool_limit, &c->share->quota, &cs->total, &c->spool);
}

static int restore(struct commands *cs, const struct row_command *r)
{
	struct command *c;
	int e = command_new(cs, r->uid, r->id, &c);

	if (e < 0)
		return e;
	c->has_row = true;
	c->spool_limit = MIN(r->spool_limit, cs->o.limits.spool_per_command);
	e = restore_texts(c, r);
	command_hold_restored(c);
	if (!e)
		e = command_join_sandbox(c);
	if (!e)
		e = restore_spool(c, r);
	c->at.generation = r->generation;
	c->pid = r->pid;
	c->detach = r->flags & ROW_COMMAND_DETACH;
	c->stdin_open = r->flags & ROW_COMMAND_STDIN;
	c->pty = r->flags & ROW_COMMAND_PTY;
	c->group = r->flags & ROW_COMMAND_GROUP;
	c->plain = r->flags & ROW_COMMAND_PLAIN;
	c->group_known = true;
	c->started = r->pid;
	c->input_ended = r->flags & ROW_COMMAND_INPUT_ENDED;
	c->truncated = c->truncated || (r->flags & ROW_COMMAND_TRUNCATED);
	c->term.cols = r->cols;
	c->term.rows = r->rows;
	c->timeout_ms = r->timeout_ms;
	c->kill_grace_ms = r->kill_grace_ms;
	c->made_at_ms = r->made_at_ms;
	c->started_at_ms = r->started_at_ms;
	c->deadline_at_ms = r->deadline_at_ms;
	c->restarted = !str_eq(r->boot, cs->boot);
	c->verify = true;
	c->launch = LAUNCH_SENT;
	restore_result(c, r);
	if (c->spool) {
		spool_get_input(c->spool, &c->input);
		c->last_output_at_ms = spool_last_ms(c->spool);
	}
	if (e < 0)
		return e;
	if (r->state == ROW_COMMAND_ENDED) {
		c->final = true;
		command_set_state(c, CMD_ENDED);
		command_list_ended(c);
	} else {
		command_set_state(c, CMD_ASKING);
	}
	return 0;
}

struct loading {
	struct commands *cs;
	int err;
};

static void load_command(const struct row_command *r, void *user)
{
	struct loading *l = user;

	if (!l->err)
		l->err = restore(l->cs, r);
}

static void load_request(const struct row_command_request *r, void *user)
{
	struct loading *l = user;
	struct cmd_request *q;
	struct command *c = map_get_str(&l->cs->by_id, r->command);

	if (l->err)
		return;
	if (!c) {	/* without its command the request id stays a row alone */
		request_note_stored(l->cs, r);
		return;
	}
	l->err = request_add(l->cs, r, &q);
	if (l->err)
		return;
	q->used_at_ms = MIN(q->used_at_ms, clock_wall_ms());
	q->c = c;
	c->request = q;
}

/* A command whose row was refused (store.h): its spool is not removed, and its sandbox counts as in use. */
struct refused_command {
	struct list node;
	char *account, *sandbox;
	char id[];
};

static void refused_free(struct refused_command *x)
{
	list_del(&x->node);
	free(x->account);
	free(x->sandbox);
	free(x);
}

static void load_refused(const struct store_refused *r, void *user)
{
	struct loading *l = user;
	struct refused_command *x;

	if (r->table != ROW_TABLE_command)
		return;
	x = calloc(1, sizeof(*x) + strlen(r->key) + 1);
	if (!x) {
		l->err = -ENOMEM;
		return;
	}
	memcpy(x->id, r->key, strlen(r->key));
	list_add_tail(&l->cs->refused, &x->node);
	x->account = strdup(r->account);
	x->sandbox = strdup(r->sandbox);
	if (!x->account || !x->sandbox)
		l->err = -ENOMEM;
	l->cs->keep_spools |= !x->id[0];
}

void commands_forget_refused(struct commands *cs)
{
	while (!list_is_empty(&cs->refused))
		refused_free(list_entry(cs->refused.next, struct refused_command, node));
}

static bool is_wanted(const struct commands *cs, const char *spool)
{
	if (cs->keep_spools || map_get_str(&cs->by_id, spool))
		return true;
	list_for_each(n, &cs->refused)
		if (str_eq(list_entry(n, struct refused_command, node)->id, spool))
			return true;
	return false;
}

/* Removes every file of the spool folder that belongs to no command. */
static void clear_folder(struct commands *cs)
{
	int fd = openat(cs->spools.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;

	if (!d) {
		fd_close(fd);
		return;
	}
	while ((e = readdir(d)))
		if (e->d_name[0] != '.' && !is_wanted(cs, e->d_name))
			(void)unlinkat(cs->spools.fd, e->d_name, 0);
	closedir(d);
}

static void read_boot(struct commands *cs)
{
	char *boot;
	size_t n;

	if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 100, &boot, &n) < 0)
		return; /* without it a restart of the machine counts as one of the daemon */
	boot[strcspn(boot, "\n")] = 0;
	str_copy(cs->boot, sizeof(cs->boot), boot);
	free(boot);
}

int commands_load(struct commands *cs, struct store *store)
{
	struct loading l = { .cs = cs };
	struct store_visitor v = { .user = &l, .command = load_command,
				   .command_request = load_request, .refused = load_refused };
	int r;

	read_boot(cs);
	r = store_load(store, &v);
	if (!r)
		r = l.err;
	if (r < 0)
		return r;
	clear_folder(cs);
	return 0;
}

void commands_take_up(struct commands *cs, struct sandbox_core *core)
{
	uint64_t now = loop_now_ms(cs->o.loop);
	int64_t wall = clock_wall_ms();

	cs->core = core;
	list_for_each(n, &cs->refused) {
		struct refused_command *x = list_entry(n, struct refused_command, node);

		sandbox_use_begin(core, x->account, x->sandbox);
	}
	list_for_each_safe(n, &cs->all) {
		struct command *c = list_entry(n, struct command, node);
		int r = 0;

		log_info("command_take_up", "command=%s sandbox=%s pid=%u detached=%d", c->id, c->at.id,
			 c->pid, c->detach);
		if (c->deadline_at_ms)
			r = timer_set(&c->deadline, now + (uint64_t)MAX(c->deadline_at_ms - wall, 0));
		if (!r && !c->detach)
			r = timer_set(&c->orphan, now + cs->o.restart_grace_ms);
		if (r < 0)
			log_warn("command_take_up", "command=%s error=\"out of memory, it has no timeout\"",
				 c->id);
		command_use(c, true);
		command_ask(c, SANDBOX_SAW_LOST);
	}
}
