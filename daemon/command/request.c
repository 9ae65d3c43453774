/* SPDX-License-Identifier: MIT */
/*
 * Request ids of Start and Run. An entry lives from before the start is sent until seven days after its
 * last use, and longer while its command is known; it outlives the command's record, so that a late
 * repeat is told that it ran, and never runs again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/command/impl.h"
#include "daemon/common/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define USE_SAVED_MS 3600000 /* a use is written down when the last one was so long ago */

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

static void forget(struct commands *cs, struct cmd_request *q)
{
	list_del(&q->node);
	q->share->n_requests--;
	map_del_str(&cs->requests, q->key);
	if (q->c)
		q->c->request = NULL;
	request_free(q);
}

static void unsave(struct commands *cs, const struct cmd_request *q)
{
	struct store_tx *t;

	if (store_tx_new(cs->o.store, &t) < 0)
		return; /* its row goes when it is old */
	store_tx_del_command_request(t, q->share->uid, q->method, q->id);
	store_tx_commit(t, false, NULL, NULL);
}

void requests_fini(struct commands *cs)
{
	while (!list_is_empty(&cs->request_list))
		forget(cs, list_entry(cs->request_list.next, struct cmd_request, node));
	map_fini(&cs->requests);
}

/* Above the cap, the one whose use is longest ago and whose command is gone. */
static void make_room(struct commands *cs, struct uid_share *share)
{
	if (share->n_requests < COMMAND_REQUESTS_MAX)
		return;
	list_for_each_safe(n, &cs->request_list) {
		struct cmd_request *q = list_entry(n, struct cmd_request, node);

		if (q->share != share || q->c)
			continue;
		log_warn("request_ids", "uid=%u n=%u forgotten=1", (unsigned)share->uid, share->n_requests);
		unsave(cs, q);
		forget(cs, q);
		return;
	}
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
	make_room(cs, q->share);
	q->share->n_requests++;
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

	list_del(&q->node);
	list_add_tail(&cs->request_list, &q->node);
	if (now < q->used_at_ms + USE_SAVED_MS || store_tx_new(cs->o.store, &t) < 0)
		return;
	q->used_at_ms = now;
	request_row(q, &row);
	store_tx_put_command_request(t, &row);
	store_tx_commit(t, false, NULL, NULL);
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
		status_set(ret_st, R_REQUEST_ID_REUSED,
			   "request_id was used with other parameters; use a new one");
		status_evidence(ret_st, "request_id", "%s", id);
		return 1;
	}
	if (q->refused) {
		*ret_st = *q->refused;
		return 1;
	}
	note_use(cs, q);
	if (!q->c) {
		status_set(ret_st, R_PROCESS_NOT_FOUND,
			   "the command of this request_id, %s, has ended, and its record is not kept any more",
			   q->command_id);
		return 1;
	}
	*ret_c = q->c;
	return 0;
}

void request_gone(struct command *c)
{
	if (!c->request)
		return;
	c->request->c = NULL;
	c->request = NULL;
}

/* The refusal is remembered in memory only: nothing was started, so nothing is lost with it. */
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

void requests_expire(struct commands *cs, int64_t now_wall_ms)
{
	uint64_t now = loop_now_ms(cs->o.loop);

	list_for_each_safe(n, &cs->request_list) {
		struct cmd_request *q = list_entry(n, struct cmd_request, node);
		bool refused = q->refused && now >= q->refused_until_ms;

		if (q->c || (!refused && now_wall_ms < q->used_at_ms + COMMAND_REQUEST_MS))
			continue;
		if (!q->refused)
			unsave(cs, q);
		forget(cs, q);
	}
}
