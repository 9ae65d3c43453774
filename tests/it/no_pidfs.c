/* SPDX-License-Identifier: MIT */
/* LD_PRELOAD: a kernel without pidfs (before 6.9), where each pidfd has the inode that all anonymous files share. */
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PIDFS_MAGIC 0x50494446

__attribute__((visibility("default"))) int fstatfs(int fd, struct statfs *fs)
{
	long r = syscall(SYS_fstatfs, fd, fs);

	if (!r && fs->f_type == PIDFS_MAGIC)
		fs->f_type = ANON_INODE_FS_MAGIC;
	return (int)r;
}

#if !defined(_FILE_OFFSET_BITS) || _FILE_OFFSET_BITS != 64
#error "fstatfs() would be another function than the daemon's"
#endif
