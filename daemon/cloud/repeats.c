/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/repeats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/map.h"

#define SLOTS_MIN 16u

void repeats_fini(struct repeats *r)
{
	for (size_t i = 0; r->parts && i < REPEATS_PARTS; i++)
		free(r->parts[i].slots);
	free(r->parts);
	*r = (struct repeats){ 0 };
}

/* The slot of the id, or the free one where it belongs. At least half of them are free. */
static struct repeats_slot *slot_of(const struct repeats_part *p, uint64_t hash, const char *id)
{
	size_t i = hash & (p->n_slots - 1);

	while (p->slots[i].id && (p->slots[i].hash != hash || strcmp(p->slots[i].id, id) != 0))
		i = (i + 1) & (p->n_slots - 1);
	return &p->slots[i];
}

static int grow(struct repeats_part *p)
{
	struct repeats_part bigger = { .n_slots = p->n_slots ? 2 * p->n_slots : SLOTS_MIN, .n = p->n };

	bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < p->n_slots; i++)
		if (p->slots[i].id)
			*slot_of(&bigger, p->slots[i].hash, p->slots[i].id) = p->slots[i];
	free(p->slots);
	*p = bigger;
	return 0;
}

int repeats_note(struct repeats *r, const char *id, bool *ret_before)
{
	uint64_t hash = map_hash(id, strlen(id));
	struct repeats_part *p;
	struct repeats_slot *s;

	if (!r->parts)
		r->parts = calloc(REPEATS_PARTS, sizeof(*r->parts));
	if (!r->parts)
		return -ENOMEM;
	p = &r->parts[hash >> 32 & (REPEATS_PARTS - 1)];
	if (2 * p->n >= p->n_slots && grow(p) < 0)
		return -ENOMEM;
	s = slot_of(p, hash, id);
	*ret_before = s->id != NULL;
	if (*ret_before)
		return 0;
	*s = (struct repeats_slot){ hash, id };
	p->n++;
	return 0;
}
