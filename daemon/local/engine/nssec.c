/* SPDX-License-Identifier: MIT */
/*
 * What confines a sandbox beyond its namespaces: resource limits, a small set of capabilities (in its
 * own user namespace only), no_new_privs, and a seccomp filter against the parts of the kernel that
 * programs of agents do not need and that have been ways out of containers.
 */
#include "daemon/local/engine/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/must.h"

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "nssec.c: which AUDIT_ARCH_ is this?"
#endif

#define X32_BIT	       0x40000000u
#define FILTER_MAX     512u
#define NAMESPACES     0x7e020080u /* every CLONE_NEW* bit */
#define OPEN_FILES_SOFT 1024u
#define TTY_PUSH       0x5412u	/* TIOCSTI: types into the terminal of others */
#define TTY_LINUX      0x541cu	/* TIOCLINUX: so does its paste */

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif

/* --- seccomp --- */

struct filter {
	struct sock_filter op[FILTER_MAX];
	size_t n;
};

static void emit(struct filter *f, struct sock_filter op)
{
	must(f->n < FILTER_MAX);
	f->op[f->n++] = op;
}

static void load(struct filter *f, size_t offset)
{
	emit(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void nssec_answer(struct filter *f, uint32_t what)
{
	emit(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* If the loaded word is `k`, the next `skip` instructions are skipped. */
static void unless_eq(struct filter *f, uint32_t k, uint8_t skip)
{
	emit(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, 0, skip));
}

#define ERRNO(e) (SECCOMP_RET_ERRNO | (e))
#define ARG(n)	 (offsetof(struct seccomp_data, args) + 8u * (n)) /* low half, little endian */

static void begin(struct filter *f)
{
	load(f, offsetof(struct seccomp_data, arch));
	/* Another architecture's calls (32-bit programs) have other numbers: they are not there. */
	emit(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0));
	nssec_answer(f, ERRNO(ENOSYS));
	load(f, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
	emit(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
	nssec_answer(f, ERRNO(ENOSYS));
#endif
}

static void deny(struct filter *f, long nr, int err)
{
	unless_eq(f, (uint32_t)nr, 1);
	nssec_answer(f, ERRNO((uint32_t)err));
}

/* Call `nr` fails if its argument has one of the bits. */
static void deny_bits(struct filter *f, long nr, unsigned arg, uint32_t bits)
{
	unless_eq(f, (uint32_t)nr, 4);
	load(f, ARG(arg));
	emit(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
	nssec_answer(f, ERRNO(EPERM));
	nssec_answer(f, SECCOMP_RET_ALLOW);
}

/* Call `nr` fails if its argument is that number. */
static void deny_value(struct filter *f, long nr, unsigned arg, uint32_t value)
{
	unless_eq(f, (uint32_t)nr, 4);
	load(f, ARG(arg));
	unless_eq(f, value, 1);
	nssec_answer(f, ERRNO(EPERM));
	nssec_answer(f, SECCOMP_RET_ALLOW);
}

static void deny_ioctls(struct filter *f)
{
	unless_eq(f, SYS_ioctl, 5);
	load(f, ARG(1));
	emit(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TTY_PUSH, 1, 0));
	emit(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TTY_LINUX, 0, 1));
	nssec_answer(f, ERRNO(EPERM));
	nssec_answer(f, SECCOMP_RET_ALLOW);
}

/* Only families that a network namespace keeps in (AF_VSOCK, say, reaches the host). */
static void allow_families(struct filter *f)
{
	static const uint32_t ok[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };
	static const long calls[] = { SYS_socket, SYS_socketpair };

	for (size_t c = 0; c < ARRAY_SIZE(calls); c++) {
		unless_eq(f, (uint32_t)calls[c], (uint8_t)(ARRAY_SIZE(ok) + 3));
		load(f, ARG(0));
		for (size_t i = 0; i < ARRAY_SIZE(ok); i++)
			emit(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ok[i],
							     (uint8_t)(ARRAY_SIZE(ok) - i), 0));
		nssec_answer(f, ERRNO(EAFNOSUPPORT));
		nssec_answer(f, SECCOMP_RET_ALLOW);
	}
}

static int install(const struct filter *f)
{
	struct sock_fprog prog = { .len = (unsigned short)f->n, .filter = (void *)f->op };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0 ? -errno : 0;
}

static int install_main(uint32_t namespaces)
{
	static const long refused[] = {
		SYS_mount, SYS_umount2, SYS_pivot_root, SYS_move_mount, SYS_open_tree, SYS_fsopen,
		SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_swapon, SYS_swapoff,
		SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module,
		SYS_delete_module, SYS_reboot, SYS_acct, SYS_quotactl, SYS_quotactl_fd, SYS_settimeofday,
		SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_bpf, SYS_perf_event_open,
		SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_open_by_handle_at,
		SYS_setns, SYS_fanotify_init, SYS_syslog, SYS_vhangup, SYS_lookup_dcookie, SYS_nfsservctl,
#if defined(__x86_64__)
		SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_uselib, SYS_sysfs,
#endif
	};
	/* Programs fall back to older calls when these are "not there"; clone3 hides its flags. */
	static const long absent[] = {
		SYS_clone3, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
	};
	struct filter f = { .n = 0 };

	begin(&f);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		deny(&f, refused[i], EPERM);
	for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
		deny(&f, absent[i], ENOSYS);
	deny_bits(&f, SYS_unshare, 0, namespaces);
	deny_bits(&f, SYS_clone, 0, namespaces);
	/* A hard limit of the init's is every later command's, and nobody could raise it again. */
	deny_value(&f, SYS_prlimit64, 0, 1);
	deny_ioctls(&f);
	allow_families(&f);
	nssec_answer(&f, SECCOMP_RET_ALLOW);
	return install(&f);
}

static int install_no_userns(void)
{
	struct filter f = { .n = 0 };

	begin(&f);
	deny_bits(&f, SYS_unshare, 0, CLONE_NEWUSER);
	deny_bits(&f, SYS_clone, 0, CLONE_NEWUSER);
	nssec_answer(&f, SECCOMP_RET_ALLOW);
	return install(&f);
}

/* --- capabilities --- */

static const uint64_t kept_caps = 1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER |
				  1ull << CAP_FSETID | 1ull << CAP_KILL | 1ull << CAP_SETGID |
				  1ull << CAP_SETUID | 1ull << CAP_SETPCAP |
				  1ull << CAP_NET_BIND_SERVICE | 1ull << CAP_NET_RAW |
				  1ull << CAP_SYS_CHROOT | 1ull << CAP_AUDIT_WRITE |
				  1ull << CAP_SETFCAP | 1ull << CAP_SYS_PTRACE | 1ull << CAP_SYS_NICE;

static int set_caps(uint64_t set)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	for (unsigned i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = (uint32_t)(set >> (32 * i));
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

static int drop_caps(uint64_t keep)
{
	for (unsigned c = 0; c < 64; c++) {
		if (keep & (1ull << c))
			continue;
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno != EINVAL)
			return -errno;
	}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -errno;
	return set_caps(keep);
}

/* --- the whole --- */

/* Counted per user namespace (kernel 5.14): the net below the pids group, or instead of it. */
static void set_limits(const struct ns_plan *p)
{
	struct rlimit procs = { p->max_pids, p->max_pids }, core = { 0, 0 }, files;

	(void)setrlimit(RLIMIT_NPROC, &procs);
	(void)setrlimit(RLIMIT_CORE, &core);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = MIN(files.rlim_max, OPEN_FILES_SOFT);
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

int nssec_confine(const struct ns_plan *p)
{
	int r;

	set_limits(p);
	r = drop_caps(kept_caps);
	if (r < 0)
		return r;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	/* As an ordinary user the init itself makes user namespaces, for users other than root. */
	r = install_main(p->as_user ? NAMESPACES & ~(uint32_t)CLONE_NEWUSER : NAMESPACES);
	if (r < 0)
		return r;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	return 0;
}

static int nssec_put(const char *path, const char *text)
{
	scoped(fd_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int nssec_become(uint32_t uid, uint32_t gid)
{
	char text[32];
	int r;

	if (uid != 0 || gid != 0) {
		if (unshare(CLONE_NEWUSER) < 0)
			return -errno;
		if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
			return -errno;
		r = nssec_put("/proc/self/setgroups", "deny");
		if (r < 0 && r != -EPERM && r != -EACCES)
			return r;
		snprintf(text, sizeof(text), "%u 0 1\n", uid);
		r = nssec_put("/proc/self/uid_map", text);
		if (r < 0)
			return r;
		snprintf(text, sizeof(text), "%u 0 1\n", gid);
		r = nssec_put("/proc/self/gid_map", text);
		if (r < 0)
			return r;
		r = drop_caps(0);
		if (r < 0)
			return r;
	}
	return install_no_userns();
}
