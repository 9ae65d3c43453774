/* SPDX-License-Identifier: MIT */
/*
 * Passes requests of others on to the control plane, with the account's key. Each waits for its turn at the account's limiter as our own
 * calls do, all of them as one route, until the cloud's answer begins. The caller moves the bodies on the exchange.
 */
#ifndef AB_DAEMON_CLOUD_PASS_H
#define AB_DAEMON_CLOUD_PASS_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"
#include "proto/wire/fields.h"

struct cloud;
struct cloud_pass;
struct http_stream;

/* Everything is copied. */
struct cloud_pass_ask {
	struct cloud *cloud;
	/* ":method", ":path" and the fields to pass on: no hop-by-hop fields, no credentials and no cookies of the
	 * client. */
	const struct fields *head;
	uid_t uid;				/* whose turn it is */
	uint64_t turn_by_ms;			/* BOOTTIME: no later than that */
	bool has_body;				/* the caller writes it on the exchange */
	bool idempotent;
	void (*on_ready)(struct cloud_pass *p, void *user);	/* never from inside cloud_pass() */
	void *user;
};

/* 0; -ENOMEM; -EACCES: nothing may be sent with the account's key now, -EBUSY: the cloud's limit lasts longer than it may wait, or too
 * many wait: *ret_why says it, with retry_after_ms where that is known. */
must_check int cloud_pass(const struct cloud_pass_ask *a, struct cloud_pass **ret, struct status *ret_why);
/* As of a relayed request (relay.h). */
struct http_stream *cloud_pass_stream(const struct cloud_pass *p);
const struct status *cloud_pass_failure(const struct cloud_pass *p);
struct cloud_pass *cloud_pass_free(struct cloud_pass *p);	/* NULL is fine; returns NULL */

/* rest.c: it is this one's turn. */
struct limiter_ticket;
void cloud_pass_send(struct limiter_ticket *t);

#endif
