/* SPDX-License-Identifier: MIT */
/*
 * FileService Read and Write. Bytes go from one HTTP stream to the other with credit on both sides:
 * Read consumes upstream only what the client has room for; Write asks the client for the next
 * message only when upstream has room. Nothing else is buffered.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/rpc/check.h"
#include "daemon/rpc/error.h"
#include "daemon/rpc/file_call.h"
#include "daemon/rpc/limits.h"
#include "proto/base/must.h"
#include "proto/base/name.h"
#include "proto/base/str.h"

#define READ_PIECE_BYTES (128u * 1024)
#define READ_PIECE_LEAST 2048u	/* where there is little room for it */
#define DATA_TAG	 (AGENTBOX__V1__WRITE_FILE_REQUEST__PART_DATA << 3 | 2u)	/* of its encoding */
#define RESULT_BYTES	 1024u	/* of a written file, beside path and entry: a failure with its evidence */
#define PAIR_BYTES	 128u	/* of its metadata, beside the characters */

/* --- Read: stat for the head, then the bytes --- */

static void send_part(struct file_call *x, Agentbox__V1__ReadFileResponse *m)
{
	rpc_call_send(x->call, &m->base);
}

static void finish_read(struct file_call *x)
{
	Agentbox__V1__ReadFileResponse m = AGENTBOX__V1__READ_FILE_RESPONSE__INIT;
	Agentbox__V1__ReadEnd end = AGENTBOX__V1__READ_END__INIT;
	struct rpc_call *call = x->call;

	end.bytes = x->bytes;
	m.part_case = AGENTBOX__V1__READ_FILE_RESPONSE__PART_END;
	m.end = &end;
	send_part(x, &m);
	file_call_free(x);
	rpc_call_finish(call);
}

static void go_read(struct file_call *x);
static void open_read(struct file_call *x);

static void read_failed(struct file_call *x)
{
	enum envd_class cls;
	struct status st = *envd_read_failure(x->read, &cls);

	if (st.code == CODE_OUT_OF_RANGE) { /* the offset is beyond the end: no data */
		finish_read(x);
		return;
	}
	if (envd_read_wants_stream(x->read)) {
		x->read = envd_read_free(x->read);
		x->streamed = true;
		open_read(x);
		return;
	}
	x->read = envd_read_free(x->read);
	if (x->bytes || x->asked_life || !file_call_ask_life(x, cls))
		file_call_fail_because(x, cls, &st);
}

static void move_bytes(struct file_call *x)
{
	Agentbox__V1__ReadFileResponse m = AGENTBOX__V1__READ_FILE_RESPONSE__INIT;
	const uint8_t *p;
	size_t n, room;

	m.part_case = AGENTBOX__V1__READ_FILE_RESPONSE__PART_DATA;
	while ((room = rpc_call_room(x->call)) && (n = envd_read_peek(x->read, &p))) {
		n = MIN(n, MIN(MAX(room, (size_t)READ_PIECE_LEAST), (size_t)READ_PIECE_BYTES));
		m.data.data = (uint8_t *)p;
		m.data.len = n;
		send_part(x, &m);
		envd_read_consume(x->read, n);
		x->bytes += n;
	}
	switch (envd_read_state(x->read)) {
	case ENVD_XFER_DONE:
		finish_read(x);
		break;
	case ENVD_XFER_FAILED:
		if (!envd_read_peek(x->read, &p))
			read_failed(x);
		break;
	default:
		break;
	}
}

static void on_read_ready(struct envd_read *r, void *user)
{
	move_bytes(user);
}

static void on_read_room(struct rpc_call *call)
{
	struct file_call *x = rpc_call_user(call);

	if (x && x->read)
		move_bytes(x);
}

static void open_read(struct file_call *x)
{
	struct envd_target t = file_call_target(x);
	struct envd_read_options o = { .path = x->path, .offset = x->offset, .length = x->length, .streamed = x->streamed };

	x->read = envd_read(&t, &o, on_read_ready, x);
	if (!x->read)
		file_call_fail_errno(x, ENOMEM);
}

static void on_read_stat(struct envd_result *r, void *user)
{
	Agentbox__V1__ReadFileResponse m = AGENTBOX__V1__READ_FILE_RESPONSE__INIT;
	struct file_call *x = user;
	struct file_info_message f;
	struct status st;

	x->agent = NULL;
	if (r->cls != ENVD_OK) {
		if (file_call_by_script(x, &r->status))
			go_read(x);
		else if (!file_call_ask_life(x, r->cls))
			file_call_fail_because(x, r->cls, &r->status);
		return;
	}
	if (!r->n_entries || r->entries[0].type == ENVD_FILE_DIRECTORY) {
		if (r->n_entries)
			status_set(&st, R_IS_A_DIRECTORY, "%.200s is a directory", x->path);
		else
			status_set(&st, R_BAD_CLOUD_REPLY, "the agent answered without an entry");
		file_call_fail(x, &st);
		return;
	}
	if (file_info_fill(&f, &r->entries[0]) < 0) {
		file_call_fail_errno(x, ENOMEM);
		return;
	}
	if (!x->head_sent) {
		m.part_case = AGENTBOX__V1__READ_FILE_RESPONSE__PART_FILE;
		m.file = &f.m;
		send_part(x, &m);
		x->head_sent = true;
	}
	file_info_fini(&f);
	x->streamed = envd_is_streamed(&r->entries[0]);
	open_read(x);
}

