/* SPDX-License-Identifier: MIT */
/*
 * The engine's side of the supervisor and of each sandbox's life:
 *
 *   WAITING -> CREATING -> SETUP -> RUNNING -> DEAD -> REMOVING
 *                 \__________\-> FAILED ______/
 *
 * A container is freed only after the supervisor has said that nothing is left of it. Its process is known to
 * be dead by its pidfd, which the kernel signals after everything in the pid namespace is gone.
 */
#include "daemon/local/engine/container.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/engine/base.h"
#include "daemon/local/engine/container_int.h"
#include "daemon/local/engine/image.h"
#include "daemon/local/engine/ns.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define CONTAINER_MAGIC	 0xb0b0b0b0u
#define MESSAGES_PER_RUN 64
#define SPAWN_QUEUE_BYTES (4 << 20)
#define QUIT_WAIT_MS	 20000

struct supervisor_out {
	struct list node;
	struct supervisor_req q;
	int fd;
};

static struct container *container_from(void *p)
{
	struct container *b = p;

	must(b && b->magic == CONTAINER_MAGIC);
	return b;
}

/* --- state --- */

static const struct {
	const char *name;
	unsigned next;
} container_states[] = {
	[CONTAINER_WAITING] = {"waiting", BIT(CONTAINER_CREATING) | BIT(CONTAINER_FAILED)},
	[CONTAINER_CREATING] = {"creating", BIT(CONTAINER_SETUP) | BIT(CONTAINER_FAILED)},
	[CONTAINER_SETUP] = {"setup",
			     BIT(CONTAINER_RUNNING) | BIT(CONTAINER_FAILED) | BIT(CONTAINER_DEAD)},
	[CONTAINER_RUNNING] = {"running", BIT(CONTAINER_DEAD)},
	[CONTAINER_FAILED] = {"failed", BIT(CONTAINER_DEAD) | BIT(CONTAINER_REMOVING)},
	[CONTAINER_DEAD] = {"dead", BIT(CONTAINER_REMOVING)},
	[CONTAINER_REMOVING] = {"removing", 0},
};

static void container_set_state(struct container *b, enum container_state to)
{
	must(container_states[b->state].next & BIT(to));
	log_debug("container_state", "container=%s from=%s to=%s", b->id,
		  container_states[b->state].name, container_states[to].name);
	b->state = to;
}

static void created(struct container *b, int r, const char *why)
{
	container_done_fn *fn = b->created;

	b->created = NULL;
	if (fn)
		fn(b->created_user, r, why);
}

/* --- talking to the supervisor --- */

static void flush(struct engine *bs)
{
	while (bs->sock >= 0 && !list_is_empty(&bs->outbox)) {
		struct supervisor_out *o = list_first(&bs->outbox, struct supervisor_out, node);
		int r = pkt_send(bs->sock, &o->q, sizeof(o->q), &o->fd, o->fd >= 0);

		if (r == -EAGAIN)
			break;
		list_del(&o->node);	/* a dead supervisor is seen at the end of its socket */
		fd_close(o->fd);
		free(o);
	}
	if (bs->sock >= 0)
		(void)!watch_set(&bs->watch, WATCH_READ | (list_is_empty(&bs->outbox) ? 0 : WATCH_WRITE));
}

int engine_ask(struct engine *bs, const struct supervisor_req *q, int fd)
{
	struct supervisor_out *o = bs->sock < 0 ? NULL : calloc(1, sizeof(*o));

	if (!o) {
		fd_close(fd);
		return bs->sock < 0 ? -EPIPE : -ENOMEM;
	}
	o->q = *q;
	o->fd = fd;
	list_add_tail(&bs->outbox, &o->node);
	flush(bs);
	return 0;
}

/* --- the end of a container --- */

static void container_free_now(void *p)
{
	free(container_from(p));
}

