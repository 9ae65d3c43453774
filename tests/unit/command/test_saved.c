/* SPDX-License-Identifier: MIT */
/* What a new daemon makes of the rows and files of the last one. */
#include <sys/stat.h>

#include "tests/unit/command/world.h"

static struct view v;
static char id[32];
static off_t size_at_commit;	/* of the spool of `id` */

void __real_store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user);
void __wrap_store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user);

void __wrap_store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/spool/%s", world_dir_name(), id);
	size_at_commit = stat(path, &st) < 0 ? 0 : st.st_size;
	__real_store_tx_commit(t, durable, done, user);
}

static void remember(struct command *c)
{
	struct command_view look;

	command_look(c, &look);
	(void)str_copy(id, sizeof(id), look.id);
}

/* It is there under the same id, without a ref. */
static struct command *again(struct shop *s)
{
	struct command *c = commands_find(s->cs, &alice, id);

	CHECK(c);
	return c;
}

/* The process list has one of this tag. */
static void is_there(uint32_t pid)
{
	static char tag[64];

	snprintf(tag, sizeof(tag), "agentbox-%s", id);
	agent->processes[0] = (struct envd_process){ .pid = pid, .tag = tag };
	agent->n_processes = 1;
	agent_answers(agent_ask(AGENT_LIST, -1));
}

TEST(what_ended_is_kept)
{
	struct shop s = { 0 };
	struct command_view look_;
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	remember(c);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "out");
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDERR, "err");
	agent_exits(agent_ask(AGENT_START, 0), 9);
	UNTIL(&s.w, has_ended(c));
	command_unref(c);
	shop_restart(&s);
	c = again(&s);
	CHECK(result_of(c)->outcome == COMMAND_EXITED && result_of(c)->exit_code == 9 && result_of(c)->output_complete);
	command_look(c, &look_);
	CHECK_STR(look_.shell, "work");
	CHECK(look_.pid == 7 && look_.group && look_.has[SPOOL_STDERR] && look_.end[SPOOL_STDOUT] == 3);
	look(c, &v);
	CHECK(v.ended && !v.gaps && !memcmp(v.bytes[SPOOL_STDOUT], "out", 3) && !memcmp(v.bytes[SPOOL_STDERR], "err", 3));
	look_away(&v, true);
	spin(&s.w, 1000);
	CHECK_INT(agent_count(AGENT_ATTACH) + agent_count(AGENT_LIST), 0);
	shop_close(&s);
}

/* HOUSE 2.9: a result that says that the output is complete is never in the store before the output is in its file. */
TEST(the_result_is_written_behind_the_output)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	remember(c);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "the last words");
	agent_exits(agent_ask(AGENT_START, 0), 0);
	size_at_commit = 0;
	UNTIL(&s.w, has_ended(c));
	CHECK(size_at_commit > (off_t)strlen("the last words"));
	command_unref(c);
	shop_close(&s);
}

static void on_reached(void *user, const struct status *st, struct command *c)
{
	CHECK(status_ok(st) && c);
	*(bool *)user = true;
}

/* The pid alone is not trusted: the tag is. */
TEST(what_ran_is_attached_to_again)
{
	struct shop s = { 0 };
	bool reached = false;
	struct command_op *op;
	struct command *c;
	struct got g;

	shop_open(&s);
	c = running(&s, 7);
	CHECK(command_is_reached(c));
	remember(c);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "before ");
	turn(&s);
	command_unref(c);
	shop_restart(&s);
	c = again(&s);
	CHECK(!has_ended(c));
	send_input(c, &g, 0, "x");	/* its sandbox is not reached yet */
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_STATE_CHANGING);
	CHECK(!command_is_reached(c) && !command_reach(c, on_reached, &reached, &op));
	UNTIL(&s.w, agent_count(AGENT_LIST));
	is_there(12);
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	CHECK(!reached);
	CHECK_INT(agent_ask(AGENT_ATTACH, 0)->pid, 12);
	look(c, &v);
	agent_started(agent_ask(AGENT_ATTACH, 0), 12);
	agent_says(agent_ask(AGENT_ATTACH, 0), ENVD_STDOUT, "after");
	turn(&s);
	CHECK(reached && command_is_reached(c));
	CHECK(v.gaps == 2 && !memcmp(v.bytes[SPOOL_STDOUT], "before after", 12));
	agent_exits(agent_ask(AGENT_ATTACH, 0), 0);
	UNTIL(&s.w, v.ended);
	CHECK(!result_of(c)->output_complete);
	look_away(&v, true);
	shop_close(&s);
}

/* Nobody waits for ever for a sandbox that is away, and who has left is not told. */
TEST(what_is_not_reached_is_waited_for_a_while)
{
	struct shop s = { 0 };
	bool reached = false, left = false;
	struct command_op *op, *other;
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	remember(c);
	command_unref(c);
	shop_restart(&s);
	c = again(&s);
	CHECK(!command_reach(c, on_reached, &reached, &op) && !command_reach(c, on_reached, &left, &other));
	command_op_cancel(other, false);
	spin(&s.w, 4900);
	CHECK(!reached);
	spin(&s.w, 200);
	CHECK(reached && !left && !command_is_reached(c));
	shop_close(&s);
}

TEST(a_start_that_was_under_way_is_looked_for)
{
	struct shop s = { 0 };
	struct command_start what;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	what.request_id = "r1";
	start(&s, &g, &what);
	UNTIL(&s.w, agent_count(AGENT_START));
	(void)str_copy(id, sizeof(id), agent_ask(AGENT_START, 0)->tag + strlen("agentbox-"));
	command_op_cancel(give(g.op), false);
	shop_restart(&s);
	start(&s, &g, &what);		/* joins the search */
	UNTIL(&s.w, agent_count(AGENT_LIST));
	is_there(7);
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	agent_started(agent_ask(AGENT_ATTACH, 0), 7);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.c == again(&s));
	CHECK_INT(agent_count(AGENT_START), 1);
	got_drop(&g);
	shop_close(&s);
}

