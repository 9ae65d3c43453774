/* SPDX-License-Identifier: MIT */
/* What is sent from the encodings that are kept is what a new encoding of the same view would be, whatever has changed. */
#include "tests/lib/test.h"

#include "daemon/rpc/msg.h"
#include "proto/base/rng.h"
#include "proto/cloud/model.h"

#define SANDBOX (&agentbox__v1__sandbox__descriptor)

/* A sandbox's memory, as its record has it: texts that are written over where they lie. */
struct world {
	char texts[8][24];
	char keys[3][16], values[3][16];
	struct sandbox_pair pairs[3];
	struct sandbox_view v;
};

static void world_init(struct world *w)
{
	struct sandbox_view *v = &w->v;
	const char **const texts[] = { &v->id, &v->name, &v->account, &v->template_id, &v->alias, &v->envd_version, &v->domain,
				       &v->warning };

	memset(w, 0, sizeof(*w));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		snprintf(w->texts[i], sizeof(w->texts[i]), "text-%zu", i);
		*texts[i] = w->texts[i];
	}
	for (size_t i = 0; i < ARRAY_SIZE(w->pairs); i++) {
		snprintf(w->keys[i], sizeof(w->keys[i]), "key-%zu", i);
		snprintf(w->values[i], sizeof(w->values[i]), "value-%zu", i);
		w->pairs[i] = (struct sandbox_pair){ w->keys[i], w->values[i] };
	}
	v->metadata = w->pairs;
	v->n_metadata = 2;
	v->access_token = v->traffic_token = "secret";
	v->state = SANDBOX_RUNNING;
	v->started_at_ms = v->end_at_ms = v->as_of_ms = 1700000000123;
	v->cpu_count = v->memory_mb = v->disk_size_mb = v->leases = v->generation = 3;
	v->allow_internet_access = TRI_TRUE;
	v->lifecycle = (struct cloud_lifecycle){ TRI_TRUE, TRI_TRUE, TRI_TRUE };
	policy_default(&v->policy);
	v->source = SANDBOX_FROM_CACHE;
	v->owner_uid = 1000;
	v->adopted = v->warm = v->end_pending = true;
	v->gone_reason = R_SANDBOX_EXPIRED;
}

static void must_be_equal(struct encoded *e, const struct sandbox_view *v)
{
	struct msg_sandbox s;
	size_t n = 0, want;
	const uint8_t *p = encoded_sandbox(e, v, &n);
	uint8_t fresh[4096];

	CHECK(p);
	CHECK(msg_sandbox_init(&s, v) == 0);
	want = protobuf_c_message_get_packed_size(&s.m.base);
	CHECK(want <= sizeof(fresh));
	protobuf_c_message_pack(&s.m.base, fresh);
	msg_sandbox_fini(&s);
	CHECK_INT(n, want);
	CHECK(!memcmp(p, fresh, n));
}

/* A field that is new in the message has to be set here, and so is changed below. */
TEST(the_view_sets_every_field)
{
	struct world w;
	struct msg_sandbox s;

	world_init(&w);
	CHECK(msg_sandbox_init(&s, &w.v) == 0);
	for (unsigned i = 0; i < SANDBOX->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &SANDBOX->fields[i];
		const char *at = (const char *)&s.m + f->offset;

		if (!strcmp(f->name, "network"))	/* with it nothing is kept */
			continue;
		if (f->type == PROTOBUF_C_TYPE_STRING)
			CHECK(**(char *const *)(const void *)at);
		else
			CHECK(at[0] || at[1] || at[2] || at[3]);
	}
	msg_sandbox_fini(&s);
}

/* Where they lie: the pointer says nothing. */
TEST(a_text_that_is_written_over_is_encoded_again)
{
	struct encoded *e = encoded_new();
	struct world w;
	struct msg_sandbox s;

	world_init(&w);
	must_be_equal(e, &w.v);
	CHECK(msg_sandbox_init(&s, &w.v) == 0);
	for (unsigned i = 0; i < SANDBOX->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &SANDBOX->fields[i];

		if (f->type != PROTOBUF_C_TYPE_STRING)
			continue;
		(*(char **)(void *)((char *)&s.m + f->offset))[0] ^= 1;
		must_be_equal(e, &w.v);
	}
	msg_sandbox_fini(&s);
	encoded_free(e);
}