static void go_read(struct file_call *x)
{
	struct envd_target t = file_call_target(x);

	if (x->head_sent) {
		open_read(x);
		return;
	}
	x->agent = envd_stat(&t, x->path, on_read_stat, x);
	if (!x->agent)
		file_call_fail_errno(x, ENOMEM);
}

static void on_read(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__ReadFileRequest *q = (const void *)message;
	struct file_call *x = file_call_new(call);

	if (!x || !file_call_take(x, q->sandbox, q->path, "path", q->user))
		return;
	x->offset = q->offset;
	x->length = q->_length_case == AGENTBOX__V1__READ_FILE_REQUEST___LENGTH_LENGTH ? q->length
										       : UINT64_MAX;
	x->go = go_read;
	file_call_resolve(x);
}

/* --- Write: header, data…, (next header, data…)* --- */

struct file_header *file_header_free(struct file_header *h)
{
	if (!h)
		return NULL;
	cloud_kvs_fini(&h->metadata);
	free(h->path);
	free(h->asked_path);
	free(h->user);
	free(h);
	return NULL;
}

/* What the header takes, and the file's result until the call ends. */
static size_t header_bytes(const Agentbox__V1__WriteHeader *q)
{
	size_t sum = sizeof(struct file_header) + sizeof(struct file_result) + RESULT_BYTES + 3 * strlen(q->path) +
		     strlen(q->user);

	for (size_t i = 0; i < q->n_metadata; i++)
		sum += PAIR_BYTES + 2 * (strlen(q->metadata[i]->key) + strlen(q->metadata[i]->value));
	return sum;
}

static struct file_header *header_new(const Agentbox__V1__WriteHeader *q)
{
	struct file_header *h = calloc(1, sizeof(*h));
	bool ok;

	if (!h)
		return NULL;
	h->path = name_from_text(q->path);
	h->asked_path = strdup(q->path);
	h->user = strdup(q->user);
	h->size = q->_size_case == AGENTBOX__V1__WRITE_HEADER___SIZE_SIZE ? (int64_t)q->size : -1;
	ok = h->path && h->asked_path && h->user;
	for (size_t i = 0; ok && i < q->n_metadata; i++)
		ok = cloud_kvs_add(&h->metadata, q->metadata[i]->key, q->metadata[i]->value) == 0;
	return ok ? h : file_header_free(h);
}

static void answer_write(struct file_call *x)
{
	Agentbox__V1__WriteFileResponse m = AGENTBOX__V1__WRITE_FILE_RESPONSE__INIT;
	Agentbox__V1__WriteResult *r = calloc(x->n_results + 1, sizeof(*r));
	struct rpc_call *call = x->call;

	m.results = calloc(x->n_results + 1, sizeof(*m.results));
	if (!r || !m.results) {
		free(r);
		free(m.results);
		file_call_fail_errno(x, ENOMEM);
		return;
	}
	for (size_t i = 0; i < x->n_results; i++) {
		struct file_result *k = x->results[i];

		agentbox__v1__write_result__init(&r[i]);
		r[i].path = k->asked_path;
		if (k->has_entry) {
			r[i].result_case = AGENTBOX__V1__WRITE_RESULT__RESULT_FILE;
			r[i].file = &k->info.m;
		} else if ((r[i].error = rpc_error_message(&k->st))) {
			r[i].result_case = AGENTBOX__V1__WRITE_RESULT__RESULT_ERROR;
		}
		m.results[i] = &r[i];
	}
	m.n_results = x->n_results;
	rpc_call_reply(call, &m.base);
	for (size_t i = 0; i < x->n_results; i++)
		if (r[i].result_case == AGENTBOX__V1__WRITE_RESULT__RESULT_ERROR)
			google__rpc__status__free_unpacked(r[i].error, NULL);
	free(r);
	free(m.results);
	file_call_free(x);
}

static void open_write(struct file_call *x);

static void ask_next(struct file_call *x)
{
	if (!x->asked_next)
		rpc_call_next(x->call);
	x->asked_next = true;
}

