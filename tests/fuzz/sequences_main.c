/* SPDX-License-Identifier: MIT */
/*
 * main() for a fuzz target whose input is the beginning of a long random sequence: runs N of them, each from a seed.
 *
 *   sequences N [FIRST]     a finding names its seed by the last line; `sequences 1 SEED` shows it again
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* Written before it runs: whatever ends the program, its number stands there. */
static void note(uint64_t seed)
{
	fprintf(stderr, "\rsequence %llu", (unsigned long long)seed);
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	for (uint64_t seed = first; seed < first + n; seed++) {
		note(seed);
		LLVMFuzzerTestOneInput((const uint8_t *)&seed, sizeof(seed));
	}
	printf("%llu sequences\n", (unsigned long long)n);
	return n ? 0 : 1;
}
