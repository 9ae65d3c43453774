/* SPDX-License-Identifier: MIT */
/* Readers of one command: each has its own position in the spool, and none waits for another. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"

int command_reader_new(struct command *c, const struct command_read_from *from,
		       command_ready_fn *on_ready, void *user, struct command_reader **ret)
{
	struct command_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->c = command_ref(c);
	r->on_ready = on_ready;
	r->user = user;
	r->run = from->run || (from->holds && c->plain);
	if (r->run && c->plain)
		c->block = true;
	if (from->from_end)
		spool_seek_end(c->spool, &r->pos);
	else if (from->timed)
		spool_seek_since(c->spool, from->since_ms, from->offset, &r->pos);
	else
		spool_seek(c->spool, from->offset, &r->pos);
	list_add_tail(&c->readers, &r->node);
	if (r->run && !c->starter)
		c->starter = r;
	timer_clear(&c->orphan); /* its user came back for it */
	command_wake(c);
	*ret = r;
	return 0;
}

struct command *command_reader_command(const struct command_reader *r)
{
	return r->c;
}

bool command_reader_join(struct command_reader *r)
{
	if (r->c->state < CMD_ENDING && r->c->state != CMD_RUNNING)
		return false;
	spool_seek_end(r->c->spool, &r->pos);
	return true;
}

enum command_read command_reader_next(struct command_reader *r, bool follow, void *buf, size_t max,
				      struct spool_piece *ret)
{
	struct command *c = r->c;
	int got = spool_read(c->spool, &r->pos, buf, max, ret);

	if (got < 0) { /* the file cannot be read: the reader gets a gap, and goes on at the end */
		log_warn("command_spool", "command=%s error=%s", c->id, log_q(strerrordesc_np(-got)));
		c->truncated = true;
		*ret = (struct spool_piece){ .stream = SPOOL_STDOUT, .gap = true, .reason = spool_reason_name(SPOOL_UNREADABLE) };
		spool_seek_end(c->spool, &r->pos);
		return COMMAND_READ_PIECE;
	}
	if (got) {
		if (r->run && c->block)
			defer_post(&c->pump);
		return COMMAND_READ_PIECE;
	}
	if (c->state == CMD_ENDED)
		return COMMAND_READ_ENDED;
	return follow ? COMMAND_READ_NOTHING : COMMAND_READ_CAUGHT_UP;
}

/* A Run's reader left: the reader of a repeated Run takes its place, if there is one; else nothing blocks any more. */
static void leave(struct command *c, struct command_reader *r, bool end_it)
{
	struct command_reader *next = NULL;

	list_for_each(n, &c->readers) {
		struct command_reader *other = list_entry(n, struct command_reader, node);

		if (other->run && !next)
			next = other;
	}
	if (c->starter == r)
		c->starter = next;
	if (!next) {
		c->block = false;
		if (end_it && !c->detach && c->state < CMD_ENDING)
			command_end_now(c);
	}
	defer_post(&c->pump);
}

struct command_reader *command_reader_free(struct command_reader *r, bool end_it)
{
	struct command *c;

	if (!r)
		return NULL;
	c = r->c;
	list_del(&r->node);
	if (r->run)
		leave(c, r, end_it);
	if (c->state == CMD_ENDED && list_is_empty(&c->readers))
		spool_rest(c->spool);
	/* Somebody else's command is followed only while somebody reads it. */
	if (c->foreign && list_is_empty(&c->readers) && c->state < CMD_ENDING && !c->kill_call)
		command_forget(c);
	command_unref(c);
	free(r);
	return NULL;
}
