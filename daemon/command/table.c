/* SPDX-License-Identifier: MIT */
/* The table of all commands: making and freeing it, finding, listing and forgetting commands, answering ops. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define EVICT_FIRST_MS	 1000u		/* after the start, for what became too old while no daemon ran */
#define EVICT_EVERY_MS	 60000u
#define RESTART_GRACE_MS 30000u
#define SPOOLS_OPEN_MIN	 16u
#define SPOOLS_OPEN_MAX	 4096u

/* --- operations --- */

static void answer_now(struct defer *d, void *user)
{
	struct command_op *op = user;
	struct command_op copy;

	list_del(&op->node);
	copy = *op;
	switch (op->kind) {
	case OP_START:
	case OP_FIND:
		copy.done(copy.user, &copy.st, status_ok(&copy.st) ? copy.c : NULL);
		break;
	case OP_LIST:
		copy.list(copy.user, &copy.st, NULL, 0);
		break;
	case OP_KILL:
	case OP_SIGNAL:
		copy.killed(copy.user, &copy.st, copy.flag, NULL, 0);
		break;
	case OP_INPUT:
		copy.input(copy.user, &copy.st, copy.c->input.accepted);
		break;
	case OP_RESIZE:
		copy.resized(copy.user, &copy.st);
		break;
	}
	list_init(&op->node);
	cmd_op_free(op);
}

struct command_op *cmd_op_new(struct commands *cs, enum op_kind kind, struct command *c, void *user)
{
	struct command_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->kind = kind;
	op->cs = cs;
	op->c = c ? command_ref(c) : NULL;
	op->user = user;
	list_add_tail(&cs->ops, &op->node);
	defer_init(&op->answer, cs->o.loop, answer_now, op);
	return op;
}

struct command_op *cmd_op_free(struct command_op *op)
{
	if (!op)
		return NULL;
	defer_cancel(&op->answer);
	list_del(&op->node);
	sandbox_cancel(op->core);
	envd_call_cancel(op->call);
	envd_stream_free(op->stream);
	agent_address_fini(&op->at);
	command_unref(op->c);
	free(op);
	return NULL;
}

void cmd_taking_up(struct status *ret)
{
	status_set(ret, R_STATE_CHANGING,
		   "the daemon has restarted and has not reached the command's sandbox again yet; repeat");
	ret->retry_after_ms = 500;
}

void cmd_op_post(struct command_op *op)
{
	defer_post(&op->answer);
}

void cmd_ops_end(struct command *c, const struct status *st)
{
	list_for_each(n, &c->cs->ops) {
		struct command_op *op = list_entry(n, struct command_op, node);

		if (op->c != c || (!op->call && !op->stream))
			continue;
		envd_call_cancel(give(op->call));
		op->stream = envd_stream_free(op->stream);
		op->st = *st;
		if (op->kind == OP_INPUT && op->n)
			command_input_lost(c, op);
		cmd_op_post(op);
	}
}

void command_op_cancel(struct command_op *op, bool end_it)
{
	if (!op)
		return;
	if (op->joined)
		command_start_cancel(op, end_it);
	cmd_op_free(op);
}

/* --- the table --- */

static void trim_all(struct commands *cs)
{
	struct uid_share *share;
	size_t pos = 0;

	while ((share = map_next(&cs->shares, &pos)))
		commands_trim(cs, share);
}

/* The first time soon after the start, but in the loop: while rows are loaded the store takes no commit. */
static void forget_old(struct timer *t, void *user)
{
	struct commands *cs = user;
	int64_t before = clock_wall_ms() - (int64_t)cs->o.history_ms;

	trim_all(cs);
	while (!list_is_empty(&cs->ended)) {
		struct command *c = list_entry(cs->ended.next, struct command, node);

		if (c->result.exited_at_ms > before)
			break;
		command_forget(c);
	}
	requests_expire(cs, clock_wall_ms());
	if (timer_set(t, loop_now_ms(cs->o.loop) + EVICT_EVERY_MS) < 0)
		log_warn("command_history", "error=\"out of memory, ended commands are kept longer\"");
}