/* Makes h the current file, with a result of its own. False: the call is over. */
static bool begin_file(struct file_call *x, struct file_header *h)
{
	struct file_result *k = file_result_add(x);

	x->current = h;
	x->answer_bytes += strlen(h->asked_path) + RESULT_BYTES;
	if (k) {
		k->asked_path = give(h->asked_path);
		return true;
	}
	file_call_fail_errno(x, ENOMEM);
	return false;
}

/* The current file is done, one way or the other. */
static void go_on(struct file_call *x)
{
	x->current = file_header_free(x->current);
	if (x->next) {
		if (begin_file(x, give(x->next)))
			open_write(x);
	} else if (x->ended) {
		answer_write(x);
	} else {
		ask_next(x); /* the rest of this file is not wanted */
	}
}

/* A failure of the first file is the call's, at once, and so is one that may be the sandbox's; a later
 * file's is its result, and the bytes that still come for it are dropped. */
static void current_failed(struct file_call *x, enum envd_class cls, const struct status *st)
{
	x->write = envd_write_free(x->write);
	if (x->n_results == 1 || cls == ENVD_NOT_RUNNING || cls == ENVD_TOKEN) {
		file_call_fail_because(x, cls, st);
		return;
	}
	x->results[x->n_results - 1]->st = *st;
	go_on(x);
}

static void on_written_stat(struct envd_result *r, void *user);

static void look_at_written(struct file_call *x, const char *path)
{
	struct envd_target t = file_call_target(x);

	t.user = str_is_empty(x->current->user) ? NULL : x->current->user;
	x->agent = envd_stat(&t, path, on_written_stat, x);
	x->write = envd_write_free(x->write);
	if (!x->agent)
		file_call_fail_errno(x, ENOMEM);
}

/* What it looks like now is asked for, so that the answer is what is there. */
static void on_written_stat(struct envd_result *r, void *user)
{
	struct file_call *x = user;
	struct file_result *k = x->results[x->n_results - 1];
	struct status st = r->status;

	x->agent = NULL;
	if (r->cls == ENVD_OK && r->n_entries && file_result_take(k, &r->entries[0]) == 0) {
		x->answer_bytes += protobuf_c_message_get_packed_size(&k->info.m.base);
		go_on(x);
		return;
	}
	if (file_call_by_script(x, &st)) {
		look_at_written(x, x->current->path);
		return;
	}
	if (status_ok(&st))
		status_set(&st, R_BAD_CLOUD_REPLY, "the file was written, but could not be looked at");
	current_failed(x, r->cls, &st);
}

static void file_is_written(struct file_call *x)
{
	const char *path = envd_write_path(x->write);

	/* What the agent says of a name that is not UTF-8 is not that name. */
	look_at_written(x, path[0] && envd_can_name(x->current->path) ? path : x->current->path);
}

static void finish_current(struct file_call *x);

static void on_write_ready(struct envd_write *w, void *user)
{
	struct file_call *x = user;
	enum envd_class cls;
	struct status st;

	switch (envd_write_state(w)) {
	case ENVD_XFER_OPEN:
		if (x->finish_due || x->ended)	/* the end came before the agent was ready */
			finish_current(x);
		else if (x->want_next && envd_write_room(w)) {
			x->want_next = false;
			ask_next(x);
		}
		break;
	case ENVD_XFER_DONE:
		file_is_written(x);
		break;
	case ENVD_XFER_FAILED:
		st = *envd_write_failure(w, &cls);
		if (!x->bytes && !x->next && !x->ended && file_call_ask_life(x, cls))
			x->write = envd_write_free(x->write);
		else
			current_failed(x, cls, &st);
		break;
	default:
		break;
	}
}

static void open_write(struct file_call *x)
{
	struct envd_target t = file_call_target(x);
	struct file_header *h = x->current;
	struct envd_write_options o = { .path = h->path, .size = h->size, .metadata = h->metadata.v,
					.n_metadata = h->metadata.n };

	t.user = str_is_empty(h->user) ? NULL : h->user;
	x->bytes = 0;
	x->want_next = true;
	x->finish_due = false;
	x->write = envd_write(&t, &o, on_write_ready, x);
	if (!x->write)
		file_call_fail_errno(x, ENOMEM);
}

static void finish_current(struct file_call *x)
{
	struct status st;

	x->want_next = false;
	x->finish_due = envd_write_state(x->write) == ENVD_XFER_OPENING; /* an empty file, for one */
	/* -EPIPE: the transfer is over, and on_ready will tell. */
	if (x->finish_due || envd_write_finish(x->write) != -EMSGSIZE)
		return;
	status_field(&st, "header.size", "said %lld bytes, %llu came", (long long)x->current->size,
		     (unsigned long long)x->bytes);
	current_failed(x, ENVD_OK, &st);
}

