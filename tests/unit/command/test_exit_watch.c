/* SPDX-License-Identifier: MIT */
/* Commands whose process has ended while others hold their output. */
#include "tests/unit/command/world.h"

static struct view v;

/* The next look: what it asks about, and what it hears. */
static void next_look(struct shop *s, int n, const char *asks, const char *hears)
{
	uint64_t until = clock_boot_ms() + 61000;
	struct agent_ask *a;

	while (agent_count(AGENT_LOOK) <= (unsigned)n) {
		CHECK(loop_once(s->w.loop, 20) >= 0);
		CHECK(clock_boot_ms() < until);
	}
	a = agent_ask(AGENT_LOOK, n);
	CHECK_STR(a->words + a->n_words - strlen(asks), asks);
	if (*hears)
		agent_says(a, ENVD_STDOUT, hears);
	agent_exits(a, 0);
}

TEST(seen_dead_twice_is_its_end)
{
	struct shop s = { 0 };
	struct command *c;
	uint64_t begun;

	shop_open(&s);
	begun = clock_boot_ms();
	c = running(&s, 7);
	look(c, &v);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "hi\n");
	next_look(&s, 0, " sh 7", "7 1792\n");
	CHECK(clock_boot_ms() >= begun + 500 && clock_boot_ms() < begun + 700);
	turn(&s);
	CHECK(!has_ended(c));
	next_look(&s, 1, " sh 7", "7 1792\n");
	UNTIL(&s.w, v.ended);
	CHECK(result_of(c)->outcome == COMMAND_EXITED && result_of(c)->exit_code == 7);
	CHECK(result_of(c)->pipes_held && result_of(c)->output_complete && v.n[SPOOL_STDOUT] == 3);
	look_away(&v, true);
	command_unref(c);
	shop_close(&s);
}

TEST(looks_become_rare)
{
	struct shop s = { 0 };
	struct command *c;
	uint64_t begun;

	shop_open(&s);
	c = running(&s, 7);
	begun = clock_boot_ms();
	for (int i = 0; i < 12; i++)
		next_look(&s, i, " sh 7", i % 2 ? "" : "\nx\n7\n7 -1\n7 x\n99999 0\n7 70000\n");
	CHECK(!has_ended(c));
	CHECK(clock_boot_ms() > begun + 5 * 60000 && clock_boot_ms() < begun + 7 * 60000);
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	turn(&s);
	spin(&s.w, 180000);
	CHECK_INT(agent_count(AGENT_LOOK), 12);	/* without a stream nothing is sent that could wake it */
	command_unref(c);
	shop_close(&s);
}

TEST(one_look_serves_all)
{
	struct shop s = { 0 };
	struct command *c[3];

	shop_open(&s);
	for (unsigned i = 0; i < 3; i++)
		c[i] = running(&s, 7 + i);
	next_look(&s, 0, " sh 7 8 9", "8 15\n");
	next_look(&s, 1, " sh 8 7 9", "8 15\n");
	UNTIL(&s.w, has_ended(c[1]));
	CHECK_STR(result_of(c[1])->signal, "TERM");
	CHECK(!has_ended(c[0]) && !has_ended(c[2]));
	for (unsigned i = 0; i < 3; i++)
		command_unref(c[i]);
	shop_close(&s);
}

TEST(others_that_go_on_talking_are_not_waited_for)
{
	struct shop s = { 0 };
	struct command *c;
	uint64_t dead;

	shop_open(&s);
	c = running(&s, 7);
	next_look(&s, 0, " sh 7", "7 0\n");
	next_look(&s, 1, " sh 7", "7 0\n");
	dead = clock_boot_ms();
	while (!has_ended(c)) {
		if (!agent_ask(AGENT_START, 0)->over)
			agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "x");
		spin(&s.w, 50);
		CHECK(clock_boot_ms() < dead + 3000);
	}
	CHECK(clock_boot_ms() >= dead + 2000 && result_of(c)->pipes_held && !result_of(c)->output_complete);
	command_unref(c);
	shop_close(&s);
}

TEST(a_look_that_fails_says_nothing)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	next_look(&s, 0, " sh 7", "7 0\n");
	UNTIL(&s.w, agent_count(AGENT_LOOK) == 2);
	agent_fails(agent_ask(AGENT_LOOK, 1), ENVD_LOST, R_UNREACHABLE, "cut");
	spin(&s.w, 500);
	next_look(&s, 2, " sh 7", "7 0\n");	/* counted anew */
	turn(&s);
	spin(&s.w, 240);
	CHECK(!has_ended(c));
	next_look(&s, 3, " sh 7", "7 0\n");
	UNTIL(&s.w, has_ended(c));
	command_unref(c);
	shop_close(&s);
}

TEST_MAIN()
