/* SPDX-License-Identifier: MIT */
/* TLS: RFC 8446 §4.1.2, RFC 6066 §3. HTTP: RFC 9112 §3.2. */
#include "daemon/local/egress/sniff.h"

#include <arpa/inet.h>
#include <string.h>

#include "proto/base/str.h"

#define TLS_HANDSHAKE	 22
#define TLS_RECORD_MAX	 (16384 + 256)
#define TLS_CLIENT_HELLO 1
#define TLS_SERVER_NAME	 0
#define TLS_HOST_NAME	 0

/* --- names --- */

static bool take_name(const uint8_t *p, size_t n, char ret[SNIFF_NAME_MAX + 1])
{
	struct in_addr a;
	size_t label = 0;

	if (n && p[n - 1] == '.')
		n--;
	if (!n || n > SNIFF_NAME_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		uint8_t c = p[i];

		if (c >= 'A' && c <= 'Z')
			c = (uint8_t)(c + 32);
		if (c == '.' ? !label : !((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
			return false;
		label = c == '.' ? 0 : label + 1;
		if (label > 63)
			return false;
		ret[i] = (char)c;
	}
	ret[n] = '\0';
	return label && inet_pton(AF_INET, ret, &a) != 1;
}

/* --- TLS --- */

/* What is left of a structure; `bad` once something did not fit into it. */
struct in {
	const uint8_t *p;
	size_t n;
	bool bad;
};

static size_t number(struct in *in, unsigned bytes)
{
	size_t v = 0;

	if (in->n < bytes) {
		in->bad = true;
		in->n = 0;
		return 0;
	}
	for (unsigned i = 0; i < bytes; i++)
		v = v << 8 | in->p[i];
	in->p += bytes;
	in->n -= bytes;
	return v;
}

/* The next `n` bytes of it. */
static struct in part(struct in *in, size_t n)
{
	struct in out = { in->p, n, false };

	if (in->n < n) {
		in->bad = true;
		in->n = 0;
		return (struct in){ .bad = true };
	}
	in->p += n;
	in->n -= n;
	return out;
}

static struct in vector(struct in *in, unsigned length_bytes)
{
	return part(in, number(in, length_bytes));
}

/* The one host_name of a server_name extension. */
static bool server_name(struct in e, char ret[SNIFF_NAME_MAX + 1])
{
	struct in list = vector(&e, 2), name;
	bool found = false;

	while (!list.bad && list.n) {
		size_t type = number(&list, 1);

		name = vector(&list, 2);
		if (list.bad || type != TLS_HOST_NAME || found || !take_name(name.p, name.n, ret))
			return false;
		found = true;
	}
	return found && !list.bad && !e.bad && !e.n;
}

static bool hello(struct in h, char ret[SNIFF_NAME_MAX + 1])
{
	struct in extensions, e;
	bool found = false;

	(void)part(&h, 2 + 32);		/* version, random */
	(void)vector(&h, 1);		/* session */
	(void)vector(&h, 2);		/* suites */
	(void)vector(&h, 1);		/* compression */
	extensions = vector(&h, 2);
	while (!extensions.bad && extensions.n) {
		size_t type = number(&extensions, 2);

		e = vector(&extensions, 2);
		if (extensions.bad)
			return false;
		if (type != TLS_SERVER_NAME)
			continue;
		if (found || !server_name(e, ret))
			return false;
		found = true;
	}
	return found && !extensions.bad && !h.bad && !h.n;
}

/* The hello may be cut into records; they are joined here. */
static enum sniff tls(const uint8_t *p, size_t n, char ret[SNIFF_NAME_MAX + 1])
{
	static const uint8_t head[] = { TLS_HANDSHAKE, 3 };
	uint8_t joined[SNIFF_MAX_BYTES];
	size_t have = 0, want = 4;
	struct in in = { p, n, false }, body;

	while (have < want) {
		size_t length, k;

		if (in.n < 5)
			return memcmp(in.p, head, MIN(in.n, sizeof(head))) ? SNIFF_NONE : SNIFF_MORE;
		if (memcmp(in.p, head, sizeof(head)))
			return SNIFF_NONE;
		(void)number(&in, 3);
		length = number(&in, 2);
		if (!length || length > TLS_RECORD_MAX)
			return SNIFF_NONE;
		k = MIN(length, in.n);
		if (have + k > sizeof(joined))
			return SNIFF_NONE;
		memcpy(joined + have, in.p, k);
		have += k;
		if (have && joined[0] != TLS_CLIENT_HELLO)
			return SNIFF_NONE;
		if (have >= 4)
			want = 4 + ((size_t)joined[1] << 16 | (size_t)joined[2] << 8 | joined[3]);
		if (want > sizeof(joined))
			return SNIFF_NONE;
		if (k < length)
			break;
		(void)part(&in, k);
	}
	if (have < want)
		return SNIFF_MORE;
	body = (struct in){ joined + 4, want - 4, false };
	return hello(body, ret) ? SNIFF_TLS : SNIFF_NONE;
}

/* --- HTTP --- */

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

static bool take_host(const uint8_t *p, size_t n, char ret[SNIFF_NAME_MAX + 1])
{
	size_t host;

	while (n && is_blank(*p)) {
		p++;
		n--;
	}
	while (n && is_blank(p[n - 1]))
		n--;
	for (host = 0; host < n && p[host] != ':'; host++)
		;
	for (size_t i = host + 1; i < n; i++)
		if (p[i] < '0' || p[i] > '9')
			return false;
	return take_name(p, host, ret);
}

bool sniff_host(const char *host, char ret[SNIFF_NAME_MAX + 1])
{
	return take_host((const uint8_t *)host, strlen(host), ret);
}

static bool is_method_char(uint8_t c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* One line of a head, without its end. */
static bool header_line(const uint8_t *p, size_t n, bool *found, char ret[SNIFF_NAME_MAX + 1])
{
	if (!n || is_blank(*p))
		return false;			/* a folded line */
	if (n < 5 || !mem_eq_ci(p, 4, "host"))
		return true;
	if (p[4] != ':')
		return !is_blank(p[4]);		/* "Host :" */
	if (*found || !take_host(p + 5, n - 5, ret))
		return false;
	return *found = true;
}

/* "METHOD SP …" so far? */
static bool begins_well(const uint8_t *p, size_t n)
{
	size_t i = 0;

	while (i < n && i < 32 && is_method_char(p[i]))
		i++;
	return i == n || (i && p[i] == ' ');
}

static enum sniff http(const uint8_t *p, size_t n, char ret[SNIFF_NAME_MAX + 1])
{
	bool found = false, first = true;
	size_t at = 0;

	if (!begins_well(p, n))
		return SNIFF_NONE;
	for (;;) {
		const uint8_t *lf = memchr(p + at, '\n', n - at);
		size_t line;

		if (memchr(p + at, '\0', lf ? (size_t)(lf - p) - at : n - at))
			return SNIFF_NONE;
		if (!lf)
			return SNIFF_MORE;
		line = (size_t)(lf - p) - at;
		if (!line || lf[-1] != '\r')
			return SNIFF_NONE;
		line--;
		if (memchr(p + at, '\r', line))
			return SNIFF_NONE;
		if (!line && !first)
			return found ? SNIFF_HTTP : SNIFF_NONE;
		if (first && (line < 9 || !mem_eq_ci(p + at + line - 8, 7, "HTTP/1.")))
			return SNIFF_NONE;
		if (!first && !header_line(p + at, line, &found, ret))
			return SNIFF_NONE;
		first = false;
		at += line + 2;
	}
}

enum sniff sniff_name(const uint8_t *p, size_t n, char ret[SNIFF_NAME_MAX + 1])
{
	enum sniff r;

	if (!n)
		return SNIFF_MORE;
	n = MIN(n, SNIFF_MAX_BYTES);
	r = p[0] == TLS_HANDSHAKE ? tls(p, n, ret) : http(p, n, ret);
	return r == SNIFF_MORE && n == SNIFF_MAX_BYTES ? SNIFF_NONE : r;
}
