/* SPDX-License-Identifier: MIT */
/*
 * Builds the skeleton of a sandbox's root. Only files that everybody may read are copied from /etc,
 * and only those programs need: nothing with teams, tokens or hosts of this machine.
 */
#include "daemon/local/engine/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/local/engine/passwd.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define COPY_DEPTH_MAX 12
#define COPY_FILE_MAX  (16u * 1024 * 1024) /* nothing in /etc that programs need is larger */

struct build {
	int root;	/* the folder being filled */
	bool as_user;
};

static const struct {
	const char *path;
	mode_t mode;
	uint32_t id;
} dirs[] = {
	{ "etc", 0755, 0 },	   { "home", 0755, 0 },	     { "home/user", 0755, CONTAINER_USER_ID },
	{ "root", 0700, 0 },	   { "tmp", 01777, 0 },	     { "var", 0755, 0 },
	{ "var/tmp", 01777, 0 },   { "var/log", 0755, 0 },   { "var/cache", 0755, 0 },
	{ "var/lib", 0755, 0 },	   { "var/spool", 0755, 0 }, { "var/mail", 0755, 0 },
	{ "var/opt", 0755, 0 },	   { "run", 0755, 0 },	     { "run/lock", 01777, 0 },
	{ "srv", 0755, 0 },	   { "mnt", 0755, 0 },	     { "media", 0755, 0 },
	{ "opt", 0755, 0 },	   { "proc", 0555, 0 },	     { "sys", 0555, 0 },
	{ "dev", 0755, 0 },	   { "usr", 0755, 0 },	     { "etc/pam.d", 0755, 0 },
	{ "run/e2b", 0755, 0 },
};

/* Of /etc, by pattern. Folders are copied with what is in them. */
static const char *const etc_allowed[] = {
	"alternatives", "bash.bashrc", "bash_completion*", "ca-certificates*", "debian_version",
	"default", "fonts", "gai.conf", "gdb", "gprofng.rc", "groff", "host.conf", "inputrc", "issue",
	"java*", "ld.so.cache", "ld.so.conf*", "locale.alias", "locale.conf", "localtime",
	"login.defs", "magic*", "manpath.config", "maven", "mime.types", "netconfig", "networks",
	"os-release", "perl", "profile", "profile.d", "protocols", "python*", "rpc", "services",
	"shells", "skel", "ssl", "terminfo", "timezone", "vim", "vimrc", "wgetrc", "xattr.conf",
	"xml", "sgml", "emacs", "ImageMagick*", "openal", "vulkan", "glvnd", "OpenCL", "R", "lynx",
};

/* The one that answers inside (nsnet.h). */
static const char name_server[] = "nameserver 8.8.8.8\n";

static const char local_hosts[] = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
				  "127.0.1.1\t" BASE_HOSTNAME "\n";

