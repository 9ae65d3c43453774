/* SPDX-License-Identifier: MIT */
/*
 * Whole files over the agent's HTTP: GET and POST /files. Bytes are passed on as they come, at the
 * slower side's pace, and not buffered here. A body that is too short is TRUNCATED, never a success.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/account.h"
#include "daemon/cloud/body.h"
#include "proto/base/buf.h"
#include "proto/base/must.h"
#include "proto/base/name.h"
#include "proto/base/str.h"
#include "proto/cloud/json.h"
#include "proto/cloud/link.h"

#define READ_MAGIC	0x72656164u
#define WRITE_MAGIC	0x77726974u
#define METADATA_MAX	64u
#define UPLOADS_MAX	1000u
#define BOUNDARY	"agentboxd-3f9a1c7e5b2d4860"
#define SKIP_PASS_BYTES (1024u * 1024)	/* then the others have their turn */

static char *files_path(const struct envd_target *t, const char *path)
{
	const char *user = agent_user(t);
	char *p = str_percent_encode(path, strlen(path));
	char *u = user ? str_percent_encode(user, strlen(user)) : NULL;
	char *all = NULL;

	if (p && (u || !user))
		all = str_printf("/files?path=%s%s%s", p, u ? "&username=" : "", u ? u : "");
	free(p);
	free(u);
	return all;
}

char *envd_sign_link(const struct envd_target *t, const struct envd_link *l)
{
	bool has_token = !str_is_empty(t->at.token);
	struct envd_target named = *t;
	const char *user;
	char *base, *where, *sig = NULL, *coded = NULL, *out = NULL, until[48] = "";

	named.user = l->user;
	user = agent_user(&named);
	base = agent_direct_url(t, l->plain);
	where = files_path(&named, l->path);
	if (has_token)
		sig = cloud_link_sign(l->path, l->write, user ? user : "", t->at.token,
				      l->expires_s ? l->expires_s : CLOUD_LINK_FOREVER);
	if (sig)
		coded = str_percent_encode(sig, strlen(sig));
	if (l->expires_s)
		snprintf(until, sizeof(until), "&signature_expiration=%" PRId64, l->expires_s);
	if (base && where && (coded || !has_token))
		out = str_printf("%s%s%s%s%s", base, where, coded ? "&signature=" : "",
				 coded ? coded : "", until);
	free(base);
	free(where);
	free(sig);
	free(coded);
	return out;
}

static bool header_u64(const struct fields *h, const char *name, uint64_t *ret)
{
	const char *v = fields_get(h, name);

	return v && str_u64(v, strlen(v), INT64_MAX, ret) == 0;
}

/* --- read --- */

struct envd_read {
	uint32_t magic;
	struct loop *loop;
	struct pool_req *req;
	enum envd_xfer state;
	bool streamed;			/* asked for as a stream */
	bool wants_stream;		/* refused as a file, maybe not as a stream */
	uint64_t offset, length;	/* asked for */
	uint64_t skip;			/* bytes before `offset` of what comes from its beginning */
	uint64_t left;			/* of `length`; UINT64_MAX = to the end */
	uint64_t given;
	int64_t size, file_size;
	struct quota *quota;		/* the account's */
	struct body body;
	struct buf error;
	enum envd_class cls;
	struct status failure;
	struct defer again;		/* there is more to skip */
	envd_read_ready_fn *on_ready;
	void *user;
	struct grave grave;
};

static void read_bury(void *p)
{
	struct envd_read *r = p;

	body_fini(&r->body);
	buf_fini(&r->error);
	r->magic = 0;
	free(r);
}

static void read_fail(struct envd_read *r, enum envd_class cls)
{
	must(r->state == ENVD_XFER_OPENING || r->state == ENVD_XFER_OPEN);
	r->cls = cls;
	r->state = ENVD_XFER_FAILED;
}

static void read_truncated(struct envd_read *r, const struct status *why)
{
	status_set(&r->failure, R_TRUNCATED, "the file's bytes ended early: %s",
		   why ? why->text : "the agent sent fewer than it announced");
	status_evidence(&r->failure, "bytes", "%" PRIu64, r->given);
	if (r->size >= 0)
		status_evidence(&r->failure, "announced", "%" PRId64, r->size);
	read_fail(r, ENVD_LOST);
}

