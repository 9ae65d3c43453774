/* SPDX-License-Identifier: MIT */
#include "daemon/common/sd/listen_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/fd.h"
#include "proto/base/str.h"

/* Splits the text at its colons; each part is a descriptor's name. False if there are not n parts. */
static bool set_names(struct listen_fds *l, char *text)
{
	for (size_t i = 0; i < l->n; i++) {
		char *end = strchr(text, ':');

		if (!end != (i + 1 == l->n))
			return false;
		if (end)
			*end = '\0';
		if (*text)
			l->v[i].name = text;
		text = end ? end + 1 : text;
	}
	return true;
}

static int fill(struct listen_fds *l, size_t n, const char *names)
{
	l->v = calloc(n, sizeof(*l->v));
	l->text = str_dup(names);
	if (!l->v || (names && !l->text))
		return -ENOMEM;
	l->n = n;
	for (size_t i = 0; i < n; i++)
		l->v[i] = (struct listen_fd){ .fd = LISTEN_FDS_FIRST + (int)i, .name = "unknown" };
	return l->text && !set_names(l, l->text) ? -EINVAL : 0;
}

/* Gives back memory; the descriptors are left alone. */
static void forget(struct listen_fds *l)
{
	free(l->v);
	free(l->text);
	*l = (struct listen_fds){ 0 };
}

int listen_fds_parse(const struct listen_env *env, pid_t self, struct listen_fds *ret)
{
	uint64_t pid, n;
	int r;

	*ret = (struct listen_fds){ 0 };
	if (str_is_empty(env->pid) || str_is_empty(env->fds))
		return 0;
	if (str_u64(env->pid, strlen(env->pid), INT32_MAX, &pid) < 0)
		return -EINVAL;
	if ((pid_t)pid != self)
		return 0;
	if (str_u64(env->fds, strlen(env->fds), LISTEN_FDS_MAX, &n) < 0)
		return -EINVAL;
	if (!n)
		return 0;
	r = fill(ret, n, env->names);
	if (r < 0)
		forget(ret);
	return r;
}

int listen_fds_keep(const struct listen_fds *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (fcntl(l->v[i].fd, F_SETFD, FD_CLOEXEC) < 0)
			return -errno;
	return 0;
}

static struct listen_fd *find(struct listen_fds *l, const char *name, size_t from)
{
	for (size_t i = from; i < l->n; i++)
		if (l->v[i].fd >= 0 && str_eq(l->v[i].name, name))
			return &l->v[i];
	return NULL;
}

int listen_fds_take_one(struct listen_fds *l, const char *name)
{
	struct listen_fd *found = find(l, name, 0);
	int fd = found ? found->fd : -ENOENT;

	if (found)
		found->fd = -1;
	return fd;
}

int listen_fds_take(struct listen_fds *l, const char *name)
{
	struct listen_fd *found = find(l, name, 0);

	if (found && find(l, name, (size_t)(found - l->v) + 1))
		return -EEXIST;
	return listen_fds_take_one(l, name);
}

void listen_fds_fini(struct listen_fds *l)
{
	for (size_t i = 0; i < l->n; i++)
		fd_close(l->v[i].fd);
	forget(l);
}
