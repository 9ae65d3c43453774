/* SPDX-License-Identifier: MIT */
/* DaemonService.Backup. */
#include <errno.h>

#include "proto/gen/agentbox_daemon.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/error.h"
#include "client/lib/msg.h"
#include "client/lib/obj.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"

static const struct ab_error *on_backup_end(struct ab_call *call)
{
	return call->end_seen ? NULL
			      : error_local(AB_DATA_LOSS, R_TRUNCATED, "the backup was cut after %llu bytes",
					    (unsigned long long)call->bytes);
}

static int skip_piece(struct ab_call *call)
{
	const void *p;
	size_t n;

	return ab_daemon_backup_next(call, &p, &n);
}

static const struct call_method backup_method = {
	.path = "/agentbox.v1.DaemonService/Backup",
	.reply = &agentbox__v1__backup_response__descriptor,
	.skip = skip_piece,
	.on_end = on_backup_end,
	.no_deadline = true,
};

int ab_daemon_backup_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret)
{
	Agentbox__V1__BackupRequest req = AGENTBOX__V1__BACKUP_REQUEST__INIT;

	return call_start(c, &backup_method, &req.base, how, ret);
}

/* Takes the message, which is kept until the next one if it is data. 1: it is; 0; -ENOMEM. */
static int take_part(struct ab_call *call, ProtobufCMessage *message)
{
	const Agentbox__V1__BackupResponse *m = (Agentbox__V1__BackupResponse *)message;
	const struct ab_backup *head = call->object;

	if (m->part_case == AGENTBOX__V1__BACKUP_RESPONSE__PART_HEAD && !head)
		return msg_backup(message, &call->object);
	if (m->part_case == AGENTBOX__V1__BACKUP_RESPONSE__PART_DATA) {
		call->bytes += m->data.len;
		call->event = obj_new(1, message);
		return call->event ? 1 : -ENOMEM;
	}
	if (m->part_case == AGENTBOX__V1__BACKUP_RESPONSE__PART_END)
		call->end_seen = head && head->bytes == call->bytes && m->end->bytes == call->bytes;
	protobuf_c_message_free_unpacked(message, NULL);
	return 0;
}

int ab_daemon_backup_next(struct ab_call *call, const void **ret_data, size_t *ret_n)
{
	ProtobufCMessage *m;

	must(call->method == &backup_method);
	obj_free(give(call->event));
	while (call_next_message(call, &m)) {
		const Agentbox__V1__BackupResponse *part = (Agentbox__V1__BackupResponse *)m;
		int r = take_part(call, m);

		if (r == 1 && part->data.len) {
			*ret_data = part->data.data;
			*ret_n = part->data.len;
			return 1;
		}
		if (r == 1)
			obj_free(give(call->event));
		if (r < 0)
			return call_fail(call, r);
	}
	return 0;
}

/* 0 or -errno of writing. */
static int write_pieces(struct ab_call *call, int fd)
{
	const void *p;
	size_t n;
	int r = 0;

	while (!r && ab_daemon_backup_next(call, &p, &n))
		r = fd_write_all(fd, p, n);
	return r;
}

int ab_daemon_backup_to_fd(struct ab_client *c, const struct ab_call_options *how, int fd, struct ab_backup **ret)
{
	struct ab_call *call = NULL;
	int r = c->in_callback ? -EDEADLK : ab_daemon_backup_start(c, how, &call);

	if (r < 0)
		return wait_object(c, r, NULL);
	while (!ab_call_is_done(call) && !r) {
		r = write_pieces(call, fd);
		if (!r && !ab_call_is_done(call))
			wait_once(call, -1);
	}
	if (r < 0) {
		ab_call_free(call);
		client_set_error(c, error_errno(r));
		return (int)c->error->status;
	}
	if (!call->error && ret)
		*ret = ab_call_take(call);
	return wait_end(c, call);
}
