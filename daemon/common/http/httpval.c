/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/httpval.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "proto/base/str.h"

/* The weight of "…;q=0.5" in thousandths; 1000 if there is none. */
static unsigned weight(const char *s, size_t n)
{
	const char *q = memmem(s, n, "q=", 2);
	unsigned w = 0, unit = 100;

	if (!q)
		return 1000;
	q += 2;
	if (*q == '1')
		return 1000;
	if (*q != '0' || q[1] != '.')
		return 0;
	for (q += 2; unit && *q >= '0' && *q <= '9'; q++, unit /= 10)
		w += (unsigned)(*q - '0') * unit;
	return w;
}

enum coding httpval_coding(const char *accept, bool identity_only)
{
	unsigned gzip = 0, identity = 1000, star = 1001;
	bool identity_named = false;

	if (!accept || !*accept)
		return CODING_IDENTITY;
	for (const char *p = accept; p;) {
		size_t n = strcspn(p, ","), k;
		const char *name = p + strspn(p, " \t");

		k = strcspn(name, " \t;,");
		if (k == 4 && !strncasecmp(name, "gzip", 4)) {
			gzip = weight(p, n);
		} else if (k == 8 && !strncasecmp(name, "identity", 8)) {
			identity = weight(p, n);
			identity_named = true;
		} else if (k == 1 && *name == '*') {
			star = weight(p, n);
		}
		p = p[n] ? p + n + 1 : NULL;
	}
	if (!identity_named && !star)
		identity = 0;
	/* The wildcard means identity, unless that was refused. */
	if (star <= 1000 && star && !identity)
		gzip = MAX(gzip, star);
	if (!identity_only && gzip && (!identity_named || gzip >= identity))
		return CODING_GZIP;
	return identity ? CODING_IDENTITY : CODING_NONE;
}

enum range httpval_range(const char *s, uint64_t size, uint64_t *ret_first, uint64_t *ret_n)
{
	const char *dash, *end;
	uint64_t first, last;

	if (!s || strncasecmp(s, "bytes=", 6) != 0 || strchr(s, ','))
		return RANGE_WHOLE;
	s += 6;
	s += strspn(s, " \t");
	dash = strchr(s, '-');
	if (!dash)
		return RANGE_BAD;
	end = dash + 1 + strcspn(dash + 1, " \t");
	if (dash == s) {
		if (str_u64(dash + 1, (size_t)(end - dash - 1), UINT64_MAX, &last) < 0 || !last)
			return RANGE_BAD;
		*ret_n = MIN(last, size);
		*ret_first = size - *ret_n;
		return size ? RANGE_PART : RANGE_BAD;
	}
	if (str_u64(s, (size_t)(dash - s), UINT64_MAX, &first) < 0 || first >= size)
		return RANGE_BAD;
	last = size - 1;
	if (end > dash + 1 &&
	    str_u64(dash + 1, (size_t)(end - dash - 1), UINT64_MAX, &last) < 0)
		return RANGE_BAD;
	if (last < first)
		return RANGE_BAD;
	*ret_first = first;
	*ret_n = MIN(last, size - 1) - first + 1;
	return RANGE_PART;
}

static const char *const days[] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
static const char *const months[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
				      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };

void httpval_date(int64_t s, char ret[40])
{
	time_t t = s;
	struct tm tm;

	if (!gmtime_r(&t, &tm)) {
		t = 0;
		(void)gmtime_r(&t, &tm);
	}
	snprintf(ret, 40, "%s, %02d %s %d %02d:%02d:%02d GMT", days[tm.tm_wday], tm.tm_mday,
		 months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static bool digits(const char *s, size_t n, int *ret)
{
	uint64_t v;

	if (str_u64(s, n, 9999, &v) < 0)
		return false;
	*ret = (int)v;
	return true;
}

int httpval_parse_date(const char *s, int64_t *ret)
{
	struct tm tm = { 0 };
	bool found = false;

	if (strlen(s) != 29 || memcmp(s + 25, " GMT", 4) != 0 || memcmp(s + 3, ", ", 2) != 0)
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(months); i++)
		if (!memcmp(s + 8, months[i], 3)) {
			tm.tm_mon = (int)i;
			found = true;
		}
	if (!found || !digits(s + 5, 2, &tm.tm_mday) || !digits(s + 12, 4, &tm.tm_year) ||
	    !digits(s + 17, 2, &tm.tm_hour) || !digits(s + 20, 2, &tm.tm_min) ||
	    !digits(s + 23, 2, &tm.tm_sec))
		return -EINVAL;
	tm.tm_year -= 1900;
	*ret = timegm(&tm);
	return 0;
}

char *httpval_disposition(const char *name)
{
	static const char token[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "!#$&+-.^_`|~";
	size_t n = strlen(name);
	char *coded, *out;

	if (n && !name[strspn(name, token)])
		return str_printf("inline; filename=%s", name);
	if (str_is_printable(name, n) && !strpbrk(name, "\"\\"))
		return str_printf("inline; filename=\"%s\"", name);
	coded = str_percent_encode(name, n);
	out = coded ? str_printf("inline; filename*=utf-8''%s", coded) : NULL;
	free(coded);
	return out;
}
