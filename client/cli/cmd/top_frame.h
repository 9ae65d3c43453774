/* SPDX-License-Identifier: MIT */
/* One picture of `agentboxctl top`, as lines of text: pure, so that it is the same on a terminal and in a test. */
#ifndef AB_CLIENT_CLI_CMD_TOP_FRAME_H
#define AB_CLIENT_CLI_CMD_TOP_FRAME_H

#include <stdio.h>

#include "client/cli/term/cli.h"

enum top_sort { TOP_BY_USE, TOP_BY_AGE, TOP_BY_END, TOP_BY_NAME, TOP_BY_STATE, TOP_SORTS };

/* What is counted since the start, of which rates are made. */
struct top_counters {
	uint64_t cloud_calls, gateway_requests, refused;
	int64_t at_ms;			/* boot time; 0 = not read yet */
};

struct top_view {
	const struct ab_daemon_status *status;	/* NULL: not read yet */
	const struct ab_sandbox *const *v;	/* sorted */
	size_t n;
	struct top_counters now, before;
	enum top_sort sort;
	size_t selected, first;		/* rows of v: which is marked, and which is the top one */
	const char *line;		/* a question, or what came of the last key; "" = none */
	const char *error;		/* why nothing new comes; "" = it does */
	int64_t wall_ms;
	uint32_t cols, rows;		/* rows 0: as many as there are */
	bool escapes;			/* marks and clears by escapes of a terminal */
};

const char *top_sort_name(enum top_sort s);
bool top_sort_parse(const char *name, enum top_sort *ret);
/* For qsort_r: `user` points to an enum top_sort. */
int top_compare(const void *a, const void *b, void *user);
/* How many sandboxes the picture has room for. */
size_t top_room(const struct top_view *t);
void top_print(FILE *f, const struct top_view *t);

#endif
