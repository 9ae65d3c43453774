/* SPDX-License-Identifier: MIT */
/* Who gets which connection, and what becomes of requests when peers misbehave: the pool over scripted peers. */
#include "tests/lib/test.h"
#include "tests/unit/upstream/rig.h"

#define H2_REFUSED 7u
#define H2_CALM	   11u

static struct peer *begin(struct rig *g, const struct pool_options *o)
{
	rig_begin(g, o);
	rig_host(g, "a.test", "192.0.2.1");
	return rig_peer(g, "192.0.2.1");
}

/* To a.test. */
static void ask_a(struct rig *g, struct ask *a)
{
	ask(g, a, &(struct asked){ .host = "a.test" });
}

static void check_answered(struct rig *g, struct ask *a)
{
	UNTIL(g, a->over);
	CHECK_INT(a->fate, POOL_CLEAN);
	CHECK_INT(a->status, 200);
	ask_end(a);
}

/* --- dialling --- */

TEST(dialled_once_and_used_again)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a[5];

	p->connect_ms = 50;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask_a(&g, &a[i]);
	CHECK_INT(p->dials, 0);		/* never from inside */
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		check_answered(&g, &a[i]);
	CHECK_INT(p->dials, 1);
	ask_a(&g, &a[0]);
	check_answered(&g, &a[0]);
	CHECK_INT(p->dials, 1);
	CHECK_INT(p->requests, 6);
	CHECK_INT(rig_stats(&g, "a.test").requests, 6);
	CHECK_INT(rig_stats(&g, "a.test").conns, 1);
	rig_end(&g);
}

TEST(withdrawn_before_it_is_sent)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;

	p->connect_ms = 50;
	ask_a(&g, &a);
	rig_spin(&g, 20);
	ask_end(&a);
	rig_spin(&g, 100);
	CHECK_INT(a.told, 0);
	CHECK_INT(p->requests, 0);
	rig_end(&g);
}

/* Held down for 200 ms, doubled, with jitter; three failures in a row fail what waits. */
TEST(refused_dials_are_spaced)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;
	uint64_t began;

	p->connect = PEER_REFUSES;
	ask_a(&g, &a);
	began = clock_boot_ms();
	for (unsigned n = 1; n <= 3; n++) {
		UNTIL(&g, rig_stats(&g, "a.test").dial_failures == n);
		CHECK(clock_boot_ms() - began >= (n == 1 ? 0 : 25u << n));
		CHECK(clock_boot_ms() - began <= (n == 1 ? 20 : (50u << n) + 20));
		began = clock_boot_ms();
	}
	UNTIL(&g, a.over);
	CHECK_INT(a.fate, POOL_UNSENT);
	CHECK_INT(a.why.reason, R_UNREACHABLE);
	CHECK(a.why.retry_after_ms > 0);
	ask_end(&a);
	rig_end(&g);
}

/* After that a call waits for one dial, and for none that is farther away than 2 s; past the hold it goes on. */
TEST(held_down_and_back)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;
	uint64_t began;

	p->connect = PEER_REFUSES;
	for (unsigned i = 0; i < 8; i++) {
		ask_a(&g, &a);
		UNTIL(&g, a.over);
		CHECK_INT(a.fate, POOL_UNSENT);
		ask_end(&a);
		rig_spin(&g, i < 7 ? rig_stats(&g, "a.test").hold_until_ms - clock_boot_ms() : 0);
	}
	ask_a(&g, &a);
	began = clock_boot_ms();
	UNTIL(&g, a.over);
	CHECK(clock_boot_ms() < began + 50);
	CHECK(a.why.retry_after_ms > 2000 && a.why.retry_after_ms <= 10000);
	ask_end(&a);
	p->connect = PEER_ACCEPTS;
	rig_spin(&g, rig_stats(&g, "a.test").hold_until_ms - clock_boot_ms());
	ask_a(&g, &a);
	check_answered(&g, &a);
	CHECK_INT(rig_stats(&g, "a.test").hold_until_ms, 0);
	p->connect = PEER_REFUSES;	/* what was is forgotten with the first success */
	peer_close(peer_conn_at(p, 0));
	began = rig_stats(&g, "a.test").dial_failures;
	ask_a(&g, &a);
	UNTIL(&g, rig_stats(&g, "a.test").dial_failures == began + 1);
	CHECK(rig_stats(&g, "a.test").hold_until_ms <= clock_boot_ms() + 200);
	ask_end(&a);
	rig_end(&g);
}

