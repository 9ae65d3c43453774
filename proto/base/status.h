/* SPDX-License-Identifier: MIT */
/*
 * The result of an asynchronous request, and the only thing that crosses module borders as a
 * failure: gRPC code, reason from the closed list, a sentence for a person, evidence, and how long
 * to wait before asking again. Plain data without pointers to free: copy it by assignment.
 */
#ifndef AB_PROTO_BASE_STATUS_H
#define AB_PROTO_BASE_STATUS_H

#include <stdbool.h>

#include "proto/base/cc.h"

enum ab_code {		/* gRPC's numbers */
	CODE_OK = 0,
	CODE_CANCELLED = 1,
	CODE_UNKNOWN = 2,
	CODE_INVALID_ARGUMENT = 3,
	CODE_DEADLINE_EXCEEDED = 4,
	CODE_NOT_FOUND = 5,
	CODE_ALREADY_EXISTS = 6,
	CODE_PERMISSION_DENIED = 7,
	CODE_RESOURCE_EXHAUSTED = 8,
	CODE_FAILED_PRECONDITION = 9,
	CODE_ABORTED = 10,
	CODE_OUT_OF_RANGE = 11,
	CODE_UNIMPLEMENTED = 12,
	CODE_INTERNAL = 13,
	CODE_UNAVAILABLE = 14,
	CODE_DATA_LOSS = 15,
	CODE_UNAUTHENTICATED = 16,
};

enum ab_reason {
	REASON_NONE = 0,
#define REASON(n, name, code) R_##name = n,
#include "proto/base/reasons.def"
#undef REASON
};

#define STATUS_TEXT_MAX	    320u
#define STATUS_EVIDENCE_MAX 6u
#define STATUS_VALUE_MAX    128u

struct status {
	enum ab_code code;
	enum ab_reason reason;
	uint32_t retry_after_ms;	/* 0 = no hint */
	unsigned n_evidence;
	char text[STATUS_TEXT_MAX];
	struct {
		const char *key;	/* static string */
		char value[STATUS_VALUE_MAX];
	} evidence[STATUS_EVIDENCE_MAX];
};

#define STATUS_OK { .code = CODE_OK }

/* OK, of a scratch_ one: what nobody reads of it keeps what was there before. */
static inline void status_clear(struct status *s)
{
	s->code = CODE_OK;
	s->reason = REASON_NONE;
	s->retry_after_ms = 0;
	s->n_evidence = 0;
	s->text[0] = 0;
}

static inline bool status_ok(const struct status *s)
{
	return s->code == CODE_OK;
}

/* Fills `s` with the reason and the code that belongs to it; clears the evidence. */
void status_set(struct status *s, enum ab_reason reason, const char *fmt, ...) printf_like(3, 4);
/* A status without a reason (UNIMPLEMENTED, CANCELLED, …). */
void status_set_code(struct status *s, enum ab_code code, const char *fmt, ...) printf_like(3, 4);
/* INVALID_ARGUMENT FIELD_INVALID with evidence field=…; text "field: what was wrong, what to do". */
void status_field(struct status *s, const char *field, const char *fmt, ...) printf_like(3, 4);
/* For -errno results that no caller can explain better: INTERNAL BUG; of ENOMEM RESOURCE_EXHAUSTED, of EDQUOT the same with QUOTA_UID. */
void status_errno(struct status *s, int err, const char *what);
/* One more evidence pair; ignored when there are STATUS_EVIDENCE_MAX. Values are cut, made printable. */
void status_evidence(struct status *s, const char *static_key, const char *fmt, ...) printf_like(3, 4);
/* Of a pair that is there; without it nothing is changed. */
void status_replace_evidence(struct status *s, const char *key, const char *value);
const char *status_evidence_get(const struct status *s, const char *key);

const char *status_code_name(enum ab_code code);	/* "NOT_FOUND" */
const char *status_reason_name(enum ab_reason reason);	/* "SANDBOX_GONE", "" for none */
enum ab_reason status_reason_by_name(const char *name, size_t n);
enum ab_code status_reason_code(enum ab_reason reason);

#endif
