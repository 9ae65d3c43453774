/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cloud/model.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/recreate.h"
#include "daemon/sandbox/tie.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

static const struct {
	const char *name;
	unsigned next;	/* states that may follow */
} states[] = {
	[SANDBOX_STATE_NONE] = {"none", ~0u},
	[SANDBOX_CREATING] = {"creating", BIT(SANDBOX_RUNNING) | BIT(SANDBOX_PAUSED) |
						  BIT(SANDBOX_KILLING) | BIT(SANDBOX_GONE)},
	[SANDBOX_RUNNING] = {"running", BIT(SANDBOX_PAUSING) | BIT(SANDBOX_PAUSED) |
						BIT(SANDBOX_SNAPSHOTTING) | BIT(SANDBOX_KILLING) |
						BIT(SANDBOX_GONE)},
	[SANDBOX_PAUSING] = {"pausing", BIT(SANDBOX_PAUSED) | BIT(SANDBOX_RUNNING) |
						BIT(SANDBOX_KILLING) | BIT(SANDBOX_GONE)},
	[SANDBOX_PAUSED] = {"paused", BIT(SANDBOX_RESUMING) | BIT(SANDBOX_RUNNING) |
					      BIT(SANDBOX_KILLING) | BIT(SANDBOX_GONE)},
	[SANDBOX_RESUMING] = {"resuming", BIT(SANDBOX_RUNNING) | BIT(SANDBOX_PAUSED) |
						  BIT(SANDBOX_KILLING) | BIT(SANDBOX_GONE)},
	[SANDBOX_SNAPSHOTTING] = {"snapshotting", BIT(SANDBOX_RUNNING) | BIT(SANDBOX_PAUSED) |
							  BIT(SANDBOX_KILLING) | BIT(SANDBOX_GONE)},
	/* Back to running: a rule was killing it, and somebody resumed it elsewhere. */
	[SANDBOX_KILLING] = {"killing", BIT(SANDBOX_GONE) | BIT(SANDBOX_RUNNING)},
	/* Back: a list shows it, so that it was wrongly taken for gone. */
	[SANDBOX_GONE] = {"gone", BIT(SANDBOX_RUNNING) | BIT(SANDBOX_PAUSED)},
};

const char *sandbox_state_name(enum sandbox_state s)
{
	return (unsigned)s < ARRAY_SIZE(states) ? states[s].name : "?";
}

void sandbox_set_state(struct sandbox *b, enum sandbox_state to)
{
	must((unsigned)to < ARRAY_SIZE(states));
	if (b->state == to)
		return;
	must(states[b->state].next & BIT(to));
	log_debug("sandbox_state", "sandbox=%s from=%s to=%s", b->id, states[b->state].name,
		  states[to].name);
	index_uncount(b);
	b->state = to;
	index_count(b);
	runner_note(b);
	tie_edge(b, to);
}

bool sandbox_is_live(const struct sandbox *b)
{
	return b->state != SANDBOX_GONE && b->state != SANDBOX_KILLING;
}

/* The text of every field of a sandbox that was not set: most are not, and each would be an allocation. */
static const char no_text[] = "";

static void text_free(char *s)
{
	if (s != no_text)
		free(s);
}

static void secret_free(char *s)
{
	if (s != no_text)
		str_free_secret(s);
}

void text_give(char **field, char *text)
{
	text_free(*field);
	*field = text;
}

static int set_by(void (*free_old)(char *), char **field, const char *s)
{
	char *copy;

	if (*field == no_text && str_is_empty(s))
		return 0;
	copy = str_dup(s ? s : "");
	if (!copy)
		return -ENOMEM;
	free_old(*field);
	*field = copy;
	return 0;
}

int text_set(char **field, const char *s)
{
	return set_by(text_free, field, s);
}

static int secret_set(char **field, const char *s)
{
	return set_by(secret_free, field, s);
}

