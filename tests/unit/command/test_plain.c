/* SPDX-License-Identifier: MIT */
/* Commands with nothing of ours in them (command_start.plain): what is sent, how they are found again, whom their output waits for. */
#include "daemon/cloud/address.h"
#include "tests/unit/command/world.h"

static struct view v, w;
static char id[32];
static char *program[] = { (char *)"-c", (char *)"work" };
static char bytes[COMMAND_SURVIVORS_MAX * 512];

static struct command_start plain(const struct shop *s)
{
	static const char *const args[] = { "/bin/bash", "-c", "work" };
	struct command_start what = a_start(s, NULL);

	what.args = args;
	what.n_args = ARRAY_SIZE(args);
	what.detach = true;
	what.blocking_reader = true;
	what.overflow = COMMAND_BLOCK;
	what.plain = true;
	what.tag = "mine";
	return what;
}

static void remember(struct command *c)
{
	struct command_view look;

	command_look(c, &look);
	(void)str_copy(id, sizeof(id), look.id);
}

static struct command *plain_running(struct shop *s, uint32_t pid)
{
	struct command_start what = plain(s);

	return running_as(s, &what, pid);
}

TEST(nothing_is_added)
{
	struct shop s = { 0 };
	struct command_view look_;
	struct command *c;
	struct agent_ask *a;

	shop_open(&s);
	c = plain_running(&s, 7);
	a = agent_ask(AGENT_START, 0);
	CHECK_STR(a->words, "/bin/bash -c work");
	CHECK_STR(a->tag, "mine");
	command_look(c, &look_);
	CHECK(look_.pid == 7 && !look_.group && str_eq(look_.tag, "mine"));
	spin(&s.w, 5000);
	CHECK_INT(agent_count(AGENT_STAT) + agent_count(AGENT_LOOK) + agent_count(AGENT_HELPER), 0);
	agent_exits(a, 3);
	UNTIL(&s.w, has_ended(c));
	command_unref(c);
	shop_close(&s);
}

TEST(a_refusal_in_the_agents_words)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = plain(&s);
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	agent_refuses(agent_ask(AGENT_START, 0), CODE_UNAUTHENTICATED, "invalid username: 'x'");
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.code, CODE_UNAUTHENTICATED);
	CHECK_STR(g.st.text, "invalid username: 'x'");
	shop_close(&s);
}

/* Another client's process may look the same: none is looked for. */
TEST(a_lost_answer_to_its_start_is_an_unknown_outcome)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = plain(&s);
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	turn(&s);
	CHECK(g.done);
	CHECK_INT(g.st.reason, R_OUTCOME_UNKNOWN);
	spin(&s.w, 5000);
	CHECK_INT(agent_count(AGENT_LIST) + agent_count(AGENT_ATTACH), 0);
	CHECK_INT(agent_count(AGENT_START), 1);
	shop_close(&s);
}

TEST(a_start_that_a_restart_cut_is_an_unknown_outcome)
{
	struct shop s = { 0 };
	struct command_start what;
	struct command_view *known;
	struct got g;
	size_t n;

	shop_open(&s);
	what = plain(&s);
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	got_drop(&g);
	shop_restart(&s);
	spin(&s.w, 5000);
	CHECK_INT(agent_count(AGENT_LIST) + agent_count(AGENT_ATTACH), 0);
	CHECK_INT(commands_known(s.cs, &alice, "default", s.sandbox, &known, &n), 0);
	CHECK(n == 1 && known[0].result && known[0].result->outcome == COMMAND_UNKNOWN && !known[0].pid);
	free(known);
	shop_close(&s);
}

