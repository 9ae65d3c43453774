/* SPDX-License-Identifier: MIT */
/*
 * The memory of commands is charged to their uid, from the start of a command until it is forgotten. Commands may have a quarter
 * of the uid's memory before the oldest ended ones are forgotten; the indexes of their outputs may have half of it.
 */
#include <errno.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "proto/base/quota.h"

#define STRING_BYTES  24u	/* heap overhead of a string */
#define COMMAND_BYTES (sizeof(struct command) + 1024u)	/* with its spool and its timers */
#define ENDED_SHARE   4u
#define OUTPUT_SHARE  2u

int share_open_memory(struct uid_share *s, struct uid_quotas *quotas)
{
	struct quota_options o = { .name = "outputs" };

	if (!quotas)
		return 0;
	o.parent = s->memory = uid_quota(quotas, s->uid);
	if (!s->memory)
		return -ENOMEM;
	s->quota.memory = quota_new(&o);
	if (!s->quota.memory)
		return -ENOMEM;
	share_size_memory(s);
	return 0;
}

void share_size_memory(struct uid_share *s)
{
	if (s->memory)
		quota_set_max(s->quota.memory, quota_max(s->memory) / OUTPUT_SHARE, 0);
}

void share_close_memory(struct uid_share *s)
{
	s->quota.memory = quota_unref(s->quota.memory);
	s->memory = quota_unref(s->memory);
}

bool share_is_short(const struct uid_share *s)
{
	const struct quota *q = s->quota.memory;

	return q && quota_used(q) > quota_max(q) / 4 * 3;
}

static size_t string_bytes(const char *s)
{
	return s ? strlen(s) + STRING_BYTES : 0;
}

size_t command_start_bytes(const struct command_start *s)
{
	size_t sum = COMMAND_BYTES + string_bytes(s->shell) + string_bytes(s->user) + string_bytes(s->cwd) +
		     string_bytes(s->tag);

	for (size_t i = 0; i < s->n_args; i++)
		sum += sizeof(char *) + string_bytes(s->args[i]);
	for (size_t i = 0; i < s->n_envs; i++)
		sum += sizeof(struct sandbox_pair) + string_bytes(s->envs[i].key) + string_bytes(s->envs[i].value);
	return sum;
}

int command_hold(struct command *c, size_t n)
{
	if (quota_reserve(c->share->memory, n) < 0)
		return -EDQUOT;
	c->held = n;
	c->share->held += n;
	return 0;
}

void command_hold_restored(struct command *c)
{
	size_t n = COMMAND_BYTES + string_bytes(c->shell) + string_bytes(c->user) + string_bytes(c->cwd);

	for (size_t i = 0; i < c->n_args; i++)
		n += sizeof(char *) + string_bytes(c->args[i]);
	quota_add(c->share->memory, n);
	c->held = n;
	c->share->held += n;
}

void command_let_go(struct command *c)
{
	quota_give(c->share->memory, c->held);
	c->share->held -= c->held;
	c->held = 0;
}

bool command_is_surplus(const struct uid_share *s)
{
	return s->memory && s->held > quota_max(s->memory) / ENDED_SHARE;
}
