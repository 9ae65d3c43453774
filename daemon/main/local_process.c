/* SPDX-License-Identifier: MIT */
#include "daemon/main/local_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/main/local_endpoint.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define IDLE_SECONDS  "60"
#define READY_FD      3
#define READY_MS      30000u
#define PAUSE_FIRST_MS 200u
#define PAUSE_MAX_MS  30000u
#define STABLE_MS     60000u
#define KILL_AFTER_MS 30000u	/* it ends its sandboxes in 10 s, or gives up */
#define SOON_MS	      1000u	/* calls wait for a pause up to this */
#define LOOK_MS	      100u	/* between two looks at the endpoint of a process that was found starting */

struct local_process {
	struct local_process_options o;
	char *dir;
	int users_fd;			/* STATE/local/users */
	bool users_held;
	enum local_state state;
	struct child *child;		/* NULL while there is no process */
	bool attached;			/* the process was found, not started */
	struct local_endpoint at;	/* the last known one */
	uint16_t port, plain_port;	/* for the next start; 0 = any free port */
	uint64_t begun_at_ms, up_at_ms;
	struct timer timer;		/* STARTING: the next look at the folder; WAITING: the next start */
	bool was_up;
	bool start_failed;		/* since it was up last, or ever */
	bool end_told;			/* an early end was logged as an error already */
	bool bad_line;			/* its line on the ready pipe is no endpoint */
	unsigned failures;		/* starts in a row that led to nothing that lasted */
	uint32_t pause_ms;		/* WAITING: of this time */
	int64_t since_ms;
	struct status why;
	struct defer changed;
	struct list stops;		/* struct local_process_stop */
};

struct local_process_stop {
	struct list node;
	local_process_stopped_fn *done;
	void *user;
	bool was_running;
	struct status st;
	struct defer answer;
	struct timer deadline;
};

static const struct {
	const char *name;
	unsigned next;
} local_states[] = {
	[LOCAL_STARTING] = { "starting", BIT(LOCAL_RUNNING) | BIT(LOCAL_WAITING) | BIT(LOCAL_STOPPING) | BIT(LOCAL_STOPPED) },
	[LOCAL_RUNNING] = { "running", BIT(LOCAL_WAITING) | BIT(LOCAL_STOPPING) },
	[LOCAL_WAITING] = { "waiting", BIT(LOCAL_STARTING) | BIT(LOCAL_STOPPED) },
	[LOCAL_STOPPING] = { "stopping", BIT(LOCAL_STOPPED) },
	[LOCAL_STOPPED] = { "stopped", 0 },
};

static void local_set_state(struct local_process *l, enum local_state to)
{
	must(local_states[l->state].next & BIT(to));
	log_debug("local_state", "from=%s to=%s", local_states[l->state].name, local_states[to].name);
	l->state = to;
	defer_post(&l->changed);
}

static void on_changed(struct defer *d, void *user)
{
	struct local_process *l = user;

	if (l->o.on_change)
		l->o.on_change(l->o.user);
}

/* --- down, for a while --- */

static void wait_for_start(struct local_process *l, enum log_level level)
{
	l->pause_ms = (uint32_t)MIN((uint64_t)l->o.pause_first_ms << MIN(l->failures, 16u), (uint64_t)l->o.pause_max_ms);
	log_event(level, "local_down", "error=%s failures=%u next_start_in_ms=%u", log_q(l->why.text), l->failures,
		  l->pause_ms);
	if (timer_set(&l->timer, loop_now_ms(l->o.loop) + l->pause_ms) < 0)
		log_error("local_down", "error=\"out of memory, it stays down\"");
	local_set_state(l, LOCAL_WAITING);
}

/* The first failure of an outage is an error in the log; the next ones are for debugging. */
static void start_failed(struct local_process *l)
{
	enum log_level level = l->start_failed ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR;

	l->start_failed = true;
	l->failures++;
	wait_for_start(l, level);
}

