/* SPDX-License-Identifier: MIT */
#include "daemon/auth/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/log.h"
#include "daemon/store/store.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define MARK	 "a9e2"
#define MARK_LEN 4u
#define PREFIX	 "ab_"
#define HEX	 "0123456789abcdef"

struct tokens {
	struct loop *loop;
	struct store *store;
	void (*sha256)(const void *p, size_t n, uint8_t ret[32]);
	struct list list;
	bool is_old, failed;		/* while rows are read */
	struct list over;		/* rows found to be over, until the store takes changes */
	struct list waiting;		/* for the store */
};

/* --- the text --- */

/* The digits behind the prefix; NULL: it is none of ours. */
static const char *digits_of(const char *text)
{
	const char *s = str_starts(text, "ab_") ? text + 3 : str_starts(text, "e2b_") ? text + 4 : NULL;

	return s && str_starts(s, MARK) && strlen(s) == TOKEN_HEX && strspn(s, HEX) == TOKEN_HEX ? s : NULL;
}

bool token_is_ours(const char *text)
{
	return text && digits_of(text);
}

static void draw(char ret[TOKEN_TEXT_MAX])
{
	uint8_t bytes[(TOKEN_HEX - MARK_LEN) / 2];
	size_t n = strlen(PREFIX MARK);

	rng_system(bytes, sizeof(bytes));
	memcpy(ret, PREFIX MARK, n);
	str_hex(bytes, sizeof(bytes), ret + n);
	explicit_bzero(bytes, sizeof(bytes));
}

/* --- one of them --- */

static void token_free(void *p)
{
	struct token *t = p;

	for (size_t i = 0; i < t->n_sandboxes; i++)
		free(t->sandboxes[i]);
	free(t->sandboxes);
	free(t->label);
	free(t->policy);
	fd_close(t->run_pidfd);
	free(t);
}

struct token *token_ref(struct token *t)
{
	t->refs++;
	return t;
}

void token_unref(struct token *t)
{
	if (!t)
		return;
	must(t->refs);
	if (--t->refs == 0)
		loop_bury(t->all->loop, &t->grave, token_free, t);
}

/* The list's reference goes. */
static void drop(struct token *t)
{
	t->is_void = true;
	watch_fini(&t->death);
	list_del(&t->node);
	token_unref(t);
}

static void delete_row(struct tokens *all, const char *id, bool durable)
{
	struct store_tx *tx;

	if (store_tx_new(all->store, &tx) < 0) {
		log_error("gateway_token", "id=%s error=\"out of memory\" action=\"it goes at the next start\"", id);
		return;
	}
	store_tx_del_gateway_token(tx, id);
	store_tx_commit(tx, durable, NULL, NULL);
}

static void on_death(struct watch *w, unsigned ready, void *user)
{
	struct token *t = user;

	log_info("run_ended", "token=%s uid=%u pid=%d", t->id, owner_uid(t->uid), (int)t->run.pid);
	delete_row(t->all, t->id, false);
	drop(t);
}

static int watch_run(struct token *t)
{
	int r = watch_init(&t->death, t->all->loop, t->run_pidfd, on_death, t);

	return r < 0 ? r : watch_set(&t->death, WATCH_READ);
}

static struct token *token_new(struct tokens *all)
{
	struct token *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->all = all;
	t->refs = 1;
	t->run_pidfd = -1;
	list_init(&t->node);
	return t;
}

static void token_drop_new(struct token *t)
{
	watch_fini(&t->death);
	token_free(t);
}

bool token_is_over(const struct token *t)
{
	return t->is_void || (t->expires_at_ms && clock_wall_ms() >= t->expires_at_ms);
}

bool token_covers(const struct token *t, const char *sandbox)
{
	for (size_t i = 0; i < t->n_sandboxes; i++)
		if (str_eq(t->sandboxes[i], sandbox))
			return true;
	return !t->n_sandboxes;
}

/* --- rows --- */

static int read_scope(const char *lines, struct token *t)
{
	size_t n = 0;

	for (const char *p = lines; *p; p++)
		n += *p == '\n';
	if (!n)
		return 0;
	t->sandboxes = calloc(n, sizeof(*t->sandboxes));
	if (!t->sandboxes)
		return -ENOMEM;
	for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
		t->sandboxes[t->n_sandboxes] = strndup(lines, (size_t)(end - lines));
		if (!t->sandboxes[t->n_sandboxes++])
			return -ENOMEM;
	}
	return 0;
}

