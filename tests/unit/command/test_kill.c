/* SPDX-License-Identifier: MIT */
/* Ending a command with all that it started: the script, what it says, and what is done where it is not heard. */
#include "tests/unit/command/world.h"

/* The script's four arguments. */
static void arguments(const struct agent_ask *a, uint32_t *ret_pid, char tag[64], unsigned *ret_steps)
{
	const char *at = strstr(a->words, "echo $p; done\n sh ");

	CHECK(at && sscanf(at, "echo $p; done\n sh %u %63s %u", ret_pid, tag, ret_steps) == 3);
}

static unsigned steps_of(const struct agent_ask *a)
{
	uint32_t pid;
	char tag[64];
	unsigned steps;

	arguments(a, &pid, tag, &steps);
	return steps;
}

TEST(a_kill_names_its_survivors)
{
	struct shop s = { 0 };
	struct command_view v;
	struct got g, same;
	struct command *c;
	unsigned steps;
	uint32_t pid;
	char tag[64];

	shop_open(&s);
	c = running(&s, 7);
	command_look(c, &v);
	kill_command(c, &g);
	kill_command(c, &same);		/* equal ones merge */
	CHECK_INT(agent_count(AGENT_HELPER), 1);
	arguments(agent_ask(AGENT_HELPER, 0), &pid, tag, &steps);
	CHECK(pid == 7 && steps == 100);	/* of 50 ms */
	CHECK_STR(tag, v.id);
	agent_started(agent_ask(AGENT_HELPER, 0), 90);
	agent_says(agent_ask(AGENT_HELPER, 0), ENVD_STDOUT, "77\n4242\n");
	agent_killed(agent_ask(AGENT_START, 0));
	turn(&s);
	CHECK(!has_ended(c) && !g.done);	/* before it has counted */
	agent_exits(agent_ask(AGENT_HELPER, 0), 0);
	UNTIL(&s.w, has_ended(c));
	CHECK(g.done && same.done && g.found && g.n == 2 && g.survivors[1] == 4242 && same.n == 2);
	CHECK(result_of(c)->killed && result_of(c)->n_survivors == 2 && result_of(c)->output_complete);
	kill_command(c, &g);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && !g.found);
	command_unref(c);
	shop_close(&s);
}

/* B-2: a script whose answer is lost is sent again, with what is left of the grace. */
TEST(a_script_that_is_cut_is_sent_again)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = running(&s, 7);
	kill_command(c, &g);
	spin(&s.w, 2000);
	for (int i = 0; i < 3; i++) {
		agent_fails(agent_ask(AGENT_HELPER, i), i ? ENVD_UNSENT : ENVD_LOST, R_UNREACHABLE, "cut");
		UNTIL(&s.w, agent_count(AGENT_HELPER) == (unsigned)i + 2);
		CHECK(steps_of(agent_ask(AGENT_HELPER, -1)) < steps_of(agent_ask(AGENT_HELPER, i)));
	}
	CHECK(steps_of(agent_ask(AGENT_HELPER, -1)) <= 60 && agent_count(AGENT_SIGNAL) == 0);
	agent_exits(agent_ask(AGENT_HELPER, -1), 0);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.found && !g.n);
	agent_killed(agent_ask(AGENT_START, 0));
	UNTIL(&s.w, has_ended(c));
	CHECK(result_of(c)->output_complete);
	command_unref(c);
	shop_close(&s);
}

TEST(a_script_with_a_stale_token_gets_a_fresh_one)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = running(&s, 7);
	kill_command(c, &g);
	agent_fails(agent_ask(AGENT_HELPER, 0), ENVD_TOKEN, R_CLOUD_REFUSED, "token");
	UNTIL(&s.w, agent_count(AGENT_HELPER) == 2);
	CHECK_INT(agent_count(AGENT_SIGNAL), 0);
	agent_exits(agent_ask(AGENT_HELPER, 1), 0);
	UNTIL(&s.w, g.done);
	command_unref(c);
	shop_close(&s);
}

