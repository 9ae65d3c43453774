/* SPDX-License-Identifier: MIT */
#include "proto/base/host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "proto/base/str.h"

#define LABEL_MAX 63u

int host_port_parse(const char *s, size_t n, struct host_port *ret)
{
	struct host_port hp = { 0 };
	const char *end = s + n, *behind;
	uint64_t port;

	if (n && *s == '[') {
		behind = memchr(s, ']', n);
		if (!behind)
			return -EINVAL;
		n = (size_t)(behind++ - ++s);
	} else {
		behind = memchr(s, ':', n);
		if (!behind)
			behind = end;
		n = (size_t)(behind - s);
	}
	if (!n || n > HOST_MAX || (behind < end && *behind != ':'))
		return -EINVAL;
	if (behind < end) {
		if (str_u64(behind + 1, (size_t)(end - behind - 1), UINT16_MAX, &port) < 0)
			return -EINVAL;
		hp.has_port = true;
		hp.port = (uint16_t)port;
	}
	memcpy(hp.host, s, n);
	*ret = hp;
	return 0;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool host_is_name(const char *s, size_t max)
{
	size_t n = strlen(s), label = 0;

	if (!n || n > max)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '.') {
			if (!label || s[i - 1] == '-')
				return false;
			label = 0;
		} else if ((!is_letter(s[i]) && (s[i] != '-' || !label)) || ++label > LABEL_MAX) {
			return false;
		}
	}
	return label && s[n - 1] != '-';
}

bool host_is_address(const char *s)
{
	struct in6_addr a;

	return inet_pton(AF_INET, s, &a) == 1 || inet_pton(AF_INET6, s, &a) == 1;
}

bool host_port_is_valid(const char *s)
{
	struct host_port hp;

	return host_port_parse(s, strlen(s), &hp) == 0 && (!hp.has_port || hp.port) &&
	       (host_is_name(hp.host, HOST_MAX) || host_is_address(hp.host));
}

bool host_is_loopback(const char *s)
{
	static const char local[] = "localhost";
	size_t n = strlen(s), m = sizeof(local) - 1;
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, s, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, s, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
	n -= n && s[n - 1] == '.';
	return n >= m && strncasecmp(s + n - m, local, m) == 0 && (n == m || s[n - m - 1] == '.');
}

bool host_is_any(const char *s)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, s, &v4) == 1)
		return v4.s_addr == INADDR_ANY;
	return inet_pton(AF_INET6, s, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}
