/* SPDX-License-Identifier: MIT */
/* Transactions: what is packed into one on the loop. */
#include "daemon/store/impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/must.h"

void tx_free(struct store_tx *t)
{
	buf_fini(&t->changes.buf);
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

void store_tx_hurry(struct store_tx *t)
{
	t->job.hurry = true;
}

void store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user)
{
	t->durable = durable;
	t->done = done;
	t->user = user;
	must(t->store->worker);
	worker_submit(t->store->worker, &t->job);
}

void store_tx_put_sandbox(struct store_tx *t, const struct row_sandbox *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_SANDBOX);
	change_text(c, r->account);
	change_text(c, r->id);
	change_text(c, r->name);
	change_int(c, r->uid);
	change_int(c, r->generation);
	change_int(c, r->state);
	change_int(c, r->ours);
	change_int(c, r->adopted);
	change_int(c, r->claimed);
	change_int(c, r->unclaimed_at_ms);
	change_int(c, (int64_t)r->seq);
	change_text(c, r->req_tag);
	change_text(c, r->template_id);
	change_text(c, r->alias);
	change_blob(c, r->metadata, r->metadata_len);
	change_int(c, r->started_at_ms);
	change_int(c, r->end_at_ms);
	change_int(c, r->cpu_count);
	change_int(c, r->memory_mb);
	change_int(c, r->disk_size_mb);
	change_text(c, r->envd_version);
	change_text(c, r->domain);
	change_text(c, r->access_token);
	change_text(c, r->traffic_token);
	change_int(c, r->token_known);
	change_int(c, r->allow_internet_access);
	change_int(c, r->on_timeout);
	change_int(c, r->keep_memory);
	change_int(c, r->auto_resume);
	change_text(c, r->policy);
	change_text(c, r->warning);
	change_int(c, r->as_of_ms);
	change_int(c, r->gone_reason);
	change_int(c, r->gone_at_ms);
	change_text(c, r->gone_evidence);
	change_int(c, r->released_at_ms);
	change_int(c, r->used_at_ms);
	change_int(c, r->timeout_s);
	change_text(c, r->network);
	change_blob(c, r->recipe, r->recipe_len);
	change_text(c, r->replaces);
}

void store_tx_del_sandbox(struct store_tx *t, const char *account, const char *id)
{
	change_begin(&t->changes, STMT_DEL_SANDBOX);
	change_text(&t->changes, account);
	change_text(&t->changes, id);
}

void store_tx_sure(struct store_tx *t)
{
	tx_put_meta(t, "doubt", "0");
}

/* The highest number that was ever written down: one that a sandbox carries and that is above it comes
 * from a time of which these rows know nothing. */
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
	struct changes *c = &t->changes;

	put_seq(t, r->seq);

	change_begin(c, STMT_PUT_INTENT);
	change_int(c, (int64_t)r->seq);
	change_int(c, r->kind);
	change_int(c, r->state);
	change_text(c, r->account);
	change_int(c, r->uid);
	change_text(c, r->request_id);
	change_text(c, r->req_tag);
	change_text(c, r->name);
	change_int(c, r->generation);
	change_text(c, r->template_id);
	change_text(c, r->policy);
	change_int(c, r->claimed);
	change_int(c, r->made_at_ms);
	change_blob(c, r->recipe, r->recipe_len);
	change_text(c, r->replaces);
}

void store_tx_del_intent(struct store_tx *t, uint64_t seq)
{
	change_begin(&t->changes, STMT_DEL_INTENT);
	change_int(&t->changes, (int64_t)seq);
}

void store_tx_put_request(struct store_tx *t, const struct row_request *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_REQUEST);
	change_int(c, r->uid);
	change_text(c, r->method);
	change_text(c, r->request_id);
	change_blob(c, r->params_hash, sizeof(r->params_hash));
	change_int(c, r->state);
	change_text(c, r->account);
	change_text(c, r->object);
	change_text(c, r->req_tag);
	change_int(c, r->used_at_ms);
}

void store_tx_del_request(struct store_tx *t, uid_t uid, const char *method, const char *request_id)
{
	change_begin(&t->changes, STMT_DEL_REQUEST);
	change_int(&t->changes, uid);
	change_text(&t->changes, method);
	change_text(&t->changes, request_id);
}

void store_tx_put_name(struct store_tx *t, const struct row_name *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_NAME);
	change_int(c, r->uid);
	change_text(c, r->name);
	change_text(c, r->account);
	change_text(c, r->id);
	change_int(c, r->generation);
}

void store_tx_del_name(struct store_tx *t, uid_t uid, const char *name)
{
	change_begin(&t->changes, STMT_DEL_NAME);
	change_int(&t->changes, uid);
	change_text(&t->changes, name);
}

