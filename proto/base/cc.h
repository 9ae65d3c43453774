/* SPDX-License-Identifier: MIT */
/* Compiler attributes and the few macros every file may use. */
#ifndef AB_PROTO_BASE_CC_H
#define AB_PROTO_BASE_CC_H

#include <stddef.h>
#include <stdint.h>

#define must_check	    __attribute__((warn_unused_result))
#define printf_like(f, a)   __attribute__((format(printf, f, a)))
#define unused_		    __attribute__((unused))
#define noreturn_	    __attribute__((noreturn))
#define fallthrough_	    __attribute__((fallthrough))

/* A large local that is written before it is read: filling it with zeros first would cost more than its use. */
#define scratch_	    __attribute__((uninitialized))

/* A local that owns: fn(&local) runs when it leaves its scope. */
#define scoped(fn)	    __attribute__((cleanup(fn)))

/* Takes ownership out of a scoped local, leaving NULL behind. */
#define give(p)                                                                                    \
	__extension__({                                                                            \
		__typeof__(p) give_tmp_ = (p);                                                     \
		(p) = NULL;                                                                        \
		give_tmp_;                                                                         \
	})

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define BIT(n)			(1u << (n))
#define MIN(a, b)		((a) < (b) ? (a) : (b))
#define MAX(a, b)		((a) > (b) ? (a) : (b))

#endif
