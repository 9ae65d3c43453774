/* SPDX-License-Identifier: MIT */
/* Whose call goes first: the cloud's client with its limiter over a pool and a scripted peer. */
#include "daemon/cloud/cloud.h"
#include "tests/lib/test.h"
#include "tests/unit/upstream/rig.h"

struct call {
	struct cloud_call *call;
	bool over;
	struct cloud_result r;		/* without what it owns */
};

static void on_done(struct cloud_result *r, void *user)
{
	struct call *c = user;

	CHECK(!c->over);
	c->over = true;
	c->r = *r;
}

static struct peer *begin(struct rig *g, uint32_t max_in_flight, struct cloud **ret)
{
	struct cloud_options o = { .account = "default", .api_url = "http://api.test",
				   .plain_http2 = true, .allow_plain_http = true, .api_key = "ab_0",
				   .max_in_flight = max_in_flight };
	struct status why;
	struct peer *p;

	rig_begin(g, NULL);
	p = rig_peer(g, "192.0.2.1");
	rig_host(g, "api.test", "192.0.2.1");
	o.loop = g->loop;
	o.pool = g->pool;
	CHECK(!cloud_new(&o, ret, &why));
	return p;
}

static void end(struct rig *g, struct cloud *c)
{
	cloud_free(c);
	rig_end(g);
}

static void kill_of(struct cloud *cloud, struct call *c, uid_t uid, const char *id, bool background)
{
	struct cloud_ask ask = { .uid = uid, .background = background, .done = on_done, .user = c };

	*c = (struct call){ 0 };
	c->call = cloud_kill(cloud, id, &ask);
	CHECK(c->call);
}

/* The ids that the peer saw, as "a0 b0 …". */
static void order(const struct rig *g, char ret[256])
{
	const char *p = g->log;
	size_t n = 0;

	ret[0] = 0;
	while ((p = strstr(p, "/sandboxes/"))) {
		p += strlen("/sandboxes/");
		n += (size_t)snprintf(ret + n, 256 - n, "%.*s ", (int)strcspn(p, " "), p);
	}
}

/* One who asks for much at once does not keep the others waiting; housekeeping comes after all. */
TEST(principals_take_turns)
{
	struct call a[4], b[4], z[2];
	struct cloud *cloud;
	struct rig g;
	struct peer *p = begin(&g, 1, &cloud);
	char id[8], seen[256];

	p->status = 204;
	for (unsigned i = 0; i < 2; i++) {
		snprintf(id, sizeof(id), "z%u", i);
		kill_of(cloud, &z[i], 0, id, true);
	}
	for (unsigned i = 0; i < 4; i++) {
		snprintf(id, sizeof(id), "a%u", i);
		kill_of(cloud, &a[i], 1000, id, false);
	}
	for (unsigned i = 0; i < 4; i++) {
		snprintf(id, sizeof(id), "b%u", i);
		kill_of(cloud, &b[i], 1001, id, false);
	}
	UNTIL(&g, z[1].over);
	for (unsigned i = 0; i < 4; i++)
		CHECK(a[i].over && status_ok(&a[i].r.status) && b[i].over && status_ok(&b[i].r.status));
	order(&g, seen);
	CHECK_STR(seen, "a0 b0 a1 b1 a2 b2 a3 b3 z0 z1 ");
	CHECK_INT(p->max_open, 1);
	end(&g, cloud);
}

/* 429 with Retry-After: the route is left in peace so long, whoever asks; then one call at a time. */
TEST(a_limited_route_waits)
{
	struct call c[4];
	struct cloud *cloud;
	struct rig g;
	struct peer *p = begin(&g, 0, &cloud);
	uint64_t began;

	p->status = 429;
	p->field = "retry-after";
	p->value = "2";
	kill_of(cloud, &c[0], 1000, "i0", false);
	UNTIL(&g, p->requests == 1 && !p->n_open);
	rig_spin(&g, 10);
	began = clock_boot_ms();
	p->status = 204;
	p->field = NULL;
	for (unsigned i = 1; i < 4; i++)
		kill_of(cloud, &c[i], 1000 + i, "i1", false);
	UNTIL(&g, p->requests == 2);
	CHECK(clock_boot_ms() >= began + 1900 && clock_boot_ms() <= began + 2100);
	CHECK_INT(p->n_open, 1);
	for (unsigned i = 0; i < 4; i++) {
		UNTIL(&g, c[i].over);
		CHECK(status_ok(&c[i].r.status));
	}
	CHECK_INT(p->requests, 5);
	end(&g, cloud);
}

TEST_MAIN()
