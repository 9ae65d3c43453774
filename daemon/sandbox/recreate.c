/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/recreate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/creation.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/recipe.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/str.h"

#define HOPS_MAX 1000u

static void collect_facts(const struct sandbox_core *core, const struct sandbox *b,
			  enum sandbox_state before, bool by_us, struct recipe_facts *ret)
{
	*ret = (struct recipe_facts){
		.on_gone = b->policy.on_gone,
		.ended = by_us || before == SANDBOX_KILLING,
		.ours = b->ours,
		.named = b->named,
		.in_doubt = core->doubt != STORE_SURE && (b->loaded || b->from_tag),
		.known = b->recipe.len != 0,
		.in_use = b->n_leases || b->n_commands,
		.keep_alive = b->policy.keep_alive,
		.before = before,
		.reason = b->gone_reason,
		.generation = b->generation,
		.age_ms = b->started_at_ms ? account_cloud_now(b->account) - b->started_at_ms : -1,
	};
}

/* Process leases go over to the next sandbox; holders of other leases are told, and come back by the name. */
static int inherit_leases(struct creation *c, const struct sandbox *b)
{
	list_for_each(n, &b->leases) {
		struct lease *x = list_entry(n, struct lease, sandbox_node);
		struct creation_heir *v;

		if (x->kind != ROW_LEASE_PROCESS || !x->holder || x->holder->dead)
			continue;
		v = reallocarray(c->heirs, c->n_heirs + 1, sizeof(*v));
		if (!v)
			return -ENOMEM;
		c->heirs = v;
		v[c->n_heirs] = (struct creation_heir){ .label = str_dup(x->label) };
		if (!v[c->n_heirs].label)
			return -ENOMEM;
		v[c->n_heirs].holder = x->holder;
		x->holder->refs++;
		c->n_heirs++;
	}
	return 0;
}

/* The request tag of the successor follows from the vanished sandbox, so that it is found again also without the store. */
static int tag_of(const struct sandbox_core *core, const struct sandbox *b, char ret[TAG_REQ_LEN + 1])
{
	char *text = str_printf("%u Recreate %s %s", b->uid, b->account->name, b->id);
	uint8_t hash[32];

	if (!text)
		return -ENOMEM;
	core->sha256(text, strlen(text), hash);
	free(text);
	str_hex(hash, TAG_REQ_LEN / 2, ret);
	return 0;
}

static int recreate_fill(struct creation *c, const struct sandbox *b)
{
	int r = recipe_unpack(&b->recipe, &c->what);

	if (!r)
		r = text_set(&c->replaces, b->id);
	if (!r)
		r = inherit_leases(c, b);
	c->att.alone = true;
	c->att.policy = b->policy;
	policy_format(&c->att.policy, c->policy_text);
	c->name = core_find_name(c->att.core, b->uid, b->name);
	if (!r && (!c->name || c->name->creation))
		r = -EEXIST;
	if (!r)
		c->generation = MAX(c->name->generation, b->generation) + 1;
	return r;
}

void recreate_decide(struct sandbox_core *core, struct sandbox *b, enum sandbox_state before,
		     bool by_us, struct recreation *ret)
{
	enum recipe_verdict verdict;
	struct recipe_facts facts;
	char tag[TAG_REQ_LEN + 1];
	struct status st;
	int r;

	*ret = (struct recreation){ 0 };
	collect_facts(core, b, before, by_us, &facts);
	verdict = recipe_judge(&facts);
	ret->verdict = recipe_verdict_name(verdict);
	if (verdict != RECIPE_GO)
		return;
	if (core_refused_by_limits(core, b->account, b->uid, 1, &st)) {
		ret->verdict = "no, a limit is reached";
		return;
	}
	r = tag_of(core, b, tag);
	if (!r)
		r = creation_new(core, b->account, b->uid, tag, &ret->creation);
	if (!r) {
		r = recreate_fill(ret->creation, b);
		if (r < 0)
			attempt_drop(&ret->creation->att);
	}
	if (r < 0) {
		ret->creation = NULL;
		ret->verdict = r == -ENOMEM ? "no, out of memory" : "no, its parameters cannot be read";
	}
}

void recreate_intend(struct recreation *r, struct store_tx *t)
{
	int e;

	if (!r->creation)
		return;
	e = creation_intend(r->creation, t);
	if (!e)
		return;
	attempt_drop(&r->creation->att);
	r->creation = NULL;
	r->verdict = e == -EAGAIN ? "no, the daemon cannot write its state" : "no, out of memory";
}

void recreate_commit(struct sandbox_core *core, struct recreation *r, struct store_tx *t)
{
	if (!r->creation) {
		core_commit(core, t, true);
		return;
	}
	log_info("recreate", "sandbox=%s name=%s generation=%u seq=%llu", r->creation->replaces,
		 r->creation->name->name, r->creation->generation,
		 (unsigned long long)r->creation->att.seq);
	store_tx_commit(t, true, creation_on_intent, &r->creation->att);
}

static const struct sandbox *next_of(const struct sandbox_core *core, const struct sandbox *b)
{
	list_for_each(i, &core->sandboxes) {
		const struct sandbox *o = list_entry(i, struct sandbox, node);

		if (o->account == b->account && o->uid == b->uid && str_eq(o->replaces, b->id))
			return o;
	}
	return NULL;
}

const struct sandbox *recreate_successor(const struct sandbox *b)
{
	const struct sandbox_core *core = b->account->core;
	const struct sandbox *at = next_of(core, b);

	for (unsigned i = 0; at && !sandbox_is_live(at) && i < HOPS_MAX; i++)
		at = next_of(core, at);
	return at && sandbox_is_live(at) ? at : NULL;
}
