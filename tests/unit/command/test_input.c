/* SPDX-License-Identifier: MIT */
/* Input by offset, and the sizes of terminals. */
#include "tests/unit/command/world.h"

#include <errno.h>

static struct command *reads(struct shop *s, bool pty)
{
	struct command_start what = a_start(s, "work");

	what.stdin_open = !pty;
	what.pty = pty;
	what.cols = 80;
	what.rows = 24;
	return running_as(s, &what, 7);
}

TEST(input_goes_on_where_it_was)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = reads(&s, false);
	send_input(c, &g, 0, "abc");
	CHECK(agent_ask(AGENT_INPUT, 0)->pid == 7 && !agent_ask(AGENT_INPUT, 0)->pty);
	agent_answers(agent_ask(AGENT_INPUT, 0));
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.accepted == 3);
	send_input(c, &g, 1, "bcde");		/* the overlap is dropped */
	CHECK_STR(agent_ask(AGENT_INPUT, 1)->words, "de");
	agent_answers(agent_ask(AGENT_INPUT, 1));
	UNTIL(&s.w, g.done);
	CHECK_INT(g.accepted, 5);
	send_input(c, &g, 2, "cd");
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.accepted == 5);
	send_input(c, &g, 6, "x");
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_INPUT_OFFSET);
	CHECK_INT(agent_count(AGENT_INPUT), 2);
	command_unref(c);
	shop_close(&s);
}

/* Sent once: whether it arrived is not known, and is said once. */
TEST(input_in_doubt)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = reads(&s, false);
	send_input(c, &g, 0, "abc");
	agent_fails(agent_ask(AGENT_INPUT, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_STR(status_evidence_get(&g.st, "input_from"), "0");
	CHECK_STR(status_evidence_get(&g.st, "input_to"), "3");
	send_input(c, &g, 3, "def");
	CHECK_STR(agent_ask(AGENT_INPUT, 1)->words, "def");
	agent_fails(agent_ask(AGENT_INPUT, 1), ENVD_UNSENT, R_UNREACHABLE, "no way");
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_UNREACHABLE);
	send_input(c, &g, 3, "def");		/* nothing of it arrived */
	agent_answers(agent_ask(AGENT_INPUT, 2));
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.accepted == 6);
	command_unref(c);
	shop_close(&s);
}

TEST(input_has_an_end)
{
	struct shop s = { 0 };
	struct command *c, *without;
	struct got g;

	shop_open(&s);
	without = running(&s, 9);
	send_input(without, &g, 0, "x");
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_PROCESS_STDIN_CLOSED);
	c = reads(&s, false);
	CHECK_INT(command_input_open(c), 0);
	CHECK_INT(command_input_open(c), -EBUSY);
	command_input_close(c);
	end_input(c, &g);
	agent_answers(agent_ask(AGENT_CLOSE, 0));
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st));
	end_input(c, &g);			/* twice is fine */
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st));
	CHECK_INT(agent_count(AGENT_CLOSE), 1);
	send_input(c, &g, 0, "x");
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_PROCESS_STDIN_CLOSED);
	command_unref(c);
	command_unref(without);
	shop_close(&s);
}

TEST(a_terminal_has_no_end_of_file)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = reads(&s, true);
	end_input(c, &g);
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_UNSUPPORTED);
	send_input(c, &g, 0, "\004");
	CHECK(agent_ask(AGENT_INPUT, 0)->pty);
	agent_answers(agent_ask(AGENT_INPUT, 0));
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st));
	command_unref(c);
	shop_close(&s);
}

/* One is on its way at a time, the next a tenth of a second later; the last one wins, and each caller hears of it. */
TEST(a_storm_of_sizes)
{
	struct shop s = { 0 };
	struct got g[50], late;
	struct command *c;

	shop_open(&s);
	c = reads(&s, true);
	for (unsigned i = 0; i < ARRAY_SIZE(g); i++) {
		resize(c, &g[i], 100 + i, 40);
		turn(&s);
	}
	CHECK_INT(agent_count(AGENT_RESIZE), 1);
	CHECK(agent_ask(AGENT_RESIZE, 0)->cols == 100);
	agent_answers(agent_ask(AGENT_RESIZE, 0));
	turn(&s);
	CHECK(g[0].done && !g[1].done);
	spin(&s.w, 110);
	CHECK_INT(agent_count(AGENT_RESIZE), 2);
	CHECK(agent_ask(AGENT_RESIZE, 1)->cols == 149);
	agent_answers(agent_ask(AGENT_RESIZE, 1));
	turn(&s);
	for (unsigned i = 0; i < ARRAY_SIZE(g); i++)
		CHECK(g[i].done && status_ok(&g[i].st));
	resize(c, &late, 90, 20);
	agent_exits(agent_ask(AGENT_START, 0), 0);
	UNTIL(&s.w, late.done);
	CHECK_INT(late.st.reason, R_PROCESS_NOT_FOUND);
	command_unref(c);
	shop_close(&s);
}

TEST(a_size_without_a_terminal)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = reads(&s, false);
	resize(c, &g, 80, 24);
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_UNSUPPORTED);
	command_unref(c);
	shop_close(&s);
}

TEST_MAIN()
