/* SPDX-License-Identifier: MIT */
/* The gateway's lines of the audit (daemon/auth/audit.h). */
#ifndef AB_DAEMON_GATEWAY_AUDIT_H
#define AB_DAEMON_GATEWAY_AUDIT_H

#include "daemon/gateway/control.h"
#include "daemon/gateway/relay_impl.h"

/* Before it is answered, or its client's exchange is given away. */
void gateway_audit_control(const struct gateway_control *c, const char *result);
/* Of one that was opened. */
void gateway_audit_relay(const struct gateway_relay *rl);

/* Does a call of the agent by this method and path only read, or go on with a command that it has? [pure] */
bool gateway_audit_reads(const char *method, const char *path);

#endif
