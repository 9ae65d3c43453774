/* SPDX-License-Identifier: MIT */
/*
 * Pause and resume: a transition of one sandbox between running and paused, shared by all callers who want
 * the same. It waits for its turn at the sandbox and asks the cloud. After any answer but success it asks what the
 * sandbox is now: a 409 may mean "paused already" or "changing", a 500 that it is gone, a lost answer anything.
 * Callers may leave; a request that was sent is read to its end.
 *
 * A transition is not stored: its callers repeat it, and after a crash the cloud's list says what became of it.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"

#define TRANSITION_MAGIC	  0x53686966u
#define TRANSITION_ASK_MS	  75000u
#define TRANSITION_LOOK_MS	  15000u
#define TRANSITION_BACKOFF_MS  100u
#define TRANSITION_BACKOFF_MAX 2000u

enum transition_kind {
	TRANSITION_PAUSE,
	TRANSITION_RESUME,
};

struct transition {
	uint32_t magic;
	struct list node;	/* in core->transitions */
	struct sandbox_core *core;
	struct sandbox *sandbox;
	enum transition_kind kind;
	bool keep_memory, started;
	uint32_t timeout_s;
	struct turn turn;
	struct cloud_call *call;
	struct timer timer;
	struct list waiters;	/* sandbox_op.wait */
	struct status why;	/* the last request's failure */
	bool conflict;		/* that was a 409 */
	bool maybe_done;	/* a request whose answer is not known may have done it */
	unsigned tries;
	struct grave grave;
};

static struct transition *transition_from(void *p)
{
	struct transition *s = p;

	must(s && s->magic == TRANSITION_MAGIC);
	return s;
}

static void transition_free(void *p)
{
	struct transition *s = transition_from(p);

	s->magic = 0;
	free(s);
}

static void unlink_transition(struct transition *s)
{
	cloud_call_cancel(s->call);
	s->call = NULL;
	timer_clear(&s->timer);
	if (s->started)
		s->sandbox->changing = false;
	if (s->sandbox->transition == s)
		s->sandbox->transition = NULL;
	turn_end(&s->turn);
	list_del(&s->node);
}

/* Ends it, when the sandbox's state is set. */
static void transition_finish(struct transition *s, const struct status *st, bool yes)
{
	unlink_transition(s);
	loop_bury(s->core->loop, &s->grave, transition_free, s);
	op_end_waits(&s->waiters, st, yes);
}

/* Nothing if the sandbox was killed or is gone meanwhile. */
static void set_state(struct transition *s, enum sandbox_state to)
{
	struct sandbox *b = s->sandbox;

	if (sandbox_is_live(b))
		sandbox_changed(s->core, b, to, "");
}

static enum sandbox_state from_state(const struct transition *s)
{
	return s->kind == TRANSITION_PAUSE ? SANDBOX_RUNNING : SANDBOX_PAUSED;
}

static enum sandbox_state to_state(const struct transition *s)
{
	return s->kind == TRANSITION_PAUSE ? SANDBOX_PAUSED : SANDBOX_RUNNING;
}

/* --- looking --- */

static void run(struct transition *s);

static void transition_on_timer(struct timer *t, void *user)
{
	run(transition_from(user));
}

static void again(struct transition *s)
{
	uint64_t wait = rules_backoff_ms(s->tries++, TRANSITION_BACKOFF_MS, TRANSITION_BACKOFF_MAX,
					 rng_u64(&s->core->rng));

	op_note_pending_error(&s->waiters, &s->why);
	if (list_is_empty(&s->waiters) || timer_set(&s->timer, clock_boot_ms() + wait) < 0)
		transition_finish(s, &s->why, false);
}

/* The request failed, and the cloud says that this is the sandbox's state now. */
static void judge(struct transition *s, enum cloud_state state)
{
	static const struct status ok = STATUS_OK;
	enum sandbox_state is = state == CLOUD_STATE_PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING;

	set_state(s, is);
	if (is == to_state(s)) {
		/* After a 409 without a lost answer before it, it was so before this transition. */
		transition_finish(s, &ok, !s->conflict || s->maybe_done);
	} else if (s->conflict) {
		again(s);
	} else {
		transition_finish(s, &s->why, false);
	}
}

static void on_looked(struct cloud_result *r, void *user)
{
	struct transition *s = transition_from(user);
	struct status st;

	s->call = NULL;
	if (r->outcome == CLOUD_DONE && r->sandbox) {
		enum cloud_state state = r->sandbox->state;

		s->sandbox->token_known = true;
		sandbox_seen(s->core, s->sandbox, r->sandbox);
		judge(s, state);
	} else if (r->not_found) {
		sandbox_absent(s->core, s->sandbox);
		sandbox_refusal(s->sandbox, &st);
		transition_finish(s, &st, false);
	} else {
		/* The state is not known: the old one stays, and fresh_at_ms 0 makes the next call ask. */
		set_state(s, from_state(s));
		s->sandbox->fresh_at_ms = 0;
		transition_finish(s, &s->why, false);
	}
}

