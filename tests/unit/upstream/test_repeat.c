/* SPDX-License-Identifier: MIT */
/* What is sent again, how often, on how many connections; and how an answer that nobody needs any more ends. */
#include "proto/wire/h2.h"
#include "tests/lib/test.h"
#include "tests/unit/upstream/rig.h"

static struct peer *begin(struct rig *g)
{
	rig_begin(g, NULL);
	rig_host(g, "a.test", "192.0.2.1");
	return rig_peer(g, "192.0.2.1");
}

static void ask_for(struct rig *g, struct ask *a, uint64_t deadline_ms, bool once)
{
	ask(g, a, &(struct asked){ .host = "a.test", .deadline_ms = deadline_ms, .once = once });
}

static void check_answered(struct rig *g, struct ask *a)
{
	UNTIL(g, a->over);
	CHECK_INT(a->fate, POOL_CLEAN);
	CHECK_INT(a->status, 200);
	ask_end(a);
}

/* B-2: what may be repeated is, until its deadline, and not all at once; what may not is not. */
TEST(connections_that_die)
{
	struct rig g;
	struct peer *p = begin(&g);
	uint64_t began = clock_boot_ms();
	struct ask a;

	p->does = PEER_CUTS;
	ask_for(&g, &a, 8000, false);
	UNTIL(&g, a.over);
	CHECK_INT(a.fate, POOL_BROKEN);
	CHECK_INT(a.why.reason, R_UNREACHABLE);
	CHECK(clock_boot_ms() - began >= 7800 && clock_boot_ms() - began <= 8000);
	CHECK(p->requests >= 8 && p->requests <= 25);
	ask_end(&a);

	ask_for(&g, &a, 8000, false);
	rig_spin(&g, 5000);
	CHECK(!a.over);
	p->does = PEER_ANSWERS;
	check_answered(&g, &a);

	p->does = PEER_CUTS;
	p->requests = 0;
	ask_for(&g, &a, 8000, true);
	UNTIL(&g, a.over);
	CHECK_INT(a.fate, POOL_BROKEN);
	CHECK_INT(p->requests, 1);
	ask_end(&a);
	rig_end(&g);
}

/* B-4: what is proven unprocessed and must not run twice is written three times where GOAWAY refuses it, each time elsewhere. */
TEST(goaway_for_ever)
{
	struct rig g;
	struct peer *p = begin(&g);
	struct ask a;

	p->does = PEER_LEAVES;
	ask_for(&g, &a, 8000, true);
	UNTIL(&g, a.over);
	CHECK_INT(a.fate, POOL_UNSENT);
	CHECK_INT(p->requests, 3);
	CHECK_INT(p->dials, 3);
	CHECK_INT(pool_req_posts(a.r), 3);
	ask_end(&a);
	rig_end(&g);
}

/* B-4: REFUSED_STREAM is "not now": it waits, and goes again on the connection that it has. */
TEST(busy_for_long)
{
	struct rig g;
	struct peer *p = begin(&g);
	struct ask a;

	p->does = PEER_RESETS;
	p->reset_code = H2_REFUSED_STREAM;
	ask_for(&g, &a, 8000, true);
	rig_spin(&g, 6000);
	CHECK(!a.over);
	CHECK(p->requests >= 4 && p->requests <= 12);
	CHECK_INT(p->dials, 1);
	p->does = PEER_ANSWERS;
	check_answered(&g, &a);
	rig_end(&g);
}

/* B-4: the peer allows no stream: nothing is written, no connections are made one after the other, and what waits goes at once
 * when it may. */
TEST(no_streams)
{
	struct rig g;
	struct peer *p = begin(&g);
	struct ask first, a[5];

	ask_for(&g, &first, 8000, false);
	check_answered(&g, &first);
	p->no_streams = true;
	peer_raw_streams(peer_conn_at(p, 0), 0);
	rig_spin(&g, 50);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask_for(&g, &a[i], 30000, i % 2);
	rig_spin(&g, 20000);
	CHECK_INT(p->requests, 1);
	CHECK_INT(p->dials, 2);
	peer_raw_streams(peer_conn_at(p, 1), 100);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		check_answered(&g, &a[i]);
	CHECK_INT(p->dials, 2);
	rig_end(&g);
}

/* B-4: connections that come about and answer nothing are as far apart as dials that fail, and requests wait. */
TEST(connections_of_no_use)
{
	struct rig g;
	struct peer *p = begin(&g);
	struct ask a;

	p->does = PEER_LEAVES;
	ask_for(&g, &a, 20000, false);
	rig_spin(&g, 10000);
	CHECK(!a.over);
	CHECK(p->dials >= 6 && p->dials <= 14);
	p->does = PEER_ANSWERS;
	check_answered(&g, &a);
	rig_end(&g);
}

/* B-4: 421 on a connection of its own: on another one, three times, and nothing new on those. */
TEST(misdirected_everywhere)
{
	struct rig g;
	struct peer *p = begin(&g);
	struct ask a;

	p->status = 421;
	ask_for(&g, &a, 8000, false);
	UNTIL(&g, a.over);
	CHECK_INT(a.fate, POOL_CLEAN);
	CHECK_INT(a.status, 421);
	CHECK_INT(p->requests, 3);
	CHECK_INT(p->dials, 3);
	ask_end(&a);
	p->status = 0;
	ask_for(&g, &a, 8000, false);
	check_answered(&g, &a);
	CHECK_INT(p->dials, 4);
	rig_end(&g);
}

/* --- the rest of an answer --- */

static void head_only(struct rig *g, struct peer *p, struct ask *a)
{
	static const struct fields none = FIELDS_NULL;
	struct fields head = none;

	p->does = PEER_HOLDS;
	ask(g, a, &(struct asked){ .host = "a.test", .cls = POOL_LONG });
	UNTIL(g, p->n_open == 1);
	CHECK_INT(fields_put(&head, ":status", "200"), 0);
	CHECK_INT(h2_respond(peer_stream_at(peer_conn_at(p, 0), 0)->s, &head, false), 0);
	fields_fini(&head);
	peer_raw(peer_conn_at(p, 0), "", 0);
	UNTIL(g, a->status == 200);
}

/* B-7: who has all that it wants leaves, and the stream is read to its end. */
TEST(left_to_its_end)
{
	struct rig g;
	struct peer *p = begin(&g);
	struct h2_stream *s;
	struct ask a;

	head_only(&g, p, &a);
	s = peer_stream_at(peer_conn_at(p, 0), 0)->s;
	a.r = pool_req_leave(a.r);
	CHECK(!a.r);
	rig_spin(&g, 500);
	CHECK_INT(h2_stream_closed(s, NULL), H2_OPEN);
	CHECK_INT(h2_stream_write(s, "rest", 4), 0);
	CHECK_INT(h2_stream_finish(s, NULL), 0);
	peer_raw(peer_conn_at(p, 0), "", 0);
	rig_spin(&g, 100);
	CHECK_INT(rig_stats(&g, "a.test").streams, 0);
	CHECK_INT(rig_stats(&g, "a.test").conns, 1);
	rig_end(&g);
}

/* B-7: … for two seconds, then it is reset. */
TEST(left_for_too_long)
{
	struct rig g;
	struct peer *p = begin(&g);
	struct ask a;

	head_only(&g, p, &a);
	a.r = pool_req_leave(a.r);
	rig_spin(&g, 1900);
	CHECK_INT(rig_stats(&g, "a.test").streams, 1);
	rig_spin(&g, 300);
	CHECK_INT(rig_stats(&g, "a.test").streams, 0);
	rig_end(&g);
}

TEST_MAIN()
