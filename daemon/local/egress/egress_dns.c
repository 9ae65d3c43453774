/* SPDX-License-Identifier: MIT */
/*
 * A sandbox's questions for addresses: datagrams to its name server, which are passed on to the
 * machine's and answered as if by the one asked. One socket for each question, so that an answer is
 * taken only from whom it was asked.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/egress/egress_int.h"
#include "proto/base/fd.h"

#define HEADER_BYTES	  12u
#define MESSAGE_MAX	  4096u		/* of both; what is longer is asked again over TCP */
#define QUESTIONS_PER_RUN 32
#define BIT_ANSWER	  0x80u		/* of byte 2 */
#define RCODE_REFUSED	  5u
#define RCODE_MASK	  0x0fu

struct question {
	struct list node;
	struct egress *e;
	struct sockaddr_in from;
	uint8_t id[2];
	int fd;
	struct watch watch;
	struct timer limit;
	struct grave grave;
};

static void question_free(void *p)
{
	free(p);
}

static void question_end(struct question *q)
{
	list_del(&q->node);
	q->e->n_questions--;
	timer_clear(&q->limit);
	watch_fini(&q->watch);
	q->fd = fd_close(q->fd);
	loop_bury(q->e->loop, &q->grave, question_free, q);
}

void egress_dns_cut(struct egress *e)
{
	list_for_each_safe(n, &e->questions)
		question_end(list_entry(n, struct question, node));
}

static void egress_dns_answer(struct egress *e, const struct sockaddr_in *to, const uint8_t *p,
			      size_t n)
{
	/* One that is lost is asked for again. */
	(void)!sendto(e->udp, p, n, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)to, sizeof(*to));
}

static void on_limit(struct timer *t, void *user)
{
	struct question *q = user;

	log_debug("egress_dns_late", "id=%s", q->e->id);
	egress_host_dns_failed(q->e->host);
	question_end(q);
}

static void on_answer(struct watch *w, unsigned ready, void *user)
{
	struct question *q = user;
	uint8_t in[MESSAGE_MAX];
	ssize_t n = recv(q->fd, in, sizeof(in), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		log_debug("egress_dns_error", "id=%s error=%d", q->e->id, errno);
		egress_host_dns_failed(q->e->host);
		question_end(q);
		return;
	}
	if ((size_t)n < HEADER_BYTES || memcmp(in, q->id, sizeof(q->id)) || !(in[2] & BIT_ANSWER))
		return;			/* somebody guesses: the right one may still come */
	egress_dns_answer(q->e, &q->from, in, (size_t)n);
	question_end(q);
}

static int ask(struct egress *e, const struct sockaddr_in *from, const uint8_t *p, size_t n)
{
	struct question *q = calloc(1, sizeof(*q));
	struct sockaddr_storage server;
	socklen_t len;
	int r;

	if (!q)
		return -ENOMEM;
	*q = (struct question){ .e = e, .from = *from, .id = { p[0], p[1] } };
	timer_init(&q->limit, e->loop, on_limit, q);
	list_add_tail(&e->questions, &q->node);
	e->n_questions++;
	egress_host_dns(e->host, &server, &len);
	q->fd = socket(server.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	r = q->fd < 0 || connect(q->fd, (const struct sockaddr *)&server, len) < 0 ? -errno : 0;
	if (r == 0)
		r = watch_init(&q->watch, e->loop, q->fd, on_answer, q);
	if (r == 0)
		r = watch_set(&q->watch, WATCH_READ);
	if (r == 0)
		r = timer_set(&q->limit, loop_now_ms(e->loop) + EGRESS_DNS_WAIT_MS);
	if (r == 0 && send(q->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		r = -errno;
	if (r < 0)
		question_end(q);
	return r;
}

static void on_message(struct egress *e, const struct sockaddr_in *from, uint8_t *p, size_t n)
{
	int r;

	if (n < HEADER_BYTES || (p[2] & BIT_ANSWER))
		return;
	if (!egrule_dns(e->rules)) {
		p[2] |= BIT_ANSWER;
		p[3] = (uint8_t)((p[3] & ~RCODE_MASK) | RCODE_REFUSED);
		egress_dns_answer(e, from, p, n);
		return;
	}
	r = e->n_questions < EGRESS_BOX_QUESTIONS_MAX ? ask(e, from, p, n) : -EAGAIN;
	if (r < 0)
		log_debug("egress_dns_dropped", "id=%s error=%d", e->id, -r);
}

void egress_dns_read(struct egress *e)
{
	for (int i = 0; i < QUESTIONS_PER_RUN; i++) {
		uint8_t in[MESSAGE_MAX];
		struct sockaddr_in from;
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(e->udp, in, sizeof(in), MSG_DONTWAIT, (struct sockaddr *)&from, &len);

		if (n < 0)
			return;
		if (len == sizeof(from) && from.sin_family == AF_INET)
			on_message(e, &from, in, (size_t)n);
	}
}
