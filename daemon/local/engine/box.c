/* SPDX-License-Identifier: MIT */
/*
 * The engine's side of the keeper and of each sandbox's life:
 *
 *   WAITING -> CREATING -> SETUP -> RUNNING -> DEAD -> REMOVING
 *                 \__________\-> FAILED ______/
 *
 * A box is freed only after the keeper has said that nothing is left of it. Its process is known to
 * be dead by its pidfd, which the kernel signals after everything in the pid namespace is gone.
 */
#include "daemon/local/engine/box.h"

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
#include "daemon/local/engine/box_int.h"
#include "daemon/local/engine/boxbase.h"
#include "daemon/local/engine/ns.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define BOX_MAGIC	 0xb0b0b0b0u
#define MESSAGES_PER_RUN 64
#define SPAWN_QUEUE_BYTES (4 << 20)
#define QUIT_WAIT_MS	 20000

struct keep_out {
	struct list node;
	struct keep_req q;
	int fd;
};

static struct box *box_from(void *p)
{
	struct box *b = p;

	must(b && b->magic == BOX_MAGIC);
	return b;
}

/* --- state --- */

static const struct {
	const char *name;
	unsigned next;
} box_states[] = {
	[BOX_WAITING] = { "waiting", BIT(BOX_CREATING) | BIT(BOX_FAILED) },
	[BOX_CREATING] = { "creating", BIT(BOX_SETUP) | BIT(BOX_FAILED) },
	[BOX_SETUP] = { "setup", BIT(BOX_RUNNING) | BIT(BOX_FAILED) | BIT(BOX_DEAD) },
	[BOX_RUNNING] = { "running", BIT(BOX_DEAD) },
	[BOX_FAILED] = { "failed", BIT(BOX_DEAD) | BIT(BOX_REMOVING) },
	[BOX_DEAD] = { "dead", BIT(BOX_REMOVING) },
	[BOX_REMOVING] = { "removing", 0 },
};

static void box_set_state(struct box *b, enum box_state to)
{
	must(box_states[b->state].next & BIT(to));
	log_debug("box_state", "box=%s from=%s to=%s", b->id, box_states[b->state].name,
		  box_states[to].name);
	b->state = to;
}

static void created(struct box *b, int r, const char *why)
{
	box_done_fn *fn = b->created;

	b->created = NULL;
	if (fn)
		fn(b->created_user, r, why);
}

/* --- talking to the keeper --- */

static void flush(struct boxes *bs)
{
	while (bs->sock >= 0 && !list_is_empty(&bs->outbox)) {
		struct keep_out *o = list_first(&bs->outbox, struct keep_out, node);
		int r = pkt_send(bs->sock, &o->q, sizeof(o->q), &o->fd, o->fd >= 0);

		if (r == -EAGAIN)
			break;
		list_del(&o->node);	/* a dead keeper is seen at the end of its socket */
		fd_close(o->fd);
		free(o);
	}
	if (bs->sock >= 0)
		(void)!watch_set(&bs->watch, WATCH_READ | (list_is_empty(&bs->outbox) ? 0 : WATCH_WRITE));
}