/* N-09: a name that is not there. */
TEST(no_such_name)
{
	struct rig g;
	struct ask a;

	(void)begin(&g, NULL);
	ask(&g, &a, &(struct asked){ .host = "b.test" });
	UNTIL(&g, a.over);
	CHECK_INT(a.fate, POOL_UNSENT);
	CHECK(strstr(a.why.text, "no such name"));
	ask_end(&a);
	rig_end(&g);
}

TEST(deadline_while_dialling)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a, b;
	uint64_t began = clock_boot_ms();

	p->connect = PEER_SWALLOWS;
	ask(&g, &a, &(struct asked){ .host = "a.test", .deadline_ms = 3000 });
	ask_a(&g, &b);
	UNTIL(&g, a.over);
	CHECK_INT(clock_boot_ms() - began, 3000);
	CHECK_INT(a.fate, POOL_UNSENT);
	CHECK_INT(a.why.reason, R_UNREACHABLE);
	UNTIL(&g, rig_stats(&g, "a.test").dial_failures);	/* of one dial: 10 s */
	CHECK_INT(clock_boot_ms() - began, 10000);
	p->connect = PEER_ACCEPTS;
	check_answered(&g, &b);
	ask_end(&a);
	rig_end(&g);
}

/* --- limits --- */

/* What a new connection refuses, because its limit is not known yet, keeps its place. */
TEST(the_limit_of_streams_is_kept_in_order)
{
	struct pool_options o = { .max_conns_h2 = 1 };
	struct rig g;
	struct peer *p = begin(&g, &o);
	struct ask a[10];
	char path[4], want[256] = "";

	p->max_streams = 2;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++) {
		snprintf(path, sizeof(path), "/%zu", i);
		ask(&g, &a[i], &(struct asked){ .host = "a.test", .path = path });
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "a.test%s ", path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		check_answered(&g, &a[i]);
	CHECK_INT(p->max_open, 2);
	CHECK_INT(p->dials, 1);
	CHECK_STR(g.log, want);
	rig_end(&g);
}

TEST(what_is_refused_goes_before_those_that_wait)
{
	struct pool_options o = { .max_conns_h2 = 1 };
	struct rig g;
	struct peer *p = begin(&g, &o);
	struct ask a[3];

	p->max_streams = 1;
	p->does = PEER_HOLDS;
	ask(&g, &a[0], &(struct asked){ .host = "a.test", .path = "/0" });
	UNTIL(&g, p->requests == 1);
	rig_spin(&g, 10);
	ask(&g, &a[1], &(struct asked){ .host = "a.test", .path = "/1" });
	ask(&g, &a[2], &(struct asked){ .host = "a.test", .path = "/2" });
	rig_spin(&g, 10);
	p->does = PEER_ANSWERS;
	peer_reset(peer_stream_at(peer_conn_at(p, 0), 0), H2_REFUSED);
	for (size_t i = 0; i < 3; i++)
		check_answered(&g, &a[i]);
	CHECK_STR(g.log, "a.test/0 a.test/0 a.test/1 a.test/2 ");
	rig_end(&g);
}

/* A full one gets company, one dial at a time. */
TEST(more_connections_when_they_are_full)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a[6];

	p->max_streams = 2;
	p->does = PEER_HOLDS;
	p->connect_ms = 10;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask_a(&g, &a[i]);
	while (p->requests < 6) {
		CHECK(loop_once(g.loop, 20) >= 0);
		CHECK(rig_stats(&g, "a.test").dialing <= 1);
	}
	CHECK_INT(p->max_open, 2);
	CHECK(p->dials >= 3 && p->dials <= 4);	/* the next one before it is needed */
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask_end(&a[i]);
	rig_end(&g);
}

