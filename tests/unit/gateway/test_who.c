/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/who.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/test.h"

TEST(pages)
{
	static const struct { const char *origin, *site; bool is_tls, foreign; } t[] = {
		{ NULL, NULL, false, false },
		{ "http://localhost:4711", NULL, false, false },
		{ "http://localhost:4711", "same-origin", false, false },
		{ "HTTP://LOCALHOST:4711", NULL, false, false },
		{ "https://localhost:4711", NULL, true, false },
		{ "https://localhost:4711", NULL, false, true },
		{ "http://localhost:3000", "same-site", false, true },
		{ "http://localhost", NULL, false, true },
		{ "https://evil.example", "cross-site", false, true },
		{ "null", NULL, false, true },
		{ "", NULL, false, true },
		{ NULL, "none", false, false },
		{ NULL, "same-origin", false, false },
		{ NULL, "same-site", false, true },
		{ NULL, "cross-site", false, true },
		{ NULL, "anything", false, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct fields head = FIELDS_NULL;

		CHECK_INT(fields_put(&head, ":authority", "localhost:4711"), 0);
		if (t[i].origin)
			CHECK_INT(fields_put(&head, "origin", t[i].origin), 0);
		if (t[i].site)
			CHECK_INT(fields_put(&head, "sec-fetch-site", t[i].site), 0);
		CHECK_INT(who_is_foreign_page(&head, t[i].is_tls), t[i].foreign);
		fields_fini(&head);
	}
}

/* One good value does not hide another. */
TEST(a_second_origin_counts)
{
	struct fields head = FIELDS_NULL;

	CHECK_INT(fields_put(&head, ":authority", "localhost"), 0);
	CHECK_INT(fields_put(&head, "origin", "http://localhost"), 0);
	CHECK_INT(fields_put(&head, "origin", "http://evil.example"), 0);
	CHECK(who_is_foreign_page(&head, false));
	fields_fini(&head);
}

TEST(hosts)
{
	static const struct { const char *authority; bool local; } t[] = {
		{ "localhost", true }, { "localhost:4711", true }, { "LocalHost:1", true }, { "127.0.0.1:80", true },
		{ "[::1]:80", true }, { "3000-iabc.localhost:4711", true }, { "192.0.2.7:80", true },
		{ "localhost.evil.example", false }, { "evil.example:4711", false }, { "3000-iabc.evil.example", false },
		{ "notlocalhost", false }, { "", false }, { "[::1", false }, { NULL, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(who_is_local_host(t[i].authority), t[i].local);
}

static int listen_on(struct sockaddr_storage *a, socklen_t *n, int family)
{
	struct sockaddr_in *in = (struct sockaddr_in *)(void *)a;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*a = (struct sockaddr_storage){ .ss_family = (sa_family_t)family };
	*n = family == AF_INET ? sizeof(*in) : sizeof(struct sockaddr_in6);
	if (family == AF_INET)
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)(void *)a)->sin6_addr = in6addr_loopback;
	if (fd < 0 || bind(fd, (struct sockaddr *)a, *n) < 0 || listen(fd, 1) < 0 ||
	    getsockname(fd, (struct sockaddr *)a, n) < 0) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

static void check_family(int family)
{
	struct sockaddr_storage a;
	struct who_lookup *l;
	struct who_peer peer;
	int server, client, conn;
	socklen_t n;

	server = listen_on(&a, &n, family);
	CHECK_INT(who_lookup_new(&l), 0);
	if (server < 0 || !l) {
		who_lookup_free(l);
		return;		/* this kernel has none of it */
	}
	client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_INT(connect(client, (struct sockaddr *)&a, n), 0);
	conn = accept(server, NULL, NULL);
	who_find(l, conn, &peer);
	CHECK(peer.is_known && peer.uid == geteuid());
	close(client);
	/* Its uid reads 0 now: nobody is better than root. */
	who_find(l, conn, &peer);
	CHECK(!peer.is_known);
	close(conn);
	close(server);
	who_lookup_free(l);
}

TEST(the_uid_of_a_peer)
{
	check_family(AF_INET);
	check_family(AF_INET6);
}

TEST(no_tcp_no_peer)
{
	struct who_lookup *l;
	struct who_peer peer;
	int pair[2];

	CHECK_INT(who_lookup_new(&l), 0);
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	who_find(l, pair[0], &peer);
	CHECK(!peer.is_known);
	who_find(NULL, pair[0], &peer);
	CHECK(!peer.is_known);
	close(pair[0]);
	close(pair[1]);
	who_lookup_free(l);
}

TEST_MAIN()
