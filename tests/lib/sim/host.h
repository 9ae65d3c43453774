/* SPDX-License-Identifier: MIT */
/*
 * A simulated host: time is a number that moves only when nothing is left to do at its moment, so
 * nothing waits and every run is the same. Replaced at link time: daemon/common/ev/loop.h and
 * worker.h, proto/base/clock.h (loop.c, worker.c). Descriptors are real: what is ready is served
 * before time moves. What happens outside of the code under test (messages, people, a disk) are
 * events at moments of true time.
 */
#ifndef AB_TESTS_LIB_SIM_HOST_H
#define AB_TESTS_LIB_SIM_HOST_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct sim {
	uint64_t now_ms;		/* true time: of no clock that anybody sets */
	uint64_t booted_at_ms;		/* CLOCK_BOOTTIME counts from here */
	int64_t wall_offset_ms;		/* the wall clock shows now_ms + this */
	bool dead;			/* the code under test has crashed: nothing of it has an effect any more */
	bool ending;			/* events only free what is theirs */
	unsigned long steps;
};

/* The world under way; without one, the clocks stand where each begins. In shared memory (struct fake) it is that of the program's children, too: each
 * goes on from where the last one was killed. */
extern struct sim *sim;

/* A world begins: *s is set to plausible clocks. */
void sim_begin(struct sim *s);
/* It ends: events that are left are told so (sim->ending), then forgotten. */
void sim_end(void);

typedef void sim_event_fn(void *arg);
/* At a moment of true time; those of one moment in the order they were planned. */
void sim_at(uint64_t at_ms, sim_event_fn *fn, void *arg);
/* The next thing that happens, not after until_ms. False: nothing does; the clock is there. */
bool sim_step(uint64_t until_ms);

/* What is handed over to a worker is done at once, though heard of later. Otherwise a crash loses what
 * the worker has gathered. */
extern bool sim_worker_eager;

/* Three that a program may have of its own; these are weak. */

void sim_trace(const char *fmt, ...) printf_like(1, 2);	/* prints with SIM_TRACE in the environment */
/* An invariant is broken: ends the program. */
void sim_fail(const char *invariant, const char *fmt, ...) printf_like(2, 3) __attribute__((noreturn));
/* A place where a crash may fall. True: it has fallen. */
bool sim_seam(const char *name);

#endif