/* "bytes 5-9/100" → 5, 9 and 100 (-1 for "*"). */
static bool content_range(const char *v, uint64_t *ret_from, uint64_t *ret_to, int64_t *ret_size)
{
	const char *dash, *slash;
	uint64_t size;

	if (!v || !str_starts(v, "bytes "))
		return false;
	v += 6;
	dash = strchr(v, '-');
	slash = dash ? strchr(dash, '/') : NULL;
	if (!slash || str_u64(v, (size_t)(dash - v), INT64_MAX, ret_from) < 0 ||
	    str_u64(dash + 1, (size_t)(slash - dash - 1), INT64_MAX, ret_to) < 0 || *ret_to < *ret_from)
		return false;
	*ret_size = -1;
	if (str_u64(slash + 1, strlen(slash + 1), INT64_MAX, &size) == 0)
		*ret_size = (int64_t)size;
	return true;
}

static void read_whole(struct envd_read *r, const struct fields *h)
{
	uint64_t n;

	r->skip = r->offset;
	if (r->body.coded || !header_u64(h, "content-length", &n))
		return;
	r->file_size = (int64_t)n;
	if (r->offset > n) {
		status_set_code(&r->failure, CODE_OUT_OF_RANGE,
				"offset %" PRIu64 " is beyond the file's end, %" PRIu64, r->offset, n);
		read_fail(r, ENVD_ANSWERED);
		return;
	}
	r->size = (int64_t)MIN(n - r->offset, r->length);
}

static void read_part(struct envd_read *r, const struct fields *h)
{
	uint64_t from, to;

	if (!content_range(fields_get(h, "content-range"), &from, &to, &r->file_size) ||
	    from != r->offset) {
		status_set(&r->failure, R_BAD_CLOUD_REPLY, "GET /files: the agent sent another range");
		read_fail(r, ENVD_LOST);
		return;
	}
	r->size = (int64_t)MIN(to - from + 1, r->length);
}

/* 416: at the very end it is an empty read. */
static void read_beyond(struct envd_read *r, const struct fields *h)
{
	const char *v = fields_get(h, "content-range");
	uint64_t size;

	if (v && str_starts(v, "bytes */") && str_u64(v + 8, strlen(v + 8), INT64_MAX, &size) == 0) {
		r->file_size = (int64_t)size;
		if (r->offset == size) {
			r->size = 0;
			r->state = ENVD_XFER_DONE;
			return;
		}
	}
	status_set_code(&r->failure, CODE_OUT_OF_RANGE, "offset %" PRIu64 " is beyond the file's end",
			r->offset);
	read_fail(r, ENVD_ANSWERED);
}

/* The agent answers 500 for files without a size that it cannot seek in. */
static void read_refused(struct envd_read *r, struct http_stream *x)
{
	if (!agent_refused(x, &r->error, "GET /files", FAULT_PATH, &r->cls, &r->failure))
		return;
	r->wants_stream = !r->streamed && http_stream_status(x) == 500;
	read_fail(r, r->cls);
}

static void read_uncoded(struct envd_read *r, struct http_stream *x)
{
	const char *coding = fields_get(http_stream_head(x), "content-encoding");
	int k = body_init(&r->body, coding, r->quota);

	if (k == -ENOMEM)
		status_errno(&r->failure, ENOMEM, "reading a file");
	else if (k == -ENOBUFS)
		status_set(&r->failure, R_BAD_CLOUD_REPLY, "GET /files: %s", agent_no_room(k));
	else if (k < 0)
		status_set(&r->failure, R_BAD_CLOUD_REPLY, "GET /files: the answer is coded as \"%.40s\"", coding);
	else if (r->body.coded && http_stream_status(x) == 206)
		status_set(&r->failure, R_BAD_CLOUD_REPLY, "GET /files: a part of what is compressed is no part of the file");
	else
		return;
	read_fail(r, ENVD_LOST);
}

static void read_head(struct envd_read *r, struct http_stream *x)
{
	const struct fields *h = http_stream_head(x);

	if (http_stream_status(x) == 416) {
		read_beyond(r, h);
		return;
	}
	if (http_stream_status(x) != 200 && http_stream_status(x) != 206) {
		read_refused(r, x);
		return;
	}
	read_uncoded(r, x);
	if (r->state == ENVD_XFER_FAILED)
		return;
	if (http_stream_status(x) == 206)
		read_part(r, h);
	else
		read_whole(r, h);
	if (r->state == ENVD_XFER_FAILED)
		return;
	r->left = r->size >= 0 ? (uint64_t)r->size : r->length;
	r->state = ENVD_XFER_OPEN;
}

