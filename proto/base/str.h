/* SPDX-License-Identifier: MIT */
/* Text: checked numbers and durations, UTF-8, percent, base64 and hex coding. */
#ifndef AB_PROTO_BASE_STR_H
#define AB_PROTO_BASE_STR_H

#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

#include "proto/base/cc.h"

static inline bool str_eq(const char *a, const char *b)
{
	return !strcmp(a, b);
}

static inline bool str_starts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

static inline bool str_is_empty(const char *s)
{
	return !s || !*s;
}

/* strdup that maps NULL to NULL. */
char *str_dup(const char *s);
void str_freep(char **s);	/* for scoped() */
char *str_free_secret(char *s);	/* wipes it first; NULL is fine; returns NULL */
/* Heap string by format; NULL without memory. */
char *str_printf(const char *fmt, ...) printf_like(1, 2) must_check;
/* Copies, always NUL-terminates; returns false if it had to cut. */
bool str_copy(char *dst, size_t cap, const char *src);
/* The same for a text of another's that explains itself at its end: what is too long loses its middle, and has
 * STR_CUT there. UTF-8 stays so. */
#define STR_CUT " ... "
void str_copy_ends(char *dst, size_t cap, const char *src);
void str_lower(char *s);	/* ASCII */
bool mem_eq_ci(const void *a, size_t a_len, const char *b);	/* ASCII case-blind */

/* Decimal digits only, the whole string. 0, -EINVAL, -ERANGE above max. */
must_check int str_u64(const char *s, size_t n, uint64_t max, uint64_t *ret);
/* "90s", "5m", "1h30m", "250ms", "2d"; a bare number is -EINVAL. At most 10 years (-ERANGE). */
must_check int str_duration_ms(const char *s, uint64_t *ret_ms);
/* "64k", "16M", "1G", "1T" or plain bytes. */
must_check int str_bytes(const char *s, uint64_t *ret);

/* Bytes of the well-formed UTF-8 sequence at p, which has n bytes; 0 for none, and for NUL. */
size_t str_utf8_len(const void *p, size_t n);
/* Well-formed UTF-8 without NUL. */
bool str_is_utf8(const void *p, size_t n);
/* Makes a text, which may be foreign or cut, one line of UTF-8, in place: control characters become blanks, half a character at the
 * end goes, and where other bytes are no UTF-8, all that are not ASCII become '?'. */
void str_clean_line(char *s);

/* Bytes 0x20..0x7e only. */
bool str_is_printable(const char *s, size_t n);

/* Of one hexadecimal digit, -1 of anything else. */
int str_hex_value(char c);
/* Writes "%5B"; returns the place behind it. */
char *str_percent_byte(char *at, unsigned char c);
/* Percent coding of everything but unreserved characters (RFC 3986). Heap; NULL without memory. */
char *str_percent_encode(const char *s, size_t n);
/* In place; plus_is_space for query strings. Returns the new length or -EINVAL. */
must_check ssize_t str_percent_decode(char *s, size_t n, bool plus_is_space);
/* The same of a whole string. 0, or -EINVAL also for one that gives a NUL. */
must_check int str_unescape(char *s, bool plus_is_space);

/* Standard alphabet. Heap strings; NULL without memory. */
char *str_base64_encode(const void *p, size_t n, bool pad);
/* Accepts standard and URL-safe alphabets, padded or not. Writes at most n * 3 / 4 + 1 bytes to
 * `ret`, which may be `s` itself. Returns the length or -EINVAL. */
must_check ssize_t str_base64_decode(const char *s, size_t n, uint8_t *ret);
void str_hex(const void *p, size_t n, char *ret);	/* 2n + 1 bytes */

/* Constant-time in the content; lengths may leak. */
bool str_eq_secret(const char *a, size_t a_len, const char *b, size_t b_len);

/* RFC 3339 with 0 to 9 fractional digits and any offset → ms since 1970. 0 or -EINVAL. */
must_check int str_rfc3339_ms(const char *s, int64_t *ret_ms);
/* Writes "2026-08-21T10:00:00.123456Z"; frac = number of fractional digits (0, 3, 6 or 9). */
void str_rfc3339(int64_t us, int frac, char ret[40]);

/* Removes empty, "." and ".." segments of an absolute path, in place; never longer. */
void str_clean_path(char *path);

#endif
