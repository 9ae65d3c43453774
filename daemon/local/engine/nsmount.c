/* SPDX-License-Identifier: MIT */
/*
 * The mounts of a sandbox. Scratch layout (a tmpfs on CONTAINER/mnt, our working directory):
 *   l0 l1 …  lower layers, read-only     usr    the machine's /usr, read-only
 *   lay      the writable layer          usrpub what everybody may read of it (extra: see make_extra())
 *   root     where the sandbox's root is put together
 */
#include "daemon/local/engine/nsmount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/ns.h"
#include "daemon/local/engine/shown.h"
#include "proto/base/fd.h"

#define DEV_SIZE "size=64k"
#define SHM_SIZE "size=256m"
#define CPUINFO_MAX (2u * 1024 * 1024)
#define NOBODY	 65534	/* owns no file of an id-mapped layer: their ids begin at plan.first_id */

int nsmount_private(void)
{
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0;
}

int nsmount_new_proc(int *ret_fd)
{
	scoped(fd_closep) int fs = fsopen("proc", FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0)
		return -errno;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int nsmount_scratch(const struct ns_plan *p)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/mnt", p->container_dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m") < 0 ||
	    chdir(path) < 0)
		return -errno;
	return 0;
}

/* Binds `from` on the new folder `to`. */
static int bind(const char *from, const char *to, uint64_t attrs, unsigned recursive, int userns_fd)
{
	struct mount_attr a = { .attr_set = attrs | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	scoped(fd_closep) int fd = -1;

	if (mkdir(to, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | recursive);
	if (fd < 0)
		return -errno;
	if (userns_fd >= 0) {
		a.attr_set |= MOUNT_ATTR_IDMAP;
		a.userns_fd = (uint64_t)userns_fd;
	}
	if (mount_setattr(fd, "", AT_EMPTY_PATH | recursive, &a, sizeof(a)) < 0)
		return -errno;
	return move_mount(fd, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int nsmount_layers(const struct ns_plan *p, int userns_fd)
{
	char path[4096], name[24];
	int r;

	for (size_t i = 0; i < p->n_lowers; i++) {
		snprintf(name, sizeof(name), "l%zu", i);
		r = bind(p->lowers[i], name, MOUNT_ATTR_RDONLY, 0, userns_fd);
		if (r < 0)
			return r;
	}
	if (p->has_usr && p->usr_writable) {
		r = bind("/usr", "usr", MOUNT_ATTR_RDONLY, 0, userns_fd);
		if (r < 0)
			return r;
	}
	if (snprintf(path, sizeof(path), "%s/lay", p->container_dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return bind(path, "lay", 0, 0, userns_fd);
}

/*
 * An overlay does its own work (work folders, whiteouts) with the ids of whoever mounted it, and ours
 * do not exist in an id-mapped layer: mount as the sandbox's root, without losing capabilities.
 */
static int mount_as(uint32_t id, const char *to, const char *opts)
{
	int r = 0;

	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return -errno;
	(void)setfsgid(id);
	(void)setfsuid(id);
	if (mount("overlay", to, "overlay", MS_NOSUID | MS_NODEV, opts) < 0)
		r = -errno;
	(void)setfsuid(0);
	(void)setfsgid(0);
	if (prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) < 0)
		return -errno;
	return r;
}

/*
 * "volatile" spares the sync of the whole disk when a sandbox is removed: its layer is never used
 * again after a crash. "redirect_dir" lets folders of the lower layers be renamed. `more` is empty or
 * begins with a comma ("xino=on": one device number for all of it, though a lower layer is an overlay).
 */
static int overlay(const struct ns_plan *p, const char *lowers, const char *up, const char *work,
		   const char *to, const char *more)
{
	struct statvfs fs;
	char opts[512];
	int r;

	snprintf(opts, sizeof(opts), "lowerdir=%s,upperdir=lay/%s,workdir=lay/%s,volatile,%s%s", lowers, up,
		 work, p->as_user ? "userxattr" : "redirect_dir=on", more);
	r = mount_as(p->idmap ? p->first_id : 0, to, opts);
	if (r < 0)
		return r;
	/* A layer it cannot write to makes an overlay read-only instead of failing. */
	if (statvfs(to, &fs) < 0)
		return -errno;
	return fs.f_flag & ST_RDONLY ? -EROFS : 0;
}

int nsmount_root(const struct ns_plan *p)
{
	char lowers[8 * NS_LOWERS_MAX] = "";
	size_t n = 0;

	for (size_t i = 0; i < p->n_lowers; i++)
		n += (size_t)snprintf(lowers + n, sizeof(lowers) - n, "%sl%zu", i ? ":" : "", i);
	if (mkdir("root", 0755) < 0)
		return -errno;
	return overlay(p, lowers, "up", "wk", "root", "");
}

/* The folder `extra`, which lies below /usr: `python`, where there is only python3. */
static int make_extra(const struct ns_plan *p)
{
	static const char *const made[] = { "extra", "extra/local", "extra/local/bin" };
	static const char python[] = "extra/local/bin/python";
	bool wanted = access("usr/bin/python3", X_OK) == 0 && access("usr/bin/python", F_OK) < 0;

	for (size_t i = 0; i < ARRAY_SIZE(made); i++)
		if (mkdir(made[i], 0755) < 0 || chown(made[i], p->first_id, p->first_id) < 0)
			return -errno;
	if (access("root/" BASE_SUDO_DIR "/sudo", X_OK) == 0 &&
	    (symlink("/" BASE_SUDO_DIR "/sudo", "extra/local/bin/sudo") < 0 || lchown("extra/local/bin/sudo", p->first_id, p->first_id) < 0))
		return -errno;
	if (wanted && (symlink("/usr/bin/python3", python) < 0 || lchown(python, p->first_id, p->first_id) < 0))
		return -errno;
	return 0;
}

/*
 * The machine's /usr as everybody sees it. Its files belong to root inside, who could read them all;
 * but an overlay asks the layers below it with the rights of whoever mounted it, and this one is
 * mounted by nobody: the kernel takes the capabilities over files away with a file-system id that is
 * not 0, and gives them back with 0. An overlay without an upper layer wants two lower ones: the other
 * has what a machine may lack.
 */
static int mount_public_usr(const struct ns_plan *p)
{
	int r = make_extra(p);

	if (r < 0)
		return r;
	if (mkdir("usrpub", 0755) < 0)
		return -errno;
	(void)setfsgid(NOBODY);
	(void)setfsuid(NOBODY);
	if (mount("overlay", "usrpub", "overlay", MS_NOSUID | MS_NODEV | MS_RDONLY,
		  "lowerdir=usr:extra") < 0)
		r = -errno;
	(void)setfsuid(0);
	(void)setfsgid(0);
	return r;
}

static bool is_empty(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e = NULL;
	bool empty = d != NULL;

	while (empty && (e = readdir(d)))
		empty = e->d_name[0] == '.' && (!e->d_name[1] || (e->d_name[1] == '.' && !e->d_name[2]));
	if (d)
		closedir(d);
	return empty;
}

/* Where nothing can be put into /usr: over the folders that programs are looked for in and that are empty on this machine. */
static int show_sudo(void)
{
	static const char *const at[] = { "root/usr/local/bin", "root/usr/local/games", "root/usr/local/sbin" };
	static const char from[] = "root/" BASE_SUDO_DIR;

	for (size_t i = 0; access(from, F_OK) == 0 && i < ARRAY_SIZE(at); i++)
		if (is_empty(at[i]) && mount(from, at[i], NULL, MS_BIND, NULL) < 0)
			return -errno;
	return 0;
}

/* Without the overlays the ids of /usr are not mapped, and root inside is one of everybody to it. */
int nsmount_usr(const struct ns_plan *p)
{
	int r;

	if (p->usr_writable) {
		r = mount_public_usr(p);
		return r < 0 ? r : overlay(p, "usrpub", "usrup", "usrwk", "root/usr", ",xino=on");
	}
	r = bind("/usr", "root/usr", MOUNT_ATTR_RDONLY, AT_RECURSIVE, -1);
	return r < 0 ? r : show_sudo();
}

int nsmount_proc(int proc_fd)
{
	return move_mount(proc_fd, "", AT_FDCWD, "root/proc", MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* --- /dev --- */

static const struct {
	const char *name;
	unsigned major, minor;
} nodes[] = {
	{ "null", 1, 3 },    { "zero", 1, 5 },	  { "full", 1, 7 },
	{ "random", 1, 8 },  { "urandom", 1, 9 }, { "tty", 5, 0 },
};

static int make_node(const struct ns_plan *p, const char *name, dev_t dev)
{
	char path[64], from[64];
	int fd;

	snprintf(path, sizeof(path), "root/dev/%s", name);
	snprintf(from, sizeof(from), "/dev/%s", name);
	if (!p->as_user && mknod(path, S_IFCHR | 0666, dev) == 0) {
		if (chmod(path, 0666) < 0 || chown(path, p->first_id, p->first_id) < 0)
			return -errno;
		return 0;
	}
	/* A user cannot make one, nor can root where the devices group forbids it. */
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	fd_close(fd);
	return mount(from, path, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

static int make_dev_links(void)
{
	static const char *const links[][2] = {
		{ "/proc/self/fd", "root/dev/fd" },	     { "/proc/self/fd/0", "root/dev/stdin" },
		{ "/proc/self/fd/1", "root/dev/stdout" }, { "/proc/self/fd/2", "root/dev/stderr" },
		{ "pts/ptmx", "root/dev/ptmx" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (symlink(links[i][0], links[i][1]) < 0)
			return -errno;
	return 0;
}

int nsmount_dev(const struct ns_plan *p)
{
	char own[64] = "", opts[160], tty[32] = "";
	int r;

	if (!p->as_user) {
		snprintf(own, sizeof(own), ",uid=%u,gid=%u", p->first_id, p->first_id);
		snprintf(tty, sizeof(tty), ",gid=%u", p->first_id + CONTAINER_TTY_GID);
	}
	snprintf(opts, sizeof(opts), "mode=755," DEV_SIZE "%s", own);
	if (mount("tmpfs", "root/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, opts) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		r = make_node(p, nodes[i].name, makedev(nodes[i].major, nodes[i].minor));
		if (r < 0)
			return r;
	}
	if (mkdir("root/dev/pts", 0755) < 0 || mkdir("root/dev/shm", 0755) < 0)
		return -errno;
	snprintf(opts, sizeof(opts), "newinstance,ptmxmode=0666,mode=0620%s", tty);
	if (mount("devpts", "root/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, opts) < 0)
		return -errno;
	snprintf(opts, sizeof(opts), "mode=1777," SHM_SIZE "%s", own);
	if (mount("tmpfs", "root/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, opts) < 0)
		return -errno;
	return make_dev_links();
}

/* --- masks --- */

int nsmount_masks(void)
{
	static const char *const hidden[] = {
		"root/proc/kcore",	 "root/proc/keys",	   "root/proc/timer_list",
		"root/proc/sched_debug", "root/proc/latency_stats", "root/proc/sysrq-trigger",
		"root/proc/kmsg",	 "root/proc/kpageflags",   "root/proc/kpagecount",
		"root/proc/kpagecgroup", "root/proc/interrupts",
	};
	static const char *const fixed[] = {
		"root/proc/sys", "root/proc/bus", "root/proc/fs", "root/proc/irq",
	};
	static const char *const empty[] = { "root/proc/acpi", "root/proc/scsi" };
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		if (mount("root/dev/null", hidden[i], NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
			return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(empty); i++)
		if (mount("tmpfs", empty[i], "tmpfs", flags | MS_RDONLY, "size=0k,nr_inodes=2") < 0 &&
		    errno != ENOENT)
			return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++) {
		if (mount(fixed[i], fixed[i], NULL, MS_BIND, NULL) < 0) {
			if (errno == ENOENT)
				continue;
			return -errno;
		}
		if (mount(NULL, fixed[i], NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | flags, NULL) < 0)
			return -errno;
	}
	return 0;
}

/* A file of ours, read-only, in place of the kernel's; where that has none, nothing. */
static int show(const char *from, const char *to, const char *text, size_t n, mode_t mode)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY;
	int r = fd_write_file(AT_FDCWD, from, text, n, mode);

	if (r < 0)
		return r;
	if (mount(from, to, NULL, MS_BIND, NULL) < 0)
		return errno == ENOENT ? 0 : -errno;
	return mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | flags, NULL) < 0 ? -errno : 0;
}

int nsmount_boot_id(void)
{
	static const char to[] = "root/proc/sys/kernel/random/boot_id";
	uint8_t u[16];
	char text[40];

	if (getrandom(u, sizeof(u), 0) != (ssize_t)sizeof(u))
		return -EIO;
	u[6] = (uint8_t)((u[6] & 0x0f) | 0x40);		/* a random UUID, version 4 */
	u[8] = (uint8_t)((u[8] & 0x3f) | 0x80);
	snprintf(text, sizeof(text),
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", u[0], u[1],
		 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
	return show("boot_id", to, text, strlen(text), 0444);
}

/* --- memory and processors --- */

static int show_cpus(uint32_t n)
{
	char *text;
	size_t len;
	int r = fd_read_file(AT_FDCWD, "/proc/cpuinfo", CPUINFO_MAX, &text, &len);

	if (r < 0)
		return r;
	r = show("shown/cpuinfo", "root/proc/cpuinfo", text, shown_cpuinfo(text, len, n), 0444);
	free(text);
	return r;
}

int nsmount_shown(const struct ns_plan *p, int *ret_dir)
{
	char text[SHOWN_MEMINFO_MAX];
	int r;

	if (mkdir("shown", 0700) < 0)
		return -errno;
	r = show("shown/" NSMOUNT_MEMINFO, "root/proc/meminfo", text, shown_meminfo(p->memory_bytes, 0, 0, text),
		 0644);	/* the engine writes it over */
	if (r == 0 && p->cpus < p->machine_cpus)
		r = show_cpus(p->cpus);
	if (r < 0)
		return r;
	*ret_dir = open("shown", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return *ret_dir < 0 ? -errno : 0;
}

int nsmount_pivot(void)
{
	if (chdir("root") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
	    chdir("/") < 0)
		return -errno;
	return 0;
}
