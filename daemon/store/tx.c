/* SPDX-License-Identifier: MIT */
/* Transactions and reads, as the loop packs them for the worker. */
#include "daemon/store/impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/clock.h"
#include "proto/base/must.h"

void tx_free(struct store_tx *t)
{
	if (t->read && t->read->found)
		row_fini(&store_tables[t->read->table], &t->read->row);
	free(t->read);
	buf_fini(&t->changes.buf);
	buf_fini(&t->claims);
	free(t);
}

void tx_put_meta(struct store_tx *t, const char *key, const char *value)
{
	change_begin(&t->changes, STMT_PUT_META);
	change_text(&t->changes, key);
	change_text(&t->changes, value);
}

int store_tx_new(struct store *s, struct store_tx **ret)
{
	struct store_tx *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->store = s;
	list_init(&t->job.node);
	t->job.done = writer_on_written;
	*ret = t;
	return 0;
}

void store_tx_drop(struct store_tx *t)
{
	if (t)
		tx_free(t);
}

void store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user)
{
	t->durable = durable;
	t->done = done;
	t->user = user;
	t->committed_us = clock_boot_us();
	must(t->store->worker);
	worker_submit(t->store->worker, &t->job);
}

void store_tx_put_key_print(struct store_tx *t, const char *account, const char *print)
{
	char name[300];

	snprintf(name, sizeof(name), "key_print:%.256s", account);
	tx_put_meta(t, name, print);
}

void store_tx_sure(struct store_tx *t)
{
	tx_put_meta(t, "doubt", "0");
}

/* Keeps the highest number of all intents in the database: a sandbox with a higher one was made after these rows were
 * written (sandbox/doubt.c). */
static void put_seq(struct store_tx *t, uint64_t seq)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)seq);
	change_begin(&t->changes, STMT_RAISE_META);
	change_text(&t->changes, "seq_given");
	change_text(&t->changes, text);
}

void store_tx_put_intent(struct store_tx *t, const struct row_intent *r)
{
	put_seq(t, r->seq);
	change_put_row(&t->changes, ROW_TABLE_intent, r);
}

void store_tx_put_copy(struct store_tx *t, const struct row_copy *r)
{
	put_seq(t, r->seq);
	change_put_row(&t->changes, ROW_TABLE_copy, r);
}

#define PUT(table) \
	void store_tx_put_##table(struct store_tx *t, const struct row_##table *r) \
	{ \
		change_put_row(&t->changes, ROW_TABLE_##table, r); \
	}
PUT(sandbox)
PUT(request)
PUT(name)
PUT(lease)
PUT(event)
PUT(command)
PUT(command_request)
PUT(snapshot)
PUT(gateway_token)
PUT(warm)
PUT(owner)
PUT(template)

#define DEL(table, t, ...) \
	change_del_row(&(t)->changes, ROW_TABLE_##table, &(struct row_##table){ __VA_ARGS__ })

void store_tx_del_sandbox(struct store_tx *t, const char *account, const char *id)
{
	DEL(sandbox, t, .account = account, .id = id);
}

void store_tx_del_intent(struct store_tx *t, uint64_t seq)
{
	DEL(intent, t, .seq = seq);
}

void store_tx_del_request(struct store_tx *t, uid_t uid, const char *method, const char *request_id)
{
	DEL(request, t, .uid = uid, .method = method, .request_id = request_id);
}

void store_tx_del_name(struct store_tx *t, uid_t uid, const char *name)
{
	DEL(name, t, .uid = uid, .name = name);
}

void store_tx_del_lease(struct store_tx *t, const char *id)
{
	DEL(lease, t, .id = id);
}

void store_tx_del_leases(struct store_tx *t, const char *account, const char *sandbox)
{
	change_begin(&t->changes, STMT_DEL_LEASES);
	change_text(&t->changes, account);
	change_text(&t->changes, sandbox);
}

void store_tx_prune_requests(struct store_tx *t, const struct store_prune *p)
{
	change_begin(&t->changes, STMT_PRUNE_REQUESTS);
	change_int(&t->changes, ROW_REQUEST_DONE);
	change_int(&t->changes, p->gone);
	change_int(&t->changes, p->keep);
	change_int(&t->changes, p->used_before_ms);
	change_int(&t->changes, p->gone_before_ms);
}

void store_tx_prune_command_requests(struct store_tx *t, const struct store_prune *p)
{
	change_begin(&t->changes, STMT_PRUNE_COMMAND_REQUESTS);
	change_int(&t->changes, p->keep);
	change_int(&t->changes, p->used_before_ms);
}

void store_tx_del_events(struct store_tx *t, uid_t uid, uint64_t seq)
{
	change_begin(&t->changes, STMT_DEL_EVENTS);
	change_int(&t->changes, uid);
	change_int(&t->changes, (int64_t)seq);
}

void store_tx_del_command(struct store_tx *t, const char *id)
{
	DEL(command, t, .id = id);
}

void store_tx_del_command_request(struct store_tx *t, uid_t uid, const char *method,
				  const char *request_id)
{
	DEL(command_request, t, .uid = uid, .method = method, .request_id = request_id);
}

void store_tx_del_copy(struct store_tx *t, uint64_t seq)
{
	DEL(copy, t, .seq = seq);
}

void store_tx_del_snapshot(struct store_tx *t, const char *account, const char *id)
{
	DEL(snapshot, t, .account = account, .id = id);
}

void store_tx_del_gateway_token(struct store_tx *t, const char *id)
{
	DEL(gateway_token, t, .id = id);
}

void store_tx_del_warm(struct store_tx *t, const char *name)
{
	DEL(warm, t, .name = name);
}

void store_tx_del_owner(struct store_tx *t, uid_t number)
{
	DEL(owner, t, .number = number);
}

void store_tx_del_template(struct store_tx *t, const char *account, const char *id)
{
	DEL(template, t, .account = account, .id = id);
}

/* Without memory the transaction fails as a whole. */
void store_tx_claim(struct store_tx *t, const struct store_claim *c)
{
	if (claim_format(c, &t->claims) < 0)
		t->changes.failed = true;
}

void store_tx_claims_anew(struct store_tx *t)
{
	t->claims_anew = true;
}

/* --- reading --- */

static int get_new(struct store *s, enum row_table table, const void *key, void *user, struct store_tx **ret)
{
	struct store_tx *t;

	if (store_tx_new(s, &t) < 0)
		return -ENOMEM;
	t->read = calloc(1, sizeof(*t->read));
	if (!t->read) {
		tx_free(t);
		return -ENOMEM;
	}
	t->kind = TX_GET;
	t->job.done = writer_on_read;
	t->user = user;
	t->read->table = table;
	change_get_row(&t->changes, table, key);
	*ret = t;
	return 0;
}

int store_get_request(struct store *s, uid_t uid, const char *method, const char *request_id, store_request_fn *done,
		      void *user)
{
	const struct row_request key = { .uid = uid, .method = method, .request_id = request_id };
	struct store_tx *t;
	int r = get_new(s, ROW_TABLE_request, &key, user, &t);

	if (r < 0)
		return r;
	t->read->on_request = done;
	worker_submit(s->worker, &t->job);
	return 0;
}

int store_get_command_request(struct store *s, uid_t uid, const char *method, const char *request_id,
			      store_command_request_fn *done, void *user)
{
	const struct row_command_request key = { .uid = uid, .method = method, .request_id = request_id };
	struct store_tx *t;
	int r = get_new(s, ROW_TABLE_command_request, &key, user, &t);

	if (r < 0)
		return r;
	t->read->on_command_request = done;
	worker_submit(s->worker, &t->job);
	return 0;
}
