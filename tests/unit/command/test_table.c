/* SPDX-License-Identifier: MIT */
/* All commands: whose they are, how they are found and listed, when they are forgotten. */
#include <dirent.h>

#include "tests/unit/command/world.h"

static char id_of[2048][32];

static const char *id(struct command *c, unsigned n)
{
	struct command_view v;

	command_look(c, &v);
	(void)str_copy(id_of[n], sizeof(id_of[n]), v.id);
	return id_of[n];
}

/* One that said so much and has ended; its id is id_of[n]. */
static void ended(struct shop *s, unsigned n, size_t said)
{
	static char bytes[60000];
	struct command *c = running(s, 100 + n);

	id(c, n);
	memset(bytes, 'x', said);
	if (said)
		agent_says_bytes(agent_ask(AGENT_START, -1), ENVD_STDOUT, bytes, said);
	agent_exits(agent_ask(AGENT_START, -1), 0);
	UNTIL(&s->w, has_ended(c));
	command_unref(c);
}

static uint64_t kept(struct shop *s, unsigned n)
{
	struct command *c = commands_find(s->cs, &alice, id_of[n]);
	struct command_view v;

	CHECK(c);
	command_look(c, &v);
	return v.end[SPOOL_STDOUT] - v.first[SPOOL_STDOUT];
}

TEST(found_by_their_owner)
{
	struct shop s = { 0 };
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	CHECK(commands_find(s.cs, &alice, id(c, 0)) == c);
	CHECK(!commands_find(s.cs, &bob, id_of[0]));
	CHECK(commands_find(s.cs, &root, id_of[0]) == c);
	CHECK(!commands_find(s.cs, &alice, "cnosuch"));
	command_unref(c);
	shop_close(&s);
}

TEST(found_by_pid)
{
	struct shop s = { 0 };
	struct command_view v;
	struct command *c;
	struct got g;

	shop_open(&s);
	c = running(&s, 7);
	find_pid(&s, &g, &alice, 7);
	UNTIL(&s.w, g.done);
	CHECK(g.c == c && agent_count(AGENT_ATTACH) == 0);
	got_drop(&g);
	find_pid(&s, &g, &alice, 8);		/* somebody else's: followed from now on */
	UNTIL(&s.w, agent_count(AGENT_ATTACH));
	agent_started(agent_ask(AGENT_ATTACH, 0), 8);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st));
	command_look(g.c, &v);
	CHECK(v.foreign && v.pid == 8);
	got_drop(&g);
	find_pid(&s, &g, &alice, 9);
	UNTIL(&s.w, agent_count(AGENT_ATTACH) == 2);
	agent_fails(agent_ask(AGENT_ATTACH, 1), ENVD_ANSWERED, R_PROCESS_NOT_FOUND, "no process");
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.reason, R_PROCESS_NOT_FOUND);
	find_pid(&s, &g, &bob, 7);
	UNTIL(&s.w, g.done);
	CHECK_INT(g.st.code, CODE_NOT_FOUND);
	command_unref(c);
	shop_close(&s);
}

TEST(a_list_is_newest_first)
{
	struct shop s = { 0 };
	struct command *c[2];
	struct got g;

	shop_open(&s);
	for (unsigned i = 0; i < 2; i++) {
		c[i] = running(&s, 7 + i);
		id(c[i], i);
		spin(&s.w, 10);
	}
	ended(&s, 2, 1);
	agent->processes[0] = (struct envd_process){ .pid = 7, .tag = agent_ask(AGENT_START, 0)->tag };
	agent->processes[1] = (struct envd_process){ .pid = 50, .tag = (char *)"theirs" };
	agent->processes[2] = (struct envd_process){ .pid = 51, .tag = (char *)"agentbox-helper" };
	agent->n_processes = 3;
	for (unsigned with_ended = 0; with_ended < 2; with_ended++) {
		list_commands(&s, &g, &alice, with_ended);
		UNTIL(&s.w, agent_count(AGENT_LIST) == with_ended + 1);
		agent_answers(agent_ask(AGENT_LIST, -1));
		UNTIL(&s.w, g.done);
		CHECK_INT(g.n, 3 + with_ended);
		CHECK_STR(g.ids[with_ended], id_of[1]);
		CHECK_STR(g.ids[with_ended + 1], id_of[0]);
		CHECK(!*g.ids[with_ended + 2] && g.pids[with_ended + 2] == 50);
		if (with_ended)
			CHECK_STR(g.ids[0], id_of[2]);
	}
	/* Where the sandbox is gone, what ended there is known all the same. */
	fake_end(fake_find(s.w.fake, s.sandbox), "by somebody");
	agent_fails(agent_ask(AGENT_START, 0), ENVD_LOST, R_UNREACHABLE, "cut");
	turn(&s);
	agent_fails(agent_ask(AGENT_ATTACH, -1), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	UNTIL(&s.w, has_ended(c[0]) && has_ended(c[1]));
	list_commands(&s, &g, &alice, true);
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.n == 3);
	list_commands(&s, &g, &alice, false);
	UNTIL(&s.w, g.done);
	CHECK(!status_ok(&g.st));
	for (unsigned i = 0; i < 2; i++)
		command_unref(c[i]);
	shop_close(&s);
}

