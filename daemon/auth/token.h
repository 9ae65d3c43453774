/* SPDX-License-Identifier: MIT */
/*
 * Tokens of the gateway: what a program shows instead of the account's key. `ab_` or `e2b_` (both spellings of one) and 64 hex
 * digits that begin with a9e2, so that a daemon knows one of its kind and never takes it as its cloud's key.
 * Only SHA-256 is kept; a token is compared in constant time. The rows are the store's (gateway_token). Loop thread only.
 *
 * A token of a run ends with its process, which a later daemon knows again (process.h).
 */
#ifndef AB_DAEMON_AUTH_TOKEN_H
#define AB_DAEMON_AUTH_TOKEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/auth/audit.h"
#include "daemon/auth/principal.h"
#include "daemon/auth/process.h"
#include "daemon/common/ev/loop.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/base/status.h"

struct store;
struct tokens;

#define TOKEN_HEX	    64u
#define TOKEN_TEXT_MAX	    (4u + TOKEN_HEX + 1u)	/* "e2b_…" with its end */
#define TOKEN_ID_LEN	    12u
#define TOKEN_LABEL_MAX	    128u
#define TOKEN_SANDBOXES_MAX 100u
#define TOKENS_PER_UID	    1000u	/* one more: QUOTA_UID */

struct token {
	struct list node;		/* in struct tokens, oldest first */
	struct tokens *all;
	unsigned refs;
	bool is_void;			/* revoked, or its run is over: of use to nobody who still has a reference */
	char id[TOKEN_ID_LEN + 1];	/* public: for people and lists; never the secret */
	uint8_t hash[32];		/* of the 64 digits, without the prefix */
	char *label;
	uid_t uid;			/* whose calls these are */
	int64_t created_at_ms, expires_at_ms;	/* wall; 0 = never */
	char **sandboxes;		/* its scope; none = all of the uid */
	size_t n_sandboxes;
	struct process_id run;		/* the process that it ends with; pid 0 = none */
	int run_pidfd;			/* of that process; -1 = none */
	uint32_t on_release;		/* of a run: enum policy_action */
	uint32_t warm;			/* of creates that do not say it: enum sandbox_warm_mode */
	char *policy;			/* the same: policy_change_words(); "" = nothing */
	struct watch death;
	struct audit_process process;	/* of the run, for the audit */
	struct grave grave;
};

/* Is this text one of ours, by its form alone? [pure] */
bool token_is_ours(const char *text);

struct tokens_options {
	struct loop *loop;
	struct store *store;		/* opened, not started: its rows are read */
	void (*sha256)(const void *p, size_t n, uint8_t ret[32]);
	bool rows_are_old;		/* an earlier state was put back: what was revoked since would be good again */
};

must_check int tokens_new(const struct tokens_options *o, struct tokens **ret);
/* The store takes changes now: rows of what is over go. */
void tokens_start(struct tokens *all);
/* After store_mute(): whoever waits for the store is told DRAINING. NULL is fine; returns NULL. */
struct tokens *tokens_free(struct tokens *all);

/* The one that this text is, if it is good now; else NULL. Borrowed until the loop's next pass: who keeps it takes a
 * reference. */
struct token *tokens_find(struct tokens *all, const char *text);
struct token *token_ref(struct token *t);
void token_unref(struct token *t);	/* NULL is fine */
/* Of no use any more: revoked, expired, or its run is over. */
bool token_is_over(const struct token *t);
/* May it use this sandbox, as far as its scope goes? */
bool token_covers(const struct token *t, const char *sandbox);

struct token_make {
	const struct principal *who;	/* of a run: its pidfd is the run's process */
	const char *label;		/* NULL = "" */
	int64_t expires_at_ms;		/* wall; 0 = never */
	char *const *sandboxes;		/* ids; none = all of the uid */
	size_t n_sandboxes;
	bool is_run;
	uint32_t on_release, warm;
	const char *policy;		/* NULL = "" */
};
/* `text` is told this once, with the prefix "ab_". */
typedef void token_made_fn(void *user, const struct status *st, const struct token *t, const char *text);
/* Durable before `done`, which comes exactly once and never from inside. 0; -EINVAL with *why; -ENOMEM. */
must_check int tokens_make(struct tokens *all, const struct token_make *m, token_made_fn *done, void *user, struct status *why);

typedef void token_gone_fn(void *user, const struct status *st);
/* It is good no more at once; durable before `done`. -ENOENT: none of that uid has this id. */
must_check int tokens_revoke(struct tokens *all, uid_t uid, const char *id, token_gone_fn *done, void *user);
/* All of an owner whose uid is another's now. */
void tokens_revoke_all(struct tokens *all, uid_t uid);

/* The next one that is good, oldest first; NULL = from the start, and at the end. */
const struct token *tokens_next(const struct tokens *all, const struct token *after);

#endif