struct sandbox *sandbox_free(struct sandbox *b)
{
	if (!b)
		return NULL;
	must(b->magic == SANDBOX_MAGIC && !b->fetch && !b->killing && !b->box && !b->claim && list_is_empty(&b->leases) &&
	     list_is_empty(&b->turns));
	tie_forget(b);
	b->runner = runner_free(b);
	defer_cancel(&b->turn_kick);
	b->network = cloud_network_free(b->network);
	text_free(b->network_text);
	b->metrics.m = cloud_metrics_free(b->metrics.m);
	b->magic = 0;
	free(b->id);
	text_free(b->name);
	text_free(b->req_tag);
	text_free(b->template_id);
	text_free(b->alias);
	text_free(b->envd_version);
	text_free(b->domain);
	text_free(b->warning);
	secret_free(b->access_token);
	secret_free(b->traffic_token);
	pairs_fini(&b->metadata);
	recipe_fini(&b->recipe);
	text_free(b->replaces);
	text_free(b->ended_by);
	text_free(b->warm);
	text_free(b->gone_evidence);
	free(b);
	return NULL;
}

void sandbox_freep(struct sandbox **b)
{
	*b = sandbox_free(*b);
}

int sandbox_new(struct account *a, const char *id, struct sandbox **ret)
{
	scoped(sandbox_freep) struct sandbox *b = calloc(1, sizeof(*b));
	char **texts[] = { &b->name,	 &b->req_tag, &b->template_id, &b->alias, &b->envd_version,
			   &b->domain, &b->warning, &b->access_token, &b->traffic_token,
			   &b->gone_evidence, &b->network_text, &b->replaces, &b->ended_by, &b->warm };

	if (!b)
		return -ENOMEM;
	b->magic = SANDBOX_MAGIC;
	list_init(&b->node);
	index_node_init(&b->index);
	list_init(&b->leases);
	list_init(&b->turns);
	list_init(&b->ties);
	list_init(&b->untold);
	b->account = a;
	policy_default(&b->policy);
	b->generation = 1;
	if (text_set(&b->id, id) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		*texts[i] = (char *)no_text;
	*ret = give(b);
	return 0;
}

static int texts_from_row(struct sandbox *b, const struct row_sandbox *r)
{
	return text_set(&b->name, r->name) || text_set(&b->req_tag, r->req_tag) ||
	       text_set(&b->template_id, r->template_id) || text_set(&b->alias, r->alias) ||
	       text_set(&b->envd_version, r->envd_version[0] ? r->envd_version : CLOUD_VERSION_UNKNOWN) ||
	       text_set(&b->domain, r->domain) ||
	       text_set(&b->warning, r->warning) || secret_set(&b->access_token, r->access_token) ||
	       secret_set(&b->traffic_token, r->traffic_token) ||
	       text_set(&b->gone_evidence, r->gone_evidence) || text_set(&b->network_text, r->network) ||
	       text_set(&b->replaces, r->replaces) || text_set(&b->ended_by, r->ended_by) || text_set(&b->warm, r->warm) || recipe_set(&b->recipe, r->recipe, r->recipe_len)
		       ? -ENOMEM
		       : 0;
}

/* A row's wall time as BOOTTIME; one in the future (the clock was set back) counts as now. */
static int64_t boot_of_past(int64_t wall_ms)
{
	int64_t at;

	if (!wall_ms)
		return 0;
	at = (int64_t)clock_boot_ms() - MAX(clock_wall_ms() - wall_ms, (int64_t)0);
	return at ? at : 1;
}

static int64_t wall_of(int64_t boot_ms)
{
	return boot_ms ? MAX(clock_wall_ms() - ((int64_t)clock_boot_ms() - boot_ms), (int64_t)1) : 0;
}

/* Rows have -1, 0 and 1 for a tri, except that on_timeout has the numbers of enum tri. */
static enum tri tri_of_row(int v)
{
	return (enum tri)(v + 1);
}

static int row_of_tri(enum tri v)
{
	return (int)v - 1;
}

int sandbox_from_row(struct account *a, const struct row_sandbox *r, struct policy_memo *memo, struct sandbox **ret)
{
	scoped(sandbox_freep) struct sandbox *b = NULL;
	int e = sandbox_new(a, r->id, &b);

	if (!e)
		e = texts_from_row(b, r);
	if (!e)
		e = pairs_from_blob(&b->metadata, r->metadata, r->metadata_len);
	if (e == -EBADMSG)
		log_warn("sandbox_metadata", "sandbox=%s row=unreadable using=none", r->id);
	else if (e < 0)
		return e;
	b->uid = r->uid;
	b->generation = r->generation;
	b->ours = r->ours;
	b->adopted = r->adopted;
	b->claimed = r->claimed;
	b->unclaimed_at_ms = r->unclaimed_at_ms;
	b->seq = r->seq;
	b->token_known = r->token_known;
	b->started_at_ms = r->started_at_ms;
	b->end_at_ms = r->end_at_ms;
	b->cpu_count = r->cpu_count;
	b->memory_mb = r->memory_mb;
	b->disk_size_mb = r->disk_size_mb;
	b->allow_internet_access = tri_of_row(r->allow_internet_access);
	b->lifecycle = (struct cloud_lifecycle){ .pause = (enum tri)r->on_timeout,
						 .keep_memory = tri_of_row(r->keep_memory),
						 .auto_resume = tri_of_row(r->auto_resume) };
	if (r->network[0] && cloud_network_parse(r->network, &b->network) < 0)
		log_warn("sandbox_network", "sandbox=%s row=unreadable ignoring=1", b->id);
	if (policy_parse_next(memo, r->policy, &b->policy) < 0) /* the default ends nothing */
		log_warn("sandbox_policy", "sandbox=%s policy=%s using=default", b->id,
			 log_q(r->policy));
	b->as_of_ms = r->as_of_ms;
	b->gone_reason = (enum ab_reason)r->gone_reason;
	b->gone_at_ms = r->gone_at_ms;
	b->timeout_s = r->timeout_s;
	b->released_at_ms = boot_of_past(r->released_at_ms);
	b->used_at_ms = boot_of_past(r->used_at_ms);
	if (b->used_at_ms)
		b->used_at_ms += USED_SAVE_MS;	/* the last use may be so much later than the row says */
	b->unclaimed_boot_ms = boot_of_past(r->unclaimed_at_ms);
	b->warm_state = r->warm[0] ? (enum warm_state)r->warm_state : WARM_NONE;
	memcpy(b->warm_print, r->warm_print, sizeof(b->warm_print));
	b->warm_at_ms = r->warm_at_ms;
	b->asked_end_at_ms = r->asked_end_at_ms;
	sandbox_set_state(b, (enum sandbox_state)r->state);
	*ret = give(b);
	return 0;
}

/* The state to store: transitions are not stored, since after a restart the cloud says what became of them. */
static enum sandbox_state lasting(enum sandbox_state s)
{
	switch (s) {
	case SANDBOX_PAUSING:
	case SANDBOX_SNAPSHOTTING:
		return SANDBOX_RUNNING;
	case SANDBOX_RESUMING:
		return SANDBOX_PAUSED;
	default:
		return s;
	}
}

void sandbox_to_row(const struct sandbox *b, char policy_text[POLICY_TEXT_MAX], struct row_sandbox *ret)
{
	policy_format(&b->policy, policy_text);
	*ret = (struct row_sandbox){
		.account = account_name(b->account),
		.id = b->id,
		.name = b->name,
		.uid = b->uid,
		.generation = b->generation,
		.state = (int)lasting(b->state),
		.ours = b->ours,
		.adopted = b->adopted,
		.claimed = b->claimed,
		.unclaimed_at_ms = b->unclaimed_at_ms,
		.seq = b->seq,
		.req_tag = b->req_tag,
		.template_id = b->template_id,
		.alias = b->alias,
		.metadata = b->metadata.blob,
		.metadata_len = b->metadata.len,
		.started_at_ms = b->started_at_ms,
		.end_at_ms = b->end_at_ms,
		.cpu_count = b->cpu_count,
		.memory_mb = b->memory_mb,
		.disk_size_mb = b->disk_size_mb,
		.envd_version = b->envd_version,
		.domain = b->domain,
		.access_token = b->access_token,
		.traffic_token = b->traffic_token,
		.token_known = b->token_known,
		.allow_internet_access = row_of_tri(b->allow_internet_access),
		.on_timeout = (int)b->lifecycle.pause,
		.keep_memory = row_of_tri(b->lifecycle.keep_memory),
		.auto_resume = row_of_tri(b->lifecycle.auto_resume),
		.policy = policy_text,
		.warning = b->warning,
		.as_of_ms = b->as_of_ms,
		.gone_reason = (int)b->gone_reason,
		.gone_at_ms = b->gone_at_ms,
		.gone_evidence = b->gone_evidence,
		.released_at_ms = wall_of(b->released_at_ms),
		.used_at_ms = wall_of(b->used_at_ms),
		.timeout_s = b->timeout_s,
		.network = b->network_text,
		.recipe = b->recipe.p,
		.recipe_len = b->recipe.len,
		.replaces = b->replaces,
		.ended_by = b->ended_by,
		.warm = b->warm,
		.warm_state = (int)b->warm_state,
		.warm_at_ms = b->warm_at_ms,
		.asked_end_at_ms = b->asked_end_at_ms,
	};
	memcpy(ret->warm_print, b->warm_print, sizeof(ret->warm_print));
}

/* --- learning --- */

_Static_assert(CLOUD_ID_MAX <= ROW_TEXT_MAX && CLOUD_TOKEN_MAX <= ROW_SECRET_MAX, "rows hold ids and tokens");

struct learner {
	struct sandbox *sandbox;
	bool changed;
	int err;
};

/* What its row cannot hold is not kept in memory either, so that a restart changes nothing. */
static void not_kept(struct learner *l, const char *what)
{
	if (!l->sandbox->told_unkept)
		log_warn("sandbox_unkept", "sandbox=%s field=%s reason=out_of_bounds using=none", l->sandbox->id, what);
	l->sandbox->told_unkept = true;
}

static void learn_text(struct learner *l, char **field, const char *s)
{
	if (!s || str_eq(*field, s) || l->err)
		return;
	l->err = text_set(field, s);
	l->changed = true;
}

#define LEARN_TEXT(l, column, s, otherwise) \
	learn_text(l, &(l)->sandbox->column, \
		   !(s) || ROW_KEEPS(sandbox, column, s) ? (s) : (not_kept(l, #column), otherwise))

static void learn_secret(struct learner *l, char **field, const char *s)
{
	if (!s || str_eq(*field, s) || l->err)
		return;
	l->err = secret_set(field, s);
	l->changed = true;
}

#define LEARN(l, field, v)                                                                         \
	do {                                                                                       \
		if ((field) != (v)) {                                                              \
			(field) = (v);                                                             \
			(l)->changed = true;                                                       \
		}                                                                                  \
	} while (0)

static void learn_listed(struct learner *l, struct sandbox *b, const struct cloud_sandbox *s)
{
	struct pairs p = { 0 };

	if (s->started_at_ms && s->started_at_ms != b->started_at_ms) {
		index_set_started(b, s->started_at_ms);
		l->changed = true;
	}
	if (s->end_at_ms)
		LEARN(l, b->end_at_ms, s->end_at_ms);
	if (s->cpu_count)
		LEARN(l, b->cpu_count, s->cpu_count);
	if (s->memory_mb)
		LEARN(l, b->memory_mb, s->memory_mb);
	if (s->disk_size_mb)
		LEARN(l, b->disk_size_mb, s->disk_size_mb);
	/* The cloud has the metadata of its creation, not that of its claim. */
	if (l->err || b->warm_state == WARM_CLAIMED)
		return;
	l->err = pairs_from_cloud(&p, &s->metadata);
	if (p.len > ROW_BLOB_MAX) {
		not_kept(l, "metadata");
		pairs_fini(&p);
	}
	if (!l->err && !pairs_equal(&p, &b->metadata)) {
		pairs_fini(&b->metadata);
		b->metadata = p;
		l->changed = true;
	} else {
		pairs_fini(&p);
	}
}

/* For the answer to a get, the only one with the network: NULL there means that it has none. */
static void learn_network(struct learner *l, struct sandbox *b, const struct cloud_network *n)
{
	struct cloud_network *copy;
	char *text;

	if (l->err || cloud_network_equal(b->network, n))
		return;
	copy = n ? cloud_network_dup(n) : NULL;
	text = n ? cloud_network_format(n) : NULL;
	if (n && (!copy || !text))
		l->err = -ENOMEM;
	if (!l->err && n && !ROW_KEEPS(sandbox, network, text)) {
		not_kept(l, "network");
		copy = cloud_network_free(copy);
		text[0] = 0;
	}
	if (!l->err && !cloud_network_equal(b->network, copy)) {
		l->err = text_set(&b->network_text, text);
		l->changed = true;
	}
	if (!l->err) {
		cloud_network_free(b->network);
		b->network = give(copy);
	}
	cloud_network_free(copy);
	free(text);
}

/* Is this the answer to a list or a get, which have times and metadata? A time that could not be read is 0. */
static bool is_listed(const struct cloud_sandbox *s)
{
	return s->is_detail || s->started_at_ms || s->end_at_ms || s->metadata.n;
}

int sandbox_learn(struct sandbox *b, const struct cloud_sandbox *s, uint64_t now_ms,
		  int64_t now_wall_ms, bool *ret_changed)
{
	struct learner l = { .sandbox = b };

	must(str_eq(b->id, s->id));
	LEARN_TEXT(&l, template_id, s->template_id, "");
	LEARN_TEXT(&l, alias, s->alias, "");
	LEARN_TEXT(&l, envd_version, s->envd_version, CLOUD_VERSION_UNKNOWN);
	LEARN_TEXT(&l, domain, s->domain, "");
	if (s->has_odd_domain)
		not_kept(&l, "domain");
	learn_secret(&l, &b->access_token, s->envd_access_token);
	learn_secret(&l, &b->traffic_token, s->traffic_access_token);
	if (is_listed(s))
		learn_listed(&l, b, s);
	if (s->allow_internet_access != TRI_UNSET)
		LEARN(&l, b->allow_internet_access, s->allow_internet_access);
	if (s->lifecycle.pause != TRI_UNSET)
		LEARN(&l, b->lifecycle.pause, s->lifecycle.pause);
	if (s->lifecycle.auto_resume != TRI_UNSET)
		LEARN(&l, b->lifecycle.auto_resume, s->lifecycle.auto_resume);
	if (s->is_detail)
		learn_network(&l, b, s->network);
	b->detail_known = b->detail_known || s->is_detail;
	if (l.err)
		return l.err;
	b->fresh_at_ms = now_ms;
	b->as_of_ms = now_wall_ms;
	b->unreachable = false;
	*ret_changed = l.changed;
	return 0;
}

int sandbox_from_cloud(struct account *a, const struct cloud_sandbox *s, struct sandbox **ret)
{
	scoped(sandbox_freep) struct sandbox *b = NULL;
	bool changed;
	int r = sandbox_new(a, s->id, &b);

	if (!r)
		r = sandbox_learn(b, s, clock_boot_ms(), clock_wall_ms(), &changed);
	if (r < 0)
		return r;
	sandbox_set_state(b, s->state == CLOUD_STATE_PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING);
	*ret = give(b);
	return 0;
}

/* --- saying --- */

void sandbox_view(const struct sandbox *b, enum sandbox_source source, struct sandbox_view *ret)
{
	*ret = (struct sandbox_view){
		.id = b->id,
		.name = b->name,
		.account = account_name(b->account),
		.template_id = b->template_id,
		.alias = b->alias,
		.state = b->state,
		.metadata = b->metadata.v,
		.n_metadata = b->metadata.n,
		.started_at_ms = b->started_at_ms,
		.end_at_ms = b->asked_end_at_ms ? b->asked_end_at_ms : b->end_at_ms,
		.end_pending = b->asked_end_at_ms != 0,
		.warm = b->warm_state == WARM_CLAIMED,
		.cpu_count = b->cpu_count,
		.memory_mb = b->memory_mb,
		.disk_size_mb = b->disk_size_mb,
		.envd_version = b->envd_version,
		.domain = b->domain,
		.access_token = b->access_token,
		.traffic_token = b->traffic_token,
		.token_known = b->token_known,
		.is_detail = b->detail_known,
		.allow_internet_access = b->allow_internet_access,
		.lifecycle = b->lifecycle,
		.network = b->network,
		.policy = b->policy,
		.owner_uid = b->uid,
		.leases = b->n_leases,
		.generation = b->generation,
		.source = source,
		.as_of_ms = b->as_of_ms,
		.warning = b->held && !b->warning[0] ?
				   "a stored row about it cannot be read, so the daemon never ends it; a kill does (see status)" : b->warning,
		.adopted = b->adopted,
		.gone_reason = b->gone_reason,
	};
}

void sandbox_target_of(const struct sandbox *b, struct sandbox_target *ret)
{
	*ret = (struct sandbox_target){
		.at = {.cloud = b->account->cloud,
		       .account = (char *)account_name(b->account),
		       .id = b->id,
		       .domain = b->domain,
		       .token = b->access_token,
		       .traffic_token = b->traffic_token,
		       .version = b->envd_version,
		       .generation = b->generation,
		       .plain_ports = b->account->plain_ports,
		       .wakes = b->lifecycle.auto_resume == TRI_TRUE},
		.default_user = b->account->default_user,
		.owner_uid = b->uid,
		.state = b->state,
	};
}

void sandbox_refusal(const struct sandbox *b, struct status *ret)
{
	const struct sandbox *next = b->state == SANDBOX_GONE ? recreate_successor(b) : NULL;
	char at[40];

	if (b->state == SANDBOX_KILLING) {
		status_set(ret, R_SANDBOX_KILLED, "sandbox %s is being killed", b->id);
	} else if (b->state == SANDBOX_GONE && next) {
		status_set(ret, R_SANDBOX_REPLACED, "sandbox %s vanished and was made again as %s", b->id, next->id);
		status_evidence(ret, "replaced_by", "%s", next->id);
		status_evidence(ret, "generation", "%u", next->generation);
	} else if (b->state == SANDBOX_GONE) {
		str_rfc3339(b->gone_at_ms * 1000, 3, at);
		status_set(ret, b->gone_reason ? b->gone_reason : R_SANDBOX_GONE, "sandbox %s %s", b->id,
			   b->gone_reason == R_SANDBOX_EXPIRED ? "has expired"
			   : b->gone_reason == R_SANDBOX_KILLED ? "was killed"
								: "no longer exists in the cloud");
		status_evidence(ret, "gone_at", "%s", at);
		if (b->gone_evidence[0])
			status_evidence(ret, "said_by", "%s", b->gone_evidence);
	} else if (b->state == SANDBOX_PAUSED || b->state == SANDBOX_PAUSING) {
		status_set(ret, R_SANDBOX_PAUSED, "sandbox %s is paused; ConnectSandbox (agentboxctl resume) resumes it", b->id);
	} else {
		status_set(ret, R_STATE_CHANGING, "sandbox %s is %s", b->id,
			   sandbox_state_name(b->state));
	}
	status_evidence(ret, "sandbox_id", "%s", b->id);
}
