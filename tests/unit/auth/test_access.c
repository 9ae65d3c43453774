/* SPDX-License-Identifier: MIT */
/* The lists of [access]: their text, and who is what by them. */
#include "daemon/auth/access.h"

#include <errno.h>

#include "tests/lib/test.h"

#define OWN 990

TEST(a_list_is_read)
{
	static const char text[] = " alice ,@agents, 1000-1999,7,@27,*, DOM\\bob";
	static const struct access_item want[] = {
		{ ACCESS_USER, false, 0, 0, "alice" }, { ACCESS_GROUP, false, 0, 0, "agents" }, { ACCESS_UIDS, true, 1000, 1999, "" },
		{ ACCESS_UIDS, true, 7, 7, "" }, { ACCESS_GROUP, true, 27, 27, "" }, { ACCESS_EVERYBODY, true, 0, 0, "" },
		{ ACCESS_USER, false, 0, 0, "DOM\\bob" },
	};
	static const char *const shown[] = { "alice", "@agents", "1000-1999", "7", "@27", "*", "DOM\\bob" };
	char why[ACCESS_WHY_BYTES], item[PRINCIPAL_USER_BYTES + 1];
	struct access_list l;

	CHECK_INT(access_parse(text, &l, why), 0);
	CHECK_INT(l.n, ARRAY_SIZE(want));
	for (size_t i = 0; i < l.n; i++) {
		CHECK_INT(l.v[i].kind, want[i].kind);
		CHECK_INT(l.v[i].is_known, want[i].is_known);
		CHECK_INT(l.v[i].first, want[i].first);
		CHECK_INT(l.v[i].last, want[i].last);
		CHECK_STR(l.v[i].name, want[i].name);
		CHECK_STR(access_item_text(&l.v[i], item), shown[i]);
	}
	access_list_fini(&l);
	CHECK_INT(access_parse(" none", &l, why), 0);
	CHECK_INT(l.n, 0);
}

TEST(what_is_no_list)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{ "", "names nobody" }, { "a,,b", "empty item" }, { "a,", "empty item" }, { "a b", "\"a b\" is no name" },
		{ "9-1", "\"9-1\" is no range" }, { "4294967295", "is no number" }, { "1-99999999999", "is no range" },
		{ "@", "is no name" }, { "@@x", "is no name" }, { "-x", "is no name" }, { "**", "is no name" },
		{ "none, root:x", "is no name" }, { "@99999999999", "is no number" }, { "a\x01", "is no name" },
		{ "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", "is no name" },
	};
	char many[2 * ACCESS_ITEMS_MAX + 2], why[ACCESS_WHY_BYTES];
	struct access_list l;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CHECK_INT(access_parse(rows[i].text, &l, why), -EINVAL);
		CHECK(strstr(why, rows[i].why));
		CHECK(!l.v && !l.n);
	}
	for (size_t i = 0; i < ACCESS_ITEMS_MAX; i++)
		memcpy(many + 2 * i, "1,", 2);
	memcpy(many + 2 * ACCESS_ITEMS_MAX, "1", 2);
	CHECK_INT(access_parse(many, &l, why), -EINVAL);
	CHECK(strstr(why, "more than 256"));
	many[2 * ACCESS_ITEMS_MAX - 1] = '\0';
	CHECK_INT(access_parse(many, &l, why), 0);
	CHECK_INT(l.n, ACCESS_ITEMS_MAX);
	access_list_fini(&l);
}

/* alice 1001 in @agents 500, bob 1002 in @students 501, @ops 502; what a name's number is, is known but for "svc". */
static void look_up(struct access_list *l)
{
	static const struct {
		const char *name;
		uint32_t id;
	} known[] = { { "alice", 1001 }, { "bob", 1002 }, { "agents", 500 }, { "students", 501 }, { "ops", 502 }, { "root", 0 },
		      { "dyn", ACCESS_DYNAMIC_FIRST } };

	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < ARRAY_SIZE(known); k++)
			if (!strcmp(l->v[i].name, known[k].name)) {
				l->v[i].is_known = true;
				l->v[i].first = l->v[i].last = known[k].id;
			}
}

struct lists {
	const char *deny, *admins, *allow, *observe;
};

static void make(struct access_rules *r, const struct lists *l)
{
	const char *text[ACCESS_KEYS] = { l->deny, l->admins, l->allow, l->observe };
	char why[ACCESS_WHY_BYTES];

	*r = (struct access_rules)ACCESS_RULES_NULL;
	r->own_uid = OWN;
	for (int k = 0; k < ACCESS_KEYS; k++) {
		r->is_set[k] = text[k] != NULL;
		if (text[k])
			CHECK_INT(access_parse(text[k], &r->lists[k], why), 0);
		look_up(&r->lists[k]);
	}
}

