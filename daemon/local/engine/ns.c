/* SPDX-License-Identifier: MIT */
/* The sandbox's namespaces and ids; the mounts are in nsmount.c, the confinement in nssec.c. */
#include "daemon/local/engine/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/cg.h"
#include "daemon/local/engine/nsmount.h"
#include "daemon/local/engine/nsnet.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define LATE_NAMESPACES (CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET)

static int ns_fail(struct ns_error *e, enum ns_stage stage, int r)
{
	e->stage = stage;
	e->err = -r;
	return -1;
}

bool ns_is_root(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	char map[128] = "";
	scoped(fd_closep) int fd = -1;
	unsigned inside, outside, n;

	if (geteuid() != 0 || syscall(SYS_capget, &head, data) < 0 ||
	    !(data[0].effective & BIT(CAP_SYS_ADMIN)))
		return false;
	fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, map, sizeof(map) - 1) <= 0)
		return false;
	return sscanf(map, "%u %u %u", &inside, &outside, &n) == 3 && !inside && !outside &&
	       n == UINT32_MAX;
}

pid_t ns_clone(struct ns_plan *p, int *ret_pidfd)
{
	scoped(fd_closep) int group = p->cg_container ? cg_open_unified(p->cg, p->cg_container) : -1;
	int pidfd = -1;
	struct clone_args a = {
		.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_PIDFD |
			 (p->as_user ? CLONE_NEWUSER | LATE_NAMESPACES : 0),
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};
	long pid = -1;

	p->in_cgroup = group >= 0;
	if (p->in_cgroup) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)group;
		pid = syscall(SYS_clone3, &a, sizeof(a));
		a.flags &= ~(uint64_t)CLONE_INTO_CGROUP;
	}
	if (pid < 0) {
		p->in_cgroup = false;
		pid = syscall(SYS_clone3, &a, sizeof(a));
	}
	if (pid < 0)
		return -errno;
	if (pid > 0)
		*ret_pidfd = pidfd;
	return (pid_t)pid;
}

