/* SPDX-License-Identifier: MIT */
/*
 * Named crash points. FAILPOINT("create.after_send") costs nothing in the shipped build; in the
 * variant compiled with -DAB_FAILPOINTS it does what AGENTBOXD_FAILPOINT asks for that name:
 *     NAME=kill      SIGKILL to ourselves     NAME=stop    SIGSTOP
 *     NAME=kill@3    … at the third passing   several are separated by ';'
 */
#ifndef AB_DAEMON_COMMON_OBS_FAILPOINT_H
#define AB_DAEMON_COMMON_OBS_FAILPOINT_H

#ifdef AB_FAILPOINTS
void failpoint_hit(const char *name);
#define FAILPOINT(name) failpoint_hit(name)
#else
#define FAILPOINT(name) ((void)0)
#endif

#endif