/* Its output waits for the reader of whoever started it, until it is known that none will come. */
TEST(output_does_not_wait_for_a_client_that_went_in_mid_start)
{
	struct shop s = { .spool_per_command = 64 * 1024 };
	struct command_start what;
	struct agent_ask *a;
	struct got g;

	memset(bytes, 'x', sizeof(bytes));
	shop_open(&s);
	what = plain(&s);
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	a = agent_ask(AGENT_START, 0);
	agent_started(a, 7);
	for (unsigned i = 0; i < 20; i++)
		agent_says_bytes(a, ENVD_STDOUT, bytes, sizeof(bytes));
	UNTIL(&s.w, agent_unread(a) < 20 * sizeof(bytes));
	CHECK(!g.done);
	command_op_cancel(g.op, false);
	UNTIL(&s.w, !agent_unread(a));
	shop_close(&s);
}

/* Only the start has a deadline: no other stream's error is the command's end. */
TEST(a_deadline_of_another_stream_is_a_cut)
{
	struct shop s = { 0 };
	struct command_start what;
	struct command *c;

	shop_open(&s);
	what = plain(&s);
	what.agent_timeout_ms = 1000;
	c = running_as(&s, &what, 7);
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	agent_refuses(agent_ask(AGENT_ATTACH, 0), CODE_DEADLINE_EXCEEDED, "late");
	spin(&s.w, 1000);
	CHECK(!has_ended(c));
	command_unref(c);
	shop_close(&s);
}

TEST(killed_by_the_agent_at_its_time)
{
	struct shop s = { 0 };
	struct command_start what;
	struct command *c;

	shop_open(&s);
	what = plain(&s);
	what.agent_timeout_ms = 1000;
	c = running_as(&s, &what, 7);
	agent_refuses(agent_ask(AGENT_START, 0), CODE_DEADLINE_EXCEEDED, "over");
	UNTIL(&s.w, has_ended(c));
	CHECK(result_of(c)->timed_out && result_of(c)->outcome == COMMAND_SIGNALED);
	CHECK_INT(agent_count(AGENT_ATTACH), 0);
	command_unref(c);
	shop_close(&s);
}

/* It runs when a daemon begins: the list has these processes, and `attached` says whether one of them is it. */
static void comes_back(const struct envd_process *p, size_t n, bool attached)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = plain_running(&s, 7);
	remember(c);
	command_unref(c);
	shop_restart(&s);
	UNTIL(&s.w, agent_count(AGENT_LIST));
	for (size_t i = 0; i < n; i++)
		agent->processes[i] = p[i];
	agent->n_processes = n;
	agent_answers(agent_ask(AGENT_LIST, -1));
	c = commands_find(s.cs, &alice, id);
	CHECK(c);
	if (attached) {
		UNTIL(&s.w, agent_count(AGENT_ATTACH));
		CHECK_INT(agent_ask(AGENT_ATTACH, 0)->pid, 7);
	} else {
		UNTIL(&s.w, has_ended(c));
		CHECK_INT(agent_count(AGENT_ATTACH), 0);
		CHECK_INT(result_of(c)->outcome, COMMAND_UNKNOWN);
		CHECK(result_of(c)->was_absent);
	}
	shop_close(&s);
}

TEST(after_a_restart_it_is_found_by_pid_and_command_line)
{
	const struct cloud_strs args = { .v = program, .n = ARRAY_SIZE(program) }, fewer = { .v = program, .n = 1 };
	const struct envd_process it[] = { { .pid = 3, .cmd = (char *)"/bin/bash", .args = args },
					   { .pid = 7, .cmd = (char *)"/bin/bash", .args = args } };
	const struct envd_process another = { .pid = 7, .cmd = (char *)"/bin/bash", .args = fewer };
	const struct envd_process other_program = { .pid = 7, .cmd = (char *)"/bin/sh", .args = args };

	comes_back(it, ARRAY_SIZE(it), true);
	comes_back(&another, 1, false);
	comes_back(&other_program, 1, false);
}

