/* SPDX-License-Identifier: MIT */
/*
 * A request for a port of a sandbox. A socket from inside the sandbox is connected to its loopback,
 * five attempts in all, as the cloud's node does; then two exchanges are joined, each direction with
 * the other side's room as its limit. An upgrade that the program inside agrees to joins their bytes.
 */
#include "daemon/local/agent/relay.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/join.h"
#include "daemon/common/http/relay_head.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/net/http.h"
#include "daemon/common/net/xport.h"
#include "daemon/local/egress/netrule.h"
#include "daemon/local/state/local.h"
#include "daemon/local/state/state.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/h2.h"

#define RELAY_MAGIC	 0x7e1a7e1au
#define ATTEMPTS	 5u
#define ATTEMPT_PAUSE_MS 100u	/* after the first; one more of it after each */
#define CONNECT_MAX_MS	 3000u	/* for a full backlog */

struct relay {
	uint32_t magic;
	struct local *l;
	struct sandbox *s;			/* NULL: it is cut */
	char id[ROUTE_ID_MAX + 1];
	uint64_t port;
	struct http_stream *x, *y;		/* the client's, the program's */
	struct http_conn *conn;
	struct traffic traffic;
	bool over, waits_for_fd;
	struct http_join join;
	unsigned attempt;
	int family, fd;
	struct watch watch;
	struct timer timer;
	struct grave grave;
};

static void attempt(struct relay *rl);

static struct relay *relay_from(void *p)
{
	struct relay *rl = p;

	must(rl && rl->magic == RELAY_MAGIC);
	return rl;
}

/* --- the end --- */

static void relay_free(void *p)
{
	struct relay *rl = relay_from(p);

	rl->magic = 0;
	free(rl);
}

static void bury_if_done(struct relay *rl)
{
	if (rl->over && !rl->waits_for_fd && !rl->conn)
		loop_bury(rl->l->loop, &rl->grave, relay_free, rl);
}

static void drop_fd(struct relay *rl)
{
	watch_fini(&rl->watch);
	rl->fd = fd_close(rl->fd);
}

/* The client's exchange is gone, or somebody else's already. */
static void relay_end(struct relay *rl)
{
	must(!rl->over && !rl->x);
	rl->over = true;
	timer_clear(&rl->timer);
	drop_fd(rl);
	if (rl->s)
		list_del(&rl->traffic.node);
	rl->s = NULL;
	if (rl->y)
		http_stream_release(give(rl->y));
	if (rl->conn)
		http_conn_close(rl->conn, "relayed");
	bury_if_done(rl);
}

/* An answer of ours instead; false once the program's has begun. */
static void give_up(struct relay *rl)
{
	struct http_stream *x = give(rl->x);

	if (rl->join.answered)
		reply_abort(x);
	else
		reply_text(x, 502, "Bad Gateway");
	relay_end(rl);
}

static void relay_on_cut(struct traffic *t)
{
	struct relay *rl = container_of(t, struct relay, traffic);
	struct http_stream *x = give(rl->x);

	list_del(&t->node);
	rl->s = NULL;
	http_stream_reset(x, H2_CANCEL);
	http_stream_detach(x);
	relay_end(rl);
}

static void on_conn_closed(struct http_conn *c, const char *reason, void *user)
{
	struct relay *rl = relay_from(user);

	rl->conn = NULL;
	bury_if_done(rl);
}

/* --- bytes --- */

static void pump(struct relay *rl)
{
	switch (http_join_pump(&rl->join, rl->x, rl->y)) {
	case HTTP_JOIN_OPEN:
		break;
	case HTTP_JOIN_DONE:
		http_stream_detach(give(rl->x));
		relay_end(rl);
		break;
	case HTTP_JOIN_LEFT:
		http_stream_release(give(rl->x));
		relay_end(rl);
		break;
	case HTTP_JOIN_LOST:
		give_up(rl);
		break;
	}
}

static void on_up(struct http_stream *y, void *user)
{
	struct relay *rl = relay_from(user);

	if (!rl->over)
		pump(rl);
}

static void on_down(struct http_stream *x, void *user)
{
	struct relay *rl = relay_from(user);

	if (rl->y) {
		pump(rl);
	} else if (http_stream_closed(x, NULL) != HTTP_OPEN) {
		http_stream_release(give(rl->x));
		relay_end(rl);
	}
}

/* --- the request --- */