static bool check_header(struct file_call *x, const Agentbox__V1__WriteHeader *q, struct status *st)
{
	if (!check_required(q->sandbox, "header.sandbox", st) ||
	    !check_required(q->path, "header.path", st) || !file_check_path(q->path, "header.path", st))
		return false;
	if (x->sandbox && !str_eq(x->sandbox, q->sandbox)) {
		status_field(st, "header.sandbox", "differs from the first header's; one stream, one sandbox");
		return false;
	}
	if (x->n_results >= FILES_PER_WRITE || x->answer_bytes > RPC_PAGE_MAX_BYTES) {
		status_set(st, R_TOO_LARGE, "one stream writes at most %u files, with an answer of at most %u bytes",
			   FILES_PER_WRITE, RPC_PAGE_MAX_BYTES);
		return false;
	}
	if (q->_size_case == AGENTBOX__V1__WRITE_HEADER___SIZE_SIZE && q->size > INT64_MAX) {
		status_field(st, "header.size", "is more than a file can hold");
		return false;
	}
	return true;
}

static void take_header(struct file_call *x, const Agentbox__V1__WriteHeader *q)
{
	struct file_header *h;
	struct status st;

	if (!check_header(x, q, &st) || !rpc_call_hold(x->call, header_bytes(q), &st)) {
		file_call_fail(x, &st);
		return;
	}
	h = header_new(q);
	if (!h) {
		file_call_fail_errno(x, ENOMEM);
	} else if (x->write) {
		x->next = h;
		finish_current(x);
	} else if (begin_file(x, h)) {
		if (x->sandbox) {
			open_write(x);
			return;
		}
		x->sandbox = strdup(q->sandbox);
		x->go = open_write;
		if (x->sandbox)
			file_call_resolve(x);
		else
			file_call_fail_errno(x, ENOMEM);
	}
}

static void take_data(struct file_call *x, const uint8_t *p, size_t n)
{
	struct status st;
	int r;

	if (!x->sandbox) {
		status_field(&st, "header", "must come before the first data");
		file_call_fail(x, &st);
		return;
	}
	if (!x->write) { /* of a file that failed */
		ask_next(x);
		return;
	}
	r = envd_write_put(x->write, p, n);
	if (r == -EMSGSIZE) {
		status_field(&st, "header.size", "said %lld bytes, more came", (long long)x->current->size);
		current_failed(x, ENVD_OK, &st);
		return;
	}
	if (r == -ENOMEM) {
		file_call_fail_errno(x, r);
		return;
	}
	/* -EPIPE: the transfer is over, and on_ready will tell. */
	x->bytes += r ? 0 : n;
	x->want_next = true;
	if (!r && envd_write_room(x->write)) {
		x->want_next = false;
		ask_next(x);
	}
}

static void on_write(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__WriteFileRequest *q = (const void *)message;
	struct file_call *x = rpc_call_user(call);
	struct status st;

	if (!x)
		x = file_call_new(call);
	if (!x)
		return;
	x->asked_next = false;
	if (!status_ok(&x->own))
		return;		/* it has failed, and its reason is being asked for */
	switch (q->part_case) {
	case AGENTBOX__V1__WRITE_FILE_REQUEST__PART_HEADER:
		take_header(x, q->header);
		break;
	case AGENTBOX__V1__WRITE_FILE_REQUEST__PART_DATA:
		take_data(x, q->data.data, q->data.len);
		break;
	default:
		status_field(&st, "part", "is unset; send a header or data");
		file_call_fail(x, &st);
	}
}

/* A piece of a file is taken from where it was received: one field, to the end of the message. */
static bool on_write_encoded(struct rpc_call *call, const uint8_t *p, size_t n)
{
	struct file_call *x = rpc_call_user(call);
	uint64_t len = 0;
	size_t at = 1;

	if (!x || !status_ok(&x->own) || n < 2 || p[0] != DATA_TAG)
		return false;
	for (unsigned shift = 0; at < n && shift < 35; shift += 7) {
		len |= (uint64_t)(p[at] & 0x7f) << shift;
		if (p[at++] < 0x80)
			break;
	}
	if (p[at - 1] >= 0x80 || len != n - at)
		return false;
	x->asked_next = false;
	take_data(x, p + at, n - at);
	return true;
}

static void on_write_end(struct rpc_call *call)
{
	struct file_call *x = rpc_call_user(call);
	struct status st;

	if (!x) {
		status_field(&st, "header", "the stream held no file");
		rpc_call_fail(call, &st);
		return;
	}
	x->ended = true;
	if (x->write)
		finish_current(x);
	else if (!x->agent && !x->op)
		answer_write(x);
}

const struct rpc_handler file_read_handler = { .on_message = on_read, .on_room = on_read_room,
					       .on_gone = file_call_on_gone };
const struct rpc_handler file_write_handler = { .on_message = on_write, .on_encoded = on_write_encoded, .on_end = on_write_end,
						.on_gone = file_call_on_gone };
