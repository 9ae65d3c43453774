/* SPDX-License-Identifier: MIT */
#include "daemon/store/sent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define MAGIC	 "agentboxd sent 1"
#define FILE_MAX (sizeof(struct sent_head) + SENT_RECORDS_MAX * sizeof(struct sent_record))

/* The head's size is a multiple of a record's, so that no record crosses a page and each is written as a whole or not at all. */
_Static_assert(sizeof(struct sent_head) % sizeof(struct sent_record) == 0, "records cross pages");
_Static_assert(sizeof(MAGIC) - 1 == sizeof(((struct sent_head *)NULL)->magic), "the mark fills its field");

static int open_file(struct sent *s)
{
	if (s->fd < 0)
		s->fd = openat(s->dir_fd, SENT_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return s->fd < 0 ? -errno : 0;
}

static int make_void(struct sent *s)
{
	if (ftruncate(s->fd, 0) < 0)
		return -errno;
	s->is_void = true;
	s->n = 0;
	return 0;
}

/* Also 0 if the file stays void, as on a full disk. */
static int begin_anew(struct sent *s, uint64_t base)
{
	int r = open_file(s);

	if (!r)
		r = make_void(s);
	if (r < 0)
		return r;
	s->head.base = base;
	if (pwrite(s->fd, &s->head, sizeof(s->head), 0) == (ssize_t)sizeof(s->head))
		s->is_void = false;
	else
		r = make_void(s);
	return r;
}

/* --- what earlier runs wrote --- */

static bool is_ours(const struct sent_head *of, const struct sent_head *ours)
{
	return ours->boot[0] && !memcmp(of->magic, ours->magic, sizeof(of->magic)) &&
	       !memcmp(of->host, ours->host, sizeof(of->host)) && !memcmp(of->boot, ours->boot, sizeof(of->boot));
}

/* False: the file is of another host or boot, or full. */
static bool take_records(struct sent *s, const char *text, size_t n)
{
	struct sent_head head;

	if (n < sizeof(head))
		return false;
	memcpy(&head, text, sizeof(head));
	n = (n - sizeof(head)) / sizeof(*s->seen);
	if (!is_ours(&head, &s->head) || n >= SENT_RECORDS_MAX)
		return false;
	s->seen = calloc(n + 1, sizeof(*s->seen));
	if (!s->seen)
		return false;
	memcpy(s->seen, text + sizeof(head), n * sizeof(*s->seen));
	s->head.base = head.base;
	s->n = s->n_seen = n;
	return true;
}

static bool take_file(struct sent *s)
{
	bool taken;
	char *text;
	size_t n;

	if (fd_read_file(s->dir_fd, SENT_FILE, FILE_MAX, &text, &n) < 0)
		return false;
	taken = open_file(s) == 0 && take_records(s, text, n);
	free(text);
	return taken;
}

void sent_open(struct sent *s, int dir_fd, const char *host, const char *boot, bool is_trusted, uint64_t next)
{
	int r;

	*s = SENT_NULL;
	s->dir_fd = dir_fd;
	memcpy(s->head.magic, MAGIC, sizeof(s->head.magic));
	(void)str_copy(s->head.host, sizeof(s->head.host), host);
	(void)str_copy(s->head.boot, sizeof(s->head.boot), boot);
	if (is_trusted && take_file(s))
		return;
	r = begin_anew(s, next);
	if (r < 0)
		log_warn("sent_file", "error=%s creates=refused", log_q(strerrordesc_np(-r)));
}

enum sent_known sent_find(const struct sent *s, uint64_t seq, uint64_t *ret_at_ms)
{
	for (size_t i = 0; i < s->n_seen; i++) {
		if (s->seen[i].seq != seq)
			continue;
		*ret_at_ms = s->seen[i].at_ms;
		return SENT_MAYBE;
	}
	return s->seen && seq >= s->head.base ? SENT_NEVER : SENT_UNKNOWN;
}

void sent_forget(struct sent *s)
{
	free(s->seen);
	s->seen = NULL;
	s->n_seen = 0;
}

/* --- records --- */

int sent_put(struct sent *s, uint64_t seq, uint64_t now_ms, uint64_t next)
{
	const struct sent_record rec = { .seq = seq, .at_ms = now_ms };
	int r = 0;

	if (s->fd < 0 || s->is_void || s->n >= SENT_RECORDS_MAX)
		r = begin_anew(s, next);
	if (r < 0 || s->is_void)
		return r;
	if (pwrite(s->fd, &rec, sizeof(rec), (off_t)(sizeof(s->head) + s->n * sizeof(rec))) != (ssize_t)sizeof(rec))
		return make_void(s);
	s->n++;
	return 0;
}

void sent_close(struct sent *s)
{
	sent_forget(s);
	s->fd = fd_close(s->fd);
}
