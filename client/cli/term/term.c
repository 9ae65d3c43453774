/* SPDX-License-Identifier: MIT */
#include "client/cli/term/term.h"

#include <sys/ioctl.h>
#include <unistd.h>

void term_size(uint32_t *ret_cols, uint32_t *ret_rows)
{
	struct winsize ws;

	*ret_cols = 80;
	*ret_rows = 24;
	if ((ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 || ioctl(STDIN_FILENO, TIOCGWINSZ, &ws) == 0) &&
	    ws.ws_col && ws.ws_row) {
		*ret_cols = ws.ws_col;
		*ret_rows = ws.ws_row;
	}
}

void term_set_raw(struct term *t)
{
	struct termios raw;

	if (t->raw || tcgetattr(STDIN_FILENO, &t->saved) < 0)
		return;
	raw = t->saved;
	cfmakeraw(&raw);
	t->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

void term_restore(struct term *t)
{
	if (t->raw)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->saved);
	t->raw = false;
}