static int token_read(const struct row_gateway_token *r, struct token *t)
{
	(void)str_copy(t->id, sizeof(t->id), r->id);
	memcpy(t->hash, r->hash, sizeof(t->hash));
	t->uid = r->uid;
	t->created_at_ms = r->made_at_ms;
	t->expires_at_ms = r->expires_at_ms;
	t->on_release = (uint32_t)r->on_release;
	t->warm = (uint32_t)r->warm;
	t->run = (struct process_id){ .pid = (pid_t)r->pid, .by = (enum process_by)r->identity, .value = r->identity_value };
	(void)str_copy(t->run.boot, sizeof(t->run.boot), r->boot_id);
	t->label = strdup(r->label);
	t->policy = strdup(r->policy);
	return t->label && t->policy ? read_scope(r->scope, t) : -ENOMEM;
}

/* A run whose process cannot be shown to live is over. */
static bool take_up_run(struct token *t)
{
	int r;

	if (!t->run.pid)
		return true;
	r = process_open(&t->run, &t->run_pidfd);
	if (!r)
		r = watch_run(t);
	if (r < 0)
		log_info("run_ended", "token=%s uid=%u pid=%d seen_by=start error=%s", t->id, owner_uid(t->uid), (int)t->run.pid,
			 log_q(strerrordesc_np(-r)));
	return r == 0;
}

static void load_row(const struct row_gateway_token *r, void *user)
{
	struct tokens *all = user;
	struct token *t = token_new(all);

	if (!t || token_read(r, t) < 0) {
		all->failed = true;
		if (t)
			token_drop_new(t);
		return;
	}
	if (!all->is_old && !token_is_over(t) && take_up_run(t)) {
		list_add_tail(&all->list, &t->node);
		return;
	}
	watch_fini(&t->death);
	t->is_void = true;
	list_add_tail(&all->over, &t->node);
}

static int put_row(struct store_tx *tx, const struct token *t)
{
	scoped(buf_fini) struct buf scope = BUF_NULL;
	struct row_gateway_token row = {
		.id = t->id, .uid = t->uid, .label = t->label, .made_at_ms = t->created_at_ms, .expires_at_ms = t->expires_at_ms,
		.pid = t->run.pid, .identity = (int)t->run.by, .boot_id = t->run.boot, .identity_value = t->run.value,
		.on_release = (int)t->on_release, .warm = (int)t->warm, .policy = t->policy,
	};
	int r = 0;

	memcpy(row.hash, t->hash, sizeof(row.hash));
	for (size_t i = 0; i < t->n_sandboxes && !r; i++)
		r = buf_printf(&scope, "%s\n", t->sandboxes[i]);
	if (!r)
		r = buf_put(&scope, "", 1);
	if (r < 0)
		return r;
	row.scope = (const char *)buf_data(&scope);
	store_tx_put_gateway_token(tx, &row);
	return 0;
}

/* --- all --- */

/* Something that is told when the store has it. */
struct waiting {
	struct list node;		/* in struct tokens */
	struct token *t;		/* a reference */
	token_made_fn *made;		/* one of the two */
	token_gone_fn *gone;
	void *user;
	char text[TOKEN_TEXT_MAX];	/* secret; of one that is made */
};

static void waiting_free(struct waiting *w)
{
	list_del(&w->node);
	explicit_bzero(w->text, sizeof(w->text));
	free(w);
}

static struct waiting *waiting_new(struct tokens *all, void *user)
{
	struct waiting *w = calloc(1, sizeof(*w));

	if (w) {
		w->user = user;
		list_add_tail(&all->waiting, &w->node);
	}
	return w;
}

static void tell_waiting(struct waiting *w, const struct status *st)
{
	struct token *t = w->t;

	if (w->gone)
		w->gone(w->user, st);
	else
		w->made(w->user, st, status_ok(st) ? t : NULL, status_ok(st) ? w->text : NULL);
	waiting_free(w);
}