/* Long streams leave a fifth to short calls. */
TEST(headroom_for_short_calls)
{
	struct pool_options o = { .max_conns_h2 = 1 };
	struct rig g;
	struct peer *p = begin(&g, &o);
	struct ask a[9], b;

	p->max_streams = 10;
	ask_a(&g, &b);		/* so that the limit is known */
	check_answered(&g, &b);
	p->does = PEER_HOLDS;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask(&g, &a[i], &(struct asked){ .host = "a.test", .cls = POOL_LONG });
	rig_spin(&g, 1000);
	CHECK_INT(p->n_open, 8);
	ask_a(&g, &b);
	rig_spin(&g, 1000);
	CHECK_INT(p->n_open, 9);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask_end(&a[i]);
	ask_end(&b);
	rig_end(&g);
}

/* SETTINGS may come at any time. */
TEST(the_limit_is_lowered)
{
	struct pool_options o = { .max_conns_h2 = 1 };
	struct rig g;
	struct peer *p = begin(&g, &o);
	struct ask a[6];

	ask_a(&g, &a[0]);
	check_answered(&g, &a[0]);
	peer_raw_streams(peer_conn_at(p, 0), 3);
	rig_spin(&g, 10);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask_a(&g, &a[i]);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		check_answered(&g, &a[i]);
	CHECK_INT(p->max_open, 3);
	CHECK_INT(p->dials, 1);
	rig_end(&g);
}

TEST(the_queue_has_an_end)
{
	struct pool_options o = { .max_queue = 3 };
	struct rig g;
	struct peer *p = begin(&g, &o);
	struct ask a[4];

	p->connect_ms = 50;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask_a(&g, &a[i]);
	UNTIL(&g, a[3].over);
	CHECK_INT(a[3].fate, POOL_UNSENT);
	CHECK_INT(a[3].why.reason, R_TOO_MANY_STREAMS);
	ask_end(&a[3]);
	for (size_t i = 0; i < 3; i++)
		check_answered(&g, &a[i]);
	rig_end(&g);
}

/* Its deadline is not the peer's fault, and its answer's bytes occupy no stream. */
TEST(in_the_queue)
{
	struct pool_options o = { .max_conns_h2 = 1 };
	struct rig g;
	struct peer *p = begin(&g, &o);
	struct ask a, b;

	p->max_streams = 1;
	p->does = PEER_HOLDS;
	ask_a(&g, &a);
	UNTIL(&g, p->requests == 1);
	rig_spin(&g, 10);
	ask(&g, &b, &(struct asked){ .host = "a.test", .deadline_ms = 1000 });
	UNTIL(&g, b.over);
	CHECK_INT(b.fate, POOL_UNSENT);
	CHECK_INT(b.why.reason, R_DEADLINE_REQUEST);
	ask_end(&b);
	p->does = PEER_ANSWERS;
	peer_answer(peer_stream_at(peer_conn_at(p, 0), 0), 200);
	UNTIL(&g, a.over);
	ask_a(&g, &b);		/* a is not ended yet */
	check_answered(&g, &b);
	ask_end(&a);
	rig_end(&g);
}

/* N-19: HTTP/1.1 carries one exchange each; once that is known, many are dialled at a time. */
TEST(http1)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a[40];
	uint32_t most = 0;

	p->http1 = true;
	p->connect_ms = 10;
	ask_a(&g, &a[0]);
	check_answered(&g, &a[0]);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask_a(&g, &a[i]);
	while (p->requests < 41) {
		CHECK(loop_once(g.loop, 20) >= 0);
		most = MAX(most, rig_stats(&g, "a.test").dialing);
	}
	CHECK_INT(most, 16);
	CHECK_INT(p->max_open, 1);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		check_answered(&g, &a[i]);
	rig_end(&g);
}

/* --- what peers do --- */

/* H-06: proven unprocessed: again, whatever it is, up to three times. */
TEST(refused_streams)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;

	p->does = PEER_RESETS;
	p->reset_code = H2_REFUSED;
	ask(&g, &a, &(struct asked){ .host = "a.test", .once = true });
	UNTIL(&g, p->requests == 2);
	p->does = PEER_ANSWERS;
	check_answered(&g, &a);
	p->does = PEER_RESETS;
	ask(&g, &a, &(struct asked){ .host = "a.test", .once = true });
	UNTIL(&g, a.over);
	CHECK_INT(a.fate, POOL_UNSENT);
	CHECK_INT(p->requests, 3 + 4);
	ask_end(&a);
	rig_end(&g);
}

