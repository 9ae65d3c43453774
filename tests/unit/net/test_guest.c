/* SPDX-License-Identifier: MIT */
/* JUDGED G-8: sockets that were accepted are served one of each uid in turn, and what the connections of a uid may do in a
 * pass is theirs together. */
#include "daemon/common/net/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/net/http.h"
#include "proto/base/fd.h"
#include "proto/base/quota.h"
#include "proto/base/rng.h"
#include "tests/lib/test.h"

#define KIB	    1024u
#define WAITING_MAX 4096u	/* as guest.c has it */

static struct quota *payer(void)
{
	struct quota *q = quota_new(&(struct quota_options){ .name = "a uid" });

	CHECK(q);
	return q;
}

/* Sockets are files here; the last one serves as the name of the guest that put it. */
static int put(struct guests *gs, struct quota *q)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_INT(guests_put(gs, quota_ref(q), fd), 0);
	return fd;
}

static struct quota *take(struct guests *gs)
{
	struct guest *g;
	struct quota *q;
	int fd;

	if (!guests_take(gs, &g, &fd))
		return NULL;
	q = guest_quota(g);
	fd_close(fd);
	guest_unref(g);
	return q;
}

/* A guest that stays, as with a connection. */
static struct guest *stays(struct guests *gs, struct quota *q)
{
	struct guest *g;
	int fd;

	put(gs, q);
	CHECK(guests_take(gs, &g, &fd));
	fd_close(fd);
	CHECK(guest_quota(g) == q);
	return g;
}

TEST(one_socket_does_not_wait_behind_all_of_another)
{
	struct quota *much = payer(), *little = payer();
	struct guests gs;

	guests_init(&gs);
	for (int i = 0; i < 1000; i++)
		put(&gs, much);
	put(&gs, little);
	put(&gs, little);
	CHECK_INT(gs.n_waiting, 1002);
	CHECK(take(&gs) == much);
	CHECK(take(&gs) == little);
	CHECK(take(&gs) == much);
	CHECK(take(&gs) == little);
	for (int i = 0; i < 998; i++)
		CHECK(take(&gs) == much);
	CHECK(!take(&gs));
	CHECK_INT(gs.n_waiting, 0);
	CHECK(quota_is_idle(much) && quota_is_idle(little));
	guests_fini(&gs);
	quota_unref(much);
	quota_unref(little);
}

TEST(sockets_of_one_are_served_in_their_order)
{
	struct guests gs;
	struct guest *g;
	int a, b, fd;

	guests_init(&gs);
	a = put(&gs, NULL);
	b = put(&gs, NULL);
	CHECK(guests_take(&gs, &g, &fd) && fd == a);
	guest_unref(g);
	fd_close(a);
	CHECK(guests_take(&gs, &g, &fd) && fd == b);
	guest_unref(g);
	fd_close(b);
	guests_fini(&gs);
}

TEST(so_many_of_one_wait_and_no_more)
{
	struct quota *much = payer(), *little = payer();
	struct guests gs;
	int fd;

	guests_init(&gs);
	for (unsigned i = 0; i < WAITING_MAX; i++)
		CHECK_INT(guests_put(&gs, quota_ref(much), -1), 0);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK_INT(guests_put(&gs, quota_ref(much), fd), -EUSERS);
	CHECK(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
	put(&gs, little);
	guests_fini(&gs);	/* closes what waits */
	CHECK(quota_is_idle(much) && quota_is_idle(little));
	quota_unref(much);
	quota_unref(little);
}

TEST(a_guest_outlives_the_set)
{
	struct quota *q = payer();
	struct guests gs;
	struct guest *g;

	guests_init(&gs);
	g = stays(&gs, q);
	guests_fini(&gs);
	CHECK_INT(guest_read_bytes(g, 1), 128 * KIB);
	guest_unref(g);
	CHECK(quota_is_idle(q));
	quota_unref(q);
}

/* As many as had a part in the last pass share this one. */
TEST(connections_of_one_share_a_ration)
{
	struct guests gs;
	struct guest *g;
	size_t sum = 0;

	guests_init(&gs);
	g = stays(&gs, NULL);
	for (int i = 0; i < 16; i++)
		(void)guest_read_bytes(g, 1);
	for (int i = 0; i < 16; i++)
		sum += guest_read_bytes(g, 2);
	CHECK_INT(sum, 128 * KIB);
	CHECK_INT(guest_read_bytes(g, 3), 8 * KIB);	/* the others may still come */
	CHECK_INT(guest_read_bytes(g, 4), 128 * KIB);
	for (int i = 0; i < 1000; i++)
		CHECK(guest_read_bytes(g, 5) >= KIB);	/* each gets on */
	for (int i = 0; i < 8; i++)
		(void)guest_calls(g, 1);
	CHECK_INT(guest_calls(g, 2), 8);
	for (int i = 0; i < 1000; i++)
		CHECK(guest_calls(g, 3) >= 4);
	CHECK_INT(guest_calls(g, 5), 4);
	CHECK_INT(guest_calls(g, 6), 64);
	guest_unref(g);
	guests_fini(&gs);
}

TEST(ends_of_connections_are_rationed_and_none_waits_for_ever)
{
	struct guests gs;
	struct guest *g;
	unsigned ended = 0;

	guests_init(&gs);
	g = stays(&gs, NULL);
	CHECK(guest_may_end(g, 1, 2000));	/* more than a ration: alone */
	CHECK(!guest_may_end(g, 1, 0));
	CHECK(guest_may_end(g, 2, 255));
	CHECK(guest_may_end(g, 2, 255));
	CHECK(!guest_may_end(g, 2, 255));
	for (uint64_t pass = 3; ended < 15; pass++) {
		CHECK(pass < 3 + 15);
		while (ended < 15 && guest_may_end(g, pass, 2000))
			ended++;
	}
	guest_unref(g);
	guests_fini(&gs);
}

#define PAYERS 5

static void any_step(struct guests *gs, struct quota **q, unsigned *waits, unsigned *ret_turn, struct rng *rng)
{
	unsigned i = (unsigned)rng_below(rng, PAYERS), n = 0;
	struct quota *got;

	if (rng_below(rng, 2)) {
		put(gs, q[i]);
		waits[i]++;
		return;
	}
	for (unsigned k = 0; k < PAYERS; k++)
		n += waits[k];
	got = take(gs);
	CHECK(!got == !n);
	for (unsigned k = 0; got && k < PAYERS; k++)
		if (q[k] == got) {
			CHECK(waits[k]);
			waits[k]--;
			ret_turn[k] = 0;
		} else if (waits[k]) {
			CHECK(++ret_turn[k] < PAYERS);	/* nobody is served twice before it */
		} else {
			ret_turn[k] = 0;
		}
}

TEST(any_sequence_serves_everybody_in_turn)
{
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct quota *q[PAYERS];
		unsigned waits[PAYERS] = { 0 }, turn[PAYERS] = { 0 };
		struct guests gs;
		struct rng rng;

		rng_seed(&rng, seed);
		guests_init(&gs);
		for (unsigned i = 0; i < PAYERS; i++)
			q[i] = payer();
		for (int k = 0; k < 500; k++)
			any_step(&gs, q, waits, turn, &rng);
		guests_fini(&gs);
		for (unsigned i = 0; i < PAYERS; i++) {
			CHECK(quota_is_idle(q[i]));
			quota_unref(q[i]);
		}
	}
}

