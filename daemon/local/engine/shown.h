/* SPDX-License-Identifier: MIT */
/*
 * What files of a sandbox's /proc say instead of the kernel's, which speak of the whole machine. Pure.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_SHOWN_H
#define AB_DAEMON_LOCAL_ENGINE_SHOWN_H

#include "proto/base/cc.h"

#define SHOWN_MEMINFO_MAX 1024u

/* /proc/meminfo of one that has `total` bytes and uses `used`, `cache` of them for files. Always of the same length,
 * which is returned, so that it can be written over while it is read. */
size_t shown_meminfo(uint64_t total, uint64_t used, uint64_t cache, char ret[SHOWN_MEMINFO_MAX]);
/* The length of the part of /proc/cpuinfo that describes the first `n` processors. */
size_t shown_cpuinfo(const char *text, size_t len, uint32_t n);

#endif