static void container_finish(struct container *b, int r)
{
	struct engine *bs = b->engine;
	container_done_fn *fn = b->destroyed;
	void *user = b->destroyed_user;

	watch_fini(&b->watch);
	watch_fini(&b->pid_watch);
	defer_cancel(&b->defer);
	pause_end(b, true);
	b->sock = fd_close(b->sock);
	b->pidfd = fd_close(b->pidfd);
	b->root_fd = fd_close(b->root_fd);
	b->shown_fd = fd_close(b->shown_fd);
	b->net.tcp = fd_close(b->net.tcp);
	b->net.udp = fd_close(b->net.udp);
	list_del(&b->node);
	(void)map_del_u64(&bs->by_token, b->token);
	map_fini(&b->procs);
	map_fini(&b->sockets);
	bs->slots[b->slot] = false;
	loop_bury(bs->loop, &b->grave, container_free_now, b);
	if (r < 0)
		log_warn("container_remains",
			 "container=%s error=%d action=\"left to the next start\"", b->id, -r);
	if (fn)
		fn(user, r, r < 0 ? "not all of it could be removed" : "");
}

static void ask_removal(struct container *b)
{
	int r;

	container_set_state(b, CONTAINER_REMOVING);
	b->req.op = SUPERVISOR_REMOVE;
	str_copy(b->req.layer, sizeof(b->req.layer), b->stash);
	r = engine_ask(b->engine, &b->req, -1);
	if (r < 0)
		container_finish(b, r);
}

/* No process is left. */
static void on_dead(struct container *b)
{
	bool was_running = b->state == CONTAINER_RUNNING;

	watch_fini(&b->pid_watch);
	watch_fini(&b->watch);
	b->pidfd = fd_close(b->pidfd);
	b->sock = fd_close(b->sock);
	b->root_fd = fd_close(b->root_fd);
	b->shown_fd = fd_close(b->shown_fd);
	b->net.tcp = fd_close(b->net.tcp);
	b->net.udp = fd_close(b->net.udp);
	container_set_state(b, CONTAINER_DEAD);
	pause_end(b, false);
	process_end_all(b, false);
	fs_end_all(b, false);
	created(b, -EIO, "the sandbox's init died while it was being set up");
	if (b->destroying) {
		ask_removal(b);
	} else if (was_running) {
		log_warn("container_died", "container=%s", b->id);
		if (b->death)
			b->death(b->death_user);
	}
}

static void kill_init(struct container *b)
{
	if (b->pidfd < 0)
		return;
	(void)syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
	if (b->frozen || b->freeze.done)
		(void)!cg_freeze(&b->engine->facts.cg, b->cg_name, false);
}

/* --- messages of the init --- */

static void on_message(struct container *b, const struct init_msg *m, int fds[PKT_FDS_MAX])
{
	char text[PKT_TEXT_MAX];

	if (m->op == INIT_READY && b->state == CONTAINER_SETUP) {
		b->root_fd = pkt_take_fd(&fds[0]);
		b->shown_fd = pkt_take_fd(&fds[1]);
		b->net = (struct nsnet){ pkt_take_fd(&fds[2]), pkt_take_fd(&fds[3]) };
		container_set_state(b, CONTAINER_RUNNING);
		created(b, 0, "");
	} else if (m->op == INIT_FAILED && b->state == CONTAINER_SETUP) {
		container_set_state(b, CONTAINER_FAILED);
		str_copy(text, sizeof(text), m->text);
		created(b, m->r < 0 ? m->r : -EIO, text);
	} else if (m->op == INIT_STOP) {
		pause_on_stopped(b, m);
	} else {
		process_on_message(b, m, fds);
	}
	pkt_close_fds(fds);
}

