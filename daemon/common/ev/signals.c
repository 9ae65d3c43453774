/* SPDX-License-Identifier: MIT */
#include "daemon/common/ev/signals.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "proto/base/must.h"

#define REAL_TIME_MAX 64
#define MORE_MAX      8

static const int meaningless[] = { SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT, SIGXCPU };

static void on_ignored(int signo, void *user)
{
	const char *name = sigabbrev_np(signo);

	if (name)
		log_info("signal_ignored", "signal=%s", name);
	else
		log_info("signal_ignored", "signal=RTMIN+%d", signo - SIGRTMIN);
}

int signals_ignore(struct loop *l, const int *more, size_t n)
{
	int signos[ARRAY_SIZE(meaningless) + REAL_TIME_MAX + MORE_MAX];
	size_t all = ARRAY_SIZE(meaningless);

	must(n <= MORE_MAX);
	memcpy(signos, meaningless, sizeof(meaningless));
	for (size_t i = 0; i < n; i++)
		signos[all++] = more[i];
	for (int s = SIGRTMIN; s <= SIGRTMAX && all < ARRAY_SIZE(signos); s++)
		signos[all++] = s;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	return loop_signals(l, signos, all, on_ignored, NULL);
}
