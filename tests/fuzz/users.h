/* SPDX-License-Identifier: MIT */
/* Two users who call what they like of the real core, and the world that it is in. */
#ifndef AB_TESTS_FUZZ_USERS_H
#define AB_TESTS_FUZZ_USERS_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/cloud/cloud.h"

struct sandbox_core;

extern struct sandbox_core *core;

/* A world without cloud and core; its store is of no disk. */
void world_begin(const uint8_t *p, size_t n);
void world_end(void);
/* The real client of the control plane and the real core; urls NULL: by the domain. */
void core_open(struct pool *pool, const char *api_url, const char *sandbox_url);
/* A user asks for something. */
void some_call(void);
void let_one_go(void);		/* of the leases that somebody holds */
void users_begin(void);
bool users_wait(void);		/* some of their calls are not answered yet */
void users_end(void);		/* every call was answered */
void pass(uint64_t ms);

#endif
