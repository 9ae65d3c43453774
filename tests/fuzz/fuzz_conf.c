/* SPDX-License-Identifier: MIT */
/* A configuration file: its lines, then all of it as the daemon reads it. */
#include <stdlib.h>
#include <string.h>

#include "daemon/conf/conf.h"
#include "daemon/conf/ini.h"
#include "proto/base/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct seen {
	unsigned lines;		/* of the text */
	unsigned last;		/* where the last value began */
};

static void fuzz_conf_value(void *user, unsigned line, const char *section, const char *key, const char *value)
{
	struct seen *s = user;

	must(line > s->last && line <= s->lines);
	must(strlen(value) <= INI_VALUE_MAX && !strchr(value, '\n'));
	must(strlen(section) < INI_LINE_MAX_BYTES && strlen(key) < INI_LINE_MAX_BYTES);
	s->last = line;
}

static void fuzz_conf_section(void *user, unsigned line, const char *section)
{
	struct seen *s = user;

	must(line > s->last && line <= s->lines);
	must(strlen(section) < INI_LINE_MAX_BYTES && !strchr(section, '\n'));
}

static void fuzz_conf_problem(void *user, unsigned line, const char *what)
{
	struct seen *s = user;

	must(line > 0 && line <= s->lines && *what);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const char *text = (const char *)p;
	struct seen seen = { .lines = 1 };
	struct ini_input in = { .p = text, .n = n, .begin = fuzz_conf_section, .value = fuzz_conf_value,
				.problem = fuzz_conf_problem, .user = &seen };
	struct conf *c;

	for (size_t i = 0; i < n; i++)
		seen.lines += p[i] == '\n';
	must(ini_read(&in) == 0);
	must(conf_new(&c) == 0);
	must(conf_read_text(c, "fuzz.conf", (struct conf_text){ text, n }) == 0);
	must(!conf_errors(c)[0] || strchr(conf_errors(c), ':'));
	conf_free(c);
	return 0;
}
