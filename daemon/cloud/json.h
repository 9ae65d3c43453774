/* SPDX-License-Identifier: MIT */
/*
 * JSON of the cloud ↔ the model. Strict on the types of what we use, everything else is ignored;
 * depth, size and counts are capped; a key that occurs twice refuses the document. A failure says
 * what was wrong in *ret_why (static text).
 */
#ifndef AB_DAEMON_CLOUD_JSON_H
#define AB_DAEMON_CLOUD_JSON_H

#include "daemon/cloud/fault.h"
#include "daemon/cloud/model.h"
#include "proto/base/cc.h"

#define JSON_BODY_MAX	  (4u * 1024 * 1024)	/* a larger answer is BAD_CLOUD_REPLY */
#define JSON_DEPTH_MAX	  32u
#define JSON_METADATA_MAX 512u			/* pairs of one sandbox; more refuse the answer */
#define JSON_LIST_MAX	  1000u			/* sandboxes of one page */

#define JSON_METRICS_MAX  100000u		/* points of one series */

/* All parsers: 0, -EBADMSG, -ENOMEM. */

/* Sandbox (create, connect) or SandboxDetail (get). */
must_check int json_sandbox(const void *p, size_t n, struct cloud_sandbox **ret, const char **ret_why);
/* One page, appended to `list`, which may hold earlier ones. */
must_check int json_list(const void *p, size_t n, struct cloud_list *list, const char **ret_why);
must_check int json_children(const void *p, size_t n, struct cloud_children **ret, const char **ret_why);
must_check int json_metrics(const void *p, size_t n, struct cloud_metrics **ret, const char **ret_why);
must_check int json_snapshot(const void *p, size_t n, struct cloud_snapshot **ret, const char **ret_why);
/* One page, appended. */
must_check int json_snapshots(const void *p, size_t n, struct cloud_snapshots *list,
			      const char **ret_why);
/* Whatever it is: never fails; what it cannot read becomes the message, cut and made printable. */
void json_error(const void *p, size_t n, struct fault_body *ret);
/* The payload of Connect's end-of-stream record: *ret_error = false for success. */
must_check int json_end_of_stream(const void *p, size_t n, bool *ret_error, struct fault_body *ret);
/* The answer of POST /files: the path of the first file, heap. */
must_check int json_upload(const void *p, size_t n, char **ret_path);

/* Bodies of requests: heap strings, -ENOMEM, or -EINVAL for text that is not UTF-8. */
must_check int json_create(const struct cloud_create *c, char **ret, size_t *ret_n);
must_check int json_number(const char *key, uint32_t value, char **ret, size_t *ret_n);
must_check int json_pause(bool memory, char **ret, size_t *ret_n);
must_check int json_fork(uint32_t count, uint32_t timeout_s, char **ret, size_t *ret_n);
must_check int json_snapshot_name(const char *name, char **ret, size_t *ret_n);	/* "" or NULL = none */
/* Egress only: what is not in it is cleared (PUT …/network). */
must_check int json_network(const struct cloud_network *n, enum tri allow_internet_access, char **ret,
			    size_t *ret_n);

#endif