static void sweep(struct defer *d, void *user)
{
	struct commands *cs = user;

	while (!list_is_empty(&cs->dying))
		command_destroy(list_entry(cs->dying.next, struct command, node));
}

/* A quarter of the descriptors: connections need the others. */
static unsigned spools_open(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return SPOOLS_OPEN_MIN;
	return (unsigned)MIN(MAX(files.rlim_cur / 4, (rlim_t)SPOOLS_OPEN_MIN), (rlim_t)SPOOLS_OPEN_MAX);
}

void commands_set_limits(struct commands *cs, const struct commands_limits *l)
{
	struct uid_share *s;
	size_t pos = 0;

	cs->o.limits = *l;
	cs->total.max = l->spool_total;
	while ((s = map_next(&cs->shares, &pos))) {
		s->quota.max = l->spool_per_uid;
		share_size_memory(s);
		commands_trim(cs, s);
	}
	list_for_each(n, &cs->all)	/* one that waits for room may have it now */
		defer_post(&list_entry(n, struct command, node)->pump);
}

int commands_new(const struct commands_options *o, struct commands **ret)
{
	struct commands *cs = calloc(1, sizeof(*cs));
	scoped(fd_closep) int state_fd = -1;
	int r;

	if (!cs)
		return -ENOMEM;
	spool_dir_init(&cs->spools, -1, o->spools_open ? o->spools_open : spools_open());
	cs->o = *o;
	cs->o.state_dir = NULL;
	cs->total.max = o->limits.spool_total;
	cs->o.restart_grace_ms = o->restart_grace_ms ? o->restart_grace_ms : RESTART_GRACE_MS;
	list_init(&cs->writes);
	list_init(&cs->looks);
	list_init(&cs->request_list);
	list_init(&cs->refused);
	list_init(&cs->all);
	list_init(&cs->ended);
	list_init(&cs->kept);
	list_init(&cs->ops);
	list_init(&cs->dying);
	defer_init(&cs->sweep, o->loop, sweep, cs);
	timer_init(&cs->evict, o->loop, forget_old, cs);
	state_fd = open(o->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (state_fd < 0 || (mkdirat(state_fd, "spool", 0700) < 0 && errno != EEXIST)) {
		r = -errno;
		commands_free(cs);
		return r;
	}
	cs->spools.fd = openat(state_fd, "spool", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	r = cs->spools.fd < 0 ? -errno : timer_set(&cs->evict, loop_now_ms(o->loop) + EVICT_FIRST_MS);
	if (!r)
		r = commands_load(cs, o->store);
	if (r < 0) {
		commands_free(cs);
		return r;
	}
	*ret = cs;
	return 0;
}

static void let_go(struct list *commands)
{
	while (!list_is_empty(commands)) {
		struct command *c = list_entry(commands->next, struct command, node);

		command_unlist(c);
		command_unref(c);
	}
}

struct commands *commands_free(struct commands *cs)
{
	struct uid_share *share;
	size_t pos = 0;

	if (!cs)
		return NULL;
	cs->closing = true;
	store_mute(cs->o.store); /* commits go on, but call nobody back */
	while (!list_is_empty(&cs->writes)) {
		struct cmd_write *w = list_entry(cs->writes.next, struct cmd_write, node);

		list_del(&w->node);
		command_unref(w->c);
		free(w);
	}
	while (!list_is_empty(&cs->ops))
		cmd_op_free(list_entry(cs->ops.next, struct command_op, node));
	exit_watches_fini(cs);
	let_go(&cs->all);
	let_go(&cs->ended);
	requests_fini(cs);
	commands_forget_refused(cs);
	sweep(&cs->sweep, cs);
	defer_cancel(&cs->sweep);
	timer_clear(&cs->evict);
	while ((share = map_next(&cs->shares, &pos))) {
		share_close_memory(share);
		free(share);
	}
	map_fini(&cs->shares);
	map_fini(&cs->setsid);
	map_fini(&cs->by_id);
	map_fini(&cs->by_sandbox);
	fd_close(cs->spools.fd);
	free(cs);
	return NULL;
}

unsigned commands_starting(const struct commands *cs)
{
	unsigned n = 0;

	list_for_each(i, &cs->all) {
		const struct command *c = list_entry(i, struct command, node);

		n += c->state == CMD_STARTING &&
		     (c->launch == LAUNCH_WRITING || (c->launch == LAUNCH_SENT && c->stream && !c->verify));
	}
	return n;
}

void commands_count(const struct commands *cs, uid_t uid, struct commands_counts *ret)
{
	const struct uid_share *share = map_get_u64(&cs->shares, uid);

	*ret = (struct commands_counts){ 0 };
	if (uid == (uid_t)-1)
		*ret = (struct commands_counts){ .running = cs->n_running, .spool_used = cs->total.used };
	else if (share)
		*ret = (struct commands_counts){ .running = share->n_running, .spool_used = share->quota.used };
}

struct command *commands_find(struct commands *cs, const struct principal *who, const char *command_id)
{
	struct command *c = map_get_str(&cs->by_id, command_id);

	return c && (who->admin || c->share->uid == who->uid) ? c : NULL;
}

static struct command *find_running(struct commands *cs, const struct agent_address *w, uint32_t pid)
{
	struct sandbox_commands *s = sandbox_commands_of(cs, w->id);

	if (!s)
		return NULL;
	list_for_each(n, &s->running) {
		struct command *c = list_entry(n, struct command, sandbox_node);

		if (c->pid == pid && str_eq(c->at.account, w->account) &&
		    c->at.generation == w->generation)
			return c;
	}
	return NULL;
}

struct command *commands_find_process(struct commands *cs, const struct principal *who, const struct agent_address *at,
				      uint32_t pid, const char *tag)
{
	struct sandbox_commands *s = sandbox_commands_of(cs, at->id);

	if (!s)
		return NULL;
	list_for_each(n, &s->running) {
		struct command *c = list_entry(n, struct command, sandbox_node);
		bool is_it = pid ? c->pid == pid : c->own_tag && tag && str_eq(c->own_tag, tag);

		if (is_it && c->pid && c->state != CMD_STARTING && c->state < CMD_ENDING && !c->foreign &&
		    (who->admin || c->share->uid == who->uid) && str_eq(c->at.account, at->account) &&
		    c->at.generation == at->generation)
			return c;
	}
	return NULL;
}

/* Makes a (foreign) command of a process that somebody else started; its earlier output is not known. Takes *w over.
 * NULL: no memory. */
static struct command *take_over(struct command_op *op, struct agent_address *w)
{
	struct command *c;

	if (command_new(op->cs, op->uid, NULL, &c) < 0) {
		agent_address_fini(w);
		return NULL;
	}
	agent_address_fini(&c->at);
	c->at = *w;
	c->foreign = true;
	c->detach = true;
	c->pid = op->pid;
	c->start_by_ms = op->deadline_ms ? op->deadline_ms : loop_now_ms(op->cs->o.loop) + COMMAND_START_MS;
	if (command_join_sandbox(c) == 0)
		return c;
	command_forget(c);
	return NULL;
}

static void on_find_resolved(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct command_op *op = user;
	struct command *c;
	struct agent_address w = { 0 };

	op->core = NULL;
	op->st = *st;
	if (!status_ok(st)) {
		cmd_op_post(op);
		return;
	}
	if (agent_address_set(&w, &t->at) < 0) {
		status_errno(&op->st, ENOMEM, "finding a command");
		cmd_op_post(op);
		return;
	}
	c = find_running(op->cs, &w, op->pid);
	if (c && c->state != CMD_STARTING) {
		agent_address_fini(&w);
		op->c = command_ref(c);
		cmd_op_post(op);
		return;
	}
	c = take_over(op, &w);
	if (!c) {
		status_errno(&op->st, ENOMEM, "finding a command");
		cmd_op_post(op);
		return;
	}
	op->c = command_ref(c);
	list_del(&op->node);
	list_add_tail(&c->start_ops, &op->node);
	op->joined = true;
	if (command_launch(c) < 0) {
		status_errno(&op->st, ENOMEM, "finding a command");
		command_start_failed(c, &op->st);
	}
}

int commands_find_pid(struct commands *cs, const struct sandbox_call *call, uint32_t pid,
		      command_done_fn *done, struct command_op **ret)
{
	struct command_op *op = cmd_op_new(cs, OP_FIND, NULL, call->user);
	struct sandbox_call own = *call;
	int r;

	if (!op)
		return -ENOMEM;
	op->done = done;
	op->deadline_ms = call->deadline_ms;
	op->pid = pid;
	op->uid = call->who->uid;
	own.user = op;
	r = sandbox_resolve(cs->core, &own, on_find_resolved, &op->core);
	if (r < 0) {
		cmd_op_free(op);
		return r;
	}
	*ret = op;
	return 0;
}

/* --- listing --- */

struct listing {
	struct command_view *v;
	size_t n, cap;
};

static struct command_view *listing_add(struct listing *l)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 32;
		struct command_view *v = realloc(l->v, cap * sizeof(*v));

		if (!v)
			return NULL;
		l->v = v;
		l->cap = cap;
	}
	return &l->v[l->n++];
}

