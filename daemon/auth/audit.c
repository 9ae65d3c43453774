/* SPDX-License-Identifier: MIT */
#include "daemon/auth/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/process.h"
#include "daemon/common/obs/log.h"
#include "proto/base/str.h"

bool audit_is_on(bool is_change)
{
	return log_is_on(is_change ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG);
}

static const char *or_none(const char *s)
{
	return s && s[0] ? log_q(s) : "-";
}

void audit_log(const struct audit_line *l)
{
	const struct audit_process *p = l->process;

	log_event(l->is_change ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "audit",
		  "uid=%d user=%s pid=%d call=%s result=%s sandbox=%s object=%s request_id=%s comm=%s unit=%s trace=%s", (int)l->uid,
		  or_none(l->user), (int)l->pid, log_q(l->call), l->result, or_none(l->sandbox), or_none(l->object),
		  or_none(l->request_id), or_none(p ? p->comm : NULL), or_none(p ? p->unit : NULL),
		  or_none(l->trace));
}

/* --- the process --- */

static bool is_unit(const char *s, size_t n)
{
	static const char *const ends[] = { ".service", ".scope" };

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (n > strlen(ends[i]) && !memcmp(s + n - strlen(ends[i]), ends[i], strlen(ends[i])))
			return n < AUDIT_UNIT_BYTES;
	return false;
}

static void last_unit(const char *path, size_t n, char ret[AUDIT_UNIT_BYTES])
{
	for (size_t at = 0; at < n;) {
		size_t len = strcspn(path + at, "/\n");

		len = MIN(len, n - at);
		if (is_unit(path + at, len)) {
			memcpy(ret, path + at, len);
			ret[len] = '\0';
		}
		at += len + 1;
	}
}

void audit_unit_of(const char *cgroup, char ret[AUDIT_UNIT_BYTES])
{
	ret[0] = '\0';
	for (const char *line = cgroup; *line && !ret[0];) {
		size_t n = strcspn(line, "\n");
		const char *names = memchr(line, ':', n);
		const char *path = names ? memchr(names + 1, ':', n - (size_t)(names + 1 - line)) : NULL;

		if (path && (str_starts(line, "0::") || str_starts(names, ":name=systemd:")))
			last_unit(path + 1, n - (size_t)(path + 1 - line), ret);
		line += n + (line[n] == '\n');
	}
}

void audit_process_read(struct audit_process *p, const struct principal *who)
{
	char *comm, *cgroup;

	if (p->is_read || who->pid <= 0)
		return;
	p->is_read = true;
	comm = process_read(who->pid, "comm");
	cgroup = process_read(who->pid, "cgroup");
	if (comm && cgroup && who->pidfd >= 0 && !process_has_ended(who->pidfd)) {
		snprintf(p->comm, sizeof(p->comm), "%.*s", (int)MAX(strlen(comm), (size_t)1) - 1, comm);	/* its end is a line's */
		audit_unit_of(cgroup, p->unit);
	}
	free(comm);
	free(cgroup);
}
