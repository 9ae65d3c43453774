/* SPDX-License-Identifier: MIT */
#include "daemon/main/gateway_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define SEPARATORS " \t,"
#define BACKLOG	   512
#define PORT_MIN   20000u
#define PORT_MAX   32000u	/* below what kernels give to outgoing connections */
#define TRIES	   200u

static int parse_one(const char *p, size_t n, struct host_port *ret, struct status *why)
{
	if (host_port_parse(p, n, ret) < 0 || !ret->has_port || !ret->port) {
		status_set(why, R_FIELD_INVALID, "\"%.*s\" is not ADDRESS:PORT", (int)MIN(n, (size_t)100), p);
		return -EINVAL;
	}
	if (host_is_address(ret->host) || str_eq(ret->host, "localhost"))
		return 0;
	status_set(why, R_FIELD_INVALID, "\"%.100s\" is neither an address of this machine nor localhost", ret->host);
	return -EINVAL;
}

int gateway_addresses_parse(const char *text, struct host_port ret[GATEWAY_ADDRESSES_MAX], size_t *ret_n, struct status *why)
{
	*ret_n = 0;
	for (const char *p = text + strspn(text, SEPARATORS); *p; p += strspn(p, SEPARATORS)) {
		size_t n = strcspn(p, SEPARATORS);

		if (*ret_n == GATEWAY_ADDRESSES_MAX) {
			status_set(why, R_FIELD_INVALID, "at most %u addresses", GATEWAY_ADDRESSES_MAX);
			return -EINVAL;
		}
		if (parse_one(p, n, &ret[*ret_n], why) < 0)
			return -EINVAL;
		++*ret_n;
		p += n;
	}
	return 0;
}

static socklen_t make_address(const char *address, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *in = (struct sockaddr_in *)(void *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)ret;

	*ret = (struct sockaddr_storage){ 0 };
	if (inet_pton(AF_INET, address, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		return sizeof(*in);
	}
	if (inet_pton(AF_INET6, address, &in6->sin6_addr) != 1)
		return 0;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	return sizeof(*in6);
}

/* SO_REUSEADDR is for connections of the daemon before; on Linux it never shares a port that is listened on. */
int gateway_bind(const char *address, uint16_t port, int *ret)
{
	scoped(fd_closep) int fd = -1;
	struct sockaddr_storage a;
	socklen_t n = make_address(address, port, &a);
	int on = 1;

	if (!n)
		return -EINVAL;
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return -errno;
	if (a.ss_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&a, n) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	*ret = fd;
	fd = -1;
	return 0;
}

static bool has_option(int fd, int name, int wanted)
{
	socklen_t n = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &n) == 0 && value == wanted;
}

bool gateway_is_bound(int fd, const char *address, uint16_t port)
{
	struct sockaddr_storage wanted, at = { 0 };
	socklen_t n = make_address(address, port, &wanted), at_len = sizeof(at);

	return n && getsockname(fd, (struct sockaddr *)&at, &at_len) == 0 && at_len == n && !memcmp(&at, &wanted, n) &&
	       has_option(fd, SO_ACCEPTCONN, 1) && has_option(fd, SO_TYPE, SOCK_STREAM) && has_option(fd, SO_PROTOCOL, IPPROTO_TCP);
}

static bool is_free(const char *address, uint16_t port)
{
	int fd, r = gateway_bind(address, port, &fd);

	if (!r)
		fd_close(fd);
	return r != -EADDRINUSE;
}

static uint16_t choose(void)
{
	struct rng rng;
	uint64_t seed;

	rng_system(&seed, sizeof(seed));
	rng_seed(&rng, seed);
	for (unsigned i = 0; i < TRIES; i++) {
		uint16_t port = (uint16_t)(PORT_MIN + rng_below(&rng, PORT_MAX - PORT_MIN));

		if (is_free("127.0.0.1", port) && is_free("::1", port))
			return port;
	}
	return 0;
}

static int read_port(int dir, uint16_t *ret)
{
	uint64_t port = 0;
	char *text;
	int r = fd_read_file(dir, GATEWAY_PORT_FILE, 16, &text, NULL);

	if (r < 0)
		return r == -EFBIG ? -EBADMSG : r;
	r = str_u64(text, strcspn(text, "\n"), UINT16_MAX, &port);
	free(text);
	*ret = (uint16_t)port;
	return r < 0 || !port ? -EBADMSG : 0;
}

int gateway_kept_port(const char *state_dir, uint16_t *ret)
{
	scoped(fd_closep) int dir = open(state_dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	char text[16];
	int r;

	if (dir < 0)
		return -errno;
	r = read_port(dir, ret);
	if (r != -ENOENT)
		return r;
	*ret = choose();
	if (!*ret)
		return -EADDRINUSE;
	snprintf(text, sizeof(text), "%u\n", *ret);
	return fd_write_file(dir, GATEWAY_PORT_FILE, text, strlen(text), 0600);
}
