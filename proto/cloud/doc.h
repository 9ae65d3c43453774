/* SPDX-License-Identifier: MIT */
/*
 * A document of the contract is described once, by a table of its fields; the functions here read, write
 * and free a struct by that table. Private to proto/cloud: what others call is in json.h and model.h.
 */
#ifndef AB_PROTO_CLOUD_DOC_H
#define AB_PROTO_CLOUD_DOC_H

#include <stdbool.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"
#include "proto/cloud/flavour.h"
#include "proto/cloud/json.h"

/* Member types. What is absent or null leaves the member as it was. */
enum doc_kind {
	DOC_TEXT,	/* char *, heap; NULL is left out */
	DOC_KEY,	/* char *, heap: the key of this element in its DOC_MAP or DOC_RULES */
	DOC_U32,	/* uint32_t, from 0 to `max` */
	DOC_I64,	/* int64_t, from 0 to `max` */
	DOC_REAL,	/* double */
	DOC_BOOL,	/* bool */
	DOC_TRI,	/* enum tri; TRI_UNSET is left out */
	DOC_MOMENT,	/* int64_t, ms since 1970 ↔ RFC 3339 */
	DOC_SECONDS,	/* the same ↔ a number of seconds */
	DOC_PAUSE,	/* enum tri ↔ "pause" or "kill" */
	DOC_WORD,	/* enum, by `words`; an unknown word is 0 */
	DOC_CONST,	/* no member: the first of `words`, which is JSON, is written */
	DOC_ASKED,	/* bool: something other than null, {} and [] is there; not written */
	DOC_KVS,	/* struct cloud_kvs ↔ object of strings */
	DOC_STRS,	/* struct cloud_strs ↔ array of strings */
	DOC_SAME,	/* an object whose members are in the same struct; left out while it would be empty */
	DOC_INLINE,	/* no object: the members of `of`, whose struct this one begins with, are members here */
	DOC_NEW,	/* pointer to a struct on the heap; NULL is left out */
	DOC_LIST,	/* T *v; size_t n ↔ array of objects */
	DOC_MAP,	/* the same ↔ object; the first member of T is its DOC_KEY */
	DOC_RULES,	/* DOC_MAP whose values are arrays of at most one object; more are counted by T.surplus */
};

enum doc_flag {
	DOC_REQUIRED = 1,	/* absent, null or "" is an error */
	DOC_NULL = 2,		/* null where it would be left out */
	DOC_KEEP = 4,		/* empty lists and objects are written */
	DOC_SECRET = 8,		/* wiped when it is freed */
	DOC_EXTRA = 16,		/* written only for a flavour that answers it */
	DOC_LONG = 32,		/* texts of any length */
	DOC_LOOSE = 64,		/* a value of a wrong type counts as absent */
};

struct doc_field {
	const char *name;
	enum doc_kind kind;
	uint16_t at;		/* offset of the member */
	unsigned flags;
	unsigned in;		/* parts of the document that it belongs to; 0 = all */
	unsigned part;		/* … of the document below */
	int64_t max;		/* numbers: the largest; texts: bytes; lists and maps: entries; 0 = the usual */
	const struct doc *of;
	const char *const *words;
};

struct doc {
	size_t size;
	const struct doc_field *fields;
	size_t n;
	/* What one field alone does not tell, and defaults. 0, -EBADMSG with `why`, -ENOMEM. */
	int (*settle)(void *v, struct cloud_json_error *why);
};

/* The layout of every list by value: DOC_LIST, DOC_MAP and DOC_RULES. */
struct doc_vector {
	char *v;
	size_t n;
};

struct json_t;

void doc_fini(const struct doc *d, void *v);

/* `v` is initialised before, and doc_fini() is the caller's also on failure. */
must_check int doc_read(const struct doc *d, const struct json_t *o, void *v, struct cloud_json_error *why);
/* Parses: bounded in size, depth and memory. */
must_check int doc_load(const void *p, size_t n, unsigned flags, struct json_t **ret, struct cloud_json_error *why);
/* 0, -EINVAL for text that is not UTF-8, -ENOMEM. */
must_check int doc_write(const struct doc *d, const void *v, const struct flavour *f, unsigned part, struct buf *out);

must_check int doc_bad(struct cloud_json_error *why, const char *fmt, ...) printf_like(2, 3);	/* -EBADMSG */

#endif
