/* SPDX-License-Identifier: MIT */
/*
 * A unit test is a program: TEST(name) { … } blocks and TEST_MAIN() at the end. A failed check
 * prints the expression and ends the program with 1. `prog NAME` runs one test only.
 */
#ifndef AB_TESTS_LIB_TEST_H
#define AB_TESTS_LIB_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cc.h"

struct test_case {
	const char *name;
	void (*fn)(void);
	struct test_case *next;
};

static struct test_case *test_first, **test_end unused_ = &test_first;

#define TEST(id)                                                                                   \
	static void test_##id(void);                                                               \
	static struct test_case case_##id = { #id, test_##id, NULL };                              \
	__attribute__((constructor)) static void add_##id(void)                                    \
	{                                                                                          \
		*test_end = &case_##id;                                                            \
		test_end = &case_##id.next;                                                        \
	}                                                                                          \
	static void test_##id(void)

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #x);             \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define CHECK_INT(a, b)                                                                            \
	do {                                                                                       \
		long long a_ = (long long)(a), b_ = (long long)(b);                                \
		if (a_ != b_) {                                                                    \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #a,   \
				a_, b_);                                                           \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define CHECK_STR(a, b)                                                                            \
	do {                                                                                       \
		const char *a_ = (a), *b_ = (b);                                                   \
		if (!a_ || strcmp(a_, b_)) {                                                       \
			fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__,   \
				#a, a_ ? a_ : "(null)", b_);                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define TEST_MAIN()                                                                                \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		int ran = 0;                                                                       \
		for (struct test_case *t = test_first; t; t = t->next) {                           \
			if (argc > 1 && strcmp(argv[1], t->name))                                  \
				continue;                                                          \
			t->fn();                                                                   \
			printf("ok %s\n", t->name);                                                \
			ran++;                                                                     \
		}                                                                                  \
		if (!ran)                                                                          \
			fprintf(stderr, "no such test\n");                                         \
		return ran ? 0 : 1;                                                                \
	}

#endif
