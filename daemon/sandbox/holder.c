/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/auth/owner.h"
#include "daemon/auth/principal.h"
#include "daemon/auth/process.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/lease.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* --- identity --- */

static void identify(const struct sandbox_core *core, struct holder *h)
{
	enum sandbox_identity best = core->identity;

	h->identity = SANDBOX_IDENTITY_CONNECTION;
	h->value = 0;
	if (best == SANDBOX_IDENTITY_INODE && (h->value = process_inode(h->pidfd)))
		h->identity = SANDBOX_IDENTITY_INODE;
	else if (best <= SANDBOX_IDENTITY_START_TIME && (h->value = process_start_time(h->pid, h->pidfd)))
		h->identity = SANDBOX_IDENTITY_START_TIME;
}

enum sandbox_identity holder_best_identity(void)
{
	scoped(fd_closep) int fd = -1;

	if (fd_pidfd(getpid(), &fd) < 0)
		return SANDBOX_IDENTITY_CONNECTION;
	if (process_inode(fd))
		return SANDBOX_IDENTITY_INODE;
	return process_start_time(getpid(), fd) ? SANDBOX_IDENTITY_START_TIME : SANDBOX_IDENTITY_CONNECTION;
}

const char *holder_boot_id(struct sandbox_core *core)
{
	if (!core->boot_id[0])
		process_boot(core->boot_id);
	return core->boot_id;
}

/* --- the table --- */

/* The key of a process in holder_map: no two living ones share it. It has no padding, since its bytes are hashed. */
struct holder_key {
	uint64_t value;		/* inode, start time, or connection */
	uint32_t identity, uid;
	uint64_t pid;		/* 0 by connection */
};

static struct holder_key holder_key(const struct holder *h)
{
	bool by_conn = h->identity == SANDBOX_IDENTITY_CONNECTION;

	return (struct holder_key){ .value = by_conn ? h->conn : h->value, .identity = h->identity, .uid = h->uid,
				    .pid = by_conn ? 0 : (uint64_t)h->pid };
}

static struct holder *holder_find(struct sandbox_core *core, const struct holder *like)
{
	struct holder_key k = holder_key(like);

	return map_get(&core->holder_map, &k, sizeof(k));
}

static int holder_enter(struct holder *h)
{
	struct holder_key k = holder_key(h);
	int r = map_put(&h->core->holder_map, &k, sizeof(k), h);

	h->listed = !r;
	return r;
}

static void holder_leave(struct holder *h)
{
	struct holder_key k = holder_key(h);

	if (h->listed)
		(void)map_del(&h->core->holder_map, &k, sizeof(k));
	h->listed = false;
}

/* --- one of them --- */

static void holder_free(void *p)
{
	struct holder *h = p;

	must(h->magic == HOLDER_MAGIC);
	h->magic = 0;
	free(h);
}

/* It is found and called no more; its memory stays until the last reference. */
static void close_holder(struct holder *h)
{
	watch_fini(&h->death);
	h->pidfd = fd_close(h->pidfd);
	holder_leave(h);
}

void holder_unref(struct holder *h)
{
	if (!h)
		return;
	must(h->magic == HOLDER_MAGIC && h->refs);
	if (--h->refs)
		return;
	must(list_is_empty(&h->leases));
	close_holder(h);
	loop_bury(h->core->loop, &h->grave, holder_free, h);
}

static void died(struct holder *h, const char *how)
{
	if (h->dead)
		return;
	h->dead = true;
	log_info("holder_died", "pid=%d uid=%u seen_by=%s", (int)h->pid, owner_uid(h->uid), how);
	h->refs++;
	close_holder(h);
	while (!list_is_empty(&h->leases))
		lease_end(list_entry(h->leases.next, struct lease, holder_node), "its process died");
	holder_unref(h);
}

static void on_death(struct watch *w, unsigned ready, void *user)
{
	struct holder *h = user;

	must(h->magic == HOLDER_MAGIC);
	died(h, "pidfd");
}

/* Takes the pidfd over, also on failure. */
static int holder_new(struct sandbox_core *core, const struct principal *who, int pidfd,
		      struct holder **ret)
{
	struct holder *h = calloc(1, sizeof(*h));
	int r = h ? 0 : -ENOMEM;

	if (!h) {
		fd_close(pidfd);
		return r;
	}
	h->magic = HOLDER_MAGIC;
	h->refs = 1;
	h->core = core;
	h->uid = who->uid;
	h->pid = who->pid;
	h->pidfd = pidfd;
	h->conn = who->conn;
	list_init(&h->leases);
	identify(core, h);
	r = holder_enter(h);
	if (!r && pidfd >= 0) {
		r = watch_init(&h->death, core->loop, pidfd, on_death, h);
		if (!r)
			r = watch_set(&h->death, WATCH_READ);
	}
	if (r < 0) {
		holder_unref(h);
		return r;
	}
	*ret = h;
	return 0;
}

int holder_of(struct sandbox_core *core, const struct principal *who, struct holder **ret)
{
	struct holder like = { .uid = who->uid, .pid = who->pid, .pidfd = who->pidfd, .conn = who->conn }, *h;
	int fd = -1;

	if (who->pidfd >= 0 && process_has_ended(who->pidfd))
		return -ESRCH;
	identify(core, &like);
	h = holder_find(core, &like);
	if (h) {
		h->refs++;
		*ret = h;
		return 0;
	}
	if (who->pidfd >= 0) {
		fd = fcntl(who->pidfd, F_DUPFD_CLOEXEC, 3);
		if (fd < 0)
			return -errno;
	}
	return holder_new(core, who, fd, ret);
}

enum holder_proof holder_of_row(struct sandbox_core *core, const struct row_lease *r,
				struct holder **ret)
{
	struct principal who = { .uid = r->uid, .pid = (pid_t)r->pid, .pidfd = -1 };
	struct holder like = { .pid = who.pid };
	scoped(fd_closep) int fd = -1;
	int e;

	if (!str_eq(r->boot_id, holder_boot_id(core)))
		return r->boot_id[0] && core->boot_id[0] ? HOLDER_DEAD : HOLDER_UNKNOWN;
	if (!r->pid || r->identity == SANDBOX_IDENTITY_CONNECTION)
		return HOLDER_UNKNOWN;
	e = fd_pidfd(who.pid, &fd);
	if (e == -ESRCH)
		return HOLDER_DEAD;
	if (e < 0)
		return HOLDER_UNKNOWN;
	if (process_has_ended(fd))
		return HOLDER_DEAD;
	like.identity = (enum sandbox_identity)r->identity;
	like.value =
		like.identity == SANDBOX_IDENTITY_INODE ? process_inode(fd) : process_start_time(who.pid, fd);
	if (!like.value)
		return HOLDER_UNKNOWN;
	if (like.value != r->identity_value)
		return HOLDER_DEAD;
	who.pidfd = fd;
	return holder_of(core, &who, ret) < 0 ? HOLDER_UNKNOWN : HOLDER_PROVED;
}

void holder_connection_ended(struct sandbox_core *core, uid_t uid, uint64_t conn)
{
	struct holder *h = holder_find(core, &(struct holder){
		.identity = SANDBOX_IDENTITY_CONNECTION, .uid = uid, .conn = conn });

	if (h)
		died(h, "connection");
}
