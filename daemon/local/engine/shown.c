/* SPDX-License-Identifier: MIT */
#include "daemon/local/engine/shown.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KIB 1024u

size_t shown_meminfo(uint64_t total, uint64_t used, uint64_t cache, char ret[SHOWN_MEMINFO_MAX])
{
	uint64_t in_use = MIN(used, total), cached = MIN(cache, in_use), free_bytes = total - in_use;
	const struct {
		const char *name;
		uint64_t bytes;
	} rows[] = {
		{ "MemTotal:", total },	     { "MemFree:", free_bytes },     { "MemAvailable:", free_bytes + cached },
		{ "Buffers:", 0 },	     { "Cached:", cached },	     { "SwapCached:", 0 },
		{ "Active:", in_use - cached }, { "Inactive:", cached },     { "SwapTotal:", 0 },
		{ "SwapFree:", 0 },	     { "Dirty:", 0 },		     { "Writeback:", 0 },
		{ "AnonPages:", in_use - cached }, { "Mapped:", 0 },	     { "Shmem:", 0 },
		{ "Slab:", 0 },		     { "SReclaimable:", 0 },	     { "SUnreclaim:", 0 },
	};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		n += (size_t)snprintf(ret + n, SHOWN_MEMINFO_MAX - n, "%-15s %12" PRIu64 " kB\n", rows[i].name,
				      rows[i].bytes / KIB);
	return n;
}

size_t shown_cpuinfo(const char *text, size_t len, uint32_t n)
{
	const char *s = text;

	for (uint32_t i = 0; i < n && s < text + len; i++) {
		const char *end = memmem(s, (size_t)(text + len - s), "\n\n", 2);

		s = end ? end + 2 : text + len;
	}
	return (size_t)(s - text);
}
