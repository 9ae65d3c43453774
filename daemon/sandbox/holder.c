/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/auth/principal.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/lease.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define PIDFS_MAGIC 0x50494446
#define STAT_MAX    4096u

/* --- identity --- */

uint64_t holder_start_time_of(const char *stat)
{
	const char *p = strrchr(stat, ')');	/* the name may hold anything, also this */
	uint64_t v = 0;
	size_t n;

	if (!p)
		return 0;
	p++;
	for (int field = 2; field < 21 && p; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return 0;
	}
	p++;
	n = strspn(p, "0123456789");
	return n && str_u64(p, n, INT64_MAX, &v) == 0 ? v : 0;
}

static uint64_t inode_of(int pidfd)
{
	struct statfs fs;
	struct stat st;

	if (pidfd < 0 || fstatfs(pidfd, &fs) < 0 || fs.f_type != PIDFS_MAGIC || fstat(pidfd, &st) < 0)
		return 0;
	return (uint64_t)st.st_ino;
}

static bool has_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Of a process whose pidfd is held: what was read is its own if it lives after the reading. */
static uint64_t start_time_of(pid_t pid, int pidfd)
{
	char path[48], *text;
	uint64_t v;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (pidfd < 0 || fd_read_file(AT_FDCWD, path, STAT_MAX, &text, NULL) < 0)
		return 0;
	v = holder_start_time_of(text);
	free(text);
	return has_ended(pidfd) ? 0 : v;
}

static void identify(const struct sandbox_core *core, struct holder *h)
{
	enum sandbox_identity best = core->identity;

	h->identity = SANDBOX_IDENTITY_CONNECTION;
	h->value = 0;
	if (best == SANDBOX_IDENTITY_INODE && (h->value = inode_of(h->pidfd)))
		h->identity = SANDBOX_IDENTITY_INODE;
	else if (best <= SANDBOX_IDENTITY_START_TIME && (h->value = start_time_of(h->pid, h->pidfd)))
		h->identity = SANDBOX_IDENTITY_START_TIME;
}

enum sandbox_identity holder_best_identity(void)
{
	scoped(fd_closep) int fd = -1;

	if (fd_pidfd(getpid(), &fd) < 0)
		return SANDBOX_IDENTITY_CONNECTION;
	if (inode_of(fd))
		return SANDBOX_IDENTITY_INODE;
	return start_time_of(getpid(), fd) ? SANDBOX_IDENTITY_START_TIME : SANDBOX_IDENTITY_CONNECTION;
}

const char *holder_boot_id(struct sandbox_core *core)
{
	char *text;

	if (core->boot_id[0] ||
	    fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &text, NULL) < 0)
		return core->boot_id;
	text[strcspn(text, "\n")] = 0;
	(void)str_copy(core->boot_id, sizeof(core->boot_id), text);
	free(text);
	return core->boot_id;
}

/* --- one of them --- */

static void holder_free(void *p)
{
	struct holder *h = p;

	must(h->magic == HOLDER_MAGIC);
	h->magic = 0;
	free(h);
}

/* Nothing comes from it any more; the memory stays until the last reference. */
static void close_holder(struct holder *h)
{
	watch_fini(&h->death);
	h->pidfd = fd_close(h->pidfd);
	list_del(&h->node);
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
	log_info("holder_died", "pid=%d uid=%u seen_by=%s", (int)h->pid, h->uid, how);
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

/* Takes the pidfd, also on failure; -1: by connection. */
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
	list_add_tail(&core->holders, &h->node);
	identify(core, h);
	if (pidfd >= 0) {
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

static struct holder *holder_find(struct sandbox_core *core, const struct principal *who,
				  const struct holder *like)
{
	list_for_each(n, &core->holders) {
		struct holder *h = list_entry(n, struct holder, node);

		if (h->dead || h->identity != like->identity || h->value != like->value ||
		    h->uid != who->uid)
			continue;
		if (h->identity == SANDBOX_IDENTITY_CONNECTION ? h->conn == who->conn
							       : h->pid == who->pid)
			return h;
	}
	return NULL;
}

int holder_of(struct sandbox_core *core, const struct principal *who, struct holder **ret)
{
	struct holder like = { .pid = who->pid, .pidfd = who->pidfd }, *h;
	int fd = -1;

	if (who->pidfd >= 0 && has_ended(who->pidfd))
		return -ESRCH;
	identify(core, &like);
	h = holder_find(core, who, &like);
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
	if (has_ended(fd))
		return HOLDER_DEAD;
	like.identity = (enum sandbox_identity)r->identity;
	like.value =
		like.identity == SANDBOX_IDENTITY_INODE ? inode_of(fd) : start_time_of(who.pid, fd);
	if (!like.value)
		return HOLDER_UNKNOWN;
	if (like.value != r->identity_value)
		return HOLDER_DEAD;
	who.pidfd = fd;
	return holder_of(core, &who, ret) < 0 ? HOLDER_UNKNOWN : HOLDER_PROVED;
}

void holder_connection_ended(struct sandbox_core *core, uint64_t conn)
{
	list_for_each_safe(n, &core->holders) {
		struct holder *h = list_entry(n, struct holder, node);

		if (h->identity == SANDBOX_IDENTITY_CONNECTION && h->conn == conn)
			died(h, "connection");
	}
}
