/* SPDX-License-Identifier: MIT */
/* The local terminal: its size, and raw mode that is always undone. */
#ifndef AB_CLIENT_CLI_TERM_TERM_H
#define AB_CLIENT_CLI_TERM_TERM_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

struct term {
	bool raw;
	struct termios saved;
};

/* Of the terminal on standard output or input; 80 by 24 without one. */
void term_size(uint32_t *ret_cols, uint32_t *ret_rows);
/* Standard input goes raw, if it is a terminal. */
void term_set_raw(struct term *t);
/* Does nothing if it is not raw. */
void term_restore(struct term *t);

#endif
