/* SPDX-License-Identifier: MIT */
/* Chance, and the kernel's answers about processes: --wrap of the few calls that ask for them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

void __wrap_rng_system(void *p, size_t n);
void __wrap_rng_id(char *ret, size_t n);
int __wrap_fd_pidfd(pid_t pid, int *ret);
int __wrap_fd_read_file(int dir_fd, const char *path, size_t max, char **ret, size_t *ret_len);

void __wrap_rng_system(void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)(W ? rng_u64(&W->sys_rng) : i);
}

void __wrap_rng_id(char *ret, size_t n)
{
	static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";

	for (size_t i = 0; i < n; i++)
		ret[i] = set[rng_below(&W->sys_rng, 36)];
	ret[n] = 0;
}

static struct sim_proc *proc_of(pid_t pid)
{
	for (unsigned i = 0; i < SIM_PROCS; i++)
		if (W->procs[i].pid == pid && W->procs[i].alive)
			return &W->procs[i];
	return NULL;
}

int __wrap_fd_pidfd(pid_t pid, int *ret)
{
	struct sim_proc *p = proc_of(pid);

	if (pid == getpid())
		*ret = eventfd(0, EFD_CLOEXEC);
	else if (p)
		*ret = fcntl(p->fd, F_DUPFD_CLOEXEC, 3);
	else
		return -ESRCH;
	return *ret < 0 ? -errno : 0;
}

int __wrap_fd_read_file(int dir_fd, const char *path, size_t max, char **ret, size_t *ret_len)
{
	struct sim_proc *p;
	int pid = 0;

	if (str_eq(path, "/proc/sys/kernel/random/boot_id")) {
		*ret = str_printf("%s\n", W->boot_id);
		return *ret ? 0 : -ENOMEM;
	}
	if (sscanf(path, "/proc/%d/stat", &pid) != 1)
		return -ENOENT;
	p = proc_of(pid);
	if (!p && pid != getpid())
		return -ENOENT;
	*ret = str_printf("%d (agent) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %llu 0 0", pid,
			  p ? (unsigned long long)p->start_time : 1ull);
	return *ret ? 0 : -ENOMEM;
}
