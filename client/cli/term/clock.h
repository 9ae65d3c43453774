/* SPDX-License-Identifier: MIT */
/* The time. */
#ifndef AB_CLIENT_CLI_TERM_CLOCK_H
#define AB_CLIENT_CLI_TERM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

int64_t cli_wall_ms(void);	/* since 1970 */
/* "10m" (ago) or "2026-01-31T23:59:00Z" as ms since 1970, at least 1. False: neither. */
bool cli_since_ms(const char *text, int64_t *ret_ms);
int64_t cli_boot_ms(void);	/* goes on in suspend, never jumps */

#endif
