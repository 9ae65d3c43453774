/* SPDX-License-Identifier: MIT */
/*
 * Tokens of the gateway: what a program shows instead of the account's key. `ab_` or `e2b_` (both spellings of one) and 64 hex
 * digits that begin with a9e2, so that a daemon knows one of its kind and never takes it as its cloud's key.
 * Only SHA-256 is kept; a token is compared in constant time. The rows are the store's (gateway_token).
 */
#ifndef AB_DAEMON_AUTH_TOKEN_H
#define AB_DAEMON_AUTH_TOKEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/list.h"

#define TOKEN_HEX	64u
#define TOKEN_TEXT_MAX	(4u + TOKEN_HEX + 1u)	/* "e2b_…" with its end */
#define TOKEN_LABEL_MAX 128u

struct token {
	char *id;			/* public: for people and lists; never the secret */
	uint8_t hash[32];		/* of the 64 digits, without the prefix */
	char *label;
	uid_t uid;			/* whose calls these are */
	int64_t created_at_ms, expires_at_ms;	/* wall; 0 = never */
	char **sandboxes;		/* its scope; none = all of the uid */
	size_t n_sandboxes;
	pid_t run_pid;			/* of a run: the process that it ends with; 0 = none */
	uint32_t on_release;		/* of a run: enum policy_on_release */
};

/* Is this text one of ours, by its form alone? [pure] */
bool token_is_ours(const char *text);

#endif
