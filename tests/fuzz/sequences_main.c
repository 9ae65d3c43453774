/* SPDX-License-Identifier: MIT */
/*
 * main() for a fuzz target whose input is the beginning of a long random sequence: runs N of them, each from a seed.
 *
 *   sequences N [FIRST [SECONDS]]     at most so long; a finding names its seed by the last line; `sequences 1 SEED` shows it again
 *
 * A sequence of fewer than SHORTEST answers is a fault of the target. The edges that all reached together are counted where the
 * compiler counts them (clang, -fsanitize=fuzzer-no-link).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SHORTEST 20u

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
unsigned sequence_answers(void);

/* One byte an edge, of each part of the program. */
static struct {
	uint8_t *from, *seen;
	size_t n;
} counters[8];
static unsigned n_counters;

void __sanitizer_cov_8bit_counters_init(uint8_t *from, uint8_t *to);
void __sanitizer_cov_8bit_counters_init(uint8_t *from, uint8_t *to)
{
	for (unsigned i = 0; i < n_counters; i++)
		if (counters[i].from == from)
			return;
	if (from == to || n_counters == sizeof(counters) / sizeof(*counters))
		return;
	counters[n_counters].from = from;
	counters[n_counters].n = (size_t)(to - from);
	counters[n_counters++].seen = calloc((size_t)(to - from), 1);
}

/* They count modulo 256: looked at after each sequence. */
static void note_edges(void)
{
	for (unsigned k = 0; k < n_counters; k++)
		for (size_t i = 0; counters[k].seen && i < counters[k].n; i++)
			counters[k].seen[i] |= counters[k].from[i];
}

static void print_edges(void)
{
	size_t n = 0, all = 0;

	for (unsigned k = 0; k < n_counters; k++) {
		all += counters[k].n;
		for (size_t i = 0; counters[k].seen && i < counters[k].n; i++)
			n += counters[k].seen[i] != 0;
	}
	if (all)
		printf(", %zu edges reached of %zu", n, all);
}

/* Written before it runs: whatever ends the program, its number stands there. */
static void note(uint64_t seed)
{
	fprintf(stderr, "\rsequence %llu", (unsigned long long)seed);
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, ran = 0;
	time_t until = argc > 3 ? time(NULL) + atoi(argv[3]) : 0;
	unsigned long long answers = 0;

	for (; ran < n && (!until || time(NULL) < until); ran++) {
		uint64_t seed = first + ran;

		note(seed);
		LLVMFuzzerTestOneInput((const uint8_t *)&seed, sizeof(seed));
		note_edges();
		answers += sequence_answers();
		if (sequence_answers() < SHORTEST) {
			fprintf(stderr, "\nit had %u answers only\n", sequence_answers());
			return 1;
		}
	}
	printf("\n%llu sequences of %u answers or more, %llu in all", (unsigned long long)ran, SHORTEST, answers);
	print_edges();
	printf("\n");
	return ran ? 0 : 1;
}
