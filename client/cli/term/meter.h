/* SPDX-License-Identifier: MIT */
/* The progress bar: drawn at the beat of a timer, wiped at the end. */
#ifndef AB_CLIENT_CLI_TERM_METER_H
#define AB_CLIENT_CLI_TERM_METER_H

#include <stdbool.h>
#include <stdint.h>

struct meter {
	int fd;			/* timer, for poll(); -1: no progress is shown */
	uint64_t beats;
};

void meter_open(struct meter *m, bool show);
/* When fd is readable. total 0 = not known. */
void meter_draw(struct meter *m, const char *label, uint64_t bytes, uint64_t total);
void meter_close(struct meter *m);

#endif
