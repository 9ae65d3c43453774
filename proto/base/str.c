/* SPDX-License-Identifier: MIT */
#include "proto/base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

char *str_free_secret(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
	return NULL;
}

char *str_dup(const char *s)
{
	return s ? strdup(s) : NULL;
}

void str_freep(char **s)
{
	free(*s);
}

char *str_printf(const char *fmt, ...)
{
	va_list ap;
	char *s = NULL;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : s;
}

bool str_copy(char *dst, size_t cap, const char *src)
{
	size_t n = strlen(src), k = n < cap ? n : cap - 1;

	memcpy(dst, src, k);
	dst[k] = 0;
	return k == n;
}

static bool is_inside_char(const char *p)
{
	return ((unsigned char)*p & 0xc0) == 0x80;
}

void str_copy_ends(char *dst, size_t cap, const char *src)
{
	size_t n = strlen(src), room = cap - sizeof(STR_CUT), head = room / 2;
	const char *tail = src + n - (room - head);

	if (str_copy(dst, cap, src))
		return;
	while (head && is_inside_char(src + head))
		head--;
	while (is_inside_char(tail))
		tail++;
	memcpy(dst + head, STR_CUT, sizeof(STR_CUT) - 1);
	memcpy(dst + head + sizeof(STR_CUT) - 1, tail, strlen(tail) + 1);
}

static int lower(int c)
{
	return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

void str_lower(char *s)
{
	for (; *s; s++)
		*s = (char)lower(*s);
}

bool mem_eq_ci(const void *a, size_t a_len, const char *b)
{
	const unsigned char *p = a;

	if (a_len != strlen(b))
		return false;
	for (size_t i = 0; i < a_len; i++)
		if (lower(p[i]) != lower((unsigned char)b[i]))
			return false;
	return true;
}

int str_u64(const char *s, size_t n, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (!n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		unsigned d = (unsigned)(unsigned char)s[i] - '0';

		if (d > 9)
			return -EINVAL;
		if (v > (UINT64_MAX - d) / 10)
			return -ERANGE;
		v = v * 10 + d;
	}
	if (v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

static int take_number(const char **s, uint64_t *ret)
{
	size_t n = strspn(*s, "0123456789");
	int r = str_u64(*s, n, UINT64_MAX, ret);

	*s += n;
	return r;
}

int str_duration_ms(const char *s, uint64_t *ret_ms)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = { { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 }, { "ms", 1 } };
	const uint64_t max = 3650ull * 86400000;
	uint64_t total = 0;
	size_t next_unit = 0;

	if (!*s)
		return -EINVAL;
	while (*s) {
		uint64_t v;
		size_t u, len;
		int r = take_number(&s, &v);

		if (r < 0)
			return r;
		len = strspn(s, "dhms");
		for (u = next_unit; u < ARRAY_SIZE(units); u++)
			if (strlen(units[u].unit) == len && !strncmp(units[u].unit, s, len))
				break;
		if (u == ARRAY_SIZE(units))
			return -EINVAL;
		next_unit = u + 1;
		s += len;
		if (v > max / units[u].ms)
			return -ERANGE;
		total += v * units[u].ms;
		if (total > max)
			return -ERANGE;
	}
	*ret_ms = total;
	return 0;
}

int str_bytes(const char *s, uint64_t *ret)
{
	uint64_t v;
	unsigned shift = 0;
	int r = take_number(&s, &v);

	if (r < 0)
		return r;
	if (*s == 'k' || *s == 'K')
		shift = 10;
	else if (*s == 'M')
		shift = 20;
	else if (*s == 'G')
		shift = 30;
	else if (*s == 'T')
		shift = 40;
	if (shift)
		s++;
	if (*s)
		return -EINVAL;
	if (v > (UINT64_MAX >> shift))
		return -ERANGE;
	*ret = v << shift;
	return 0;
}

size_t str_utf8_len(const void *data, size_t n)
{
	static const struct {
		unsigned char lo, hi, second_lo, second_hi, n;
	} t[] = {
		{ 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
		{ 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};
	const unsigned char *p = data;

	if (!n || !*p)
		return 0;
	if (*p < 0x80)
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		if (*p < t[i].lo || *p > t[i].hi)
			continue;
		if (n < t[i].n || p[1] < t[i].second_lo || p[1] > t[i].second_hi)
			return 0;
		for (size_t k = 2; k < t[i].n; k++)
			if ((p[k] & 0xc0) != 0x80)
				return 0;
		return t[i].n;
	}
	return 0;
}

/* Are these eight bytes all ASCII, and none of them a NUL? */
static bool is_ascii_word(const unsigned char *p)
{
	const uint64_t high = 0x8080808080808080u;
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return !(w & high) && ((w + (high - 0x0101010101010101u)) & high) == high;
}

bool str_is_utf8(const void *data, size_t n)
{
	const unsigned char *p = data;

	for (size_t i = 0, step; i < n; i += step) {
		if (n - i >= 8 && is_ascii_word(p + i)) {
			step = 8;
			continue;
		}
		step = p[i] && p[i] < 0x80 ? 1 : str_utf8_len(p + i, n - i);
		if (!step)
			return false;
	}
	return true;
}

void str_clean_line(char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			s[i] = ' ';
	while (n && !str_is_utf8(s, n)) { /* a cut may have split a character */
		if ((unsigned char)s[n - 1] < 0x80)
			break;
		s[--n] = 0;
	}
	if (!str_is_utf8(s, n))
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)s[i] >= 0x80)
				s[i] = '?';
}

bool str_is_printable(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] < 0x20 || s[i] > 0x7e)
			return false;
	return true;
}

