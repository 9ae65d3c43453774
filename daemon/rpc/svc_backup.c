/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/svc_backup.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/auth/grant.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/server.h"
#include "proto/base/clock.h"
#include "proto/gen/agentbox_daemon.pb-c.h"

#define PIECE_BYTES (128u * 1024)
#define PIECE_LEAST 2048u	/* where there is little room for it */

struct backup_call {
	struct rpc_call *call;
	struct svc_backup_options *o;
	void *op;		/* what `begin` returned */
	int fd;			/* of the source, whose owner is `op`; -1 = not yet */
	uint64_t bytes, sent;
	uint8_t *piece;
};

static void svc_backup_free(struct backup_call *b)
{
	if (b->op)
		b->o->end(b->o->user, b->op);
	free(b->piece);
	free(b);
}

static void svc_backup_fail(struct backup_call *b, const struct status *st)
{
	struct rpc_call *call = b->call;
	struct status copy = *st;

	rpc_call_set_user(call, NULL);
	svc_backup_free(b);
	rpc_call_fail(call, &copy);
}

static void send_head(struct backup_call *b, const struct svc_backup_source *s)
{
	Agentbox__V1__BackupResponse m = AGENTBOX__V1__BACKUP_RESPONSE__INIT;
	Agentbox__V1__BackupHead head = AGENTBOX__V1__BACKUP_HEAD__INIT;
	msg_timestamp at;

	head.bytes = s->bytes;
	head.schema = s->schema;
	head.host_id = (char *)s->host_id;
	head.version = (char *)AB_VERSION;
	head.at = msg_time(&at, clock_wall_ms());
	m.part_case = AGENTBOX__V1__BACKUP_RESPONSE__PART_HEAD;
	m.head = &head;
	rpc_call_send(b->call, &m.base);
}

static void svc_backup_finish(struct backup_call *b)
{
	Agentbox__V1__BackupResponse m = AGENTBOX__V1__BACKUP_RESPONSE__INIT;
	Agentbox__V1__BackupEnd end = AGENTBOX__V1__BACKUP_END__INIT;
	struct rpc_call *call = b->call;

	end.bytes = b->sent;
	m.part_case = AGENTBOX__V1__BACKUP_RESPONSE__PART_END;
	m.end = &end;
	rpc_call_set_user(call, NULL);
	svc_backup_free(b);
	rpc_call_send(call, &m.base);
	rpc_call_finish(call);
}

/* The bytes were written a moment ago, so reading them waits for no disk. 0 or -errno. */
static int send_piece(struct backup_call *b, size_t room)
{
	Agentbox__V1__BackupResponse m = AGENTBOX__V1__BACKUP_RESPONSE__INIT;
	size_t want = MIN(MAX(room, (size_t)PIECE_LEAST), (size_t)PIECE_BYTES);
	ssize_t n = pread(b->fd, b->piece, MIN(want, b->bytes - b->sent), (off_t)b->sent);

	if (n <= 0)
		return n < 0 ? -errno : -EIO;
	b->sent += (uint64_t)n;
	m.part_case = AGENTBOX__V1__BACKUP_RESPONSE__PART_DATA;
	m.data.data = b->piece;
	m.data.len = (size_t)n;
	rpc_call_send(b->call, &m.base);
	return 0;
}

static void svc_backup_pump(struct rpc_call *call)
{
	struct backup_call *b = rpc_call_user(call);
	struct status st;
	size_t room;
	int r = 0;

	/* Sending may end the call: then on_gone has taken what was its. */
	while (b && b->fd >= 0 && b->sent < b->bytes && !r && (room = rpc_call_room(call))) {
		r = send_piece(b, room);
		b = rpc_call_user(call);
	}
	if (!b || b->fd < 0)
		return;
	if (r < 0) {
		status_errno(&st, r, "reading the copy of the database");
		svc_backup_fail(b, &st);
	} else if (b->sent == b->bytes) {
		svc_backup_finish(b);
	}
}

static void svc_backup_on_source(void *user, const struct status *st, const struct svc_backup_source *source)
{
	struct backup_call *b = user;
	struct rpc_call *call = b->call;

	if (!status_ok(st)) {
		svc_backup_fail(b, st);
		return;
	}
	b->fd = source->fd;
	b->bytes = source->bytes;
	send_head(b, source);	/* may end the call */
	svc_backup_pump(call);
}

static int svc_backup_begin(struct rpc_call *call, struct status *st)
{
	struct backup_call *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	*b = (struct backup_call){ .call = call, .o = rpc_call_service(call), .fd = -1, .piece = malloc(PIECE_BYTES) };
	if (b->piece)
		b->op = b->o->begin(b->o->user, svc_backup_on_source, b, st);
	if (b->op) {
		rpc_call_set_user(call, b);
		return 0;
	}
	svc_backup_free(b);
	return -ENOMEM;
}

static void svc_backup_on_message(struct rpc_call *call, const ProtobufCMessage *message)
{
	struct status st = STATUS_OK;
	int r = 0;

	if (grant_daemon(rpc_call_who(call)) != GRANT_OK)
		grant_refuse(&st, "make a backup");
	else if (rpc_call_hold(call, PIECE_BYTES, &st))
		r = svc_backup_begin(call, &st);
	if (r < 0 && status_ok(&st))
		status_errno(&st, r, "starting the operation");
	if (!status_ok(&st))
		rpc_call_fail(call, &st);
}

static void svc_backup_on_gone(struct rpc_call *call, enum rpc_gone why)
{
	if (rpc_call_user(call))
		svc_backup_free(rpc_call_user(call));
	rpc_call_set_user(call, NULL);
}

/* It changes nothing, but who takes a copy of everything stands in the audit. */
static const struct rpc_method svc_backup_methods[] = {
	{ .path = "/agentbox.v1.DaemonService/Backup", .kind = RPC_SERVER_STREAM,
	  .request = &agentbox__v1__backup_request__descriptor, .effect = RPC_CHANGES,
	  .handler = &(const struct rpc_handler){ .on_message = svc_backup_on_message, .on_room = svc_backup_pump,
						   .on_gone = svc_backup_on_gone } },
};

int svc_backup_add(struct rpc_server *s, struct svc_backup_options *o)
{
	return rpc_server_add(s, svc_backup_methods, ARRAY_SIZE(svc_backup_methods), o);
}
