/* SPDX-License-Identifier: MIT */
/* What may go out of a sandbox: its own lists, and what nobody's lists open. */
#include "daemon/local/egress/egrule.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "daemon/local/egress/egress_host.h"
#include "daemon/local/engine/nsnet.h"
#include "proto/base/str.h"
#include "proto/cloud/model.h"
#include "tests/lib/test.h"

static uint32_t address(const char *s)
{
	struct in_addr a;

	CHECK(inet_pton(AF_INET, s, &a) == 1);
	return ntohl(a.s_addr);
}

static struct egrule *rules(const char *text, bool block)
{
	struct cloud_network *n = NULL;
	struct egrule *r = NULL;

	if (text)
		CHECK_INT(cloud_network_parse(text, &n), 0);
	CHECK_INT(egrule_new(n, block, &r), 0);
	cloud_network_free(n);
	return r;
}

TEST(ranges)
{
	static const struct {
		const char *range, *in, *out;
	} t[] = {
		{ "1.2.3.4", "1.2.3.4", "1.2.3.5" },	      { "1.2.3.4/32", "1.2.3.4", "1.2.3.5" },
		{ "10.1.2.3/8", "10.255.255.255", "11.0.0.0" }, { "10.0.0.0/31", "10.0.0.1", "10.0.0.2" },
		{ "128.0.0.0/1", "255.255.255.255", "127.255.255.255" },
	};
	static const char *const bad[] = { "", "1.2.3", "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/x", "::1", "a.b",
					   "1.2.3.4.5", "01.2.3.4444444444444444" };
	struct egrule_net n;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK(egrule_net_parse(t[i].range, &n));
		CHECK(egrule_net_has(&n, address(t[i].in)) && !egrule_net_has(&n, address(t[i].out)));
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(!egrule_net_parse(bad[i], &n));
	CHECK(egrule_net_parse("0.0.0.0/0", &n) && egrule_net_has(&n, 0) && egrule_net_has(&n, UINT32_MAX));
}

TEST(addresses)
{
	static const struct {
		const char *text;
		bool block;
		const char *to;
		enum egrule_verdict want;
	} t[] = {
		{ NULL, false, "1.1.1.1", EGRULE_ALLOW },
		{ "{}", false, "1.1.1.1", EGRULE_ALLOW },
		{ NULL, true, "1.1.1.1", EGRULE_DENY },
		{ "{\"denyOut\":[\"1.0.0.0/8\"]}", false, "1.1.1.1", EGRULE_DENY },
		{ "{\"denyOut\":[\"1.0.0.0/8\"]}", false, "2.1.1.1", EGRULE_ALLOW },
		{ "{\"denyOut\":[\"0.0.0.0/0\"]}", false, "2.1.1.1", EGRULE_DENY },
		{ "{\"allowOut\":[\"1.1.1.1\"]}", false, "2.1.1.1", EGRULE_ALLOW },
		{ "{\"allowOut\":[\"1.1.1.1\"]}", true, "2.1.1.1", EGRULE_DENY },
		{ "{\"allowOut\":[\"1.1.1.1\"]}", true, "1.1.1.1", EGRULE_ALLOW },
		{ "{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"1.1.1.1\"]}", false, "1.1.1.1", EGRULE_ALLOW },
		{ "{\"allowOut\":[\"a.b\"],\"denyOut\":[\"0.0.0.0/0\"]}", false, "1.1.1.1", EGRULE_BY_NAME },
		{ "{\"allowOut\":[\"a.b\",\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"]}", false, "1.1.1.1", EGRULE_ALLOW },
		{ "{\"allowOut\":[\"::1\"]}", true, "1.1.1.1", EGRULE_DENY },
		{ "{\"denyOut\":[\"::/1\",\"2.0.0.0/8\"]}", false, "2.1.1.1", EGRULE_DENY },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct egrule *r = rules(t[i].text, t[i].block);

		CHECK_INT(egrule_address(r, address(t[i].to)), t[i].want);
		egrule_free(r);
	}
}

