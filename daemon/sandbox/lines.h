/* SPDX-License-Identifier: MIT */
/* A list of strings as a row holds it: each ends with a line feed, which none of them contains. [pure] */
#ifndef AB_DAEMON_SANDBOX_LINES_H
#define AB_DAEMON_SANDBOX_LINES_H

#include "proto/base/cc.h"

struct cloud_strs;

/* Heap; NULL without memory. */
char *lines_join(const struct cloud_strs *l);
/* Appends them. -ENOMEM. */
must_check int lines_split(struct cloud_strs *ret, const char *text);

#endif