TEST(it_is_found_while_it_runs)
{
	struct principal other = alice;
	struct agent_address at = { 0 };
	struct shop s = { 0 };
	struct command_view look_;
	struct command *c;
	char account[32], sandbox[64];

	shop_open(&s);
	c = plain_running(&s, 7);
	command_look(c, &look_);
	(void)str_copy(account, sizeof(account), "default");
	(void)str_copy(sandbox, sizeof(sandbox), s.sandbox);
	at.account = account;
	at.id = sandbox;
	at.generation = look_.generation;
	CHECK(commands_find_process(s.cs, &alice, &at, 7, NULL) == c);
	CHECK(commands_find_process(s.cs, &alice, &at, 0, "mine") == c);
	CHECK(!commands_find_process(s.cs, &alice, &at, 0, "other"));
	CHECK(!commands_find_process(s.cs, &alice, &at, 8, NULL));
	other.uid++;
	CHECK(!commands_find_process(s.cs, &other, &at, 7, NULL));
	at.generation++;
	CHECK(!commands_find_process(s.cs, &alice, &at, 7, NULL));
	at.generation--;
	agent_exits(agent_ask(AGENT_START, 0), 0);
	UNTIL(&s.w, has_ended(c));
	CHECK(!commands_find_process(s.cs, &alice, &at, 7, NULL));
	command_unref(c);
	shop_close(&s);
}

/* As the agent: every reader that holds it is waited for, and nobody's absence. */
TEST(output_waits_for_each_reader_and_for_nobody_else)
{
	const struct command_read_from from = { .from_end = true, .holds = true };
	struct shop s = { .spool_per_command = 128 * 1024 };
	struct command *c;
	struct agent_ask *a;

	memset(bytes, 'x', sizeof(bytes));
	shop_open(&s);
	c = plain_running(&s, 7);
	a = agent_ask(AGENT_START, 0);
	look_from(c, &v, &from);
	look_from(c, &w, &from);
	w.room = 0;
	for (unsigned i = 0; i < 20; i++)
		agent_says_bytes(a, ENVD_STDOUT, bytes, sizeof(bytes));
	spin(&s.w, 2000);
	CHECK(agent_unread(a) > 0);
	look_away(&v, false);
	spin(&s.w, 2000);
	CHECK(agent_unread(a) > 0);	/* the other one is there still */
	look_away(&w, false);
	UNTIL(&s.w, !agent_unread(a));
	agent_exits(a, 0);
	UNTIL(&s.w, has_ended(c));
	command_unref(c);
	shop_close(&s);
}

/* Who comes while the daemon is not attached itself joins when it is, behind the gap. */
TEST(a_reader_joins_behind_the_gap)
{
	const struct command_read_from from = { .from_end = true, .holds = true };
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = plain_running(&s, 7);
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	look_from(c, &v, &from);
	CHECK(!command_reader_join(v.r));
	agent_started(agent_ask(AGENT_ATTACH, 0), 7);
	v.room = 0;
	turn(&s);
	CHECK(command_reader_join(v.r));
	v.room = sizeof(v.bytes[0]);
	agent_says(agent_ask(AGENT_ATTACH, 0), ENVD_STDOUT, "later");
	UNTIL(&s.w, v.n[SPOOL_STDOUT] == 5);
	CHECK_INT(v.gaps, 0);
	look_away(&v, false);
	command_unref(c);
	shop_close(&s);
}

/* A reader is told of a pause, which nothing that the command says would tell it. */
TEST(a_pause_is_told)
{
	const struct command_read_from from = { .from_end = true, .holds = true };
	struct shop s = { 0 };
	struct command *c;
	unsigned told;

	shop_open(&s);
	c = plain_running(&s, 7);
	look_from(c, &v, &from);
	turn(&s);
	CHECK(!command_is_paused(c));
	fake_find(s.w.fake, s.sandbox)->paused = true;
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	turn(&s);
	agent_fails(agent_ask(AGENT_ATTACH, 0), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	told = v.told;
	UNTIL(&s.w, command_is_paused(c));
	UNTIL(&s.w, v.told > told);
	look_away(&v, false);
	command_unref(c);
	shop_close(&s);
}

TEST_MAIN()