/* With a fresh token once more; where it is gone, with what is known of it. */
TEST(a_list_asks_what_became_of_the_sandbox)
{
	struct shop s = { 0 };
	struct got g;

	shop_open(&s);
	ended(&s, 0, 1);
	list_commands(&s, &g, &alice, true);
	UNTIL(&s.w, agent_count(AGENT_LIST) == 1);
	agent_fails(agent_ask(AGENT_LIST, 0), ENVD_TOKEN, R_CLOUD_REFUSED, "token");
	UNTIL(&s.w, agent_count(AGENT_LIST) == 2);
	agent_answers(agent_ask(AGENT_LIST, 1));
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.n == 1);
	list_commands(&s, &g, &alice, true);
	UNTIL(&s.w, agent_count(AGENT_LIST) == 3);
	fake_end(fake_find(s.w.fake, s.sandbox), "by somebody");
	agent_fails(agent_ask(AGENT_LIST, 2), ENVD_NOT_RUNNING, R_UNREACHABLE, "not here");
	UNTIL(&s.w, g.done);
	CHECK(status_ok(&g.st) && g.n == 1);
	shop_close(&s);
}

TEST(counts_of_a_uid_and_of_all)
{
	struct shop s = { 0 };
	struct commands_counts n;
	struct command *c;

	shop_open(&s);
	c = running(&s, 7);
	ended(&s, 0, 100);
	commands_count(s.cs, alice.uid, &n);
	CHECK(n.running == 1 && n.spool_used == 100 + SPOOL_RECORD_COST);
	commands_count(s.cs, (uid_t)-1, &n);
	CHECK(n.running == 1 && n.spool_used == 100 + SPOOL_RECORD_COST);
	commands_count(s.cs, bob.uid, &n);
	CHECK(!n.running && !n.spool_used);
	command_unref(c);
	shop_close(&s);
}

static unsigned spools(void)
{
	char path[128];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/spool", world_dir_name());
	d = opendir(path);
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

TEST(history_has_an_end)
{
	struct shop s = { .history_ms = 600000 };
	struct command *c;

	shop_open(&s);
	ended(&s, 0, 10);
	spin(&s.w, 300000);
	ended(&s, 1, 10);
	c = running(&s, 7);
	spin(&s.w, 360000);
	CHECK(!commands_find(s.cs, &alice, id_of[0]) && commands_find(s.cs, &alice, id_of[1]));
	spin(&s.w, 3600000);
	CHECK(!commands_find(s.cs, &alice, id_of[1]) && commands_find(s.cs, &alice, id(c, 2)) == c);
	CHECK_INT(spools(), 0);
	command_unref(c);
	shop_close(&s);
}

/* Where three quarters of a uid's room are used, the oldest output goes; how they ended stays. */
TEST(old_output_makes_room)
{
	struct shop s = { .spool_per_uid = 200000 };

	shop_open(&s);
	for (unsigned i = 0; i < 4; i++)
		ended(&s, i, 50000);
	CHECK(!kept(&s, 0) && !kept(&s, 1) && kept(&s, 2) == 50000 && kept(&s, 3) == 50000);
	for (unsigned i = 4; i < 6; i++)
		ended(&s, i, 50000);
	CHECK(!kept(&s, 2) && !kept(&s, 3) && kept(&s, 4) == 50000 && kept(&s, 5) == 50000);
	CHECK(has_ended(commands_find(s.cs, &alice, id_of[0])));
	shop_restart(&s);	/* and it is so for the next daemon */
	CHECK(!kept(&s, 3) && kept(&s, 4) == 50000);
	shop_close(&s);
}

/* C-10: a thousand are kept, and none of them holds a descriptor. */
TEST(a_thousand_ended_ones)
{
	struct shop s = { 0 };
	unsigned before;

	shop_open(&s);
	ended(&s, 0, 10);
	before = open_files();
	for (unsigned i = 1; i < 1005; i++)
		ended(&s, i, 10);
	CHECK(open_files() <= before);
	for (unsigned i = 0; i < 1005; i++)
		CHECK(!commands_find(s.cs, &alice, id_of[i]) == (i < 5));
	CHECK_INT(spools(), 1000);
	shop_close(&s);
}

TEST_MAIN()