int boxes_ask(struct boxes *bs, const struct keep_req *q, int fd)
{
	struct keep_out *o = bs->sock < 0 ? NULL : calloc(1, sizeof(*o));

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

/* --- the end of a box --- */

static void box_free_now(void *p)
{
	free(box_from(p));
}

static void finish(struct box *b, int r)
{
	struct boxes *bs = b->boxes;
	box_done_fn *fn = b->destroyed;
	void *user = b->destroyed_user;

	watch_fini(&b->watch);
	watch_fini(&b->pid_watch);
	defer_cancel(&b->defer);
	boxpause_end(b, true);
	b->sock = fd_close(b->sock);
	b->pidfd = fd_close(b->pidfd);
	b->root_fd = fd_close(b->root_fd);
	b->net.tcp = fd_close(b->net.tcp);
	b->net.udp = fd_close(b->net.udp);
	list_del(&b->node);
	(void)map_del_u64(&bs->by_token, b->token);
	map_fini(&b->procs);
	map_fini(&b->sockets);
	bs->slots[b->slot] = false;
	loop_bury(bs->loop, &b->grave, box_free_now, b);
	if (r < 0)
		log_warn("box_remains", "box=%s err=%d action=\"left to the next start\"", b->id, -r);
	if (fn)
		fn(user, r, r < 0 ? "not all of it could be removed" : "");
}

static void ask_removal(struct box *b)
{
	int r;

	box_set_state(b, BOX_REMOVING);
	b->req.op = KEEP_REMOVE;
	str_copy(b->req.layer, sizeof(b->req.layer), b->stash);
	r = boxes_ask(b->boxes, &b->req, -1);
	if (r < 0)
		finish(b, r);
}

/* No process is left. */
static void on_dead(struct box *b)
{
	bool was_running = b->state == BOX_RUNNING;

	watch_fini(&b->pid_watch);
	watch_fini(&b->watch);
	b->pidfd = fd_close(b->pidfd);
	b->sock = fd_close(b->sock);
	b->root_fd = fd_close(b->root_fd);
	b->net.tcp = fd_close(b->net.tcp);
	b->net.udp = fd_close(b->net.udp);
	box_set_state(b, BOX_DEAD);
	boxpause_end(b, false);
	boxproc_end_all(b, false);
	boxfs_end_all(b, false);
	created(b, -EIO, "the sandbox's init died while it was being set up");
	if (b->destroying) {
		ask_removal(b);
	} else if (was_running) {
		log_warn("box_died", "box=%s", b->id);
		if (b->death)
			b->death(b->death_user);
	}
}

static void kill_init(struct box *b)
{
	if (b->pidfd < 0)
		return;
	(void)syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
	if (b->frozen || b->freeze.done)
		(void)!cg_freeze(&b->boxes->facts.cg, b->cg_name, false);
}

/* --- messages of the init --- */

static void on_message(struct box *b, const struct init_msg *m, int fds[PKT_FDS_MAX])
{
	char text[PKT_TEXT_MAX];

	if (m->op == INIT_READY && b->state == BOX_SETUP) {
		b->root_fd = pkt_take_fd(&fds[0]);
		b->net = (struct nsnet){ pkt_take_fd(&fds[1]), pkt_take_fd(&fds[2]) };
		box_set_state(b, BOX_RUNNING);
		created(b, 0, "");
	} else if (m->op == INIT_FAILED && b->state == BOX_SETUP) {
		box_set_state(b, BOX_FAILED);
		str_copy(text, sizeof(text), m->text);
		created(b, m->r < 0 ? m->r : -EIO, text);
	} else if (m->op == INIT_STOP) {
		boxpause_on_stopped(b, m);
	} else {
		boxproc_on_message(b, m, fds);
	}
	pkt_close_fds(fds);
}

static void read_init(struct box *b)
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
	read_init(box_from(user));
}

