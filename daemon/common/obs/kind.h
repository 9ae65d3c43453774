/* SPDX-License-Identifier: MIT */
/* The table of the log's kinds, kinds.def: numbered in the order of their names. */
#ifndef AB_DAEMON_COMMON_OBS_KIND_H
#define AB_DAEMON_COMMON_OBS_KIND_H

#include "proto/base/cc.h"

enum log_kind {
#define KIND(name, id, subject, text) LOG_KIND_##name,
#include "daemon/common/obs/kinds.def"
#undef KIND
	LOG_KINDS,	/* how many there are, and the number of one that is not in the table: debugging, tests */
};

enum log_kind log_kind_find(const char *name);
const char *log_kind_name(enum log_kind kind);
/* MESSAGE_ID: 32 digits; NULL for LOG_KINDS. */
const char *log_kind_id(enum log_kind kind);

#endif
