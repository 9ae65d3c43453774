/* SPDX-License-Identifier: MIT */
/* A line of the log as the journal gets it: whatever the line holds, each field is one line with a name that the journal takes. */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/journald.h"
#include "proto/base/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* As log_event() does. */
static void one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = ' ';
}

static void check_field(const char *at, const char *end)
{
	const char *equals = memchr(at, '=', (size_t)(end - at));

	must(equals && equals > at && equals - at <= 64);
	must(*at >= 'A' && *at <= 'Z');
	for (; at < equals; at++)
		must((*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') || *at == '_');
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char out[JOURNALD_MAX_BYTES], *text = strndup((const char *)p, n);
	struct journald_line line = { .identifier = "fuzz", .priority = 4, .event = "event", .rest = text };
	const struct stat st = { .st_dev = 1, .st_ino = 2 };
	size_t len, at = 0;

	(void)journald_is_stream(text, &st);
	one_line(text);
	len = journald_pack(out, &line);
	must(len && out[len - 1] == '\n');
	while (at < len) {
		const char *end = memchr(out + at, '\n', len - at);

		check_field(out + at, end);
		at = (size_t)(end - out) + 1;
	}
	free(text);
	return 0;
}