static void on_init_dead(struct watch *w, unsigned ready, void *user)
{
	struct box *b = box_from(user);

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

/* --- messages of the keeper --- */

static int send_create(struct box *b)
{
	int pair[2], r = pkt_pair(pair);

	if (r < 0)
		return r;
	b->sock = pair[0];
	/* a thousand starts at once; as much of it as the machine allows */
	(void)setsockopt(b->sock, SOL_SOCKET, SO_SNDBUF, &(int){ SPAWN_QUEUE_BYTES }, sizeof(int));
	r = watch_init(&b->watch, b->boxes->loop, b->sock, on_init_readable, b);
	if (r < 0) {
		fd_close(pair[1]);
		return r;
	}
	return boxes_ask(b->boxes, &b->req, pair[1]);
}

static void fail_creation(struct box *b, int r, const char *why)
{
	watch_fini(&b->watch);
	b->sock = fd_close(b->sock);
	box_set_state(b, BOX_FAILED);
	created(b, r, why);
	if (b->destroying)
		ask_removal(b);
}

static void begin_creation(struct box *b)
{
	int r = b->boxes->ready_r;

	if (r < 0) {
		fail_creation(b, r, b->boxes->why);
		return;
	}
	r = send_create(b);
	if (r < 0) {
		fail_creation(b, r, "cannot ask for its process");
		return;
	}
	box_set_state(b, BOX_CREATING);
}

static void on_created(struct box *b, int pidfd)
{
	int r;

	must(b->state == BOX_CREATING);
	b->pidfd = pidfd;
	box_set_state(b, BOX_SETUP);
	r = watch_init(&b->pid_watch, b->boxes->loop, pidfd, on_init_dead, b);
	if (r == 0)
		r = watch_set(&b->pid_watch, WATCH_READ);
	if (r == 0)	/* the init may have spoken before the keeper did: heard only now */
		r = watch_set(&b->watch, WATCH_READ);
	if (r < 0 || b->destroying)
		kill_init(b);
	if (r < 0)
		log_error("box_watch", "box=%s err=%d action=\"killed\"", b->id, -r);
}

static void on_ready(struct boxes *bs, const struct keep_rep *rep)
{
	box_done_fn *fn = bs->ready;

	bs->is_ready = true;
	bs->ready_r = rep->r;
	bs->facts = rep->facts;
	str_copy(bs->why, sizeof(bs->why), rep->text);
	bs->ready = NULL;
	list_for_each_safe(n, &bs->all) {
		struct box *b = list_entry(n, struct box, node);

		if (b->state == BOX_WAITING)
			defer_post(&b->defer);
	}
	if (fn)
		fn(bs->ready_user, rep->r, bs->why);
}

static void on_reply(struct boxes *bs, const struct keep_rep *rep, int fds[PKT_FDS_MAX])
{
	struct box *b = map_get_u64(&bs->by_token, rep->token);

	if (rep->op == KEEP_READY)
		on_ready(bs, rep);
	else if (rep->op == KEEP_DONE)
		boxpause_on_task(bs, rep);
	else if (!b)
		log_warn("box_unknown", "token=%llu", (unsigned long long)rep->token);
	else if (rep->op == KEEP_CREATED)
		on_created(b, pkt_take_fd(&fds[0]));
	else if (rep->op == KEEP_FAILED)
		fail_creation(b, rep->r, rep->text);
	else if (rep->op == KEEP_REMOVED)
		finish(b, rep->r);
	pkt_close_fds(fds);
}

/* Its inits die with it. What was asked of it will never be answered. */
static void on_keeper_dead(struct boxes *bs)
{
	struct keep_rep rep = { .op = KEEP_READY, .r = -EPIPE, .text = "the keeper process died" };

	log_error("keeper_died", "action=\"no more sandboxes until the next start\"");
	watch_fini(&bs->watch);
	bs->sock = fd_close(bs->sock);
	if (!bs->is_ready)
		on_ready(bs, &rep);
	bs->ready_r = -EPIPE;
	str_copy(bs->why, sizeof(bs->why), rep.text);
	list_for_each_safe(n, &bs->all) {
		struct box *b = list_entry(n, struct box, node);

		if (b->state == BOX_CREATING)
			fail_creation(b, -EPIPE, rep.text);
		else if (b->state == BOX_REMOVING)
			finish(b, -EPIPE);
	}
	boxpause_end_tasks(bs, false);
	if (bs->on_dead)
		bs->on_dead(bs->on_dead_user);
}

static void on_keeper(struct watch *w, unsigned ready, void *user)
{
	struct boxes *bs = user;
	struct keep_rep rep;
	int fds[PKT_FDS_MAX];

	(void)w;
	if (ready & WATCH_WRITE)
		flush(bs);
	for (int i = 0; i < MESSAGES_PER_RUN && bs->sock >= 0; i++) {
		ssize_t n = pkt_recv(bs->sock, &rep, sizeof(rep), fds);

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			on_keeper_dead(bs);
			return;
		}
		rep.text[sizeof(rep.text) - 1] = '\0';
		on_reply(bs, &rep, fds);
	}
}

/* --- the engine --- */

