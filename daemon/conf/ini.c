/* SPDX-License-Identifier: MIT */
#include "daemon/conf/ini.h"

#include <errno.h>
#include <ini.h>
#include <string.h>

/* What inih would trip over; it reports only the first such line, we want all. */
static const char *line_problem(const char *p, size_t n, size_t cap)
{
	if (n >= INI_LINE_MAX_BYTES || n + 2 > cap)
		return "is too long";
	if (memchr(p, 0, n))
		return "holds a NUL byte";
	if (!n || p[0] == '\r' || p[0] == ';' || p[0] == '#')
		return NULL;
	if (p[0] == '[')
		return memchr(p, ']', n) ? NULL : "begins a section but has no ]";
	return memchr(p, '=', n) ? NULL : "is neither [section], key = value nor a comment";
}

/*
 * One line of the text into inih's buffer, without leading blanks (inih would take an indented line
 * for the continuation of the value before). A bad line is reported and replaced by an empty one.
 */
static char *next_line(char *out, int cap, void *stream)
{
	struct ini_input *in = stream;
	const char *end, *problem;
	size_t n, rest;

	if (!in->n)
		return NULL;
	end = memchr(in->p, '\n', in->n);
	n = end ? (size_t)(end - in->p) : in->n;
	rest = n + (end ? 1 : 0);
	in->line++;
	if (in->line == 1 && n >= 3 && !memcmp(in->p, "\xef\xbb\xbf", 3)) {
		in->p += 3;
		in->n -= 3;
		n -= 3;
		rest -= 3;
	}
	while (n && (in->p[0] == ' ' || in->p[0] == '\t')) {
		in->p++;
		in->n--;
		n--;
		rest--;
	}
	problem = line_problem(in->p, n, (size_t)cap);
	if (problem) {
		in->problem(in->user, in->line, problem);
		n = 0;
	}
	memcpy(out, in->p, n);
	out[n] = '\n';
	out[n + 1] = 0;
	in->p += rest;
	in->n -= rest;
	return out;
}

static int on_value(void *user, const char *section, const char *name, const char *value)
{
	struct ini_input *in = user;

	in->value(in->user, in->line, section, name, value ? value : "");
	return 1;
}

int ini_read(struct ini_input *in)
{
	int r = ini_parse_stream(next_line, in, on_value, in);

	if (r > 0)
		in->problem(in->user, (unsigned)r, "is not understood");
	return r == -2 ? -ENOMEM : 0;
}
