/* SPDX-License-Identifier: MIT */
/* passwd(5) and group(5), line by line; a broken line is nobody. */
#include "daemon/local/engine/passwd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/local/engine/container.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define FIELDS_MAX 7u

int passwd_read(int root_fd, const char *path, char **ret)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	scoped(fd_closep) int handle = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
	scoped(fd_closep) int fd = -1;
	struct stat st;
	size_t n = 0;
	char *text;

	if (handle < 0 || fstat(handle, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EMEDIUMTYPE;
	if (st.st_size > (off_t)PASSWD_FILE_MAX)
		return -EFBIG;
	how.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)PASSWD_FILE_MAX)
		return -EMEDIUMTYPE;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	while (n < (size_t)st.st_size) {
		ssize_t k = read(fd, text + n, (size_t)st.st_size - n);

		if (k <= 0)
			break;
		n += (size_t)k;
	}
	text[n] = '\0';
	*ret = text;
	return 0;
}

struct field {
	const char *p;
	size_t n;
};

/* Splits the line at `s` at its colons. */
static size_t split(const char *s, struct field f[FIELDS_MAX])
{
	size_t n = 0;
	const char *end = s + strcspn(s, "\n");

	while (n < FIELDS_MAX) {
		const char *stop = memchr(s, ':', (size_t)(end - s));

		f[n++] = (struct field){ s, (size_t)((stop ? stop : end) - s) };
		if (!stop)
			break;
		s = stop + 1;
	}
	return n;
}

static const char *next_line(const char *s)
{
	s = strchr(s, '\n');
	return s ? s + 1 : NULL;
}

static bool is(const struct field *f, const char *s)
{
	return f->n == strlen(s) && !memcmp(f->p, s, f->n);
}

static bool id_of(const struct field *f, uint32_t *ret)
{
	uint64_t v;

	if (str_u64(f->p, f->n, UINT32_MAX - 1, &v) < 0)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static bool copy(const struct field *f, char *ret, size_t cap)
{
	if (f->n >= cap)
		return false;
	memcpy(ret, f->p, f->n);
	ret[f->n] = '\0';
	return true;
}

bool passwd_find(const char *passwd, const char *name, struct container_user *ret)
{
	struct field f[FIELDS_MAX];

	if (!*name)
		return false;
	for (const char *s = passwd; s && *s; s = next_line(s)) {
		struct container_user u = { 0 };

		if (split(s, f) < 6 || !is(&f[0], name))
			continue;
		if (!id_of(&f[2], &u.uid) || !id_of(&f[3], &u.gid) ||
		    !copy(&f[0], u.name, sizeof(u.name)) || !copy(&f[5], u.home, sizeof(u.home)))
			return false;
		if (u.home[0] != '/')
			str_copy(u.home, sizeof(u.home), "/");
		*ret = u;
		return true;
	}
	return false;
}

bool passwd_name_of(const char *text, uint32_t id, char *ret, size_t cap)
{
	struct field f[FIELDS_MAX];
	uint32_t v;

	for (const char *s = text; s && *s; s = next_line(s))
		if (split(s, f) >= 3 && id_of(&f[2], &v) && v == id && f[0].n)
			return copy(&f[0], ret, cap);
	return false;
}

static bool lists(const struct field *members, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i + n <= members->n; i++)
		if ((i == 0 || members->p[i - 1] == ',') && !memcmp(members->p + i, name, n) &&
		    (i + n == members->n || members->p[i + n] == ','))
			return true;
	return false;
}

uint32_t passwd_groups(const char *group, const char *name, uint32_t gid, uint32_t *ret, uint32_t max)
{
	struct field f[FIELDS_MAX];
	uint32_t n = 0, v;

	ret[n++] = gid;
	for (const char *s = group; s && *s && n < max; s = next_line(s))
		if (split(s, f) >= 4 && id_of(&f[2], &v) && v != gid && lists(&f[3], name))
			ret[n++] = v;
	return n;
}
