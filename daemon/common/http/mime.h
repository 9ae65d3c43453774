/* SPDX-License-Identifier: MIT */
/* Content types of files, by the end of the name, else by their first bytes. Pure. */
#ifndef AB_DAEMON_COMMON_HTTP_MIME_H
#define AB_DAEMON_COMMON_HTTP_MIME_H

#include "proto/base/cc.h"

#define MIME_SNIFF_BYTES 512u

const char *mime_type(const char *name, const uint8_t *head, size_t n);

#endif
