/* SPDX-License-Identifier: MIT */
/*
 * The descriptors of all .proto files of this tree, exactly as protoc makes them (`optional` and
 * all), for server reflection. The tables are generated; nothing here allocates.
 */
#ifndef AB_PROTO_GEN_DESCRIPTORS_H
#define AB_PROTO_GEN_DESCRIPTORS_H

#include "proto/base/cc.h"

struct descriptor_file {
	const char *name;	/* "agentbox/v1/sandbox.proto" */
	const uint8_t *bytes;	/* serialized google.protobuf.FileDescriptorProto */
	size_t n_bytes;
	const uint16_t *deps;	/* indices of the files it imports */
	size_t n_deps;
};

struct descriptor_symbol {
	const char *name;	/* "agentbox.v1.SandboxService.Create"; services, methods, messages, enums */
	uint16_t file;
};

extern const struct descriptor_file descriptor_files[];		/* a file comes after its imports */
extern const size_t n_descriptor_files;
extern const struct descriptor_symbol descriptor_symbols[];	/* sorted by name */
extern const size_t n_descriptor_symbols;
extern const char *const descriptor_services[];			/* sorted */
extern const size_t n_descriptor_services;

/* NULL if there is none. */
const struct descriptor_file *descriptor_by_name(const char *name);
const struct descriptor_file *descriptor_by_symbol(const char *symbol);

/* The file and all it imports, directly or not, itself last and each once. `ret` has room for
 * n_descriptor_files; returns how many there are. */
size_t descriptor_closure(const struct descriptor_file *f, const struct descriptor_file **ret);

#endif
