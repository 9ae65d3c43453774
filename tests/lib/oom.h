/* SPDX-License-Identifier: MIT */
/*
 * Memory that runs out: after oom_after(n) the n-th allocation from then on fails, once. To be included by one file of a
 * test program; calloc and realloc of everything that is linked into it are these. Under a sanitizer, whose allocator
 * cannot be replaced, oom_after() says false, and nothing fails.
 */
#ifndef AB_TESTS_OOM_H
#define AB_TESTS_OOM_H

#include <stdbool.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__

static inline bool oom_after(unsigned n)
{
	return false;
}

static inline bool oom_is_due(void)
{
	return false;
}

#else

void *__libc_calloc(size_t n, size_t size);
void *__libc_malloc(size_t size);
void *__libc_realloc(void *p, size_t size);

static unsigned oom_left;

static inline bool oom_after(unsigned n)
{
	oom_left = n;
	return true;
}

/* The allocation that is to fail has not come yet. */
static inline bool oom_is_due(void)
{
	return oom_left != 0;
}

#define OOM_EVERYWHERE __attribute__((visibility("default")))	/* strdup() of the C library takes it too */

static bool oom_now(void)
{
	return oom_left && !--oom_left;
}

OOM_EVERYWHERE void *calloc(size_t n, size_t size)
{
	return oom_now() ? NULL : __libc_calloc(n, size);
}

OOM_EVERYWHERE void *malloc(size_t size)
{
	return oom_now() ? NULL : __libc_malloc(size);
}

OOM_EVERYWHERE void *realloc(void *p, size_t size)
{
	return oom_now() ? NULL : __libc_realloc(p, size);
}

#endif
#endif
