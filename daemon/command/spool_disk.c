/* SPDX-License-Identifier: MIT */
/* A spool's file, and which files of the folder are open. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "daemon/command/spool_impl.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"

void spool_dir_init(struct spool_dir *d, int fd, unsigned max_open)
{
	must(max_open);
	*d = (struct spool_dir){ .fd = fd, .max_open = max_open };
	list_init(&d->open);
}

void spool_rest(struct spool *s)
{
	if (s->fd < 0)
		return;
	s->fd = fd_close(s->fd);
	list_del(&s->node);
	s->dir->n_open--;
}

static bool rest_oldest(struct spool_dir *d)
{
	if (list_is_empty(&d->open))
		return false;
	spool_rest(list_entry(d->open.next, struct spool, node));
	return true;
}

static int open_file(struct spool *s)
{
	int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (s->made ? 0 : O_CREAT | O_EXCL);

	do
		s->fd = openat(s->dir->fd, s->name, flags, 0600);
	while (s->fd < 0 && (errno == EMFILE || errno == ENFILE) && rest_oldest(s->dir));
	return s->fd < 0 ? -errno : 0;
}

int spool_want_file(struct spool *s)
{
	struct spool_dir *d = s->dir;
	int r;

	if (s->fd >= 0) { /* it becomes the one used last */
		list_del(&s->node);
		list_add_tail(&d->open, &s->node);
		return 0;
	}
	while (d->n_open >= d->max_open)
		(void)rest_oldest(d);
	r = open_file(s);
	if (r < 0)
		return r;
	list_add_tail(&d->open, &s->node);
	d->n_open++;
	if (s->made)
		return 0;
	rng_system(&s->head.nonce, sizeof(s->head.nonce));
	s->made = true;
	r = spool_write_head(s);
	if (r < 0) {
		(void)unlinkat(d->fd, s->name, 0);
		spool_rest(s);
		s->made = false;
	}
	return r;
}

int spool_write_at(struct spool *s, struct iovec *v, int n, uint64_t at)
{
	int r = spool_want_file(s);

	if (r < 0)
		return r;
	while (n) {
		ssize_t w = pwritev(s->fd, v, n, (off_t)at);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		at += (uint64_t)w;
		for (; n && (size_t)w >= v->iov_len; v++, n--)
			w -= (ssize_t)v->iov_len;
		if (n) {
			v->iov_base = (char *)v->iov_base + w;
			v->iov_len -= (size_t)w;
		}
	}
	return 0;
}

int spool_read_at(struct spool *s, uint64_t at, void *buf, size_t n)
{
	int e = spool_want_file(s);

	if (e < 0)
		return e;
	for (size_t done = 0; done < n;) {
		ssize_t r = pread(s->fd, (char *)buf + done, n - done, (off_t)(at + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r < 0 ? -errno : -ENODATA;
		done += (size_t)r;
	}
	return 0;
}

int spool_write_head(struct spool *s)
{
	uint8_t head[SPOOL_HEAD_BYTES];
	struct iovec v = { head, sizeof(head) };

	spool_head_put(&s->head, head);
	return spool_write_at(s, &v, 1, 0);
}

int spool_write_record(struct spool *s, const struct spool_record *r, uint64_t at)
{
	uint8_t head[SPOOL_HEAD_BYTES];
	struct iovec v = { head, sizeof(head) };
	int e = spool_want_file(s); /* which sets head.nonce */

	if (e < 0)
		return e;
	spool_record_put(r, s->head.nonce, head);
	return spool_write_at(s, &v, 1, at - SPOOL_HEAD_BYTES);
}

void spool_truncate(struct spool *s)
{
	if (s->fd >= 0)
		(void)!ftruncate(s->fd, (off_t)s->file_end);
}

int spool_set_input(struct spool *s, const struct spool_input *i)
{
	uint8_t block[SPOOL_HEAD_BYTES];
	struct iovec v = { block, sizeof(block) };
	int r = spool_want_file(s);

	s->input = *i;
	if (r < 0)
		return r;
	spool_input_put(i, s->head.nonce, block);
	return spool_write_at(s, &v, 1, SPOOL_INPUT_AT);
}

void spool_get_input(const struct spool *s, struct spool_input *ret)
{
	*ret = s->input;
}
