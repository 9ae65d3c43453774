/* SPDX-License-Identifier: MIT */
/* Who may go to which port: each credential against each kind of port, and links against the agent's check. */
#include <stdlib.h>

#include "daemon/auth/token.h"
#include "daemon/gateway/made_token.h"
#include "daemon/gateway/relay_right.h"
#include "proto/cloud/link.h"
#include "tests/lib/test.h"

#define ACCESS	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define TRAFFIC "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define NOW_S	1800000000

static struct fields head_of(const char *method, const char *path, const char *name, const char *value)
{
	struct fields f = FIELDS_NULL;

	CHECK(!fields_put(&f, ":method", method));
	CHECK(!fields_put(&f, ":path", path));
	if (name)
		CHECK(!fields_put(&f, name, value));
	return f;
}

static enum relay_right judge(const struct fields *head, uint16_t port, const char *traffic, bool is_own_program, uid_t uid)
{
	const struct relay_asker a = { .head = head, .is_own_program = is_own_program, .uid = uid, .now_s = NOW_S };

	return relay_judge(&a, &(struct relay_door){ .sandbox = "iabc", .port = port, .access_token = ACCESS,
						     .traffic_token = traffic, .owner = 1000 });
}

static enum relay_right shown(const char *name, const char *value, uint16_t port, const char *traffic)
{
	struct fields f = head_of("GET", "/x", name, value);
	enum relay_right r = judge(&f, port, traffic, false, (uid_t)-1);

	fields_fini(&f);
	return r;
}

TEST(secrets)
{
	CHECK_INT(shown("x-access-token", ACCESS, 49983, ""), RELAY_BY_ACCESS);
	CHECK_INT(shown("x-access-token", TRAFFIC, 49983, TRAFFIC), RELAY_WRONG_ACCESS_TOKEN);
	CHECK_INT(shown("x-access-token", "", 49983, ""), RELAY_WRONG_ACCESS_TOKEN);
	CHECK_INT(shown(NULL, NULL, 49983, ""), RELAY_NO_ACCESS_TOKEN);
	/* The traffic token opens no agent. */
	CHECK_INT(shown("e2b-traffic-access-token", TRAFFIC, 49983, TRAFFIC), RELAY_NO_ACCESS_TOKEN);
	CHECK_INT(shown("e2b-traffic-access-token", TRAFFIC, 3000, TRAFFIC), RELAY_BY_TRAFFIC);
	CHECK_INT(shown("agentbox-traffic-access-token", TRAFFIC, 3000, TRAFFIC), RELAY_BY_TRAFFIC);
	CHECK_INT(shown("agentbox-traffic-access-token", ACCESS, 3000, TRAFFIC), RELAY_WRONG_TRAFFIC_TOKEN);
	CHECK_INT(shown("x-access-token", ACCESS, 3000, TRAFFIC), RELAY_BY_ACCESS);
	CHECK_INT(shown("x-access-token", "the program's own", 3000, TRAFFIC), RELAY_NO_TRAFFIC_TOKEN);
	/* A public port has no traffic token: an empty one opens nothing. */
	CHECK_INT(shown("e2b-traffic-access-token", "", 3000, ""), RELAY_NOT_OWNER);
	CHECK_INT(shown(NULL, NULL, 3000, ""), RELAY_NOT_OWNER);
}

TEST(a_sandbox_without_an_access_token_has_no_secret)
{
	struct fields f = head_of("GET", "/x", "x-access-token", "");
	const struct relay_door d = { .sandbox = "iabc", .port = 49983, .access_token = "", .traffic_token = "", .owner = 1000 };
	struct relay_asker a = { .head = &f };

	CHECK_INT(relay_judge(&a, &d), RELAY_NO_ACCESS_TOKEN);
	a.is_own_program = true;
	CHECK_INT(relay_judge(&a, &d), RELAY_NO_ACCESS_TOKEN);
	a.uid = 1000;
	CHECK_INT(relay_judge(&a, &d), RELAY_BY_UID);
	fields_fini(&f);
}