int tokens_new(const struct tokens_options *o, struct tokens **ret)
{
	struct tokens *all = calloc(1, sizeof(*all));
	struct store_visitor v = { .user = all, .gateway_token = load_row };
	int r;

	if (!all)
		return -ENOMEM;
	all->loop = o->loop;
	all->store = o->store;
	all->sha256 = o->sha256;
	all->is_old = o->rows_are_old;
	list_init(&all->list);
	list_init(&all->over);
	list_init(&all->waiting);
	r = store_load(o->store, &v);
	if (!r && all->failed)
		r = -ENOMEM;
	if (r < 0) {
		tokens_free(all);
		return r;
	}
	if (all->is_old && !list_is_empty(&all->over))
		log_warn("gateway_tokens", "action=\"all are void: an earlier state of the store was put back\"");
	*ret = all;
	return 0;
}

void tokens_start(struct tokens *all)
{
	list_for_each_safe(n, &all->over) {
		struct token *t = list_entry(n, struct token, node);

		delete_row(all, t->id, false);
		drop(t);
	}
}

/* The store is muted, so whoever waits is told here. */
static void end_waiting(struct tokens *all)
{
	struct status st = STATUS_OK;

	status_set(&st, R_DRAINING, "agentboxd is stopping");
	list_for_each_safe(n, &all->waiting) {
		struct waiting *w = list_entry(n, struct waiting, node);
		struct token *t = w->t;

		tell_waiting(w, &st);
		token_unref(t);
	}
}

struct tokens *tokens_free(struct tokens *all)
{
	if (!all)
		return NULL;
	end_waiting(all);
	list_for_each_safe(n, &all->list)
		token_drop_new(list_entry(n, struct token, node));
	list_for_each_safe(n, &all->over)
		token_drop_new(list_entry(n, struct token, node));
	free(all);
	return NULL;
}

/* Every one is looked at, so that the time tells nothing of which one it is. */
struct token *tokens_find(struct tokens *all, const char *text)
{
	const char *digits = digits_of(text);
	struct token *found = NULL;
	uint8_t hash[32];

	if (!digits)
		return NULL;
	all->sha256(digits, TOKEN_HEX, hash);
	list_for_each(n, &all->list) {
		struct token *t = list_entry(n, struct token, node);

		if (str_eq_secret((const char *)t->hash, sizeof(t->hash), (const char *)hash, sizeof(hash)))
			found = t;
	}
	return found && !token_is_over(found) ? found : NULL;
}

const struct token *tokens_next(const struct tokens *all, const struct token *after)
{
	const struct list *n = after ? after->node.next : all->list.next;

	for (; n != &all->list; n = n->next) {
		const struct token *t = list_entry(n, struct token, node);

		if (!token_is_over(t))
			return t;
	}
	return NULL;
}

/* What has expired goes when something is made: so much is kept at most. */
static void sweep(struct tokens *all)
{
	list_for_each_safe(n, &all->list) {
		struct token *t = list_entry(n, struct token, node);

		if (!token_is_over(t))
			continue;
		delete_row(all, t->id, false);
		drop(t);
	}
}

/* --- making --- */

static void on_made(void *user, const struct status *st)
{
	struct waiting *w = user;
	struct token *t = w->t;
	struct status over = *st;

	if (status_ok(st) && t->is_void)
		status_set_code(&over, CODE_FAILED_PRECONDITION, "it was revoked, or its process ended, before it was there");
	tell_waiting(w, &over);
	if (!status_ok(st) && !t->is_void)
		drop(t);
	token_unref(t);
}

static bool may_make(struct tokens *all, const struct token_make *m, struct status *why)
{
	unsigned n = 0;

	*why = (struct status)STATUS_OK;
	sweep(all);
	list_for_each(node, &all->list)
		n += list_entry(node, struct token, node)->uid == m->who->uid;
	if (n >= TOKENS_PER_UID)
		status_set(why, R_QUOTA_UID, "this uid has %u tokens already; revoke some (agentboxctl token rm)", n);
	else if (m->n_sandboxes > TOKEN_SANDBOXES_MAX)
		status_field(why, "sandboxes", "at most %u", TOKEN_SANDBOXES_MAX);
	else if (m->label && (strlen(m->label) > TOKEN_LABEL_MAX || !str_is_utf8(m->label, strlen(m->label))))
		status_field(why, "label", "at most %u bytes of UTF-8", TOKEN_LABEL_MAX);
	else if (m->expires_at_ms && m->expires_at_ms <= clock_wall_ms())
		status_field(why, "expires_at", "is over already");
	else if (m->is_run && m->who->pidfd < 0)
		status_field(why, "run", "the caller's process cannot be watched here");
	return status_ok(why);
}