/* Host as the sandbox wants to see it; *ret is heap or NULL. */
static int masked_host(const struct relay *rl, char **ret)
{
	const char *mask = rl->s->network ? rl->s->network->mask_request_host : NULL;

	*ret = str_is_empty(mask) ? NULL : netrule_mask_host(mask, rl->port);
	return !str_is_empty(mask) && !*ret ? -ENOMEM : 0;
}

static int request(struct relay *rl)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	char *host;
	int r = masked_host(rl, &host);

	rl->join.up_done = http_stream_at_end(rl->x);
	if (r == 0)
		r = relay_request_head(http_stream_head(rl->x), host, http_stream_can_upgrade(rl->x), NULL, NULL, &head);
	if (r == 0)
		r = http_conn_request(rl->conn, &head, rl->join.up_done, on_up, rl, &rl->y);
	free(host);
	return r;
}

static void connected(struct relay *rl)
{
	const struct http_adopt_options o = {
		.loop = rl->l->loop,
		.fd = rl->fd,
		.title_names = true,
		.closed = on_conn_closed,
		.user = rl,
	};

	watch_fini(&rl->watch);
	timer_clear(&rl->timer);
	rl->fd = -1;		/* taken over, whatever comes of it */
	if (http_conn_adopt(&o, &rl->conn) < 0 || request(rl) < 0)
		give_up(rl);
	else
		pump(rl);
}

/* --- connecting --- */

static void on_pause_over(struct timer *t, void *user)
{
	attempt(relay_from(user));
}

static void refused(struct relay *rl)
{
	drop_fd(rl);
	timer_clear(&rl->timer);
	if (rl->family == AF_INET) {	/* some listen on the other loopback only */
		rl->family = AF_INET6;
		attempt(rl);
		return;
	}
	rl->family = AF_INET;
	if (++rl->attempt == ATTEMPTS) {
		edge_reply_port_closed(give(rl->x), rl->id, rl->port);
		relay_end(rl);
		return;
	}
	timer_init(&rl->timer, rl->l->loop, on_pause_over, rl);
	if (timer_set(&rl->timer, loop_now_ms(rl->l->loop) + rl->attempt * ATTEMPT_PAUSE_MS) < 0)
		give_up(rl);
}

static void on_connect_limit(struct timer *t, void *user)
{
	refused(relay_from(user));
}

static void on_writable(struct watch *w, unsigned ready, void *user)
{
	struct relay *rl = relay_from(user);

	if (sock_error(rl->fd) < 0)
		refused(rl);
	else
		connected(rl);
}

static int start_connect(struct relay *rl)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)rl->port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)rl->port),
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	bool is_v4 = rl->family == AF_INET;
	int r;

	r = connect(rl->fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
		    is_v4 ? sizeof(v4) : sizeof(v6));
	if (r < 0 && errno != EINPROGRESS)
		return -errno;
	r = watch_init(&rl->watch, rl->l->loop, rl->fd, on_writable, rl);
	if (r == 0)
		r = watch_set(&rl->watch, WATCH_WRITE);
	timer_init(&rl->timer, rl->l->loop, on_connect_limit, rl);
	return r < 0 ? r : timer_set(&rl->timer, loop_now_ms(rl->l->loop) + CONNECT_MAX_MS);
}

static void on_fd(void *user, int r, int fd)
{
	struct relay *rl = relay_from(user);

	rl->waits_for_fd = false;
	if (rl->over) {
		fd_close(fd);
		bury_if_done(rl);
		return;
	}
	rl->fd = fd;
	if (r == 0)
		r = start_connect(rl);
	if (r < 0)
		refused(rl);
}

static void attempt(struct relay *rl)
{
	if (container_socket(rl->s->container, rl->family, SOCK_STREAM, on_fd, rl) < 0)
		give_up(rl);
	else
		rl->waits_for_fd = true;
}

void relay_request(struct local *l, struct sandbox *s, struct http_stream *x, uint64_t port)
{
	struct relay *rl;

	if (!port || port > UINT16_MAX) {
		edge_reply_port_closed(x, s->id, port);
		return;
	}
	rl = calloc(1, sizeof(*rl));
	if (!rl) {
		reply_abort(x);
		return;
	}
	*rl = (struct relay){ .magic = RELAY_MAGIC, .l = l, .s = s, .port = port, .x = x, .fd = -1,
			      .family = AF_INET };
	str_copy(rl->id, sizeof(rl->id), s->id);
	timer_init(&rl->timer, l->loop, on_pause_over, rl);
	sandbox_traffic_add(s, &rl->traffic, relay_on_cut);
	http_stream_set_owner(x, on_down, rl);
	attempt(rl);
}
