/* SPDX-License-Identifier: MIT */
/*
 * FileService. File contents are not copied through generated structs: outwards a message is a short
 * head and the caller's bytes, inwards a message that is only data is taken where it lies.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/gen/agentbox_file.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/error.h"
#include "client/lib/msg.h"
#include "client/lib/obj.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/name.h"
#include "proto/base/str.h"

#define PATH(name) "/agentbox.v1.FileService/" name
#define DATA_FIELD 2u	/* `data` of ReadFileResponse and of WriteFileRequest */

char *ab_path_text(const char *bytes)
{
	return name_to_text(bytes);
}

char *ab_path_bytes(const char *text)
{
	return name_from_text(text);
}

/* --- reading --- */

static const struct ab_error *on_read_end(struct ab_call *call)
{
	return call->end_seen ? NULL
			      : error_local(AB_DATA_LOSS, R_TRUNCATED,
					    "the file was cut after %llu bytes",
					    (unsigned long long)call->bytes);
}

static int skip_data(struct ab_call *call)
{
	const void *p;
	size_t n;

	return ab_file_read_next(call, &p, &n);
}

static const struct call_method read_method = {
	.path = PATH("Read"),
	.reply = &agentbox__v1__read_file_response__descriptor,
	.skip = skip_data,
	.on_end = on_read_end,
	.no_deadline = true,
};

int ab_file_read_start(struct ab_client *c, const struct ab_path *path, const struct ab_read_options *o,
		       const struct ab_call_options *how, struct ab_call **ret)
{
	Agentbox__V1__ReadFileRequest req = AGENTBOX__V1__READ_FILE_REQUEST__INIT;

	if (msg_path_out(path, &req.sandbox, &req.path, &req.user) < 0)
		return -EINVAL;
	if (o) {
		req.offset = o->offset;
		if (o->length) {
			req._length_case = AGENTBOX__V1__READ_FILE_REQUEST___LENGTH_LENGTH;
			req.length = o->length;
		}
	}
	return call_start(c, &read_method, &req.base, how, ret);
}

/* The bytes, if the message is `data` and nothing else. */
static bool body_is_data(const uint8_t *p, size_t n, const uint8_t **ret, size_t *ret_n)
{
	uint64_t len = 0;
	size_t at = 1;

	if (n < 2 || p[0] != (DATA_FIELD << 3 | 2))
		return false;
	for (unsigned shift = 0; at < n && shift < 35; shift += 7) {
		len |= (uint64_t)(p[at] & 0x7f) << shift;
		if (p[at++] < 0x80)
			break;
	}
	if (len != n - at)
		return false;
	*ret = p + at;
	*ret_n = (size_t)len;
	return true;
}

/* Any other message: what is read, or the end. 0 or -errno. */
static int read_part(struct ab_call *call, const uint8_t *p, size_t n)
{
	Agentbox__V1__ReadFileResponse *m = agentbox__v1__read_file_response__unpack(NULL, n, p);
	void *info;
	int r = 0;

	if (!m)
		return -EPROTO;
	if (m->part_case == AGENTBOX__V1__READ_FILE_RESPONSE__PART_FILE) {
		Agentbox__V1__FileInfo *file = give(m->file);

		m->part_case = AGENTBOX__V1__READ_FILE_RESPONSE__PART__NOT_SET;
		r = msg_file(&file->base, &info);
		if (r == 0) {
			obj_free(call->info);
			call->info = info;
		}
	} else if (m->part_case == AGENTBOX__V1__READ_FILE_RESPONSE__PART_END) {
		call->end_seen = m->end->bytes == call->bytes;
	}
	protobuf_c_message_free_unpacked(&m->base, NULL);
	return r;
}

int ab_file_read_next(struct ab_call *call, const void **ret_data, size_t *ret_n)
{
	const uint8_t *p;
	size_t n;

	must(call->method == &read_method);
	while (call_next_body(call, &p, &n)) {
		const uint8_t *data;
		size_t n_data;
		int r;

		if (body_is_data(p, n, &data, &n_data)) {
			if (!n_data)
				continue;
			call->bytes += n_data;
			*ret_data = data;
			*ret_n = n_data;
			return 1;
		}
		r = read_part(call, p, n);
		if (r < 0)
			return call_fail(call, r);
	}
	return 0;
}

const struct ab_file *ab_file_read_info(const struct ab_call *call)
{
	return call->info;
}

