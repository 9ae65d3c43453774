/* SPDX-License-Identifier: MIT */
/*
 * The floor of the benchmark of Get: gRPC's framing on nghttp2 and epoll, answering every call with the
 * same bytes and looking at nothing. What a server has to do more costs more than this.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <nghttp2/nghttp2.h>

#define FIELD(n, v) { (uint8_t *)(n), (uint8_t *)(v), sizeof(n) - 1, sizeof(v) - 1, NGHTTP2_NV_FLAG_NONE }

struct client {
	int fd;
	nghttp2_session *session;
};

static uint8_t reply[256];
static size_t reply_bytes;
static nghttp2_session_callbacks *callbacks;

static ssize_t on_read(nghttp2_session *s, int32_t stream, uint8_t *buf, size_t n, uint32_t *flags,
		       nghttp2_data_source *source, void *user)
{
	static const nghttp2_nv trailers[] = { FIELD("grpc-status", "0") };

	(void)source;
	(void)user;
	if (n < reply_bytes)
		return NGHTTP2_ERR_DEFERRED;
	memcpy(buf, reply, reply_bytes);
	*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
	nghttp2_submit_trailer(s, stream, trailers, 1);
	return (ssize_t)reply_bytes;
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *f, void *user)
{
	static const nghttp2_nv head[] = { FIELD(":status", "200"),
					   FIELD("content-type", "application/grpc") };
	nghttp2_data_provider body = { .read_callback = on_read };

	(void)user;
	if ((f->hd.type == NGHTTP2_DATA || f->hd.type == NGHTTP2_HEADERS) &&
	    (f->hd.flags & NGHTTP2_FLAG_END_STREAM))
		nghttp2_submit_response(s, f->hd.stream_id, head, 2, &body);
	return 0;
}

static int flush(struct client *c)
{
	static uint8_t out[1 << 17];
	size_t n = 0;

	for (;;) {
		const uint8_t *p;
		ssize_t got = nghttp2_session_mem_send(c->session, &p);

		if (got < 0)
			return -1;
		if (n && (!got || n + (size_t)got > sizeof(out))) {
			if (send(c->fd, out, n, MSG_NOSIGNAL) != (ssize_t)n)
				return -1;
			n = 0;
		}
		if (!got)
			return 0;
		memcpy(out + n, p, (size_t)got);
		n += (size_t)got;
	}
}

static int serve(struct client *c)
{
	static uint8_t in[1 << 16];
	ssize_t n = recv(c->fd, in, sizeof(in), 0);

	if (n <= 0 || nghttp2_session_mem_recv(c->session, in, (size_t)n) < 0)
		return -1;
	return flush(c);
}

static void accept_one(int listener, int epoll)
{
	nghttp2_settings_entry limit = { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1000 };
	struct client *c = calloc(1, sizeof(*c));
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };

	if (!c)
		exit(1);
	c->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (c->fd < 0 || nghttp2_session_server_new(&c->session, callbacks, c))
		exit(1);
	nghttp2_submit_settings(c->session, 0, &limit, 1);
	if (flush(c) || epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e))
		exit(1);
}

int main(int argc, char **argv)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct epoll_event e = { .events = EPOLLIN }, got[64];
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (argc != 3 || strlen(argv[1]) >= sizeof(a.sun_path))
		return 2;
	strcpy(a.sun_path, argv[1]);
	reply_bytes = (size_t)strtoul(argv[2], NULL, 10) + 5;
	if (reply_bytes > sizeof(reply))
		return 2;
	reply[4] = (uint8_t)(reply_bytes - 5);
	if (bind(listener, (struct sockaddr *)&a, sizeof(a)) || listen(listener, 128) ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e) || nghttp2_session_callbacks_new(&callbacks))
		return 1;
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	puts("ready");
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(epoll, got, 64, -1);

		for (int i = 0; i < n; i++) {
			struct client *c = got[i].data.ptr;

			if (!c) {
				accept_one(listener, epoll);
			} else if (serve(c)) {
				close(c->fd);
				nghttp2_session_del(c->session);
				free(c);
			}
		}
	}
}
