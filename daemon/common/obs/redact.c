/* SPDX-License-Identifier: MIT */
/* Invariant: only beginnings are held, in an open hash table and in the order in which they came, of which the oldest goes. */
#include "daemon/common/obs/redact.h"

#include <pthread.h>
#include <string.h>

#include "proto/base/str.h"

#define NOTED_MAX 8192u
#define KEPT_MAX  256u
#define SLOTS	  32768u	/* a power of 2, at least twice both */

static struct {
	pthread_mutex_t lock;
	uint64_t slots[SLOTS];	/* 0 = free: no word begins with NUL */
	uint64_t noted[NOTED_MAX];
	size_t n_noted, n_kept;	/* n_noted counts on; its place in the ring is the rest */
} known = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_-.~+/=%", c));
}

static uint64_t beginning(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Where it is, or the free slot where it would be. */
static size_t slot_of(uint64_t v)
{
	size_t i = (size_t)((v * 0x9e3779b97f4a7c15ull) >> 40) & (SLOTS - 1);

	while (known.slots[i] && known.slots[i] != v)
		i = (i + 1) & (SLOTS - 1);
	return i;
}

/* Those behind it move up where they would not be found any more. */
static void slot_clear(uint64_t v)
{
	size_t i = slot_of(v);

	known.slots[i] = 0;
	for (i = (i + 1) & (SLOTS - 1); known.slots[i]; i = (i + 1) & (SLOTS - 1)) {
		uint64_t moved = known.slots[i];

		known.slots[i] = 0;
		known.slots[slot_of(moved)] = moved;
	}
}

static void learn(uint64_t v, bool keep)
{
	size_t i = slot_of(v);

	if (known.slots[i] || (keep && known.n_kept == KEPT_MAX))
		return;
	if (keep) {
		known.n_kept++;
	} else {
		uint64_t *place = &known.noted[known.n_noted++ % NOTED_MAX];

		if (*place)
			slot_clear(*place);
		*place = v;
		i = slot_of(v);
	}
	known.slots[i] = v;
}

static void learn_words(const char *text, bool keep)
{
	if (!text)
		return;
	pthread_mutex_lock(&known.lock);
	while (*text) {
		size_t n = 0;

		while (is_word(text[n]))
			n++;
		if (n >= REDACT_BYTES)
			learn(beginning(text), keep);
		text += n + !n;
	}
	pthread_mutex_unlock(&known.lock);
}

void redact_keep(const char *text)
{
	learn_words(text, true);
}

void redact_note(const char *text)
{
	learn_words(text, false);
}

void redact_text(char *text)
{
	size_t n = strlen(text);

	pthread_mutex_lock(&known.lock);
	for (size_t i = 0; i + REDACT_BYTES <= n; i++) {
		if (!known.slots[slot_of(beginning(text + i))])
			continue;
		while (i < n && is_word(text[i]))
			text[i++] = '*';
	}
	pthread_mutex_unlock(&known.lock);
}

void redact_status(struct status *s)
{
	redact_text(s->text);
	for (unsigned i = 0; i < s->n_evidence; i++)
		redact_text(s->evidence[i].value);
}
