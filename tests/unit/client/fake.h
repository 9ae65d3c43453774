/* SPDX-License-Identifier: MIT */
/*
 * A daemon of its own process for tests of the library: gRPC on a Unix socket, whose answers are told
 * by what is asked for. The engine is the product's, in its server role; the judge of that engine
 * are other tests.
 *
 *	Get "missing"   NOT_FOUND with details        Get "slow"    never answers
 *	Get "die"       the daemon ends                Get "goaway"  answers, then GOAWAY
 *	Get "refuse:N"  RST_STREAM(REFUSED_STREAM), N times per process, then answers
 *	Get other       a sandbox of that id           Kill "die"    the daemon ends
 *	Run             shell "flood:N" N bytes on stdout, exit 7; "cut:N" the daemon ends after N;
 *	                "cat" says what came in by SendInput, at its end; "hang" ends by Command Kill,
 *	                saying "bye"; "tty" is refused. With argv, its first word counts
 *	Read            path "size:N", "cut:N" (no end), "missing"
 *	Write           path "stall" takes nothing, "refuse" answers early, "broken" refuses the file
 *	Status          what the daemon saw: see fake_status in fake.c
 */
#ifndef AB_TESTS_UNIT_CLIENT_FAKE_H
#define AB_TESTS_UNIT_CLIENT_FAKE_H

#include <stdint.h>
#include <sys/types.h>

struct fake {
	char dir[64], path[96];
	pid_t pid;
	int release_fd;		/* closing it ends the daemon */
};

/* Starts it; after_ms: it listens only then. */
void fake_start(struct fake *f, unsigned after_ms);
/* Only the place, no daemon. */
void fake_nowhere(struct fake *f);
void fake_stop(struct fake *f);
/* The byte at that offset of any flood or file. */
uint8_t fake_byte(uint64_t offset);

#endif