static void change_text(struct world *w, struct rng *r)
{
	char *texts[] = { w->texts[rng_u64(r) % ARRAY_SIZE(w->texts)], w->keys[rng_u64(r) % 3], w->values[rng_u64(r) % 3] };
	char *s = texts[rng_u64(r) % 3];

	s[rng_u64(r) % 8] = rng_u64(r) % 4 ? (char)('a' + rng_u64(r) % 26) : 0;	/* shorter, and longer again */
}

#define CHANGE(field, to)                                                                          \
	do {                                                                                       \
		if (rng_u64(r) % 8 == 0)                                                           \
			(field) = (__typeof__(field))(to);                                         \
	} while (0)

static void change_number(struct world *w, struct rng *r)
{
	struct sandbox_view *v = &w->v;
	int64_t n = (int64_t)(rng_u64(r) % 3);

	CHANGE(v->state, 1 + n);
	CHANGE(v->n_metadata, n);
	CHANGE(v->started_at_ms, n * 1001);
	CHANGE(v->end_at_ms, n * 1001);
	CHANGE(v->as_of_ms, n * 1001);
	CHANGE(v->cpu_count, n);
	CHANGE(v->memory_mb, n);
	CHANGE(v->disk_size_mb, n);
	CHANGE(v->allow_internet_access, n);
	CHANGE(v->lifecycle.pause, n);
	CHANGE(v->lifecycle.keep_memory, n);
	CHANGE(v->lifecycle.auto_resume, n);
	CHANGE(v->policy.keep_alive, n == 1);
	CHANGE(v->policy.release_grace_ms, n * 1001);
	CHANGE(v->policy.idle_timeout_ms, n * 1001);
	CHANGE(v->policy.max_age_ms, n * 1001);
	CHANGE(v->policy.on_idle, 1 + n % 2);
	CHANGE(v->policy.on_cap, 1 + n % 2);
	CHANGE(v->policy.resume_on_use, n == 1);
	CHANGE(v->owner_uid, 1000 + n);
	CHANGE(v->leases, n);
	CHANGE(v->generation, n);
	CHANGE(v->source, 1 + n);
	CHANGE(v->adopted, n == 1);
	CHANGE(v->warm, n == 1);
	CHANGE(v->end_pending, n == 1);
	CHANGE(v->gone_reason, n ? R_SANDBOX_EXPIRED : REASON_NONE);
}

TEST(random_changes_of_many_sandboxes)
{
	enum { WORLDS = 2 * ENCODED_SLOTS };
	struct world *w = calloc(WORLDS, sizeof(*w));
	struct encoded *e = encoded_new();
	struct rng r;

	CHECK(w);
	rng_seed(&r, 14);
	for (size_t i = 0; i < WORLDS; i++)
		world_init(&w[i]);
	for (unsigned i = 0; i < 20000; i++) {
		struct world *one = &w[rng_u64(&r) % WORLDS];

		if (rng_u64(&r) % 2)
			change_text(one, &r);
		else
			change_number(one, &r);
		must_be_equal(e, &one->v);
		must_be_equal(e, &one->v);	/* and as it was kept */
	}
	encoded_free(e);
	free(w);
}

TEST(it_is_encoded_once_while_nothing_changes)
{
	struct encoded *e = encoded_new();
	struct world w;
	size_t n, m;
	const uint8_t *p;

	world_init(&w);
	p = encoded_sandbox(e, &w.v, &n);
	CHECK(p && encoded_sandbox(e, &w.v, &m) == p);
	CHECK_INT(n, m);
	encoded_free(e);
}

TEST(what_is_large_or_has_network_rules_is_not_kept)
{
	struct encoded *e = encoded_new();
	struct world w;
	char large[ENCODED_KEY_BYTES];
	size_t n;

	world_init(&w);
	memset(large, 'x', sizeof(large) - 1);
	large[sizeof(large) - 1] = 0;
	w.v.alias = large;
	CHECK(!encoded_sandbox(e, &w.v, &n));
	w.v.alias = "";
	CHECK(encoded_sandbox(e, &w.v, &n));
	w.v.network = (const struct cloud_network *)&w;	/* not looked at */
	CHECK(!encoded_sandbox(e, &w.v, &n));
	encoded_free(e);
}

TEST_MAIN()
