/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/multipart.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/base/str.h"

static void set_state(struct multipart *m, enum multipart_state to)
{
	m->state = to;
}

/* One "name=value" at s; heap copies, *ret_end behind it. */
static int take_param(const char *s, char **ret_name, char **ret_value, const char **ret_end)
{
	size_t n_name = strcspn(s, "=; \t"), n = 0;
	const char *v = s + n_name;
	char *value;

	if (!n_name || *v != '=')
		return -EINVAL;
	v++;
	value = malloc(strlen(v) + 1);
	*ret_name = strndup(s, n_name);
	*ret_value = value;
	if (!value || !*ret_name)
		return -ENOMEM;
	if (*v == '"') {
		for (v++; *v != '"'; v++) {
			/* Only what has to be is taken for escaped: a Windows path is not. */
			if (*v == '\\' && (v[1] == '"' || v[1] == '\\'))
				v++;
			if (!*v)
				return -EINVAL;
			value[n++] = *v;
		}
		v++;
	} else {
		n = strcspn(v, "; \t");
		memcpy(value, v, n);
		v += n;
	}
	value[n] = 0;
	*ret_end = v;
	return 0;
}

/* charset'language'percent-coded; NULL unless UTF-8. */
static char *decode_extended(const char *s)
{
	const char *text = strchr(s, '\'');
	char *out;

	text = text ? strchr(text + 1, '\'') : NULL;
	if (!text || strncasecmp(s, "utf-8'", 6) != 0)
		return NULL;
	out = str_dup(text + 1);
	if (!out || str_unescape(out, false) == 0)
		return out;
	free(out);
	return NULL;
}

char *header_param(const char *header, const char *name)
{
	char *plain = NULL, *extended = NULL;
	const char *s = strchr(header, ';');
	size_t n_name = strlen(name);

	while (s && *s == ';') {
		char *key = NULL, *value = NULL;
		int r;

		s += 1 + strspn(s + 1, " \t");
		if (!*s)
			break;
		r = take_param(s, &key, &value, &s);
		if (!r && !strncasecmp(key, name, n_name)) {
			if (str_eq(key + n_name, "*") && !extended)
				extended = decode_extended(value);
			else if (!key[n_name] && !plain)
				plain = give(value);
		}
		free(key);
		free(value);
		if (r < 0)
			goto fail;
		s += strspn(s, " \t");
		if (*s && *s != ';')
			goto fail;
	}
	if (extended) {
		free(plain);
		return extended;
	}
	return plain;
fail:
	free(plain);
	free(extended);
	return NULL;
}

int multipart_init(struct multipart *m, const char *content_type)
{
	char *boundary = header_param(content_type, "boundary");
	size_t n = boundary ? strlen(boundary) : 0;

	*m = (struct multipart){ 0 };
	if (!n || n > MULTIPART_BOUNDARY_MAX || !str_is_printable(boundary, n)) {
		free(boundary);
		return -EINVAL;
	}
	memcpy(m->line, "\r\n--", 4);
	memcpy(m->line + 4, boundary, n);
	m->n_line = n + 4;
	free(boundary);
	return 0;
}

static void part_clear(struct multipart *m)
{
	free(m->name);
	free(m->filename);
	m->name = m->filename = NULL;
}

void multipart_fini(struct multipart *m)
{
	part_clear(m);
}

static enum multipart_event broken(struct multipart *m)
{
	set_state(m, MULTIPART_BROKEN);
	return MULTIPART_BAD;
}

/* What follows a boundary decides whether it was one. */
static bool may_follow_line(uint8_t c)
{
	return c == '-' || c == '\r' || c == ' ' || c == '\t';
}

static enum multipart_event preamble(struct multipart *m, const uint8_t *p, size_t n, size_t *used)
{
	const char *dashes = m->line + 2;
	size_t n_dashes = m->n_line - 2;
	const uint8_t *at;

	if (m->at_start == false && n >= n_dashes && !memcmp(p, dashes, n_dashes)) {
		*used = n_dashes;
		set_state(m, MULTIPART_AFTER_LINE);
		return MULTIPART_MORE;
	}
	if (!m->at_start && n < n_dashes)
		return MULTIPART_MORE;
	m->at_start = true;	/* the first bytes were looked at */
	at = memmem(p, n, m->line, m->n_line);
	if (at) {
		*used = (size_t)(at - p) + m->n_line;
		set_state(m, MULTIPART_AFTER_LINE);
	} else if (n >= m->n_line) {
		*used = n - m->n_line + 1;
	}
	return MULTIPART_MORE;
}

