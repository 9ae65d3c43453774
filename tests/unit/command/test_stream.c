/* SPDX-License-Identifier: MIT */
/* The upstream side of a command: output, its end, streams that are lost, sandboxes that are away. */
#include "tests/unit/command/world.h"

static struct view v;

/* Answers each question about the process with "it is there". */
static void is_there(struct command *c, uint32_t pid)
{
	static char tag[64];
	struct command_view look;

	command_look(c, &look);
	(void)str_copy(tag, sizeof(tag), look.tag);
	agent->processes[0] = (struct envd_process){ .pid = pid, .tag = tag };
	agent->n_processes = 1;
}

TEST(output_and_its_end)
{
	struct shop s = { 0 };
	struct agent_ask *a;
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	look(c, &v);
	a = agent_ask(AGENT_START, 0);
	for (unsigned i = 0; i < 200; i++)
		agent_says(a, i % 5 ? ENVD_STDOUT : ENVD_STDERR, "line\n");
	v.told = 0;
	turn(&s);
	CHECK(v.n[SPOOL_STDOUT] == 800 && v.n[SPOOL_STDERR] == 200 && !v.gaps);
	CHECK_INT(v.told, 1);		/* all of it at the end of the pass */
	agent_exits(a, 3);
	UNTIL(&s.w, v.ended);
	CHECK(result_of(c)->outcome == COMMAND_EXITED && result_of(c)->exit_code == 3);
	CHECK(result_of(c)->output_complete && a->over);
	look_away(&v, true);
	command_unref(c);
	shop_close(&s);
}

/* What came with the end, in the same pass, is before it. */
TEST(the_end_is_behind_the_last_byte)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "last words");
	agent_killed(agent_ask(AGENT_START, 0));
	UNTIL(&s.w, has_ended(c));
	look(c, &v);
	CHECK(v.n[SPOOL_STDOUT] == 10 && v.ended);
	CHECK_INT(result_of(c)->outcome, COMMAND_SIGNALED);
	CHECK_STR(result_of(c)->signal, "KILL");
	look_away(&v, true);
	command_unref(c);
	shop_close(&s);
}

TEST(a_lost_stream_is_asked_for_at_once)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	look(c, &v);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "one");
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	turn(&s);
	CHECK_INT(agent_count(AGENT_ATTACH), 1);
	CHECK_INT(agent_ask(AGENT_ATTACH, 0)->pid, 7);
	agent_started(agent_ask(AGENT_ATTACH, 0), 7);
	agent_says(agent_ask(AGENT_ATTACH, 0), ENVD_STDOUT, "two");
	turn(&s);
	CHECK(!memcmp(v.bytes[SPOOL_STDOUT], "onetwo", 6) && v.gaps == 2);
	CHECK_STR(v.reason, "reattached");
	agent_exits(agent_ask(AGENT_ATTACH, 0), 0);
	UNTIL(&s.w, v.ended);
	CHECK(!result_of(c)->output_complete);
	look_away(&v, true);
	command_unref(c);
	shop_close(&s);
}

/* Each stream is cut as soon as it is there, until `until`; how many there were. */
static unsigned cut_until(struct shop *s, struct command *c, uint64_t until, int seen)
{
	unsigned n = 0;

	while (clock_boot_ms() < until && !has_ended(c)) {
		if (agent_count(AGENT_ATTACH) > (unsigned)seen) {
			agent_started(agent_ask(AGENT_ATTACH, seen), 7);
			agent_fails(agent_ask(AGENT_ATTACH, seen++), ENVD_LOST, R_UNREACHABLE, "cut");
			n++;
		}
		CHECK(loop_once(s->w.loop, 20) >= 0);
	}
	return n;
}

