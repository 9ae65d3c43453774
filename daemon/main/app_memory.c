/* SPDX-License-Identifier: MIT */
/*
 * The memory that may be held for clients and for the cloud's answers, by the configuration; and giving back to the
 * machine what is free again. The heap gives back by itself only what lies at its end: one small block there keeps all that
 * was freed below it.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/main/app_impl.h"
#include "daemon/common/obs/log.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* Freed since the heap was looked through the last time; less is not worth the walk. */
#define TRIM_BYTES (2u << 20)

int app_memory_new(struct app *a)
{
	struct quota_options cloud = { .name = "the cloud", .max = app_limits_of_cloud(a->conf) };
	struct app_uid_limits limits;
	int r = app_uid_limits_read(a->conf, &limits);

	if (r < 0)
		return r;
	a->quotas = uid_quotas_new(&limits.all_memory);
	a->cloud_quota = quota_new(&cloud);
	r = a->quotas && a->cloud_quota ? app_uid_limits_reserve(a, &limits) : -ENOMEM;
	if (!r)
		uid_quotas_set(a->quotas, &limits.all_memory, limits.memory, limits.n_memory);
	app_uid_limits_free(&limits);
	return r;
}

void app_memory_free(struct app *a)
{
	a->quotas = uid_quotas_free(a->quotas);
	a->cloud_quota = quota_unref(a->cloud_quota);
}

void app_memory_tick(struct app *a)
{
	struct quota *clients = uid_quotas_all(a->quotas);
	uint64_t used = quota_used(clients) + quota_used(a->cloud_quota);
	uint64_t peak = quota_take_peak(clients) + quota_take_peak(a->cloud_quota);

	a->peak_bytes = MAX(a->peak_bytes, peak);
	if (a->peak_bytes - used < TRIM_BYTES)
		return;
	(void)malloc_trim(0);
	log_debug("memory_trimmed", "peak=%llu used=%llu", (unsigned long long)a->peak_bytes, (unsigned long long)used);
	a->peak_bytes = used;
}

void app_memory_collect(const struct app *a, uid_t uid, struct daemon_memory *ret)
{
	const struct quota *all = uid_quotas_all(a->quotas);
	struct rpc_counts counts;

	rpc_server_count(a->server, (uid_t)-1, &counts);
	*ret = (struct daemon_memory){
		.client_bytes = quota_used(all), .max_client_bytes = quota_max(all),
		.cloud_bytes = quota_used(a->cloud_quota), .max_cloud_bytes = quota_max(a->cloud_quota),
		.refused_calls = counts.refused_total, .closed_connections = counts.closed_total,
	};
	uid_quota_read(a->quotas, uid, &ret->uid_bytes, &ret->max_uid_bytes);
}
