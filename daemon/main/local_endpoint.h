/* SPDX-License-Identifier: MIT */
/* What the folder of an agentbox-local says of it: who holds its lock, and where that one listens. */
#ifndef AB_DAEMON_MAIN_LOCAL_ENDPOINT_H
#define AB_DAEMON_MAIN_LOCAL_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/cc.h"

#define LOCAL_ENDPOINT_MAX_BYTES 4096u

struct local_endpoint {
	pid_t pid;
	uint16_t port, plain_port;	/* plain_port 0: it has no plain listener */
	char *ca_file, *key_file;
	char url[64];			/* "https://localhost:PORT" */
	char address[64];		/* "127.0.0.1:PORT" */
	char domain[64];		/* "localhost:PORT", of the plain listener where there is one */
};

/* One line of JSON, as it stands in DIR/endpoint and comes from --ready-fd. -EPROTO, -ENOMEM; *ret untouched. */
must_check int local_endpoint_parse(const char *text, struct local_endpoint *ret);
must_check int local_endpoint_read(const char *dir, struct local_endpoint *ret);
void local_endpoint_fini(struct local_endpoint *e);

/* The process that holds DIR/lock, which is the proof that it lives; 0 = nobody. -ESRCH: one that cannot be seen from here,
 * in another PID namespace. */
must_check int local_endpoint_holder(const char *dir, pid_t *ret);

#endif
