/* SPDX-License-Identifier: MIT */
/* A sum over a text that only who has the key can make. [pure] */
#ifndef AB_DAEMON_GATEWAY_KEYED_SUM_H
#define AB_DAEMON_GATEWAY_KEYED_SUM_H

#include <stddef.h>
#include <stdint.h>

#define KEYED_SUM_KEY	32u	/* bytes */
#define KEYED_SUM_TEXT	65u	/* hex digits and the end */
#define KEYED_SUM_MAX	256u	/* bytes of a text; the caller has checked it */

void keyed_sum(const uint8_t key[KEYED_SUM_KEY], const void *p, size_t n, char ret[KEYED_SUM_TEXT]);

#endif