/* The whole body is kept for that. */
TEST(a_body_goes_again)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct peer_stream *s;
	struct ask a;
	char body[] = "what it sends";

	p->does = PEER_HOLDS;
	ask(&g, &a, &(struct asked){ .host = "a.test", .once = true, .body = body });
	body[0] = 0;
	for (unsigned n = 1; n <= 2; n++) {
		UNTIL(&g, p->requests == n);
		rig_spin(&g, 10);
		s = peer_stream_at(peer_conn_at(p, 0), 0);
		CHECK_STR(s->body, "what it sends");
		if (n == 1)
			peer_reset(s, H2_REFUSED);
		else
			peer_answer(s, 200);
	}
	check_answered(&g, &a);
	rig_end(&g);
}

TEST(reset_streams)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;

	p->does = PEER_RESETS;
	p->reset_code = 2;
	for (int once = 0; once < 2; once++) {
		p->requests = 0;
		ask(&g, &a, &(struct asked){ .host = "a.test", .once = once });
		UNTIL(&g, a.over);
		CHECK_INT(a.fate, POOL_BROKEN);
		CHECK_INT(p->requests, once ? 1 : 4);
		CHECK(strstr(a.why.text, "error 2"));
		ask_end(&a);
	}
	rig_end(&g);
}

/* H-10: a connection dies under its requests. What may run twice goes again, what may not is BROKEN. */
TEST(a_connection_is_lost)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a, b;

	p->does = PEER_HOLDS;
	ask_a(&g, &a);
	ask(&g, &b, &(struct asked){ .host = "a.test", .once = true });
	UNTIL(&g, p->requests == 2);
	p->does = PEER_ANSWERS;
	peer_close(peer_conn_at(p, 0));
	UNTIL(&g, b.over);
	CHECK_INT(b.fate, POOL_BROKEN);
	CHECK(pool_req_was_sent(b.r));
	ask_end(&b);
	UNTIL(&g, a.over);
	CHECK(pool_req_was_repeated(a.r));
	check_answered(&g, &a);
	CHECK_INT(p->dials, 2);
	CHECK_INT(rig_stats(&g, "a.test").replays, 1);
	rig_end(&g);
}

/* H-01, H-02: what is open goes on to its end, what is new gets another connection; then the first one goes. */
TEST(goaway_retires_a_connection)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a, b;

	p->does = PEER_HOLDS;
	ask(&g, &a, &(struct asked){ .host = "a.test", .once = true });
	UNTIL(&g, p->requests == 1);
	peer_goaway(peer_conn_at(p, 0), 0);
	UNTIL(&g, rig_stats(&g, "a.test").goaways);
	p->does = PEER_ANSWERS;
	ask_a(&g, &b);
	check_answered(&g, &b);
	CHECK_INT(p->dials, 2);
	CHECK_INT(p->n_conns, 2);
	CHECK(!a.over);
	peer_answer(peer_stream_at(peer_conn_at(p, 0), 0), 200);
	check_answered(&g, &a);
	UNTIL(&g, p->n_conns == 1);
	CHECK_INT(rig_stats(&g, "a.test").goaways, 1);
	rig_end(&g);
}

/* H-03: a request crosses GOAWAY: it is above the last id, so it goes again, also if it must not run twice. */
TEST(a_request_crosses_goaway)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;

	p->does = PEER_LEAVES;
	ask(&g, &a, &(struct asked){ .host = "a.test", .once = true });
	UNTIL(&g, p->requests == 1);
	p->does = PEER_ANSWERS;
	check_answered(&g, &a);
	CHECK_INT(p->requests, 2);
	CHECK_INT(p->dials, 2);
	rig_end(&g);
}