TEST(what_the_agent_cannot_run_it_signals)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = running(&s, 7);
	kill_command(c, &g);
	agent_fails(agent_ask(AGENT_HELPER, 0), ENVD_ANSWERED, R_FIELD_INVALID, "no /bin/sh");
	UNTIL(&s.w, agent_count(AGENT_SIGNAL));
	CHECK(agent_ask(AGENT_SIGNAL, 0)->pid == 7 && agent_ask(AGENT_SIGNAL, 0)->signo == 9);
	agent_answers(agent_ask(AGENT_SIGNAL, 0));
	agent_killed(agent_ask(AGENT_START, 0));
	UNTIL(&s.w, g.done && has_ended(c));
	CHECK(status_ok(&g.st) && !result_of(c)->output_complete);
	spin(&s.w, 60000);
	CHECK_INT(agent_count(AGENT_SIGNAL), 1);
	command_unref(c);
	shop_close(&s);
}

/* Its grace and some seconds, then the signal; also where it was cut all the time. */
TEST(a_kill_is_given_up)
{
	struct shop s = { 0 };
	struct command *c;
	uint64_t begun;
	struct got g;

	shop_open(&s);
	for (unsigned cut = 0; cut < 2; cut++) {
		unsigned seen = agent_count(AGENT_HELPER);

		c = running(&s, 7 + cut);
		begun = clock_boot_ms();
		kill_command(c, &g);
		while (agent_count(AGENT_SIGNAL) == cut) {
			if (cut && agent_count(AGENT_HELPER) > seen)
				agent_fails(agent_ask(AGENT_HELPER, (int)seen++), ENVD_LOST, R_UNREACHABLE, "cut");
			CHECK(loop_once(s.w.loop, 20) >= 0);
			CHECK(clock_boot_ms() <= begun + 21000);
		}
		CHECK(clock_boot_ms() >= begun + 20000);
		agent_fails(agent_ask(AGENT_SIGNAL, -1), ENVD_ANSWERED, R_PROCESS_NOT_FOUND, "no process");
		UNTIL(&s.w, g.done);
		CHECK(status_ok(&g.st));
		agent_killed(agent_ask(AGENT_START, -1));
		UNTIL(&s.w, has_ended(c));
		command_unref(c);
	}
	shop_close(&s);
}

TEST(a_kill_where_the_sandbox_is_gone)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = running(&s, 7);
	kill_command(c, &g);
	fake_end(fake_find(s.w.fake, s.sandbox), "by somebody");
	agent_fails(agent_ask(AGENT_HELPER, 0), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	UNTIL(&s.w, g.done && has_ended(c));
	CHECK(status_ok(&g.st) && !g.n);
	CHECK_INT(result_of(c)->outcome, COMMAND_LOST);
	CHECK_INT(agent_count(AGENT_SIGNAL), 0);
	command_unref(c);
	shop_close(&s);
}

TEST(a_signal_to_the_process_alone)
{
	struct shop s = { 0 };
	struct command *c;
	struct got g;

	shop_open(&s);
	c = running(&s, 7);
	signal_command(c, &g, 15);
	CHECK(strstr(agent_ask(AGENT_HELPER, 0)->words, "kill -s") && strstr(agent_ask(AGENT_HELPER, 0)->words, " 7 TERM"));
	agent_exits(agent_ask(AGENT_HELPER, 0), 0);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.found);
	signal_command(c, &g, 9);
	agent_exits(agent_ask(AGENT_HELPER, 1), 1);	/* there is none */
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && !g.found);
	signal_command(c, &g, 9);
	agent_fails(agent_ask(AGENT_HELPER, 2), ENVD_LOST, R_UNREACHABLE, "cut");	/* it may have arrived: not again */
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_UNREACHABLE);
	CHECK_INT(agent_count(AGENT_HELPER), 3);
	command_unref(c);
	shop_close(&s);
}

TEST_MAIN()
