/* SPDX-License-Identifier: MIT */
#include "daemon/store/hostid.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/store/dir.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define FILE_NAME    "host-id"
#define FILE_MAX     1024u
#define MACHINE_FILE "/etc/machine-id"

bool hostid_is_valid(const char *host)
{
	size_t n = strlen(host);

	return n == HOSTID_LEN && strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

static int read_line(struct hostid *h, const char *line)
{
	if (str_starts(line, "host="))
		(void)str_copy(h->host, sizeof(h->host), line + 5);
	else if (str_starts(line, "seq="))
		return str_u64(line + 4, strlen(line + 4), INT64_MAX / 2, &h->reserved);
	else if (str_starts(line, "mark="))
		return str_u64(line + 5, strlen(line + 5), INT64_MAX / 2, &h->mark);
	else if (str_starts(line, "machine="))
		(void)str_copy(h->machine, sizeof(h->machine), line + 8);
	else if (str_starts(line, "place="))
		(void)str_copy(h->place, sizeof(h->place), line + 6);
	return 0;
}

/* The file has lines "key=value". Unknown keys are ignored, as later versions may add some. */
int hostid_read(struct state_dir *dir, struct hostid *ret)
{
	char *text, *save, *line;
	struct hostid h = { 0 };
	size_t n;
	int r;

	r = fd_read_file(dir->fd, FILE_NAME, FILE_MAX, &text, &n);
	if (r < 0)
		return r == -EFBIG ? -EBADMSG : r;
	for (save = text; (line = strsep(&save, "\n")) && !r;)
		r = read_line(&h, line);
	free(text);
	if (r < 0 || !hostid_is_valid(h.host))
		return -EBADMSG;
	*ret = h;
	return 0;
}

int hostid_write(struct state_dir *dir, const struct hostid *id)
{
	char text[FILE_MAX];
	int n = snprintf(text, sizeof(text), "host=%s\nseq=%llu\nmark=%llu\nmachine=%s\nplace=%s\n", id->host,
			 (unsigned long long)id->reserved, (unsigned long long)id->mark, id->machine,
			 id->place);

	return fd_write_file(dir->fd, FILE_NAME, text, (size_t)n, 0600);
}

/* The directory's inode number and birth time: a copy has others. On a network file system they say
 * nothing. */
static void here_place(const struct state_dir *dir, char *ret, size_t size)
{
	struct statx st;

	ret[0] = 0;
	if (dir->network_fs || statx(dir->fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0 ||
	    !(st.stx_mask & STATX_BTIME))
		return;
	snprintf(ret, size, "%llu.%lld.%09u", (unsigned long long)st.stx_ino, (long long)st.stx_btime.tv_sec,
		 st.stx_btime.tv_nsec);
}

void hostid_here(const struct state_dir *dir, struct hostid *ret)
{
	char *text;
	size_t n;

	*ret = (struct hostid){ 0 };
	here_place(dir, ret->place, sizeof(ret->place));
	if (fd_read_file(AT_FDCWD, MACHINE_FILE, FILE_MAX, &text, NULL) < 0)
		return;
	n = strspn(text, "0123456789abcdef");
	if (n == 32) {
		text[n] = 0;
		(void)str_copy(ret->machine, sizeof(ret->machine), text);
	}
	free(text);
}

static bool differ(const char *a, const char *b)
{
	return a[0] && b[0] && !str_eq(a, b);
}

bool hostid_is_elsewhere(const struct hostid *file, const struct hostid *here)
{
	return differ(file->machine, here->machine) || differ(file->place, here->place);
}
