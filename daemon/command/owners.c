/* SPDX-License-Identifier: MIT */
/*
 * The lists that a command is on: the daemon's, its uid's, its sandbox's. A question about a uid or a sandbox walks
 * its commands alone.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/command/impl.h"
#include "proto/base/str.h"

struct uid_share *share_of(struct commands *cs, uid_t uid)
{
	struct uid_share *s = map_get_u64(&cs->shares, uid);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->uid = uid;
	s->quota.max = cs->o.limits.spool_per_uid;
	list_init(&s->ended);
	list_init(&s->kept);
	if (share_open_memory(s, cs->o.quotas) == 0 && map_put_u64(&cs->shares, uid, s) == 0)
		return s;
	share_close_memory(s);
	free(s);
	return NULL;
}

struct sandbox_commands *sandbox_commands_of(const struct commands *cs, const char *id)
{
	return map_get_str(&cs->by_sandbox, id);
}

static struct sandbox_commands *sandbox_commands_new(struct commands *cs, const char *id)
{
	struct sandbox_commands *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	list_init(&s->running);
	list_init(&s->ended);
	s->id = str_dup(id);
	if (s->id && map_put_str(&cs->by_sandbox, s->id, s) == 0)
		return s;
	free(s->id);
	free(s);
	return NULL;
}

int command_join_sandbox(struct command *c)
{
	struct sandbox_commands *s = sandbox_commands_of(c->cs, c->at.id);

	if (!s)
		s = sandbox_commands_new(c->cs, c->at.id);
	if (!s)
		return -ENOMEM;
	must(!c->sandbox && c->listed);
	c->sandbox = s;
	list_add_tail(c->listed == LISTED_ENDED ? &s->ended : &s->running, &c->sandbox_node);
	return 0;
}

static void leave_sandbox(struct command *c)
{
	struct sandbox_commands *s = c->sandbox;

	list_del(&c->sandbox_node);
	c->sandbox = NULL;
	if (!s || !list_is_empty(&s->running) || !list_is_empty(&s->ended))
		return;
	map_del_str(&c->cs->by_sandbox, s->id);
	free(s->id);
	free(s);
}

void command_lists_init(struct command *c)
{
	list_init(&c->node);
	list_init(&c->share_node);
	list_init(&c->kept_node);
	list_init(&c->kept_all_node);
	list_init(&c->sandbox_node);
}

void command_list_running(struct command *c)
{
	must(!c->listed);
	c->listed = LISTED_RUNNING;
	list_add_tail(&c->cs->all, &c->node);
	c->cs->n_running++;
	c->share->n_running++;
}

/* Puts c into a list that is sorted by the time of the end. node_at: offset of the list's node in struct command. */
static void add_by_end(struct list *l, struct command *c, size_t node_at)
{
	struct list *after = l->prev;

	while (after != l &&
	       ((struct command *)((char *)after - node_at))->result.exited_at_ms > c->result.exited_at_ms)
		after = after->prev;
	list_add_head(after, (struct list *)((char *)c + node_at));
}

static void leave_running(struct command *c)
{
	list_del(&c->node);
	c->cs->n_running--;
	c->share->n_running--;
}

void command_list_ended(struct command *c)
{
	must(c->listed == LISTED_RUNNING);
	leave_running(c);
	c->listed = LISTED_ENDED;
	add_by_end(&c->cs->ended, c, offsetof(struct command, node));
	add_by_end(&c->share->ended, c, offsetof(struct command, share_node));
	c->share->n_ended++;
	if (spool_used(c->spool)) {
		add_by_end(&c->cs->kept, c, offsetof(struct command, kept_all_node));
		add_by_end(&c->share->kept, c, offsetof(struct command, kept_node));
	}
	if (c->sandbox) {
		list_del(&c->sandbox_node);
		list_add_tail(&c->sandbox->ended, &c->sandbox_node);
	}
}

void command_unlist(struct command *c)
{
	if (c->listed == LISTED_RUNNING)
		leave_running(c);
	if (c->listed == LISTED_ENDED)
		c->share->n_ended--;
	c->listed = LISTED_NOWHERE;
	list_del(&c->node);
	list_del(&c->share_node);
	list_del(&c->kept_node);
	list_del(&c->kept_all_node);
	leave_sandbox(c);
}

/* --- limits of ended commands --- */

static bool is_crowded(const struct spool_quota *q)
{
	return q->used > q->max / 4 * 3;
}

/* Drops its output; its result stays. */
static void clear_output(struct command *c)
{
	spool_clear(c->spool);
	list_del(&c->kept_node);
	list_del(&c->kept_all_node);
	if (list_is_empty(&c->readers))
		spool_rest(c->spool);
}

void commands_trim(struct commands *cs, struct uid_share *share)
{
	while (share->n_ended > COMMAND_ENDED_PER_UID || (share->n_ended && command_is_surplus(share)))
		command_forget(list_entry(share->ended.next, struct command, share_node));
	while ((is_crowded(&share->quota) || share_is_short(share)) && !list_is_empty(&share->kept))
		clear_output(list_entry(share->kept.next, struct command, kept_node));
	while (is_crowded(&cs->total) && !list_is_empty(&cs->kept))
		clear_output(list_entry(cs->kept.next, struct command, kept_all_node));
}
