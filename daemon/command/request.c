/* SPDX-License-Identifier: MIT */
/*
 * Request ids of Start and Run. An id is in memory from before the start is sent until its command is
 * forgotten. Its row stays until COMMAND_REQUEST_MS after the last use, so that a late repeat learns that the
 * command has run: a start whose id is not in memory reads the row before it sends anything, where there may be one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define USE_SAVED_MS   3600000	/* a use is stored if the stored one is so much older */
#define PRUNE_FROM     1000u	/* rows are pruned, which reads them all, when so many ids have left memory … */
#define PRUNE_EVERY_MS 3600000u	/* … or so long after the last time */

static char *make_key(uid_t uid, const char *method, const char *id)
{
	return str_printf("%u/%s/%s", (unsigned)uid, method, id);
}

static void request_free(struct cmd_request *q)
{
	free(q->method);
	free(q->id);
	free(q->key);
	free(q->refused);
	free(q);
}

/* Longer than a row without its command is kept. */
#define STORED_KEEP_MS (COMMAND_REQUEST_MS + PRUNE_EVERY_MS + USE_SAVED_MS)

static void note_stored(struct commands *cs, const char *key)
{
	seen_add(&cs->stored_requests, key, strlen(key), loop_now_ms(cs->o.loop), STORED_KEEP_MS);
}

void request_note_stored(struct commands *cs, const struct row_command_request *row)
{
	char *key = make_key(row->uid, row->method, row->request_id);

	if (key)
		note_stored(cs, key);
	else
		seen_add_unknown(&cs->stored_requests);
	free(key);
}

bool request_may_have_row(const struct commands *cs, const struct cmd_request *q)
{
	return seen_may_have(&cs->stored_requests, q->key, strlen(q->key), loop_now_ms(cs->o.loop));
}

/* Its row may outlive it: where it is to be deleted the commit may fail. */
static void forget(struct commands *cs, struct cmd_request *q)
{
	note_stored(cs, q->key);
	list_del(&q->node);
	map_del_str(&cs->requests, q->key);
	if (q->c)
		q->c->request = NULL;
	request_free(q);
}

static void unsave(struct commands *cs, const struct cmd_request *q)
{
	struct store_tx *t;

	if (store_tx_new(cs->o.store, &t) < 0)
		return; /* the row is pruned when it is old */
	store_tx_del_command_request(t, q->share->uid, q->method, q->id);
	store_tx_commit(t, false, NULL, NULL);
}

void requests_fini(struct commands *cs)
{
	while (!list_is_empty(&cs->request_list))
		forget(cs, list_entry(cs->request_list.next, struct cmd_request, node));
	map_fini(&cs->requests);
	seen_fini(&cs->stored_requests);
}

int request_add(struct commands *cs, const struct row_command_request *row, struct cmd_request **ret)
{
	struct cmd_request *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	list_init(&q->node);
	q->share = share_of(cs, row->uid);
	q->method = strdup(row->method);
	q->id = strdup(row->request_id);
	q->key = make_key(row->uid, row->method, row->request_id);
	memcpy(q->hash, row->params_hash, sizeof(q->hash));
	str_copy(q->command_id, sizeof(q->command_id), row->command);
	q->used_at_ms = row->used_at_ms;
	if (!q->share || !q->method || !q->id || !q->key || map_put_str(&cs->requests, q->key, q) < 0) {
		request_free(q);
		return -ENOMEM;
	}
	list_add_tail(&cs->request_list, &q->node);
	*ret = q;
	return 0;
}

void request_row(const struct cmd_request *q, struct row_command_request *ret)
{
	*ret = (struct row_command_request){ .uid = q->share->uid, .method = q->method,
					     .request_id = q->id, .command = q->command_id,
					     .used_at_ms = q->used_at_ms };
	memcpy(ret->params_hash, q->hash, sizeof(ret->params_hash));
}

static void note_use(struct commands *cs, struct cmd_request *q)
{
	int64_t now = clock_wall_ms();
	struct row_command_request row;
	struct store_tx *t;

	if (now < q->used_at_ms + USE_SAVED_MS || store_tx_new(cs->o.store, &t) < 0)
		return;
	q->used_at_ms = now;
	request_row(q, &row);
	store_tx_put_command_request(t, &row);
	store_tx_commit(t, false, NULL, NULL);
}

