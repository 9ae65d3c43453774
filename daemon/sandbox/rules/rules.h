/* SPDX-License-Identifier: MIT */
/* Small decisions and checks of the module: names, ids, timeouts, backoff, ends. [pure] */
#ifndef AB_DAEMON_SANDBOX_RULES_RULES_H
#define AB_DAEMON_SANDBOX_RULES_RULES_H

#include <stdbool.h>

#include "daemon/sandbox/rules/types.h"
#include "proto/base/cc.h"

#define RULES_NAME_MAX		63u
#define RULES_REQUEST_ID_MAX	128u
#define RULES_TIMEOUT_DEFAULT_MS (300ull * 1000)
#define RULES_SPAN_MAX_MS	(30ull * 24 * 3600 * 1000)
#define RULES_END_SLACK_MS	2000	/* one found gone so little before its end counts as expired */

/* [a-z][a-z0-9._-]{0,62}, except what looks like an id: 'i' and 20 of [a-z0-9]. */
bool rules_name_is_valid(const char *s);
bool rules_looks_like_id(const char *s);	/* ^[a-z0-9]+$, at most 64 */
bool rules_request_id_is_valid(const char *s);	/* 1..128 printable bytes */
/* A reference to a template, or a name to be given to one. The cloud trims and folds more letters than any comparison here, so what is
 * of another alphabet is refused: it could be another uid's snapshot. False with status FIELD_INVALID. */
bool rules_check_template(const char *field, const char *s, struct status *st);
/* NULL or "" = none, which is fine; false with status FIELD_INVALID. */
bool rules_check_request_id(const char *s, struct status *st);

/* Rounds up to seconds; 0 = the default. False: more than 30 days. */
bool rules_timeout_s(uint64_t timeout_ms, uint32_t *ret_s);

/* Why a sandbox that the cloud no longer has is gone. by_us: a DELETE of ours ended it. Both times by the cloud's clock. */
enum ab_reason rules_gone_reason(bool by_us, int64_t end_at_ms, int64_t now_wall_ms, bool was_paused);

/* Create's input; false with status FIELD_INVALID. */
bool rules_check_create(const struct sandbox_create *c, struct status *st);

/* How long a refused request id gives the same answer: 60 s, or the cloud's retry_after if that is less. */
uint64_t rules_refusal_ms(const struct status *st);

#define RULES_REQUEST_KEPT_MS (7ll * 24 * 3600 * 1000)
/* May a request id be forgotten? history_ms after its object's end, and RULES_REQUEST_KEPT_MS after its last use. */
bool rules_request_is_old(int64_t used_at_ms, bool object_exists, int64_t gone_at_ms, int64_t now_wall_ms,
			  int64_t history_ms);

/* The wait before try 0, 1, 2 …: base_ms doubled each time, at most cap_ms; half of it is random. */
uint64_t rules_backoff_ms(unsigned attempt, uint64_t base_ms, uint64_t cap_ms, uint64_t rnd);

/* When to answer a call with what is known: a little before its deadline. BOOTTIME. */
uint64_t rules_answer_by_ms(uint64_t deadline_ms, uint64_t now_ms);

/* What is wrong with network settings or tokens, by the name of its field in the API. */
struct netrules_fault;
void rules_network_fault(const struct netrules_fault *f, struct status *st);
/* Do the settings fit each other? False with FIELD_INVALID, which names the field. */
bool rules_check_lifecycle(const struct cloud_lifecycle *l, struct status *st);
/* A lifecycle as a text of three numbers, and back; false: it is not such a text. */
#define RULES_LIFECYCLE_TEXT_MAX 16u
void rules_lifecycle_format(const struct cloud_lifecycle *l, char ret[RULES_LIFECYCLE_TEXT_MAX]);
bool rules_lifecycle_parse(const char *s, struct cloud_lifecycle *ret);

#endif
