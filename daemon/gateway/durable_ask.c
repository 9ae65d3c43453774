/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "daemon/common/pbjson/pbjson.h"
#include "daemon/gateway/durable.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/gen/envd_process.pb-c.h"
#include "proto/gen/scan.h"
#include "proto/wire/frame.h"

#define KEEPALIVE_DEFAULT_S 90u
#define KEEPALIVE_MAX_S	    86400u
#define JSON_PARTS_MAX	    131072u	/* of a text's values, so that what it becomes in memory is a few times its size */

static const char *header(const struct fields *head, const char *name)
{
	const char *s = fields_get(head, name);

	return s ? s : "";
}

/* 1 JSON, 0 binary, -1 neither. */
static int codec_of(const struct fields *head)
{
	const char *type = header(head, "content-type");

	return !strcasecmp(type, "application/connect+json")    ? 1
	       : !strcasecmp(type, "application/connect+proto") ? 0
								: -1;
}

enum durable_kind durable_kind_of(const struct fields *head)
{
	const char *path = header(head, ":path"), *version = header(head, "connect-protocol-version"),
		   *packed = header(head, "connect-content-encoding");

	if (!str_eq(header(head, ":method"), "POST") || codec_of(head) < 0 || (*version && !str_eq(version, "1")) ||
	    (*packed && !str_eq(packed, "identity")))
		return DURABLE_NONE;
	return str_eq(path, "/process.Process/Start")	  ? DURABLE_START
	       : str_eq(path, "/process.Process/Connect") ? DURABLE_CONNECT
							  : DURABLE_NONE;
}

/* --- headers --- */

static int read_timeout(const struct fields *head, uint64_t *ret)
{
	const char *s = fields_get(head, "connect-timeout-ms");

	if (!s)
		return 0;
	return strlen(s) > 10 || str_u64(s, strlen(s), UINT32_MAX, ret) < 0 || !*ret ? -EINVAL : 0;
}

static uint64_t read_keepalive(const struct fields *head)
{
	const char *s = header(head, "keepalive-ping-interval");
	uint64_t seconds;

	if (str_u64(s, strlen(s), KEEPALIVE_MAX_S, &seconds) < 0 || !seconds)
		seconds = KEEPALIVE_DEFAULT_S;
	return seconds * 1000;
}

/* The name in "Basic base64(name:password)". */
static int read_user(const struct fields *head, char ret[DURABLE_USER_MAX])
{
	const char *s = fields_get(head, "authorization");
	char text[256];
	char *end;
	ssize_t n;

	if (!s)
		return 0;
	if (strncasecmp(s, "basic ", 6) != 0 || strlen(s) - 6 > 256)
		return -EINVAL;
	n = str_base64_decode(s + 6, strlen(s + 6), (uint8_t *)text);
	if (n <= 0)
		return -EINVAL;
	end = memchr(text, ':', (size_t)n);
	if (!end || end == text || memchr(text, 0, (size_t)n) || (size_t)(end - text) >= DURABLE_USER_MAX)
		return -EINVAL;
	*end = 0;
	str_copy(ret, DURABLE_USER_MAX, text);
	return 0;
}

/* --- the message --- */

/* Commas and brackets, of which strings may have some too: at least as many as the values that the text has. */
static size_t count_json_parts(const uint8_t *p, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += p[i] == ',' || p[i] == '[' || p[i] == '{';
	return sum;
}

static int unpack(bool is_json, const void *p, size_t n, const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret)
{
	static const struct scan_limits limits = { .max_elements = 65536 };
	char why[PBJSON_WHY_MAX];

	if (is_json)
		return n && count_json_parts(p, n) <= JSON_PARTS_MAX ? pbjson_read_known(p, n, type, why, ret) : -EINVAL;
	if (scan_message(type, p, n, &limits, NULL) != SCAN_OK)
		return -EINVAL;
	*ret = protobuf_c_message_unpack(type, NULL, n, p);
	return *ret ? 0 : -ENOMEM;
}

/* Exactly one message that is not compressed: its bytes. */
static int open_envelope(const uint8_t *p, size_t n, const uint8_t **ret, size_t *ret_n)
{
	size_t len;

	if (n < FRAME_PREFIX_BYTES || p[0])
		return -EINVAL;
	len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
	if (len != n - FRAME_PREFIX_BYTES)
		return -EINVAL;
	*ret = p + FRAME_PREFIX_BYTES;
	*ret_n = len;
	return 0;
}

/* The agent may know fields that are new since this daemon was built. */
static bool has_new_fields(const ProtobufCMessage *m)
{
	return m && m->n_unknown_fields;
}

/* Its program is found again by what a row keeps of it. */
static bool is_kept(const Process__ProcessConfig *p)
{
	size_t sum = strlen(p->cmd) + 1;

	for (size_t i = 0; i < p->n_args; i++)
		sum += strlen(p->args[i]) + 1;
	return sum <= COMMAND_ARGS_MAX;
}

static bool is_whole_start(const Process__StartRequest *s)
{
	const Process__PTY *pty = s->_pty_case ? s->pty : NULL;

	if (!s->process || str_is_empty(s->process->cmd) || has_new_fields(&s->base) || has_new_fields(&s->process->base))
		return false;
	if (pty && (has_new_fields(&pty->base) || (pty->size && has_new_fields(&pty->size->base))))
		return false;
	return is_kept(s->process);
}

/* A start that names no program, and a selector that names no process, are the agent's to answer. */
static bool is_whole(enum durable_kind kind, const ProtobufCMessage *msg)
{
	const Process__ConnectRequest *c = (const void *)msg;

	if (kind == DURABLE_START)
		return is_whole_start((const void *)msg);
	if (!c->process || has_new_fields(&c->base) || has_new_fields(&c->process->base))
		return false;
	return (c->process->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR_PID && c->process->pid) ||
	       (c->process->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR_TAG && !str_is_empty(c->process->tag));
}

int durable_ask_read(const struct fields *head, const void *body, size_t n, struct durable_ask *ret)
{
	struct durable_ask a = { .kind = durable_kind_of(head), .is_json = codec_of(head) == 1, .keepalive_ms = read_keepalive(head) };
	const uint8_t *p;
	size_t len;
	int r = a.kind == DURABLE_NONE ? -EINVAL : read_timeout(head, &a.timeout_ms);

	if (!r)
		r = read_user(head, a.user);
	if (!r)
		r = open_envelope(body, n, &p, &len);
	if (!r)
		r = unpack(a.is_json, p, len, a.kind == DURABLE_START ? &process__start_request__descriptor : &process__connect_request__descriptor,
			   &a.msg);
	if (!r && !is_whole(a.kind, a.msg)) {
		durable_ask_fini(&a);
		r = -EINVAL;
	}
	if (!r)
		*ret = a;
	return r;
}

void durable_ask_fini(struct durable_ask *a)
{
	if (a->msg)
		protobuf_c_message_free_unpacked(a->msg, NULL);
	*a = (struct durable_ask){ 0 };
}
