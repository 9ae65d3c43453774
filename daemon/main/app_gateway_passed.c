/* SPDX-License-Identifier: MIT */
/*
 * The gateway's sockets that the service manager passed: of TCP, of Unix, one or several of the one name. While the daemon is away the
 * manager holds the port, so that no other program gets it, and the tokens that are sent to it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/obs/log.h"
#include "daemon/gateway/gateway.h"
#include "daemon/main/app_impl.h"
#include "proto/base/fd.h"
#include "proto/base/host.h"
#include "proto/base/str.h"

static int say(const char *what, int r)
{
	fprintf(stderr, "agentboxd: a socket named " APP_FD_GATEWAY " that was passed %s%s%s\n", what, r < 0 ? ": " : "",
		r < 0 ? strerrordesc_np(-r) : "");
	return APP_EXIT_CONFIG;
}

static int address_of(const struct sockaddr_storage *a, char ret[INET6_ADDRSTRLEN], uint16_t *ret_port)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;
	const void *raw = a->ss_family == AF_INET ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr;

	if (a->ss_family != AF_INET && a->ss_family != AF_INET6)
		return -EAFNOSUPPORT;
	*ret_port = ntohs(a->ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
	return inet_ntop(a->ss_family, raw, ret, INET6_ADDRSTRLEN) ? 0 : -errno;
}

/* As for [gateway] listen: others may reach it only where the configuration wants it, and by TLS. */
static int check_remote(const struct app *a, const char *host)
{
	if (host_is_loopback(host))
		return 0;
	if (!conf_get_bool(a->conf, "gateway", NULL, "allow_remote"))
		return say("is not of this machine alone; set [gateway] allow_remote = yes if others may reach it", 0);
	return a->gateway_tls ? 0 : say("would show tokens to everybody on the way; set [gateway] tls_cert and tls_key", 0);
}

static int listen_tcp(struct app *a, int fd, const struct sockaddr_storage *at)
{
	struct gateway_listen l = { .fd = fd, .tls = a->gateway_tls };
	char host[INET6_ADDRSTRLEN], shown[128];
	bool is_v6 = at->ss_family == AF_INET6;
	uint16_t port = 0;
	int r = address_of(at, host, &port);

	r = r < 0 ? say("has an address that is not understood", r) : check_remote(a, host);
	if (r) {
		fd_close(fd);
		return r;
	}
	if (host_is_loopback(host))
		snprintf(shown, sizeof(shown), "http%s://localhost:%u", a->gateway_tls ? "s" : "", port);
	else
		snprintf(shown, sizeof(shown), "http%s://%s%s%s:%u", a->gateway_tls ? "s" : "", is_v6 ? "[" : "", host,
			 is_v6 ? "]" : "", port);
	l.shown = shown;
	if (gateway_listen(a->gateway, &l) < 0)
		return APP_EXIT_UNAVAILABLE;
	if (!a->gateway_url)
		a->gateway_url = strdup(shown);
	return a->gateway_url ? 0 : APP_EXIT_UNAVAILABLE;
}

static int listen_unix(struct app *a, int fd)
{
	char *path = rpc_socket_place(fd), *shown = path ? str_printf("unix:%s", path) : NULL;
	struct gateway_listen l = { .fd = fd, .is_unix = true, .shown = shown };
	int r = shown ? gateway_listen(a->gateway, &l) : -ENOMEM;

	if (!shown)
		fd_close(fd);
	if (!a->gateway_path && r == 0)
		a->gateway_path = give(path);
	free(path);
	free(shown);
	return r < 0 ? APP_EXIT_UNAVAILABLE : 0;
}

static int listen_one(struct app *a, int fd)
{
	struct sockaddr_storage at = { 0 };
	socklen_t n = sizeof(at), size = sizeof(int);
	int value = 0, r = 0;

	if (getsockname(fd, (struct sockaddr *)&at, &n) < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) < 0)
		r = -errno;
	else if (!value)
		r = -EINVAL;
	if (!r)
		r = fd_set_nonblock(fd, true);
	if (r < 0) {
		fd_close(fd);
		return say("is no listening socket", r);
	}
	return at.ss_family == AF_UNIX ? listen_unix(a, fd) : listen_tcp(a, fd, &at);
}

int app_gateway_listen_passed(struct app *a, size_t *ret_n)
{
	int fd, r = 0;

	*ret_n = 0;
	while (!r && (fd = listen_fds_take_one(&a->passed, APP_FD_GATEWAY)) >= 0) {
		r = listen_one(a, fd);
		++*ret_n;
	}
	if (*ret_n && (conf_is_set(a->conf, "gateway", NULL, "listen") || conf_is_set(a->conf, "gateway", NULL, "socket")))
		log_warn("gateway", "advice=\"[gateway] listen and socket are not used: the service manager passes its sockets\"");
	return r;
}