static bool is_unreserved(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

char *str_percent_byte(char *at, unsigned char c)
{
	static const char digits[] = "0123456789ABCDEF";

	*at++ = '%';
	*at++ = digits[c >> 4];
	*at++ = digits[c & 15];
	return at;
}

char *str_percent_encode(const char *s, size_t n)
{
	char *out = malloc(n * 3 + 1), *at = out;

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (is_unreserved(c)) {
			*at++ = (char)c;
			continue;
		}
		at = str_percent_byte(at, c);
	}
	*at = 0;
	return out;
}

int str_hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

ssize_t str_percent_decode(char *s, size_t n, bool plus_is_space)
{
	size_t out = 0;

	for (size_t i = 0; i < n; i++) {
		if (s[i] == '+' && plus_is_space) {
			s[out++] = ' ';
		} else if (s[i] == '%') {
			int hi, lo;

			if (n - i < 3)
				return -EINVAL;
			hi = str_hex_value(s[i + 1]);
			lo = str_hex_value(s[i + 2]);
			if (hi < 0 || lo < 0)
				return -EINVAL;
			s[out++] = (char)(hi << 4 | lo);
			i += 2;
		} else {
			s[out++] = s[i];
		}
	}
	return (ssize_t)out;
}

int str_unescape(char *s, bool plus_is_space)
{
	ssize_t n = str_percent_decode(s, strlen(s), plus_is_space);

	if (n < 0 || memchr(s, 0, (size_t)n))
		return -EINVAL;
	s[n] = 0;
	return 0;
}

static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *str_base64_encode(const void *data, size_t n, bool pad)
{
	const uint8_t *p = data;
	char *out = malloc((n + 2) / 3 * 4 + 1), *at = out;

	if (!out)
		return NULL;
	for (; n >= 3; n -= 3, p += 3) {
		*at++ = b64[p[0] >> 2];
		*at++ = b64[(p[0] & 3) << 4 | p[1] >> 4];
		*at++ = b64[(p[1] & 15) << 2 | p[2] >> 6];
		*at++ = b64[p[2] & 63];
	}
	if (n) {
		*at++ = b64[p[0] >> 2];
		*at++ = b64[(p[0] & 3) << 4 | (n == 2 ? p[1] >> 4 : 0)];
		if (n == 2)
			*at++ = b64[(p[1] & 15) << 2];
		if (pad)
			for (size_t i = n; i < 3; i++)
				*at++ = '=';
	}
	*at = 0;
	return out;
}

static int b64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	if (c == '/' || c == '_')
		return 63;
	return -1;
}

ssize_t str_base64_decode(const char *s, size_t n, uint8_t *ret)
{
	uint32_t acc = 0;
	unsigned bits = 0;
	size_t out = 0, digits = 0, pad = 0;

	while (n && s[n - 1] == '=' && pad < 2) {
		n--;
		pad++;
	}
	for (; digits < n; digits++) {
		int v = b64_value(s[digits]);

		if (v < 0)
			return -EINVAL;
		acc = acc << 6 | (unsigned)v;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			ret[out++] = (uint8_t)(acc >> bits);
		}
	}
	if (digits % 4 == 1 || (pad && (digits + pad) % 4))
		return -EINVAL;
	return (ssize_t)out;
}

void str_hex(const void *data, size_t n, char *ret)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++) {
		ret[2 * i] = digits[p[i] >> 4];
		ret[2 * i + 1] = digits[p[i] & 15];
	}
	ret[2 * n] = 0;
}

bool str_eq_secret(const char *a, size_t a_len, const char *b, size_t b_len)
{
	volatile unsigned char diff = 0;

	if (a_len != b_len)
		return false;
	for (size_t i = 0; i < a_len; i++)
		diff = (unsigned char)(diff | ((unsigned char)a[i] ^ (unsigned char)b[i]));
	return !diff;
}