/* H-05: the first complaint halves nothing but the streams, from the second on the origin is left in peace. */
TEST(enhance_your_calm)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;
	uint64_t began;

	for (unsigned n = 1; n <= 3; n++) {
		ask_a(&g, &a);
		began = clock_boot_ms();
		check_answered(&g, &a);
		if (n == 1)
			CHECK(clock_boot_ms() < began + 1000);
		else
			CHECK(clock_boot_ms() >= began + (n == 2 ? 0 : 4900));
		peer_goaway(peer_conn_at(p, 0), H2_CALM);
		UNTIL(&g, rig_stats(&g, "a.test").enhance_calm_count == n);
		CHECK_INT(rig_stats(&g, "a.test").stream_target, 100 >> n);
	}
	rig_spin(&g, 11 * 60 * 1000);	/* it is forgotten */
	ask_a(&g, &a);
	check_answered(&g, &a);
	CHECK_INT(rig_stats(&g, "a.test").stream_target, 0);
	rig_end(&g);
}

/* … and its connections are asked by PING half as often. */
TEST(calm_pings)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;
	uint64_t began;

	ask_a(&g, &a);
	check_answered(&g, &a);
	peer_goaway(peer_conn_at(p, 0), H2_CALM);
	UNTIL(&g, rig_stats(&g, "a.test").enhance_calm_count);
	for (unsigned n = 0; n < 2; n++) {
		p->does = PEER_HOLDS;
		p->requests = 0;
		ask_a(&g, &a);
		UNTIL(&g, p->requests == 1);
		began = clock_boot_ms();
		list_for_each(i, &p->conns)
			list_entry(i, struct peer_conn, node)->silent = true;
		p->does = PEER_ANSWERS;
		check_answered(&g, &a);
		CHECK_INT((clock_boot_ms() - began) / 1000, n ? 15 : 25);
		rig_spin(&g, 11 * 60 * 1000);	/* it is forgotten */
	}
	rig_end(&g);
}

/* --- health --- */

/* N-02: a peer that says nothing is asked by PING after 10 s, and given up 5 s later. */
TEST(a_silent_connection)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	uint64_t began;
	struct ask a;

	p->does = PEER_HOLDS;
	ask_a(&g, &a);
	UNTIL(&g, p->requests == 1);
	peer_conn_at(p, 0)->silent = true;
	began = clock_boot_ms();
	p->does = PEER_ANSWERS;
	UNTIL(&g, p->dials == 2);
	CHECK(clock_boot_ms() >= began + 14900 && clock_boot_ms() <= began + 15100);
	check_answered(&g, &a);
	CHECK_INT(rig_stats(&g, "a.test").pings_lost, 1);
	rig_end(&g);
}

/* A live one that is slow is not: its PINGs are answered. */
TEST(a_slow_answer_is_waited_for)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;

	p->does = PEER_HOLDS;
	ask_a(&g, &a);
	rig_spin(&g, 100000);
	CHECK(!a.over);
	CHECK_INT(p->dials, 1);
	peer_answer(peer_stream_at(peer_conn_at(p, 0), 0), 200);
	check_answered(&g, &a);
	rig_end(&g);
}

/* What swallowed one connection may have swallowed the others to that peer: they are tried at once. */
TEST(the_others_to_a_silent_peer)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a, b;
	uint64_t began;

	p->does = PEER_HOLDS;
	ask(&g, &a, &(struct asked){ .host = "a.test", .group = "one" });
	UNTIL(&g, p->requests == 1);
	rig_spin(&g, 9000);	/* the second one would not be asked for that much longer */
	ask(&g, &b, &(struct asked){ .host = "a.test", .group = "two" });
	UNTIL(&g, p->requests == 2);
	peer_conn_at(p, 0)->silent = peer_conn_at(p, 1)->silent = true;
	p->does = PEER_ANSWERS;
	UNTIL(&g, p->dials == 3);
	began = clock_boot_ms();
	UNTIL(&g, p->dials == 4);
	CHECK(clock_boot_ms() <= began + 5100);
	check_answered(&g, &a);
	check_answered(&g, &b);
	rig_end(&g);
}