static int add_ours(struct listing *l, const struct list *from, const char *account, uid_t uid, bool admin)
{
	list_for_each(n, from) {
		struct command *c = list_entry(n, struct command, sandbox_node);
		struct command_view *v;

		if (!str_eq(c->at.account, account) || (!admin && c->share->uid != uid) || c->state == CMD_STARTING)
			continue;
		v = listing_add(l);
		if (!v)
			return -ENOMEM;
		command_look(c, v);
	}
	return 0;
}

/* Not shown as foreign: our own scripts, and commands of ours that have ended (pipes_held) while the agent still lists them. */
static bool is_hidden(const struct commands *cs, const char *tag)
{
	const struct command *c;

	if (!tag || !str_starts(tag, COMMAND_TAG))
		return false;
	c = map_get_str(&cs->by_id, tag + strlen(COMMAND_TAG));
	return str_eq(tag, COMMAND_HELPER) || (c && c->state >= CMD_ENDING);
}

static int add_foreign(struct listing *l, const struct command_op *op, const struct envd_result *r)
{
	for (size_t i = 0; i < r->n_processes; i++) {
		const struct envd_process *p = &r->processes[i];
		struct command_view *v;

		if (find_running(op->cs, &op->at, p->pid) || is_hidden(op->cs, p->tag))
			continue;
		v = listing_add(l);
		if (!v)
			return -ENOMEM;
		*v = (struct command_view){ .id = "", .sandbox = op->at.id, .shell = "", .user = "",
					    .cwd = p->cwd ? p->cwd : "", .tag = p->tag ? p->tag : "",
					    .args = (const char *const *)p->args.v, .n_args = p->args.n,
					    .pid = p->pid, .generation = op->at.generation,
					    .foreign = true };
	}
	return 0;
}

