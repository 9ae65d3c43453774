/* SPDX-License-Identifier: MIT */
/*
 * A model of the agent in a sandbox: processes, their streams, what is asked about files. What it says may be changed, message by
 * message. Output and input say their own place, so that whoever gets them knows what is missing, twice, or another's.
 */
#ifndef AB_TESTS_FUZZ_AGENT_H
#define AB_TESTS_FUZZ_AGENT_H

#include <stdbool.h>
#include <stdint.h>

struct proc {
	uint32_t pid;
	char tag[64], sandbox[32];
	bool alive, zombie, killed, pty;	/* zombie: it has ended, and others hold its output */
	bool in_doubt;			/* nothing proves that its start was not processed */
	int exit_code;
	uint8_t next_out[4];		/* by stream */
	uint32_t next_in;		/* the least word of input that did not come */
	unsigned words;			/* of input that came */
};

void agent_begin(bool lies);
/* False: something was changed after which answers prove nothing. */
bool agent_is_judged(void);
struct proc *proc_of_tag(const char *tag);
unsigned messages_said(void);
/* The byte of output that follows one. */
static inline uint8_t byte_after(uint8_t b)
{
	return (uint8_t)(b * 5u + 1);
}

#endif
