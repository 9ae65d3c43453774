/* SPDX-License-Identifier: MIT */
/* Invariant: only "missing" and "refused" at one of the usual places lead on to the next; anything else is the answer. */
#include "client/lib/dial.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/lib/denied.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define SYSTEM_SOCKET "/run/agentboxd/agentboxd.sock"

int dial_check_path(const char *path)
{
	return *path && strlen(path) < DIAL_PATH_MAX ? 0 : -EINVAL;
}

static int connect_unix(const char *path, int *ret)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	scoped(fd_closep) int fd = -1;

	if (!str_copy(sa.sun_path, sizeof(sa.sun_path), path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	*ret = fd;
	fd = -1;
	return 0;
}

static bool is_absence(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED;
}

static void note_failure(struct dial *d, const char *path, int r)
{
	size_t n = strlen(d->text);
	char why[768];

	if (r == -EACCES)
		denied_text(path, why, sizeof(why));
	else
		(void)str_copy(why, sizeof(why), strerror(-r));
	(void)snprintf(d->text + n, sizeof(d->text) - n, "%s%s (%s)", n ? ", " : "", path, why);
	d->denied = r == -EACCES;
}

/* 0 reached, -errno not. *go_on: look at the next place. */
static int dial_one(struct dial *d, const char *path, int *ret_fd, bool *go_on)
{
	int r = connect_unix(path, ret_fd);

	(void)str_copy(d->path, sizeof(d->path), path);
	if (r == 0)
		return 0;
	note_failure(d, path, r);
	/* a full backlog empties by itself, but it is no reason to ask another daemon */
	d->later = is_absence(r) || r == -EAGAIN;
	*go_on = is_absence(r);
	return r;
}

static int dial_usual(struct dial *d, int *ret_fd)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char user[DIAL_PATH_MAX];
	bool go_on = true;
	int r = -ENOENT, n;

	n = str_is_empty(runtime) ? -1
				  : snprintf(user, sizeof(user), "%s/agentboxd/agentboxd.sock", runtime);
	if (n > 0 && n < (int)sizeof(user)) {
		r = dial_one(d, user, ret_fd, &go_on);
		if (r < 0 && !go_on)
			return r;
	}
	return r < 0 ? dial_one(d, SYSTEM_SOCKET, ret_fd, &go_on) : 0;
}

int dial_try(const char *explicit_path, struct dial *d, int *ret_fd)
{
	const char *set = getenv("AGENTBOXD_SOCKET");
	bool go_on;

	d->text[0] = '\0';
	d->later = d->denied = false;
	if (!explicit_path && !str_is_empty(set))
		explicit_path = set;
	return explicit_path ? dial_one(d, explicit_path, ret_fd, &go_on) : dial_usual(d, ret_fd);
}