/* GATEWAY §2: a sandbox without an access token gets one made here. */
TEST(a_token_that_is_made_here)
{
	const uint8_t secret[MADE_TOKEN_SECRET] = { 1, 2, 3 }, other[MADE_TOKEN_SECRET] = { 1, 2, 4 };
	char made[MADE_TOKEN_TEXT], again[MADE_TOKEN_TEXT], foreign[MADE_TOKEN_TEXT], of_other[MADE_TOKEN_TEXT];
	struct relay_door d = { .sandbox = "iabc", .port = 49983, .access_token = "", .made_token = made, .traffic_token = TRAFFIC,
				.owner = 1000 };
	struct fields f, wrong;
	struct relay_asker a = { .head = &f, .now_s = NOW_S };

	made_token(secret, "iabc", made);
	made_token(secret, "iabc", again);
	made_token(secret, "iabd", foreign);
	made_token(other, "iabc", of_other);
	CHECK_INT(strlen(made), 64);
	CHECK_STR(made, again);
	CHECK(strcmp(made, foreign) && strcmp(made, of_other));
	f = head_of("GET", "/x", "x-access-token", made);
	wrong = head_of("GET", "/x", "x-access-token", foreign);
	CHECK_INT(relay_judge(&a, &d), RELAY_BY_ACCESS);
	d.port = 3000;
	CHECK_INT(relay_judge(&a, &d), RELAY_BY_ACCESS);
	a.head = &wrong;
	CHECK_INT(relay_judge(&a, &d), RELAY_NO_TRAFFIC_TOKEN);
	d.port = 49983;
	CHECK_INT(relay_judge(&a, &d), RELAY_WRONG_ACCESS_TOKEN);
	/* One that has its own is opened by that alone. */
	a.head = &f;
	d.access_token = ACCESS;
	CHECK_INT(relay_judge(&a, &d), RELAY_WRONG_ACCESS_TOKEN);
	/* Without a secret there is none, and the empty text is none. */
	made_token(NULL, "iabc", made);
	CHECK_STR(made, "");
	d.access_token = "";
	CHECK_INT(relay_judge(&a, &d), RELAY_NO_ACCESS_TOKEN);
	fields_fini(&f);
	fields_fini(&wrong);
}

TEST(the_owner)
{
	struct fields f = head_of("GET", "/", NULL, NULL), health = head_of("GET", "/health", NULL, NULL);
	const struct relay_asker own = { .head = &health, .is_own_program = true, .uid = 1000 };
	struct relay_door d = { .sandbox = "iabc", .port = 49983, .is_health = true, .access_token = ACCESS, .traffic_token = "",
				.owner = 1000 };

	CHECK_INT(judge(&f, 3000, "", true, 1000), RELAY_BY_UID);
	CHECK_INT(judge(&f, 3000, "", true, 1001), RELAY_NOT_OWNER);
	CHECK_INT(judge(&f, 3000, "", false, 1000), RELAY_NOT_OWNER);	/* a page, or a peer that nobody knows */
	CHECK_INT(judge(&f, 3000, TRAFFIC, true, 1000), RELAY_NO_TRAFFIC_TOKEN);
	CHECK_INT(judge(&f, 49983, "", true, 1000), RELAY_NO_ACCESS_TOKEN);
	CHECK_INT(relay_judge(&own, &d), RELAY_BY_UID);
	d.owner = 1001;
	CHECK_INT(relay_judge(&own, &d), RELAY_NO_ACCESS_TOKEN);
	fields_fini(&f);
	fields_fini(&health);
}

TEST(tokens)
{
	char id[] = "iabc", *only[] = { id };
	struct token t = { .uid = 1000, .sandboxes = only, .n_sandboxes = 1 };
	struct fields f = head_of("GET", "/", NULL, NULL);
	const struct relay_asker a = { .head = &f, .token = &t };
	struct relay_door d = { .sandbox = "iabc", .port = 49983, .access_token = ACCESS, .traffic_token = TRAFFIC, .owner = 1000 };

	CHECK_INT(relay_judge(&a, &d), RELAY_BY_TOKEN);
	d.port = 3000;
	CHECK_INT(relay_judge(&a, &d), RELAY_BY_TOKEN);
	d.sandbox = "iother";
	CHECK_INT(relay_judge(&a, &d), RELAY_OUT_OF_SCOPE);
	d.owner = 1001;		/* nothing is said about another uid's */
	CHECK_INT(relay_judge(&a, &d), RELAY_NO_TRAFFIC_TOKEN);
	fields_fini(&f);
}