static const struct {
	const char *path, *text;
	mode_t mode;
} files[] = {
	{ "etc/passwd",
	  "root:x:0:0:root:/root:/bin/bash\n"
	  "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
	  "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
	  "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
	  "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
	  "user:x:1000:1000:user:/home/user:/bin/bash\n"
	  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", 0644 },
	{ "etc/group",
	  "root:x:0:\ndaemon:x:1:\nbin:x:2:\nadm:x:4:\ntty:x:5:\nmail:x:8:\nsudo:x:27:user\n"
	  "www-data:x:33:\nshadow:x:42:\nutmp:x:43:\nstaff:x:50:\nusers:x:100:\nuser:x:1000:\n"
	  "nogroup:x:65534:\n", 0644 },
	{ "etc/nsswitch.conf",
	  "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
	  "protocols: files\nservices: files\n", 0644 },
	{ "etc/hosts", local_hosts, 0644 },
	{ "etc/hostname", BASE_HOSTNAME "\n", 0644 },
	/* The root of this machine changes itself as it likes, and nobody else is there to be managed. */
	{ "etc/pip.conf", "[global]\nbreak-system-packages = true\n", 0644 },
	/* Services without a file of their own (su, chfn, passwd) use `other`. */
	{ "etc/pam.d/other",
	  "auth sufficient pam_rootok.so\nauth required pam_unix.so\naccount required pam_permit.so\n"
	  "password required pam_unix.so\nsession required pam_permit.so\n", 0644 },
	{ "etc/pam.d/common-auth", "auth sufficient pam_rootok.so\nauth required pam_unix.so\n", 0644 },
	{ "etc/pam.d/common-account", "account required pam_permit.so\n", 0644 },
	{ "etc/pam.d/common-password", "password required pam_unix.so\n", 0644 },
	{ "etc/pam.d/common-session", "session required pam_permit.so\n", 0644 },
	{ "etc/pam.d/common-session-noninteractive", "session required pam_permit.so\n", 0644 },
	{ "run/e2b/.E2B_SANDBOX", "true\n", 0644 },
	{ "etc/resolv.conf", name_server, 0644 },
	{ "etc/fstab", "", 0644 },
	{ "etc/environment", "", 0644 },
};

/* --- pieces --- */

static int mark_owner(const struct build *b, int fd, uint32_t uid, uint32_t gid)
{
	char text[32];

	if (!b->as_user)
		return fchown(fd, uid, gid) < 0 ? -errno : 0;
	snprintf(text, sizeof(text), "%u:%u", uid, gid);
	if (fsetxattr(fd, CONTAINER_OWNER_XATTR, text, strlen(text), 0) < 0 && errno != EOPNOTSUPP)
		return -errno;
	return 0;
}

static int make_dir(const struct build *b, const char *path, mode_t mode, uint32_t id)
{
	scoped(fd_closep) int fd = -1;
	int r;

	if (mkdirat(b->root, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(b->root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = mark_owner(b, fd, id, id);
	if (r < 0)
		return r;
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

static int make_file(const struct build *b, const char *path, const char *text, size_t n, mode_t mode,
		     uint32_t id)
{
	scoped(fd_closep) int fd = -1;
	int r;

	fd = openat(b->root, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, text, n);
	if (r < 0)
		return r;
	r = mark_owner(b, fd, id, id);
	if (r < 0)
		return r;
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

static int make_link(const struct build *b, const char *target, const char *path)
{
	return symlinkat(target, b->root, path) < 0 && errno != EEXIST ? -errno : 0;
}

/* --- copying --- */

static int copy_file(const struct build *b, int from_at, const char *from, int to_at, const char *to,
		     const struct stat *st)
{
	scoped(fd_closep) int in = -1;
	scoped(fd_closep) int out = -1;
	off_t left = st->st_size;
	int r;

	in = openat(from_at, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (in < 0)
		return -errno;
	out = openat(to_at, to, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	while (left > 0) {
		ssize_t k = sendfile(out, in, NULL, (size_t)left);

		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		left -= k;
	}
	r = mark_owner(b, out, 0, 0);
	if (r < 0)
		return r;
	return fchmod(out, st->st_mode & 0777) < 0 ? -errno : 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && str_eq(s + n - k, end);
}

/*
 * Most of /etc are links, and each costs an inode at every start: manual pages of alternatives are
 * left out, and certificates keep the name OpenSSL looks for (HASH.0), which then leads straight
 * into /usr.
 */
static int copy_link(int from_at, const char *from, int to_at, const char *to)
{
	char target[PATH_MAX], next[PATH_MAX];
	ssize_t n = readlinkat(from_at, from, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (ends_with(from, ".gz") || (ends_with(from, ".pem") && str_starts(target, "/usr/")))
		return 0;
	if (ends_with(target, ".pem") && !strchr(target, '/')) {
		n = readlinkat(from_at, target, next, sizeof(next) - 1);
		if (n > 0 && next[0] == '/') {
			next[n] = '\0';
			return symlinkat(next, to_at, to) < 0 && errno != EEXIST ? -errno : 0;
		}
	}
	return symlinkat(target, to_at, to) < 0 && errno != EEXIST ? -errno : 0;
}

static int copy_any(const struct build *b, int from_at, const char *from, int to_at, const char *to,
		    int depth);

static int copy_dir(const struct build *b, int from_at, const char *from, int to_at, const char *to,
		    const struct stat *st, int depth)
{
	scoped(fd_closep) int out = -1;
	struct dirent *e;
	int in, r = 0;
	DIR *d;

	if (mkdirat(to_at, to, 0700) < 0 && errno != EEXIST)
		return -errno;
	out = openat(to_at, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (out < 0)
		return -errno;
	in = openat(from_at, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (in < 0)
		return -errno;
	d = fdopendir(in);
	if (!d) {
		fd_close(in);
		return -ENOMEM;
	}
	while (r == 0 && (e = readdir(d)))
		if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
			r = copy_any(b, in, e->d_name, out, e->d_name, depth + 1);
	closedir(d);
	if (r == 0)
		r = mark_owner(b, out, 0, 0);
	if (r < 0)
		return r;
	return fchmod(out, st->st_mode & 01777) < 0 ? -errno : 0;
}

/* Files, folders and links; others are left out. So is what vanished meanwhile. */
static int copy_any(const struct build *b, int from_at, const char *from, int to_at, const char *to,
		    int depth)
{
	struct stat st;

	if (depth > COPY_DEPTH_MAX)
		return 0;
	if (fstatat(from_at, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISLNK(st.st_mode))
		return copy_link(from_at, from, to_at, to);
	if (!(st.st_mode & S_IROTH))
		return 0;
	if (S_ISDIR(st.st_mode))
		return st.st_mode & S_IXOTH ? copy_dir(b, from_at, from, to_at, to, &st, depth) : 0;
	if (S_ISREG(st.st_mode) && st.st_size <= (off_t)COPY_FILE_MAX)
		return copy_file(b, from_at, from, to_at, to, &st);
	return 0;
}

/* --- the base --- */

static bool etc_is_allowed(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(etc_allowed); i++)
		if (fnmatch(etc_allowed[i], name, 0) == 0)
			return true;
	return false;
}

static int copy_etc(const struct build *b)
{
	scoped(fd_closep) int to = openat(b->root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *e;
	DIR *d;
	int r = 0;

	if (to < 0)
		return -errno;
	d = opendir("/etc");
	if (!d)
		return -errno;
	while (r == 0 && (e = readdir(d)))
		if (etc_is_allowed(e->d_name))
			r = copy_any(b, dirfd(d), e->d_name, to, e->d_name, 0);
	closedir(d);
	return r;
}

/* /bin, /lib and the like, as links into /usr: the only form we support. */
static int copy_root_links(const struct build *b)
{
	static const char *const names[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32" };
	char path[16], target[PATH_MAX];
	ssize_t n;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "/%s", names[i]);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0 && errno == ENOENT)
			continue;
		if (n < 0)
			return errno == EINVAL ? -ENOTSUP : -errno;
		target[n] = '\0';
		r = make_link(b, target, names[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int make_dirs(const struct build *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		int r = make_dir(b, dirs[i].path, dirs[i].mode, dirs[i].id);

		if (r < 0)
			return r;
	}
	return 0;
}

static int make_files(const struct build *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		int r = make_file(b, files[i].path, files[i].text, strlen(files[i].text),
				  files[i].mode, 0);

		if (r < 0)
			return r;
	}
	return 0;
}

/* The usual dot files, owned by `user`. */
static int fill_home(const struct build *b)
{
	static const char *const names[] = { ".bashrc", ".profile", ".bash_logout" };
	char from[64], to[64], *text;
	size_t n;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(from, sizeof(from), "/etc/skel/%s", names[i]);
		snprintf(to, sizeof(to), "home/user/%s", names[i]);
		if (fd_read_file(AT_FDCWD, from, 64 * 1024, &text, &n) < 0)
			continue;
		r = make_file(b, to, text, n, 0644, CONTAINER_USER_ID);
		free(text);
		if (r < 0)
			return r;
	}
	return 0;
}

/* `folders` are made where they are missing; the last is where it is. */
static int put_sudo(const struct build *b, const char *sudo, const char *const folders[], size_t n)
{
	char path[64];
	struct stat st;
	int r = 0;

	if (!sudo || stat(sudo, &st) < 0)
		return 0;
	for (size_t i = 0; i < n && r == 0; i++)
		r = make_dir(b, folders[i], 0755, 0);
	snprintf(path, sizeof(path), "%s/sudo", folders[n - 1]);
	return r < 0 ? r : copy_file(b, AT_FDCWD, sudo, b->root, path, &st);
}

int base_build(const char *dir, bool as_user, const char *sudo)
{
	static const char *const sudo_dirs[] = { "opt/agentbox", BASE_SUDO_DIR };
	scoped(fd_closep) int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct build b = { .root = root, .as_user = as_user };
	int r;

	if (root < 0)
		return -errno;
	if (fchmod(root, 0755) < 0)
		return -errno;
	r = make_dirs(&b);
	if (r == 0)
		r = copy_root_links(&b);
	if (r == 0)
		r = copy_etc(&b);
	if (r == 0)
		r = make_files(&b);
	if (r == 0)
		r = put_sudo(&b, sudo, sudo_dirs, ARRAY_SIZE(sudo_dirs));
	if (r == 0)
		r = make_link(&b, "../proc/self/mounts", "etc/mtab");
	if (r == 0)
		r = make_link(&b, "/run", "var/run");
	if (r == 0)
		r = make_link(&b, "/run/lock", "var/lock");
	return r < 0 ? r : fill_home(&b);
}

/* --- templates --- */

/* Appends `line` to the template's own file unless it has an entry `name:`. A template is somebody's:
 * its links lead nowhere but into itself. */
static int patch_list(const struct build *b, int template_fd, const char *path, const char *name,
		      const char *line)
{
	char *text = NULL, *whole;
	size_t n, len = strlen(name);
	int r;

	/* What an earlier call put into the patch stands above the template's file. */
	r = passwd_read(b->root, path, &text);
	if (r == -ENOENT)
		r = passwd_read(template_fd, path, &text);
	if (r < 0 && r != -ENOENT)
		return r;
	n = text ? strlen(text) : 0;
	for (const char *s = text; s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
		if (!strncmp(s, name, len) && s[len] == ':') {
			free(text);
			return 0;
		}
	whole = str_printf("%s%s%s", text ? text : "", n && text[n - 1] != '\n' ? "\n" : "", line);
	free(text);
	if (!whole)
		return -ENOMEM;
	r = make_file(b, path, whole, strlen(whole), 0644, 0);
	free(whole);
	return r;
}

/* A folder of the patch lies over the template's own, which is not one everywhere. */
static bool has_usr_local_bin(int template_fd)
{
	static const char *const at[] = { "usr", "usr/local", "usr/local/bin" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		if (fstatat(template_fd, at[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
			return false;
	return true;
}

int base_build_patch(const char *dir, const char *root, bool as_user, const char *sudo)
{
	static const char *const sudo_dirs[] = { "usr", "usr/local", "usr/local/bin" };
	static const char *const need[] = { "proc", "sys", "dev", "tmp", "run", "root", "home", "etc" };
	scoped(fd_closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scoped(fd_closep) int template_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct build b = { .root = fd, .as_user = as_user };
	struct stat st;
	int r = 0;

	if (fd < 0 || template_fd < 0)
		return -errno;
	if (fchmod(fd, 0755) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(dirs) && r == 0; i++)
		for (size_t k = 0; k < ARRAY_SIZE(need) && r == 0; k++)
			if (str_eq(dirs[i].path, need[k]))
				r = make_dir(&b, dirs[i].path, dirs[i].mode, dirs[i].id);
	if (r == 0)
		r = patch_list(&b, template_fd, "etc/passwd", "root", "root:x:0:0:root:/root:/bin/sh\n");
	if (r == 0)
		r = patch_list(&b, template_fd, "etc/passwd", "user",
			       "user:x:1000:1000:user:/home/user:/bin/sh\n");
	if (r == 0)
		r = patch_list(&b, template_fd, "etc/group", "user", "user:x:1000:\n");
	if (r == 0)
		r = make_file(&b, "etc/resolv.conf", name_server, strlen(name_server), 0644, 0);
	if (r == 0)
		r = make_file(&b, "etc/hosts", local_hosts, strlen(local_hosts), 0644, 0);
	if (r == 0)
		r = make_file(&b, "etc/hostname", BASE_HOSTNAME "\n", strlen(BASE_HOSTNAME "\n"), 0644, 0);
	if (r == 0 && fstatat(template_fd, "home/user", &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		r = make_dir(&b, "home/user", 0755, CONTAINER_USER_ID);
	if (r == 0 && has_usr_local_bin(template_fd))
		r = put_sudo(&b, sudo, sudo_dirs, ARRAY_SIZE(sudo_dirs));
	return r;
}

bool base_contains(const char *dir, const char *path)
{
	size_t n = strlen(dir);

	if (n == 1 && dir[0] == '/')
		return true;
	return !strncmp(dir, path, n) && (path[n] == '\0' || path[n] == '/');
}
