/* SPDX-License-Identifier: MIT */
/* The start of a command, at most once, and what becomes of it when it goes wrong. */
#include "tests/unit/command/world.h"

TEST(a_start_is_one_request)
{
	struct shop s = { 0 };
	struct command_start what;
	struct agent_ask *a;
	struct command_view v;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "echo hi");
	start(&s, &g, &what);
	CHECK_INT(agent_count(AGENT_START), 0);	/* not before its row is in the store */
	UNTIL(&s.w, agent_count(AGENT_START));
	a = agent_ask(AGENT_START, 0);
	CHECK(str_starts(a->words, "/bin/sh -c __ab_fail()"));
	CHECK(strstr(a->words, " sh /bin/bash -l -c echo hi"));
	CHECK(str_starts(a->tag, "agentbox-c") && str_starts(a->token, "token-"));
	CHECK(!g.done);
	agent_started(a, 7);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st));
	command_look(g.c, &v);
	CHECK(v.pid == 7 && v.group && !v.foreign && !v.result);
	CHECK_STR(v.sandbox, s.sandbox);
	CHECK_STR(a->tag + strlen("agentbox-"), v.id);
	got_drop(&g);
	shop_close(&s);
}

TEST(a_request_id_joins)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g, again, other;

	shop_open(&s);
	what = a_start(&s, "work");
	what.request_id = "r1";
	start(&s, &g, &what);
	start(&s, &again, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	agent_started(agent_ask(AGENT_START, 0), 7);
	UNTIL(&s.w, g.done && again.done);
	CHECK(g.c && g.c == again.c);
	got_drop(&again);
	start(&s, &again, &what);
	UNTIL(&s.w, again.done);
	CHECK(again.c == g.c);
	what.params_hash[0] = 1;
	start(&s, &other, &what);
	UNTIL(&s.w, other.done);
	CHECK_INT(other.st.reason, R_REQUEST_ID_REUSED);
	CHECK_INT(agent_count(AGENT_START), 1);
	got_drop(&g);
	got_drop(&again);
	shop_close(&s);
}

/* B-8: our part of the line that the agent repeats is not for the caller; the reason, at its end, is. */
TEST(a_refusal_is_repeated_for_a_minute)
{
	struct shop s = { 0 };
	struct command_start what;
	struct agent_ask *a;
	char text[400];
	struct got g;

	shop_open(&s);
	what = a_start(&s, "pwd");
	what.request_id = "r1";
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	a = agent_ask(AGENT_START, 0);
	snprintf(text, sizeof(text), "error starting process '%.100s%s%s': chdir /root: permission denied", a->words,
		 STR_CUT, a->words + a->n_words - 40);
	agent_fails(a, ENVD_ANSWERED, R_FIELD_INVALID, text);
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_FIELD_INVALID);
	CHECK_STR(g.st.text, "error starting process '/bin/bash -l -c pwd': chdir /root: permission denied");
	for (unsigned i = 0; i < 2; i++) {
		start(&s, &g, &what);
		UNTIL(&s.w, g.done);
		CHECK_INT(g.st.reason, R_FIELD_INVALID);
	}
	CHECK_INT(agent_count(AGENT_START), 1);
	spin(&s.w, 60000);
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START) == 2);
	got_drop(&g);
	shop_close(&s);
}

/* B-2: what the edge does not know although the cloud says that it runs is sent again until the deadline. */
TEST(what_was_not_processed_is_sent_again)
{
	static const enum envd_class classes[] = { ENVD_NOT_RUNNING, ENVD_UNSENT };
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	for (unsigned i = 0; i < ARRAY_SIZE(classes); i++) {
		unsigned before = agent_count(AGENT_START);
		uint64_t begun = clock_boot_ms();

		what = a_start(&s, "work");
		what.deadline_ms = begun + 20000;
		start(&s, &g, &what);
		for (unsigned n = before; n < before + 8; n++) {
			UNTIL(&s.w, agent_count(AGENT_START) > n);
			agent_fails(agent_ask(AGENT_START, (int)n), classes[i], R_UNREACHABLE, "not here");
		}
		CHECK(clock_boot_ms() < begun + 15000 && !g.done);
		UNTIL(&s.w, agent_count(AGENT_START) > before + 8);
		agent_started(agent_ask(AGENT_START, -1), 7 + i);
		UNTIL(&s.w, g.done);
		CHECK(status_ok(&g.st));
		got_drop(&g);
	}
	shop_close(&s);
}

