/* SPDX-License-Identifier: MIT */
/*
 * The details are built on the stack as generated messages that point into the status; each is
 * serialized into an Any. Sizes are bounded by struct status.
 */
#include "daemon/rpc/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/redact.h"
#include "proto/base/must.h"
#include "proto/gen/google_rpc_error_details.pb-c.h"

#define DETAILS_MAX	 3u
#define DETAIL_MAX_BYTES 2048u	/* ErrorInfo with all evidence: 6 × (key + 128) and the reason */

struct details {
	Google__Rpc__Status status;
	Google__Protobuf__Any any[DETAILS_MAX];
	Google__Protobuf__Any *list[DETAILS_MAX];
	uint8_t bytes[DETAILS_MAX][DETAIL_MAX_BYTES];
};

static void error_add(struct details *d, const char *type_url, const ProtobufCMessage *m)
{
	size_t i = d->status.n_details++;

	must(i < DETAILS_MAX && protobuf_c_message_get_packed_size(m) <= DETAIL_MAX_BYTES);
	google__protobuf__any__init(&d->any[i]);
	d->any[i].type_url = (char *)type_url;
	d->any[i].value.data = d->bytes[i];
	d->any[i].value.len = protobuf_c_message_pack(m, d->bytes[i]);
	d->list[i] = &d->any[i];
}

static void add_info(struct details *d, const struct status *st)
{
	Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
	Google__Rpc__ErrorInfo__MetadataEntry entries[STATUS_EVIDENCE_MAX];
	Google__Rpc__ErrorInfo__MetadataEntry *list[STATUS_EVIDENCE_MAX];

	for (unsigned i = 0; i < st->n_evidence; i++) {
		google__rpc__error_info__metadata_entry__init(&entries[i]);
		entries[i].key = (char *)st->evidence[i].key;
		entries[i].value = (char *)st->evidence[i].value;
		list[i] = &entries[i];
	}
	info.reason = (char *)status_reason_name(st->reason);
	info.domain = (char *)RPC_ERROR_DOMAIN;
	info.n_metadata = st->n_evidence;
	info.metadata = list;
	error_add(d, "type.googleapis.com/google.rpc.ErrorInfo", &info.base);
}

static void add_retry(struct details *d, uint32_t after_ms)
{
	Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;
	Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;

	delay.seconds = after_ms / 1000;
	delay.nanos = (int32_t)(after_ms % 1000 * 1000000);
	retry.retry_delay = &delay;
	error_add(d, "type.googleapis.com/google.rpc.RetryInfo", &retry.base);
}

static void add_violation(struct details *d, const char *field, const char *text)
{
	Google__Rpc__BadRequest bad = GOOGLE__RPC__BAD_REQUEST__INIT;
	Google__Rpc__BadRequest__FieldViolation v = GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT;
	Google__Rpc__BadRequest__FieldViolation *list[1] = { &v };

	v.field = (char *)field;
	v.description = (char *)text;
	bad.n_field_violations = 1;
	bad.field_violations = list;
	error_add(d, "type.googleapis.com/google.rpc.BadRequest", &bad.base);
}

static void error_fill(struct details *d, const struct status *said, struct status *clean)
{
	const struct status *st = clean;
	const char *field;

	*clean = *said;
	redact_status(clean);
	field = status_evidence_get(st, "field");

	google__rpc__status__init(&d->status);
	d->status.code = (int32_t)st->code;
	d->status.message = (char *)st->text;
	d->status.details = d->list;
	if (st->reason)
		add_info(d, st);
	if (st->retry_after_ms)
		add_retry(d, st->retry_after_ms);
	if (st->reason == R_FIELD_INVALID && field)
		add_violation(d, field, st->text);
}

int rpc_error_pack(const struct status *st, uint8_t **ret, size_t *ret_n)
{
	struct status clean;
	struct details d;
	uint8_t *p;

	error_fill(&d, st, &clean);
	if (!d.status.n_details) {
		*ret = NULL;
		*ret_n = 0;
		return 0;
	}
	p = malloc(google__rpc__status__get_packed_size(&d.status));
	if (!p)
		return -ENOMEM;
	*ret_n = google__rpc__status__pack(&d.status, p);
	*ret = p;
	return 0;
}

Google__Rpc__Status *rpc_error_message(const struct status *st)
{
	Google__Rpc__Status *m;
	struct status clean;
	struct details d;
	uint8_t *p;
	size_t n;

	error_fill(&d, st, &clean);
	p = malloc(google__rpc__status__get_packed_size(&d.status) + 1);
	if (!p)
		return NULL;
	n = google__rpc__status__pack(&d.status, p);
	m = google__rpc__status__unpack(NULL, n, p);
	free(p);
	return m;
}
