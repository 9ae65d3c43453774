/* SPDX-License-Identifier: MIT */
/*
 * Heads on their way through the gateway: lines of the input are the method, the path, and then fields "name: value". Nobody is let in
 * without a secret that stands in the input, and what goes on to HTTP/1.1 is read there as one head of the same target, with one Host.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/relay_head.h"
#include "daemon/gateway/relay_right.h"
#include "proto/base/buf.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/http1.h"

#define ACCESS	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define TRAFFIC "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static bool has(const uint8_t *p, size_t n, const char *text)
{
	return memmem(p, n, text, strlen(text)) != NULL;
}

static void check_right(const struct fields *head, const uint8_t *p, size_t n)
{
	static const uint16_t ports[] = { 49983, 3000 };
	const struct relay_asker a = { .head = head, .uid = 1, .now_s = 1800000000 };

	for (size_t i = 0; i < ARRAY_SIZE(ports); i++) {
		const struct relay_door d = { .sandbox = "iabc", .port = ports[i], .access_token = ACCESS,
					      .traffic_token = TRAFFIC, .owner = 1 };
		enum relay_right r = relay_judge(&a, &d);

		must(r != RELAY_ALLOWED && r != RELAY_BY_TOKEN && r != RELAY_BY_UID);
		must(r != RELAY_BY_ACCESS || has(p, n, ACCESS));
		must(r != RELAY_BY_TRAFFIC || (ports[i] != 49983 && has(p, n, TRAFFIC)));
		must(r != RELAY_BY_LINK || (ports[i] == 49983 && relay_is_link(head) && has(p, n, "signature")));
		must(r > RELAY_ALLOWED || relay_shows_secret(&a));
	}
}

static void check_head(const struct fields *head)
{
	struct fields out = FIELDS_NULL, again = FIELDS_NULL;
	struct buf wire = BUF_NULL;
	struct http1_head h;
	size_t used;

	if (relay_request_head(head, NULL, false, NULL, NULL, &out) < 0 ||
	    http1_write_request(&wire, &out, &(struct http1_write){ .framing = HTTP1_BODY_NONE }) < 0)
		goto out;
	http1_head_init_request(&h, false, &again);
	/* What it refuses, as two lengths, it refuses as a whole. */
	if (http1_head_feed(&h, buf_data(&wire), buf_len(&wire), &used) == HTTP1_DONE) {
		must(used == buf_len(&wire));
		must(str_eq(fields_get(&again, ":path"), fields_get(head, ":path")));
		must(str_eq(fields_get(&again, ":authority"), "a.test"));
		must(!fields_get(&again, "transfer-encoding") && !fields_get(&again, "te") && !fields_get(&again, "upgrade"));
	}
out:
	buf_fini(&wire);
	fields_fini(&out);
	fields_fini(&again);
}

static bool put_line(struct fields *head, unsigned i, char *line)
{
	char *colon = strstr(line, ": ");

	if (i < 2)
		return fields_put(head, i ? ":path" : ":method", line) == 0;
	if (!colon || colon == line || line[0] == ':')
		return true;
	*colon = 0;
	str_lower(line);
	return fields_put(head, line, colon + 2) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fields head = FIELDS_NULL;
	char *text = malloc(n + 1), *rest = text, *line;
	unsigned i = 0;

	must(text);
	memcpy(text, p, n);
	text[n] = 0;
	while ((line = strsep(&rest, "\n")) && put_line(&head, i, line))
		i++;
	if (fields_get(&head, ":path") && fields_put(&head, ":authority", "a.test") == 0) {
		check_right(&head, p, n);
		check_head(&head);
	}
	fields_fini(&head);
	free(text);
	return 0;
}