static enum multipart_event after_line(struct multipart *m, const uint8_t *p, size_t n, size_t *used)
{
	size_t i = 0;

	if (n < 2)
		return MULTIPART_MORE;
	if (p[0] == '-' && p[1] == '-') {
		*used = 2;
		set_state(m, MULTIPART_DONE);
		return MULTIPART_END;
	}
	while (i < n && (p[i] == ' ' || p[i] == '\t'))
		i++;
	if (i > 1024)
		return broken(m);
	if (n < i + 2)
		return MULTIPART_MORE;
	if (p[i] != '\r' || p[i + 1] != '\n')
		return broken(m);
	*used = i + 2;
	set_state(m, MULTIPART_HEADERS);
	return MULTIPART_MORE;
}

/* One header line of a part; only content-disposition matters. */
static bool take_header(struct multipart *m, const char *line)
{
	static const char name[] = "content-disposition:";
	const char *value;

	if (strncasecmp(line, name, sizeof(name) - 1) != 0)
		return strchr(line, ':') != NULL;
	value = line + sizeof(name) - 1;
	value += strspn(value, " \t");
	if (strncasecmp(value, "form-data", 9) != 0)
		return true;
	part_clear(m);
	m->name = header_param(value, "name");
	m->filename = header_param(value, "filename");
	return true;
}

static enum multipart_event headers(struct multipart *m, const uint8_t *p, size_t n, size_t *used)
{
	size_t at = 0;
	bool good = true;

	if (n < 2)
		return MULTIPART_MORE;
	part_clear(m);
	while (good) {
		const uint8_t *end = memmem(p + at, n - at, "\r\n", 2);
		char *line;

		if (!end)
			return n > MULTIPART_HEADER_MAX_BYTES ? broken(m) : MULTIPART_MORE;
		if (end == p + at)
			break;
		if ((size_t)(end - p) > MULTIPART_HEADER_MAX_BYTES)
			return broken(m);
		line = strndup((const char *)p + at, (size_t)(end - p) - at);
		good = line && strlen(line) == (size_t)(end - p) - at && take_header(m, line);
		free(line);
		at = (size_t)(end - p) + 2;
	}
	if (!good)
		return broken(m);
	*used = at + 2;
	m->at_start = true;
	set_state(m, MULTIPART_BODY);
	return MULTIPART_PART;
}

static enum multipart_event body(struct multipart *m, const uint8_t *p, size_t n, size_t *used,
				 const uint8_t **ret_data, size_t *ret_len)
{
	const uint8_t *at;
	size_t before;

	/* An empty part may spare the second line break. */
	if (m->at_start && n >= m->n_line - 1 && !memcmp(p, m->line + 2, m->n_line - 2) &&
	    may_follow_line(p[m->n_line - 2])) {
		*used = m->n_line - 2;
		set_state(m, MULTIPART_AFTER_LINE);
		return MULTIPART_PART_END;
	}
	if (n < m->n_line + 1)
		return MULTIPART_MORE;
	at = memmem(p, n - 1, m->line, m->n_line);
	if (at == p && may_follow_line(p[m->n_line])) {
		*used = m->n_line;
		set_state(m, MULTIPART_AFTER_LINE);
		return MULTIPART_PART_END;
	}
	if (at == p)
		before = 2;	/* a line break that starts no boundary */
	else if (at)
		before = (size_t)(at - p);
	else
		before = n - m->n_line;
	m->at_start = false;
	*ret_data = p;
	*ret_len = *used = before;
	return MULTIPART_DATA;
}

enum multipart_event multipart_next(struct multipart *m, const uint8_t *p, size_t n, size_t *ret_used,
				    const uint8_t **ret_data, size_t *ret_len)
{
	enum multipart_event e = MULTIPART_MORE;
	size_t total = 0, used;

	*ret_used = 0;
	do {
		used = 0;
		switch (m->state) {
		case MULTIPART_PREAMBLE:
			e = preamble(m, p + total, n - total, &used);
			break;
		case MULTIPART_AFTER_LINE:
			e = after_line(m, p + total, n - total, &used);
			break;
		case MULTIPART_HEADERS:
			e = headers(m, p + total, n - total, &used);
			break;
		case MULTIPART_BODY:
			e = body(m, p + total, n - total, &used, ret_data, ret_len);
			break;
		case MULTIPART_DONE:
			used = n - total;
			e = MULTIPART_END;
			break;
		case MULTIPART_BROKEN:
			e = MULTIPART_BAD;
			break;
		}
		total += used;
	} while (e == MULTIPART_MORE && used);
	*ret_used = total;
	return e;
}