static void read_init(struct container *b)
{
	struct init_msg m;
	int fds[PKT_FDS_MAX];

	for (int i = 0; i < MESSAGES_PER_RUN && b->sock >= 0; i++) {
		ssize_t n = pkt_recv(b->sock, &m, sizeof(m), fds);

		if (n == -EAGAIN)
			return;
		if (n <= 0) {		/* its pidfd says when it is really gone */
			watch_fini(&b->watch);
			b->sock = fd_close(b->sock);
			kill_init(b);
			return;
		}
		m.text[sizeof(m.text) - 1] = '\0';
		on_message(b, &m, fds);
	}
}

static void on_init_readable(struct watch *w, unsigned ready, void *user)
{
	(void)w;
	(void)ready;
	read_init(container_from(user));
}

static void on_init_dead(struct watch *w, unsigned ready, void *user)
{
	struct container *b = container_from(user);

	(void)w;
	(void)ready;
	/* What it said before stands: read it all first. */
	while (b->sock >= 0) {
		struct pollfd p = { .fd = b->sock, .events = POLLIN };

		if (poll(&p, 1, 0) <= 0)
			break;
		read_init(b);
	}
	on_dead(b);
}

/* --- messages of the supervisor --- */

static int send_create(struct container *b)
{
	int pair[2], r = pkt_pair(pair);

	if (r < 0)
		return r;
	b->sock = pair[0];
	/* a thousand starts at once; as much of it as the machine allows */
	(void)setsockopt(b->sock, SOL_SOCKET, SO_SNDBUF, &(int){ SPAWN_QUEUE_BYTES }, sizeof(int));
	r = watch_init(&b->watch, b->engine->loop, b->sock, on_init_readable, b);
	if (r < 0) {
		fd_close(pair[1]);
		return r;
	}
	return engine_ask(b->engine, &b->req, pair[1]);
}

static void fail_creation(struct container *b, int r, const char *why)
{
	watch_fini(&b->watch);
	b->sock = fd_close(b->sock);
	container_set_state(b, CONTAINER_FAILED);
	created(b, r, why);
	if (b->destroying)
		ask_removal(b);
}

static void begin_creation(struct container *b)
{
	int r = b->engine->ready_r;

	if (r < 0) {
		fail_creation(b, r, b->engine->why);
		return;
	}
	r = send_create(b);
	if (r < 0) {
		fail_creation(b, r, "cannot ask for its process");
		return;
	}
	container_set_state(b, CONTAINER_CREATING);
}

static void on_created(struct container *b, int pidfd)
{
	int r;

	must(b->state == CONTAINER_CREATING);
	b->pidfd = pidfd;
	container_set_state(b, CONTAINER_SETUP);
	r = watch_init(&b->pid_watch, b->engine->loop, pidfd, on_init_dead, b);
	if (r == 0)
		r = watch_set(&b->pid_watch, WATCH_READ);
	if (r == 0)	/* the init may have spoken before the supervisor did: heard only now */
		r = watch_set(&b->watch, WATCH_READ);
	if (r < 0 || b->destroying)
		kill_init(b);
	if (r < 0)
		log_error("container_watch", "container=%s error=%d action=\"killed\"", b->id, -r);
}

static void on_ready(struct engine *bs, const struct supervisor_rep *rep)
{
	container_done_fn *fn = bs->ready;

	bs->is_ready = true;
	bs->ready_r = rep->r;
	bs->facts = rep->facts;
	str_copy(bs->why, sizeof(bs->why), rep->text);
	bs->ready = NULL;
	list_for_each_safe(n, &bs->all) {
		struct container *b = list_entry(n, struct container, node);

		if (b->state == CONTAINER_WAITING)
			defer_post(&b->defer);
	}
	if (fn)
		fn(bs->ready_user, rep->r, bs->why);
}

