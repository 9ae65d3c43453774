/* SPDX-License-Identifier: MIT */
/* Lines of the log as datagrams of the journal. */
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/obs/journald.h"
#include "daemon/common/obs/kind.h"
#include "tests/lib/test.h"

#define HEAD "PRIORITY=6\nSYSLOG_IDENTIFIER=test\nAGENTBOX_EVENT=event\n"

static const char *pack(const char *rest)
{
	static char out[JOURNALD_MAX_BYTES + 1];
	const struct journald_line line = { .identifier = "test", .priority = 6, .event = "event", .rest = rest };

	out[journald_pack(out, &line)] = 0;
	return out;
}

TEST(each_pair_is_a_field)
{
	static const struct {
		const char *rest, *fields;
	} t[] = {
		{ "", "" },
		{ "sandbox=abc uid=7", "AGENTBOX_SANDBOX=abc\nAGENTBOX_UID=7\n" },
		{ "error=\"no space\" duration_us=12", "ERROR=no space\nDURATION_USEC=12\n" },
		{ "text=\"a \\\"b\\\" \\\\ =c d=e\" x=1", "AGENTBOX_TEXT=a \"b\" \\ =c d=e\nAGENTBOX_X=1\n" },
		{ "text=\"cut in the mid", "AGENTBOX_TEXT=cut in the mid\n" },
		{ "text=\"cut\\", "AGENTBOX_TEXT=cut\\\n" },
		{ "word =x Bad=1 _a=2 a-b=3 c=", "AGENTBOX__A=2\nAGENTBOX_C=\n" },
		{ "a23456789012345678901234567890123456789012=x b=1", "AGENTBOX_B=1\n" },
	};
	char want[1024];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		snprintf(want, sizeof(want), HEAD "MESSAGE=event %s\n%s", t[i].rest, t[i].fields);
		CHECK_STR(pack(t[i].rest), want);
	}
}

TEST(the_kind_has_an_id)
{
	char out[JOURNALD_MAX_BYTES + 1];
	const struct journald_line line = { "test", 3, log_kind_id(LOG_KIND_store_failed), "store_failed", "" };

	out[journald_pack(out, &line)] = 0;
	CHECK(strstr(out, "\nMESSAGE_ID="));
	CHECK_INT(log_kind_find("store_failed"), LOG_KIND_store_failed);
	CHECK_INT(log_kind_find("no_such_kind"), LOG_KINDS);
	CHECK(!log_kind_id(LOG_KINDS));
	for (int i = 0; i < LOG_KINDS; i++) {
		CHECK_INT(log_kind_find(log_kind_name(i)), i);
		CHECK_INT(strspn(log_kind_id(i), "0123456789abcdef"), 32);
		for (int k = 0; k < i; k++)
			CHECK(strcmp(log_kind_id(i), log_kind_id(k)) != 0);
	}
}

TEST(whole_fields_or_none)
{
	char rest[4000], *end = rest;
	const char *out;

	for (int i = 0; i < 30; i++)
		end += snprintf(end, (size_t)(rest + sizeof(rest) - end), "k%d=%0*d ", i, 120, i);
	out = pack(rest);
	CHECK(strlen(out) <= JOURNALD_MAX_BYTES);
	CHECK_INT(out[strlen(out) - 1], '\n');
	memset(rest, 'x', sizeof(rest) - 1);
	memcpy(rest, "k=", 2);
	rest[sizeof(rest) - 1] = 0;
	CHECK(strlen(pack(rest)) < 4096);
}

TEST(which_stream_is_the_journals)
{
	const struct stat st = { .st_dev = 12, .st_ino = 34567 };

	CHECK(journald_is_stream("12:34567", &st));
	CHECK(!journald_is_stream("12:3456", &st));
	CHECK(!journald_is_stream("12:34567x", &st));
	CHECK(!journald_is_stream("12", &st));
	CHECK(!journald_is_stream(":", &st));
	CHECK(!journald_is_stream(NULL, &st));
}

TEST(it_is_sent_and_a_full_one_does_not_wait)
{
	const struct journald_line line = { "test", 6, NULL, "event", "a=1" };
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int server = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), fd, sent = 0;
	char got[JOURNALD_MAX_BYTES + 1];
	ssize_t n;

	snprintf(at.sun_path, sizeof(at.sun_path), "/tmp/ab-journald-%d", (int)getpid());
	CHECK(journald_open(at.sun_path, &fd) < 0);
	CHECK_INT(bind(server, (const struct sockaddr *)&at, sizeof(at)), 0);
	CHECK_INT(journald_open(at.sun_path, &fd), 0);
	unlink(at.sun_path);
	CHECK(journald_send(fd, &line));
	n = recv(server, got, sizeof(got) - 1, 0);
	CHECK(n > 0);
	got[n] = 0;
	CHECK_STR(got, HEAD "MESSAGE=event a=1\nAGENTBOX_A=1\n");
	alarm(20);
	while (sent < 1000000 && journald_send(fd, &line))
		sent++;
	alarm(0);
	CHECK(sent > 0 && sent < 1000000);
	close(fd);
	close(server);
}

TEST_MAIN()
