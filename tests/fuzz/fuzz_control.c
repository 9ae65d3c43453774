/* SPDX-License-Identifier: MIT */
/* What the gateway's control plane reads: the first line is Agentboxd-Policy, the second Agentboxd-Lease, the third the path with
 * its query, the rest a body. What was understood is within its bounds, and what was not has a reason. */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/answer.h"
#include "daemon/common/http/listing.h"
#include "daemon/gateway/words.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void read_words(const struct words_text *said)
{
	char why[WORDS_WHY_MAX] = "";
	struct words w;

	if (!words_read(said, &w, why)) {
		must(why[0]);
		return;
	}
	must(w.lease_ms <= WORDS_LEASE_MAX_MS && !(w.no_lease && w.lease_ms));
	must(!(w.policy.set >> POLICY_FIELDS));
}

static void read_listing(const char *target)
{
	struct listing l;
	const char *why = NULL;
	struct query q;

	if (query_parse(target, &q) < 0)
		return;
	if (listing_parse(&q, &l, &why) == 0) {
		must(l.limit >= 1 && l.limit <= LISTING_PAGE_MAX);
		must(!l.has_cursor || l.cursor.ascending == l.ascending);
		listing_fini(&l);
	} else {
		must(why);
	}
	query_fini(&q);
}

static void read_body(const char *p, size_t n)
{
	struct cloud_json_error bad = { "" };
	struct cloud_create c = { 0 };
	char why[ANSWER_WHY_MAX] = "";
	json_t *in;

	if (answer_read_body(CLOUD_ROUTE_CREATE, "application/json", p, n, &in, why) < 0) {
		must(why[0] && !in);
		return;
	}
	must(json_is_object(in));
	if (cloud_json_take(CLOUD_DOC_CREATE, in, &c, &bad) < 0)
		must(bad.text[0]);
	cloud_create_fini(&c);
	json_decref(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *text = malloc(n + 1), *rest = text, *line[3] = { NULL };

	must(text);
	memcpy(text, p, n);
	text[n] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(line) && rest; i++)
		line[i] = strsep(&rest, "\n");
	read_words(&(struct words_text){ .policy = line[0], .lease = line[1] });
	read_words(&(struct words_text){ .warm = line[1] });
	if (line[2])
		read_listing(line[2]);
	if (rest)
		read_body(rest, n - (size_t)(rest - text));
	free(text);
	return 0;
}
