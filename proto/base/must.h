/* SPDX-License-Identifier: MIT */
/*
 * must(x): an invariant that only a bug of ours can break. On in every build, never used for
 * input, its expression has no side effect. Prints the expression and the place, then aborts.
 */
#ifndef AB_PROTO_BASE_MUST_H
#define AB_PROTO_BASE_MUST_H

#include "proto/base/cc.h"

noreturn_ void must_failed(const char *expr, const char *file, int line);

#define must(x)	((x) ? (void)0 : must_failed(#x, __FILE__, __LINE__))

#endif
