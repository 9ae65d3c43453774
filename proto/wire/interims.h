/* SPDX-License-Identifier: MIT */
/* Interim heads (1xx) of an answer, in their order, until its owner takes them. */
#ifndef AB_PROTO_WIRE_INTERIMS_H
#define AB_PROTO_WIRE_INTERIMS_H

#include <stdbool.h>

#include "proto/wire/fields.h"

#define INTERIMS_MAX_N	   16u
#define INTERIMS_MAX_BYTES 16384u	/* of one answer; what does not fit is left out */

struct interims {
	struct fields *v;	/* heap; charged to the quota of the first one */
	uint32_t n, cap, bytes;
};

#define INTERIMS_NULL { 0 }

void interims_fini(struct interims *i);
/* Takes the head over, and leaves it empty with its bounds. */
void interims_put(struct interims *i, struct fields *head);
/* The oldest one, which is the caller's to free. False: there is none. */
bool interims_next(struct interims *i, struct fields *ret);

#endif