int command_view_cmp(const struct command_view *a, const struct command_view *b)
{
	int by_id = strcmp(a->id, b->id);

	if (a->started_at_ms != b->started_at_ms)
		return a->started_at_ms < b->started_at_ms ? 1 : -1;
	if (by_id || a->id[0])
		return by_id;
	return (a->pid > b->pid) - (a->pid < b->pid);
}

static int newest_first(const void *a, const void *b)
{
	return command_view_cmp(a, b);
}

static void answer_list(struct command_op *op, const struct envd_result *processes)
{
	struct sandbox_commands *s = sandbox_commands_of(op->cs, op->at.id);
	struct listing l = { 0 };
	int r = s ? add_ours(&l, &s->running, op->at.account, op->uid, op->admin) : 0;

	if (!r && s && op->flag)
		r = add_ours(&l, &s->ended, op->at.account, op->uid, op->admin);
	if (!r && processes)
		r = add_foreign(&l, op, processes);
	if (r < 0)
		status_errno(&op->st, r, "listing commands");
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), newest_first);
	op->list(op->user, &op->st, r < 0 ? NULL : l.v, r < 0 ? 0 : l.n);
	free(l.v);
	cmd_op_free(op);
}

int commands_known(const struct commands *cs, const struct principal *who, const char *account, const char *sandbox,
		   struct command_view **ret, size_t *ret_n)
{
	struct sandbox_commands *s = sandbox_commands_of(cs, sandbox);
	struct listing l = { 0 };
	int r = s ? add_ours(&l, &s->running, account, who->uid, who->admin) : 0;