int ab_file_read_to(struct ab_client *c, const struct ab_path *path, const struct ab_read_options *o,
		    const struct ab_call_options *how,
		    int (*sink)(void *user, const void *data, size_t n), void *user)
{
	struct ab_call *call = NULL;
	int r = c->in_callback ? -EDEADLK : ab_file_read_start(c, path, o, how, &call);

	if (r < 0)
		return wait_object(c, r, NULL);
	while (!ab_call_is_done(call)) {
		const void *p;
		size_t n;

		if (!ab_file_read_next(call, &p, &n)) {
			if (!ab_call_is_done(call))
				wait_once(call, -1);
		} else if (sink(user, p, n)) {
			ab_call_cancel(call);
		}
	}
	return wait_end(c, call);
}

struct fd_sink {
	int fd, error;
	uint64_t bytes;
};

static int sink_to_fd(void *user, const void *data, size_t n)
{
	struct fd_sink *s = user;

	s->error = fd_write_all(s->fd, data, n);
	s->bytes += s->error ? 0 : n;
	return s->error;
}

int ab_file_read_to_fd(struct ab_client *c, const struct ab_path *path, const struct ab_read_options *o,
		       const struct ab_call_options *how, int fd, uint64_t *ret_bytes)
{
	struct fd_sink s = { .fd = fd };
	int r = ab_file_read_to(c, path, o, how, sink_to_fd, &s);

	if (s.error) {
		client_set_error(c, error_errno(s.error));
		return (int)c->error->status;
	}
	if (r == AB_OK && ret_bytes)
		*ret_bytes = s.bytes;
	return r;
}

/* --- writing --- */