static void on_reply(struct engine *bs, const struct supervisor_rep *rep, int fds[PKT_FDS_MAX])
{
	struct container *b = map_get_u64(&bs->by_token, rep->token);

	if (rep->op == SUPERVISOR_READY)
		on_ready(bs, rep);
	else if (rep->op == SUPERVISOR_DONE)
		pause_on_task(bs, rep);
	else if (!b)
		log_warn("container_unknown", "token=%llu", (unsigned long long)rep->token);
	else if (rep->op == SUPERVISOR_CREATED)
		on_created(b, pkt_take_fd(&fds[0]));
	else if (rep->op == SUPERVISOR_FAILED)
		fail_creation(b, rep->r, rep->text);
	else if (rep->op == SUPERVISOR_REMOVED)
		container_finish(b, rep->r);
	pkt_close_fds(fds);
}

/* Its inits die with it. What was asked of it will never be answered. */
static void on_supervisor_dead(struct engine *bs)
{
	struct supervisor_rep rep = {
		.op = SUPERVISOR_READY, .r = -EPIPE, .text = "the supervisor process died"};

	log_error("supervisor_died", "action=\"no more sandboxes until the next start\"");
	watch_fini(&bs->watch);
	bs->sock = fd_close(bs->sock);
	if (!bs->is_ready)
		on_ready(bs, &rep);
	bs->ready_r = -EPIPE;
	str_copy(bs->why, sizeof(bs->why), rep.text);
	list_for_each_safe(n, &bs->all) {
		struct container *b = list_entry(n, struct container, node);

		if (b->state == CONTAINER_CREATING)
			fail_creation(b, -EPIPE, rep.text);
		else if (b->state == CONTAINER_REMOVING)
			container_finish(b, -EPIPE);
	}
	pause_end_tasks(bs, false);
	if (bs->on_dead)
		bs->on_dead(bs->on_dead_user);
}

static void on_supervisor(struct watch *w, unsigned ready, void *user)
{
	struct engine *bs = user;
	struct supervisor_rep rep;
	int fds[PKT_FDS_MAX];

	(void)w;
	if (ready & WATCH_WRITE)
		flush(bs);
	for (int i = 0; i < MESSAGES_PER_RUN && bs->sock >= 0; i++) {
		ssize_t n = pkt_recv(bs->sock, &rep, sizeof(rep), fds);

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			on_supervisor_dead(bs);
			return;
		}
		rep.text[sizeof(rep.text) - 1] = '\0';
		on_reply(bs, &rep, fds);
	}
}

/* --- the engine --- */

static int check_base(const char *dir, const struct engine_options *o, const char *state,
		      char **ret_why)
{
	if (base_contains(dir, state)) {
		*ret_why = str_printf("the base %s contains the state directory %s", dir, state);
		return -EINVAL;
	}
	for (const char *const *p = o->secret_paths; p && *p; p++) {
		char *real = realpath(*p, NULL);
		bool inside = base_contains(dir, real ? real : *p);

		free(real);
		if (inside) {
			*ret_why = str_printf("the base %s contains the secret file %s", dir, *p);
			return -EINVAL;
		}
	}
	return 0;
}

static bool template_name_ok(const char *s)
{
	if (!*s || strlen(s) > CONTAINER_ID_MAX || *s == '.' || *s == '-')
		return false;
	return s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0' && !str_eq(s, "base");
}

/* A folder, a file, or DIR:NAME: an image of that name in a layout folder. */
static int find_template(const struct container_template *t, struct supervisor_template *k, char **ret_why)
{
	char *path = str_dup(t->path), *colon = path ? strrchr(path, ':') : NULL, *name = NULL;
	char why[IMAGE_WHY_MAX];
	int r = 0;

	k->path = path ? realpath(path, NULL) : NULL;
	if (!k->path && colon) {
		*colon = '\0';
		k->path = realpath(path, NULL);
		name = colon + 1;
	}
	if (!k->path || (name && !image_is_layout(k->path))) {
		r = k->path ? -ENOENT : -errno;
		*ret_why = str_printf("template %s: %s: %s", t->name, t->path, strerror(-r));
	} else if (image_is_layout(k->path)) {
		r = image_open(k->path, name, &k->image, why);
		if (r < 0)
			*ret_why = str_printf("template %s: %s: %s", t->name, t->path, why);
	}
	free(path);
	return r;
}

