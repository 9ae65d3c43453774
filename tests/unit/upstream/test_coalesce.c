/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/coalesce.h"
#include "tests/lib/test.h"

static const char *const addresses[] = { "192.0.2.1", "2001:db8::7" };

static struct coalesce_facts good(void)
{
	return (struct coalesce_facts){
		.same_group = true, .same_proxy = true, .same_tls = true, .same_port = true,
		.is_tls = true, .is_h2 = true, .cert_covers = true,
		.conn_address = "2001:db8::7", .addresses = addresses, .n_addresses = 2,
	};
}

TEST(every_condition_counts)
{
	struct coalesce_facts f = good();

	CHECK(coalesce_may(&f));
#define WITHOUT(member, value)                                                                     \
	f = good();                                                                                \
	f.member = value;                                                                          \
	CHECK(!coalesce_may(&f))
	WITHOUT(same_group, false);
	WITHOUT(same_proxy, false);
	WITHOUT(same_tls, false);
	WITHOUT(same_port, false);
	WITHOUT(is_tls, false);
	WITHOUT(is_h2, false);
	WITHOUT(cert_covers, false);
	WITHOUT(misdirected, true);
	WITHOUT(conn_address, NULL);
	WITHOUT(conn_address, "192.0.2.2");
	WITHOUT(n_addresses, 0);
}

TEST_MAIN()
