/* SPDX-License-Identifier: MIT */
/*
 * Seeded hash map from a byte string or a u64 to a pointer. Keys are copied. The seed is drawn
 * once per process, so a peer that chooses keys cannot choose collisions.
 */
#ifndef AB_PROTO_BASE_MAP_H
#define AB_PROTO_BASE_MAP_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct map_entry;

struct map {
	struct map_entry **slots;
	size_t n_slots;
	size_t n;
};

#define MAP_NULL { 0 }

/* What a map hashes its keys by. */
uint64_t map_hash(const void *key, size_t key_len);

void map_fini(struct map *m);

/* Room for so many in all, so that it does not grow step by step. Without memory nothing changes. */
void map_reserve(struct map *m, size_t n);
/* Adds or replaces. Returns 0, or -ENOMEM with the map unchanged. */
must_check int map_put(struct map *m, const void *key, size_t key_len, void *value);
void *map_get(const struct map *m, const void *key, size_t key_len);
/* Removes and returns the value, NULL if there was none. */
void *map_del(struct map *m, const void *key, size_t key_len);

static inline size_t map_size(const struct map *m)
{
	return m->n;
}

must_check int map_put_str(struct map *m, const char *key, void *value);
void *map_get_str(const struct map *m, const char *key);
void *map_del_str(struct map *m, const char *key);
must_check int map_put_u64(struct map *m, uint64_t key, void *value);
void *map_get_u64(const struct map *m, uint64_t key);
void *map_del_u64(struct map *m, uint64_t key);

/* Walks in no order: *pos = 0 to begin; NULL at the end. A put or del ends the walk: it has to begin again. */
void *map_next(const struct map *m, size_t *pos);

#endif