static bool take_digits(const char **s, int n, int *ret)
{
	int v = 0;

	for (int i = 0; i < n; i++) {
		if ((*s)[i] < '0' || (*s)[i] > '9')
			return false;
		v = v * 10 + ((*s)[i] - '0');
	}
	*s += n;
	*ret = v;
	return true;
}

static bool take_char(const char **s, char c)
{
	if (**s != c)
		return false;
	(*s)++;
	return true;
}

/* Days since 1970-01-01 of a proleptic Gregorian date (H. Hinnant's algorithm). */
static int64_t days_from_civil(int64_t y, int m, int d)
{
	int64_t era, doe;
	int yoe, doy;

	y -= m <= 2;
	era = (y >= 0 ? y : y - 399) / 400;
	yoe = (int)(y - era * 400);
	doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	doe = (int64_t)yoe * 365 + yoe / 4 - yoe / 100 + doy;
	return era * 146097 + doe - 719468;
}

int str_rfc3339_ms(const char *s, int64_t *ret_ms)
{
	static const int month_days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int y, mo, d, h, mi, se, ms = 0, oh = 0, om = 0;
	int64_t t;

	if (!take_digits(&s, 4, &y) || !take_char(&s, '-') || !take_digits(&s, 2, &mo) ||
	    !take_char(&s, '-') || !take_digits(&s, 2, &d))
		return -EINVAL;
	if (*s != 'T' && *s != 't' && *s != ' ')
		return -EINVAL;
	s++;
	if (!take_digits(&s, 2, &h) || !take_char(&s, ':') || !take_digits(&s, 2, &mi) ||
	    !take_char(&s, ':') || !take_digits(&s, 2, &se))
		return -EINVAL;
	if (mo < 1 || mo > 12 || d < 1 || d > month_days[mo - 1] || h > 23 || mi > 59 || se > 60)
		return -EINVAL;
	if (*s == '.') {
		int n = 0, digit;

		for (s++; n < 9 && take_digits(&s, 1, &digit); n++)
			if (n < 3)
				ms = ms * 10 + digit;
		if (!n)
			return -EINVAL;
		for (; n < 3; n++)
			ms *= 10;
	}
	if (*s == 'Z' || *s == 'z') {
		s++;
	} else if (*s == '+' || *s == '-') {
		int sign = *s++ == '-' ? -1 : 1;

		if (!take_digits(&s, 2, &oh) || !take_char(&s, ':') || !take_digits(&s, 2, &om) ||
		    oh > 23 || om > 59)
			return -EINVAL;
		oh *= sign;
		om *= sign;
	} else {
		return -EINVAL;
	}
	if (*s)
		return -EINVAL;
	t = days_from_civil(y, mo, d) * 86400 + h * 3600 + mi * 60 + se - oh * 3600 - om * 60;
	*ret_ms = t * 1000 + ms;
	return 0;
}

void str_rfc3339(int64_t us, int frac, char ret[40])
{
	int64_t sec = us >= 0 ? us / 1000000 : -((999999 - us) / 1000000);
	long sub = (long)(us - sec * 1000000);
	time_t t = (time_t)sec;
	struct tm tm;
	int n;

	gmtime_r(&t, &tm);
	/* Four digits of the year, which strftime() does not promise. */
	n = snprintf(ret, 32, "%04u-%02u-%02uT%02u:%02u:%02u", (unsigned)MAX(tm.tm_year + 1900, 0) % 1000000u,
		     (unsigned)(tm.tm_mon + 1) % 100u, (unsigned)tm.tm_mday % 100u, (unsigned)tm.tm_hour % 100u,
		     (unsigned)tm.tm_min % 100u, (unsigned)tm.tm_sec % 100u);
	if (frac == 3)
		snprintf(ret + n, 40 - (size_t)n, ".%03ldZ", sub / 1000);
	else if (frac == 6)
		snprintf(ret + n, 40 - (size_t)n, ".%06ldZ", sub);
	else if (frac == 9)
		snprintf(ret + n, 40 - (size_t)n, ".%06ld000Z", sub);
	else
		snprintf(ret + n, 40 - (size_t)n, "Z");
}

void str_clean_path(char *path)
{
	size_t at = 0;

	for (char *p = path, *next; p; p = next) {
		size_t n = strcspn(p, "/");

		next = p[n] ? p + n + 1 : NULL;
		if (!n || (n == 1 && p[0] == '.'))
			continue;
		if (n == 2 && p[0] == '.' && p[1] == '.') {
			while (at && path[--at] != '/')
				;
			continue;
		}
		/* What is written is never ahead of what is read: a segment was preceded by a slash. */
		path[at++] = '/';
		memmove(path + at, p, n);
		at += n;
	}
	if (!at)
		path[at++] = '/';
	path[at] = 0;
}