/* Drops received bytes that lie before the offset. False: its share of this pass is used up, `again` continues. */
static bool read_skip(struct envd_read *r, struct http_stream *x)
{
	size_t n, pass = 0;
	const uint8_t *p;

	while (r->skip && (n = body_peek(&r->body, x, &p)) > 0) {
		if (pass >= SKIP_PASS_BYTES) {
			defer_post(&r->again);
			return false;
		}
		n = (size_t)MIN(n, r->skip);
		body_consume(&r->body, x, n);
		r->skip -= n;
		pass += n;
	}
	return true;
}

/* Everything that came was taken, and no more will come. */
static void read_end(struct envd_read *r)
{
	if (r->skip && r->body.coded) {
		status_set_code(&r->failure, CODE_OUT_OF_RANGE, "offset %" PRIu64 " is beyond the file's end", r->offset);
		read_fail(r, ENVD_ANSWERED);
	} else if (r->skip || (r->size >= 0 && r->given < (uint64_t)r->size)) {
		read_truncated(r, NULL);
	} else {
		r->state = ENVD_XFER_DONE;
	}
}

/* Is the transfer over? Only once everything that came was taken. */
static void read_go_on(struct envd_read *r)
{
	struct http_stream *x = pool_req_x(r->req);
	const struct status *lost = pool_req_failure(r->req);
	const uint8_t *p;

	if (!r->left)
		r->state = ENVD_XFER_DONE;
	if (r->state == ENVD_XFER_DONE || !read_skip(r, x) || body_peek(&r->body, x, &p) > 0)
		return;
	switch (body_state(&r->body, x)) {
	case BODY_OPEN:
		if (lost)
			read_truncated(r, lost);
		break;
	case BODY_WHOLE:
		read_end(r);
		break;
	case BODY_CUT:
		read_truncated(r, lost);
		break;
	case BODY_BROKEN:
		status_set(&r->failure, R_BAD_CLOUD_REPLY, "GET /files: the compressed bytes cannot be read");
		read_fail(r, ENVD_LOST);
		break;
	}
}

static void read_look(struct envd_read *r)
{
	struct http_stream *x = pool_req_x(r->req);

	if (r->state == ENVD_XFER_OPENING && x && http_stream_head(x))
		read_head(r, x);
	if (r->state == ENVD_XFER_OPENING && pool_req_failure(r->req)) {
		r->cls = agent_failure(r->req, &r->failure);
		read_fail(r, r->cls);
	}
	if (r->state == ENVD_XFER_OPEN)
		read_go_on(r);
}

static void read_tell(struct envd_read *r)
{
	must(r->magic == READ_MAGIC);
	if (r->state == ENVD_XFER_DONE || r->state == ENVD_XFER_FAILED)
		return;
	read_look(r);
	r->on_ready(r, r->user);
}

static void on_read_again(struct defer *d, void *user)
{
	read_tell(user);
}

static void on_read_ready(struct pool_req *req, void *user)
{
	read_tell(user);
}

/* Files that the kernel generates have no size, or a wrong one. */
bool envd_is_streamed(const struct envd_entry *e)
{
	const char *path = e->symlink_target ? e->symlink_target : e->path;

	return e->type != ENVD_FILE_FILE || e->size <= 0 || str_starts(path, "/proc/") || str_starts(path, "/sys/");
}

static int read_begin(struct envd_read *r, const struct envd_target *t, const struct envd_read_options *o)
{
	bool ranged = !r->streamed && o->length && (o->offset || o->length != UINT64_MAX);
	char *where = files_path(t, o->path);
	char range[64];
	struct cloud_kv headers[2] = { { (char *)NAME_FORM_FIELD, (char *)NAME_FORM_RAW }, { (char *)"range", range } };
	bool odd = !envd_can_name(o->path);

	if (o->length <= INT64_MAX - o->offset && o->offset <= INT64_MAX)
		snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, o->offset, o->offset + o->length - 1);
	else
		snprintf(range, sizeof(range), "bytes=%" PRIu64 "-", o->offset);
	if (where)
		r->req = agent_request(&(struct agent_ask){
			.t = t,
			.method = "GET",
			.path = where,
			.headers = odd ? headers : headers + 1,
			.n_headers = (size_t)odd + ranged,
			.takes_gzip = r->streamed,
			.cls = POOL_LONG,
			.idempotent = true,
			.head_by_ms = agent_deadline_ms(t),
			.on_ready = on_read_ready,
			.user = r,
		});
	free(where);
	return r->req ? 0 : -ENOMEM;
}

