/* SPDX-License-Identifier: MIT */
/* The lists of a StatusResponse: what is degraded, the clouds with their limits, the pool with its connections. */
#ifndef AB_DAEMON_RPC_STATUS_ROWS_H
#define AB_DAEMON_RPC_STATUS_ROWS_H

#include "daemon/rpc/svc_daemon.h"
#include "proto/gen/agentbox_daemon.pb-c.h"

struct status_rows;

/* Room for the rows of `f`; NULL without memory. */
struct status_rows *status_rows_new(const struct daemon_facts *f);
/* Once. Points `m` at rows that live as long as `r` and the facts. */
void status_rows_fill(struct status_rows *r, const struct daemon_facts *f, Agentbox__V1__StatusResponse *m);
/* NULL is fine; returns NULL. */
struct status_rows *status_rows_free(struct status_rows *r);

#endif