	if (!r && s)
		r = add_ours(&l, &s->ended, account, who->uid, who->admin);
	if (r < 0) {
		free(l.v);
		return r;
	}
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), newest_first);
	*ret = l.v;
	*ret_n = l.n;
	return 0;
}

/* The sandbox is gone or paused: true if the caller has ended commands there, which can be listed all the same. */
static bool find_ended(struct command_op *op)
{
	struct sandbox_commands *s = sandbox_commands_of(op->cs, op->at.id);

	if (!s)
		return false;
	list_for_each(n, &s->ended) {
		struct command *c = list_entry(n, struct command, sandbox_node);

		if (!op->admin && c->share->uid != op->uid)
			continue;
		free(op->at.account);
		op->at.account = str_dup(c->at.account);
		if (!op->at.account)
			return false;
		op->st = (struct status)STATUS_OK;
		return true;
	}
	return false;
}

static void on_list_resolved(void *user, const struct status *st, const struct sandbox_target *t);

/* If the agent was not reached, the sandbox may have a new token or be gone: the sandbox module is asked, once. */
static void on_processes(struct envd_result *r, void *user)
{
	struct command_op *op = user;
	const struct sandbox_call call = {
		.sandbox = op->at.id, .deadline_ms = op->deadline_ms, .user = op};
	bool first = !op->asked;

	op->call = NULL;
	op->st = r->status;
	op->asked = true;
	if (r->cls == ENVD_OK)
		answer_list(op, r);
	else if (!first || r->cls == ENVD_ANSWERED ||
		 sandbox_note_evidence(op->cs->core, &call, op->at.account,
				       command_evidence(r->cls), on_list_resolved, &op->core) < 0)
		cmd_op_post(op);
}

static void on_list_resolved(void *user, const struct status *st, const struct sandbox_target *t)
{
	struct command_op *op = user;
	struct envd_target target;

	op->core = NULL;
	op->st = *st;
	if (!status_ok(st)) {
		if (op->flag && find_ended(op))
			answer_list(op, NULL);
		else
			cmd_op_post(op);
		return;
	}
	if (agent_address_set(&op->at, &t->at) < 0) {
		status_errno(&op->st, ENOMEM, "listing commands");
		cmd_op_post(op);
		return;
	}
	target = agent_target(&op->at, NULL, op->deadline_ms);
	op->call = envd_process_list(&target, on_processes, op);
	if (!op->call) {
		status_errno(&op->st, ENOMEM, "listing commands");
		cmd_op_post(op);
	}
}

int commands_list(struct commands *cs, const struct sandbox_call *call, bool ended,
		  command_list_fn *done, struct command_op **ret)
{
	struct command_op *op = cmd_op_new(cs, OP_LIST, NULL, call->user);
	struct sandbox_call own = *call;
	int r;

	if (!op)
		return -ENOMEM;
	op->list = done;
	op->flag = ended;
	op->uid = call->who->uid;
	op->admin = call->who->admin;
	op->deadline_ms = call->deadline_ms;
	op->at.id = strdup(call->sandbox);
	if (!op->at.id) {
		cmd_op_free(op);
		return -ENOMEM;
	}
	own.user = op;
	r = sandbox_resolve(cs->core, &own, on_list_resolved, &op->core);
	if (r < 0) {
		cmd_op_free(op);
		return r;
	}
	*ret = op;
	return 0;
}
