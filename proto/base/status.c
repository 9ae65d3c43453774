/* SPDX-License-Identifier: MIT */
#include "proto/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/str.h"

static const struct {
	const char *name;
	enum ab_code code;
} reasons[] = {
#define REASON(n, name, code) [n] = { #name, CODE_##code },
#include "proto/base/reasons.def"
#undef REASON
};

static const char *const code_names[] = {
	"OK",		 "CANCELLED",	      "UNKNOWN",	 "INVALID_ARGUMENT",
	"DEADLINE_EXCEEDED", "NOT_FOUND",     "ALREADY_EXISTS",	 "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",	 "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL",	      "UNAVAILABLE",	 "DATA_LOSS",
	"UNAUTHENTICATED",
};

printf_like(4, 0) static void fill(struct status *s, enum ab_code code, enum ab_reason reason,
				   const char *fmt, va_list ap)
{
	s->code = code;
	s->reason = reason;
	s->retry_after_ms = 0;
	s->n_evidence = 0;
	vsnprintf(s->text, sizeof(s->text), fmt, ap);
	str_clean_line(s->text);
}

void status_set(struct status *s, enum ab_reason reason, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(s, status_reason_code(reason), reason, fmt, ap);
	va_end(ap);
}

void status_set_code(struct status *s, enum ab_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(s, code, REASON_NONE, fmt, ap);
	va_end(ap);
}

void status_field(struct status *s, const char *field, const char *fmt, ...)
{
	char what[STATUS_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	status_set(s, R_FIELD_INVALID, "%s: %s", field, what);
	status_evidence(s, "field", "%s", field);
}

void status_errno(struct status *s, int err, const char *what)
{
	err = err < 0 ? -err : err;
	if (err == ENOMEM)
		status_set_code(s, CODE_RESOURCE_EXHAUSTED, "%s: out of memory", what);
	else if (err == EDQUOT)
		status_set(s, R_QUOTA_UID, "%s: all that may be held in memory for its uid is held", what);
	else
		status_set(s, R_BUG, "%s: %s", what, strerrordesc_np(err) ? strerrordesc_np(err) : "?");
}

void status_evidence(struct status *s, const char *static_key, const char *fmt, ...)
{
	va_list ap;

	if (s->n_evidence == STATUS_EVIDENCE_MAX)
		return;
	s->evidence[s->n_evidence].key = static_key;
	va_start(ap, fmt);
	vsnprintf(s->evidence[s->n_evidence].value, STATUS_VALUE_MAX, fmt, ap);
	va_end(ap);
	str_clean_line(s->evidence[s->n_evidence].value);
	s->n_evidence++;
}

void status_replace_evidence(struct status *s, const char *key, const char *value)
{
	for (unsigned i = 0; i < s->n_evidence; i++)
		if (str_eq(s->evidence[i].key, key))
			(void)str_copy(s->evidence[i].value, sizeof(s->evidence[i].value), value);
}

const char *status_evidence_get(const struct status *s, const char *key)
{
	for (unsigned i = 0; i < s->n_evidence; i++)
		if (str_eq(s->evidence[i].key, key))
			return s->evidence[i].value;
	return NULL;
}

const char *status_code_name(enum ab_code code)
{
	return (unsigned)code < ARRAY_SIZE(code_names) ? code_names[code] : "UNKNOWN";
}

const char *status_reason_name(enum ab_reason reason)
{
	return (unsigned)reason < ARRAY_SIZE(reasons) && reasons[reason].name ? reasons[reason].name : "";
}

enum ab_reason status_reason_by_name(const char *name, size_t n)
{
	for (size_t i = 1; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].name && strlen(reasons[i].name) == n && !memcmp(reasons[i].name, name, n))
			return (enum ab_reason)i;
	return REASON_NONE;
}

enum ab_code status_reason_code(enum ab_reason reason)
{
	return (unsigned)reason < ARRAY_SIZE(reasons) && reasons[reason].name ? reasons[reason].code
									      : CODE_UNKNOWN;
}