static int token_fill(struct token *t, const struct token_make *m, const char *text)
{
	rng_id(t->id, TOKEN_ID_LEN);
	t->all->sha256(digits_of(text), TOKEN_HEX, t->hash);
	t->uid = m->who->uid;
	t->created_at_ms = clock_wall_ms();
	t->expires_at_ms = m->expires_at_ms;
	t->warm = m->warm;
	t->label = strdup(m->label ? m->label : "");
	t->policy = strdup(m->policy ? m->policy : "");
	if (m->n_sandboxes)
		t->sandboxes = calloc(m->n_sandboxes, sizeof(*t->sandboxes));
	if (!t->label || !t->policy || (m->n_sandboxes && !t->sandboxes))
		return -ENOMEM;
	for (size_t i = 0; i < m->n_sandboxes; i++) {
		t->sandboxes[i] = strdup(m->sandboxes[i]);
		if (!t->sandboxes[i])
			return -ENOMEM;
		t->n_sandboxes++;
	}
	if (!m->is_run)
		return 0;
	t->on_release = m->on_release;
	process_identify(m->who->pid, m->who->pidfd, &t->run);
	t->run_pidfd = fcntl(m->who->pidfd, F_DUPFD_CLOEXEC, 3);
	return t->run_pidfd < 0 ? -errno : watch_run(t);
}

static int commit_new(struct tokens *all, struct waiting *w)
{
	struct store_tx *tx;
	int r = store_tx_new(all->store, &tx);

	if (r < 0)
		return r;
	r = put_row(tx, w->t);
	if (r < 0) {
		store_tx_drop(tx);
		return r;
	}
	list_add_tail(&all->list, &w->t->node);
	token_ref(w->t);
	store_tx_commit(tx, true, on_made, w);
	return 0;
}

int tokens_make(struct tokens *all, const struct token_make *m, token_made_fn *done, void *user, struct status *why)
{
	struct waiting *w;
	int r = -ENOMEM;

	if (!may_make(all, m, why))
		return -EINVAL;
	w = waiting_new(all, user);
	if (!w)
		return -ENOMEM;
	w->made = done;
	draw(w->text);
	w->t = token_new(all);
	if (w->t)
		r = token_fill(w->t, m, w->text);
	if (!r)
		r = commit_new(all, w);
	if (!r)
		return 0;
	if (w->t)
		token_drop_new(w->t);
	waiting_free(w);
	return r;
}

/* --- revoking --- */

static void on_revoked(void *user, const struct status *st)
{
	struct waiting *w = user;
	struct token *t = w->t;

	tell_waiting(w, st);
	token_unref(t);
}

static int revoke(struct token *t, token_gone_fn *done, void *user)
{
	struct waiting *w = waiting_new(t->all, user);
	struct store_tx *tx;

	if (!w)
		return -ENOMEM;
	if (store_tx_new(t->all->store, &tx) < 0) {
		waiting_free(w);
		return -ENOMEM;
	}
	w->gone = done;
	w->t = token_ref(t);
	store_tx_del_gateway_token(tx, t->id);
	store_tx_commit(tx, true, on_revoked, w);
	log_info("token_revoked", "token=%s uid=%u", t->id, owner_uid(t->uid));
	drop(t);
	return 0;
}

int tokens_revoke(struct tokens *all, uid_t uid, const char *id, token_gone_fn *done, void *user)
{
	list_for_each(n, &all->list) {
		struct token *t = list_entry(n, struct token, node);

		if (t->uid == uid && str_eq(t->id, id))
			return revoke(t, done, user);
	}
	return -ENOENT;
}

void tokens_revoke_all(struct tokens *all, uid_t uid)
{
	list_for_each_safe(n, &all->list) {
		struct token *t = list_entry(n, struct token, node);

		if (t->uid != uid)
			continue;
		log_info("token_revoked", "token=%s uid=%u", t->id, owner_uid(t->uid));
		delete_row(all, t->id, true);
		drop(t);
	}
}
