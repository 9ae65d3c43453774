/* SPDX-License-Identifier: MIT */
/* Who may use the control plane: API keys and the teams they belong to. */
#ifndef AB_DAEMON_LOCAL_STATE_ACCOUNT_H
#define AB_DAEMON_LOCAL_STATE_ACCOUNT_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define ACCOUNT_TEAM_MAX 63u
#define ACCOUNT_MAX	 256u	/* keys in a file; -E2BIG above it */

struct accounts;

/* A key file: one "key [team]" a line, '#' starts a comment. -EINVAL with the reason, -errno. */
must_check int accounts_load(const char *path, char **ret_why, struct accounts **ret);
/* The same, after writing a new random key there (0600) if there is no such file. */
must_check int accounts_load_or_make(const char *path, char **ret_why, struct accounts **ret);
struct accounts *accounts_free(struct accounts *a);

/* The team of that key, valid as long as `a`; NULL for none (also for a malformed or missing key).
 * Teams are compared by pointer. */
const char *accounts_team(const struct accounts *a, const char *key);
/* The same by the team's name. */
const char *accounts_team_named(const struct accounts *a, const char *name);

#endif