/* B-2: the limit is one of time, and what comes sets it back. */
TEST(cuts_are_counted_in_time)
{
	struct shop s = { 0 };
	uint64_t begun;
	struct command *c;
	unsigned n;

	shop_open(&s);
	c = running(&s, 7);
	begun = clock_boot_ms();
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	n = cut_until(&s, c, begun + 119000, 0);
	CHECK(!has_ended(c) && n > 6 && n < 30);
	cut_until(&s, c, begun + 200000, (int)n);
	CHECK_INT(result_of(c)->outcome, COMMAND_UNKNOWN);
	CHECK(strstr(result_of(c)->message, "with nothing between: cut"));
	CHECK(clock_boot_ms() < begun + 160000);
	command_unref(c);
	shop_close(&s);
}

/* B-2: a byte, a keep-alive, or a stream that stood for a while. */
TEST(progress_begins_anew)
{
	struct shop s = { 0 };
	struct command *c;
	uint64_t begun;

	shop_open(&s);
	c = running(&s, 7);
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	for (unsigned round = 0; round < 3; round++) {
		unsigned seen = agent_count(AGENT_ATTACH);

		begun = clock_boot_ms();
		cut_until(&s, c, begun + 80000, round ? (int)seen - 1 : 0);
		UNTIL(&s.w, !agent_ask(AGENT_ATTACH, -1)->over);
		agent_started(agent_ask(AGENT_ATTACH, -1), 7);
		if (round == 0)
			agent_says(agent_ask(AGENT_ATTACH, -1), ENVD_STDERR, "x");
		else if (round == 1)
			agent_keepalive(agent_ask(AGENT_ATTACH, -1));
		else
			spin(&s.w, 10000);
		turn(&s);
		seen = agent_count(AGENT_ATTACH);
		agent_fails(agent_ask(AGENT_ATTACH, -1), ENVD_LOST, R_UNREACHABLE, "cut");
		turn(&s);
		CHECK_INT(agent_count(AGENT_ATTACH), seen + 1);	/* at once, as after the first cut */
	}
	CHECK(!has_ended(c));
	command_unref(c);
	shop_close(&s);
}

/* An edge that cuts what is silent for half a minute. */
TEST(a_quiet_program_may_be_cut_for_ever)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	for (int i = 0; i < 40; i++) {
		UNTIL(&s.w, agent_count(AGENT_ATTACH) > (unsigned)i);
		agent_started(agent_ask(AGENT_ATTACH, i), 7);
		spin(&s.w, 30000);
		agent_fails(agent_ask(AGENT_ATTACH, i), ENVD_LOST, R_UNREACHABLE, "idle");
	}
	CHECK(!has_ended(c));
	command_unref(c);
	shop_close(&s);
}

TEST(out_of_reach_is_not_the_end)
{
	struct shop s = { 0 };
	struct command *c;
	uint64_t begun;
	int seen = 0;

	shop_open(&s);
	c = running(&s, 7);
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	for (begun = clock_boot_ms(); clock_boot_ms() < begun + 600000;) {
		if (agent_count(AGENT_ATTACH) > (unsigned)seen)
			agent_fails(agent_ask(AGENT_ATTACH, seen++), ENVD_UNSENT, R_UNREACHABLE, "no way");
		CHECK(loop_once(s.w.loop, 20) >= 0);
	}
	CHECK(!has_ended(c) && seen > 10 && seen < 60);
	UNTIL(&s.w, agent_count(AGENT_ATTACH) > (unsigned)seen);
	agent_started(agent_ask(AGENT_ATTACH, seen), 7);
	agent_exits(agent_ask(AGENT_ATTACH, seen), 0);
	UNTIL(&s.w, has_ended(c));
	CHECK_INT(result_of(c)->outcome, COMMAND_EXITED);
	command_unref(c);
	shop_close(&s);
}

TEST(one_that_ended_unseen)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	turn(&s);
	agent_fails(agent_ask(AGENT_ATTACH, 0), ENVD_ANSWERED, R_PROCESS_NOT_FOUND, "no process");
	UNTIL(&s.w, has_ended(c));
	CHECK(result_of(c)->outcome == COMMAND_UNKNOWN && result_of(c)->reason == R_OUTCOME_UNKNOWN);
	command_unref(c);
	shop_close(&s);
}