static bool fits(const char *method, const char *path)
{
	struct fields f = head_of(method, path, NULL, NULL);
	bool yes = judge(&f, 49983, "", false, (uid_t)-1) == RELAY_BY_LINK;

	CHECK(!yes || relay_is_link(&f));
	fields_fini(&f);
	return yes;
}

/* CLOUD-WIRE §5.6: the token of its vectors is ours here. */
TEST(links)
{
	static const char read[] = "/files?path=%2Fhome%2Fuser%2Fa%20b.txt&signature=v1_DRqJ3yYc6dTc06Bsf7gqbK1IADObRix9Ioug%2FoxIy3k";
	static const char write[] = "/files?username=root&path=notes.txt&signature=v1_KyoiNgXebEC9uSRvuiZJJVJvZkoolr%2B9XTm0TCCPXJE";
	static const char late[] = "/files?path=/tmp/x&username=user&signature=v1_%2FLCNhK0M0M2PGvFmt4RPajG5sLPNPTdR7uw3RG3Dhws"
				   "&signature_expiration=1893456000";

	CHECK(fits("GET", read));
	CHECK(fits("HEAD", read));
	CHECK(!fits("POST", read));
	CHECK(!fits("DELETE", read));
	CHECK(fits("POST", write));
	CHECK(!fits("GET", write));
	CHECK(fits("GET", late));
	CHECK(!fits("GET", "/files?path=/tmp/y&username=user&signature=v1_%2FLCNhK0M0M2PGvFmt4RPajG5sLPNPTdR7uw3RG3Dhws"
			   "&signature_expiration=1893456000"));
	CHECK(!fits("GET", "/files?path=/tmp/x&signature="));
	CHECK(!fits("GET", "/files?path=/tmp/x"));
	CHECK(!fits("GET", "/files/x?path=notes.txt&username=root&signature=v1_KyoiNgXebEC9uSRvuiZJJVJvZkoolr%2B9XTm0TCCPXJE"));
}

TEST(links_end)
{
	for (int k = -1; k <= 1; k++) {
		char *s = cloud_link_sign("x", false, "", ACCESS, NOW_S + k), path[200];
		size_t n = (size_t)snprintf(path, sizeof(path), "/files?path=x&signature_expiration=%d&signature=", NOW_S + k);
		struct fields f;

		CHECK(s);
		for (const char *p = s; *p; p++)	/* a plus would be a space */
			n += (size_t)snprintf(path + n, sizeof(path) - n, *p == '+' ? "%%2B" : "%c", *p);
		f = head_of("GET", path, NULL, NULL);
		CHECK_INT(judge(&f, 49983, "", false, 0), k >= 0 ? RELAY_BY_LINK : RELAY_LINK_OVER);
		path[n - 1] ^= 1;
		fields_fini(&f);
		f = head_of("GET", path, NULL, NULL);
		CHECK_INT(judge(&f, 49983, "", false, 0), RELAY_WRONG_ACCESS_TOKEN);
		fields_fini(&f);
		free(s);
	}
}

/* Case 124: the header is looked at first, whatever the link says. */
TEST(a_wrong_token_beside_a_good_link)
{
	struct fields f = head_of("GET", "/files?path=%2Fhome%2Fuser%2Fa%20b.txt&signature=v1_DRqJ3yYc6dTc06Bsf7gqbK1IADObRix9Ioug%2FoxIy3k",
				  NULL, NULL);

	CHECK_INT(judge(&f, 49983, "", false, 0), RELAY_BY_LINK);
	CHECK_INT(judge(&f, 3000, TRAFFIC, false, 0), RELAY_NO_TRAFFIC_TOKEN);
	CHECK(!fields_put(&f, "x-access-token", "wrong"));
	CHECK_INT(judge(&f, 49983, "", false, 0), RELAY_WRONG_ACCESS_TOKEN);
	fields_fini(&f);
}

TEST_MAIN()
