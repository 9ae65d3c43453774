/* SPDX-License-Identifier: MIT */
/*
 * Passes requests of others on to the control plane, with the account's key. The caller moves the bodies on the exchange; its
 * functions are those of relay.h.
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
	/* ":method", ":path" and the fields to pass on: no hop-by-hop fields, no credentials and no cookies of the
	 * client. */
	const struct fields *head;
	bool has_body;				/* the caller writes it on the exchange */
	bool idempotent;
	void (*on_ready)(struct pool_req *r, void *user);
	void *user;
};

/* 0; -ENOMEM; -EACCES: nothing may be sent with the account's key now, *ret_why says why. */
must_check int cloud_pass(const struct cloud_pass_ask *a, struct pool_req **ret, struct status *ret_why);

#endif
