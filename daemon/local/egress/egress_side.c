/* SPDX-License-Identifier: MIT */
#include "daemon/local/egress/egress_side.h"

#include <errno.h>
#include <sys/socket.h>

int side_take(struct side *s, struct buf *to)
{
	size_t room = buf_room(to);
	uint8_t *p;
	ssize_t n;

	if (s->read_end || !room)
		return 0;
	p = buf_space(to, room);
	if (!p)
		return -ENOMEM;
	n = recv(s->fd, p, room, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_added(to, (size_t)n);
	s->read_end = n == 0;
	return 0;
}

int side_pass(struct side *s, bool is_all)
{
	while (buf_len(&s->out)) {
		ssize_t n = send(s->fd, buf_data(&s->out), buf_len(&s->out), MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		buf_drop(&s->out, (size_t)n);
	}
	if (is_all && !s->write_end) {
		s->write_end = true;
		if (shutdown(s->fd, SHUT_WR) < 0)
			return -errno;
	}
	return 0;
}

int side_want(struct side *s, bool has_room)
{
	return watch_set(&s->watch, (!s->read_end && has_room ? WATCH_READ : 0) |
					    (buf_len(&s->out) ? WATCH_WRITE : 0));
}
