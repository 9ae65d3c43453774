/* SPDX-License-Identifier: MIT */
/*
 * What each signal does. No signal ends the daemon without a line in the log, except SIGKILL and those that mean a crash
 * (SIGSEGV and its like). All are read by the loop from a signalfd; there are no handlers.
 */
#include <signal.h>

#include "daemon/common/ev/signals.h"
#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"

/* The loop also runs while the daemon is taken down; by then there is no server and nothing left to stop. */
static void on_stop(int signo, void *user)
{
	struct app *a = user;

	if (a->server)
		app_stop(a, signo);
}

static void on_hup(int signo, void *user)
{
	struct app *a = user;

	if (a->server && !a->drain_until_ms)
		app_reload(a);
}

static void on_usr1(int signo, void *user)
{
	struct app *a = user;

	if (a->server)
		app_dump(a);
}

int app_signals_new(struct app *a)
{
	static const int stop[] = { SIGTERM, SIGINT, SIGQUIT };
	int r = loop_signals(a->loop, stop, ARRAY_SIZE(stop), on_stop, a);

	if (!r)
		r = loop_signal(a->loop, SIGHUP, on_hup, a);
	if (!r)
		r = loop_signal(a->loop, SIGUSR1, on_usr1, a);
	return r ? r : signals_ignore(a->loop, NULL, 0);
}
