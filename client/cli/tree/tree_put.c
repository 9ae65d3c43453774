/* SPDX-License-Identifier: MIT */
/*
 * Makes what an archive says, below one directory. A file gets its name when it is complete; until then it
 * has one of ours beside it. Directories are ours to write into until put_finish() gives them the mode
 * and times they are to have. Set-user-id and the like are not taken over: the archive comes from a
 * sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/tree/tree.h"

#define MODE_MASK 0777u

struct dir_todo {
	char *rel;
	uint32_t mode;
	struct timespec mtime;
};

struct put {
	struct put_options o;
	struct dir_todo *dirs;
	size_t n_dirs, cap_dirs;
	/* the file in hand */
	int fd, parent;
	char tmp[64];
	char name[256];			/* in `parent` */
	uint32_t mode;
	struct timespec mtime;
	unsigned long counter;
};

/* --- names --- */

bool put_clean_name(char *name)
{
	char *to = name;
	const char *from = name;

	if (*from == '/')
		return false;
	while (*from) {
		size_t n = strcspn(from, "/");

		if (n == 2 && !memcmp(from, "..", 2))
			return false;
		if (n && !(n == 1 && *from == '.')) {
			if (to != name)
				*to++ = '/';
			memmove(to, from, n);
			to += n;
		}
		from += n;
		from += *from == '/';
	}
	*to = '\0';
	return true;
}

bool put_link_leaves(const char *rel, const char *target)
{
	long depth = 0;

	if (*target == '/')
		return true;
	for (const char *p = rel; (p = strchr(p, '/')); p++)
		depth++;
	for (const char *p = target; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2))
			depth--;
		else if (n && !(n == 1 && *p == '.'))
			depth++;
		if (depth < 0)
			return true;
		p += n;
		p += *p == '/';
	}
	return false;
}

/* A directory, made with those above it if it is missing. `rel` is as it was afterwards. fd or -errno. */
static int open_dir(const struct put *p, char *rel)
{
	int fd = tree_open_below(p->o.root, rel, O_PATH | O_DIRECTORY), up;
	char *slash = strrchr(rel, '/');

	if (fd != -ENOENT || !*rel)
		return fd;
	if (slash)
		*slash = '\0';
	up = open_dir(p, slash ? rel : (char[]){ "" });
	if (slash)
		*slash = '/';
	if (up < 0)
		return up;
	fd = mkdirat(up, slash ? slash + 1 : rel, 0777) < 0 && errno != EEXIST ? -errno : 0;
	(void)close(up);
	return fd < 0 ? fd : tree_open_below(p->o.root, rel, O_PATH | O_DIRECTORY);
}

/* The directory that `rel` is in; *ret_name is the rest. fd or -errno. */
static int open_parent(const struct put *p, const char *rel, const char **ret_name)
{
	const char *slash = strrchr(rel, '/');
	size_t n = slash ? (size_t)(slash - rel) : 0;
	char dir[TAR_NAME_MAX + 1];

	*ret_name = slash ? slash + 1 : rel;
	memcpy(dir, rel, n);
	dir[n] = '\0';
	return open_dir(p, dir);
}

static struct timespec time_of(const struct tar_entry *e)
{
	return (struct timespec){ .tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns };
}

static const struct timespec *times(const struct timespec *mtime, struct timespec both[2])
{
	both[0] = (struct timespec){ .tv_nsec = UTIME_OMIT };
	both[1] = *mtime;
	return both;
}

/* --- the kinds --- */