TEST(names)
{
	struct egrule *r = rules("{\"allowOut\":[\"Exact.test\",\"*.deep.test\",\"9.9.9.9\"]}", true);

	CHECK(egrule_name(r, "exact.test") && !egrule_name(r, "a.exact.test") && !egrule_name(r, "xexact.test"));
	CHECK(egrule_name(r, "a.deep.test") && egrule_name(r, "a.b.deep.test"));
	CHECK(!egrule_name(r, "deep.test") && !egrule_name(r, "xdeep.test") && !egrule_name(r, ".deep.test"));
	CHECK(!egrule_name(r, "9.9.9.9") && !egrule_name(r, ""));
	egrule_free(r);
	r = rules("{\"allowOut\":[\"*\"]}", true);
	CHECK(egrule_name(r, "anything.at.all"));
	egrule_free(r);
	r = rules(NULL, false);
	CHECK(!egrule_name(r, "a.b"));
	egrule_free(r);
}

TEST(proxies)
{
	struct egrule *a = rules("{\"egressProxy\":{\"address\":\"p.test:1080\",\"username\":\"u\",\"password\":\"\"}}", false);
	struct egrule *b = rules("{\"denyOut\":[\"1.1.1.1\"],\"egressProxy\":{\"address\":\"p.test:1080\",\"username\":\"u\"}}",
				 false);
	struct egrule *none = rules("{\"egressProxy\":null}", false);

	CHECK_STR(egrule_proxy(a)->host, "p.test");
	CHECK_STR(egrule_proxy(a)->user, "u");
	CHECK(!egrule_proxy(a)->password && !egrule_proxy(none));
	CHECK(egrule_has_same_proxy(a, b) && !egrule_has_same_proxy(a, none) && egrule_has_same_proxy(none, none));
	egrule_free(a);
	egrule_free(b);
	egrule_free(none);
}

TEST(closed_and_name_server)
{
	static const struct {
		const char *text;
		bool block, closed, dns;
	} t[] = {
		{ NULL, false, false, true },
		{ NULL, true, true, false },
		{ "{\"denyOut\":[\"0.0.0.0/0\"]}", false, true, false },
		{ "{\"denyOut\":[\"0.0.0.0/1\",\"8.8.8.8\"]}", false, false, false },
		{ "{\"allowOut\":[\"1.1.1.1\"]}", true, false, false },
		{ "{\"allowOut\":[\"8.8.8.0/24\"]}", true, false, true },
		{ "{\"allowOut\":[\"a.b\"]}", true, false, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct egrule *r = rules(t[i].text, t[i].block);

		CHECK_INT(egrule_is_closed(r), t[i].closed);
		CHECK_INT(egrule_dns(r), t[i].dns);
		egrule_free(r);
	}
	CHECK(egrule_free(NULL) == NULL);
}

TEST(public_addresses)
{
	static const char *const yes[] = { "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255",
					   "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.0.1.1", "192.167.0.1",
					   "198.17.0.1", "198.20.0.1", "223.255.255.255" };
	static const char *const no[] = { "10.0.0.1", "100.64.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
					  "192.0.2.2", "198.18.0.1", "203.0.113.9" };
	static const char *const never[] = { "0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "169.254.169.254",
					     "224.0.0.1", "240.0.0.1", "255.255.255.255" };

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
		CHECK(egress_is_public(address(yes[i])) && !egress_is_never(address(yes[i])));
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		CHECK(!egress_is_public(address(no[i])) && !egress_is_never(address(no[i])));
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		CHECK(!egress_is_public(address(never[i])) && egress_is_never(address(never[i])));
}

TEST(name_servers)
{
	struct sockaddr_storage v[2];
	const struct sockaddr_in *v4 = (const void *)&v[0];

	CHECK_INT(egress_parse_resolv("", v, 2), 0);
	CHECK_INT(egress_parse_resolv("# nameserver 1.1.1.1\nsearch a.b\nnameserverx 1.1.1.1\nnameserver\n", v, 2), 0);
	CHECK_INT(egress_parse_resolv("nameserver not.an.address\nnameserver 1.2.3\n", v, 2), 0);
	CHECK_INT(egress_parse_resolv("search x\nnameserver \t 9.9.9.9 \nnameserver ::1\nnameserver 1.1.1.1", v, 2), 2);
	CHECK_INT(v4->sin_family, AF_INET);
	CHECK_INT(ntohs(v4->sin_port), NSNET_DNS_PORT);
	CHECK_INT(ntohl(v4->sin_addr.s_addr), address("9.9.9.9"));
	CHECK_INT(v[1].ss_family, AF_INET6);
}

TEST_MAIN()