static int add_template(struct engine *bs, const struct engine_options *o,
			const struct container_template *t, char **ret_why)
{
	struct supervisor_template *k = &bs->templates[bs->n_templates];
	struct stat st;
	int r;

	if (!template_name_ok(t->name) || engine_has_template(bs, t->name)) {
		*ret_why = str_printf("template name \"%s\": [a-z0-9._-], once each, not \"base\"", t->name);
		return -EINVAL;
	}
	k->name = str_dup(t->name);
	bs->n_templates++;
	r = k->name ? find_template(t, k, ret_why) : -ENOMEM;
	if (r < 0)
		return r;
	k->is_unpacked = k->image || stat(k->path, &st) < 0 || !S_ISDIR(st.st_mode);
	return k->is_unpacked ? 0 : check_base(k->path, o, bs->state_dir, ret_why);
}

static int add_templates(struct engine *bs, const struct engine_options *o, char **ret_why)
{
	int r;

	bs->templates = calloc(o->n_templates + 1, sizeof(*bs->templates));
	if (!bs->templates)
		return -ENOMEM;
	bs->templates[0].name = str_dup("base");
	if (!bs->templates[0].name)
		return -ENOMEM;
	bs->n_templates = 1;
	r = check_base("/usr", o, bs->state_dir, ret_why);
	for (size_t i = 0; i < o->n_templates && r == 0; i++)
		r = add_template(bs, o, &o->templates[i], ret_why);
	return r;
}

static uint32_t hash_of(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h;
}

static int start_supervisor(struct engine *bs, const struct engine_options *o)
{
	struct supervisor_options ko = { .state_dir = bs->state_dir, .templates = bs->templates,
				   .n_templates = bs->n_templates, .as_user = !ns_is_root(),
				   .no_idmap = o->no_idmap, .no_egress = o->no_egress, .sudo = o->sudo,
				   .uid = geteuid(), .gid = getegid() };
	char name[32];
	int pair[2], r = pkt_pair(pair);

	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "agentbox-local-%08x", hash_of(bs->state_dir));
	if (!o->no_cgroup)
		cg_setup(name, &bs->cg);
	ko.cg = bs->cg;
	ko.sock = pair[1];
	bs->supervisor = fork();
	if (bs->supervisor == 0)
		supervisor_run(&ko);
	r = bs->supervisor < 0 ? -errno : 0;
	fd_close(pair[1]);
	bs->sock = pair[0];
	if (r == 0)
		r = fd_pidfd(bs->supervisor, &bs->supervisor_pidfd);
	if (r == 0)
		r = watch_init(&bs->watch, bs->loop, bs->sock, on_supervisor, bs);
	return r < 0 ? r : watch_set(&bs->watch, WATCH_READ);
}

int engine_new(const struct engine_options *o, container_done_fn *ready, void *user, char **ret_why,
	       struct engine **ret)
{
	struct engine *bs = calloc(1, sizeof(*bs));
	int r;

	*ret_why = NULL;
	if (!bs)
		return -ENOMEM;
	bs->loop = o->loop;
	bs->has_sudo = o->sudo;
	bs->on_dead = o->on_dead;
	bs->on_dead_user = o->user;
	bs->sock = bs->supervisor_pidfd = -1;
	bs->supervisor = -1;
	bs->ready = ready;
	bs->ready_user = user;
	bs->next_token = 1;
	list_init(&bs->all);
	list_init(&bs->outbox);
	bs->state_dir = realpath(o->state_dir, NULL);
	r = bs->state_dir ? 0 : -errno;
	if (r < 0)
		*ret_why = str_printf("state directory %s: %s", o->state_dir, strerror(-r));
	if (r == 0)
		r = add_templates(bs, o, ret_why);
	if (r == 0) {
		bs->next_slot = hash_of(bs->state_dir) % SUPERVISOR_ID_SLOTS;
		r = start_supervisor(bs, o);
	}
	if (r < 0) {
		engine_free(bs);
		return r;
	}
	*ret = bs;
	return 0;
}

