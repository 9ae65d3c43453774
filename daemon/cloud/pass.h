/* SPDX-License-Identifier: MIT */
/*
 * Requests of others to the control plane, passed on with the account's key. The exchange is the caller's to move, as in relay.h, whose
 * calls serve both.
 */
#ifndef AB_DAEMON_CLOUD_PASS_H
#define AB_DAEMON_CLOUD_PASS_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"
#include "proto/wire/fields.h"

struct cloud;
struct pool_req;

/* Everything is copied. */
struct cloud_pass_ask {
	struct cloud *cloud;
	/* ":method", ":path", and of the rest what is to pass: no hop-by-hop fields, and nothing that says who asks;
	 * cookies stay behind. */
	const struct fields *head;
	bool has_body;				/* the caller writes it on the exchange */
	bool idempotent;
	void (*on_ready)(struct pool_req *r, void *user);
	void *user;
};

/* 0; -ENOMEM; -EACCES: nothing may be sent with the account's key now, *ret_why says why. */
must_check int cloud_pass(const struct cloud_pass_ask *a, struct pool_req **ret, struct status *ret_why);

#endif
