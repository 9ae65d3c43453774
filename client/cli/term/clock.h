/* SPDX-License-Identifier: MIT */
/* The time. */
#ifndef AB_CLIENT_CLI_TERM_CLOCK_H
#define AB_CLIENT_CLI_TERM_CLOCK_H

#include <stdint.h>

int64_t cli_wall_ms(void);	/* since 1970 */
int64_t cli_boot_ms(void);	/* goes on in suspend, never jumps */

#endif
