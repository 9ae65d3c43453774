/* SPDX-License-Identifier: MIT */
/*
 * The contract's documents ↔ the structs of model.h, both ways. Reading is strict on the types of the fields that
 * the contract has, and ignores all others; size, depth, memory and counts are bounded. An error names the field.
 */
#ifndef AB_PROTO_CLOUD_JSON_H
#define AB_PROTO_CLOUD_JSON_H

#include <stdbool.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"
#include "proto/cloud/flavour.h"

#define CLOUD_JSON_ANSWER_MAX  (4u * 1024 * 1024)
#define CLOUD_JSON_REQUEST_MAX (16u * 1024 * 1024)
#define CLOUD_JSON_DEPTH_MAX   32u

enum cloud_doc_id {
	CLOUD_DOC_SANDBOX,	/* struct cloud_sandbox: every answer that describes one */
	CLOUD_DOC_NETWORK,	/* struct cloud_network */
	CLOUD_DOC_CREATE,	/* struct cloud_create */
	CLOUD_DOC_CONNECT,	/* struct cloud_connect: connect, resume, timeout */
	CLOUD_DOC_REFRESH,	/* struct cloud_refresh */
	CLOUD_DOC_PAUSE,	/* struct cloud_pause */
	CLOUD_DOC_FORK,		/* struct cloud_fork */
	CLOUD_DOC_FORK_RESULT,	/* struct cloud_fork_result */
	CLOUD_DOC_EGRESS,	/* struct cloud_egress */
	CLOUD_DOC_SNAPSHOT_NAME, /* struct cloud_snapshot_name */
	CLOUD_DOC_SNAPSHOT,	/* struct cloud_snapshot */
	CLOUD_DOC_METRIC,	/* struct cloud_metric */
	CLOUD_DOC_ERROR,	/* struct cloud_error */
	CLOUD_DOC_STREAM_END,	/* struct cloud_stream_end */
	CLOUD_DOC_UPLOADED,	/* struct cloud_uploaded */
	CLOUD_DOC_TEMPLATE,	/* struct cloud_template: CLOUD_LISTED or CLOUD_DETAIL */
	CLOUD_DOC_TEMPLATE_ALIAS, /* struct cloud_template_alias */
	CLOUD_DOC_TEMPLATE_TAG,	/* struct cloud_template_tag */
	CLOUD_DOC_TAGS_ASSIGN,	/* struct cloud_tags: a request */
	CLOUD_DOC_TAGS_ASSIGNED, /* struct cloud_tags_assigned */
	CLOUD_DOC_TAGS_REMOVE,	/* struct cloud_tags: a request */
	CLOUD_DOCS,
};

/* What an answer that describes a sandbox holds, and what of network settings is meant. */
enum cloud_part {
	CLOUD_CREATED = 1,	/* of create, connect, resume and fork */
	CLOUD_LISTED = 2,
	CLOUD_DETAIL = 4,	/* with CLOUD_LISTED */
	CLOUD_LIVE = 8,		/* with CLOUD_LISTED: not paused */
	CLOUD_EGRESS = 16,
	CLOUD_INGRESS = 32,
	CLOUD_PASSWORD = 64,
	CLOUD_ANSWER_ONLY = 128,	/* read, never written */
};

enum cloud_json_flag {
	CLOUD_JSON_REQUEST = 1,	/* a request: CLOUD_JSON_REQUEST_MAX bytes, of equal keys the last one counts, NUL is an error;
				 * else an answer: CLOUD_JSON_ANSWER_MAX bytes, equal keys are an error */
};

struct cloud_json_error {
	char text[240];		/* one line of UTF-8 without the value: "network.allowOut must be a list of strings" */
};

/* Into *ret, which is initialised: what the document does not say stays. On failure *ret is zero. 0; -EBADMSG, and
 * *why says why; -ENOMEM. */
must_check int cloud_json_read(enum cloud_doc_id doc, const void *p, size_t n, unsigned flags, void *ret,
			       struct cloud_json_error *why);
/* The same of an object that is parsed already, with jansson; NULL = it says nothing at all. */
struct json_t;
must_check int cloud_json_take(enum cloud_doc_id doc, const struct json_t *o, void *ret, struct cloud_json_error *why);
/* An array of them: `add` takes over each, on the heap, also when it fails. At most `max` elements. */
must_check int cloud_json_read_list(enum cloud_doc_id doc, const void *p, size_t n, size_t max,
				    int (*add)(void *element, void *user), void *user, struct cloud_json_error *why);
/* Appends. 0; -EINVAL: a text is not UTF-8; -ENOMEM. */
must_check int cloud_json_write(enum cloud_doc_id doc, const void *v, const struct flavour *f, unsigned part,
				struct buf *out);
/* The same as a heap string; NULL on failure, which *ret_r names. */
char *cloud_json_text(enum cloud_doc_id doc, const void *v, const struct flavour *f, unsigned part, int *ret_r);

/* Frees what the struct holds, by its table; secrets are wiped. It is zero then. */
void cloud_doc_fini(enum cloud_doc_id doc, void *v);

#endif