#define NOTHING "-"
#define USE	"use"
#define LOOK	"look"
#define BOTH	"use+look"
#define ADMIN	"admin"

static const char *rights(const struct access_verdict *v)
{
	if (v->is_admin)
		return v->may_use && v->may_observe ? ADMIN : "?";
	return v->may_use ? v->may_observe ? BOTH : USE : v->may_observe ? LOOK : NOTHING;
}

#define WHO(u, name, ...) { .uid = (u), .gid = (u), .pidfd = -1, .user = name, __VA_ARGS__ }
#define IN(g)		  .n_groups = 1, .groups = { g }

static const struct {
	struct lists lists;
	struct principal who;
	const char *want;
	enum access_key by;
	const char *item;	/* "" = none */
} matrix[] = {
	/* without a list: as before there were any */
	{ { 0 }, WHO(1001, "alice"), USE, ACCESS_ALLOW, "" },
	{ { 0 }, WHO(0, "root"), ADMIN, ACCESS_ADMINS, "" },
	{ { 0 }, WHO(OWN, "agentboxd"), ADMIN, ACCESS_ADMINS, "" },
	/* allow, by each kind of item */
	{ { .allow = "alice" }, WHO(1001, "alice"), USE, ACCESS_ALLOW, "alice" },
	{ { .allow = "alice" }, WHO(1001, ""), USE, ACCESS_ALLOW, "alice" },
	{ { .allow = "alice" }, WHO(1002, "bob"), NOTHING, ACCESS_ALLOW, "" },
	{ { .allow = "1001" }, WHO(1001, "alice"), USE, ACCESS_ALLOW, "1001" },
	{ { .allow = "1002-1003" }, WHO(1001, "alice"), NOTHING, ACCESS_ALLOW, "" },
	{ { .allow = "1000-1001" }, WHO(1001, "alice"), USE, ACCESS_ALLOW, "1000-1001" },
	{ { .allow = "@agents" }, WHO(1001, "alice", IN(500)), USE, ACCESS_ALLOW, "@agents" },
	{ { .allow = "@500" }, WHO(1001, "alice", IN(500)), USE, ACCESS_ALLOW, "@500" },
	{ { .allow = "@agents" }, WHO(500, "other"), USE, ACCESS_ALLOW, "@agents" },
	{ { .allow = "@agents" }, WHO(1002, "bob", IN(501)), NOTHING, ACCESS_ALLOW, "" },
	{ { .allow = "@unknown" }, WHO(1002, "unknown", IN(0)), NOTHING, ACCESS_ALLOW, "" },
	{ { .allow = "svc" }, WHO(1500, "svc"), USE, ACCESS_ALLOW, "svc" },
	{ { .allow = "*" }, WHO(1500, ""), USE, ACCESS_ALLOW, "*" },
	{ { .allow = "none" }, WHO(1001, "alice"), NOTHING, ACCESS_ALLOW, "" },
	{ { .allow = "none" }, WHO(OWN, "agentboxd"), ADMIN, ACCESS_ADMINS, "" },
	/* deny goes first */
	{ { .deny = "bob" }, WHO(1002, "bob"), NOTHING, ACCESS_DENY, "bob" },
	{ { .deny = "@students", .allow = "bob" }, WHO(1002, "bob", IN(501)), NOTHING, ACCESS_DENY, "@students" },
	{ { .deny = "bob", .observe = "bob", .admins = "bob" }, WHO(1002, "bob"), NOTHING, ACCESS_DENY, "bob" },
	{ { .deny = "*" }, WHO(0, "root"), NOTHING, ACCESS_DENY, "*" },
	{ { .deny = "*" }, WHO(OWN, "agentboxd"), ADMIN, ACCESS_ADMINS, "" },
	{ { .deny = "bob" }, WHO(1001, "alice"), USE, ACCESS_ALLOW, "" },
	/* admins */
	{ { .admins = "root, @ops" }, WHO(1001, "alice", IN(502)), ADMIN, ACCESS_ADMINS, "@ops" },
	{ { .admins = "root, @ops" }, WHO(0, "root"), ADMIN, ACCESS_ADMINS, "root" },
	{ { .admins = "@ops" }, WHO(0, "root"), USE, ACCESS_ALLOW, "" },
	{ { .admins = "none", .allow = "alice" }, WHO(0, "root"), NOTHING, ACCESS_ALLOW, "" },
	{ { .admins = "alice", .allow = "bob" }, WHO(1001, "alice"), ADMIN, ACCESS_ADMINS, "alice" },
	/* observers */
	{ { .allow = "alice", .observe = "bob" }, WHO(1002, "bob"), LOOK, ACCESS_OBSERVE, "bob" },
	{ { .allow = "alice", .observe = "alice" }, WHO(1001, "alice"), BOTH, ACCESS_ALLOW, "alice" },
	{ { .observe = "@ops" }, WHO(1001, "alice", IN(502)), BOTH, ACCESS_ALLOW, "" },
	/* of another namespace: never an admin, whatever it is called */
	{ { 0 }, WHO(0, "root", .is_foreign = true), USE, ACCESS_ALLOW, "" },
	{ { .allow = "alice" }, WHO(0, "root", .is_foreign = true), NOTHING, ACCESS_ALLOW, "" },
	{ { .admins = "@ops" }, WHO(1001, "alice", IN(502), .is_foreign = true), USE, ACCESS_ALLOW, "" },
	{ { .allow = "none" }, WHO(OWN, "agentboxd", .is_foreign = true), NOTHING, ACCESS_ALLOW, "" },
	{ { .deny = "*" }, WHO(OWN, "agentboxd", .is_foreign = true), NOTHING, ACCESS_DENY, "*" },
	{ { 0 }, WHO(OWN, "agentboxd", .is_foreign = true), USE, ACCESS_ALLOW, "" },
	/* a service's number counts by its name alone, unless it is given as a number */
	{ { .allow = "dyn" }, WHO(ACCESS_DYNAMIC_FIRST, "dyn"), USE, ACCESS_ALLOW, "dyn" },
	{ { .allow = "dyn" }, WHO(ACCESS_DYNAMIC_FIRST, "other"), NOTHING, ACCESS_ALLOW, "" },
	{ { .allow = "dyn" }, WHO(ACCESS_DYNAMIC_FIRST, ""), NOTHING, ACCESS_ALLOW, "" },
	{ { .allow = "61184-65519" }, WHO(ACCESS_DYNAMIC_FIRST, "other"), USE, ACCESS_ALLOW, "61184-65519" },
};

