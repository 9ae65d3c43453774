/* SPDX-License-Identifier: MIT */
/*
 * How much may be held, and how many may come, by the configuration: for the parts that are made at the start, and for those that run
 * when another configuration is taken up.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/main/app_impl.h"
#include "daemon/rpc/admit.h"
#include "proto/base/str.h"

static uint64_t limit_of(const struct conf *c, const char *section, const char *key)
{
	return conf_get_number(c, section, NULL, key);
}

void app_limits_of_commands(const struct conf *c, struct commands_limits *ret)
{
	*ret = (struct commands_limits){ .kill_grace_ms = limit_of(c, "daemon", "kill_grace"),
					 .spool_per_command = limit_of(c, "spool", "per_command"),
					 .spool_per_uid = limit_of(c, "spool", "per_uid"),
					 .spool_total = limit_of(c, "spool", "total") };
}

void app_limits_of_gateway(const struct conf *c, struct gateway_limits *ret)
{
	*ret = (struct gateway_limits){ .max_connections = (uint32_t)limit_of(c, "gateway", "max_connections"),
					.max_streams = (uint32_t)limit_of(c, "gateway", "max_streams"),
					.conn_max = limit_of(c, "daemon", "max_memory_per_connection") };
}

uint64_t app_limits_of_cloud(const struct conf *c)
{
	return limit_of(c, "pool", "memory");
}

/* A uid's own value of a key of [uid], or that of [uid *]. */
static uint64_t of_uid(const struct conf *c, const char *instance, const char *key)
{
	return conf_get_number(c, "uid", app_uid_section(c, instance, key), key);
}

int app_uid_limits_read(const struct conf *c, struct app_uid_limits *ret)
{
	size_t n = conf_n_instances(c, "uid");
	uint64_t any = conf_get_number(c, "uid", "*", "max_memory");
	struct uid_quota_limit *memory = calloc(n + 1, sizeof(*memory));
	struct admit_uid_limit *streams = calloc(n + 1, sizeof(*streams));

	*ret = (struct app_uid_limits){
		.memory = memory,
		.all_memory = { .max = limit_of(c, "daemon", "max_memory"),
				.max_per_uid = any ? any : limit_of(c, "daemon", "max_memory_per_uid") },
		.rpc = { .max_streams = (uint32_t)conf_get_number(c, "uid", "*", "max_streams"), .uids = streams,
			 .conn_max = limit_of(c, "daemon", "max_memory_per_connection") },
	};
	if (!memory || !streams) {
		app_uid_limits_free(ret);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		const char *name = conf_instance(c, "uid", i);
		uint64_t max;

		if (str_eq(name, "*"))
			continue;
		max = of_uid(c, name, "max_memory");
		if (max)
			memory[ret->n_memory++] = (struct uid_quota_limit){ .uid = app_uid_of(c, name), .max = max };
		streams[ret->rpc.n_uids++] =
			(struct admit_uid_limit){ .uid = app_uid_of(c, name), .streams = (uint32_t)of_uid(c, name, "max_streams") };
	}
	return 0;
}

void app_uid_limits_free(struct app_uid_limits *l)
{
	free(l->memory);
	free((void *)l->rpc.uids);
	*l = (struct app_uid_limits){ 0 };
}

int app_uid_limits_reserve(struct app *a, const struct app_uid_limits *l)
{
	int r = 0;

	for (size_t i = 0; !r && i < l->n_memory; i++)
		r = uid_quotas_reserve(a->quotas, l->memory[i].uid);
	return !r && a->server ? rpc_server_reserve(a->server, &l->rpc) : r;
}

void app_limits_take(struct app *a, const struct app_uid_limits *l)
{
	struct commands_limits commands;
	struct gateway_limits gateway;

	uid_quotas_set(a->quotas, &l->all_memory, l->memory, l->n_memory);
	rpc_server_set_limits(a->server, &l->rpc);
	app_limits_of_commands(a->conf, &commands);
	commands_set_limits(a->commands, &commands);
	app_limits_of_gateway(a->conf, &gateway);
	gateway_set_limits(a->gateway, &gateway);
	quota_set_max(a->cloud_quota, app_limits_of_cloud(a->conf), 0);
	for (size_t i = 0; i < a->n_accounts; i++)
		cloud_size_memory(a->accounts[i].cloud);
	pool_set_limits(a->pool, (uint32_t)limit_of(a->conf, "pool", "max_connections"), (uint32_t)limit_of(a->conf, "pool", "idle"));
}
