/* SPDX-License-Identifier: MIT */
#include "daemon/common/obs/journald.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/base/fd.h"
#include "proto/base/str.h"

struct out {
	char *p;
	size_t n, cap;
};

static bool is_key_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* The value in quotes, of which a backslash takes the next byte as it is. Returns the place behind it; a quote that is missing is at
 * the end. */
static const char *take_quoted(const char *at, char *ret, size_t cap)
{
	size_t n = 0;

	for (; *at && *at != '"'; at++) {
		at += *at == '\\' && at[1];
		if (n + 1 < cap)
			ret[n++] = *at;
	}
	ret[n] = 0;
	return at + (*at == '"');
}

static const char *take_bare(const char *at, char *ret, size_t cap)
{
	size_t n = strcspn(at, " ");

	snprintf(ret, cap, "%.*s", (int)MIN(n, cap - 1), at);
	return at + n;
}

bool journald_next(const char **at, struct journald_pair *ret)
{
	const char *p = *at;
	bool found = false;

	while (!found && *p) {
		size_t n = 0;

		p += strspn(p, " ");
		while (is_key_char(p[n]))
			n++;
		if (n && p[n] == '=') {
			ret->key = p;
			ret->n_key = n;
			p += n + 1;
			p = *p == '"' ? take_quoted(p + 1, ret->value, sizeof(ret->value)) :
					take_bare(p, ret->value, sizeof(ret->value));
			found = true;
		} else {
			p += strcspn(p, " ");
		}
	}
	*at = p;
	return found;
}

/* A whole field or nothing: values of this protocol have no line break, which our lines never have. */
static void put(struct out *o, const char *name, const char *value)
{
	size_t n = strlen(name), m = strlen(value);

	if (n + m + 2 > o->cap - o->n)
		return;
	memcpy(o->p + o->n, name, n);
	o->p[o->n + n] = '=';
	memcpy(o->p + o->n + n + 1, value, m);
	o->n += n + m + 2;
	o->p[o->n - 1] = '\n';
}

static void put_pair(struct out *o, const struct journald_pair *pair)
{
	static const char prefix[] = "AGENTBOX_";
	char name[sizeof(prefix) + JOURNALD_KEY_MAX];

	if (pair->n_key > JOURNALD_KEY_MAX)
		return;
	snprintf(name, sizeof(name), "%s%.*s", prefix, (int)pair->n_key, pair->key);
	for (char *c = name; *c; c++)
		if (*c >= 'a' && *c <= 'z')
			*c = (char)(*c - 'a' + 'A');
	if (str_eq(name, "AGENTBOX_ERROR"))
		put(o, "ERROR", pair->value);
	else if (str_eq(name, "AGENTBOX_DURATION_US"))
		put(o, "DURATION_USEC", pair->value);
	else
		put(o, name, pair->value);
}

size_t journald_pack(char out[JOURNALD_MAX_BYTES], const struct journald_line *line)
{
	struct out o = { .p = out, .cap = JOURNALD_MAX_BYTES };
	struct journald_pair pair;
	const char *at = line->rest;
	char text[2048], number[16];

	snprintf(number, sizeof(number), "%d", line->priority);
	snprintf(text, sizeof(text), "%s %s", line->event, line->rest);
	put(&o, "PRIORITY", number);
	put(&o, "SYSLOG_IDENTIFIER", line->identifier);
	if (line->id)
		put(&o, "MESSAGE_ID", line->id);
	put(&o, "AGENTBOX_EVENT", line->event);
	put(&o, "MESSAGE", text);
	while (journald_next(&at, &pair))
		put_pair(&o, &pair);
	return o.n;
}

bool journald_is_stream(const char *text, const struct stat *st)
{
	const char *colon = text ? strchr(text, ':') : NULL;
	uint64_t dev, ino;

	return colon && str_u64(text, (size_t)(colon - text), UINT64_MAX, &dev) == 0 &&
	       str_u64(colon + 1, strlen(colon + 1), UINT64_MAX, &ino) == 0 && st->st_dev == dev && st->st_ino == ino;
}

int journald_open(const char *path, int *ret)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd, r;

	if (strlen(path) >= sizeof(to.sun_path))
		return -ENAMETOOLONG;
	memcpy(to.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	*ret = fd;
	return 0;
}

bool journald_send(int fd, const struct journald_line *line)
{
	char out[JOURNALD_MAX_BYTES];
	size_t n = journald_pack(out, line);

	return send(fd, out, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}
