/* SPDX-License-Identifier: MIT */
/*
 * A cloud for tests of lifecycle: the functions of daemon/cloud/cloud.h over a ledger in shared
 * memory, so that it goes on existing when the process that asked is killed, and can be read by the
 * test afterwards. What it does next is scripted by one field for each kind of call.
 */
#ifndef AB_TESTS_UNIT_SANDBOX_FAKE_H
#define AB_TESTS_UNIT_SANDBOX_FAKE_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

struct cloud;
struct loop;

#define FAKE_BOXES 64
#define FAKE_TAGS  16

enum fake_create {
	FAKE_ACCEPT = 0,	/* and answer */
	FAKE_ACCEPT_LOSE,	/* made; the answer is lost */
	FAKE_LOSE,		/* lost before it was made */
	FAKE_UNSENT,		/* proven unprocessed */
	FAKE_REFUSE,		/* 400 */
	FAKE_HOLD,		/* made; the answer comes with fake_release() */
};

struct fake_sandbox {
	char id[32];
	char keys[FAKE_TAGS][64], values[FAKE_TAGS][256];
	unsigned n_tags;
	bool alive, paused, hidden;	/* hidden: not listed yet */
	int64_t started_at_ms, end_at_ms;
	unsigned deletes;
};

#define FAKE_SNAPSHOTS 16

struct fake_snapshot {
	char id[64], source[32];
	bool there;
};

struct fake {
	/* the ledger */
	struct fake_sandbox sandboxes[FAKE_BOXES];
	unsigned n_sandboxes;		/* = accepted POSTs, plus what the test planted */
	unsigned posts, gets, lists, kills, connects, timeouts, refreshes, pauses, forks, networks, metrics;
	struct fake_snapshot snapshots[FAKE_SNAPSHOTS];
	unsigned n_snapshots;
	/* the script: the first `n` creates do this, later ones are accepted */
	enum fake_create create;
	unsigned create_n;
	bool list_empty;		/* 200 with nothing */
	bool down;			/* nothing is answered: UNREACHABLE after 5 ms */
	unsigned kill_fails;		/* so many DELETEs answer 500 after acting */
	unsigned refresh_fails;
	unsigned conflicts;		/* so many changes answer 409 */
	enum fake_create copy;		/* what the next copy_n forks and snapshots do */
	unsigned copy_n;
	unsigned children_fail;		/* so many children of a fork answer 429 */
	uint32_t cap_s;			/* 0 = none; of a refresh: of its age */
};

/* In shared memory; the pointer is valid in children too. */
struct fake *fake_new(void);
void fake_free(struct fake *f);
/* One face of it in this process. */
struct cloud *fake_cloud(struct fake *f, struct loop *loop);
void fake_cloud_free(struct cloud *c);
void fake_release(struct cloud *c);

struct fake_sandbox *fake_find(struct fake *f, const char *id);
const char *fake_tag(const struct fake_sandbox *b, const char *key);
/* A sandbox that somebody else made. */
struct fake_sandbox *fake_plant(struct fake *f, const char *id);
void fake_plant_tag(struct fake_sandbox *b, const char *key, const char *value);
unsigned fake_alive(const struct fake *f);

#endif
