/* SPDX-License-Identifier: MIT */
/*
 * Whose templates are those that were made through the gateway: who made one may delete it. The rows are the store's (template). A snapshot
 * of a sandbox is none of them; the core knows those. Loop thread only.
 */
#ifndef AB_DAEMON_AUTH_TEMPLATES_H
#define AB_DAEMON_AUTH_TEMPLATES_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"

struct store;
struct templates;
struct template_note;

#define TEMPLATES_PER_UID 1000u	/* for one more the oldest is forgotten: it is deleted by others then */

/* `store` is opened, not started: its rows are read. */
must_check int templates_new(struct store *store, struct templates **ret);
/* After store_mute(). NULL is fine; returns NULL. */
struct templates *templates_free(struct templates *all);

/* Whose it is; false: nobody made it here. */
bool templates_owner(const struct templates *all, const char *account, const char *id, uid_t *ret);

/* This owner has made it. `done` comes once, never from inside, when that is durable or cannot be, but not after a cancel, which forgets
 * nothing. NULL: no memory, or somebody made it already. */
typedef void template_noted_fn(void *user, const struct status *st);
struct template_note *templates_note(struct templates *all, const char *account, const char *id, uid_t uid, template_noted_fn *done,
				     void *user);
void template_note_cancel(struct template_note *n);	/* NULL is fine */
/* It is gone. */
void templates_forget(struct templates *all, const char *account, const char *id);

#endif