TEST(until_the_deadline)
{
	struct shop s = { 0 };
	struct command_start what;
	unsigned sent = 0;
	uint64_t begun;
	struct got g;

	shop_open(&s);
	begun = clock_boot_ms();
	what = a_start(&s, "work");
	what.deadline_ms = begun + 10000;
	start(&s, &g, &what);
	while (!g.done) {
		if (agent_count(AGENT_START) > sent)
			agent_fails(agent_ask(AGENT_START, (int)sent++), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
		CHECK(loop_once(s.w.loop, 20) >= 0);
		CHECK(clock_boot_ms() < begun + 30000);
	}
	CHECK_INT(g.st.reason, R_UNREACHABLE);
	CHECK(clock_boot_ms() >= begun + 10000 && sent > 5 && sent < 20);
	got_drop(&g);
	shop_close(&s);
}

TEST(a_fresh_token_is_tried_once)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	start(&s, &g, &what);
	for (int n = 0; n < 2; n++) {
		UNTIL(&s.w, agent_count(AGENT_START) > (unsigned)n);
		agent_fails(agent_ask(AGENT_START, n), ENVD_TOKEN, R_CLOUD_REFUSED, "token");
	}
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_CLOUD_REFUSED);
	CHECK_INT(agent_count(AGENT_START), 2);
	got_drop(&g);
	shop_close(&s);
}

TEST(a_lost_answer_is_looked_for_by_its_tag)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	what.request_id = "r1";
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	UNTIL(&s.w, agent_count(AGENT_LIST) == 1);
	agent_answers(agent_ask(AGENT_LIST, 0));
	UNTIL(&s.w, agent_count(AGENT_LIST) == 2);	/* it was delayed on its way */
	agent->processes[0] = (struct envd_process){ .pid = 5, .tag = agent_ask(AGENT_START, 0)->tag };
	agent->n_processes = 1;
	agent_answers(agent_ask(AGENT_LIST, 1));
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	CHECK_INT(agent_ask(AGENT_ATTACH, 0)->pid, 5);
	agent_started(agent_ask(AGENT_ATTACH, 0), 5);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st));
	CHECK_INT(agent_count(AGENT_START), 1);
	got_drop(&g);
	shop_close(&s);
}

TEST(one_that_is_not_there_stays_unknown)
{
	struct shop s = { 0 };
	struct command_start what;
	unsigned looks = 0;
	uint64_t begun;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	what.request_id = "r1";
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	begun = clock_boot_ms();
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	while (!g.done) {
		if (agent_count(AGENT_LIST) > looks)
			agent_answers(agent_ask(AGENT_LIST, (int)looks++));
		CHECK(loop_once(s.w.loop, 20) >= 0);
		CHECK(clock_boot_ms() < begun + 10000);
	}
	CHECK_INT(g.st.reason, R_OUTCOME_UNKNOWN);
	CHECK(clock_boot_ms() >= begun + 3000 && looks >= 4 && looks < 10);
	for (unsigned i = 0; i < 2; i++) { /* for ever */
		start(&s, &g, &what);
		UNTIL(&s.w, g.done);
		CHECK_INT(g.st.reason, R_OUTCOME_UNKNOWN);
		spin(&s.w, 3600000);
	}
	CHECK_INT(agent_count(AGENT_START), 1);
	shop_close(&s);
}

