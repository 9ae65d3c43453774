/* SPDX-License-Identifier: MIT */
/*
 * A model of the cloud's control plane whose answers may be changed, for the fuzzers that play whole sequences: what they choose by,
 * what the cloud does with a request, and the lies about it. What is global here is of the sequence under way.
 */
#ifndef AB_TESTS_FUZZ_MODEL_H
#define AB_TESTS_FUZZ_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/buf.h"
#include "proto/wire/fields.h"

#define ANSWERS	  24u	/* that a sequence has at least */
#define STEPS_MAX 2000u
#define BOXES	  32u

#define FINDING(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), abort())

/* One of n: the next byte of the input; where it has ended, chance that is seeded by all of it. */
unsigned choose(unsigned n);
bool rarely(void);
void model_hash(const void *p, size_t n, uint8_t ret[32]);

struct box {
	char id[32], tag[80];
	char *metadata;
	bool alive, paused;
	int64_t started_ms, end_ms;
	unsigned leases;	/* that our users hold, as far as they were told */
	bool kill_asked;
};

extern struct box boxes[BOXES];
extern unsigned n_boxes, n_answers;

struct box *box_of(const char *id, size_t n);
/* The value of a key of a request's body, as text; "" = none. Heap. */
char *value_of(const char *body, const char *key);
void tag_of(const char *metadata, char ret[80]);
/* A create that was sent, and its number; it is a finding if one with its tag is in doubt. */
unsigned create_sent(const char *tag);
void create_in_doubt(unsigned number);	/* nothing proves that it was not processed */
bool has_room_for_creates(void);
/* What the cloud does, and what it says. */
unsigned act(const char *method, const char *path, const char *body, struct buf *ret);
void head_of(struct fields *f);
void keep_answer(const struct buf *b);	/* it may be said again */
void lie(unsigned *status, struct buf *b);
void flip_bytes(struct buf *b);

/* The input's bytes are the choices. W is there. */
void model_begin(const uint8_t *p, size_t n);
void model_end(void);
/* The answers of the last sequence, for sequences_main.c. */
unsigned sequence_answers(void);

#endif
