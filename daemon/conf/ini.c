/* SPDX-License-Identifier: MIT */
#include "daemon/conf/ini.h"

#include <errno.h>
#include <ini.h>
#include <string.h>

#include "proto/base/str.h"

static void pass_value(struct ini_input *in)
{
	if (in->value_line)
		in->value(in->user, in->value_line, in->section, in->key, in->text);
	in->value_line = 0;
}

/* What inih would trip over; it reports only the first such line, we want all. */
static const char *line_problem(const char *p, size_t n, size_t cap)
{
	if (!n)
		return NULL;
	if (n >= INI_LINE_MAX_BYTES || n + 2 > cap)
		return "is too long; a value may go on in the next line after a \\";
	if (memchr(p, 0, n))
		return "holds a NUL byte";
	if (p[0] == '[')
		return memchr(p, ']', n) ? NULL : "begins a section but has no ]";
	return memchr(p, '=', n) ? NULL : "is neither [section], key = value nor a comment";
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* The next line without the blanks around it, of which leading ones would make inih take it for the rest of the value before. A
 * comment is an empty line. */
static const char *take_line(struct ini_input *in, size_t *ret_n)
{
	const char *p = in->p, *end = memchr(p, '\n', in->n);
	size_t n = end ? (size_t)(end - p) : in->n;

	in->p += n + (end ? 1 : 0);
	in->n -= n + (end ? 1 : 0);
	in->line++;
	if (in->line == 1 && n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) {
		p += 3;
		n -= 3;
	}
	while (n && is_blank(p[0])) {
		p++;
		n--;
	}
	while (n && is_blank(p[n - 1]))
		n--;
	if (n && !in->goes_on && (p[0] == '#' || p[0] == ';'))
		n = 0;
	*ret_n = n;
	return p;
}

/* The rest of the value in hand. */
static void add_to_value(struct ini_input *in, const char *p, size_t n)
{
	size_t had = strlen(in->text);

	if (!n)
		return;
	if (memchr(p, 0, n)) {
		in->problem(in->user, in->line, "holds a NUL byte");
	} else if (had + n + 1 > INI_VALUE_MAX) {
		in->problem(in->user, in->line, "makes the value too long");
	} else {
		in->text[had] = ' ';
		memcpy(in->text + had + (had != 0), p, n);
		in->text[had + (had != 0) + n] = 0;
	}
}

/* inih tells of a section with its first key. */
static void begin_section(struct ini_input *in, const char *p)
{
	char name[INI_LINE_MAX_BYTES + 1];
	size_t n = strcspn(p, "]");

	memcpy(name, p, n);
	name[n] = 0;
	in->begin(in->user, in->line, name);
}

/* One line of the text into inih's buffer. A bad line is reported; it, and one that goes on with a value, is empty for inih. */
static char *next_line(char *out, int cap, void *stream)
{
	struct ini_input *in = stream;
	bool more = in->goes_on;
	const char *p, *problem;
	size_t n;

	if (!more)
		pass_value(in);
	if (!in->n)
		return NULL;
	p = take_line(in, &n);
	in->goes_on = n && p[n - 1] == '\\' && (more || p[0] != '[');
	n -= in->goes_on;
	if (more) {
		add_to_value(in, p, n);
		n = 0;
	}
	problem = line_problem(p, n, (size_t)cap);
	if (problem) {
		in->problem(in->user, in->line, problem);
		in->goes_on = false;
		n = 0;
	}
	if (n && p[0] == '[')
		begin_section(in, p + 1);
	memcpy(out, p, n);
	out[n] = '\n';
	out[n + 1] = 0;
	return out;
}

static int on_value(void *user, const char *section, const char *name, const char *value)
{
	struct ini_input *in = user;

	in->value_line = in->line;
	(void)str_copy(in->section, sizeof(in->section), section);
	(void)str_copy(in->key, sizeof(in->key), name);
	(void)str_copy(in->text, sizeof(in->text), value ? value : "");
	return 1;
}

int ini_read(struct ini_input *in)
{
	int r = ini_parse_stream(next_line, in, on_value, in);

	pass_value(in);
	if (r > 0)
		in->problem(in->user, (unsigned)r, "is not understood");
	return r == -2 ? -ENOMEM : 0;
}