TEST(a_run_that_nobody_comes_back_for_is_ended)
{
	struct command_read_from run = { .run = true };
	struct shop s = { 0 };
	struct command_start what;
	struct command *c;

	shop_open(&s);
	for (unsigned comes_back = 0; comes_back < 2; comes_back++) {
		unsigned kills = agent_count(AGENT_HELPER), lists = agent_count(AGENT_LIST);

		what = a_start(&s, "work");
		what.blocking_reader = true;
		c = running_as(&s, &what, 7);
		remember(c);
		command_unref(c);
		shop_restart(&s);
		c = again(&s);
		UNTIL(&s.w, agent_count(AGENT_LIST) > lists);
		is_there(7);
		UNTIL(&s.w, agent_count(AGENT_ATTACH) == comes_back + 1);
		agent_started(agent_ask(AGENT_ATTACH, -1), 7);
		if (comes_back)
			look_from(c, &v, &run);
		spin(&s.w, 29000);
		CHECK_INT(agent_count(AGENT_HELPER), kills);
		spin(&s.w, 2000);
		CHECK_INT(agent_count(AGENT_HELPER), kills + !comes_back);
		agent_killed(agent_ask(AGENT_ATTACH, -1));
		if (!comes_back)
			agent_exits(agent_ask(AGENT_HELPER, -1), 0);
		UNTIL(&s.w, has_ended(c));
		if (comes_back)
			look_away(&v, false);
	}
	shop_close(&s);
}

TEST(a_timeout_goes_on)
{
	struct shop s = { 0 };
	struct command_start what;
	struct command *c;

	shop_open(&s);
	what = a_start(&s, "work");
	what.timeout_ms = 100000;
	what.detach = true;
	c = running_as(&s, &what, 7);
	remember(c);
	command_unref(c);
	spin(&s.w, 60000);
	shop_restart(&s);
	UNTIL(&s.w, agent_count(AGENT_LIST));
	is_there(7);
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	agent_started(agent_ask(AGENT_ATTACH, 0), 7);
	spin(&s.w, 38000);
	CHECK_INT(agent_count(AGENT_HELPER), 0);
	spin(&s.w, 3000);
	CHECK_INT(agent_count(AGENT_HELPER), 1);
	shop_close(&s);
}

/* The range was written down before it was sent: the next daemon knows it, says so once, and sends nothing of it. */
TEST(input_that_was_under_way_is_in_doubt)
{
	struct shop s = { 0 };
	struct command_start what;
	struct command *c;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	what.stdin_open = true;
	c = running_as(&s, &what, 7);
	remember(c);
	send_input(c, &g, 0, "abc");
	agent_answers(agent_ask(AGENT_INPUT, 0));
	UNTIL(&s.w, g.done);
	send_input(c, &g, 3, "defg");
	command_op_cancel(give(g.op), false);
	command_unref(c);
	shop_restart(&s);
	c = again(&s);
	UNTIL(&s.w, agent_count(AGENT_LIST));
	is_there(7);
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	agent_started(agent_ask(AGENT_ATTACH, 0), 7);
	turn(&s);
	send_input(c, &g, 3, "defg");
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_STR(status_evidence_get(&g.st, "input_from"), "3");
	CHECK_STR(status_evidence_get(&g.st, "input_to"), "7");
	CHECK_INT(agent_count(AGENT_INPUT), 2);
	send_input(c, &g, 7, "h");
	CHECK_STR(agent_ask(AGENT_INPUT, 2)->words, "h");
	agent_answers(agent_ask(AGENT_INPUT, 2));
	UNTIL(&s.w, g.done);
	CHECK_INT(g.accepted, 8);
	shop_close(&s);
}

/* A request id is known for longer than its command: a late repeat runs nothing. */
TEST(request_ids_outlive_their_commands)
{
	struct shop s = { .history_ms = 60000 };
	struct command_start what;
	struct command *c;
	struct got g;

	shop_open(&s);
	what = a_start(&s, "work");
	what.request_id = "r1";
	c = running_as(&s, &what, 7);
	remember(c);
	agent_exits(agent_ask(AGENT_START, 0), 0);
	UNTIL(&s.w, has_ended(c));
	command_unref(c);
	spin(&s.w, 200000);
	CHECK(!commands_find(s.cs, &alice, id));
	for (unsigned restart = 0; restart < 2; restart++) {
		start(&s, &g, &what);
		UNTIL(&s.w, g.done);
		CHECK_INT(g.st.reason, R_PROCESS_NOT_FOUND);
		shop_restart(&s);
	}
	CHECK_INT(agent_count(AGENT_START), 1);
	shop_close(&s);
}

/* Files without a row go, a file that is none of ours costs its output alone. */
TEST(strange_files_in_the_folder)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	remember(c);
	agent_says(agent_ask(AGENT_START, 0), ENVD_STDOUT, "said");
	agent_exits(agent_ask(AGENT_START, 0), 4);
	UNTIL(&s.w, has_ended(c));
	command_unref(c);
	run_sh("cd %s/spool && echo junk >%s && touch cnobody .hidden", world_dir_name(), id);
	shop_restart(&s);
	c = again(&s);
	CHECK(result_of(c)->exit_code == 4 && !result_of(c)->output_complete);
	run_sh("cd %s/spool && [ \"$(ls -A)\" = .hidden ]", world_dir_name());
	shop_close(&s);
}

TEST_MAIN()
