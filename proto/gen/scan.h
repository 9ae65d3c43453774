/* SPDX-License-Identifier: MIT */
/*
 * A look over a serialized message before protobuf-c unpacks it. protobuf-c has no bound on depth,
 * counts or memory, and takes NUL and broken UTF-8 in strings; what this lets pass is within the
 * bounds, and unpacking it fails only without memory. Pure; no allocation.
 *
 * Stricter than the encoding asks for: a field with another wire type, a group, and a second
 * occurrence of a singular message (which would be merged) are malformed. Of two equal map keys both
 * pass: the last one wins, which is for the reader of the message to see to.
 */
#ifndef AB_PROTO_GEN_SCAN_H
#define AB_PROTO_GEN_SCAN_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/base/cc.h"

#define SCAN_DEPTH_MAX	    32u			/* nested messages, the outermost counts */
#define SCAN_ELEMENTS_MAX   1024u		/* in one repeated field or map, unless a cap says otherwise */
#define SCAN_FIELDS_MAX	    64u			/* distinct fields of one message type of ours */
#define SCAN_MEMORY_FACTOR  8u			/* the unpacked message may take so many times its wire size */
#define SCAN_MEMORY_FLOOR   (1024u * 1024)	/* a small message may take this much */
#define SCAN_PATH_MAX	    128u

enum scan_result {
	SCAN_OK = 0,
	SCAN_MALFORMED,		/* cut short, bad varint or tag, wrong wire type, group */
	SCAN_DEPTH,
	SCAN_COUNT,		/* too many elements in `path` */
	SCAN_TEXT,		/* not UTF-8, or holds NUL */
	SCAN_MEMORY,		/* would need too much memory */
};

/* Caps by field name, in whatever message it occurs. */
struct scan_cap {
	const char *field;
	uint32_t max;
};

struct scan_limits {
	const struct scan_cap *caps;
	size_t n_caps;
	uint32_t max_elements;		/* 0 = SCAN_ELEMENTS_MAX */
	size_t max_memory_bytes;	/* 0 = by the factor and the floor */
};

struct scan_error {
	char path[SCAN_PATH_MAX];	/* "metadata", "policy.release_grace"; "" for the message itself */
	uint32_t max;			/* with SCAN_COUNT: the cap */
};

/* `err` is written on any result but SCAN_OK; it may be NULL. A map's key or value goes by the name of
 * the map. Field names need descriptors that have them (gen.py sees to it). */
must_check enum scan_result scan_message(const ProtobufCMessageDescriptor *type, const void *p,
					 size_t n, const struct scan_limits *limits,
					 struct scan_error *err);

/* The element of a map<>: a message of `key` and `value` that protoc named "…Entry". */
bool scan_is_map_entry(const ProtobufCMessageDescriptor *type);

/* The same; after SCAN_OK *ret_memory is about what the unpacked message takes. */
must_check enum scan_result scan_measure(const ProtobufCMessageDescriptor *type, const void *p, size_t n,
					 const struct scan_limits *limits, struct scan_error *err,
					 size_t *ret_memory);

/* "is not UTF-8 without NUL" and the like, to follow the name of a field. */
const char *scan_result_text(enum scan_result r);

#endif
