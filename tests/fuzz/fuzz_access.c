/* SPDX-License-Identifier: MIT */
/*
 * The lists of [access]: any text is read or refused with words, what was read is written and read again as the same, and the
 * judgement holds for any caller: deny goes first, and nobody of another namespace is an admin.
 * Input: lines of deny, admins, allow, observe; then the bytes of the caller.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/access.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void again(const struct access_item *i)
{
	char text[PRINCIPAL_USER_BYTES + 1], why[ACCESS_WHY_BYTES];
	struct access_list l;

	access_item_text(i, text);
	if (i->kind == ACCESS_USER && str_eq(text, "none"))
		return;
	must(access_parse(text, &l, why) == 0 && l.n == 1);
	must(l.v[0].kind == i->kind && l.v[0].first == i->first && l.v[0].last == i->last && str_eq(l.v[0].name, i->name));
	access_list_fini(&l);
}

static void read_list(struct access_rules *r, int k, const char *text)
{
	char why[ACCESS_WHY_BYTES];
	int e = access_parse(text, &r->lists[k], why);

	must(e == 0 || (e == -EINVAL && why[0] && !r->lists[k].v));
	r->is_set[k] = e == 0;
	must(r->lists[k].n <= ACCESS_ITEMS_MAX);
	for (size_t i = 0; i < r->lists[k].n; i++)
		again(&r->lists[k].v[i]);
}

static void judge(const struct access_rules *r, const struct principal *who)
{
	char text[ACCESS_TEXT_BYTES];
	struct access_verdict v;

	access_judge(r, who, &v);
	access_rule_text(r, &v, text);
	must(text[0]);
	must(!v.is_admin || (v.may_use && v.may_observe && !who->is_foreign));
	must(v.by != ACCESS_DENY || (v.item && !v.may_use && !v.may_observe));
	must(who->uid != r->own_uid || who->is_foreign || v.is_admin);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct access_rules r = ACCESS_RULES_NULL;
	struct principal who = { .pidfd = -1, .n_groups = 1 };
	char *text = strndup((const char *)p, n), *rest = text;

	r.own_uid = 990;
	for (int k = 0; k < ACCESS_KEYS && rest; k++)
		read_list(&r, k, strsep(&rest, "\n"));
	if (rest)
		(void)!sscanf(rest, "%u %u %63s", &who.uid, &who.groups[0], who.user);
	for (int foreign = 0; foreign < 2; foreign++) {
		who.is_foreign = foreign;
		judge(&r, &who);
	}
	access_rules_fini(&r);
	free(text);
	return 0;
}