TEST(the_matrix)
{
	char item[PRINCIPAL_USER_BYTES + 1];

	for (size_t i = 0; i < ARRAY_SIZE(matrix); i++) {
		struct access_verdict v;
		struct access_rules r;

		make(&r, &matrix[i].lists);
		access_judge(&r, &matrix[i].who, &v);
		if (strcmp(rights(&v), matrix[i].want) || v.by != matrix[i].by)
			fprintf(stderr, "row %zu: %s by %s\n", i, rights(&v), access_key_name(v.by));
		CHECK_STR(rights(&v), matrix[i].want);
		CHECK_INT(v.by, matrix[i].by);
		CHECK_STR(v.item ? access_item_text(v.item, item) : "", matrix[i].item);
		access_rules_fini(&r);
	}
}

TEST(the_group_of_old_makes_admins)
{
	struct access_rules r = ACCESS_RULES_NULL;
	struct principal who = WHO(1001, "alice", IN(27));
	struct access_verdict v;

	access_judge(&r, &who, &v);
	CHECK(!v.is_admin && v.may_use);
	r.admin_gid = 27;
	access_judge(&r, &who, &v);
	CHECK(v.is_admin && !v.item);
	who.is_foreign = true;
	access_judge(&r, &who, &v);
	CHECK(!v.is_admin && v.is_foreign_admin && v.may_use);
}

TEST(in_words)
{
	struct access_rules r;
	struct principal who = WHO(1002, "bob", IN(501));
	struct access_verdict v;
	char text[ACCESS_TEXT_BYTES], me[PRINCIPAL_USER_BYTES + 32];

	make(&r, &(struct lists){ .deny = "@students", .allow = "alice" });
	r.places[ACCESS_DENY] = strdup("/etc/agentboxd/agentboxd.conf:12: [access] deny");
	r.places[ACCESS_ALLOW] = strdup("/etc/agentboxd/agentboxd.conf:13: [access] allow");
	access_judge(&r, &who, &v);
	access_rule_text(&r, &v, text);
	CHECK_STR(text, "@students of /etc/agentboxd/agentboxd.conf:12: [access] deny");
	who.n_groups = 0;
	access_judge(&r, &who, &v);
	access_rule_text(&r, &v, text);
	CHECK_STR(text, "/etc/agentboxd/agentboxd.conf:13: [access] allow");
	CHECK_STR(access_who_text(1002, "bob", me), "uid 1002 (bob)");
	CHECK_STR(access_who_text(1002, "", me), "uid 1002");
	access_rules_fini(&r);
}

TEST_MAIN()
