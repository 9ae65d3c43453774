/* SPDX-License-Identifier: MIT */
/* Who may use the control plane: API keys and the teams they belong to. */
#ifndef AB_DAEMON_LOCAL_STATE_TEAMS_H
#define AB_DAEMON_LOCAL_STATE_TEAMS_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define TEAM_NAME_MAX 63u
#define TEAM_KEYS_MAX	 256u	/* keys in a file; -E2BIG above it */

struct teams;

/* A key file: one "key [team]" a line, '#' starts a comment. -EINVAL with the reason, -errno. */
must_check int teams_load(const char *path, char **ret_why, struct teams **ret);
/* The same, after writing a new random key there (0600) if there is no such file. */
must_check int teams_load_or_make(const char *path, char **ret_why, struct teams **ret);
struct teams *teams_free(struct teams *a);

/* The first key of the file; valid as long as `a`. */
const char *teams_first_key(const struct teams *a);
/* The team of that key, valid as long as `a`; NULL for none (also for a malformed or missing key).
 * Teams are compared by pointer. */
const char *teams_of_key(const struct teams *a, const char *key);
/* The same by the team's name. */
const char *teams_named(const struct teams *a, const char *name);

#endif
