/* SPDX-License-Identifier: MIT */
#include "proto/base/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/rng.h"

#define SLOTS_MIN  16u
#define SLOTS_EACH 2u	/* for each entry, at least: looking into another's entry waits for memory */

struct map_entry {
	struct map_entry *next;
	uint64_t hash;
	void *value;
	size_t key_len;
	unsigned char key[];
};

/* SipHash-1-3 of the key under a process-wide random seed. */
#define ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIPROUND                                                                                   \
	do {                                                                                       \
		v0 += v1;                                                                          \
		v1 = ROTL(v1, 13) ^ v0;                                                            \
		v0 = ROTL(v0, 32);                                                                 \
		v2 += v3;                                                                          \
		v3 = ROTL(v3, 16) ^ v2;                                                            \
		v0 += v3;                                                                          \
		v3 = ROTL(v3, 21) ^ v0;                                                            \
		v2 += v1;                                                                          \
		v1 = ROTL(v1, 17) ^ v2;                                                            \
		v2 = ROTL(v2, 32);                                                                 \
	} while (0)

static uint64_t hash_key(const unsigned char *p, size_t n)
{
	static uint64_t k[2];
	uint64_t v0, v1, v2, v3, m, last = (uint64_t)n << 56;

	if (k[0] == 0)
		rng_system(k, sizeof(k));
	v0 = k[0] ^ 0x736f6d6570736575ull;
	v1 = k[1] ^ 0x646f72616e646f6dull;
	v2 = k[0] ^ 0x6c7967656e657261ull;
	v3 = k[1] ^ 0x7465646279746573ull;
	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&m, p, 8);
		v3 ^= m;
		SIPROUND;
		v0 ^= m;
	}
	for (size_t i = 0; i < n; i++)
		last |= (uint64_t)p[i] << (8 * i);
	v3 ^= last;
	SIPROUND;
	v0 ^= last;
	v2 ^= 0xff;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

uint64_t map_hash(const void *key, size_t n)
{
	return hash_key(key, n);
}

static struct map_entry **map_find(const struct map *m, const void *key, size_t n, uint64_t h)
{
	struct map_entry **e;

	if (!m->n_slots)
		return NULL;
	for (e = &m->slots[h & (m->n_slots - 1)]; *e; e = &(*e)->next)
		if ((*e)->hash == h && (*e)->key_len == n && !memcmp((*e)->key, key, n))
			return e;
	return NULL;
}

static int set_slots(struct map *m, size_t n)
{
	struct map_entry **slots = calloc(n, sizeof(struct map_entry *));

	if (!slots)
		return m->n_slots ? 0 : -ENOMEM; /* a full table still works, only slower */
	for (size_t i = 0; i < m->n_slots; i++) {
		struct map_entry *e = m->slots[i], *next;

		for (; e; e = next) {
			next = e->next;
			e->next = slots[e->hash & (n - 1)];
			slots[e->hash & (n - 1)] = e;
		}
	}
	free(m->slots);
	m->slots = slots;
	m->n_slots = n;
	return 0;
}

void map_reserve(struct map *m, size_t n)
{
	size_t n_slots = SLOTS_MIN;

	while (n_slots < SLOTS_EACH * n)
		n_slots *= 2;
	if (n_slots > m->n_slots)
		(void)!set_slots(m, n_slots);
}

int map_put(struct map *m, const void *key, size_t n, void *value)
{
	uint64_t h = hash_key(key, n);
	struct map_entry **at = map_find(m, key, n, h), *e;
	int r;

	if (at) {
		(*at)->value = value;
		return 0;
	}
	if (SLOTS_EACH * m->n >= m->n_slots) {
		r = set_slots(m, m->n_slots ? m->n_slots * 2 : SLOTS_MIN);
		if (r < 0)
			return r;
	}
	e = malloc(sizeof(*e) + n);
	if (!e)
		return -ENOMEM;
	e->hash = h;
	e->value = value;
	e->key_len = n;
	memcpy(e->key, key, n);
	e->next = m->slots[h & (m->n_slots - 1)];
	m->slots[h & (m->n_slots - 1)] = e;
	m->n++;
	return 0;
}

void *map_get(const struct map *m, const void *key, size_t n)
{
	struct map_entry **at = map_find(m, key, n, hash_key(key, n));

	return at ? (*at)->value : NULL;
}

void *map_del(struct map *m, const void *key, size_t n)
{
	struct map_entry **at = map_find(m, key, n, hash_key(key, n)), *e;
	void *value;

	if (!at)
		return NULL;
	e = *at;
	*at = e->next;
	value = e->value;
	free(e);
	m->n--;
	return value;
}

int map_put_str(struct map *m, const char *key, void *value)
{
	return map_put(m, key, strlen(key), value);
}

void *map_get_str(const struct map *m, const char *key)
{
	return map_get(m, key, strlen(key));
}

void *map_del_str(struct map *m, const char *key)
{
	return map_del(m, key, strlen(key));
}

int map_put_u64(struct map *m, uint64_t key, void *value)
{
	return map_put(m, &key, sizeof(key), value);
}

void *map_get_u64(const struct map *m, uint64_t key)
{
	return map_get(m, &key, sizeof(key));
}

void *map_del_u64(struct map *m, uint64_t key)
{
	return map_del(m, &key, sizeof(key));
}

void *map_next(const struct map *m, size_t *pos)
{
	size_t seen = 0;

	/* *pos holds slot index and depth, so that no iterator object is needed. */
	for (size_t i = *pos >> 16; i < m->n_slots; i++) {
		size_t depth = (i == *pos >> 16) ? (*pos & 0xffff) : 0;

		seen = 0;
		for (struct map_entry *e = m->slots[i]; e; e = e->next, seen++) {
			if (seen < depth)
				continue;
			*pos = i << 16 | ((seen + 1) & 0xffff);
			return e->value;
		}
	}
	*pos = m->n_slots << 16;
	return NULL;
}

void map_fini(struct map *m)
{
	for (size_t i = 0; i < m->n_slots; i++) {
		struct map_entry *e = m->slots[i], *next;

		for (; e; e = next) {
			next = e->next;
			free(e);
		}
	}
	free(m->slots);
	*m = (struct map)MAP_NULL;
}
