/* SPDX-License-Identifier: MIT */
/*
 * The agent's port inside the sandbox, where programs ask for it at localhost. Nothing of the agent runs there: a socket of
 * the sandbox's network listens for us, and what comes is answered as if it had come through the edge.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/net/http.h"
#include "daemon/common/obs/log.h"
#include "daemon/local/agent/envd.h"
#include "daemon/local/state/local.h"
#include "daemon/local/state/state.h"
#include "proto/base/fd.h"

#define BACKLOG	    128
#define CONNS_MAX   64u		/* of one sandbox */
#define STREAMS_MAX 32u
#define IDLE_MS	    60000u

struct envd_inside {
	struct local *l;
	struct sandbox *s;		/* NULL: it has stopped */
	struct http_server *server;	/* NULL: the socket has not come yet */
	int family;
	struct grave grave;
};

static void ask(struct envd_inside *in);

static void on_request(struct http_stream *x, void *user)
{
	struct envd_inside *in = user;

	if (in->s->state == SANDBOX_RUNNING || in->s->state == SANDBOX_SNAPSHOTTING)
		edge_to_envd(in->l, in->s, x);
	else	/* its processes are about to stand still */
		edge_reply_not_found(x, in->s->id);
}

/* Every address of the sandbox, which nobody outside can reach. */
static int listen_on(int fd, int family)
{
	const struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(ENVD_PORT),
					.sin_addr.s_addr = htonl(INADDR_ANY) };
	const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(ENVD_PORT),
					 .sin6_addr = IN6ADDR_ANY_INIT };
	bool is_v4 = family == AF_INET;
	int on = 1, off = 0;

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!is_v4 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0)
		return -errno;
	if (bind(fd, is_v4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6,
		 is_v4 ? sizeof(v4) : sizeof(v6)) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return 0;
}

/* Takes fd. */
static int serve(struct envd_inside *in, int fd)
{
	const struct http_server_options o = {
		.loop = in->l->loop,
		.listen_fd = fd,
		.title_names = true,
		.http1 = true,
		.http2 = true,
		.max_conns = CONNS_MAX,
		.max_streams = STREAMS_MAX,
		.idle_ms = IDLE_MS,
		.on_request = on_request,
		.user = in,
	};
	int r = listen_on(fd, in->family);

	if (r == 0)
		return http_server_new(&o, &in->server);
	fd_close(fd);
	return r;
}

static void on_socket(void *user, int r, int fd)
{
	struct envd_inside *in = user;

	if (!in->s) {
		fd_close(fd);
		loop_bury(in->l->loop, &in->grave, free, in);
		return;
	}
	if (r == 0)
		r = serve(in, fd);
	if (r < 0 && in->family == AF_INET6) {	/* a kernel without it */
		in->family = AF_INET;
		ask(in);
	} else if (r < 0) {
		log_warn("agent_unheard_inside", "id=%s error=%d", in->s->id, -r);
		in->s->inside = NULL;
		loop_bury(in->l->loop, &in->grave, free, in);
	}
}

static void ask(struct envd_inside *in)
{
	int r = container_socket(in->s->container, in->family, SOCK_STREAM, on_socket, in);

	if (r == 0)
		return;
	log_warn("agent_unheard_inside", "id=%s error=%d", in->s->id, -r);
	in->s->inside = NULL;
	loop_bury(in->l->loop, &in->grave, free, in);
}

void envd_start(struct local *l, struct sandbox *s)
{
	struct envd_inside *in;

	if (s->inside)		/* it stood still, and its sockets with it */
		return;
	in = calloc(1, sizeof(*in));
	if (!in) {
		log_warn("agent_unheard_inside", "id=%s error=%d", s->id, ENOMEM);
		return;
	}
	*in = (struct envd_inside){ .l = l, .s = s, .family = AF_INET6 };
	s->inside = in;
	ask(in);
}

void envd_inside_stop(struct sandbox *s)
{
	struct envd_inside *in = s->inside;

	if (!in)
		return;
	s->inside = NULL;
	in->s = NULL;
	if (!in->server)	/* the socket is still to come */
		return;
	in->server = http_server_free(in->server);
	loop_bury(in->l->loop, &in->grave, free, in);
}
