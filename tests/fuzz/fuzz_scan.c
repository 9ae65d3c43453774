/* SPDX-License-Identifier: MIT */
/*
 * What scan_message() accepts must unpack, stay within the memory it promised, and hold only clean
 * strings; its canonical form must be a fixed point. The first byte chooses the type.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/rpc/canon.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/gen/agentbox_command.pb-c.h"
#include "proto/gen/agentbox_file.pb-c.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"
#include "proto/gen/envd_process.pb-c.h"
#include "proto/gen/google_rpc_status.pb-c.h"
#include "proto/gen/grpc_reflection.pb-c.h"
#include "proto/gen/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const ProtobufCMessageDescriptor *const types[] = {
	&agentbox__v1__create_sandbox_request__descriptor,
	&agentbox__v1__set_policy_request__descriptor,
	&agentbox__v1__list_sandboxes_request__descriptor,
	&agentbox__v1__start_command_request__descriptor,
	&agentbox__v1__command_event__descriptor,
	&agentbox__v1__kill_command_response__descriptor,
	&agentbox__v1__write_file_request__descriptor,
	&agentbox__v1__fork_sandbox_response__descriptor,
	&agentbox__v1__get_metrics_response__descriptor,
	&process__start_request__descriptor,
	&process__start_response__descriptor,
	&google__rpc__status__descriptor,
	&grpc__reflection__v1__server_reflection_response__descriptor,
};

static const struct scan_cap caps[] = { { "metadata", 64 }, { "envs", 256 }, { "args", 4096 } };

/* Every allocation, also those given back: an upper bound of what was held at once. */
static size_t allocated;

static void *counting_alloc(void *unused, size_t n)
{
	allocated += n;
	return malloc(n);
}

static void counting_free(void *unused, void *p)
{
	free(p);
}

static void check_strings(const ProtobufCMessage *m);

static void check_value(const ProtobufCFieldDescriptor *f, const void *at)
{
	if (f->type == PROTOBUF_C_TYPE_STRING) {
		const char *s = *(char *const *)at;

		must(!s || str_is_utf8(s, strlen(s)));
	} else if (f->type == PROTOBUF_C_TYPE_MESSAGE && *(void *const *)at) {
		check_strings(*(ProtobufCMessage *const *)at);
	}
}

static void check_strings(const ProtobufCMessage *m)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		const char *member = (const char *)m + f->offset;
		const char *quantifier = (const char *)m + f->quantifier_offset;

		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			size_t n = *(const size_t *)(const void *)quantifier;
			uint32_t max = SCAN_ELEMENTS_MAX;

			for (size_t c = 0; c < ARRAY_SIZE(caps); c++)
				if (!strcmp(caps[c].field, f->name))
					max = caps[c].max;
			must(n <= max);
			for (size_t e = 0; e < n && (f->type == PROTOBUF_C_TYPE_STRING ||
						     f->type == PROTOBUF_C_TYPE_MESSAGE); e++)
				check_value(f, *(char *const *)(const void *)member + e * sizeof(void *));
		} else if (!(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
			   *(const uint32_t *)(const void *)quantifier == f->id) {
			check_value(f, member);
		}
	}
}

/* Unpacks, makes canonical, packs. */
static uint8_t *canon(const ProtobufCMessageDescriptor *type, const uint8_t *p, size_t n, size_t *ret_n)
{
	ProtobufCMessage *m = protobuf_c_message_unpack(type, NULL, n, p);
	uint8_t *out;

	must(m && canon_message(m) == 0);
	check_strings(m);
	*ret_n = protobuf_c_message_get_packed_size(m);
	out = malloc(*ret_n + 1);
	must(out && protobuf_c_message_pack(m, out) == *ret_n);
	protobuf_c_message_free_unpacked(m, NULL);
	return out;
}

static void check_canon(const ProtobufCMessageDescriptor *type, const uint8_t *p, size_t n)
{
	size_t n_once, n_twice;
	uint8_t *once = canon(type, p, n, &n_once), *twice = canon(type, once, n_once, &n_twice);

	must(n_once == n_twice && !memcmp(once, twice, n_once));
	free(once);
	free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const struct scan_limits limits = { .caps = caps, .n_caps = ARRAY_SIZE(caps) };
	ProtobufCAllocator counting = { counting_alloc, counting_free, NULL };
	const ProtobufCMessageDescriptor *type;
	struct scan_error err = { .max = 0 };
	ProtobufCMessage *m;

	if (!n)
		return 0;
	type = types[*p++ % ARRAY_SIZE(types)];
	n--;
	if (scan_message(type, p, n, &limits, &err) != SCAN_OK) {
		must(memchr(err.path, 0, sizeof(err.path)));
		return 0;
	}
	allocated = 0;
	m = protobuf_c_message_unpack(type, &counting, n, p);
	must(m);
	must(allocated <= MAX(n * SCAN_MEMORY_FACTOR, (size_t)SCAN_MEMORY_FLOOR));
	check_strings(m);
	protobuf_c_message_free_unpacked(m, &counting);
	check_canon(type, p, n);
	return 0;
}
