/* SPDX-License-Identifier: MIT */
/* Small text parsers: gRPC timeout, status and message, durations, sizes, times, percent, base64,
 * configuration. What one of them accepts must survive its own round trip. */
#include <stdlib.h>
#include <string.h>

#include "daemon/conf/conf.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/grpc.h"
#include "proto/wire/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void try_grpc(char *s)
{
	struct fields f = FIELDS_NULL;
	uint64_t ms, again;
	const char *message;
	uint8_t *details;
	size_t n;
	char text[16], *coded;

	if (grpc_timeout_parse(s, &ms) == 0 && ms <= 99999999) {
		grpc_timeout_format(ms, text);
		must(grpc_timeout_parse(text, &again) == 0 && again == ms);
	}
	if (fields_put(&f, "grpc-status", s) == 0 && fields_put(&f, "grpc-status-details-bin", s) == 0 &&
	    fields_put(&f, ":status", s) == 0 && fields_put(&f, "grpc-message", s) == 0) {
		must(grpc_status_read(&f, &message, &details, &n) <= CODE_UNAUTHENTICATED);
		free(details);
		(void)grpc_check_request(&f);
	}
	fields_fini(&f);
	coded = grpc_message_encode(s);
	if (coded) {
		grpc_message_decode(coded);
		must(str_eq(coded, s));
	}
	free(coded);
	grpc_message_decode(s);
}

/* What is taken is taken again as it is, and its parts are the ones that it was made of. */
static void try_trace(const char *s)
{
	struct trace t, again;
	char id[TRACE_ID_BYTES];

	if (!trace_parse(s, &t)) {
		must(!t.parent[0] && !*trace_id(&t, id));
		return;
	}
	must(strlen(t.parent) == TRACE_BYTES - 1 && trace_parse(t.parent, &again) && str_eq(t.parent, again.parent));
	must(strlen(trace_id(&t, id)) == TRACE_ID_BYTES - 1 && !memcmp(id, s + 3, TRACE_ID_BYTES - 1));
}

static void try_coding(const uint8_t *p, size_t n)
{
	char *coded = str_percent_encode((const char *)p, n);
	uint8_t *back = malloc(n * 4 + 8);

	if (coded && back) {
		ssize_t k = str_percent_decode(coded, strlen(coded), false);

		must(k == (ssize_t)n && !memcmp(coded, p, n));
	}
	free(coded);
	coded = str_base64_encode(p, n, n % 2);
	if (coded && back)
		must(str_base64_decode(coded, strlen(coded), back) == (ssize_t)n && !memcmp(back, p, n));
	if (back)
		(void)!str_base64_decode((const char *)p, n, back);
	free(coded);
	free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *s;
	struct conf *c;
	uint64_t v;
	int64_t t;

	if (!n)
		return 0;
	s = strndup((const char *)p + 1, n - 1);
	if (!s)
		return 0;
	switch (p[0] % 4) {
	case 0:
		try_trace(s);
		try_grpc(s);
		break;
	case 1:
		try_coding(p + 1, n - 1);
		break;
	case 2:
		(void)!str_duration_ms(s, &v);
		(void)!str_bytes(s, &v);
		(void)str_is_utf8(s, strlen(s));
		if (str_rfc3339_ms(s, &t) == 0 && t >= 0 && t < 253402300800000) {
			char again[40];
			int64_t t2;

			str_rfc3339(t * 1000, 3, again);
			must(str_rfc3339_ms(again, &t2) == 0 && t2 == t);
		}
		break;
	default:
		if (conf_new(&c) == 0) {
			struct conf_row row;

			if (conf_read_text(c, "f", (struct conf_text){ (const char *)p + 1, n - 1 }) == 0)
				for (size_t i = 0; conf_row(c, i, &row); i++)
					must(row.value);
			(void)conf_errors(c);
			conf_free(c);
		}
	}
	free(s);
	return 0;
}
