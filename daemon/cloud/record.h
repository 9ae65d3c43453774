/* SPDX-License-Identifier: MIT */
/*
 * Parses what find prints about a file in a sandbox. A record is nine words, each with a NUL behind it; it is untrusted, as it comes
 * from the sandbox.
 */
#ifndef AB_DAEMON_CLOUD_RECORD_H
#define AB_DAEMON_CLOUD_RECORD_H

#include "daemon/cloud/envd.h"

/* For find -printf, in a C string: type, type of what a link leads to, size, mode, owner, group, time, link, path below the start. */
#define RECORD_FORMAT	 "%y\\0%Y\\0%s\\0%m\\0%u\\0%g\\0%T@\\0%l\\0%P\\0"
#define RECORD_WORDS	 9u
#define RECORD_MAX_BYTES (32u * 1024)

/* The first `words` words, in place; false if they are not all there. *ret_n: their bytes. */
bool record_split(const uint8_t *p, size_t n, size_t words, const char *ret[], size_t *ret_n);
/* base: where find began, without a slash at its end. -EBADMSG, -ENOMEM. */
must_check int record_entry(const char *base, const char *const w[RECORD_WORDS], struct envd_entry *ret);

#endif