TEST(nobody_waits_for_it_any_more)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	start(&s, &g, &what);
	got_drop(&g);		/* before anything is sent */
	spin(&s.w, 1000);
	CHECK_INT(agent_count(AGENT_START), 0);

	start(&s, &g, &what);	/* after: what began is ended, or goes on */
	UNTIL(&s.w, agent_count(AGENT_START) == 1);
	command_op_cancel(give(g.op), true);
	agent_started(agent_ask(AGENT_START, 0), 7);
	UNTIL(&s.w, agent_count(AGENT_HELPER));
	CHECK(strstr(agent_ask(AGENT_HELPER, 0)->words, "members"));

	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START) == 2);
	command_op_cancel(give(g.op), false);
	agent_started(agent_ask(AGENT_START, 1), 8);
	spin(&s.w, 300);
	CHECK_INT(agent_count(AGENT_HELPER), 1);

	start(&s, &g, &what);	/* while it waits to be sent again */
	UNTIL(&s.w, agent_count(AGENT_START) == 3);
	agent_fails(agent_ask(AGENT_START, 2), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	UNTIL(&s.w, agent_count(AGENT_START) == 4);
	agent_fails(agent_ask(AGENT_START, 3), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	turn(&s);
	got_drop(&g);
	spin(&s.w, 20000);
	CHECK_INT(agent_count(AGENT_START), 4);
	shop_close(&s);
}

TEST(one_of_a_sandbox_asks_for_setsid)
{
	struct shop s = { 0 };
	struct command_start what;
	struct command_view v;
	struct got g[3];

	shop_open(&s);
	agent->hold_stat = true;
	what = a_start(&s, "work");
	for (unsigned i = 0; i < 3; i++)
		start(&s, &g[i], &what);
	UNTIL(&s.w, agent_count(AGENT_START) == 3);
	for (unsigned i = 0; i < 3; i++)
		agent_started(agent_ask(AGENT_START, (int)i), 10 + i);
	spin(&s.w, 1000);
	CHECK(!g[0].done && !g[1].done && !g[2].done);
	CHECK_INT(agent_count(AGENT_STAT), 1);
	agent_fails(agent_ask(AGENT_STAT, 0), ENVD_ANSWERED, R_FILE_NOT_FOUND, "no");
	UNTIL(&s.w, g[0].done && g[1].done && g[2].done);
	for (unsigned i = 0; i < 3; i++) {
		command_look(g[i].c, &v);
		CHECK(!v.group);
		got_drop(&g[i]);
	}
	start(&s, &g[0], &what);
	UNTIL(&s.w, agent_count(AGENT_START) == 4);
	agent_started(agent_ask(AGENT_START, 3), 20);
	UNTIL(&s.w, g[0].done);
	CHECK_INT(agent_count(AGENT_STAT), 1);
	got_drop(&g[0]);
	shop_close(&s);
}

TEST(a_terminal_is_not_wrapped)
{
	struct shop s = { 0 };
	struct command_start what;
	struct agent_ask *a;
	struct command *c;

	shop_open(&s);
	what = a_start(&s, NULL);
	what.pty = true;
	what.cols = 80;
	what.rows = 24;
	c = running_as(&s, &what, 7);
	a = agent_ask(AGENT_START, 0);
	CHECK_STR(a->words, "/bin/bash -i -l");
	CHECK(a->pty && a->cols == 80 && a->rows == 24);
	CHECK_INT(agent_count(AGENT_STAT), 0);
	command_unref(c);
	shop_close(&s);
}

TEST(a_sandbox_that_is_not_there)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	what.sandbox = "nosuch";
	start(&s, &g, &what);
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_SANDBOX_NOT_FOUND);
	what = a_start(&s, "work");
	what.who = &bob;
	start(&s, &g, &what);
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.code, CODE_NOT_FOUND);
	CHECK_INT(agent_count(AGENT_START), 0);
	shop_close(&s);
}

TEST_MAIN()
