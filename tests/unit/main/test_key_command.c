/* SPDX-License-Identifier: MIT */
/* api_key_command: what it prints is a key, or why not. */
#include "daemon/common/ev/loop.h"
#include "daemon/main/key_command.h"
#include "proto/base/clock.h"
#include "tests/lib/test.h"

#define PATIENCE_MS 20000

struct asked {
	struct loop *loop;
	struct children *children;
	struct key_command *command;
	int done;
	char key[SECRET_MAX_BYTES + 1], why[128];
};

static void on_key(void *user, struct secret *key, const char *why)
{
	struct asked *a = user;

	a->done++;
	CHECK(!key == !!why);
	snprintf(a->key, sizeof(a->key), "%s", key ? secret_text(key) : "");
	snprintf(a->why, sizeof(a->why), "%s", why ? why : "");
	secret_free(key);
}

static void set_up(struct asked *a)
{
	*a = (struct asked){ .done = 0 };
	CHECK_INT(loop_new(&a->loop), 0);
	CHECK_INT(children_new(a->loop, &a->children), 0);
}

static void tear_down(struct asked *a)
{
	children_free(a->children);
	loop_free(a->loop);
}

static void check_command(const char *command, uint32_t limit_ms, const char *key, const char *why)
{
	uint64_t end = clock_boot_ms() + PATIENCE_MS;
	struct asked a;

	set_up(&a);
	CHECK_INT(key_command_start(a.children, command, limit_ms, on_key, &a, &a.command), 0);
	CHECK_INT(a.done, 0);
	while (!a.done) {
		CHECK(clock_boot_ms() < end);
		CHECK_INT(loop_once(a.loop, 100), 0);
	}
	CHECK_STR(a.key, key);
	CHECK_STR(a.why, why);
	tear_down(&a);
}

TEST(what_it_prints_is_the_key)
{
	check_command("echo e2b_0123", 10000, "e2b_0123", "");
	check_command("printf e2b_0123", 10000, "e2b_0123", "");
	check_command("echo e2b_0123; sleep 1000 & exit 0", 10000, "e2b_0123", "");
}

TEST(why_there_is_no_key)
{
	check_command("true", 10000, "", "does not hold one key on one line");
	check_command("echo two words", 10000, "", "does not hold one key on one line");
	check_command("printf 'a\\000b'", 10000, "", "what it prints is no key");
	check_command("echo e2b_0123; exit 3", 10000, "", "it ended with 3");
	check_command("echo e2b_0123; kill -9 $$", 10000, "", "it was ended by signal 9");
	check_command("head -c 5000 /dev/zero", 10000, "", "it prints more than 4,096 bytes");
	check_command("echo e2b_0123; exec sleep 1000", 50, "", "it did not end within 0.05 s");
	check_command("/no/such/vault", 10000, "", "it ended with 127");
}

TEST(a_cancelled_one_says_nothing)
{
	struct asked a;

	set_up(&a);
	CHECK_INT(key_command_start(a.children, "exec sleep 1000", 10000, on_key, &a, &a.command), 0);
	key_command_cancel(a.command);
	key_command_cancel(NULL);
	for (int i = 0; i < 10; i++)
		CHECK_INT(loop_once(a.loop, 10), 0);
	CHECK_INT(a.done, 0);
	tear_down(&a);
}

TEST_MAIN()