static int remember_dir(struct put *p, const char *rel, const struct tar_entry *e)
{
	if (p->n_dirs == p->cap_dirs) {
		size_t cap = p->cap_dirs ? 2 * p->cap_dirs : 64;
		struct dir_todo *v = reallocarray(p->dirs, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		p->dirs = v;
		p->cap_dirs = cap;
	}
	p->dirs[p->n_dirs] = (struct dir_todo){ .rel = strdup(rel), .mode = e->mode & MODE_MASK, .mtime = time_of(e) };
	return p->dirs[p->n_dirs].rel ? (void)p->n_dirs++, 0 : -ENOMEM;
}

/* What is in the way and no directory makes room. */
static int put_dir(struct put *p, int parent, const char *name, const char *rel, const struct tar_entry *e)
{
	struct stat st;
	int r = mkdirat(parent, name, 0700) < 0 ? -errno : 0;

	if (r == -EEXIST && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		r = 0;
		if (!S_ISDIR(st.st_mode))
			r = unlinkat(parent, name, 0) < 0 || mkdirat(parent, name, 0700) < 0 ? -errno : 0;
		else if ((st.st_mode & 0700) != 0700 &&
			 fchmodat(parent, name, st.st_mode | 0700, 0) < 0 && errno != EPERM)
			r = -errno;
	}
	return r < 0 ? r : remember_dir(p, rel, e);
}

/* A name of ours in the same directory; it takes the real one's place in one step. */
static void next_tmp(struct put *p)
{
	snprintf(p->tmp, sizeof(p->tmp), ".agentboxctl-%ld-%lu", (long)getpid(), ++p->counter);
}

static int take_place(struct put *p, int parent, const char *name)
{
	int r = renameat(parent, p->tmp, parent, name) < 0 ? -errno : 0;

	if (r < 0)
		(void)unlinkat(parent, p->tmp, 0);
	return r;
}

static int put_symlink(struct put *p, int parent, const char *name, const struct tar_entry *e)
{
	struct timespec mtime = time_of(e), both[2];
	int r;

	next_tmp(p);
	if (symlinkat(e->link, parent, p->tmp) < 0)
		return -errno;
	r = take_place(p, parent, name);
	if (r == 0)
		(void)utimensat(parent, name, times(&mtime, both), AT_SYMLINK_NOFOLLOW);
	return r;
}

static int put_hard_link(struct put *p, int parent, const char *name, const char *target)
{
	const char *base;
	int from = open_parent(p, target, &base), r;

	if (from < 0)
		return from;
	next_tmp(p);
	r = linkat(from, base, parent, p->tmp, 0) < 0 ? -errno : 0;
	(void)close(from);
	if (r < 0)
		return r;
	r = take_place(p, parent, name);
	/* rename() of two names of one file does nothing: ours would stay */
	(void)unlinkat(parent, p->tmp, 0);
	return r;
}

static int put_fifo(struct put *p, int parent, const char *name, const struct tar_entry *e)
{
	struct timespec mtime = time_of(e), both[2];
	int r;

	next_tmp(p);
	if (mkfifoat(parent, p->tmp, e->mode & MODE_MASK) < 0)
		return -errno;
	if (fchmodat(parent, p->tmp, e->mode & MODE_MASK, 0) < 0 ||
	    utimensat(parent, p->tmp, times(&mtime, both), AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	else
		r = 0;
	if (r == 0)
		return take_place(p, parent, name);
	(void)unlinkat(parent, p->tmp, 0);
	return r;
}

/* Keeps `parent` if it goes well. */
static int put_file(struct put *p, int parent, const char *name, const struct tar_entry *e)
{
	next_tmp(p);
	p->fd = openat(parent, p->tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (p->fd < 0)
		return -errno;
	p->parent = parent;
	p->mode = e->mode & MODE_MASK;
	p->mtime = time_of(e);
	snprintf(p->name, sizeof(p->name), "%s", name);
	return 0;
}

/* --- entries --- */

static int refuse(struct put *p, const char *rel, const char *what)
{
	p->o.warn(p->o.user, rel, what);
	return 1;
}

static int put_one(struct put *p, const char *rel, char *link, const struct tar_entry *e, const char **ret_why)
{
	const char *name;
	int parent = open_parent(p, rel, &name), r;

	if (parent == -ELOOP || parent == -ENOTDIR)
		*ret_why = "its path leads through something that is no directory";
	if (parent < 0)
		return parent;
	if (strlen(name) >= sizeof(p->name)) {
		(void)close(parent);
		return -ENAMETOOLONG;
	}
	switch (e->type) {
	case TAR_FILE:
		r = put_file(p, parent, name, e);
		if (r == 0)
			return 0;
		break;
	case TAR_DIRECTORY:
		r = put_dir(p, parent, name, rel, e);
		break;
	case TAR_SYMLINK:
		r = put_symlink(p, parent, name, e);
		break;
	case TAR_HARD_LINK:
		r = put_hard_link(p, parent, name, link);
		break;
	default:
		r = put_fifo(p, parent, name, e);
		break;
	}
	(void)close(parent);
	return r;
}

int put_entry(struct put *p, const struct tar_entry *e, const char **ret_why)
{
	char rel[TAR_NAME_MAX + 1], link[TAR_NAME_MAX + 1];

	*ret_why = NULL;
	snprintf(rel, sizeof(rel), "%s", e->name);
	snprintf(link, sizeof(link), "%s", e->link);
	if (!put_clean_name(rel)) {
		*ret_why = "its name leads out of the tree";
		return -EPERM;
	}
	if (e->type == TAR_HARD_LINK && (!put_clean_name(link) || !*link)) {
		*ret_why = "it is a link to a file outside of the tree";
		return -EPERM;
	}
	if (!*rel)
		return e->type == TAR_DIRECTORY && p->o.set_root ? remember_dir(p, rel, e) : 0;
	if (e->type >= TAR_DEVICE)
		return refuse(p, rel, "neither file, directory, link nor pipe: left out");
	if (e->type == TAR_SYMLINK && !p->o.all_links && put_link_leaves(rel, e->link))
		return refuse(p, rel, "a link that leads out of the tree: left out (--all-links makes it)");
	return put_one(p, rel, link, e, ret_why);
}

int put_data(struct put *p, const void *data, size_t n)
{
	const char *at = data;

	while (p->fd >= 0 && n) {
		ssize_t k = write(p->fd, at, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		at += k;
		n -= (size_t)k;
	}
	return 0;
}

static void drop_file(struct put *p, bool remove)
{
	if (p->fd < 0)
		return;
	if (remove)
		(void)unlinkat(p->parent, p->tmp, 0);
	(void)close(p->fd);
	(void)close(p->parent);
	p->fd = p->parent = -1;
}

int put_end(struct put *p)
{
	struct timespec both[2];
	int r = 0;

	if (p->fd < 0)
		return 0;
	if (fchmod(p->fd, p->mode) < 0 || futimens(p->fd, times(&p->mtime, both)) < 0)
		r = -errno;
	if (r == 0)
		r = take_place(p, p->parent, p->name);
	drop_file(p, r < 0);
	return r;
}

/* The last one first: what is inside a directory comes before it. */
void put_finish(struct put *p)
{
	struct timespec both[2];

	for (size_t i = p->n_dirs; i-- > 0;) {
		const struct dir_todo *d = &p->dirs[i];
		int fd = tree_open_below(p->o.root, d->rel, O_RDONLY | O_DIRECTORY);

		if (fd < 0 || futimens(fd, times(&d->mtime, both)) < 0 || fchmod(fd, d->mode) < 0)
			p->o.warn(p->o.user, d->rel, fd < 0 ? strerror(-fd) : strerror(errno));
		if (fd >= 0)
			(void)close(fd);
	}
}

int put_new(const struct put_options *o, struct put **ret)
{
	struct put *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->o = *o;
	p->fd = p->parent = -1;
	*ret = p;
	return 0;
}

struct put *put_free(struct put *p)
{
	if (!p)
		return NULL;
	drop_file(p, true);
	for (size_t i = 0; i < p->n_dirs; i++)
		free(p->dirs[i].rel);
	free(p->dirs);
	free(p);
	return NULL;
}