static int write_at(int dir, const char *path, const char *text)
{
	scoped(fd_closep) int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* --- ids --- */

/* As an ordinary user: 0 inside is ourselves, nobody else exists. */
static int map_own_id(const struct ns_plan *p)
{
	char text[64];
	int r;

	/* These files belong to root while we cannot be dumped. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return -errno;
	r = write_at(AT_FDCWD, "/proc/self/setgroups", "deny");
	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "0 %u 1\n", p->first_id);
	r = write_at(AT_FDCWD, "/proc/self/uid_map", text);
	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "0 %u 1\n", p->first_gid);
	return write_at(AT_FDCWD, "/proc/self/gid_map", text);
}

/* As root: a user namespace with a range of its own, held by a descriptor, entered later. */
static int make_id_range(const struct ns_plan *p, int proc_fd, int *ret)
{
	char path[48], text[64];
	pid_t pid = (pid_t)syscall(SYS_clone, (unsigned long)(CLONE_NEWUSER | SIGCHLD), 0, 0, 0, 0);
	int r, fd = -1;

	if (pid < 0)
		return -errno;
	if (pid == 0)
		for (;;)
			pause();
	snprintf(text, sizeof(text), "0 %u %u\n", p->first_id, NS_IDS);
	snprintf(path, sizeof(path), "%d/uid_map", (int)pid);
	r = write_at(proc_fd, path, text);
	snprintf(path, sizeof(path), "%d/gid_map", (int)pid);
	if (r == 0)
		r = write_at(proc_fd, path, text);
	snprintf(path, sizeof(path), "%d/ns/user", (int)pid);
	if (r == 0) {
		fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
		r = fd < 0 ? -errno : 0;
	}
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (r == 0)
		*ret = fd;
	return r;
}

static int enter_ids(int userns_fd)
{
	if (setns(userns_fd, CLONE_NEWUSER) < 0 || setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 ||
	    setresuid(0, 0, 0) < 0 || unshare(LATE_NAMESPACES) < 0)
		return -errno;
	return 0;
}

/* --- the whole --- */

static int make_root(const struct ns_plan *p, int userns_fd, int proc_fd, int *ret_shown, struct ns_error *e)
{
	int r = nsmount_scratch(p);

	if (r < 0)
		return ns_fail(e, NS_SCRATCH, r);
	r = nsmount_layers(p, userns_fd);
	if (r < 0)
		return ns_fail(e, userns_fd >= 0 && r != -ENOENT ? NS_IDMAP : NS_LAYERS, r);
	r = nsmount_root(p);
	if (r < 0)
		return ns_fail(e, NS_ROOT, r);
	r = p->has_usr ? nsmount_usr(p) : 0;
	if (r < 0)
		return ns_fail(e, NS_USR, r);
	r = nsmount_proc(proc_fd);
	if (r < 0)
		return ns_fail(e, NS_PROC, r);
	r = nsmount_dev(p);
	if (r < 0)
		return ns_fail(e, NS_DEV, r);
	r = nsmount_masks();
	if (r == 0)
		r = nsmount_boot_id();
	if (r < 0)
		return ns_fail(e, NS_MASK, r);
	r = nsmount_shown(p, ret_shown);
	if (r < 0)
		return ns_fail(e, NS_SHOWN, r);
	r = nsmount_pivot();
	return r < 0 ? ns_fail(e, NS_PIVOT, r) : 0;
}

/*
 * Programs see a machine that was started when the sandbox was: a time namespace for the children of the init, whose
 * boot-time clock begins at 0. -errno: a kernel without them, where they see the machine's.
 */
static int begin_time(void)
{
	char text[64];

	/* The file belongs to this machine's root while we cannot be dumped; nssec_confine() forbids it for good. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || unshare(CLONE_NEWTIME) < 0)
		return -errno;
	snprintf(text, sizeof(text), "boottime -%" PRIu64 " 0", clock_boot_ms() / 1000);
	return write_at(AT_FDCWD, "/proc/self/timens_offsets", text);
}

/* As many processors as it may use at once, for programs that look at where they may run; not always the same ones. */
static void choose_cpus(const struct ns_plan *p)
{
	cpu_set_t all, some;
	unsigned skip = 0;

	if (!p->cpus || p->cpus >= p->machine_cpus || sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	(void)!getrandom(&skip, sizeof(skip), GRND_NONBLOCK);
	skip %= p->machine_cpus;
	CPU_ZERO(&some);
	for (unsigned i = 0; i < 2 * CPU_SETSIZE && (uint32_t)CPU_COUNT(&some) < p->cpus; i++)
		if (CPU_ISSET(i % CPU_SETSIZE, &all) && (i >= CPU_SETSIZE || skip-- == 0 || CPU_COUNT(&some))) {
			CPU_SET(i % CPU_SETSIZE, &some);
			skip = 0;
		}
	(void)!sched_setaffinity(0, sizeof(some), &some);
}

int ns_setup(const struct ns_plan *p, struct nsnet *net, int *ret_shown, struct ns_error *e)
{
	scoped(fd_closep) int proc_fd = -1;
	scoped(fd_closep) int userns_fd = -1;
	int r = p->cg_container ? cg_join(p->cg, p->cg_container, p->in_cgroup) : 0;

	if (r < 0)
		return ns_fail(e, NS_CGROUP, r);
	r = p->as_user ? map_own_id(p) : 0;
	if (r < 0)
		return ns_fail(e, NS_IDS_MAP, r);
	/* What runs inside is killed for lack of memory before this machine's own; -errno: no such kernel. */
	(void)!write_at(AT_FDCWD, "/proc/self/oom_score_adj", "100");
	r = nsmount_private();
	if (r < 0)
		return ns_fail(e, NS_PRIVATE, r);
	r = nsmount_new_proc(&proc_fd);
	if (r < 0)
		return ns_fail(e, NS_PROC, r);
	r = p->as_user ? 0 : make_id_range(p, proc_fd, &userns_fd);
	if (r < 0)
		return ns_fail(e, NS_IDS_MAP, r);
	if (make_root(p, p->idmap ? userns_fd : -1, proc_fd, ret_shown, e) < 0)
		return -1;
	r = p->as_user ? 0 : enter_ids(userns_fd);
	if (r < 0)
		return ns_fail(e, NS_ENTER, r);
	if (unshare(CLONE_NEWCGROUP) < 0 && errno != EINVAL)
		return ns_fail(e, NS_ENTER, -errno);
	(void)!begin_time();
	choose_cpus(p);
	r = nsnet_loopback();
	if (r < 0)
		return ns_fail(e, NS_NET, r);
	r = p->egress ? nsnet_open(p->probe, net) : 0;
	if (r < 0)
		return ns_fail(e, NS_EGRESS, r);
	if (sethostname(BASE_HOSTNAME, strlen(BASE_HOSTNAME)) < 0 || setsid() < 0)
		return ns_fail(e, NS_NET, -errno);
	r = nssec_confine(p);
	return r < 0 ? ns_fail(e, NS_CONFINE, r) : 0;
}

/* --- words --- */

static bool file_says(const char *path, const char *text)
{
	char buf[32] = "";
	scoped(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, buf, sizeof(buf) - 1) > 0 && str_starts(buf, text);
}

/* In a chroot process 1 has another root, or no mount has "/" as its mount point. */
static bool in_chroot(void)
{
	struct stat ours, first;
	char *text, line[32];
	size_t n;
	bool found = false;

	if (stat("/", &ours) == 0 && stat("/proc/1/root", &first) == 0 &&
	    (ours.st_dev != first.st_dev || ours.st_ino != first.st_ino))
		return true;
	if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", 4u << 20, &text, &n) < 0)
		return false;
	for (const char *s = text; !found && s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
		found = sscanf(s, "%*s %*s %*s %*s %31s", line) == 1 && str_eq(line, "/");
	free(text);
	return !found;
}

static const char *why_no_userns(int err)
{
	if (err == ENOSPC || file_says("/proc/sys/user/max_user_namespaces", "0\n"))
		return "the limit sysctl user.max_user_namespaces is reached or 0";
	if (err == EPERM && in_chroot())
		return "this process runs in a chroot, where the kernel refuses them: enter the root "
		       "by pivot_root (bwrap, systemd-nspawn, unshare) instead";
	if (file_says("/proc/sys/kernel/unprivileged_userns_clone", "0"))
		return "sysctl kernel.unprivileged_userns_clone is 0";
	if (file_says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"))
		return "sysctl kernel.apparmor_restrict_unprivileged_userns is 1";
	if (err == EINVAL)
		return "the kernel is built without CONFIG_USER_NS (or another namespace)";
	if (err == ENOSYS)
		return "clone3 is not there or hidden by a seccomp filter around this process";
	return "a chroot, or a security policy around this process (seccomp, LSM, container), forbids "
	       "them";
}

static const char *stage_text(enum ns_stage s)
{
	static const char *const texts[] = {
		[NS_CLONE] = "namespaces are refused",
		[NS_CGROUP] = "cannot enter its control group",
		[NS_PRIVATE] = "cannot make mounts private",
		[NS_PROC] = "cannot mount a fresh /proc",
		[NS_IDS_MAP] = "user namespaces are refused",
		[NS_SCRATCH] = "cannot mount a tmpfs in the state directory",
		[NS_LAYERS] = "cannot bind its layers",
		[NS_IDMAP] = "cannot map the ids of its layers",
		[NS_ROOT] = "cannot mount an overlay in the state directory",
		[NS_USR] = "cannot mount /usr",
		[NS_DEV] = "cannot make its /dev",
		[NS_MASK] = "cannot mask /proc",
		[NS_SHOWN] = "cannot put its own limits in place in /proc",
		[NS_PIVOT] = "cannot change to its root",
		[NS_ENTER] = "cannot enter its namespaces",
		[NS_NET] = "cannot set up its network and name",
		[NS_EGRESS] = "outgoing connections cannot be led through agentbox-local",
		[NS_CONFINE] = "cannot confine itself",
	};

	return texts[s];
}

void ns_explain(const struct ns_error *e, char *ret, size_t cap)
{
	const char *help = "";

	if (e->stage == NS_CLONE || e->stage == NS_IDS_MAP)
		help = why_no_userns(e->err);
	else if (e->stage == NS_PROC && e->err == EPERM)
		help = "the /proc of this machine or container is partly covered by other mounts, and "
		       "an ordinary user may then not mount one: run as root, or uncover it";
	else if (e->stage == NS_PRIVATE && e->err == EINVAL && in_chroot())
		help = why_no_userns(EPERM);
	else if (e->stage == NS_PRIVATE || e->stage == NS_SCRATCH)
		help = "mounting is forbidden here (no CAP_SYS_ADMIN, or a security policy)";
	else if (e->stage == NS_ROOT && e->err == EINVAL)
		help = "its file system cannot hold an overlay's upper layer (an overlay itself, NFS, "
		       "or no user xattrs): put --state-dir on ext4, xfs, btrfs or tmpfs";
	else if (e->stage == NS_ROOT && e->err == ENODEV)
		help = "the kernel has no overlayfs";
	else if (e->stage == NS_EGRESS)
		help = e->err == ENOTCONN ? "the kernel took the rules and does not follow them"
					  : "the kernel has no nf_tables with nat, redir and reject, or "
					    "may not load them";
	else if (e->stage == NS_PIVOT)
		help = "in a chroot the kernel refuses pivot_root";
	snprintf(ret, cap, "%s: %s%s%s", stage_text(e->stage), strerror(e->err), *help ? "; " : "", help);
}