static void stop_supervisor(struct engine *bs)
{
	const struct supervisor_req q = { .op = SUPERVISOR_QUIT };
	struct pollfd p = { .fd = bs->supervisor_pidfd, .events = POLLIN };

	if (bs->supervisor <= 0)
		return;
	if (bs->sock >= 0 && fd_set_nonblock(bs->sock, false) == 0)
		(void)!pkt_send(bs->sock, &q, sizeof(q), NULL, 0);
	/* It may still have something to say; nobody listens, and it must not be stopped by that. */
	while (bs->sock >= 0 && bs->supervisor_pidfd >= 0) {
		struct pollfd both[2] = { p, { .fd = bs->sock, .events = POLLIN } };
		struct supervisor_rep rep;
		int fds[PKT_FDS_MAX];

		if (poll(both, 2, QUIT_WAIT_MS) <= 0 || both[0].revents)
			break;
		if (pkt_recv(bs->sock, &rep, sizeof(rep), fds) <= 0) {
			(void)poll(&p, 1, QUIT_WAIT_MS);
			break;
		}
		pkt_close_fds(fds);
	}
	if (bs->supervisor_pidfd < 0 || poll(&p, 1, 0) <= 0)
		(void)kill(bs->supervisor, SIGKILL);
	while (waitpid(bs->supervisor, NULL, 0) < 0 && errno == EINTR)
		;
}

struct engine *engine_free(struct engine *bs)
{
	if (!bs)
		return NULL;
	list_for_each_safe(n, &bs->all) {
		struct container *b = list_entry(n, struct container, node);

		kill_init(b);
		b->destroyed = NULL;
		process_end_all(b, true);
		fs_end_all(b, true);
		container_finish(b, 0);
	}
	pause_end_tasks(bs, true);
	watch_fini(&bs->watch);
	stop_supervisor(bs);
	list_for_each_safe(n, &bs->outbox) {
		struct supervisor_out *o = list_entry(n, struct supervisor_out, node);

		fd_close(o->fd);
		free(o);
	}
	cg_leave(&bs->cg);
	fd_close(bs->sock);
	fd_close(bs->supervisor_pidfd);
	for (size_t i = 0; i < bs->n_templates; i++) {
		free((char *)bs->templates[i].name);
		free((char *)bs->templates[i].path);
		image_free(bs->templates[i].image);
	}
	free(bs->templates);
	free(bs->state_dir);
	map_fini(&bs->by_token);
	free(bs);
	return NULL;
}

static int template_index(const struct engine *bs, const char *name)
{
	for (size_t i = 0; i < bs->n_templates; i++)
		if (str_eq(bs->templates[i].name, name))
			return (int)i;
	return -ENOENT;
}

bool engine_has_template(const struct engine *bs, const char *name)
{
	return template_index(bs, name) >= 0;
}

const char *const *engine_template_env(const struct engine *bs, const char *name)
{
	int i = template_index(bs, name);

	return i >= 0 && bs->templates[i].image ? image_env(bs->templates[i].image) : NULL;
}

/* --- containers --- */

