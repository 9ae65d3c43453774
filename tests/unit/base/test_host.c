/* SPDX-License-Identifier: MIT */
#include "proto/base/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"
#include "tests/lib/test.h"

TEST(host_and_port)
{
	static const struct {
		const char *text, *host;	/* host NULL = -EINVAL */
		int port;			/* -1 = none */
	} t[] = {
		{ "a.test", "a.test", -1 },   { "a.test:80", "a.test", 80 },   { "a:0", "a", 0 },
		{ "a:65535", "a", 65535 },    { "a:65536", NULL, 0 },	       { "a:", NULL, 0 },
		{ "a:b", NULL, 0 },	      { ":80", NULL, 0 },	       { "", NULL, 0 },
		{ "[::1]", "::1", -1 },	      { "[::1]:443", "::1", 443 },     { "::1", NULL, 0 },
		{ "[::1", NULL, 0 },	      { "[]:80", NULL, 0 },	       { "[::1]x", NULL, 0 },
		{ "127.0.0.1:3", "127.0.0.1", 3 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct host_port hp;
		int r = host_port_parse(t[i].text, strlen(t[i].text), &hp);

		CHECK_INT(r, t[i].host ? 0 : -EINVAL);
		if (r < 0)
			continue;
		CHECK_STR(hp.host, t[i].host);
		CHECK_INT(hp.has_port ? hp.port : -1, t[i].port);
	}
}

TEST(host_names)
{
	static const char *const good[] = { "a", "a.b", "x-y.example.org", "_dmarc.example.org", "A.B", "1.2.3.4" };
	static const char *const bad[] = { "", ".", "a.", ".a", "a..b", "-a", "a-", "a-.b", "a.-b", "a b", "a/b",
					   "a\r\nb", "a\x1b[0m", "\xc3\xa9.org" };
	char longest[80];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		CHECK(host_is_name(good[i], HOST_MAX));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(!host_is_name(bad[i], HOST_MAX));
	memset(longest, 'x', 64);
	longest[64] = 0;
	CHECK(!host_is_name(longest, HOST_MAX) && host_is_name(longest + 1, HOST_MAX) && !host_is_name("abc", 2));
	CHECK(host_port_is_valid("localhost:3000") && host_port_is_valid("[::1]:3") && host_port_is_valid("a.test"));
	CHECK(!host_port_is_valid("a.test:0") && !host_port_is_valid("a:3 ") && !host_port_is_valid("a\r\nX: y"));
}

TEST(this_machine)
{
	static const char *const here[] = { "localhost", "LOCALHOST", "a.localhost", "localhost.", "127.0.0.1", "127.9.9.9", "::1",
					    "::ffff:127.0.0.1" };
	static const char *const there[] = { "", ".", "xlocalhost", "localhost..", "localhost.test", "128.0.0.1", "::2", "0.0.0.0" };

	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		CHECK(host_is_loopback(here[i]));
	for (size_t i = 0; i < ARRAY_SIZE(there); i++)
		CHECK(!host_is_loopback(there[i]));
	CHECK(host_is_address("::1") && host_is_address("1.2.3.4") && !host_is_address("1.2.3") && !host_is_address("[::1]"));
}

TEST_MAIN()
