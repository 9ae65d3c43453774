/* SPDX-License-Identifier: MIT */
/* Invariant: only beginnings and short texts are held, beginnings in an open hash table and in the order in which they came, of
 * which the oldest goes. */
#include "daemon/common/obs/redact.h"

#include <pthread.h>
#include <string.h>

#include "proto/base/str.h"

#define NOTED_MAX 8192u
#define KEPT_MAX  256u
#define SLOTS	  32768u	/* a power of 2, at least twice both */
#define SHORT_MAX 64u

struct shorts {
	char v[SHORT_MAX][REDACT_BYTES];	/* with their NUL */
	size_t n;				/* counts on */
};

static struct {
	pthread_mutex_t lock;
	uint64_t slots[SLOTS];	/* 0 = free: no word begins with NUL */
	uint64_t noted[NOTED_MAX];
	size_t n_noted, n_kept;	/* n_noted counts on; its place in the ring is the rest */
	struct shorts short_noted, short_kept;
} known = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_-.~+/=%", c));
}

/* Where a secret that has been found ends at the latest. */
static bool is_end(char c)
{
	return (unsigned char)c <= ' ' || strchr("\"'`,;()[]{}<>", c);
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

static bool has_short(const struct shorts *l, const char *text)
{
	for (size_t i = 0; i < MIN(l->n, SHORT_MAX); i++)
		if (str_eq(l->v[i], text))
			return true;
	return false;
}

static void learn_short(struct shorts *l, const char *text)
{
	if (!has_short(l, text))
		(void)str_copy(l->v[l->n++ % SHORT_MAX], REDACT_BYTES, text);
}

static size_t word_len(const char *text)
{
	size_t n = 0;

	while (is_word(text[n]))
		n++;
	return n;
}

/* Whether it has words that are long enough. */
static bool learn_words(const char *text, bool keep)
{
	bool any = false;

	while (*text) {
		size_t n = word_len(text);

		if (n >= REDACT_BYTES)
			learn(beginning(text), keep);
		any |= n >= REDACT_BYTES;
		text += n + !n;
	}
	return any;
}

static void learn_text(const char *text, bool keep)
{
	size_t n = text ? strlen(text) : 0;
	struct shorts *l = keep ? &known.short_kept : &known.short_noted;

	if (n < REDACT_MIN_BYTES)
		return;
	pthread_mutex_lock(&known.lock);
	if (n >= REDACT_BYTES) {
		if (!learn_words(text, keep))
			learn(beginning(text), keep);
	} else if (!keep || l->n < SHORT_MAX) {
		learn_short(l, text);
	}
	pthread_mutex_unlock(&known.lock);
}

void redact_keep(const char *text)
{
	learn_text(text, true);
}

void redact_note(const char *text)
{
	learn_text(text, false);
}

static void hide_known(char *text)
{
	size_t n = strlen(text);

	for (size_t i = 0; i + REDACT_BYTES <= n; i++) {
		size_t least = i + REDACT_BYTES;

		if (!known.slots[slot_of(beginning(text + i))])
			continue;
		while (i < n && (i < least || !is_end(text[i])))
			text[i++] = '*';
	}
}

/* Every place where it stands, or begins and was cut. */
static void hide(char *text, const char *secret, size_t n)
{
	size_t least = MIN(n, REDACT_BYTES);

	for (size_t i = 0; n >= REDACT_MIN_BYTES && text[i]; i++) {
		size_t same = 0;

		while (same < n && text[i + same] == secret[same])
			same++;
		if (same < least || (n < REDACT_BYTES && ((i && is_word(text[i - 1])) || is_word(text[i + n]))))
			continue;
		memset(text + i, '*', same);
		i += same - 1;
	}
}

static void hide_shorts(char *text, const struct shorts *l)
{
	for (size_t i = 0; i < MIN(l->n, SHORT_MAX); i++)
		hide(text, l->v[i], strlen(l->v[i]));
}

void redact_text(char *text)
{
	pthread_mutex_lock(&known.lock);
	hide_known(text);
	hide_shorts(text, &known.short_kept);
	hide_shorts(text, &known.short_noted);
	pthread_mutex_unlock(&known.lock);
}

void redact_status(struct status *s)
{
	redact_text(s->text);
	for (unsigned i = 0; i < s->n_evidence; i++)
		redact_text(s->evidence[i].value);
}

/* As a whole, and its words that are long enough: the scheme before a token may be left out. */
static void hide_one(char *text, const char *secret)
{
	hide(text, secret, strlen(secret));
	while (*secret) {
		size_t n = word_len(secret);

		if (n >= REDACT_BYTES)
			hide(text, secret, n);
		secret += n + !n;
	}
}

void redact_status_of(struct status *s, const char *const *secrets, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		hide_one(s->text, secrets[i]);
		for (unsigned k = 0; k < s->n_evidence; k++)
			hide_one(s->evidence[k].value, secrets[i]);
	}
}
