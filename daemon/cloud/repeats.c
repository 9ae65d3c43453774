/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/repeats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/map.h"

#define SLOTS_MIN 256u

void repeats_fini(struct repeats *r)
{
	free(r->slots);
	*r = (struct repeats){ 0 };
}

/* The slot of the id, or the free one where it belongs. At least half of them are free. */
static struct repeats_slot *slot_of(const struct repeats *r, uint64_t hash, const char *id)
{
	size_t i = hash & (r->n_slots - 1);

	while (r->slots[i].id && (r->slots[i].hash != hash || strcmp(r->slots[i].id, id) != 0))
		i = (i + 1) & (r->n_slots - 1);
	return &r->slots[i];
}

static int grow(struct repeats *r)
{
	struct repeats bigger = { .n_slots = r->n_slots ? 2 * r->n_slots : SLOTS_MIN, .n = r->n };

	bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_slots; i++)
		if (r->slots[i].id)
			*slot_of(&bigger, r->slots[i].hash, r->slots[i].id) = r->slots[i];
	free(r->slots);
	*r = bigger;
	return 0;
}

int repeats_note(struct repeats *r, const char *id, bool *ret_before)
{
	uint64_t hash = map_hash(id, strlen(id));
	struct repeats_slot *s;

	if (2 * r->n >= r->n_slots && grow(r) < 0)
		return -ENOMEM;
	s = slot_of(r, hash, id);
	*ret_before = s->id != NULL;
	if (*ret_before)
		return 0;
	*s = (struct repeats_slot){ hash, id };
	r->n++;
	return 0;
}
