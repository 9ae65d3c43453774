/* SPDX-License-Identifier: MIT */
/* One write() a line, so a killed process leaves no torn one behind. */
#include "daemon/local/state/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define ROTATE_BYTES (64 * 1024 * 1024)

struct journal {
	int fd;
	uint64_t seq;
	bool complained;
};

int journal_open(const char *state_dir, struct journal **ret)
{
	char *path = str_printf("%s/journal.ndjson", state_dir);
	char *old = str_printf("%s/journal.ndjson.1", state_dir);
	struct journal *j = calloc(1, sizeof(*j));
	struct stat st;
	int r = 0;

	if (!path || !old || !j) {
		r = -ENOMEM;
		goto out;
	}
	if (!stat(path, &st) && st.st_size > ROTATE_BYTES && rename(path, old) < 0) {
		r = -errno;
		goto out;
	}
	j->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (j->fd < 0)
		r = -errno;
out:
	free(path);
	free(old);
	if (r < 0)
		free(j);
	else
		*ret = j;
	return r;
}

struct journal *journal_close(struct journal *j)
{
	if (j)
		fd_close(j->fd);
	free(j);
	return NULL;
}

static int write_line(struct journal *j, const char *op, json_t *fields)
{
	char time[40], *text = NULL, *line = NULL;
	json_auto_t *o = NULL;
	int r = -ENOMEM;

	str_rfc3339(clock_wall_ms() * 1000, 3, time);
	o = json_pack("{s:I, s:s, s:s}", "seq", (json_int_t)++j->seq, "time", time, "op", op);
	if (o && fields && !json_object_update_missing(o, fields))
		text = json_dumps(o, JSON_COMPACT);
	if (text)
		line = str_printf("%s\n", text);
	if (line)
		r = fd_write_all(j->fd, line, strlen(line));
	free(text);
	free(line);
	return r;
}

void journal_add(struct journal *j, const char *op, json_t *fields)
{
	int r = write_line(j, op, fields);

	json_decref(fields);
	if (r < 0 && !j->complained) {
		j->complained = true;
		log_warn("journal_incomplete", "error=%s", log_q(strerror(-r)));
	}
}
