/* SPDX-License-Identifier: MIT */
/*
 * The one place that knows both the public structs and the generated messages.
 *
 * Inwards: each msg_X() takes the message `m` (also when it fails) and gives an object whose strings are
 * the message's own. 0 or -ENOMEM. Outwards: small helpers that fill requests; what they allocate
 * is freed by the caller after packing.
 */
#ifndef AB_CLIENT_LIB_MSG_H
#define AB_CLIENT_LIB_MSG_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/gen/agentbox_command.pb-c.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"
#include "proto/gen/google_protobuf_duration.pb-c.h"

#include "client/include/agentbox.h"
#include "proto/base/cc.h"

must_check int msg_sandbox(ProtobufCMessage *m, void **ret);
must_check int msg_sandbox_list(ProtobufCMessage *m, void **ret);
must_check int msg_host(ProtobufCMessage *m, void **ret);
must_check int msg_lease(ProtobufCMessage *m, void **ret);
must_check int msg_lease_list(ProtobufCMessage *m, void **ret);
/* A SandboxEvent: *ret_event points into *ret. */
must_check int msg_sandbox_event(ProtobufCMessage *m, void **ret, struct ab_sandbox_event *ret_event);
must_check int msg_command(ProtobufCMessage *m, void **ret);
must_check int msg_command_list(ProtobufCMessage *m, void **ret);
must_check int msg_result(ProtobufCMessage *m, void **ret);
must_check int msg_kill_result(ProtobufCMessage *m, void **ret);
/* A CommandEvent: *ret_event points into *ret. Its type is 0 if it is nothing for the user. */
must_check int msg_event(ProtobufCMessage *m, void **ret, struct ab_command_event *ret_event);
must_check int msg_file(ProtobufCMessage *m, void **ret);
/* A FileEvent: *ret_event points into *ret. Its type is 0 if it is nothing for the user. */
must_check int msg_file_event(ProtobufCMessage *m, void **ret, struct ab_file_event *ret_event);
must_check int msg_link(ProtobufCMessage *m, void **ret);
must_check int msg_daemon_status(ProtobufCMessage *m, void **ret);
must_check int msg_config(ProtobufCMessage *m, void **ret);
must_check int msg_reloaded(ProtobufCMessage *m, void **ret);
must_check int msg_quiesced(ProtobufCMessage *m, void **ret);
must_check int msg_backup(ProtobufCMessage *m, void **ret);
must_check int msg_local_stopped(ProtobufCMessage *m, void **ret);
must_check int msg_new_token(ProtobufCMessage *m, void **ret);
must_check int msg_token_list(ProtobufCMessage *m, void **ret);
must_check int msg_warm(ProtobufCMessage *m, void **ret);
must_check int msg_warm_list(ProtobufCMessage *m, void **ret);
must_check int msg_gateway(ProtobufCMessage *m, void **ret);
must_check int msg_page(ProtobufCMessage *m, void **ret);

/* Map entries for a request: *ret_n pointers to messages of type d, one block to free(). NULL, with
 * *ret_n = 0, for no pairs. */
must_check int msg_pairs(const struct ab_pair *pairs, size_t n, const ProtobufCMessageDescriptor *d,
			 void *ret, size_t *ret_n);
/* `d` if the span is set, else NULL. */
Google__Protobuf__Duration *msg_duration(Google__Protobuf__Duration *d, uint64_t ms);
must_check int msg_forks(ProtobufCMessage *m, void **ret);
must_check int msg_metrics(ProtobufCMessage *m, void **ret);
must_check int msg_snapshot(ProtobufCMessage *m, void **ret);
must_check int msg_snapshot_list(ProtobufCMessage *m, void **ret);
must_check int msg_template_list(ProtobufCMessage *m, void **ret);

/* A network as a message that points into it. NULL, with *ret NULL, for NULL. 0, -EINVAL, -ENOMEM. */
struct msg_network;
must_check int msg_network_out(const struct ab_network *n, struct msg_network **ret);
Agentbox__V1__NetworkConfig *msg_network_message(struct msg_network *m);	/* NULL for NULL */
void msg_network_free(struct msg_network *m);

/* A policy as a message, with its spans. NULL for NULL. */
struct msg_policy {
	Agentbox__V1__Policy m;
	Google__Protobuf__Duration grace, idle, age;
};
Agentbox__V1__Policy *msg_policy_out(struct msg_policy *to, const struct ab_policy *p);
Agentbox__V1__Lifecycle *msg_lifecycle_out(Agentbox__V1__Lifecycle *m,
					   const struct ab_sandbox_create_options *o);
/* The three fields of a request that say which file. 0, or -EINVAL if it names none. */
must_check int msg_path_out(const struct ab_path *p, char **ret_sandbox, char **ret_path, char **ret_user);
/* An `optional bool` of the message m: `is_set` is what says in it that the field is there. Nothing for AB_DEFAULT. */
#define MSG_SET_CHOICE(m, field, is_set, choice)			\
	do {								\
		if (choice) {						\
			(m)->_##field##_case = (is_set);		\
			(m)->field = (choice) == AB_YES;		\
		}							\
	} while (0)
/* 0, or -EINVAL if it names no command. */
must_check int msg_ref(Agentbox__V1__CommandRef *ret, const struct ab_command_ref *ref);

#endif
