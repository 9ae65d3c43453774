/* SPDX-License-Identifier: MIT */
/* A list of strings as the text of a row: each string ends with a line feed, and must not contain one. [pure] */
#ifndef AB_DAEMON_SANDBOX_LINES_H
#define AB_DAEMON_SANDBOX_LINES_H

#include "proto/base/cc.h"

struct cloud_strs;

/* Heap; NULL without memory. */
char *lines_join(const struct cloud_strs *l);
/* Appends the strings to *ret. -ENOMEM. */
must_check int lines_split(struct cloud_strs *ret, const char *text);

#endif
