/* SPDX-License-Identifier: MIT */
#include "daemon/store/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/impl.h"
#include "proto/base/buf.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define FILE_MAX_BYTES (64u * 1024 * 1024)
#define MARK	       "claim1"
#define FIELDS	       9

/* --- a line --- */

static bool is_field(const char *s)
{
	return !s || !strpbrk(s, "\t\n");
}

static const char *text(const char *s)
{
	return s ? s : "";
}

int claim_format(const struct store_claim *c, struct buf *b)
{
	char hash[ROW_HASH_BYTES * 2 + 1];

	if (!is_field(c->account) || !is_field(c->sandbox) || !is_field(c->name) || !is_field(c->request_id) ||
	    !is_field(c->policy))
		return -EINVAL;
	str_hex(c->params_hash, ROW_HASH_BYTES, hash);
	return buf_printf(b, MARK "\t%s\t%s\t%u\t%lld\t%s\t%s\t%s\t%s\n", c->account, c->sandbox, c->uid, (long long)c->at_ms,
			  text(c->name), text(c->request_id), hash, text(c->policy));
}

static bool hash_from(const char *hex, uint8_t ret[ROW_HASH_BYTES])
{
	if (strlen(hex) != ROW_HASH_BYTES * 2)
		return false;
	for (size_t i = 0; i < ROW_HASH_BYTES; i++) {
		int hi = str_hex_value(hex[2 * i]), lo = str_hex_value(hex[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return false;
		ret[i] = (uint8_t)(hi << 4 | lo);
	}
	return true;
}

bool claim_parse(char *line, struct store_claim *ret)
{
	char *f[FIELDS], *rest = line;
	uint64_t uid, at;
	size_t n = 0;

	while (n < FIELDS && (f[n] = strsep(&rest, "\t")))
		n++;
	if (n < FIELDS || rest || !str_eq(f[0], MARK) || !f[1][0] || !f[2][0] ||
	    str_u64(f[3], strlen(f[3]), ROW_UID_MAX, &uid) < 0 || str_u64(f[4], strlen(f[4]), ROW_MOMENT_MAX, &at) < 0)
		return false;
	*ret = (struct store_claim){ .account = f[1], .sandbox = f[2], .uid = (uid_t)uid, .at_ms = (int64_t)at,
				     .name = f[5], .request_id = f[6], .policy = f[8] };
	return hash_from(f[7], ret->params_hash);
}

/* --- the file --- */

/* Ends a last line that a crash left incomplete, so that the next one begins on a line of its own. */
static int end_the_last_line(int fd)
{
	struct stat st;
	char last;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!st.st_size)
		return 0;
	if (pread(fd, &last, 1, st.st_size - 1) != 1)
		return -EIO;
	return last == '\n' ? 0 : fd_write_all(fd, "\n", 1);
}

static int open_claims(struct state_dir *dir, int *fd)
{
	struct stat st;
	int r;

	if (*fd >= 0 && fstat(*fd, &st) == 0 && st.st_nlink)
		return 0;
	*fd = fd_close(*fd);
	*fd = openat(dir->fd, CLAIMS_FILE, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (*fd < 0)
		return -errno;
	r = end_the_last_line(*fd);
	return r < 0 ? r : fsync(dir->fd) < 0 ? -errno : 0;
}

int claims_append(struct state_dir *dir, int *fd, const void *p, size_t n)
{
	int r = open_claims(dir, fd);

	if (!r)
		r = fd_write_all(*fd, p, n);
	if (!r && fdatasync(*fd) < 0)
		r = -errno;
	/* The next call opens the file again, and ends a line that was written in part. */
	if (r < 0)
		*fd = fd_close(*fd);
	return r;
}

int claims_replace(struct state_dir *dir, int *fd, const void *p, size_t n)
{
	*fd = fd_close(*fd);
	return fd_write_file(dir->fd, CLAIMS_FILE, p, n, 0600);
}

int store_load_claims(struct store *s, store_claim_fn *fn, void *user)
{
	char *all, *rest, *line;
	struct store_claim c;
	int r = fd_read_file(s->dir.fd, CLAIMS_FILE, FILE_MAX_BYTES, &all, NULL);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	/* Text behind the last line feed is torn, and ignored. */
	for (rest = all; (line = strsep(&rest, "\n")) && rest;)
		if (claim_parse(line, &c))
			fn(&c, user);
	free(all);
	return 0;
}
