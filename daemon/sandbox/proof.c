/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/proof.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define ASK_MS	     30000u
#define RETRY_MS     1000u
#define RETRY_MAX_MS 5000u
#define PAST_MS	     (24ll * 3600 * 1000)	/* a row whose end is so long past proves nothing */

/* The key's hash is mixed with the host's id: two hosts' stores do not show that they have the same key. */
static bool print_of(const struct account *a, char ret[PROOF_PRINT_LEN + 1])
{
	uint8_t hash[32];
	char text[256], *hex = text + 100;
	int n;

	if (!cloud_key_hash(a->cloud, a->core->sha256, hash))
		return false;
	str_hex(hash, sizeof(hash), hex);
	n = snprintf(text, 100, "key of %.64s ", store_host_id(a->core->store));
	memmove(text + n, hex, PROOF_PRINT_LEN);
	a->core->sha256(text, (size_t)n + PROOF_PRINT_LEN, hash);
	str_hex(hash, sizeof(hash), ret);
	return true;
}

/* A row that the cloud should show to the right key. */
static bool can_prove(const struct sandbox *b, const struct account *a)
{
	return b->account == a && b->state != SANDBOX_GONE &&
	       (b->state == SANDBOX_PAUSED || !b->end_at_ms || b->end_at_ms + PAST_MS > account_cloud_now(a));
}

static uint32_t count_rows(const struct account *a)
{
	uint32_t n = 0;

	list_for_each(i, &a->core->sandboxes)
		n += can_prove(list_entry(i, struct sandbox, node), a);
	return n;
}

static bool has_row_of(struct account *a, const struct cloud_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct sandbox *b = core_find(a->core, a, list->v[i]->id);

		if (b && can_prove(b, a))
			return true;
	}
	return false;
}

static void write_print(struct account *a)
{
	struct store_tx *t;

	if (store_tx_new(a->core->store, &t) < 0) {
		log_warn("key_print", "account=%s error=nomem at=next_start", a->name);
		return;
	}
	store_tx_put_key_print(t, a->name, a->proof.trusted);
	core_commit(a->core, t, true);
}

static void trust(struct account *a, const char *print)
{
	struct proof *p = &a->proof;
	bool is_new = !str_eq(p->trusted, print);

	if (is_new && p->trusted[0])
		log_info("key_taken", "account=%s", a->name);
	else if (!status_ok(&p->why))
		log_info("key_back", "account=%s", a->name);
	(void)str_copy(p->trusted, sizeof(p->trusted), print);
	p->why = (struct status)STATUS_OK;
	p->since_ms = 0;
	p->failures = 0;
	timer_clear(&p->timer);
	if (is_new)
		write_print(a);
	cloud_key_trust(a->cloud, CLOUD_KEY_TRUSTED, NULL);
}

static void distrust(struct account *a, const struct status *why)
{
	struct proof *p = &a->proof;
	uint64_t wait = rules_backoff_ms(p->failures++, RETRY_MS, RETRY_MAX_MS, rng_u64(&a->core->rng));

	if (!p->since_ms) {
		p->since_ms = clock_wall_ms();
		log_error("key_strange", "account=%s text=%s", a->name, log_q(why->text));
	}
	p->why = *why;
	cloud_key_trust(a->cloud, CLOUD_KEY_STRANGE, why);
	if (timer_set(&p->timer, clock_boot_ms() + wait) < 0)
		log_warn("key_timer", "account=%s error=nomem at=next_key", a->name);
}

static void on_listed(struct cloud_result *r, void *user)
{
	struct account *a = user;
	char print[PROOF_PRINT_LEN + 1];
	struct status why = r->status;

	a->proof.call = NULL;
	if (!print_of(a, print))
		return;
	if (r->outcome == CLOUD_DONE && r->list) {
		if (has_row_of(a, r->list) || !count_rows(a)) {
			trust(a, print);
			return;
		}
		status_set(&why, R_KEY_REJECTED,
			   "the key of account %s shows none of its %u sandboxes, so it is another team's: nothing is asked or "
			   "changed with it. Put the right key back; a key of another team belongs into an [account] section "
			   "of another name", a->name, count_rows(a));
	}
	distrust(a, &why);
}

static void on_timer(struct timer *t, void *user)
{
	static const struct cloud_filter all = { 0 };
	struct account *a = user;
	struct cloud_ask ask = { .deadline_ms = clock_boot_ms() + ASK_MS, .proves_key = true, .done = on_listed,
				 .user = a };
	struct status why;

	cloud_call_cancel(a->proof.call);
	a->proof.call = cloud_list_all(a->cloud, &all, &ask);
	if (!a->proof.call) {
		status_errno(&why, -ENOMEM, "asking whose key it is");
		distrust(a, &why);
	}
}

/* Comes from inside calls of the cloud, where none may be begun or cancelled. */
static void on_key_changed(void *user)
{
	struct account *a = user;
	struct proof *p = &a->proof;
	char print[PROOF_PRINT_LEN + 1];
	struct status why;

	if (!print_of(a, print))
		return;
	if (!p->trusted[0] || str_eq(print, p->trusted) || !count_rows(a)) {
		trust(a, print);
		return;
	}
	p->failures = 0;
	status_set(&why, R_KEY_REJECTED, "the daemon is still checking whether the new key of account %s belongs to its sandboxes", a->name);
	cloud_key_trust(a->cloud, CLOUD_KEY_ASKED, &why);
	if (timer_set(&p->timer, clock_boot_ms()) < 0)
		distrust(a, &why);
}

void proof_load(struct sandbox_core *core)
{
	for (size_t i = 0; i < core->n_accounts; i++) {
		struct account *a = &core->accounts[i];
		char *print = store_key_print(core->store, a->name);

		timer_init(&a->proof.timer, core->loop, on_timer, a);
		if (print)
			(void)str_copy(a->proof.trusted, sizeof(a->proof.trusted), print);
		free(print);
	}
}

static void follow_key(struct account *a)
{
	if (a->proof.is_needless)
		return;
	cloud_on_key_changed(a->cloud, on_key_changed, a);
	on_key_changed(a);
}

void proof_add(struct account *a)
{
	timer_init(&a->proof.timer, a->core->loop, on_timer, a);
	follow_key(a);
}

void proof_drop(struct account *a)
{
	cloud_on_key_changed(a->cloud, NULL, NULL);
	cloud_call_cancel(a->proof.call);
	a->proof.call = NULL;
	timer_clear(&a->proof.timer);
}

void proof_start(struct sandbox_core *core)
{
	for (size_t i = 0; i < core->n_accounts; i++)
		follow_key(&core->accounts[i]);
}

void proof_stop(struct sandbox_core *core)
{
	for (size_t i = 0; i < core->n_accounts; i++)
		proof_drop(&core->accounts[i]);
}

bool proof_is_strange(const struct account *a, struct status *ret_why)
{
	if (!a->proof.since_ms)
		return false;
	*ret_why = a->proof.why;
	return true;
}

bool sandbox_key_strange(const struct sandbox_core *core, size_t account, struct status *ret_why, int64_t *ret_since_ms)
{
	*ret_since_ms = core->accounts[account].proof.since_ms;
	return proof_is_strange(&core->accounts[account], ret_why);
}
