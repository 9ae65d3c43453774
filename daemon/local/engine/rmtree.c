/* SPDX-License-Identifier: MIT */
/*
 * Removes a tree. Going down opens the next folder and remembers who it is; going up opens ".." and
 * compares, so that a folder moved elsewhere meanwhile ends the walk instead of leading it astray.
 */
#include "daemon/local/engine/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/str.h"

struct level {
	dev_t dev;	/* of the parent */
	ino_t ino;
	char name[256];	/* of the folder in its parent */
};

struct walk {
	struct level *stack;
	size_t depth, cap;
	int fd;		/* the folder we are in */
	int first_error;
};

static int open_dir(int at, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	struct stat st;
	int fd = openat(at, name, flags);

	if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0)
		fd = openat(at, name, flags);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		(void)fchmod(fd, 0700);
	return fd;
}

static int down(struct walk *w, const char *name)
{
	struct level *l;
	struct stat st;
	int fd;

	if (w->depth == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 16;
		struct level *more = reallocarray(w->stack, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->stack = more;
		w->cap = cap;
	}
	l = &w->stack[w->depth];
	if (fstat(w->fd, &st) < 0)
		return -errno;
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	if (!str_copy(l->name, sizeof(l->name), name))
		return -ENAMETOOLONG;
	fd = open_dir(w->fd, name);
	if (fd < 0)
		return fd;
	fd_close(w->fd);
	w->fd = fd;
	w->depth++;
	return 0;
}

static int up(struct walk *w)
{
	struct level *l = &w->stack[w->depth - 1];
	struct stat st;
	int fd = openat(w->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_dev != l->dev || st.st_ino != l->ino) {
		fd_close(fd);
		return -ESTALE;
	}
	fd_close(w->fd);
	w->fd = fd;
	w->depth--;
	return 0;
}

static void note(struct walk *w, int err)
{
	if (!w->first_error)
		w->first_error = err;
}

static bool is_dots(const char *s)
{
	return s[0] == '.' && (!s[1] || (s[1] == '.' && !s[2]));
}

/* Removes what is no folder and remembers one folder to go into. 0 = nothing left to go into. */
static int sweep(struct walk *w, char ret_dir[256])
{
	int fd = openat(w->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *e;
	int found = 0;
	DIR *d;

	if (fd < 0)
		return -errno;
	d = fdopendir(fd);
	if (!d) {
		fd_close(fd);
		return -ENOMEM;
	}
	while ((e = readdir(d))) {
		if (is_dots(e->d_name))
			continue;
		if (unlinkat(w->fd, e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR) {
			note(w, -errno);
			continue;
		}
		if (unlinkat(w->fd, e->d_name, AT_REMOVEDIR) == 0)
			continue;
		if (errno == ENOTEMPTY || errno == EEXIST || errno == EACCES) {
			found = str_copy(ret_dir, 256, e->d_name);
			break;
		}
		note(w, -errno);
	}
	closedir(d);
	return found;
}

static int walk_all(struct walk *w)
{
	char name[256];
	int r;

	for (;;) {
		/* After an error a folder that stays would be found for ever: stop there. */
		if (w->first_error)
			return w->first_error;
		r = sweep(w, name);
		if (r > 0)
			r = down(w, name);
		else if (r == 0 && w->depth == 0)
			return w->first_error;
		else if (r == 0)
			r = up(w);
		if (r < 0)
			return r;
	}
}

static int remove_content(int dir_fd)
{
	struct walk w = { .fd = dir_fd };
	int r = walk_all(&w);

	fd_close(w.fd);
	free(w.stack);
	return r;
}

int rmtree(int dir_fd, const char *name)
{
	int fd, r;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR)
		return -errno;
	fd = open_dir(dir_fd, name);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = remove_content(fd);
	if (r < 0)
		return r;
	return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}