static void refuse_reuse(struct status *ret_st, const char *id)
{
	status_set(ret_st, R_REQUEST_ID_REUSED, "request_id was used with other parameters; use a new one");
	status_evidence(ret_st, "request_id", "%s", id);
}

int request_look(struct commands *cs, uid_t uid, const char *method, const char *id, const uint8_t hash[32],
		 struct command **ret_c, struct status *ret_st)
{
	char *key = make_key(uid, method, id);
	struct cmd_request *q;

	if (!key)
		return -ENOMEM;
	q = map_get_str(&cs->requests, key);
	free(key);
	if (q && q->refused && loop_now_ms(cs->o.loop) >= q->refused_until_ms) {
		forget(cs, q);
		q = NULL;
	}
	if (!q)
		return -ENOENT;
	if (memcmp(q->hash, hash, sizeof(q->hash))) {
		refuse_reuse(ret_st, id);
		return 1;
	}
	if (q->refused) {
		*ret_st = *q->refused;
		return 1;
	}
	note_use(cs, q);
	*ret_c = q->c;
	return 0;
}

void request_refuse_repeat(struct commands *cs, const struct row_command_request *row, const uint8_t hash[32], struct status *ret_st)
{
	struct row_command_request again = *row;
	int64_t now = clock_wall_ms();
	struct store_tx *t;

	if (memcmp(row->params_hash, hash, sizeof(row->params_hash))) {
		refuse_reuse(ret_st, row->request_id);
		return;
	}
	status_set(ret_st, R_PROCESS_NOT_FOUND,
		   "the command of this request_id, %s, has ended, and its record is not kept any more", row->command);
	if (now < row->used_at_ms + USE_SAVED_MS || store_tx_new(cs->o.store, &t) < 0)
		return;
	again.used_at_ms = now;
	store_tx_put_command_request(t, &again);
	store_tx_commit(t, false, NULL, NULL);
}

void request_gone(struct command *c)
{
	struct cmd_request *q = c->request;

	if (!q)
		return;
	q->c = NULL;
	c->request = NULL;
	if (q->refused || c->cs->closing)
		return;
	c->cs->requests_let_go++;
	forget(c->cs, q);
}

/* Kept in memory only: nothing was started, so a repeat after a restart may try again. */
void request_refuse(struct cmd_request *q, const struct status *st)
{
	struct commands *cs = q->c->cs;

	q->refused = malloc(sizeof(*st));
	if (!q->refused)
		return;
	*q->refused = *st;
	q->refused_until_ms = loop_now_ms(cs->o.loop) + COMMAND_REFUSED_MS;
}

void request_drop(struct cmd_request *q)
{
	struct commands *cs = q->c->cs;

	if (q->c->has_row)
		unsave(cs, q);
	if (q->refused)
		request_gone(q->c);
	else
		forget(cs, q);
}

static void prune(struct commands *cs, int64_t now_wall_ms)
{
	const struct store_prune p = { .keep = COMMAND_REQUESTS_MAX, .used_before_ms = now_wall_ms - COMMAND_REQUEST_MS };
	uint64_t now = loop_now_ms(cs->o.loop);
	struct store_tx *t;

	if (cs->requests_pruned_ms && cs->requests_let_go < PRUNE_FROM && now < cs->requests_pruned_ms + PRUNE_EVERY_MS)
		return;
	if (store_tx_new(cs->o.store, &t) < 0)
		return; /* the next call does it */
	store_tx_prune_command_requests(t, &p);
	store_tx_commit(t, false, NULL, NULL);
	cs->requests_let_go = 0;
	cs->requests_pruned_ms = MAX(now, (uint64_t)1);
}

void requests_expire(struct commands *cs, int64_t now_wall_ms)
{
	uint64_t now = loop_now_ms(cs->o.loop);

	list_for_each_safe(n, &cs->request_list) {
		struct cmd_request *q = list_entry(n, struct cmd_request, node);

		if (!q->c && q->refused && now >= q->refused_until_ms)
			forget(cs, q);
	}
	prune(cs, now_wall_ms);
}
