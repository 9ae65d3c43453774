/* SPDX-License-Identifier: MIT */
/* The crash points of agentboxd-fp; compiled to nothing in the shipped build. */
#include "daemon/common/obs/failpoint.h"

#ifdef AB_FAILPOINTS

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/str.h"

#define POINTS_MAX 64u

/* A point is passed by one thread alone. */
static _Thread_local struct {
	char name[64];
	unsigned passed;
} points[POINTS_MAX];

static unsigned pass(const char *name)
{
	for (size_t i = 0; i < POINTS_MAX; i++) {
		if (!points[i].name[0])
			(void)str_copy(points[i].name, sizeof(points[i].name), name);
		if (str_eq(points[i].name, name))
			return ++points[i].passed;
	}
	return 0;
}

/* "NAME=ACTION" or "NAME=ACTION@N". */
static void obey(char *item, const char *name, unsigned passed)
{
	char *action = strchr(item, '='), *at;
	uint64_t n = 1;

	if (!action)
		return;
	*action++ = 0;
	at = strchr(action, '@');
	if (at) {
		*at++ = 0;
		if (str_u64(at, strlen(at), 1000000, &n) < 0)
			return;
	}
	if (!str_eq(item, name) || n != passed)
		return;
	if (str_eq(action, "kill"))
		kill(getpid(), SIGKILL);
	else if (str_eq(action, "stop"))
		kill(getpid(), SIGSTOP);
}

void failpoint_hit(const char *name)
{
	const char *env = getenv("AGENTBOXD_FAILPOINT");
	char *copy = str_dup(env), *rest = copy, *item;
	unsigned passed = pass(name);

	while (copy && (item = strsep(&rest, ";")))
		obey(item, name, passed);
	free(copy);
}

#endif
