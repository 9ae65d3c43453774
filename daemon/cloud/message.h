/* SPDX-License-Identifier: MIT */
/* The agent's protobuf messages ↔ our structs. Every message is scanned before it is unpacked. */
#ifndef AB_DAEMON_CLOUD_MESSAGE_H
#define AB_DAEMON_CLOUD_MESSAGE_H

#include "daemon/cloud/envd.h"
#include "proto/gen/envd_filesystem.pb-c.h"
#include "proto/gen/envd_process.pb-c.h"

#define MESSAGE_PROCESSES_MAX 16384u

must_check int message_pack(const ProtobufCMessage *m, uint8_t **ret, size_t *ret_n);
void message_select(Process__ProcessSelector *ret, uint32_t pid);
void message_result_fini(struct envd_result *r);

/* Answers: 0, -EBADMSG, -ENOMEM. */
must_check int message_processes(const uint8_t *p, size_t n, struct envd_result *ret);
must_check int message_stat(const uint8_t *p, size_t n, struct envd_result *ret);
must_check int message_make_dir(const uint8_t *p, size_t n, struct envd_result *ret);
must_check int message_move(const uint8_t *p, size_t n, struct envd_result *ret);
/* One entry of a listing; on success it is the caller's. */
must_check int message_entry(const uint8_t *p, size_t n, bool names_are_text, struct envd_entry *ret);

/* One event of WatchDir; *ret points into *held and *ret_name, which the caller frees before the next
 * one. An event of an unknown kind is ENVD_WATCH_NONE. 0, -EBADMSG, -ENOMEM. */
must_check int message_watch(const uint8_t *p, size_t n, struct envd_watch_event *ret,
			     struct envd_result *held, char **ret_name);

/* One event of Start or Connect. *ret points into p, or into *ret_held, which the caller frees by
 * message_event_free(); an event of an unknown kind is ENVD_EVENT_NONE. 0, -EBADMSG, -ENOMEM. */
must_check int message_event(const uint8_t *p, size_t n, struct envd_event *ret,
			     Process__StartResponse **ret_held);
void message_event_free(Process__StartResponse *held);

#endif
