/* SPDX-License-Identifier: MIT */
/* Bodies of the control plane, as whoever answers for it needs them: requests in, lists and errors out. */
#ifndef AB_DAEMON_COMMON_HTTP_ANSWER_H
#define AB_DAEMON_COMMON_HTTP_ANSWER_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>

#include "proto/base/buf.h"
#include "proto/cloud/json.h"
#include "proto/cloud/route.h"

#define ANSWER_BODY_MAX (16u * 1024 * 1024)	/* of a request; 413 above it */
#define ANSWER_WHY_MAX	320u

/* The body of a request of that route: *ret is an object, or NULL where none is there and none is needed.
 * -EINVAL: ret_why is the message of a 400. */
must_check int answer_read_body(enum cloud_route to, const char *content_type, const void *p, size_t n, json_t **ret,
				char ret_why[ANSWER_WHY_MAX]);

/* The body of an error: heap; NULL without memory. `error_code` may be NULL, `prefix` "". What is too long is cut. */
char *answer_error(unsigned status, const char *error_code, const struct flavour *f, const char *prefix, const char *fmt,
		   va_list ap) printf_like(5, 0);

/* A list of documents, or an object of them in the member `key` of an object. */
struct doc_list {
	struct buf out;
	const struct flavour *flavour;
	const char *key;	/* NULL = a list */
	bool has_some;
	int e;			/* the first failure */
};

void doc_list_begin(struct doc_list *l, const struct flavour *f, const char *key);
/* `name`: of this one in the object. */
void doc_list_add(struct doc_list *l, const char *name, enum cloud_doc_id doc, const void *v, unsigned part);
/* The text, heap; NULL after a failure. `l` is freed. */
char *doc_list_take(struct doc_list *l);
void doc_list_fini(struct doc_list *l);

#endif