bool engine_id_ok(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= CONTAINER_ID_MAX &&
	       s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

static bool id_in_use(const struct engine *bs, const char *id)
{
	list_for_each(n, &bs->all) {
		const struct container *b = list_entry(n, struct container, node);

		if (!b->destroying && str_eq(b->id, id))
			return true;
	}
	return false;
}

static int take_slot(struct engine *bs, uint32_t *ret)
{
	for (uint32_t i = 0; i < SUPERVISOR_ID_SLOTS; i++) {
		uint32_t s = (bs->next_slot + i) % SUPERVISOR_ID_SLOTS;

		if (bs->slots[s])
			continue;
		bs->slots[s] = true;
		bs->next_slot = (s + 1) % SUPERVISOR_ID_SLOTS;
		*ret = s;
		return 0;
	}
	return -EAGAIN;
}

/* What has to happen, but not before the call that caused it has returned. */
static void on_defer(struct defer *d, void *user)
{
	struct container *b = container_from(user);

	(void)d;
	if (b->destroying) {
		created(b, -ECANCELED, "the sandbox was destroyed");
		pause_end(b, false);
		if (b->state == CONTAINER_WAITING)
			container_finish(b, 0);
		else if (b->state == CONTAINER_FAILED && b->pidfd < 0)
			ask_removal(b);
		else if (b->state == CONTAINER_DEAD)
			ask_removal(b);
		return;
	}
	if (b->state == CONTAINER_WAITING)
		begin_creation(b);
}

static void fill_request(struct container *b, const struct container_options *o, int template)
{
	b->req = (struct supervisor_req){ .op = SUPERVISOR_CREATE,
				    .token = b->token,
				    .id_slot = b->slot,
				    .template = (uint32_t)template,
				    .memory_bytes = o->memory_bytes,
				    .max_pids = o->max_pids ? o->max_pids : CONTAINER_MAX_PIDS,
				    .cpus = o->cpus,
				    .take_layer = o->layer && o->take_layer };
	if (o->layer)
		str_copy(b->req.layer, sizeof(b->req.layer), o->layer);
	str_copy(b->req.id, sizeof(b->req.id), o->id);
	snprintf(b->cg_name, sizeof(b->cg_name), "%s.%llx", o->id, (unsigned long long)b->token);
}

int container_new(struct engine *bs, const struct container_options *o, container_done_fn *done,
		  void *user, struct container **ret)
{
	int r, template = template_index(bs, o->template);
	struct container *b;

	if (!engine_id_ok(o->id) || (o->layer && !engine_id_ok(o->layer)))
		return -EINVAL;
	if (template < 0)
		return template;
	if (id_in_use(bs, o->id))
		return -EEXIST;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->token = bs->next_token++;
	r = take_slot(bs, &b->slot);
	if (r == 0) {
		r = map_put_u64(&bs->by_token, b->token, b);
		if (r < 0)
			bs->slots[b->slot] = false;
	}
	if (r < 0) {
		free(b);
		return r;
	}
	b->magic = CONTAINER_MAGIC;
	b->engine = bs;
	b->state = CONTAINER_WAITING;
	b->sock = b->pidfd = b->root_fd = b->shown_fd = b->net.tcp = b->net.udp = -1;
	str_copy(b->id, sizeof(b->id), o->id);
	b->created = done;
	b->created_user = user;
	b->next_id = 1;
	fill_request(b, o, template);
	defer_init(&b->defer, bs->loop, on_defer, b);
	pause_init(b);
	fs_init(b);
	list_add_tail(&bs->all, &b->node);
	if (bs->is_ready)
		defer_post(&b->defer);
	*ret = b;
	return 0;
}

void container_destroy(struct container *b, container_done_fn *done, void *user)
{
	must(!b->destroying);
	b->destroying = true;
	b->destroyed = done;
	b->destroyed_user = user;
	kill_init(b);
	defer_post(&b->defer);
}

bool engine_have_egress(const struct engine *bs)
{
	return bs->facts.egress;
}

void container_take_egress(struct container *b, int *ret_tcp, int *ret_udp)
{
	*ret_tcp = pkt_take_fd(&b->net.tcp);
	*ret_udp = pkt_take_fd(&b->net.udp);
}

void container_on_death(struct container *b, void (*fn)(void *user), void *user)
{
	b->death = fn;
	b->death_user = user;
}
