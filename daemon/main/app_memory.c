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

static int set_uids(struct app *a)
{
	int r = 0;

	for (size_t i = 0; !r && i < conf_n_instances(a->conf, "uid"); i++) {
		const char *name = conf_instance(a->conf, "uid", i);
		uint64_t max = conf_get_number(a->conf, "uid", app_uid_section(a->conf, name, "max_memory"), "max_memory");

		if (max && !str_eq(name, "*"))
			r = uid_quotas_set(a->quotas, app_uid_of(a->conf, name), max);
	}
	return r;
}

int app_memory_new(struct app *a)
{
	struct uid_quotas_options o = {
		.max = conf_get_number(a->conf, "daemon", NULL, "max_memory"),
		.max_per_uid = conf_get_number(a->conf, "daemon", NULL, "max_memory_per_uid"),
	};
	uint64_t any = conf_get_number(a->conf, "uid", "*", "max_memory");
	struct quota_options cloud = { .name = "the cloud", .max = conf_get_number(a->conf, "pool", NULL, "memory") };

	if (any)
		o.max_per_uid = any;
	a->quotas = uid_quotas_new(&o);
	a->cloud_quota = quota_new(&cloud);
	if (!a->quotas || !a->cloud_quota || set_uids(a) < 0)
		return -ENOMEM;
	return 0;
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
