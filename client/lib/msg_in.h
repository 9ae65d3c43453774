/* SPDX-License-Identifier: MIT */
/* What the files msg*.c share: pieces of messages as pieces of objects. */
#ifndef AB_CLIENT_LIB_MSG_IN_H
#define AB_CLIENT_LIB_MSG_IN_H

#include "proto/gen/agentbox_sandbox.pb-c.h"
#include "proto/gen/google_protobuf_duration.pb-c.h"
#include "proto/gen/google_protobuf_timestamp.pb-c.h"

#include "client/include/agentbox.h"
#include "proto/base/cc.h"

int64_t msg_at_ms(const Google__Protobuf__Timestamp *t);	/* 0 for none */
uint64_t msg_span_us(const Google__Protobuf__Duration *d);	/* 0 for none, and for less */
/* Fills *t and returns it; NULL for 0, which means none. */
Google__Protobuf__Timestamp *msg_moment(Google__Protobuf__Timestamp *t, int64_t at_ms);
const char *msg_reason(int reason);				/* "" for none */
enum ab_choice msg_choice(bool set, bool value);		/* of an `optional bool` */
/* Map entries as pairs that belong to the object. 0 or -ENOMEM. */
must_check int msg_pairs_in(void *object, size_t n, void *entries, const struct ab_pair **ret, size_t *ret_n);
/* Fills *ret out of a Sandbox that belongs to the object. 0 or -ENOMEM. */
must_check int msg_sandbox_fill(void *object, const Agentbox__V1__Sandbox *m, struct ab_sandbox *ret);
/* A NetworkConfig as a struct that belongs to the object; NULL for NULL. */
must_check int msg_network_in(void *object, const Agentbox__V1__NetworkConfig *m,
			      const struct ab_network **ret);
/* A NULL-terminated array that belongs to the object. 0 or -ENOMEM. */
must_check int msg_words(void *object, size_t n, char **words, const char *const **ret);

#endif
