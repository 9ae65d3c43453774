/* SPDX-License-Identifier: MIT */
/*
 * C-11: one set of rules, judged by the answers of the cloud's own validators to the same inputs: net.ParseIP and
 * ParseCIDR for addresses, govalidator's IsDNSName for the hosts of rules, net.SplitHostPort and idna.Display for
 * masks, its parser of placeholders.
 */
#include "proto/cloud/netrules.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/base/buf.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

#define OK (-1)

static struct cloud_iam_token aws = { .name = (char *)"aws", .audience = (char *)"a", .token_type = (char *)"JWT-SVID" };

/* The field that is refused, or OK. */
static int judge(const struct cloud_network *n, struct netrules_with with)
{
	struct netrules_fault f = { .text = "" };

	if (netrules_network_ok(n, &with, &f))
		return OK;
	CHECK(f.text[0] && str_is_utf8(f.text, strlen(f.text)));
	return (int)f.field;
}

static int check(const char *text, struct netrules_with with)
{
	struct cloud_network *n = NULL;
	int r;

	CHECK_INT(cloud_network_parse(text, &n), 0);
	r = judge(n, with);
	cloud_network_free(n);
	return r;
}

static const struct netrules_with any = { .secure = TRI_TRUE };

TEST(c_11_addresses)
{
	static const struct {
		const char *text;
		bool is_address, ok;
	} t[] = {
		{ "1.2.3.4", true, true },	     { "1.2.3.4/32", true, true },
		{ "10.0.0.0/8", true, true },	     { "10.0.0.0/33", false, false },
		{ "10.0.0.0/", false, false },	     { "10.0.0.0/08", true, true },
		{ "10.0.0.0/-1", false, false },     { "10.0.0.0/+8", false, false },
		{ "01.2.3.4", false, false },	     { "0.0.0.0", true, false },
		{ "0.0.0.0/0", true, true },	     { "0.0.0.0/00", true, false },
		{ "0.0.0.0/1", true, false },	     { "0.0.0.1/0", true, true },
		{ "::", true, false },		     { "::/0", true, false },
		{ "::1", true, true },		     { "2001:db8::/32", true, true },
		{ "2001:db8::/129", false, false },  { "::ffff:1.2.3.4", true, true },
		{ "::ffff:0.0.0.0", true, false },   { "::ffff:0.0.0.0/96", true, false },
		{ "::ffff:1.2.3.4/96", true, true }, { "fe80::1%eth0", false, false },
		{ "1.2.3", false, false },	     { "1.2.3.4.5", false, false },
		{ "0x1.2.3.4", false, false },	     { " 1.2.3.4", false, false },
		{ "1.2.3.4 ", false, false },	     { "", false, false },
		{ "example.com", false, false },     { "1.2.3.4/32/1", false, false },
		{ "256.1.1.1", false, false },	     { "::1.2.3.4", true, true },
		{ "::0.0.0.0", true, false },	     { "0:0:0:0:0:0:0:0", true, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *entry = (char *)t[i].text, *all = (char *)NETRULES_ALL_TRAFFIC;
		struct cloud_network deny = { .deny_out = { &entry, 1 } };
		struct cloud_network allow = { .allow_out = { &entry, 1 }, .deny_out = { &all, 1 } };
		struct cloud_network alone = { .allow_out = { &entry, 1 } };

		CHECK_INT(netrules_is_name(t[i].text), !t[i].is_address);
		CHECK_INT(judge(&deny, any), t[i].ok ? OK : NETRULES_DENY_OUT);
		/* What is no address counts as a name, whatever it looks like; a name needs that all is denied. */
		CHECK_INT(judge(&allow, any), t[i].ok || !t[i].is_address ? OK : NETRULES_ALLOW_OUT);
		CHECK_INT(judge(&alone, any), t[i].ok ? OK : NETRULES_ALLOW_OUT);
	}
	CHECK_INT(check("{\"allowOut\":[\"*.example.com\",\"example.com.\",\"*\"],\"denyOut\":[\"0.0.0.0/0\"]}", any), OK);
	CHECK_INT(check("{\"allowOut\":[\"x.org\"],\"denyOut\":[\"0.0.0.0/00\"]}", any), NETRULES_DENY_OUT);
}

/* "No internet" with names that are allowed: said so that every cloud takes it. */
TEST(c_11_no_internet_and_a_name)
{
	struct cloud_network n = { 0 };

	CHECK_INT(cloud_strs_add(&n.allow_out, "1.2.3.4"), 0);
	CHECK_INT(netrules_complete(&n, TRI_FALSE), 0);
	CHECK_INT(n.deny_out.n, 0);
	CHECK_INT(cloud_strs_add(&n.allow_out, "example.com"), 0);
	CHECK_INT(netrules_complete(&n, TRI_UNSET), 0);
	CHECK_INT(netrules_complete(&n, TRI_TRUE), 0);
	CHECK_INT(n.deny_out.n, 0);
	CHECK_INT(judge(&n, any), NETRULES_ALLOW_OUT);
	CHECK_INT(netrules_complete(&n, TRI_FALSE), 0);
	CHECK_INT(netrules_complete(&n, TRI_FALSE), 0);
	CHECK_INT(n.deny_out.n, 1);
	CHECK_STR(n.deny_out.v[0], "0.0.0.0/0");
	CHECK_INT(judge(&n, any), OK);
	cloud_strs_fini(&n.allow_out);
	cloud_strs_fini(&n.deny_out);
}

#define A63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

TEST(c_11_hosts_of_rules)
{
	static const struct {
		const char *domain;
		bool ok;
	} t[] = {
		{ "example.com", true },   { "*.example.com", false }, { "1.2.3.4", false },
		{ "example.com.", true },  { "example.com_", true },   { "example.com..", false },
		{ "a-.b", true },	   { "-a.b", false },	       { "_a.b", true },
		{ "a_b", true },	   { "a", true },	       { "A.B", true },
		{ "", false },		   { ".", false },	       { "_", true },
		{ "a.-b", false },	   { "a b", false },	       { "b\xc3\xbc" "cher.example", false },
		{ "1.2.3", true },	   { "999.1.1.1", true },      { "::1", false },
		{ "a..b", false },	   { ".a", false },	       { "a:80", false },
		{ "localhost", true },	   { A63, true },	       { A63 "a", false },
		{ A63 "_", true },	   { A63 "._", true },	       { "a._", true },
		{ "a.b-", true },	   { "a-", true },	       { A63 "." A63, true },
		{ A63 "." A63 "a", false }, { A63 "." A63 ".", true },  { A63 "." A63 ".a", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct cloud_rule rule = { .domain = (char *)t[i].domain };
		struct cloud_network n = { .rules = &rule, .n_rules = 1 };
		int r = judge(&n, any);

		if (r != (t[i].ok ? OK : NETRULES_RULES))
			fprintf(stderr, "\"%s\"\n", t[i].domain);
		CHECK_INT(r, t[i].ok ? OK : NETRULES_RULES);
	}
}

static int judge_value(const char *value, struct netrules_with with)
{
	struct cloud_kv kv = { (char *)"A", (char *)value };
	struct cloud_rule rule = { .domain = (char *)"x.org", .headers = { &kv, 1 } };
	struct cloud_network n = { .rules = &rule, .n_rules = 1 };

	return judge(&n, with);
}

TEST(c_11_placeholders)
{
	static const struct netrules_with create = { .secure = TRI_TRUE, .knows_tokens = true, .tokens = &aws, .n_tokens = 1 };
	static const struct {
		const char *value;
		bool ok;
	} t[] = {
		{ "Bearer ${e2b.identity.tokens.aws}", true },	{ "${agentbox.identity.tokens.aws}", true },
		{ "${e2b.identity.tokens.}", false },		{ "${e2b.identity.tokens.aws", false },
		{ "${agentbox.identity.tokens.}", false },	{ "${e2b.secrets.}", false },
		{ "${e2b.secrets.a${e2b.secrets.b}", false },	{ "${e2b.identity.tokens.a${e2b.secrets.b}}", false },
		{ "${e2b.other.x} ${e2b.secrets.k} $ ${", true }, { "${e2b.secrets. Key_1-x }", true },
		{ "${e2b.secrets.a b}", false },		{ "${e2b.secrets.SEC_a}", false },
		{ "${e2b.secrets.a.b}", false },		{ "a\tb", true },
		{ "a\001", false },				{ "a\177", false },
		{ "\xc3\xa4", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(judge_value(t[i].value, any), t[i].ok ? OK : NETRULES_RULES);
	/* Not registered: an error where the tokens are known; any name else. */
	CHECK_INT(judge_value("${e2b.identity.tokens.aws}", create), OK);
	CHECK_INT(judge_value("${e2b.identity.tokens.gcp}", create), NETRULES_RULES);
	CHECK_INT(judge_value("${e2b.identity.tokens.gcp}", any), OK);
	/* One flavour's placeholders are text to the other. */
	CHECK_INT(judge_value("${e2b.secrets.}", (struct netrules_with){ .flavour = flavour_get(FLAVOUR_AGENTBOX) }), OK);
	CHECK(netrules_has_placeholder("x${agentbox.identity.tokens.a}") && !netrules_has_placeholder("${e2b.x}"));
}

/* `n` headers, each with a secret: that one, or one of its own. */
static int judge_secrets(unsigned n, const char *name)
{
	struct cloud_kvs headers = { 0 };
	struct cloud_rule rule = { .domain = (char *)"x.org" };
	struct cloud_network network = { .rules = &rule, .n_rules = 1 };
	int r;

	for (unsigned i = 0; i < n; i += 2) {
		char key[16], value[128];

		snprintf(key, sizeof(key), "h%u", i);
		snprintf(value, sizeof(value), "${e2b.secrets.%s%u}${e2b.secrets.%s%u}", name, *name == '=' ? 0 : i,
			 name, *name == '=' ? 0 : i + 1);
		if (*name == '=')
			snprintf(value, sizeof(value), "${e2b.secrets.KEY}${e2b.secrets. key }");
		CHECK_INT(cloud_kvs_add(&headers, key, value), 0);
	}
	rule.headers = headers;
	r = judge(&network, any);
	cloud_kvs_fini(&headers);
	return r;
}

TEST(c_11_secrets_are_counted_by_name)
{
	CHECK_INT(judge_secrets(34, "="), OK);		/* one, 34 times */
	CHECK_INT(judge_secrets(32, "k"), OK);
	CHECK_INT(judge_secrets(34, "k"), NETRULES_RULES);
}

static int judge_rules(unsigned n_domains, unsigned n_headers)
{
	struct cloud_rule rules[12] = { { 0 } };
	struct cloud_network n = { .rules = rules, .n_rules = n_domains };
	char domain[12][16], name[16];
	int r;

	for (unsigned i = 0; i < n_domains; i++) {
		snprintf(domain[i], sizeof(domain[i]), "d%u.test", i);
		rules[i].domain = domain[i];
		for (unsigned k = 0; k < n_headers; k++) {
			snprintf(name, sizeof(name), "h%u", k);
			CHECK_INT(cloud_kvs_add(&rules[i].headers, name, "v"), 0);
		}
	}
	r = judge(&n, any);
	for (unsigned i = 0; i < n_domains; i++)
		cloud_kvs_fini(&rules[i].headers);
	return r;
}

TEST(case_084_limits)
{
	char long_value[2050];
	struct cloud_kv kv = { long_value, (char *)"v" };
	struct cloud_rule rule = { .domain = (char *)"x.org", .headers = { &kv, 1 } };
	struct cloud_network n = { .rules = &rule, .n_rules = 1 };

	CHECK_INT(judge_rules(10, 20), OK);
	CHECK_INT(judge_rules(11, 1), NETRULES_RULES);
	CHECK_INT(judge_rules(1, 21), NETRULES_RULES);
	CHECK_INT(check("{\"rules\":{\"x.org\":[{},{}]}}", any), NETRULES_RULES);
	CHECK_INT(check("{\"rules\":{\"x.org\":[{\"transform\":{\"headers\":{\"A b\":\"c\"}}}]}}", any), NETRULES_RULES);
	memset(long_value, 'x', sizeof(long_value));
	long_value[2049] = 0;
	CHECK_INT(judge_value(long_value, any), NETRULES_RULES);
	CHECK_INT(judge_value(long_value + 1, any), OK);
	CHECK_INT(judge(&n, any), NETRULES_RULES);
	kv.key = long_value + 2049 - 64;
	CHECK_INT(judge(&n, any), OK);
	kv.key--;
	CHECK_INT(judge(&n, any), NETRULES_RULES);
}

#define PROXY(address) "{\"egressProxy\":{\"address\":\"" address "\"}}"

TEST(case_085_proxy)
{
	static const char *const inner[] = { PROXY("127.0.0.1:1080"), PROXY("100.64.1.1:1080"), PROXY("172.31.0.1:1080"),
					     PROXY("192.168.0.1:1"), PROXY("0.1.2.3:1"), PROXY("[::1]:1080"),
					     PROXY("[::]:1080"), PROXY("[fe80::1]:1080"), PROXY("[fd00::1]:1080"),
					     PROXY("[::ffff:10.0.0.1]:1"), PROXY("localhost:1080"), PROXY("h"), PROXY("h:0"),
					     PROXY("h:65536"), PROXY("::1:80"), PROXY("a b:1") };
	struct cloud_network n = { .egress_address = (char *)"h.org:1", .egress_password = (char *)"p" };

	CHECK_INT(check(PROXY("proxy.example.com:1080"), any), OK);
	CHECK_INT(check(PROXY("[2001:db8::1]:1080"), any), OK);
	CHECK_INT(check(PROXY("172.32.0.1:1080"), any), OK);
	for (size_t i = 0; i < ARRAY_SIZE(inner); i++)
		CHECK_INT(check(inner[i], any), NETRULES_PROXY_ADDRESS);
	CHECK_INT(judge(&n, any), NETRULES_PROXY_USERNAME);
	n.egress_username = (char *)"u";
	CHECK_INT(judge(&n, any), OK);
	n.egress_address = NULL;
	CHECK_INT(judge(&n, any), NETRULES_PROXY_ADDRESS);
}

TEST(c_11_masks)
{
	static const struct {
		const char *mask;
		bool ok;
	} t[] = {
		{ "localhost", true },	      { "localhost:8080", true },  { "localhost:${PORT}", true },
		{ "${PORT}-x.example.com", false }, { "${PORT}", false },	   { "a.b:${PORT}", true },
		{ "a_b.c", false },	      { "a b", false },		   { "a/b", false },
		{ "[::1]", false },	      { "[::1]:80", false },	   { "::1", false },
		{ "1.2.3.4:5", true },	      { "example.com.", true },	   { "-a.b", false },
		{ "a-.b", false },	      { "ab--cd.e", false },	   { "xn--bcher-kva.example", true },
		{ "b\xc3\xbc" "cher.example", false }, { "BIG.example", true }, { "a..b", true },
		{ ".a", true },		      { "a.", true },		   { "", true },
		{ ":80", true },	      { "a:", true },		   { "a:b:c", false },
		{ "*.a", false },	      { "a@b", false },		   { "a?b", false },
		{ "a#b", false },	      { "a\\b", false },	   { "a\tb", false },
		{ "a%b", false },	      { "${PORT}:80", false },	   { "a--b", true },
		{ "xn--", false },	      { "a:[b", false },	   { "a{b", false },
		/* Ours alone: these would be bytes in the head of a request. */
		{ "a:1\r\nx: y", false },     { "a:\x01", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct cloud_network n = { .mask_request_host = (char *)t[i].mask };
		int r = judge(&n, any);

		if (r != (t[i].ok ? OK : NETRULES_MASK))
			fprintf(stderr, "\"%s\"\n", t[i].mask);
		CHECK_INT(r, t[i].ok ? OK : NETRULES_MASK);
	}
}

TEST(case_036_ingress)
{
	static const struct netrules_with open = { .secure = TRI_FALSE }, update = { .replaces_egress = true };

	CHECK_INT(check("{\"allowPublicTraffic\":false}", any), OK);
	CHECK_INT(check("{\"allowPublicTraffic\":false}", open), NETRULES_PUBLIC);
	CHECK_INT(check("{\"allowPublicTraffic\":true}", update), NETRULES_PUBLIC);
	CHECK_INT(check("{\"maskRequestHost\":\"h\"}", update), NETRULES_MASK);
}

TEST(tokens)
{
	struct cloud_iam_token v[6] = { aws, aws, aws, aws, aws, aws };
	struct netrules_fault f;

	CHECK(netrules_tokens_ok(v, 5, &f));
	CHECK(!netrules_tokens_ok(v, 6, &f));
	CHECK_INT(f.field, NETRULES_TOKENS);
	v[0].name = (char *)"a}";
	CHECK(!netrules_tokens_ok(v, 1, &f));
	v[0].name = (char *)"";
	CHECK(!netrules_tokens_ok(v, 1, &f));
	v[0] = aws;
	v[0].audience = (char *)"";
	CHECK(!netrules_tokens_ok(v, 1, &f));
	v[0] = aws;
	v[0].token_type = (char *)"JWT";
	CHECK(!netrules_tokens_ok(v, 1, &f));
}

TEST_MAIN()