TEST(its_sandbox_is_gone)
{
	struct shop s = { 0 };
	struct command *c[2];

	shop_open(&s);
	c[0] = running(&s, 7);
	c[1] = running(&s, 8);
	fake_end(fake_find(s.w.fake, s.sandbox), "by somebody");
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	turn(&s);
	agent_fails(agent_ask(AGENT_ATTACH, 0), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	for (unsigned i = 0; i < 2; i++) { /* the other one's stream is open, and says nothing */
		UNTIL(&s.w, has_ended(c[i]));
		CHECK_INT(result_of(c[i])->outcome, COMMAND_LOST);
		CHECK_INT(status_reason_code(result_of(c[i])->reason), CODE_NOT_FOUND);
		command_unref(c[i]);
	}
	shop_close(&s);
}

TEST(the_clock_stands_still_in_a_pause)
{
	struct shop s = { 0 };
	struct command_start what;
	struct command *c;
	struct fake_sandbox *b;

	shop_open(&s);
	what = a_start(&s, "work");
	what.timeout_ms = 60000;
	c = running_as(&s, &what, 7);
	b = fake_find(s.w.fake, s.sandbox);
	spin(&s.w, 30000);
	b->paused = true;
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	turn(&s);
	agent_fails(agent_ask(AGENT_ATTACH, 0), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	spin(&s.w, 120000);
	CHECK(!has_ended(c));
	CHECK_INT(agent_count(AGENT_ATTACH), 1);	/* nothing is sent to it */
	b->paused = false;
	is_there(c, 7);
	UNTIL(&s.w, agent_count(AGENT_LIST));
	agent_answers(agent_ask(AGENT_LIST, 0));
	UNTIL(&s.w, agent_count(AGENT_ATTACH) == 2);
	agent_started(agent_ask(AGENT_ATTACH, 1), 7);
	spin(&s.w, 25000);
	CHECK(!has_ended(c) && !agent_count(AGENT_HELPER));
	spin(&s.w, 6000);
	CHECK_INT(agent_count(AGENT_HELPER), 1);	/* its time is over: it is killed */
	agent_killed(agent_ask(AGENT_ATTACH, 1));
	agent_exits(agent_ask(AGENT_HELPER, -1), 0);
	UNTIL(&s.w, has_ended(c));
	CHECK(result_of(c)->timed_out);
	command_unref(c);
	shop_close(&s);
}

/* What its reader has not taken stays with the agent, also where all of it is there in one pass. */
TEST(a_blocked_run_is_read_no_further)
{
	struct command_read_from from = { .run = true };
	struct shop s = { 0 };
	struct command_start what;
	struct agent_ask *a;
	struct command *c;
	char chunk[32768];

	shop_open(&s);
	what = a_start(&s, "work");
	what.blocking_reader = true;
	what.spool_limit = 100000;
	c = running_as(&s, &what, 7);
	look_from(c, &v, &from);
	v.room = 0;
	a = agent_ask(AGENT_START, 0);
	memset(chunk, 'x', sizeof(chunk));
	for (unsigned i = 0; i < 10; i++)
		agent_says_bytes(a, ENVD_STDOUT, chunk, sizeof(chunk));
	turn(&s);
	CHECK(agent_unread(a) >= 7 * sizeof(chunk) && v.n[SPOOL_STDOUT] == 0);
	for (unsigned i = 0; i < 40; i++) {
		v.room = 10000;
		look_on(&v);
		turn(&s);
	}
	agent_exits(a, 0);
	v.room = SIZE_MAX;
	look_on(&v);
	UNTIL(&s.w, v.ended);
	CHECK(v.n[SPOOL_STDOUT] == 10 * sizeof(chunk) && !v.gaps);
	CHECK(result_of(c)->output_complete);
	look_away(&v, false);
	command_unref(c);
	shop_close(&s);
}

TEST_MAIN()

/* G-2: the first word of a start counts; the others, whatever they say, change nothing. */
TEST(a_start_that_is_told_twice)
{
	struct shop s = { 0 };
	struct command_view look;
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	agent_started(agent_ask(AGENT_START, 0), 9);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "one");
	turn(&s);
	command_look(c, &look);
	CHECK(look.pid == 7 && look.end[SPOOL_STDOUT] == 3);
	agent_exits(agent_ask(AGENT_START, 0), 3);
	UNTIL(&s.w, has_ended(c));
	CHECK_INT(result_of(c)->exit_code, 3);
	command_unref(c);
	shop_close(&s);
}

/* G-2: an end proves that there was a beginning: who waits for that hears of it. */
TEST(an_end_without_a_start)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	agent_exits(agent_ask(AGENT_START, 0), 3);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && has_ended(g.c));
	CHECK(result_of(g.c)->outcome == COMMAND_EXITED && result_of(g.c)->exit_code == 3);
	got_drop(&g);
	shop_close(&s);
}

