/* SPDX-License-Identifier: MIT */
/*
 * Hosts, request targets, cursors, filters, references, header values: lines of the input are the
 * arguments. What a parser gives out obeys the rules it promised.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/httpval.h"
#include "daemon/common/http/multipart.h"
#include "daemon/common/http/query.h"
#include "daemon/common/http/route.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/list.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_route(const char *host, const char *id, const char *port)
{
	struct route r;
	char again[ROUTE_ID_MAX + 1];

	route_parse(host, *id ? id : NULL, *port ? port : NULL, &r);
	if (r.kind == ROUTE_SANDBOX)
		must(!cloud_id_parse(r.id, again) && str_eq(r.id, again));
	else
		must(r.kind == ROUTE_CONTROL || r.why);
}

static void check_target(const char *s)
{
	struct query q;
	char *clean = query_clean_path(s);

	must(!clean || (clean[0] == '/' && !strstr(clean, "//") && !strstr(clean, "/../")));
	free(clean);
	if (query_parse(s, &q) < 0)
		return;
	must(q.n_segments && q.n_segments <= QUERY_MAX_SEGMENTS && q.n <= QUERY_MAX_PAIRS);
	for (size_t i = 0; i < q.n; i++)
		must(query_get(&q, q.v[i].key));
	query_fini(&q);
}

static void check_list(const char *s)
{
	struct cursor c, back;
	struct template_ref t;
	struct cloud_kvs filter;
	char *text;

	if (!cursor_decode(s, &c)) {
		text = cursor_encode(&c);
		must(text && !cursor_decode(text, &back));
		must(back.at_us == c.at_us && str_eq(back.id, c.id));
		free(text);
	}
	if (!meta_filter_parse(s, &filter)) {
		must(meta_filter_match(&filter, &filter));
		cloud_kvs_fini(&filter);
	}
	if (!template_ref_parse(s, &t))
		must(t.name[0]);
}

static void check_values(const char *s, uint64_t size)
{
	uint64_t first, n;
	int64_t date;
	char *text;

	if (httpval_range(s, size, &first, &n) == RANGE_PART)
		must(n && first < size && n <= size - first);
	must(httpval_coding(s, true) != CODING_GZIP);
	(void)!httpval_parse_date(s, &date);
	text = httpval_disposition(s);
	must(text && !strpbrk(text, "\r\n"));
	free(text);
	free(header_param(s, "boundary"));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *text = malloc(n + 1), *line[4] = { 0 };
	unsigned i = 0;

	must(text);
	memcpy(text, p, n);
	text[n] = 0;
	for (char *s = text; s && i < ARRAY_SIZE(line); i++) {
		char *next = strchr(s, '\n');

		if (next)
			*next++ = 0;
		line[i] = s;
		s = next;
	}
	while (i < ARRAY_SIZE(line))
		line[i++] = text + strlen(text);
	check_route(line[0], line[1], line[2]);
	for (i = 0; i < ARRAY_SIZE(line); i++) {
		check_target(line[i]);
		check_list(line[i]);
		check_values(line[i], i * 1000);
	}
	free(text);
	return 0;
}
