/* SPDX-License-Identifier: MIT */
#include "daemon/conf/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/fd.h"

struct secret {
	char text[SECRET_MAX_BYTES];
};

static struct secret *secret_new(void)
{
	struct secret *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (s == MAP_FAILED)
		return NULL;
	/* Each is best effort: without the right to lock memory the secret still works. */
	(void)mlock(s, sizeof(*s));
	(void)madvise(s, sizeof(*s), MADV_DONTDUMP);
	(void)madvise(s, sizeof(*s), MADV_WIPEONFORK);
	return s;
}

struct secret *secret_free(struct secret *s)
{
	if (!s)
		return NULL;
	explicit_bzero(s, sizeof(*s));
	munmap(s, sizeof(*s));
	return NULL;
}

const char *secret_text(const struct secret *s)
{
	return s ? s->text : NULL;
}

const char *secret_error(int r)
{
	switch (r) {
	case -EPERM:
		return "others can read it; chmod 600";
	case -EINVAL:
		return "is not a regular file";
	case -EFBIG:
		return "is larger than 4 KiB";
	case -EBADMSG:
		return "does not hold one key on one line";
	default:
		return strerrordesc_np(-r);
	}
}

static int check_text(struct secret *s, size_t n)
{
	if (n && s->text[n - 1] == '\n')
		n--;
	s->text[n] = 0;
	if (!n)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s->text[i] <= 0x20 || (unsigned char)s->text[i] >= 0x7f)
			return -EBADMSG;
	return 0;
}

/* Directly in this folder, by the words of the path: whoever can put a link there can put a key there. */
static bool is_in(const char *folder, const char *path)
{
	size_t n = folder ? strlen(folder) : 0;

	while (n && folder[n - 1] == '/')
		n--;
	return n && !strncmp(path, folder, n) && path[n] == '/' && path[n + 1] && !strchr(path + n + 1, '/');
}

int secret_read(const char *path, const char *credentials, struct secret **ret)
{
	scoped(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct secret *s;
	struct stat st;
	size_t n = 0;
	int r = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if ((st.st_mode & 0077) && !is_in(credentials, path))
		return -EPERM;
	s = secret_new();
	if (!s)
		return -ENOMEM;
	while (!r) {
		ssize_t k = read(fd, s->text + n, sizeof(s->text) - n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			r = -errno;
		if (k <= 0)
			break;
		n += (size_t)k;
		if (n == sizeof(s->text))
			r = -EFBIG;
	}
	if (!r)
		r = check_text(s, n);
	if (r < 0)
		secret_free(s);
	else
		*ret = s;
	return r;
}

int secret_take(char *text, struct secret **ret)
{
	struct secret *s = secret_new();
	size_t n = strlen(text);
	int r;

	if (!s)
		return -ENOMEM;
	if (n >= sizeof(s->text)) {
		secret_free(s);
		return -EFBIG;
	}
	memcpy(s->text, text, n + 1);
	explicit_bzero(text, n);
	r = check_text(s, n);
	if (r < 0)
		secret_free(s);
	else
		*ret = s;
	return r;
}
