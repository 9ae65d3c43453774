/* SPDX-License-Identifier: MIT */
/*
 * The audit: one line of the log for each call that changes something, at info, and for each that reads, at debug. No line is left out for
 * its number. Nothing of a call's content is in it but the names of what it is about.
 */
#ifndef AB_DAEMON_AUTH_AUDIT_H
#define AB_DAEMON_AUTH_AUDIT_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/auth/principal.h"
#include "proto/base/cc.h"

#define AUDIT_COMM_BYTES 20u
#define AUDIT_UNIT_BYTES 128u

/* What /proc says of a process, read once. Its name is its own word, and believed by nobody. */
struct audit_process {
	bool is_read;
	char comm[AUDIT_COMM_BYTES];
	char unit[AUDIT_UNIT_BYTES];	/* "" = none, or it is not known */
};

struct audit_line {
	uid_t uid;
	const char *user;
	pid_t pid;			/* 0 = not known */
	const struct audit_process *process;	/* NULL = not known */
	const char *call;		/* "/agentbox.v1.SandboxService/Create", "POST /sandboxes" */
	const char *result;		/* "OK", a reason, an HTTP status */
	const char *sandbox, *object, *request_id;	/* "" = none */
	const char *trace;	/* id of the work that it is a part of; "" = none */
	bool is_change;
};

/* Is there a reader for such a line? */
bool audit_is_on(bool is_change);
void audit_log(const struct audit_line *l);
/* Reads it if that was not done. What ended meanwhile says nothing. */
void audit_process_read(struct audit_process *p, const struct principal *who);

/* The unit of /proc/PID/cgroup: the last service or scope of the path in systemd's hierarchy. "" = none. [pure] */
void audit_unit_of(const char *cgroup, char ret[AUDIT_UNIT_BYTES]);

#endif