static void transition_look(struct transition *s)
{
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + TRANSITION_LOOK_MS,
		.uid = s->sandbox->uid,
		.done = on_looked,
		.user = s,
	};

	/* Not by fetch_join(): a shared GET may have been sent before the change. */
	s->call = cloud_get(s->sandbox->account->cloud, s->sandbox->id, &ask);
	if (!s->call) {
		set_state(s, from_state(s));
		s->sandbox->fresh_at_ms = 0;
		transition_finish(s, &s->why, false);
	}
}

/* --- asking --- */

static void on_asked(struct cloud_result *r, void *user)
{
	static const struct status ok = STATUS_OK;
	struct transition *s = transition_from(user);

	s->call = NULL;
	FAILPOINT("transition.answered");
	if (r->outcome == CLOUD_DONE) {
		if (r->sandbox) {
			s->sandbox->token_known = true;
			sandbox_seen(s->core, s->sandbox, r->sandbox);
		}
		/* The cloud's end of a paused sandbox is the moment of its pause. */
		if (s->kind == TRANSITION_PAUSE) {
			s->sandbox->end_at_ms = account_cloud_now(s->sandbox->account);
			s->sandbox->as_of_ms = clock_wall_ms();
		}
		s->sandbox->fresh_at_ms = clock_boot_ms();
		if (s->kind == TRANSITION_RESUME)
			s->sandbox->resumed_at_ms = account_cloud_now(s->sandbox->account);
		set_state(s, to_state(s));
		log_info("sandbox_transition", "sandbox=%s uid=%u to=%s tries=%u", s->sandbox->id,
			 owner_uid(s->sandbox->uid), sandbox_state_name(to_state(s)), s->tries + 1);
		transition_finish(s, &ok, true);
		return;
	}
	s->why = r->status;
	s->conflict = r->conflict;
	s->maybe_done |= r->outcome == CLOUD_UNKNOWN || r->repeated;
	transition_look(s);
}

static void run(struct transition *s)
{
	struct sandbox *b = s->sandbox;
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + TRANSITION_ASK_MS,
		.trace = op_trace_of(&s->waiters),
		.uid = b->uid,
		.done = on_asked,
		.user = s,
	};
	struct status st;

	if (!sandbox_is_live(b)) {
		sandbox_refusal(b, &st);
		transition_finish(s, &st, false);
		return;
	}
	b->changing = s->started = true;
	if (b->state == from_state(s))
		sandbox_set_state(b, s->kind == TRANSITION_PAUSE ? SANDBOX_PAUSING : SANDBOX_RESUMING);
	if (s->kind == TRANSITION_PAUSE)
		s->call = cloud_pause(b->account->cloud, b->id, s->keep_memory, &ask);
	else
		s->call = cloud_connect(b->account->cloud, b->id, s->timeout_s, &ask);
	FAILPOINT("transition.sent");
	if (!s->call) {
		set_state(s, from_state(s));
		status_errno(&st, -ENOMEM, "asking the cloud");
		transition_finish(s, &st, false);
	}
}

static void transition_on_turn(struct turn *t)
{
	struct transition *s = transition_from(container_of(t, struct transition, turn));
	struct status gone;

	if (list_is_empty(&s->waiters)) {
		status_set_code(&gone, CODE_CANCELLED, "nobody waits for it any more");
		transition_finish(s, &gone, false);
	} else {
		run(s);
	}
}

/* --- who waits --- */

/* A transition may be joined only while no other change of the sandbox waits behind it. */
static bool is_last(const struct transition *s)
{
	return s->sandbox->turns.prev == &s->turn.node;
}

static int join(struct sandbox_core *core, struct sandbox *b, const struct transition *want,
		struct sandbox_op *op, struct transition **ret)
{
	struct transition *s = b->transition;

	must(list_is_empty(&op->wait));
	if (!s || !is_last(s) || s->kind != want->kind || s->keep_memory != want->keep_memory) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		*s = *want;
		s->magic = TRANSITION_MAGIC;
		s->core = core;
		s->sandbox = b;
		list_init(&s->waiters);
		timer_init(&s->timer, core->loop, transition_on_timer, s);
		turn_init(&s->turn, transition_on_turn);
		turn_take(&s->turn, b);
		list_add_tail(&core->transitions, &s->node);
		b->transition = s;
	}
	list_add_tail(&s->waiters, &op->wait);
	*ret = s;
	return 0;
}

int transition_join_pause(struct sandbox_core *core, struct sandbox *b, bool keep_memory,
			  struct sandbox_op *op)
{
	const struct transition want = { .kind = TRANSITION_PAUSE, .keep_memory = keep_memory };
	struct transition *s;

	return join(core, b, &want, op, &s);
}

int transition_join_resume(struct sandbox_core *core, struct sandbox *b, uint32_t timeout_s,
			   struct sandbox_op *op, uint32_t *ret_s)
{
	const struct transition want = { .kind = TRANSITION_RESUME, .timeout_s = timeout_s };
	struct transition *s;
	int r = join(core, b, &want, op, &s);

	if (r < 0)
		return r;
	if (!s->started)
		s->timeout_s = MAX(s->timeout_s, timeout_s);
	*ret_s = s->timeout_s;
	return 0;
}

void transition_cancel_all(struct sandbox_core *core)
{
	while (!list_is_empty(&core->transitions)) {
		struct transition *s = list_entry(core->transitions.next, struct transition, node);

		must(list_is_empty(&s->waiters));
		unlink_transition(s);
		transition_free(s);
	}
}