struct envd_read *envd_read(const struct envd_target *t, const struct envd_read_options *o, envd_read_ready_fn *on_ready,
			    void *user)
{
	struct envd_read *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->magic = READ_MAGIC;
	r->loop = t->at.cloud->loop;
	r->offset = o->offset;
	r->length = r->left = o->length;
	r->streamed = o->streamed;
	r->size = r->file_size = -1;
	r->on_ready = on_ready;
	r->user = user;
	buf_init(&r->error, 0);
	r->quota = t->at.cloud->quota;
	buf_set_quota(&r->error, r->quota);
	defer_init(&r->again, r->loop, on_read_again, r);
	if (read_begin(r, t, o) < 0) {
		read_bury(r);
		return NULL;
	}
	return r;
}

enum envd_xfer envd_read_state(const struct envd_read *r)
{
	return r->state;
}

int64_t envd_read_size(const struct envd_read *r)
{
	return r->size;
}

int64_t envd_read_file_size(const struct envd_read *r)
{
	return r->file_size;
}

size_t envd_read_peek(struct envd_read *r, const uint8_t **ret)
{
	if (r->state != ENVD_XFER_OPEN || r->skip)
		return 0;
	return (size_t)MIN(body_peek(&r->body, pool_req_x(r->req), ret), r->left);
}

void envd_read_consume(struct envd_read *r, size_t n)
{
	must(r->state == ENVD_XFER_OPEN && n <= r->left);
	body_consume(&r->body, pool_req_x(r->req), n);
	r->given += n;
	if (r->left != UINT64_MAX)
		r->left -= n;
	read_look(r);
}

bool envd_read_wants_stream(const struct envd_read *r)
{
	return r->wants_stream;
}

const struct status *envd_read_failure(const struct envd_read *r, enum envd_class *ret_cls)
{
	if (ret_cls)
		*ret_cls = r->cls;
	return r->state == ENVD_XFER_FAILED ? &r->failure : NULL;
}

struct envd_read *envd_read_free(struct envd_read *r)
{
	if (!r)
		return NULL;
	must(r->magic == READ_MAGIC);
	r->req = r->state == ENVD_XFER_DONE ? pool_req_leave(r->req) : pool_req_free(r->req);
	defer_cancel(&r->again);
	loop_bury(r->loop, &r->grave, read_bury, r);
	return NULL;
}

/* --- write --- */

struct envd_write {
	uint32_t magic;
	struct loop *loop;
	struct pool_req *req;		/* NULL: refused before it was asked */
	enum envd_xfer state;
	bool multipart, started, finished;
	int64_t size;
	uint64_t put;
	char *preamble;			/* of multipart */
	char *path;			/* the answer's */
	struct buf answer;
	enum envd_class cls;
	struct status failure;
	struct defer tell;
	envd_write_ready_fn *on_ready;
	void *user;
	struct grave grave;
};

static void write_bury(void *p)
{
	struct envd_write *w = p;

	free(w->preamble);
	free(w->path);
	buf_fini(&w->answer);
	w->magic = 0;
	free(w);
}

static void on_write_tell(struct defer *d, void *user)
{
	struct envd_write *w = user;

	w->on_ready(w, w->user);
}

static bool write_is_over(const struct envd_write *w)
{
	return w->state == ENVD_XFER_DONE || w->state == ENVD_XFER_FAILED;
}

static void write_fail(struct envd_write *w, enum envd_class cls)
{
	must(!write_is_over(w));
	w->cls = cls;
	w->state = ENVD_XFER_FAILED;
}

static int take_uploaded(void *element, void *user)
{
	struct cloud_uploaded *u = element;
	struct envd_write *w = user;

	if (!w->path)
		w->path = give(u->path);
	cloud_doc_fini(CLOUD_DOC_UPLOADED, u);
	free(u);
	return 0;
}

/* The path of the first file that the answer names. */
static int write_path(struct envd_write *w)
{
	struct cloud_json_error why;
	int r = cloud_json_read_list(CLOUD_DOC_UPLOADED, buf_data(&w->answer), buf_len(&w->answer), UPLOADS_MAX,
				     take_uploaded, w, &why);

	return !r && !w->path ? -EBADMSG : r;
}