/* The stream is one file, so its answer is one result, which may be an error of its own. */
static int on_written(struct ab_call *call, ProtobufCMessage *message)
{
	Agentbox__V1__WriteFileResponse *m = (Agentbox__V1__WriteFileResponse *)message;
	Agentbox__V1__WriteResult *w = m->n_results == 1 ? m->results[0] : NULL;
	int r = -EPROTO;

	if (w && w->result_case == AGENTBOX__V1__WRITE_RESULT__RESULT_FILE) {
		Agentbox__V1__FileInfo *file = give(w->file);

		w->result_case = AGENTBOX__V1__WRITE_RESULT__RESULT__NOT_SET;
		r = msg_file(&file->base, &call->object);
	} else if (w && w->result_case == AGENTBOX__V1__WRITE_RESULT__RESULT_ERROR) {
		error_free(call->refusal);
		call->refusal = error_from_status(w->error->code, w->error->message, w->error);
		r = 0;
	}
	protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

static const struct ab_error *on_write_end(struct ab_call *call)
{
	return give(call->refusal);
}

static const struct call_method write_method = {
	.path = PATH("Write"),
	.reply = &agentbox__v1__write_file_response__descriptor,
	.on_reply = on_written,
	.on_end = on_write_end,
	.no_deadline = true,
	.puts = true,
};

int ab_file_write_start(struct ab_client *c, const struct ab_path *path,
			const struct ab_write_options *o, const struct ab_call_options *how,
			struct ab_call **ret)
{
	Agentbox__V1__WriteFileRequest req = AGENTBOX__V1__WRITE_FILE_REQUEST__INIT;
	Agentbox__V1__WriteHeader head = AGENTBOX__V1__WRITE_HEADER__INIT;
	int r = 0;

	if (msg_path_out(path, &head.sandbox, &head.path, &head.user) < 0)
		return -EINVAL;
	if (o && o->size_known) {
		head._size_case = AGENTBOX__V1__WRITE_HEADER___SIZE_SIZE;
		head.size = o->size;
	}
	if (o)
		r = msg_pairs(o->metadata, o->n_metadata,
			      &agentbox__v1__write_header__metadata_entry__descriptor, &head.metadata,
			      &head.n_metadata);
	req.part_case = AGENTBOX__V1__WRITE_FILE_REQUEST__PART_HEADER;
	req.header = &head;
	if (r == 0)
		r = call_start(c, &write_method, &req.base, how, ret);
	free(head.metadata);
	return r;
}

static int put_data(struct ab_call *call, const void *data, size_t n)
{
	return call_put(call, NULL, 0, DATA_FIELD, data, n);
}

ptrdiff_t ab_file_write_put(struct ab_call *call, const void *data, size_t n)
{
	(void)call_enter(call);
	must(call->method == &write_method);
	return call_put_pieces(call, data, n, put_data);
}

int ab_file_write_finish(struct ab_call *call)
{
	(void)call_enter(call);
	must(call->method == &write_method);
	return call_put_end(call);
}

int ab_file_write_from(struct ab_client *c, const struct ab_path *path,
		       const struct ab_write_options *o, const struct ab_call_options *how,
		       ptrdiff_t (*source)(void *user, void *data, size_t n), void *user,
		       struct ab_file **ret)
{
	struct ab_call *call = NULL;
	uint8_t *buffer = malloc(PUT_BYTES);
	ptrdiff_t n = 1;
	int r = c->in_callback ? -EDEADLK : -ENOMEM;

	if (buffer && !c->in_callback)
		r = ab_file_write_start(c, path, o, how, &call);
	if (r < 0) {
		free(buffer);
		return wait_object(c, r, NULL);
	}
	while (n > 0) {
		n = source(user, buffer, PUT_BYTES);
		if (n < 0)
			ab_call_cancel(call);
		else if (n == 0)
			(void)ab_file_write_finish(call);
		else if (!wait_put(call, buffer, (size_t)n, ab_file_write_put))
			break;
	}
	free(buffer);
	(void)ab_call_wait(call);
	if (!call->error && ret)
		*ret = ab_call_take(call);
	return wait_end(c, call);
}

struct fd_source {
	int fd, error;
};

static ptrdiff_t source_from_fd(void *user, void *data, size_t n)
{
	struct fd_source *s = user;
	ssize_t k;

	do
		k = read(s->fd, data, n);
	while (k < 0 && errno == EINTR);
	s->error = k < 0 ? -errno : 0;
	return k;
}

int ab_file_write_from_fd(struct ab_client *c, const struct ab_path *path,
			  const struct ab_write_options *o, const struct ab_call_options *how, int fd,
			  struct ab_file **ret)
{
	struct fd_source s = { .fd = fd };
	off_t begin = lseek(fd, 0, SEEK_CUR);	/* < 0: what was read does not come again */
	struct repeat again;
	int r;

	repeat_init(&again, c, how);
	do {
		r = ab_file_write_from(c, path, o, &again.how, source_from_fd, &s, ret);
	} while (r && !s.error && begin >= 0 && repeat_may(&again, c->error) && lseek(fd, begin, SEEK_SET) == begin);
	if (!s.error)
		return r;
	client_set_error(c, error_errno(s.error));
	return (int)c->error->status;
}

/* --- names --- */

int ab_file_stat_start(struct ab_client *c, const struct ab_path *path,
		       const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Stat"),
		.reply = &agentbox__v1__file_info__descriptor,
		.make = msg_file,
		.repeatable = true,
	};
	Agentbox__V1__StatRequest req = AGENTBOX__V1__STAT_REQUEST__INIT;

	if (msg_path_out(path, &req.sandbox, &req.path, &req.user) < 0)
		return -EINVAL;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_file_stat(struct ab_client *c, const struct ab_path *path, const struct ab_call_options *how,
		 struct ab_file **ret)
{
	return wait_object(c, ab_file_stat_start(c, path, how, &c->started), (void **)ret);
}

int ab_file_exists_start(struct ab_client *c, const struct ab_path *path,
			 const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Exists"),
		.reply = &agentbox__v1__exists_response__descriptor,
		.answer_at = offsetof(Agentbox__V1__ExistsResponse, exists),
		.repeatable = true,
	};
	Agentbox__V1__StatRequest req = AGENTBOX__V1__STAT_REQUEST__INIT;

	if (msg_path_out(path, &req.sandbox, &req.path, &req.user) < 0)
		return -EINVAL;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_file_exists(struct ab_client *c, const struct ab_path *path, const struct ab_call_options *how,
		   bool *ret_exists)
{
	return wait_answer(c, ab_file_exists_start(c, path, how, &c->started), ret_exists);
}

static int skip_file(struct ab_call *call)
{
	const struct ab_file *f;

	return ab_file_list_next(call, &f);
}

static const struct call_method list_method = {
	.path = PATH("List"),
	.reply = &agentbox__v1__file_info__descriptor,
	.skip = skip_file,
};

int ab_file_list_start(struct ab_client *c, const struct ab_path *path, uint32_t depth,
		       const struct ab_call_options *how, struct ab_call **ret)
{
	Agentbox__V1__ListDirRequest req = AGENTBOX__V1__LIST_DIR_REQUEST__INIT;

	if (msg_path_out(path, &req.sandbox, &req.path, &req.user) < 0)
		return -EINVAL;
	req.depth = depth;
	return call_start(c, &list_method, &req.base, how, ret);
}

static int list_next(struct ab_call *call, void **ret)
{
	ProtobufCMessage *m;

	must(call->method == &list_method);
	if (!call_next_message(call, &m))
		return 0;
	return msg_file(m, ret) == 0 ? 1 : call_fail(call, -ENOMEM);
}

int ab_file_list_next(struct ab_call *call, const struct ab_file **ret)
{
	obj_free(give(call->event));
	if (!list_next(call, &call->event))
		return 0;
	*ret = call->event;
	return 1;
}

/* A list that owns files, which are objects of their own. It grows by doubling; what it outgrew ends with it. */
struct file_list {
	struct ab_file_list list;	/* first: so the object can be handed out as one */
	const struct ab_file **items;
	size_t cap;
};

static int file_list_grow(struct file_list *l, size_t cap)
{
	const struct ab_file **v = obj_alloc(l, cap, sizeof(*v));

	if (!v)
		return -ENOMEM;
	if (l->list.n)
		memcpy(v, l->items, l->list.n * sizeof(*v));
	l->list.items = l->items = v;
	l->cap = cap;
	return 0;
}

static int file_list_add(struct file_list *l, const struct ab_file *f)
{
	if (l->list.n == l->cap && file_list_grow(l, 2 * l->cap) < 0) {
		obj_free(f);
		return -ENOMEM;
	}
	obj_adopt(l, f);
	l->items[l->list.n++] = f;
	return 0;
}

int ab_file_list(struct ab_client *c, const struct ab_path *path, uint32_t depth,
		 const struct ab_call_options *how, struct ab_file_list **ret)
{
	struct ab_call *call = NULL;
	int r = c->in_callback ? -EDEADLK : ab_file_list_start(c, path, depth, how, &call);
	scoped(obj_freep) struct file_list *l = r < 0 ? NULL : obj_new(sizeof(*l), NULL);

	if (r < 0)
		return wait_object(c, r, NULL);
	if (!l || file_list_grow(l, 64) < 0)
		(void)call_fail(call, -ENOMEM);
	while (!ab_call_is_done(call)) {
		void *f;

		if (list_next(call, &f)) {
			if (file_list_add(l, f) < 0)
				(void)call_fail(call, -ENOMEM);
		} else if (!ab_call_is_done(call)) {
			wait_once(call, -1);
		}
	}
	if (!call->error)
		*ret = &give(l)->list;
	return wait_end(c, call);
}

int ab_file_make_dir_start(struct ab_client *c, const struct ab_path *path,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("MakeDir"),
		.reply = &agentbox__v1__make_dir_response__descriptor,
		.answer_at = offsetof(Agentbox__V1__MakeDirResponse, created),
	};
	Agentbox__V1__MakeDirRequest req = AGENTBOX__V1__MAKE_DIR_REQUEST__INIT;

	if (msg_path_out(path, &req.sandbox, &req.path, &req.user) < 0)
		return -EINVAL;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_file_make_dir(struct ab_client *c, const struct ab_path *path, const struct ab_call_options *how,
		     bool *ret_created)
{
	return wait_answer(c, ab_file_make_dir_start(c, path, how, &c->started), ret_created);
}

int ab_file_move_start(struct ab_client *c, const struct ab_path *path, const char *destination,
		       const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Move"),
		.reply = &agentbox__v1__file_info__descriptor,
		.make = msg_file,
	};
	Agentbox__V1__MoveRequest req = AGENTBOX__V1__MOVE_REQUEST__INIT;

	if (msg_path_out(path, &req.sandbox, &req.source, &req.user) < 0 || str_is_empty(destination))
		return -EINVAL;
	req.destination = (char *)destination;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_file_move(struct ab_client *c, const struct ab_path *path, const char *destination,
		 const struct ab_call_options *how, struct ab_file **ret)
{
	return wait_object(c, ab_file_move_start(c, path, destination, how, &c->started), (void **)ret);
}

int ab_file_remove_start(struct ab_client *c, const struct ab_path *path,
			 const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Remove"),
		.reply = &agentbox__v1__remove_response__descriptor,
	};
	Agentbox__V1__RemoveRequest req = AGENTBOX__V1__REMOVE_REQUEST__INIT;

	if (msg_path_out(path, &req.sandbox, &req.path, &req.user) < 0)
		return -EINVAL;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_file_remove(struct ab_client *c, const struct ab_path *path, const struct ab_call_options *how)
{
	return wait_object(c, ab_file_remove_start(c, path, how, &c->started), NULL);
}
