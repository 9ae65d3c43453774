/* SPDX-License-Identifier: MIT */
/*
 * The access token of a sandbox that has none: its clients get one that is made here, shown to nobody but its owner, checked here and taken
 * off on the way. It follows from the daemon's secret and the sandbox's id, so nothing is kept for it. [pure]
 */
#ifndef AB_DAEMON_GATEWAY_MADE_TOKEN_H
#define AB_DAEMON_GATEWAY_MADE_TOKEN_H

#include <stdint.h>

#define MADE_TOKEN_SECRET 32u	/* bytes */
#define MADE_TOKEN_TEXT	  65u	/* hex digits, as the cloud's are, and the end */

/* secret NULL: "". */
void made_token(const uint8_t *secret, const char *sandbox, char ret[MADE_TOKEN_TEXT]);

#endif
