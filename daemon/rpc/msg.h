/* SPDX-License-Identifier: MIT */
/* Between generated messages and plain data: what more than one service needs. */
#ifndef AB_DAEMON_RPC_MSG_H
#define AB_DAEMON_RPC_MSG_H

#include <stdbool.h>

#include "daemon/sandbox/sandbox.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"

#define MSG_DURATION_MAX_MS (30ull * 24 * 3600 * 1000)

typedef Google__Protobuf__Timestamp msg_timestamp;
typedef Google__Protobuf__Duration msg_duration;

/* NULL (unset) leaves *ret as it is. Negative, above 30 days, or zero unless zero_ok: false, with
 * FIELD_INVALID for `field`. Rounded up to ms. */
must_check bool msg_read_duration(const msg_duration *d, const char *field, bool zero_ok, uint64_t *ret_ms,
				  struct status *st);
/* The same where there is no default: unset is false too. */
must_check bool msg_read_required(const msg_duration *d, const char *field, uint64_t *ret_ms, struct status *st);
/* Of 1970 to 9999, rounded down to ms. NULL (unset) leaves *ret as it is; anything else is false, with FIELD_INVALID for `field`. */
must_check bool msg_read_time(const msg_timestamp *t, const char *field, int64_t *ret_ms, struct status *st);
/* Fills *t and returns it; NULL for 0, which means unknown. */
msg_timestamp *msg_time(msg_timestamp *t, int64_t wall_ms);
msg_duration *msg_span(msg_duration *d, uint64_t ms);

/* NULL (unset) changes nothing. False with FIELD_INVALID for a duration; daemon/sandbox checks the rest. */
must_check bool msg_read_policy(const Agentbox__V1__Policy *p, struct policy_change *ret, struct status *st);

/* NULL (unset) leaves it unset. */
void msg_read_lifecycle(const Agentbox__V1__Lifecycle *m, struct cloud_lifecycle *ret);
/* Of an optional bool: what its case says. */
static inline enum tri msg_read_tri(int is_said, protobuf_c_boolean v)
{
	return is_said ? tri_of(v) : TRI_UNSET;
}
/* A copy, or NULL for NULL and "". -ENOMEM. */
must_check int msg_read_text(char **to, const char *s);
/* Copies of map entries, of whatever message. -ENOMEM. */
must_check int msg_read_kvs(struct cloud_kvs *to, ProtobufCMessage *const *entries, size_t n);
/* Map entries, of whatever message, as pairs that point into them. NULL without memory (also for
 * n = 0: then it is no failure). */
struct sandbox_pair *msg_read_pairs(ProtobufCMessage *const *entries, size_t n);

#define MSG_MASKED_BYTES 10u	/* six characters of an id, three dots */

/* A Sandbox message; points into the struct sandbox_view it was made from. */
struct msg_sandbox {
	Agentbox__V1__Sandbox m;
	Agentbox__V1__Sandbox__MetadataEntry *entries, **entry_list;
	Agentbox__V1__Freshness freshness;
	Agentbox__V1__Lifecycle lifecycle;
	Agentbox__V1__Policy policy;
	struct msg_network *network;
	msg_timestamp started_at, end_at, as_of;
	msg_duration release_grace, idle_timeout, max_age;
	char masked[MSG_MASKED_BYTES];
	uid_t owner;			/* m.owner_uid is for people */
};
must_check int msg_sandbox_init(struct msg_sandbox *s, const struct sandbox_view *sandbox);
void msg_sandbox_fini(struct msg_sandbox *s);
/* Without what only its owner and admins may know, if `who` is neither: the id, of which the first characters stay, as it opens the
 * sandbox; metadata and network rules, which may hold secrets. True: it was masked. */
bool msg_sandbox_mask(struct msg_sandbox *s, const struct principal *who);
Agentbox__V1__Freshness *msg_freshness(Agentbox__V1__Freshness *f, msg_timestamp *as_of,
				       enum sandbox_source source, int64_t as_of_ms);

/*
 * Sandboxes as they were last encoded. An encoding is used again only while everything that it was made of is the same byte for
 * byte, which is compared: so nobody who changes a sandbox has to say so here. At most ENCODED_SLOTS are kept, of about 2 KiB each.
 */
struct encoded;
#define ENCODED_SLOTS	  128u
#define ENCODED_KEY_BYTES 1024u	/* what is made of more, or has network rules, is not kept */
struct encoded *encoded_new(void);	/* NULL without memory */
struct encoded *encoded_free(struct encoded *e);
/* The packed Sandbox message of the view, valid until the next call. NULL: it cannot be kept, or there is no memory to. */
const uint8_t *encoded_sandbox(struct encoded *e, const struct sandbox_view *v, size_t *ret_n);

#endif
