/* SPDX-License-Identifier: MIT */
/* Readers: each at its own place, none of them in another's way. */
#include "tests/unit/command/world.h"

static struct view v[3];

TEST(each_at_its_own_place)
{
	struct command_read_from at = { .offset = { [SPOOL_STDOUT] = 4 } }, end = { .from_end = true };
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "one two ");
	turn(&s);
	look(c, &v[0]);
	look_from(c, &v[1], &at);
	look_from(c, &v[2], &end);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "three");
	turn(&s);
	CHECK(v[0].n[SPOOL_STDOUT] == 13 && !memcmp(v[0].bytes[SPOOL_STDOUT], "one two three", 13));
	CHECK(v[1].n[SPOOL_STDOUT] == 9 && !memcmp(v[1].bytes[SPOOL_STDOUT], "two three", 9));
	CHECK(v[2].n[SPOOL_STDOUT] == 5 && !memcmp(v[2].bytes[SPOOL_STDOUT], "three", 5));
	for (unsigned i = 0; i < 3; i++) {
		CHECK(!v[i].gaps);
		look_away(&v[i], true);
	}
	spin(&s.w, 100);
	CHECK(!has_ended(c) && !agent_count(AGENT_HELPER));	/* they did not run it */
	command_unref(c);
	shop_close(&s);
}

/* One that does not read gets a gap where the others got bytes; nothing that anybody gets is wrong. */
TEST(a_slow_one_is_not_waited_for)
{
	struct shop s = { .spool_per_command = 100000 };
	char line[1000];
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	look(c, &v[0]);
	look(c, &v[1]);
	v[1].room = 0;
	for (unsigned i = 0; i < 300; i++) {
		memset(line, 'a' + (int)(i % 26), sizeof(line));
		agent_says_bytes(agent_ask(AGENT_START, 0), ENVD_STDOUT, line, sizeof(line));
		if (i % 10 == 9)
			spin(&s.w, 200);
	}
	CHECK(v[0].n[SPOOL_STDOUT] == 300000 && !v[0].gaps);
	v[1].room = SIZE_MAX;
	look_on(&v[1]);
	CHECK(v[1].gaps == 1 && v[1].n[SPOOL_STDOUT] <= 100000 && v[1].n[SPOOL_STDOUT] > 30000);
	CHECK_STR(v[1].reason, "overflow");
	CHECK(!memcmp(v[1].bytes[SPOOL_STDOUT] + v[1].n[SPOOL_STDOUT] - 1000, line, 1000));
	look_away(&v[0], false);
	look_away(&v[1], false);
	command_unref(c);
	shop_close(&s);
}

/* HOUSE 2.9: what comes in one pass is more than is kept: who keeps up gets all of it all the same. */
TEST(a_burst_larger_than_the_spool)
{
	struct shop s = { .spool_per_command = 100000 };
	static char bytes[32768];
	struct agent_ask *a;
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	look(c, &v[0]);
	a = agent_ask(AGENT_START, 0);
	for (unsigned i = 0; i < 12; i++) {
		memset(bytes, 'a' + (int)i, sizeof(bytes));
		agent_says_bytes(a, ENVD_STDOUT, bytes, sizeof(bytes));
	}
	turn(&s);
	CHECK(v[0].n[SPOOL_STDOUT] == 12 * sizeof(bytes) && !v[0].gaps);
	for (size_t i = 0; i < v[0].n[SPOOL_STDOUT]; i++)
		CHECK(v[0].bytes[SPOOL_STDOUT][i] == 'a' + (char)(i / sizeof(bytes)));
	look_away(&v[0], false);
	command_unref(c);
	shop_close(&s);
}

TEST(a_run_ends_with_its_last_reader)
{
	struct command_read_from run = { .run = true };
	struct shop s = { 0 };
	struct command_start what;
	struct command *c;

	shop_open(&s);
	for (unsigned end_it = 0; end_it < 2; end_it++) {
		what = a_start(&s, "work");
		what.blocking_reader = true;
		c = running_as(&s, &what, 7 + end_it);
		look_from(c, &v[0], &run);
		look_from(c, &v[1], &run);
		look_away(&v[0], true);
		spin(&s.w, 100);
		CHECK_INT(agent_count(AGENT_HELPER), 0);
		look_away(&v[1], end_it);
		spin(&s.w, 100);
		CHECK_INT(agent_count(AGENT_HELPER), end_it);
		command_unref(c);
	}
	shop_close(&s);
}

static void follow_foreign(struct shop *s, struct got *g)
{
	find_pid(s, g, &alice, 8);
	UNTIL(&s->w, agent_count(AGENT_ATTACH));
	agent_started(agent_ask(AGENT_ATTACH, 0), 8);
	UNTIL(&s->w, g->done);
	look(g->c, &v[0]);
}

/* Somebody else's is followed as long as somebody reads it. */
TEST(a_foreign_one_is_let_go)
{
	struct shop s = { 0 };
	struct got g;

	shop_open(&s);
	follow_foreign(&s, &g);
	got_drop(&g);
	agent_says(agent_ask(AGENT_ATTACH, 0), ENVD_STDOUT, "from now on");
	turn(&s);
	CHECK(v[0].n[SPOOL_STDOUT] == 11 && !agent_ask(AGENT_ATTACH, 0)->over);
	look_away(&v[0], true);
	turn(&s);
	CHECK(agent_ask(AGENT_ATTACH, 0)->over && !agent_count(AGENT_HELPER));
	shop_close(&s);
}

/* Also while a call is at work on it, as input is: what its agent says after that is nobody's, and no byte of it ends it twice. */
TEST(a_foreign_one_is_let_go_under_a_call)
{
	struct shop s = { 0 };
	struct got g;

	shop_open(&s);
	follow_foreign(&s, &g);
	agent_exits(agent_ask(AGENT_ATTACH, 0), 0);
	look_away(&v[0], true);		/* g has its reference */
	CHECK(agent_ask(AGENT_ATTACH, 0)->over);
	spin(&s.w, 100);
	CHECK(!has_ended(g.c));
	got_drop(&g);
	shop_close(&s);
}

/* C-10: the file of one that has ended is open while somebody reads it. */
TEST(an_ended_one_is_opened_to_be_read)
{
	struct shop s = { 0 };
	struct command *c;
	unsigned before;

	shop_open(&s);
	c = running(&s, 7);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "kept");
	turn(&s);
	before = open_files();
	agent_exits(agent_ask(AGENT_START, 0), 0);
	UNTIL(&s.w, has_ended(c));
	CHECK_INT(open_files(), before - 1);
	look(c, &v[0]);
	CHECK(v[0].ended && v[0].n[SPOOL_STDOUT] == 4);
	CHECK_INT(open_files(), before);
	look_away(&v[0], true);
	CHECK_INT(open_files(), before - 1);
	command_unref(c);
	shop_close(&s);
}

TEST_MAIN()
