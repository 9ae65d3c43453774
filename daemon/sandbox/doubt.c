/* SPDX-License-Identifier: MIT */
/*
 * Rows that cannot be relied on: the database was lost and rebuilt, or an earlier one was put back. Then
 * no sandbox is ended because of what they say, nothing is made that they may have forgotten, and one
 * report in the log says what is missing. The evidence comes from the store at the start (store_doubt()), or from a
 * sandbox with our tag whose number the rows cannot explain: one made after them, or by another daemon with
 * our host id. Invariant: a sandbox whose rows are in doubt is not ended.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/attempt.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define NAMES_MAX 600u

/* It may be somebody else's by now: extensions keep it alive while it is leased, and no policy ends it. */
static void hands_off(struct sandbox_core *core, struct sandbox *b)
{
	b->ours = false;
	b->adopted = true;
	b->claimed = true;
	b->released_at_ms = b->unclaimed_at_ms = b->unclaimed_boot_ms = 0;
	sandbox_save(core, b, true);
	runner_poke(b);
}

/* The copy may lack a lease that was taken after its release: it waits for a claim, as one without a row does. */
static void wait_for_claim(struct sandbox_core *core, struct sandbox *b)
{
	b->claimed = false;
	b->released_at_ms = 0;
	b->unclaimed_at_ms = clock_wall_ms();
	b->unclaimed_boot_ms = (int64_t)clock_boot_ms();
	sandbox_save(core, b, true);
	runner_poke(b);
}

void doubt_load(struct sandbox_core *core)
{
	core->doubt = store_doubt(core->store);
	if (core->doubt == STORE_SURE)
		return;
	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (!b->ours || !sandbox_is_live(b))
			continue;
		if (core->doubt == STORE_OLD)
			hands_off(core, b);
		else if (!b->n_leases && (b->released_at_ms || !b->claimed))
			wait_for_claim(core, b);
	}
}

/* --- what the cloud shows --- */

/* Is the sandbox's number the one of another request? Children of a fork share their parent's number and tag. */
static bool is_taken(const struct sandbox_core *core, const struct tags *t)
{
	if (index_seq_has_other_tag(core, t->seq, t->req))
		return true;
	list_for_each(i, &core->attempts) {
		const struct attempt *a = list_entry(i, struct attempt, node);

		if (a->seq == t->seq && !str_eq(a->req_tag, t->req))
			return true;
	}
	return false;
}

static bool is_explained(const struct sandbox_core *core, const struct tags *t)
{
	switch (core->doubt) {
	case STORE_LOST:
	case STORE_FROM_BACKUP:
		return true;	/* its row is among those that are missing */
	case STORE_OLD:
		return t->seq && store_gave_seq(core->store, t->seq) && !is_taken(core, t);
	case STORE_SURE:
		break;
	}
	return !t->seq || (store_knows_seq(core->store, t->seq) && !is_taken(core, t));
}

/* The names, or ids, of sandboxes that the report is about, as many as fit. */
static void list_names(const struct sandbox_core *core, char ret[NAMES_MAX])
{
	unsigned left = 0;
	size_t at = 0;

	ret[0] = 0;
	list_for_each(i, &core->sandboxes) {
		const struct sandbox *b = list_entry(i, struct sandbox, node);
		const char *name = b->name[0] ? b->name : b->id;

		if (!sandbox_is_live(b) || (core->doubt != STORE_LOST && !b->from_tag && !b->adopted))
			continue;
		if (at + strlen(name) + 24 < NAMES_MAX)
			at += (size_t)snprintf(ret + at, NAMES_MAX - at, "%s%s", at ? "," : "", name);
		else
			left++;
	}
	if (left)
		snprintf(ret + at, NAMES_MAX - at, ",and_%u_more", left);
}

static unsigned count_live(const struct sandbox_core *core)
{
	unsigned n = 0;

	list_for_each(i, &core->sandboxes)
		n += sandbox_is_live(list_entry(i, struct sandbox, node));
	return n;
}

/* Comes once in a run. */
static void report(struct sandbox_core *core)
{
	static const struct { const char *from, *lost, *text; } what[] = {
		[STORE_FROM_BACKUP] = { "backup", "changes of the last minute, or none",
					"the database was lost and came back from its second copy; changes of the last "
					"minute before may be missing" },
		[STORE_OLD] = { "old_database", "all since then; nothing it knows is ended by a policy",
				"the database is older than what the cloud shows; what it knows is kept while leased "
				"and not ended by policies" },
		[STORE_LOST] = { "cloud_tags", "policies set later, leases, request ids, events, commands",
				 "the database and its second copy were lost; sandboxes have the policy of their "
				 "creation, and leases, request ids, events and commands are gone" },
	};
	char names[NAMES_MAX];

	list_names(core, names);
	core->doubt_told = true;
	core->doubt_at_ms = clock_wall_ms();
	core->doubt_text = what[core->doubt].text;
	log_error("store_rebuilt", "from=%s sandboxes=%u lost=%s of=%s", what[core->doubt].from,
		  count_live(core), log_q(what[core->doubt].lost), names[0] ? names : "none");
}

/* The cloud shows that the database is old. Sandboxes that were made in this run are not in doubt. */
static void raise_doubt(struct sandbox_core *core, const char *id, uint64_t seq)
{
	log_error("host_seq_unexplained", "sandbox=%s seq=%llu host=%s doing=hands_off", id,
		  (unsigned long long)seq, store_host_id(core->store));
	if (core->doubt == STORE_OLD)
		return;
	core->doubt = STORE_OLD;
	store_new_incarnation(core->store);
	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (!b->loaded || !b->ours || !sandbox_is_live(b))
			continue;
		if (b->box)
			warm_doubted(b);
		hands_off(core, b);
	}
	report(core);
}

bool doubt_adopts_as_ours(struct sandbox_core *core, const char *id, const struct tags *t)
{
	if (is_explained(core, t))
		return true;
	raise_doubt(core, id, t->seq);
	return false;
}

/* --- the first lists --- */

bool doubt_waits(const struct sandbox_core *core, const struct account *a)
{
	return core->doubt != STORE_SURE && !a->listed_at_ms;
}

void doubt_listed(struct sandbox_core *core)
{
	struct store_tx *t;

	if (core->doubt == STORE_SURE || core->doubt_told)
		return;
	for (size_t i = 0; i < core->n_accounts; i++)
		if (!core->accounts[i].listed_at_ms)
			return;
	if (store_tx_new(core->store, &t) < 0)
		return; /* tried again with the next list */
	store_tx_sure(t);
	core_commit(core, t, true);
	report(core);
}

struct sandbox *doubt_sandbox_of_tag(struct sandbox_core *core, const struct account *a, uid_t uid,
				     const char *req_tag)
{
	struct sandbox *found = NULL, *b = NULL;

	while ((b = index_of_tag(core, a, req_tag, b)))
		if (b->uid == uid && (!found || core_is_older(b, found)))
			found = b;
	return found;
}
