/* SPDX-License-Identifier: MIT */
/* The input half of a command. Private to proc.c and proc_input.c. */
#ifndef AB_DAEMON_LOCAL_AGENT_PROC_INPUT_H
#define AB_DAEMON_LOCAL_AGENT_PROC_INPUT_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct proc;

/* fd -1: it has none. A shared one is duplicated, else it is taken. */
must_check int proc_input_open(struct proc *p, int fd, bool shared);
/* Nothing can be written any more: what waits fails with -EPIPE. */
void proc_input_close(struct proc *p);

#endif
