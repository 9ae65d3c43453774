/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/page_pass.h"

#include <stdio.h>
#include <string.h>

#include "daemon/gateway/keyed_sum.h"
#include "proto/base/cc.h"
#include "proto/base/str.h"

#define SUM_LEN (KEYED_SUM_TEXT - 1)

_Static_assert(PAGE_PASS_TEXT <= KEYED_SUM_MAX && PAGE_PASS_KEY == KEYED_SUM_KEY, "what is summed fits");

static const char kinds[] = { [PAGE_TICKET] = 't', [PAGE_SESSION] = 's' };

void page_pass_write(const uint8_t key[PAGE_PASS_KEY], const struct page_pass *p, char ret[PAGE_PASS_TEXT])
{
	char nonce[2 * PAGE_PASS_NONCE + 1], sum[KEYED_SUM_TEXT];
	int n;

	str_hex(p->nonce, sizeof(p->nonce), nonce);
	n = snprintf(ret, PAGE_PASS_TEXT, "%c.%u.%u.%lld.%s.", kinds[p->kind], (unsigned)p->sight, p->uid, (long long)p->end_s, nonce);
	keyed_sum(key, ret, (size_t)n, sum);
	(void)snprintf(ret + n, PAGE_PASS_TEXT - (size_t)n, "%s", sum);
}

/* The number up to the next dot; *at goes behind it. */
static bool take_part(const char **at, uint64_t max, uint64_t *ret)
{
	size_t n = strcspn(*at, ".");

	if ((*at)[n] != '.' || str_u64(*at, n, max, ret) < 0)
		return false;
	*at += n + 1;
	return true;
}

static bool take_nonce(const char **at, uint8_t ret[PAGE_PASS_NONCE])
{
	for (size_t i = 0; i < PAGE_PASS_NONCE; i++) {
		int high = str_hex_value((*at)[2 * i]), low = high < 0 ? -1 : str_hex_value((*at)[2 * i + 1]);

		if (low < 0)
			return false;
		ret[i] = (uint8_t)(high << 4 | low);
	}
	*at += 2 * PAGE_PASS_NONCE + 1;
	return (*at)[-1] == '.';
}

static bool take_fields(const char *text, struct page_pass *ret)
{
	uint64_t sight, uid, end_s;
	const char *at = text + 2;

	if (!text[0] || text[1] != '.' || !take_part(&at, PAGE_ALL, &sight) || !take_part(&at, UINT32_MAX, &uid) ||
	    !take_part(&at, INT64_MAX / 1000, &end_s) || !take_nonce(&at, ret->nonce))
		return false;
	ret->sight = (enum page_sight)sight;
	ret->uid = (uid_t)uid;
	ret->end_s = (int64_t)end_s;
	return true;
}

bool page_pass_read(const uint8_t key[PAGE_PASS_KEY], const char *text, enum page_pass_kind kind, int64_t now_s, struct page_pass *ret)
{
	size_t n = strnlen(text, PAGE_PASS_TEXT);
	char sum[KEYED_SUM_TEXT];

	*ret = (struct page_pass){ .kind = kind };
	if (n >= PAGE_PASS_TEXT || n <= SUM_LEN || text[0] != kinds[kind])
		return false;
	keyed_sum(key, text, n - SUM_LEN, sum);
	return str_eq_secret(text + n - SUM_LEN, SUM_LEN, sum, SUM_LEN) && take_fields(text, ret) && ret->end_s > now_s;
}

bool page_cookie_find(const char *header, char ret[PAGE_PASS_TEXT])
{
	const char *at = header;

	for (;;) {
		size_t n;

		at += strspn(at, " \t;");
		if (!*at)
			return false;
		n = strcspn(at, ";");
		if (str_starts(at, PAGE_COOKIE "=") && n - strlen(PAGE_COOKIE "=") < PAGE_PASS_TEXT) {
			n -= strlen(PAGE_COOKIE "=");
			memcpy(ret, at + strlen(PAGE_COOKIE "="), n);
			ret[n] = '\0';
			return true;
		}
		at += n;
	}
}