/* --- a server's door --- */

#define MANY 400u

struct door {
	struct loop *loop;
	struct http_server *server;
	struct sockaddr_un at;
	struct quota *much, *little;
	unsigned came, served, little_served_at;
};

/* The last one is somebody else. */
static int on_accept(int fd, void *user, struct quota **ret)
{
	struct door *d = user;

	*ret = quota_ref(d->came++ < MANY ? d->much : d->little);
	return 0;
}

static int on_conn(struct http_conn *c, void *user, void **ret_user)
{
	struct door *d = user;

	d->served++;
	if (!d->little_served_at && quota_used(d->little))
		d->little_served_at = d->served;
	return 0;
}

static void on_request(struct http_stream *x, void *user)
{
	CHECK(false);
}

static void open_door(struct door *d)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct http_server_options o = { .http2 = true, .on_accept = on_accept, .on_conn = on_conn, .on_request = on_request,
					 .user = d, .listen_fd = fd };

	*d = (struct door){ .at = { .sun_family = AF_UNIX }, .much = payer(), .little = payer() };
	snprintf(d->at.sun_path + 1, sizeof(d->at.sun_path) - 1, "ab-guest-%d", (int)getpid());
	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&d->at, sizeof(d->at)) && !listen(fd, 2 * MANY));
	CHECK_INT(loop_new(&d->loop), 0);
	o.loop = d->loop;
	CHECK_INT(http_server_new(&o, &d->server), 0);
}

static int knock(struct door *d)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&d->at, sizeof(d->at)));
	return fd;
}

static void close_door(struct door *d)
{
	http_server_free(d->server);
	for (int i = 0; i < 3; i++)
		CHECK_INT(loop_once(d->loop, 0), 0);
	loop_free(d->loop);
	CHECK(quota_is_idle(d->much) && quota_is_idle(d->little));
	quota_unref(d->much);
	quota_unref(d->little);
}

TEST(who_comes_after_many_of_another_is_next)
{
	struct door d;
	int fds[MANY + 1];

	open_door(&d);
	for (unsigned i = 0; i <= MANY; i++)
		fds[i] = knock(&d);
	for (int i = 0; i < 100 && d.served <= MANY; i++)
		CHECK_INT(loop_once(d.loop, 100), 0);
	CHECK_INT(d.served, MANY + 1);
	CHECK(d.little_served_at && d.little_served_at < MANY / 4);
	for (unsigned i = 0; i <= MANY; i++)
		fd_close(fds[i]);
	close_door(&d);
}

TEST(who_has_left_is_not_served)
{
	struct door d;
	int fd;

	open_door(&d);
	for (unsigned i = 0; i < MANY; i++)
		fd_close(knock(&d));
	fd = knock(&d);
	for (int i = 0; i < 10; i++)
		CHECK_INT(loop_once(d.loop, 0), 0);
	CHECK_INT(d.served, 1);
	fd_close(fd);
	close_door(&d);
}

TEST_MAIN()
