/* SPDX-License-Identifier: MIT */
/*
 * Inside of durable*.c: Start and Connect of the agent's Process service, answered from daemon/command in place of the agent.
 *
 *   durable_ask.c    the request: what of it daemon/command can do as the agent would; everything else is relayed as it is
 *   durable_event.c  the answer: envelopes with the agent's events, in the codec of the request
 *   durable.c        one stream: its command's reader on one side, the client's exchange on the other
 */
#ifndef AB_DAEMON_GATEWAY_DURABLE_H
#define AB_DAEMON_GATEWAY_DURABLE_H

#include <protobuf-c/protobuf-c.h>

#include "daemon/command/command.h"
#include "daemon/gateway/who.h"
#include "proto/base/buf.h"
#include "proto/wire/fields.h"

#define DURABLE_BODY_MAX  (4u * 1024 * 1024)	/* of a request; no system starts a command with more */
#define DURABLE_USER_MAX  128u
#define DURABLE_CHUNK_MAX 32768u		/* of output in one event: as large as the agent's */

struct gateway;
struct gateway_durable;
struct http_stream;
struct sandbox_target;
struct token;

enum durable_kind {
	DURABLE_NONE = 0,	/* to be relayed */
	DURABLE_START,
	DURABLE_CONNECT,
};

struct durable_ask {
	enum durable_kind kind;
	bool is_json;
	uint64_t timeout_ms;		/* from the request's arrival; 0 = none */
	uint64_t keepalive_ms;
	char user[DURABLE_USER_MAX];	/* "" = nobody was named */
	ProtobufCMessage *msg;		/* owned: process.StartRequest or process.ConnectRequest, by kind */
};

/* By the head alone: is it a request of this kind whose body is worth reading? */
enum durable_kind durable_kind_of(const struct fields *head);
/* The whole request. 0; -EINVAL: what the agent would refuse, or do and we cannot, so that it is relayed; -ENOMEM. */
must_check int durable_ask_read(const struct fields *head, const void *body, size_t n, struct durable_ask *ret);
void durable_ask_fini(struct durable_ask *a);	/* zeroed is fine */

/* Each appends one envelope to `out`: 0, -ENOMEM, -ENOBUFS. */
must_check int durable_event_start(struct buf *out, bool is_json, uint32_t pid);
must_check int durable_event_data(struct buf *out, bool is_json, const struct spool_piece *p);
must_check int durable_event_keepalive(struct buf *out, bool is_json);
must_check int durable_event_end(struct buf *out, bool is_json, const struct command_result *r);
/* The end-of-stream record; CODE_OK: without an error. */
must_check int durable_event_close(struct buf *out, enum ab_code code, const char *text);

struct durable_open {
	struct durable_ask *ask;	/* taken over and zeroed, with 0 */
	const struct sandbox_target *target;
	struct who_peer peer;
	struct token *token;		/* NULL = none was shown */
	struct quota *quota;		/* of the client's connection */
};
/* The stream without its client. 0; -ENOENT: a Connect to a process that is no command of the daemon's, to be relayed; -ENOMEM: no memory,
 * or not for this client. */
must_check int gateway_durable_new(struct gateway *g, const struct durable_open *o, struct gateway_durable **ret);
/* Takes x over, and begins. */
void gateway_durable_begin(struct gateway_durable *d, struct http_stream *x);

#endif
