/* SPDX-License-Identifier: MIT */
/*
 * HTML with texts of others in it: what is not written by html_put() is escaped. Pure. Out of memory, or over the buffer's maximum, is
 * remembered in `failed`, and looked at once, at the end.
 */
#ifndef AB_DAEMON_COMMON_HTTP_HTML_H
#define AB_DAEMON_COMMON_HTTP_HTML_H

#include <stdbool.h>

#include "proto/base/buf.h"

struct html {
	struct buf b;
	bool failed;
};

/* Markup of ours, as it is. */
void html_put(struct html *h, const char *markup);
/* For the content of an element, or of an attribute in quotes. What is not UTF-8, and what moves or turns the text around it (control
 * characters, marks of direction), is U+FFFD; a line feed and a tab stay. */
void html_text(struct html *h, const void *p, size_t n);
void html_str(struct html *h, const char *s);	/* the same of a string; NULL = "" */
void html_move(struct html *h, struct html *from);	/* at its end; `from` is empty then */
void html_number(struct html *h, uint64_t n);
/* <time> in UTC, to the second; 0 = "–". */
void html_moment(struct html *h, int64_t wall_ms);
/* 1234567 = "1.2 MB" */
void html_size(struct html *h, uint64_t bytes);

#endif
