/* SPDX-License-Identifier: MIT */
#include "daemon/local/engine/unpack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/rmtree.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define PIECE	     (256u * 1024)
#define WHITEOUT     ".wh."
#define WHITEOUT_AUFS ".wh..wh."	/* notes of a file system that nobody here has */
#define OPAQUE	     ".wh..wh..opq"
#define OWNER_MAX    65535u		/* ids of a sandbox; others are nobody's */
#define NOBODY	     65534u
#define TOO_MUCH     "is more than may be unpacked"

const struct unpack_limits unpack_usual_limits = { 64ull << 30, 4000000 };

struct unpack {
	int dir_fd;
	bool as_user;
	struct unpack_limits left;
	char why[UNPACK_WHY_MAX];
	char path[TAR_NAME_MAX + 1];	/* of the entry, clean */
	char piece[PIECE];
};

int unpack_new(int dir_fd, bool as_user, const struct unpack_limits *limits, struct unpack **ret)
{
	struct unpack *u = malloc(sizeof(*u));

	if (!u)
		return -ENOMEM;
	u->dir_fd = dir_fd;
	u->as_user = as_user;
	u->left = *limits;
	u->why[0] = '\0';
	*ret = u;
	return 0;
}

struct unpack *unpack_free(struct unpack *u)
{
	free(u);
	return NULL;
}

const char *unpack_why(const struct unpack *u)
{
	return u->why;
}

/* The name as far as there is room; what is no plain text shows as '?'. */
static int refuse(struct unpack *u, int r, const char *name, const char *words)
{
	char shown[100];
	size_t n = 0;

	for (; name[n] && n < sizeof(shown) - 1; n++)
		shown[n] = name[n] >= ' ' && name[n] < 0x7f ? name[n] : '?';
	shown[n] = '\0';
	snprintf(u->why, sizeof(u->why), "\"%s\": %s", shown, words);
	return r;
}

static int refuse_errno(struct unpack *u, int r, const char *name)
{
	return r < 0 && !u->why[0] ? refuse(u, r, name, strerror(-r)) : r;
}

/* --- names --- */