/* More than is kept, and the end. */
static void says_too_much(struct shop *s, struct agent_ask *a)
{
	static const char line[1000];

	for (unsigned i = 0; i < 300; i++) {
		agent_says_bytes(a, ENVD_STDOUT, line, sizeof(line));
		if (i % 10 == 9)
			turn(s);
	}
	agent_exits(a, 3);
}

/* G-2: BLOCK waits for the starter's own reader, and a start that is no run has none. */
TEST(output_does_not_wait_for_nobody)
{
	struct shop s = { .spool_per_command = 100000 };
	struct command_start what;
	struct command *c;

	shop_open(&s);
	what = a_start(&s, "work");
	what.overflow = COMMAND_BLOCK;
	c = running_as(&s, &what, 7);
	says_too_much(&s, agent_ask(AGENT_START, 0));
	UNTIL(&s.w, has_ended(c));
	CHECK_INT(result_of(c)->exit_code, 3);
	command_unref(c);
	shop_close(&s);
}

/* G-2: … nor for the reader of a run whose caller left before it was there. */
TEST(output_does_not_wait_for_who_left)
{
	struct shop s = { .spool_per_command = 100000 };
	struct command_start what;
	struct command *c;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	what.overflow = COMMAND_BLOCK;
	what.blocking_reader = what.detach = true;
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	got_drop(&g);
	agent_started(agent_ask(AGENT_START, 0), 7);
	turn(&s);
	c = commands_find(s.cs, &alice, agent_ask(AGENT_START, 0)->tag + strlen("agentbox-"));
	CHECK(c);
	says_too_much(&s, agent_ask(AGENT_START, 0));
	UNTIL(&s.w, has_ended(c));
	CHECK_INT(result_of(c)->exit_code, 3);
	shop_close(&s);
}

/* G-2: a stream that was opened and says nothing is one that was lost. */
TEST(a_stream_that_does_not_begin)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	spin(&s.w, 80000);
	CHECK(!g.done && agent_count(AGENT_LIST) == 1);		/* it may run all the same: it is looked for */
	agent->processes[0] = (struct envd_process){ .pid = 7, .tag = agent_ask(AGENT_START, 0)->tag };
	agent->n_processes = 1;
	agent_answers(agent_ask(AGENT_LIST, 0));
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	spin(&s.w, 80000);
	CHECK(agent_ask(AGENT_ATTACH, 0)->over && agent_count(AGENT_ATTACH) == 2);
	agent_started(agent_ask(AGENT_ATTACH, 1), 7);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && !has_ended(g.c));
	spin(&s.w, 80000);
	CHECK(!agent_ask(AGENT_ATTACH, 1)->over);	/* one that began may be silent */
	got_drop(&g);
	shop_close(&s);
}
