/* SPDX-License-Identifier: MIT */
#include "daemon/auth/access.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "proto/base/str.h"

#define BLANKS " \t"

static const char *const names[ACCESS_KEYS] = {
	[ACCESS_DENY] = "deny", [ACCESS_ADMINS] = "admins", [ACCESS_ALLOW] = "allow", [ACCESS_OBSERVE] = "observe",
};

const char *access_key_name(enum access_key k)
{
	return names[k];
}

/* --- reading a list --- */

static int printf_like(2, 3) is_wrong(char why[ACCESS_WHY_BYTES], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, ACCESS_WHY_BYTES, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static bool is_number(const char *s, size_t n)
{
	return n && strspn(s, "0123456789") >= n;
}

static int read_id(const char *s, size_t n, uint32_t *ret)
{
	uint64_t v;
	int r = str_u64(s, n, UINT32_MAX - 1, &v);

	if (!r)
		*ret = (uint32_t)v;
	return r;
}

/* What can be a name for the system: not looked up here, but never a blank, a control byte or what separates. */
static bool is_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] <= ' ' || (unsigned char)s[i] >= 0x7f || strchr(":,*\"'", s[i]))
			return false;
	return n && n < PRINCIPAL_USER_BYTES && s[0] != '-' && s[0] != '@';
}

static int read_named(const char *s, size_t n, struct access_item *ret, char why[ACCESS_WHY_BYTES])
{
	if (is_number(s, n)) {
		ret->is_known = true;
		if (read_id(s, n, &ret->first) < 0)
			return is_wrong(why, "\"%.*s\" is no number of a group or user", (int)MIN(n, 32u), s);
		ret->last = ret->first;
		return 0;
	}
	if (!is_name(s, n))
		return is_wrong(why, "\"%.*s\" is no name; write user, uid, uid-uid, @group or *, by commas", (int)MIN(n, 64u), s);
	memcpy(ret->name, s, n);
	ret->name[n] = '\0';
	return 0;
}

static int read_range(const char *s, size_t n, size_t dash, struct access_item *ret, char why[ACCESS_WHY_BYTES])
{
	*ret = (struct access_item){ .kind = ACCESS_UIDS, .is_known = true };
	if (read_id(s, dash, &ret->first) < 0 || read_id(s + dash + 1, n - dash - 1, &ret->last) < 0 || ret->first > ret->last)
		return is_wrong(why, "\"%.*s\" is no range of uids, smaller one first", (int)MIN(n, 32u), s);
	return 0;
}

static int read_item(const char *s, size_t n, struct access_item *ret, char why[ACCESS_WHY_BYTES])
{
	size_t digits = strspn(s, "0123456789");
	int r;

	*ret = (struct access_item){ .kind = ACCESS_EVERYBODY, .is_known = true };
	if (n == 1 && *s == '*')
		return 0;
	if (digits && digits + 1 < n && s[digits] == '-' && is_number(s + digits + 1, n - digits - 1))
		return read_range(s, n, digits, ret, why);
	*ret = (struct access_item){ .kind = n && *s == '@' ? ACCESS_GROUP : ACCESS_USER };
	if (ret->kind == ACCESS_GROUP)
		return read_named(s + 1, n - 1, ret, why);
	r = read_named(s, n, ret, why);
	if (!r && ret->is_known)
		ret->kind = ACCESS_UIDS;
	return r;
}