static void why_down(struct local_process *l, const char *fmt, ...) printf_like(2, 3);
static void why_down(struct local_process *l, const char *fmt, ...)
{
	char text[STATUS_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	status_set(&l->why, R_UNREACHABLE, "%s", text);
	if (!l->since_ms)
		l->since_ms = clock_wall_ms();
}

/* --- starting --- */

static void program_path(const struct local_process *l, char ret[4096])
{
	ssize_t n = readlink("/proc/self/exe", ret, 4000);
	char *slash;

	ret[n > 0 ? n : 0] = 0;
	slash = strrchr(ret, '/');
	snprintf(slash ? slash + 1 : ret, 64, "agentbox-local");
	if (slash && access(ret, X_OK) < 0)	/* in the build tree it lies in a folder of its own */
		snprintf(slash + 1, 64, "local/agentbox-local");
	if (slash && access(ret, X_OK) < 0)
		snprintf(ret, 4096, "agentbox-local");
	if (l->o.program)
		snprintf(ret, 4096, "%s", l->o.program);
}

static void on_output(struct child *c, void *user);
static void on_done(const struct child_result *r, void *user);

static void fill_options(struct local_process *l, struct child_options *ret)
{
	*ret = (struct child_options){
		.name = "agentbox-local", .output_fd = READY_FD, .output_max = LOCAL_ENDPOINT_MAX_BYTES,
		.time_limit_ms = l->o.ready_ms, .kill_after_ms = KILL_AFTER_MS,
		.on_output = on_output, .done = on_done, .user = l,
	};
}

static int start_program(struct local_process *l)
{
	char program[4096], listen[32], plain[32];
	char *argv[] = { (char *)"agentbox-local", (char *)"--state-dir", l->dir, (char *)"--tls-listen",
			 listen, (char *)"--listen", plain, (char *)"--auto-tls",
			 (char *)"--exit-when-idle", (char *)IDLE_SECONDS, (char *)"--ready-fd",
			 (char *)"3", NULL };
	struct child_options o;
	int r;

	snprintf(listen, sizeof(listen), "127.0.0.1:%u", l->port);
	snprintf(plain, sizeof(plain), "127.0.0.1:%u", l->plain_port);
	program_path(l, program);
	fill_options(l, &o);
	o.program = program;
	o.argv = argv;
	l->attached = l->bad_line = false;
	r = child_start(l->o.children, &o, &l->child);
	if (r < 0)
		why_down(l, "agentbox-local cannot be started: %s: %s", program, strerrordesc_np(-r));
	return r;
}

static void up(struct local_process *l, struct local_endpoint *at)
{
	bool moved = l->at.port && at->port != l->at.port;

	log_info(l->attached ? "local_attached" : "local_started", "pid=%d address=%s%s%s failures=%u", (int)at->pid,
		 at->address, moved ? " instead_of=" : "", moved ? l->at.address : "", l->failures);
	local_endpoint_fini(&l->at);
	l->at = *at;
	l->port = at->port;
	l->plain_port = at->plain_port;
	l->up_at_ms = loop_now_ms(l->o.loop);
	l->was_up = true;
	l->start_failed = false;
	l->since_ms = 0;
	timer_clear(&l->timer);
	child_settle(l->child);
	local_set_state(l, LOCAL_RUNNING);
}

static void on_output(struct child *c, void *user)
{
	struct local_process *l = user;
	const char *line = child_output(c, NULL);
	struct local_endpoint at;

	if (l->state != LOCAL_STARTING || !strchr(line, '\n'))
		return;
	if (local_endpoint_parse(line, &at) == 0) {
		up(l, &at);
	} else {
		l->bad_line = true;
		child_stop(c);
	}
}

static int look_later(struct local_process *l)
{
	int r = timer_set(&l->timer, loop_now_ms(l->o.loop) + LOOK_MS);

	if (r < 0)
		why_down(l, "agentbox-local cannot be started: out of memory");
	return r;
}

/* Another process holds the lock. The endpoint counts only if it names that process, which may still be starting or be
 * about to end. */
static int attach(struct local_process *l, pid_t holder)
{
	struct local_endpoint at = { 0 };
	struct child_options o;
	pid_t still = 0;
	int r;

	fill_options(l, &o);
	l->attached = true;
	r = child_adopt(l->o.children, holder, &o, &l->child);
	if (r == -ESRCH)
		return look_later(l);
	if (r < 0) {
		why_down(l, "agentbox-local (process %d) cannot be watched: %s", (int)holder, strerrordesc_np(-r));
		return r;
	}
	if (local_endpoint_holder(l->dir, &still) < 0 || still != holder) {
		child_release(l->child);
		l->child = NULL;
		return look_later(l);
	}
	if (local_endpoint_read(l->dir, &at) == 0 && at.pid == holder) {
		up(l, &at);
		return 0;
	}
	local_endpoint_fini(&at);
	return look_later(l);
}

/* False while agentbox-local holds the file exclusively, which it does for a moment to see whether a daemon is there. */
static bool hold_users(struct local_process *l)
{
	l->users_held |= flock(l->users_fd, LOCK_SH | LOCK_NB) == 0;
	return l->users_held;
}

/* Attaches or starts. -errno, and the reason in `why`: neither is possible now. */
static int begin(struct local_process *l)
{
	pid_t holder = 0;
	int r;

	if (!hold_users(l))
		return look_later(l);
	r = local_endpoint_holder(l->dir, &holder);
	if (r < 0) {
		why_down(l, "%s/lock: %s", l->dir,
			 r == -ESRCH ? "held by a process that cannot be seen from here" : strerrordesc_np(-r));
		return r;
	}
	return holder ? attach(l, holder) : start_program(l);
}

static void begin_or_wait(struct local_process *l)
{
	if (begin(l) < 0)
		start_failed(l);
}

static void begin_anew(struct local_process *l)
{
	l->begun_at_ms = loop_now_ms(l->o.loop);
	begin_or_wait(l);
}

static void give_up_looking(struct local_process *l)
{
	if (l->child)
		why_down(l, "agentbox-local (process %d) holds %s and does not say where it is", (int)child_pid(l->child),
			 l->dir);
	else
		why_down(l, "%s/users is locked by another program", l->dir);
	child_release(l->child);
	l->child = NULL;
	start_failed(l);
}

static void look_again(struct local_process *l)
{
	struct local_endpoint at = { 0 };

	if (l->child && local_endpoint_read(l->dir, &at) == 0 && at.pid == child_pid(l->child)) {
		up(l, &at);
		return;
	}
	local_endpoint_fini(&at);
	if (loop_now_ms(l->o.loop) >= l->begun_at_ms + l->o.ready_ms)
		give_up_looking(l);
	else if (!l->child)
		begin_or_wait(l);
	else if (look_later(l) < 0)
		give_up_looking(l);
}

static void on_timer(struct timer *t, void *user)
{
	struct local_process *l = user;

	if (l->state == LOCAL_STARTING) {
		look_again(l);
	} else if (l->state == LOCAL_WAITING) {
		local_set_state(l, LOCAL_STARTING);
		begin_anew(l);
	}
}

/* --- its end --- */

static void why_not_up(struct local_process *l, const struct child_result *r)
{
	char text[64];

	if (r->end == CHILD_TIMED_OUT)
		why_down(l, "agentbox-local was not ready after %g s", l->o.ready_ms / 1000.0);
	else if (l->bad_line || r->end == CHILD_SAID_TOO_MUCH)
		why_down(l, "agentbox-local announced no address that can be used");
	else
		why_down(l, "agentbox-local: %s before it was ready; the log has its own words", child_end_text(r, text));
}

/* Its old ports may be taken, so free ones are tried before the start counts as failed. */
static void ended_before_up(struct local_process *l, const struct child_result *r)
{
	why_not_up(l, r);
	if (!l->port || r->end != CHILD_EXITED) {
		start_failed(l);
		return;
	}
	log_warn("local_ports", "port=%u error=%s action=\"started at free ports\"", l->port, log_q(l->why.text));
	l->port = l->plain_port = 0;
	begin_anew(l);
}

static void ran_and_ended(struct local_process *l, const struct child_result *r)
{
	char text[64];

	if (loop_now_ms(l->o.loop) >= l->up_at_ms + l->o.stable_ms) {
		l->failures = 0;
		l->end_told = false;
	}
	why_down(l, "agentbox-local: %s; its running sandboxes ended with it", child_end_text(r, text));
	wait_for_start(l, l->end_told ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	l->end_told = true;
	l->failures++;	/* is reset at the next end if that run was long enough */
}

static void answer_all(struct local_process *l)
{
	list_for_each(n, &l->stops) {
		struct local_process_stop *s = list_entry(n, struct local_process_stop, node);

		timer_clear(&s->deadline);
		defer_post(&s->answer);
	}
}

static void stopped(struct local_process *l)
{
	status_set(&l->why, R_UNREACHABLE, "agentbox-local was stopped; start agentboxd again to have it back");
	local_set_state(l, LOCAL_STOPPED);
	answer_all(l);
}

static void on_done(const struct child_result *r, void *user)
{
	struct local_process *l = user;
	char text[64];

	log_info("local_ended", "pid=%d state=%s how=%s", (int)child_pid(l->child), local_states[l->state].name,
		 log_q(child_end_text(r, text)));
	l->child = NULL;
	timer_clear(&l->timer);
	if (l->state == LOCAL_STOPPING)
		stopped(l);
	else if (l->state == LOCAL_RUNNING)
		ran_and_ended(l, r);
	else if (l->attached)	/* the process was about to end when it was found */
		begin_anew(l);
	else
		ended_before_up(l, r);
}

/* --- stopping --- */

static void answer_stop(struct defer *d, void *user)
{
	struct local_process_stop *s = user;
	struct local_process_stop copy = *s;

	local_process_stop_cancel(s);
	copy.done(copy.user, &copy.st, copy.was_running);
}

static void on_stop_deadline(struct timer *t, void *user)
{
	struct local_process_stop *s = user;

	status_set(&s->st, R_DEADLINE_REQUEST, "agentbox-local is still ending its sandboxes");
	defer_post(&s->answer);
}

static void begin_stop(struct local_process *l)
{
	timer_clear(&l->timer);
	if (l->state == LOCAL_STOPPING || l->state == LOCAL_STOPPED)
		return;
	l->since_ms = clock_wall_ms();
	if (!l->child) {
		stopped(l);
		return;
	}
	status_set(&l->why, R_UNREACHABLE, "agentbox-local is being stopped");
	local_set_state(l, LOCAL_STOPPING);
	child_stop(l->child);
}

int local_process_stop(struct local_process *l, uint64_t deadline_ms, local_process_stopped_fn *done, void *user,
		       struct local_process_stop **ret)
{
	struct local_process_stop *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->done = done;
	s->user = user;
	s->was_running = l->child != NULL;
	list_init(&s->node);
	list_add_tail(&l->stops, &s->node);
	defer_init(&s->answer, l->o.loop, answer_stop, s);
	timer_init(&s->deadline, l->o.loop, on_stop_deadline, s);
	if (s->was_running && deadline_ms && timer_set(&s->deadline, deadline_ms) < 0) {
		local_process_stop_cancel(s);
		return -ENOMEM;
	}
	begin_stop(l);
	if (!s->was_running)
		defer_post(&s->answer);
	*ret = s;
	return 0;
}

void local_process_stop_cancel(struct local_process_stop *s)
{
	if (!s)
		return;
	list_del(&s->node);
	defer_cancel(&s->answer);
	timer_clear(&s->deadline);
	free(s);
}

/* --- the object --- */

static int make_folder(struct local_process *l, struct status *why)
{
	char *users = str_printf("%s/users", l->dir);
	int r = users ? fd_mkdirs(l->dir, 0700) : -ENOMEM;

	if (!r) {
		l->users_fd = open(users, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (l->users_fd < 0)
			r = -errno;
	}
	if (r < 0)
		status_set(why, R_BUG, "%s: %s", l->dir, strerrordesc_np(-r));
	free(users);
	return r;
}

static uint32_t or_else(uint32_t set, uint32_t usual)
{
	return set ? set : usual;
}

static struct local_process *local_new(const struct local_process_options *o)
{
	struct local_process *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->o = *o;
	l->o.ready_ms = or_else(o->ready_ms, READY_MS);
	l->o.pause_first_ms = or_else(o->pause_first_ms, PAUSE_FIRST_MS);
	l->o.pause_max_ms = or_else(o->pause_max_ms, PAUSE_MAX_MS);
	l->o.stable_ms = or_else(o->stable_ms, STABLE_MS);
	l->users_fd = -1;
	list_init(&l->stops);
	timer_init(&l->timer, o->loop, on_timer, l);
	defer_init(&l->changed, o->loop, on_changed, l);
	l->dir = str_printf("%s/local", o->state_dir);
	return l;
}

int local_process_new(const struct local_process_options *o, struct local_process **ret, struct status *why)
{
	struct local_process *l = local_new(o);
	int r = l && l->dir ? make_folder(l, why) : -ENOMEM;

	if (!r && local_endpoint_read(l->dir, &l->at) == 0) {	/* of one that may be no more */
		l->port = l->at.port;
		l->plain_port = l->at.plain_port;
	}
	if (!r) {
		l->begun_at_ms = loop_now_ms(o->loop);
		r = begin(l);
		*why = l->why;
	}
	if (r < 0) {
		local_process_free(l);
		return r;
	}
	defer_post(&l->changed);
	*ret = l;
	return 0;
}

void local_process_info(const struct local_process *l, struct local_info *ret)
{
	bool has_pid = l->state == LOCAL_RUNNING || l->state == LOCAL_STOPPING;

	*ret = (struct local_info){
		.state = l->state, .was_up = l->was_up, .start_failed = l->start_failed, .since_ms = l->since_ms,
		.soon = l->state == LOCAL_STARTING || (l->state == LOCAL_WAITING && !l->start_failed && l->pause_ms <= SOON_MS),
		.pause_ms = l->pause_ms,
		.why = l->why, .url = l->at.url, .address = l->at.address, .domain = l->at.domain,
		.plain_ports = l->at.plain_port != 0, .ca_file = l->at.ca_file, .key_file = l->at.key_file,
		.pid = has_pid ? l->at.pid : 0,
	};
	if (status_ok(&l->why))
		status_set(&ret->why, R_UNREACHABLE, "agentbox-local is starting");
}

struct local_process *local_process_free(struct local_process *l)
{
	if (!l)
		return NULL;
	while (!list_is_empty(&l->stops))
		local_process_stop_cancel(list_entry(l->stops.next, struct local_process_stop, node));
	if (l->state == LOCAL_STARTING && !l->attached)
		child_cancel(l->child);
	else
		child_release(l->child);
	timer_clear(&l->timer);
	defer_cancel(&l->changed);
	fd_close(l->users_fd);
	free(l->dir);
	local_endpoint_fini(&l->at);
	free(l);
	return NULL;
}