/* H-18: what must not run twice goes on an idle connection only after its PING was answered. */
TEST(an_idle_connection_is_tried_first)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;

	ask_a(&g, &a);
	check_answered(&g, &a);
	for (int silent = 0; silent < 2; silent++) {
		rig_spin(&g, 31000);
		peer_conn_at(p, 0)->silent = silent;
		ask(&g, &a, &(struct asked){ .host = "a.test", .once = true });
		check_answered(&g, &a);
		CHECK_INT(p->dials, 1 + silent);
	}
	CHECK_INT(p->requests, 3);
	rig_end(&g);
}

/* H-19: surplus ones go after 5 min, the last one after 9.5; then the origin is forgotten. */
TEST(idle_connections_go)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	const struct origin *none = NULL;
	struct pool_stats s;
	struct ask a[2];

	p->max_streams = 1;
	p->connect_ms = 10;
	for (size_t i = 0; i < 2; i++)
		ask_a(&g, &a[i]);
	for (size_t i = 0; i < 2; i++)
		check_answered(&g, &a[i]);
	rig_spin(&g, 200000);
	for (size_t i = 0; i < 2; i++)	/* it counts from the last use */
		ask_a(&g, &a[i]);
	for (size_t i = 0; i < 2; i++)
		check_answered(&g, &a[i]);
	rig_spin(&g, 295000);
	CHECK(p->n_conns >= 2);
	rig_spin(&g, 10000);
	CHECK_INT(p->n_conns, 1);
	rig_spin(&g, 260000);
	CHECK_INT(p->n_conns, 1);
	rig_spin(&g, 10000);
	CHECK_INT(p->n_conns, 0);
	rig_spin(&g, 400000);
	CHECK(!pool_stats(g.pool, &none, &s));
	rig_end(&g);
}

/* At 30 min of age its successor is dialled first; what is open goes on. */
TEST(an_old_connection_has_a_successor)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a, b;

	p->does = PEER_HOLDS;
	p->connect_ms = 100;
	ask(&g, &a, &(struct asked){ .host = "a.test", .cls = POOL_LONG });
	rig_spin(&g, 29 * 60000);
	CHECK_INT(p->dials, 1);
	rig_spin(&g, 2 * 60000);
	CHECK_INT(p->dials, 2);
	CHECK_INT(p->n_conns, 2);
	ask_a(&g, &b);
	UNTIL(&g, p->requests == 2);
	CHECK_INT(peer_conn_at(p, 1)->n_open, 1);
	peer_answer(peer_stream_at(peer_conn_at(p, 0), 0), 200);
	check_answered(&g, &a);
	UNTIL(&g, p->n_conns == 1);
	ask_end(&b);
	rig_end(&g);
}

/* Three requests in a row without an answer's head in time: the connection is given up. */
TEST(requests_starve)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a[3], b;

	for (unsigned n = 2; n <= 3; n++) {	/* two, an answer, three */
		p->does = PEER_HOLDS;
		for (size_t i = 0; i < n; i++)
			ask(&g, &a[i],
			    &(struct asked){ .host = "a.test", .head_by_ms = 1000, .once = true });
		for (size_t i = 0; i < n; i++) {
			UNTIL(&g, a[i].over);
			CHECK_INT(a[i].fate, POOL_BROKEN);
			CHECK_INT(a[i].why.reason, R_DEADLINE_REQUEST);
			ask_end(&a[i]);
		}
		p->does = PEER_ANSWERS;
		ask_a(&g, &b);
		check_answered(&g, &b);
		CHECK_INT(p->dials, n - 1);
	}
	rig_end(&g);
}

/* --- one connection for several hosts --- */

static unsigned dials_for_two(const char *covers, const char *address_b, const char *group_b)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;
	unsigned dials;

	p->covers = covers;
	rig_host(&g, "b.test", address_b);
	rig_peer(&g, "192.0.2.2");
	ask_a(&g, &a);
	check_answered(&g, &a);
	ask(&g, &a, &(struct asked){ .host = "b.test", .group = group_b });
	check_answered(&g, &a);
	dials = g.peers[0].dials + g.peers[1].dials;
	rig_end(&g);
	return dials;
}

TEST(shared_by_certificate_and_address)
{
	CHECK_INT(dials_for_two("test", "192.0.2.1", NULL), 1);
	CHECK_INT(dials_for_two("a.test", "192.0.2.1", NULL), 2);
	CHECK_INT(dials_for_two("test", "192.0.2.2", NULL), 2);
	CHECK_INT(dials_for_two("test", "192.0.2.1", "another account"), 2);
}

