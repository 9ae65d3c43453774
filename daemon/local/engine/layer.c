/* SPDX-License-Identifier: MIT */
/* A layer that is not whole has a name that begins with ".". */
#include "daemon/local/engine/layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "daemon/local/engine/copytree.h"
#include "daemon/local/engine/rmtree.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

static const char *const parts[] = { "up", "usrup" };

static int open_dir(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int write_ids(int fd, const struct layer_ids *ids)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%s %u\n", ids->as_user ? "user" : "root", ids->first);

	return fd_write_file(fd, "ids", text, (size_t)n, 0600);
}

static int read_ids(int fd, struct layer_ids *ret)
{
	char *text, kind[8] = "";
	size_t n;
	int r = fd_read_file(fd, "ids", 64, &text, &n);

	if (r < 0)
		return r;
	if (sscanf(text, "%7s %u", kind, &ret->first) != 2)
		r = -EBADMSG;
	ret->as_user = str_eq(kind, "user");
	free(text);
	return r;
}

static int copy_parts(int from_fd, int to_fd, const struct container_copy *how)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parts) && r == 0; i++)
		r = copytree(from_fd, parts[i], to_fd, parts[i], how);
	return r;
}

/* CONTAINER/lay */
static int open_lay(int engine_fd, const char *container)
{
	char path[NAME_MAX + 8];

	if (snprintf(path, sizeof(path), "%s/lay", container) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return open_dir(engine_fd, path);
}

static int save_to(int lay_fd, int layers_fd, const char *tmp, const struct layer_ids *ids)
{
	const struct container_copy how = { .supervisor_owners = !ids->as_user };
	scoped(fd_closep) int to = -1;
	int r;

	if (mkdirat(layers_fd, tmp, 0755) < 0)
		return -errno;
	to = open_dir(layers_fd, tmp);
	if (to < 0)
		return to;
	r = copy_parts(lay_fd, to, &how);
	return r < 0 ? r : write_ids(to, ids);
}

int layer_save(int engine_fd, const char *container, int layers_fd, const char *layer,
	       const struct layer_ids *ids)
{
	scoped(fd_closep) int lay = open_lay(engine_fd, container);
	char tmp[NAME_MAX + 1];
	int r;

	if (lay < 0)
		return lay;
	if (snprintf(tmp, sizeof(tmp), ".%s", layer) >= (int)sizeof(tmp))
		return -ENAMETOOLONG;
	r = save_to(lay, layers_fd, tmp, ids);
	if (r == 0 && renameat(layers_fd, tmp, layers_fd, layer) < 0)
		r = -errno;
	if (r < 0)
		(void)!rmtree(layers_fd, tmp);
	return r;
}

int layer_stash(int engine_fd, const char *container, int layers_fd, const char *layer,
		const struct layer_ids *ids)
{
	scoped(fd_closep) int lay = open_lay(engine_fd, container);
	char path[NAME_MAX + 8];
	int r = lay < 0 ? lay : write_ids(lay, ids);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/lay", container);
	return renameat(engine_fd, path, layers_fd, layer) < 0 ? -errno : 0;
}

int layer_copy(int layers_fd, const char *layer, int engine_fd, const char *container,
	       const struct layer_ids *ids)
{
	scoped(fd_closep) int from = open_dir(layers_fd, layer);
	scoped(fd_closep) int lay = -1;
	struct container_copy how = { .supervisor_owners = !ids->as_user };
	struct layer_ids have;
	char path[NAME_MAX + 8];
	int r = from < 0 ? from : read_ids(from, &have);

	if (r < 0)
		return r;
	if (have.as_user != ids->as_user)
		return -EINVAL;
	how.shift = (int64_t)ids->first - have.first;
	if (snprintf(path, sizeof(path), "%s/lay", container) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (mkdirat(engine_fd, path, 0755) < 0)
		return -errno;
	lay = open_lay(engine_fd, container);
	return lay < 0 ? lay : copy_parts(from, lay, &how);
}

int layer_move(int layers_fd, const char *layer, int engine_fd, const char *container,
	       const struct layer_ids *ids)
{
	/* "volatile" overlays refuse the work folder of another mount. */
	static const char *const stale[] = { "wk", "usrwk", "ids" };
	scoped(fd_closep) int from = open_dir(layers_fd, layer);
	struct layer_ids have;
	char path[NAME_MAX + 8];
	int r = from < 0 ? from : read_ids(from, &have);

	if (r < 0)
		return r;
	if (have.as_user != ids->as_user || have.first != ids->first)
		return -EXDEV;
	if (snprintf(path, sizeof(path), "%s/lay", container) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (renameat(layers_fd, layer, engine_fd, path) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(stale) && r == 0; i++)
		r = rmtree(from, stale[i]);
	return r;
}

void layer_clean(int layers_fd)
{
	int fd = open_dir(layers_fd, ".");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		fd_close(fd);
		return;
	}
	while ((e = readdir(d)))
		if (e->d_name[0] == '.' && !str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
			(void)!rmtree(layers_fd, e->d_name);
	closedir(d);
}