bool unpack_clean_name(const char *name, char *ret)
{
	char *to = ret;

	for (;;) {
		size_t n;

		name += strspn(name, "/");
		n = strcspn(name, "/");
		if (!n)
			break;
		if (n == 2 && name[0] == '.' && name[1] == '.')
			return false;
		if (n > 1 || *name != '.') {
			if (to != ret)
				*to++ = '/';
			memcpy(to, name, n);
			to += n;
		}
		name += n;
	}
	*to = '\0';
	return true;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* --- folders --- */

/* The folder `path` as seen from the root, through the archive's own links. */
static int open_below(const struct unpack *u, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	int fd = (int)syscall(SYS_openat2, u->dir_fd, *path ? path : ".", &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static int own_folder(const struct unpack *u, int at, const char *name, uint32_t uid, uint32_t gid, mode_t mode);

/* The folder at `path`, which is writable, and those above it, where they are missing. */
static int make_below(const struct unpack *u, char *path)
{
	int above = open_below(u, "");

	for (char *end = path; above >= 0 && *end;) {
		char *begin = end + (*end == '/');
		char old;
		int fd;

		end = begin + strcspn(begin, "/");
		old = *end;
		*end = '\0';
		fd = open_below(u, path);
		if (fd == -ENOENT && mkdirat(above, begin, 0700) == 0 && own_folder(u, above, begin, 0, 0, 0755) == 0)
			fd = open_below(u, path);
		*end = old;
		fd_close(above);
		above = fd;
	}
	return above;
}

/* The folder that `path` is in, which is clean and writable; *ret is its last component. */
static int open_parent(const struct unpack *u, char *path, bool make, const char **ret)
{
	char *slash = strrchr(path, '/');
	int fd;

	*ret = base_of(path);
	if (!slash)
		return open_below(u, "");
	*slash = '\0';
	fd = open_below(u, path);
	if (fd == -ENOENT && make)
		fd = make_below(u, path);
	*slash = '/';
	return fd;
}

/* --- owners --- */

static uint32_t owner_of(uint64_t id)
{
	return id > OWNER_MAX ? NOBODY : (uint32_t)id;
}

static int set_owner(const struct unpack *u, int fd, uint32_t uid, uint32_t gid)
{
	char text[32];

	if (!u->as_user)
		return fchown(fd, uid, gid) < 0 ? -errno : 0;
	snprintf(text, sizeof(text), "%u:%u", uid, gid);
	return fsetxattr(fd, CONTAINER_OWNER_XATTR, text, strlen(text), 0) < 0 && errno != EOPNOTSUPP ? -errno : 0;
}

/* A user keeps the way into his folders, whatever the archive says. */
static int own_folder(const struct unpack *u, int at, const char *name, uint32_t uid, uint32_t gid, mode_t mode)
{
	scoped(fd_closep) int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = set_owner(u, fd, uid, gid);
	if (r < 0)
		return r;
	return fchmod(fd, u->as_user ? mode | 0700 : mode) < 0 ? -errno : 0;
}

/* --- entries --- */

static int write_data(struct unpack *u, struct tarball *t, int fd)
{
	const void *piece;
	ssize_t n;

	while ((n = tarball_data(t, &piece)) > 0) {
		int r = fd_write_all(fd, piece, (size_t)n);

		if (r < 0)
			return r;
	}
	return (int)n;
}

static int make_file(struct unpack *u, struct tarball *t, const struct tar_entry *e, int at, const char *name)
{
	scoped(fd_closep) int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	const struct timespec times[2] = { { e->mtime_s, e->mtime_ns }, { e->mtime_s, e->mtime_ns } };
	int r;

	if (fd < 0)
		return -errno;
	r = write_data(u, t, fd);
	if (r == 0)
		r = set_owner(u, fd, owner_of(e->uid), owner_of(e->gid));
	if (r == 0 && fchmod(fd, e->mode) < 0)
		r = -errno;
	(void)futimens(fd, times);	/* a time that the file system cannot keep */
	return r;
}

static int make_folder(struct unpack *u, const struct tar_entry *e, int at, const char *name)
{
	if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	return own_folder(u, at, name, owner_of(e->uid), owner_of(e->gid), e->mode);
}

static int make_symlink(struct unpack *u, const struct tar_entry *e, int at, const char *name)
{
	if (symlinkat(e->link, at, name) < 0)
		return -errno;
	if (u->as_user)
		return 0;
	return fchownat(at, name, owner_of(e->uid), owner_of(e->gid), AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int make_fifo(struct unpack *u, const struct tar_entry *e, int at, const char *name)
{
	if (mkfifoat(at, name, e->mode & 0777) < 0)
		return -errno;
	if (u->as_user)
		return 0;
	return fchownat(at, name, owner_of(e->uid), owner_of(e->gid), AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* To a file or link that is below the root already. */
static int make_hard_link(struct unpack *u, const struct tar_entry *e, int at, const char *name)
{
	scoped(fd_closep) int from_at = -1;
	char link[TAR_NAME_MAX + 1];
	const char *from;

	if (!unpack_clean_name(e->link, link))
		return refuse(u, -EBADMSG, e->link, "a link to it would leave the root");
	from_at = open_parent(u, link, false, &from);
	if (from_at < 0 || linkat(from_at, from, at, name, 0) < 0)
		return refuse(u, from_at < 0 ? from_at : -errno, e->link, "there is no such file that a link could be made to");
	return 0;
}

/* What an entry replaces: everything but a folder that stays one. */
static int make_room(const struct tar_entry *e, int at, const char *name)
{
	struct stat st;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	return S_ISDIR(st.st_mode) && e->type == TAR_DIRECTORY ? 0 : rmtree(at, name);
}

static int make_entry(struct unpack *u, struct tarball *t, const struct tar_entry *e, int at, const char *name)
{
	switch (e->type) {
	case TAR_FILE:
		return make_file(u, t, e, at, name);
	case TAR_DIRECTORY:
		return make_folder(u, e, at, name);
	case TAR_SYMLINK:
		return make_symlink(u, e, at, name);
	case TAR_HARD_LINK:
		return make_hard_link(u, e, at, name);
	case TAR_FIFO:
		return make_fifo(u, e, at, name);
	default:	/* a sandbox has the devices that it has */
		return 0;
	}
}

/* A hard link to what it would replace is that file already. */
static bool is_own_link(const struct unpack *u, const struct tar_entry *e)
{
	char to[TAR_NAME_MAX + 1];

	return e->type == TAR_HARD_LINK && unpack_clean_name(e->link, to) && str_eq(to, u->path);
}

static int put(struct unpack *u, struct tarball *t, const struct tar_entry *e)
{
	scoped(fd_closep) int at = -1;
	const char *name;
	int r;

	if (!*u->path)	/* the root itself */
		return e->type == TAR_DIRECTORY ? own_folder(u, u->dir_fd, ".", owner_of(e->uid), owner_of(e->gid), e->mode) :
						      refuse(u, -EBADMSG, e->name, "would take the place of the root");
	if (is_own_link(u, e))
		return refuse(u, -EBADMSG, e->name, "is a link to itself");
	at = open_parent(u, u->path, true, &name);
	if (at < 0)
		return at == -ENOENT || at == -EEXIST ? refuse(u, -EBADMSG, e->name, "lies below a link that leads nowhere") : at;
	r = make_room(e, at, name);
	return r < 0 ? r : make_entry(u, t, e, at, name);
}

/* --- archives --- */

static int check_name(struct unpack *u, const struct tar_entry *e)
{
	if (!unpack_clean_name(e->name, u->path))
		return refuse(u, -EBADMSG, e->name, "leaves the root");
	if (!u->left.entries--)
		return refuse(u, -EFBIG, e->name, "there are too many entries");
	return 0;
}

/* Before any of it is written. */
static int check_size(struct unpack *u, const struct tar_entry *e)
{
	return e->size > u->left.bytes ? refuse(u, -EFBIG, e->name, TOO_MUCH) : 0;
}

static bool is_whiteout(const char *path)
{
	return str_starts(base_of(path), WHITEOUT);
}

/* Counts all that is read: what an archive hides between its entries, too. */
struct counted {
	struct tarball_source s;
	struct tarball_source *from;
	struct unpack *u;
};

static ssize_t read_counted(struct tarball_source *s, void *p, size_t n)
{
	struct counted *c = container_of(s, struct counted, s);
	ssize_t k = c->from->read(c->from, p, n);

	if (k > 0 && (uint64_t)k > c->u->left.bytes)
		return refuse(c->u, -EFBIG, "all of it", TOO_MUCH);
	if (k > 0)
		c->u->left.bytes -= (uint64_t)k;
	return k;
}

typedef int entry_fn(struct unpack *u, struct tarball *t, const struct tar_entry *e);

static int entries(struct unpack *u, struct tarball *t, entry_fn *fn)
{
	const struct tar_entry *e;
	int r;

	while ((r = tarball_next(t, &e)) > 0) {
		r = check_name(u, e);
		if (r == 0)
			r = check_size(u, e);
		if (r == 0)
			r = refuse_errno(u, fn(u, t, e), e->name);
		if (r < 0)
			return r;
	}
	return r;
}

static int each_entry(struct unpack *u, struct tarball_source *from, entry_fn *fn)
{
	struct counted c = { { read_counted }, from, u };
	struct tarball *t;
	int r = tarball_new(&c.s, &t);

	if (r < 0)
		return refuse_errno(u, r, "");
	u->why[0] = '\0';
	r = entries(u, t, fn);
	while (r == 0 && (r = (int)read_counted(&c.s, u->piece, sizeof(u->piece))) > 0)
		r = 0;		/* padding: a sum over it is one over all */
	if (r < 0 && !u->why[0])
		snprintf(u->why, sizeof(u->why), "%s", r == -EBADMSG ? tarball_why(t) : strerror(-r));
	tarball_free(t);
	return r;
}

/* --- whiteouts --- */

static int empty_folder(int at)
{
	int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return -errno;
	d = fdopendir(fd);
	if (!d) {
		fd_close(fd);
		return -ENOMEM;
	}
	while (r == 0 && (e = readdir(d)))
		if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
			r = rmtree(dirfd(d), e->d_name);
	closedir(d);
	return r;
}

/* What a whiteout other than the opaque one takes away; NULL: a note. "": there is no such name. */
static const char *hidden_by(const char *name)
{
	const char *hidden = name + strlen(WHITEOUT);

	if (str_starts(name, WHITEOUT_AUFS))
		return NULL;
	return str_eq(hidden, ".") || str_eq(hidden, "..") ? "" : hidden;
}

static int take_away(struct unpack *u, struct tarball *t, const struct tar_entry *e)
{
	scoped(fd_closep) int at = -1;
	const char *name = base_of(u->path), *hidden;

	(void)t;
	if (!is_whiteout(u->path))
		return 0;
	hidden = hidden_by(name);
	if (hidden && !*hidden)
		return refuse(u, -EBADMSG, e->name, "takes away nothing that has a name");
	if (!hidden && !str_eq(name, OPAQUE))
		return 0;
	at = open_parent(u, u->path, false, &name);
	if (at < 0)
		return at == -ENOENT || at == -ENOTDIR ? 0 : at;
	return hidden ? rmtree(at, hidden) : empty_folder(at);
}

/* The second pass has the same entries. */
int unpack_whiteouts(struct unpack *u, struct tarball_source *s)
{
	const struct unpack_limits before = u->left;
	int r = each_entry(u, s, take_away);

	if (r == 0)
		u->left = before;
	return r;
}

static int put_of_layer(struct unpack *u, struct tarball *t, const struct tar_entry *e)
{
	return is_whiteout(u->path) ? 0 : put(u, t, e);
}

int unpack_files(struct unpack *u, struct tarball_source *s, bool is_layer)
{
	return each_entry(u, s, is_layer ? put_of_layer : put);
}
