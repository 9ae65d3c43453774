/* SPDX-License-Identifier: MIT */
/* What agentboxctl port-forward reads: pairs of ports, the gateway's address, the gateway's answer. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/forward/forward.h"
#include "tests/lib/test.h"

TEST(pairs)
{
	static const struct {
		const char *text;
		bool good;
		uint16_t local, remote;
	} t[] = {
		{ "8080:3000", true, 8080, 3000 }, { ":3000", true, 0, 3000 }, { "3000", true, 3000, 3000 }, { "1:65535", true, 1, 65535 },
		{ "00080:00001", true, 80, 1 }, { "", false, 0, 0 }, { ":", false, 0, 0 }, { "80:", false, 0, 0 }, { "0", false, 0, 0 },
		{ "0:80", false, 0, 0 }, { ":0", false, 0, 0 }, { "65536", false, 0, 0 }, { "80:65536", false, 0, 0 }, { "000080", false, 0, 0 },
		{ "1:2:3", false, 0, 0 }, { "-1", false, 0, 0 }, { "+1", false, 0, 0 }, { " 80", false, 0, 0 }, { "80 ", false, 0, 0 },
		{ "99999999999999999999", false, 0, 0 }, { "http:80", false, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct forward_pair p = { 0 };

		CHECK_INT(forward_pair_read(t[i].text, &p), t[i].good);
		CHECK_INT(p.local, t[i].local);
		CHECK_INT(p.remote, t[i].remote);
	}
}

TEST(addresses_of_the_gateway)
{
	static const struct {
		const char *url, *host;
		uint16_t port;
	} t[] = {
		{ "http://localhost:24711", "localhost", 24711 }, { "http://127.0.0.1:1", "127.0.0.1", 1 }, { "http://[::1]:65535", "::1", 65535 },
		{ "https://localhost:1", NULL, 0 }, { "http://localhost", NULL, 0 }, { "http://:1", NULL, 0 }, { "http://[::1", NULL, 0 },
		{ "http://[]:1", NULL, 0 }, { "http://[::1]1", NULL, 0 }, { "http://a:1/", NULL, 0 }, { "http://a:0", NULL, 0 }, { "", NULL, 0 },
		{ "http://", NULL, 0 },
	};
	char host[FORWARD_HOST_BYTES];
	uint16_t port;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_INT(forward_url_read(t[i].url, host, &port), t[i].host != NULL);
		if (t[i].host) {
			CHECK_STR(host, t[i].host);
			CHECK_INT(port, t[i].port);
		}
	}
}

/* In a block of its own size, so that a sanitizer sees what is read behind it. */
static enum forward_answer answer(const char *text, size_t n, bool eof, size_t *ret_used, char *why)
{
	char *copy = malloc(n + !n);
	enum forward_answer a;

	CHECK(copy);
	memcpy(copy, text, n);
	a = forward_answer_read(copy, n, eof, ret_used, why);
	free(copy);
	return a;
}

TEST(answers)
{
	static const struct {
		const char *text;
		enum forward_answer want;
		const char *why;
	} t[] = {
		{ "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n", FORWARD_AGREED, "" },
		{ "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n", FORWARD_REFUSED, "no" },
		{ "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n\x1b[", FORWARD_REFUSED, "?[" },
		{ "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n", FORWARD_REFUSED, "the gateway answers with HTTP 400" },
		{ "SSH-2.0-OpenSSH_9.2\r\n", FORWARD_REFUSED, "the gateway does not answer as one of agentboxd does" },
		{ "HTTP/1.1", FORWARD_REFUSED, "the gateway does not answer as one of agentboxd does" },
		{ "HTTP/1.1 101 Switching", FORWARD_REFUSED, "the gateway answers with HTTP 101" },
	};
	char why[FORWARD_WHY_BYTES];
	size_t used;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		size_t n = strlen(t[i].text);

		CHECK_INT(answer(t[i].text, n, true, &used, why), t[i].want);
		CHECK_INT(used, t[i].want == FORWARD_AGREED ? n : 0);
		if (t[i].want == FORWARD_REFUSED)
			CHECK_STR(why, t[i].why);
		/* No piece of it decides otherwise. */
		for (size_t k = 0; k < n; k++) {
			enum forward_answer a = answer(t[i].text, k, false, &used, why);

			CHECK(a == FORWARD_MORE || a == t[i].want);
		}
	}
	CHECK_INT(answer("HTTP/1.1 101 S\r\n\r\nbytes", 23, false, &used, why), FORWARD_AGREED);
	CHECK_INT(used, 18);
}

TEST_MAIN()