static int add_item(struct access_list *l, const char *s, size_t n, char why[ACCESS_WHY_BYTES])
{
	struct access_item *v;

	if (l->n == ACCESS_ITEMS_MAX)
		return is_wrong(why, "has more than %u items", ACCESS_ITEMS_MAX);
	if (!n)
		return is_wrong(why, "has an empty item");
	v = reallocarray(l->v, l->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	l->v = v;
	return read_item(s, n, &v[l->n++], why);
}

int access_parse(const char *text, struct access_list *ret, char why[ACCESS_WHY_BYTES])
{
	struct access_list l = { 0 };
	const char *at = text + strspn(text, BLANKS);
	int r = 0;

	*ret = (struct access_list){ 0 };
	why[0] = '\0';
	if (str_eq(at, "none"))
		return 0;
	if (!*at)
		return is_wrong(why, "names nobody; write none for that, or leave the key out");
	for (bool more = true; more && !r;) {
		size_t n;

		at += strspn(at, BLANKS);
		n = strcspn(at, ",");
		more = at[n] == ',';
		text = at + n + more;
		while (n && strchr(BLANKS, at[n - 1]))
			n--;
		r = add_item(&l, at, n, why);
		at = text;
	}
	if (r < 0)
		access_list_fini(&l);
	*ret = l;
	return r;
}

void access_list_fini(struct access_list *l)
{
	free(l->v);
	*l = (struct access_list){ 0 };
}

void access_rules_fini(struct access_rules *r)
{
	for (int k = 0; k < ACCESS_KEYS; k++) {
		access_list_fini(&r->lists[k]);
		free(r->places[k]);
		r->places[k] = NULL;
	}
}

const char *access_item_text(const struct access_item *i, char ret[PRINCIPAL_USER_BYTES + 1])
{
	size_t n = PRINCIPAL_USER_BYTES + 1;

	if (i->kind == ACCESS_EVERYBODY)
		snprintf(ret, n, "*");
	else if (i->kind == ACCESS_UIDS && i->first != i->last)
		snprintf(ret, n, "%u-%u", i->first, i->last);
	else if (i->name[0])
		snprintf(ret, n, "%s%s", i->kind == ACCESS_GROUP ? "@" : "", i->name);
	else
		snprintf(ret, n, "%s%u", i->kind == ACCESS_GROUP ? "@" : "", i->first);
	return ret;
}

/* --- the judgement --- */

static bool names_user(const struct access_item *i, const struct principal *who)
{
	if (who->user[0] && str_eq(who->user, i->name))
		return true;
	/* The number of a service's user is another's soon: it counts by its name alone. */
	return i->is_known && i->first == who->uid && !access_is_dynamic(owner_uid(who->uid));
}

static bool matches(const struct access_item *i, const struct principal *who)
{
	switch (i->kind) {
	case ACCESS_EVERYBODY:
		return true;
	case ACCESS_UIDS:
		return owner_uid(who->uid) >= i->first && owner_uid(who->uid) <= i->last;
	case ACCESS_USER:
		return names_user(i, who);
	case ACCESS_GROUP:
		return i->is_known && principal_in_group(who, i->first);
	}
	return false;
}

static const struct access_item *find(const struct access_rules *r, enum access_key k, const struct principal *who)
{
	const struct access_list *l = &r->lists[k];

	for (size_t i = 0; i < l->n; i++)
		if (matches(&l->v[i], who))
			return &l->v[i];
	return NULL;
}

static bool is_named_admin(const struct access_rules *r, const struct principal *who, const struct access_item **ret)
{
	*ret = find(r, ACCESS_ADMINS, who);
	if (*ret || owner_uid(who->uid) == r->own_uid)
		return true;
	if (!r->is_set[ACCESS_ADMINS] && who->uid == 0)
		return true;
	return r->admin_gid != (gid_t)-1 && principal_in_group(who, r->admin_gid);
}

static bool is_allowed(const struct access_rules *r, const struct principal *who, const struct access_item **ret)
{
	*ret = find(r, ACCESS_ALLOW, who);
	return *ret || !r->is_set[ACCESS_ALLOW];
}

void access_judge(const struct access_rules *r, const struct principal *who, struct access_verdict *ret)
{
	const struct access_item *denied = find(r, ACCESS_DENY, who), *admin, *allowed, *observes;

	*ret = (struct access_verdict){ .by = ACCESS_DENY, .item = denied };
	if (denied && (owner_uid(who->uid) != r->own_uid || who->is_foreign))
		return;
	*ret = (struct access_verdict){ .may_use = true, .may_observe = true, .is_admin = true, .by = ACCESS_ADMINS };
	if (is_named_admin(r, who, &admin) && !who->is_foreign) {
		ret->item = admin;
		return;
	}
	observes = find(r, ACCESS_OBSERVE, who);
	*ret = (struct access_verdict){ .may_observe = observes != NULL, .by = ACCESS_ALLOW,
					.is_foreign_admin = is_named_admin(r, who, &admin) };
	ret->may_use = is_allowed(r, who, &allowed);
	ret->item = allowed;
	if (ret->may_use || !observes)
		return;
	ret->by = ACCESS_OBSERVE;
	ret->item = observes;
}

/* --- in words --- */

const char *access_who_text(uid_t uid, const char *user, char ret[PRINCIPAL_USER_BYTES + 32])
{
	snprintf(ret, PRINCIPAL_USER_BYTES + 32, user[0] ? "uid %u (%s)" : "uid %u", owner_uid(uid), user);
	return ret;
}

void access_rule_text(const struct access_rules *r, const struct access_verdict *v, char ret[ACCESS_TEXT_BYTES])
{
	const char *place = r->places[v->by] ? r->places[v->by] : "[access]";
	char item[PRINCIPAL_USER_BYTES + 1];

	if (v->item)
		snprintf(ret, ACCESS_TEXT_BYTES, "%s of %s", access_item_text(v->item, item), place);
	else
		snprintf(ret, ACCESS_TEXT_BYTES, "%s", place);
}