/* In a cold start the first dial to a domain does for all its hosts; when it fails, each tries for itself. */
TEST(a_cold_start_waits_for_a_sibling)
{
	struct rig g;
	struct peer *p;
	struct ask a[4];
	char host[16];

	for (int fails = 0; fails < 2; fails++) {
		p = begin(&g, NULL);
		p->connect_ms = 30;
		rig_host(&g, "x1.b.test", fails ? "192.0.2.9" : "192.0.2.1");	/* nobody is there */
		for (unsigned i = 2; i <= 4; i++) {
			snprintf(host, sizeof(host), "x%u.b.test", i);
			rig_host(&g, host, "192.0.2.1");
		}
		for (unsigned i = 0; i < 4; i++) {
			snprintf(host, sizeof(host), "x%u.b.test", i + 1);
			ask(&g, &a[i], &(struct asked){ .host = host });
		}
		for (unsigned i = fails; i < 4; i++)
			check_answered(&g, &a[i]);
		if (fails)
			ask_end(&a[0]);
		else
			CHECK_INT(p->dials, 1);
		rig_end(&g);
	}
}

/* 421 ends sharing for that host, and the request goes again unseen. */
TEST(misdirected)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;

	rig_host(&g, "b.test", "192.0.2.1");
	ask_a(&g, &a);
	check_answered(&g, &a);
	p->status = 421;
	ask(&g, &a, &(struct asked){ .host = "b.test", .once = true });
	UNTIL(&g, p->requests == 2 && !p->n_open);
	p->status = 0;
	check_answered(&g, &a);
	CHECK_INT(p->requests, 3);
	CHECK_INT(p->dials, 2);
	ask(&g, &a, &(struct asked){ .host = "b.test" });
	check_answered(&g, &a);
	CHECK_INT(p->dials, 2);		/* its own */
	CHECK_INT(peer_conn_at(p, 1)->n_open, 0);
	rig_end(&g);
}

/* An upgrade goes on HTTP/1.1 beside the connection that others use, and lends none. */
TEST(http1_is_asked_for)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a;

	rig_host(&g, "b.test", "192.0.2.1");
	ask_a(&g, &a);
	check_answered(&g, &a);
	p->http1 = true;	/* connections from now on */
	for (int i = 0; i < 2; i++) {
		ask(&g, &a, &(struct asked){ .host = "b.test", .http1 = true });
		check_answered(&g, &a);
		CHECK_INT(p->dials, 2);
	}
	p->http1 = false;
	ask(&g, &a, &(struct asked){ .host = "b.test" });
	check_answered(&g, &a);
	CHECK_INT(p->dials, 2);		/* that of a.test does for it */
	rig_end(&g);
}

/* Whoever dials an address may call its host by another name. */
TEST(authority_of_a_request)
{
	struct rig g;
	struct ask a;

	begin(&g, NULL);
	ask(&g, &a, &(struct asked){ .host = "a.test", .authority = "3000-x.localhost:80" });
	check_answered(&g, &a);
	CHECK_STR(g.log, "3000-x.localhost:80/ ");
	rig_end(&g);
}

/* --- accounts --- */

/* H-21: a new key is a new group; what was made for the old one takes nothing new. */
TEST(a_group_is_retired)
{
	struct rig g;
	struct peer *p = begin(&g, NULL);
	struct ask a, b;

	p->does = PEER_HOLDS;
	ask(&g, &a, &(struct asked){ .host = "a.test", .group = "key 1" });
	UNTIL(&g, p->requests == 1);
	pool_retire_group(g.pool, "key 1");
	p->does = PEER_ANSWERS;
	ask(&g, &b, &(struct asked){ .host = "a.test", .group = "key 2" });
	check_answered(&g, &b);
	CHECK_INT(p->dials, 2);
	CHECK(!a.over);
	peer_answer(peer_stream_at(peer_conn_at(p, 0), 0), 200);
	check_answered(&g, &a);
	UNTIL(&g, p->n_conns == 1);
	rig_end(&g);
}

TEST_MAIN()