/* All that was announced is sent, and its caller has not said yet that it was all: an agent need not wait for that to answer. */
static bool is_whole(const struct envd_write *w)
{
	return w->size >= 0 && !w->multipart && w->put == (uint64_t)w->size;
}

static void write_answer(struct envd_write *w, struct http_stream *x)
{
	int r;

	if (http_stream_status(x) != 200) {
		if (agent_refused(x, &w->answer, "POST /files", FAULT_PATH, &w->cls, &w->failure))
			write_fail(w, w->cls);
		return;
	}
	r = agent_collect(x, &w->answer, AGENT_ERROR_MAX);
	if (r == 0 && (!http_stream_at_end(x) || (!w->finished && is_whole(w))))
		return;
	/* A success before the last byte was sent cannot mean that the whole file was written. */
	if (r < 0 || !w->finished || write_path(w) < 0) {
		status_set(&w->failure, R_BAD_CLOUD_REPLY, "POST /files: the answer cannot be read");
		write_fail(w, ENVD_LOST);
		return;
	}
	w->state = ENVD_XFER_DONE;
}

static void write_settle(struct envd_write *w)
{
	struct http_stream *x = pool_req_x(w->req);

	if (x && !w->started) {
		w->started = true;
		w->state = ENVD_XFER_OPEN;
		if (w->preamble && http_stream_write(x, w->preamble, strlen(w->preamble)) < 0)
			return;		/* on_ready comes again, with the failure */
	}
	if (x && http_stream_head(x))
		write_answer(w, x);
	if (!write_is_over(w) && pool_req_failure(w->req)) {
		w->cls = agent_failure(w->req, &w->failure);
		write_fail(w, w->cls);
	}
}

static void on_write_ready(struct pool_req *req, void *user)
{
	struct envd_write *w = user;

	must(w->magic == WRITE_MAGIC);
	if (write_is_over(w))
		return;
	write_settle(w);
	w->on_ready(w, w->user);
}

/* Agents before 0.5.7 take multipart only. */
static const char *const epilogue = "\r\n--" BOUNDARY "--\r\n";

static int make_headers(struct envd_write *w, const struct envd_write_options *o, char length[24],
			struct cloud_kvs *ret)
{
	int r = 0;

	if (w->multipart) {
		w->preamble = str_dup("--" BOUNDARY "\r\ncontent-disposition: form-data; name=\"file\"; "
				      "filename=\"file\"\r\ncontent-type: application/octet-stream\r\n\r\n");
		if (!w->preamble)
			return -ENOMEM;
	}
	if (o->size >= 0) {
		uint64_t n = (uint64_t)o->size +
			     (w->multipart ? strlen(w->preamble) + strlen(epilogue) : 0);

		snprintf(length, 24, "%" PRIu64, n);
		r = cloud_kvs_add(ret, "content-length", length);
	}
	if (r == 0 && !envd_can_name(o->path))
		r = cloud_kvs_add(ret, NAME_FORM_FIELD, NAME_FORM_RAW);
	for (size_t i = 0; r == 0 && i < o->n_metadata; i++) {
		char *name = str_printf("x-metadata-%s", o->metadata[i].key);

		if (name)
			str_lower(name);
		r = name ? cloud_kvs_add(ret, name, o->metadata[i].value) : -ENOMEM;
		free(name);
	}
	return r;
}

/* A key becomes a header's name: only what a name may hold. */
static bool metadata_ok(const struct envd_target *t, const struct envd_write_options *o,
			struct status *why)
{
	static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "abcdefghijklmnopqrstuvwxyz";

	if (o->n_metadata && !agent_has(t, "0.6.2")) {
		status_set(why, R_UNSUPPORTED, "the sandbox's agent %s keeps no metadata; 0.6.2 does",
			   t->at.version);
		return false;
	}
	if (o->n_metadata > METADATA_MAX) {
		status_field(why, "metadata", "more than %u pairs", METADATA_MAX);
		return false;
	}
	for (size_t i = 0; i < o->n_metadata; i++) {
		const char *k = o->metadata[i].key, *v = o->metadata[i].value;

		if (!*k || strlen(k) > 246 || k[strspn(k, token)] || !str_is_printable(v, strlen(v))) {
			status_field(why, "metadata", "key and value must be printable ASCII, the key a "
						      "header's name");
			return false;
		}
	}
	return true;
}