static int check_base(const char *dir, const struct boxes_options *o, const char *state, char **ret_why)
{
	if (boxbase_contains(dir, state)) {
		*ret_why = str_printf("the base %s contains the state directory %s", dir, state);
		return -EINVAL;
	}
	for (const char *const *p = o->secret_paths; p && *p; p++) {
		char *real = realpath(*p, NULL);
		bool inside = boxbase_contains(dir, real ? real : *p);

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
	if (!*s || strlen(s) > BOX_ID_MAX || *s == '.' || *s == '-')
		return false;
	return s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0' && !str_eq(s, "base");
}

static int add_template(struct boxes *bs, const struct boxes_options *o, const struct box_template *t,
			char **ret_why)
{
	struct keep_template *k = &bs->templates[bs->n_templates];
	struct stat st;
	char *real;

	if (!template_name_ok(t->name) || boxes_has_template(bs, t->name)) {
		*ret_why = str_printf("template name \"%s\": [a-z0-9._-], once each, not \"base\"", t->name);
		return -EINVAL;
	}
	real = realpath(t->path, NULL);
	if (!real || stat(real, &st) < 0) {
		int r = -errno;

		*ret_why = str_printf("template %s: %s: %s", t->name, t->path, strerror(-r));
		free(real);
		return r;
	}
	k->path = real;
	k->name = str_dup(t->name);
	k->is_tar = !S_ISDIR(st.st_mode);
	bs->n_templates++;
	if (!k->name)
		return -ENOMEM;
	return k->is_tar ? 0 : check_base(real, o, bs->state_dir, ret_why);
}

static int add_templates(struct boxes *bs, const struct boxes_options *o, char **ret_why)
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

static int start_keeper(struct boxes *bs, const struct boxes_options *o)
{
	struct keep_options ko = { .state_dir = bs->state_dir, .templates = bs->templates,
				   .n_templates = bs->n_templates, .as_user = !ns_is_root(),
				   .no_idmap = o->no_idmap, .no_egress = o->no_egress,
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
	bs->keeper = fork();
	if (bs->keeper == 0)
		boxkeep_run(&ko);
	r = bs->keeper < 0 ? -errno : 0;
	fd_close(pair[1]);
	bs->sock = pair[0];
	if (r == 0)
		r = fd_pidfd(bs->keeper, &bs->keeper_pidfd);
	if (r == 0)
		r = watch_init(&bs->watch, bs->loop, bs->sock, on_keeper, bs);
	return r < 0 ? r : watch_set(&bs->watch, WATCH_READ);
}

int boxes_new(const struct boxes_options *o, box_done_fn *ready, void *user, char **ret_why,
	      struct boxes **ret)
{
	struct boxes *bs = calloc(1, sizeof(*bs));
	int r;

	*ret_why = NULL;
	if (!bs)
		return -ENOMEM;
	bs->loop = o->loop;
	bs->on_dead = o->on_dead;
	bs->on_dead_user = o->user;
	bs->sock = bs->keeper_pidfd = -1;
	bs->keeper = -1;
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
		bs->next_slot = hash_of(bs->state_dir) % KEEP_ID_SLOTS;
		r = start_keeper(bs, o);
	}
	if (r < 0) {
		boxes_free(bs);
		return r;
	}
	*ret = bs;
	return 0;
}

static void stop_keeper(struct boxes *bs)
{
	const struct keep_req q = { .op = KEEP_QUIT };
	struct pollfd p = { .fd = bs->keeper_pidfd, .events = POLLIN };

	if (bs->keeper <= 0)
		return;
	if (bs->sock >= 0 && fd_set_nonblock(bs->sock, false) == 0)
		(void)!pkt_send(bs->sock, &q, sizeof(q), NULL, 0);
	/* It may still have something to say; nobody listens, and it must not be stopped by that. */
	while (bs->sock >= 0 && bs->keeper_pidfd >= 0) {
		struct pollfd both[2] = { p, { .fd = bs->sock, .events = POLLIN } };
		struct keep_rep rep;
		int fds[PKT_FDS_MAX];

		if (poll(both, 2, QUIT_WAIT_MS) <= 0 || both[0].revents)
			break;
		if (pkt_recv(bs->sock, &rep, sizeof(rep), fds) <= 0) {
			(void)poll(&p, 1, QUIT_WAIT_MS);
			break;
		}
		pkt_close_fds(fds);
	}
	if (bs->keeper_pidfd < 0 || poll(&p, 1, 0) <= 0)
		(void)kill(bs->keeper, SIGKILL);
	while (waitpid(bs->keeper, NULL, 0) < 0 && errno == EINTR)
		;
}

struct boxes *boxes_free(struct boxes *bs)
{
	if (!bs)
		return NULL;
	list_for_each_safe(n, &bs->all) {
		struct box *b = list_entry(n, struct box, node);

		kill_init(b);
		b->destroyed = NULL;
		boxproc_end_all(b, true);
		boxfs_end_all(b, true);
		finish(b, 0);
	}
	boxpause_end_tasks(bs, true);
	watch_fini(&bs->watch);
	stop_keeper(bs);
	list_for_each_safe(n, &bs->outbox) {
		struct keep_out *o = list_entry(n, struct keep_out, node);

		fd_close(o->fd);
		free(o);
	}
	cg_leave(&bs->cg);
	fd_close(bs->sock);
	fd_close(bs->keeper_pidfd);
	for (size_t i = 0; i < bs->n_templates; i++) {
		free((char *)bs->templates[i].name);
		free((char *)bs->templates[i].path);
	}
	free(bs->templates);
	free(bs->state_dir);
	map_fini(&bs->by_token);
	free(bs);
	return NULL;
}

static int template_index(const struct boxes *bs, const char *name)
{
	for (size_t i = 0; i < bs->n_templates; i++)
		if (str_eq(bs->templates[i].name, name))
			return (int)i;
	return -ENOENT;
}

bool boxes_has_template(const struct boxes *bs, const char *name)
{
	return template_index(bs, name) >= 0;
}

/* --- boxes --- */

bool boxes_id_ok(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= BOX_ID_MAX && s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

static bool id_in_use(const struct boxes *bs, const char *id)
{
	list_for_each(n, &bs->all) {
		const struct box *b = list_entry(n, struct box, node);

		if (!b->destroying && str_eq(b->id, id))
			return true;
	}
	return false;
}

static int take_slot(struct boxes *bs, uint32_t *ret)
{
	for (uint32_t i = 0; i < KEEP_ID_SLOTS; i++) {
		uint32_t s = (bs->next_slot + i) % KEEP_ID_SLOTS;

		if (bs->slots[s])
			continue;
		bs->slots[s] = true;
		bs->next_slot = (s + 1) % KEEP_ID_SLOTS;
		*ret = s;
		return 0;
	}
	return -EAGAIN;
}

/* What has to happen, but not before the call that caused it has returned. */
static void on_defer(struct defer *d, void *user)
{
	struct box *b = box_from(user);

	(void)d;
	if (b->destroying) {
		created(b, -ECANCELED, "the sandbox was destroyed");
		boxpause_end(b, false);
		if (b->state == BOX_WAITING)
			finish(b, 0);
		else if (b->state == BOX_FAILED && b->pidfd < 0)
			ask_removal(b);
		else if (b->state == BOX_DEAD)
			ask_removal(b);
		return;
	}
	if (b->state == BOX_WAITING)
		begin_creation(b);
}

static void fill_request(struct box *b, const struct box_options *o, int template)
{
	b->req = (struct keep_req){ .op = KEEP_CREATE,
				    .token = b->token,
				    .id_slot = b->slot,
				    .template = (uint32_t)template,
				    .memory_bytes = o->memory_bytes,
				    .max_pids = o->max_pids ? o->max_pids : BOX_MAX_PIDS,
				    .cpus = o->cpus,
				    .take_layer = o->layer && o->take_layer };
	if (o->layer)
		str_copy(b->req.layer, sizeof(b->req.layer), o->layer);
	str_copy(b->req.id, sizeof(b->req.id), o->id);
	snprintf(b->cg_name, sizeof(b->cg_name), "%s.%llx", o->id, (unsigned long long)b->token);
}

int box_new(struct boxes *bs, const struct box_options *o, box_done_fn *done, void *user, struct box **ret)
{
	int r, template = template_index(bs, o->template);
	struct box *b;

	if (!boxes_id_ok(o->id) || (o->layer && !boxes_id_ok(o->layer)))
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
	b->magic = BOX_MAGIC;
	b->boxes = bs;
	b->state = BOX_WAITING;
	b->sock = b->pidfd = b->root_fd = b->net.tcp = b->net.udp = -1;
	str_copy(b->id, sizeof(b->id), o->id);
	b->created = done;
	b->created_user = user;
	b->next_id = 1;
	fill_request(b, o, template);
	defer_init(&b->defer, bs->loop, on_defer, b);
	boxpause_init(b);
	boxfs_init(b);
	list_add_tail(&bs->all, &b->node);
	if (bs->is_ready)
		defer_post(&b->defer);
	*ret = b;
	return 0;
}

void box_destroy(struct box *b, box_done_fn *done, void *user)
{
	must(!b->destroying);
	b->destroying = true;
	b->destroyed = done;
	b->destroyed_user = user;
	kill_init(b);
	defer_post(&b->defer);
}

bool boxes_have_egress(const struct boxes *bs)
{
	return bs->facts.egress;
}

void box_take_egress(struct box *b, int *ret_tcp, int *ret_udp)
{
	*ret_tcp = pkt_take_fd(&b->net.tcp);
	*ret_udp = pkt_take_fd(&b->net.udp);
}

void box_on_death(struct box *b, void (*fn)(void *user), void *user)
{
	b->death = fn;
	b->death_user = user;
}