void store_tx_put_lease(struct store_tx *t, const struct row_lease *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_LEASE);
	change_text(c, r->id);
	change_text(c, r->account);
	change_text(c, r->sandbox);
	change_int(c, r->uid);
	change_int(c, r->kind);
	change_int(c, r->pid);
	change_text(c, r->label);
	change_int(c, r->made_at_ms);
	change_int(c, r->expires_at_ms);
	change_int(c, r->identity);
	change_text(c, r->boot_id);
	change_int(c, (int64_t)r->identity_value);
}

void store_tx_del_lease(struct store_tx *t, const char *id)
{
	change_begin(&t->changes, STMT_DEL_LEASE);
	change_text(&t->changes, id);
}

void store_tx_put_event(struct store_tx *t, const struct row_event *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_EVENT);
	change_int(c, (int64_t)r->number);
	change_int(c, (int64_t)r->seq);
	change_int(c, r->uid);
	change_int(c, r->at_ms);
	change_int(c, r->type);
	change_text(c, r->account);
	change_text(c, r->sandbox);
	change_text(c, r->name);
	change_int(c, r->reason);
	change_int(c, r->state);
	change_int(c, r->started_at_ms);
	change_int(c, r->end_at_ms);
	change_int(c, r->leases);
	change_int(c, r->generation);
	change_text(c, r->evidence);
}

void store_tx_del_events(struct store_tx *t, uid_t uid, uint64_t seq)
{
	change_begin(&t->changes, STMT_DEL_EVENTS);
	change_int(&t->changes, uid);
	change_int(&t->changes, (int64_t)seq);
}

void store_tx_put_command(struct store_tx *t, const struct row_command *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_COMMAND);
	change_text(c, r->id);
	change_int(c, r->uid);
	change_text(c, r->account);
	change_text(c, r->sandbox);
	change_int(c, r->generation);
	change_int(c, r->state);
	change_int(c, r->flags);
	change_int(c, r->pid);
	change_text(c, r->shell);
	change_blob(c, r->args, r->args_len);
	change_text(c, r->user);
	change_text(c, r->cwd);
	change_int(c, r->cols);
	change_int(c, r->rows);
	change_int(c, (int64_t)r->timeout_ms);
	change_int(c, (int64_t)r->kill_grace_ms);
	change_int(c, (int64_t)r->spool_limit);
	change_text(c, r->boot);
	change_int(c, r->made_at_ms);
	change_int(c, r->started_at_ms);
	change_int(c, r->deadline_at_ms);
	change_int(c, r->outcome);
	change_int(c, r->exit_code);
	change_int(c, r->reason);
	change_text(c, r->signal);
	change_text(c, r->message);
	change_blob(c, r->survivors, r->survivors_len);
	change_int(c, r->exited_at_ms);
}

void store_tx_del_command(struct store_tx *t, const char *id)
{
	change_begin(&t->changes, STMT_DEL_COMMAND);
	change_text(&t->changes, id);
}

void store_tx_put_command_request(struct store_tx *t, const struct row_command_request *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_COMMAND_REQUEST);
	change_int(c, r->uid);
	change_text(c, r->method);
	change_text(c, r->request_id);
	change_blob(c, r->params_hash, sizeof(r->params_hash));
	change_text(c, r->command);
	change_int(c, r->used_at_ms);
}

void store_tx_del_command_request(struct store_tx *t, uid_t uid, const char *method,
				  const char *request_id)
{
	change_begin(&t->changes, STMT_DEL_COMMAND_REQUEST);
	change_int(&t->changes, uid);
	change_text(&t->changes, method);
	change_text(&t->changes, request_id);
}

void store_tx_put_copy(struct store_tx *t, const struct row_copy *r)
{
	struct changes *c = &t->changes;

	put_seq(t, r->seq);

	change_begin(c, STMT_PUT_COPY);
	change_int(c, (int64_t)r->seq);
	change_int(c, r->kind);
	change_text(c, r->account);
	change_int(c, r->uid);
	change_text(c, r->request_id);
	change_text(c, r->source);
	change_text(c, r->name);
	change_int(c, r->count);
	change_text(c, r->policy);
	change_text(c, r->known);
	change_int(c, r->made_at_ms);
}

void store_tx_del_copy(struct store_tx *t, uint64_t seq)
{
	change_begin(&t->changes, STMT_DEL_COPY);
	change_int(&t->changes, (int64_t)seq);
}

void store_tx_put_snapshot(struct store_tx *t, const struct row_snapshot *r)
{
	struct changes *c = &t->changes;

	change_begin(c, STMT_PUT_SNAPSHOT);
	change_text(c, r->account);
	change_text(c, r->id);
	change_int(c, r->uid);
	change_int(c, r->ours);
	change_text(c, r->names);
	change_text(c, r->source);
	change_int(c, r->created_at_ms);
	change_int(c, r->as_of_ms);
}

void store_tx_del_snapshot(struct store_tx *t, const char *account, const char *id)
{
	change_begin(&t->changes, STMT_DEL_SNAPSHOT);
	change_text(&t->changes, account);
	change_text(&t->changes, id);
}
