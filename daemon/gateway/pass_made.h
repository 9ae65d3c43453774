/* SPDX-License-Identifier: MIT */
/*
 * A call that passes and makes a template: its answer is held back until it is on record whose the template is, so that whoever has the
 * answer may delete what it made.
 *
 * The cloud answers with the id of a template that was there before, too, if the call names one: that is not the caller's. So the template is asked
 * for, and it is new if no build is in it but the one of the answer. What cannot be found out makes it nobody's.
 */
#ifndef AB_DAEMON_GATEWAY_PASS_MADE_H
#define AB_DAEMON_GATEWAY_PASS_MADE_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

struct gateway_account;
struct http_stream;
struct loop;
struct pass_made;
struct templates;

struct pass_made_options {
	struct loop *loop;
	struct templates *templates;
	const struct gateway_account *account;	/* outlives it */
	uid_t uid;				/* who makes it */
	void (*done)(void *user);		/* once, never from inside: pass_made_look() has another answer now */
	void *user;
};

/* NULL without memory. */
struct pass_made *pass_made_new(const struct pass_made_options *o);
struct pass_made *pass_made_free(struct pass_made *m);	/* NULL is fine; returns NULL */
/* At each news of the cloud's exchange: may its answer pass? */
bool pass_made_look(struct pass_made *m, struct http_stream *y);

#endif