static int write_begin(struct envd_write *w, const struct envd_target *t,
		       const struct envd_write_options *o)
{
	struct cloud_kvs headers = { 0 };
	char *where = files_path(t, o->path);
	char length[24];
	int r = where ? make_headers(w, o, length, &headers) : -ENOMEM;

	if (r == 0) {
		w->req = agent_request(&(struct agent_ask){
			.t = t,
			.method = "POST",
			.path = where,
			.content_type = w->multipart ? "multipart/form-data; boundary=" BOUNDARY :
						       "application/octet-stream",
			.headers = headers.v,
			.n_headers = headers.n,
			.body_mode = POOL_BODY_STREAM,
			.cls = POOL_LONG,
			.on_ready = on_write_ready,
			.user = w,
		});
		r = w->req ? 0 : -ENOMEM;
	}
	cloud_kvs_fini(&headers);
	free(where);
	return r;
}

struct envd_write *envd_write(const struct envd_target *t, const struct envd_write_options *o,
			      envd_write_ready_fn *on_ready, void *user)
{
	struct envd_write *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->magic = WRITE_MAGIC;
	w->loop = t->at.cloud->loop;
	w->size = o->size;
	w->multipart = !agent_has(t, "0.5.7");
	w->on_ready = on_ready;
	w->user = user;
	buf_init(&w->answer, 0);
	buf_set_quota(&w->answer, t->at.cloud->quota);
	defer_init(&w->tell, w->loop, on_write_tell, w);
	if (!metadata_ok(t, o, &w->failure)) {
		write_fail(w, ENVD_ANSWERED);
		defer_post(&w->tell);
	} else if (write_begin(w, t, o) < 0) {
		write_bury(w);
		return NULL;
	}
	return w;
}

enum envd_xfer envd_write_state(const struct envd_write *w)
{
	return w->state;
}

size_t envd_write_room(const struct envd_write *w)
{
	const struct http_stream *x = w->req ? pool_req_x(w->req) : NULL;

	return w->state == ENVD_XFER_OPEN && !w->finished && x ? http_stream_room(x) : 0;
}

int envd_write_put(struct envd_write *w, const void *p, size_t n)
{
	struct http_stream *x = w->req ? pool_req_x(w->req) : NULL;
	int r;

	if (w->state != ENVD_XFER_OPEN || w->finished || !x)
		return -EPIPE;
	if (w->size >= 0 && n > (uint64_t)w->size - w->put)
		return -EMSGSIZE;
	r = http_stream_write(x, p, n);
	if (r == 0)
		w->put += n;
	return r;
}

int envd_write_finish(struct envd_write *w)
{
	struct http_stream *x = w->req ? pool_req_x(w->req) : NULL;
	int r = 0;

	if (w->state != ENVD_XFER_OPEN || w->finished || !x)
		return -EPIPE;
	if (w->size >= 0 && w->put < (uint64_t)w->size) {
		w->req = pool_req_free(w->req);
		status_field(&w->failure, "size", "%" PRId64 " bytes were announced, %" PRIu64 " came", w->size,
			     w->put);
		write_fail(w, ENVD_ANSWERED);
		return -EMSGSIZE;
	}
	w->finished = true;
	if (w->multipart)
		r = http_stream_write(x, epilogue, strlen(epilogue));
	if (r == 0)
		r = http_stream_finish(x, NULL);
	if (http_stream_head(x))	/* the answer was waiting for this */
		write_settle(w);
	if (!write_is_over(w))
		return r;
	defer_post(&w->tell);
	return 0;
}

const struct status *envd_write_failure(const struct envd_write *w, enum envd_class *ret_cls)
{
	if (ret_cls)
		*ret_cls = w->cls;
	return w->state == ENVD_XFER_FAILED ? &w->failure : NULL;
}

const char *envd_write_path(const struct envd_write *w)
{
	return w->path ? w->path : "";
}

struct envd_write *envd_write_free(struct envd_write *w)
{
	if (!w)
		return NULL;
	must(w->magic == WRITE_MAGIC);
	w->req = pool_req_free(w->req);
	defer_cancel(&w->tell);
	loop_bury(w->loop, &w->grave, write_bury, w);
	return NULL;
}
