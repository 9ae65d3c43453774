/* SPDX-License-Identifier: MIT */
#include "daemon/store/hostid.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/dir.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define FILE_NAME "host-id"
#define FILE_MAX  256u

bool hostid_is_valid(const char *host)
{
	size_t n = strlen(host);

	return n == HOSTID_LEN && strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

/* Two lines: "host=…" and "seq=…"; later versions may add lines. */
int hostid_read(struct state_dir *dir, struct hostid *ret)
{
	char *text, *save, *line;
	struct hostid h = { 0 };
	size_t n;
	int r;

	r = fd_read_file(dir->fd, FILE_NAME, FILE_MAX, &text, &n);
	if (r < 0)
		return r == -EFBIG ? -EBADMSG : r;
	for (save = text; (line = strsep(&save, "\n"));) {
		if (str_starts(line, "host="))
			(void)str_copy(h.host, sizeof(h.host), line + 5);
		else if (str_starts(line, "seq="))
			r = str_u64(line + 4, strlen(line + 4), INT64_MAX / 2, &h.reserved);
	}
	free(text);
	if (r < 0 || !hostid_is_valid(h.host))
		return -EBADMSG;
	h.next = h.reserved + 1;
	*ret = h;
	return 0;
}

int hostid_write(struct state_dir *dir, const char *host, uint64_t reserved)
{
	char text[FILE_MAX];
	int n = snprintf(text, sizeof(text), "host=%s\nseq=%llu\n", host,
			 (unsigned long long)reserved);

	return fd_write_file(dir->fd, FILE_NAME, text, (size_t)n, 0600);
}
