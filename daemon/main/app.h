/* SPDX-License-Identifier: MIT */
/*
 * The composition root: the only place that knows all modules. Builds them in order, from the lowest
 * up, and takes them down in reverse.
 */
#ifndef AB_DAEMON_MAIN_APP_H
#define AB_DAEMON_MAIN_APP_H

#include <stdbool.h>

#include "daemon/conf/conf.h"
#include "daemon/conf/files.h"
#include "proto/base/cc.h"

struct app;
struct notify;

struct app_options {
	struct conf *conf;		/* taken over; read and free of errors */
	const char *conf_file;		/* "" = none was read */
	bool local;			/* --local */
	bool user_mode;
	const struct notify *notify;	/* the service manager; outlives the app; NULL = none */
};

/* Exit codes: sysexits.h, where a supervisor may care. */
#define APP_EXIT_USAGE	     64
#define APP_EXIT_NO_INPUT    66
#define APP_EXIT_UNAVAILABLE 69
#define APP_EXIT_BUSY	     75
#define APP_EXIT_CONFIG	     78

/* What a daemon of many users does is not for one of them to say: nobody but root and the daemon's own user may be able to change the
 * files, and those that they name as what to believe. Of a user's daemon this holds for the files of conf.d. False: it is not so, which is
 * added to the configuration's problems; then nothing that the files name is opened. */
must_check bool app_check_trust(struct conf *c, const struct conf_files *files, bool user_mode);
/* What no single value shows: files that cannot be read, keys that belong together, accounts that do
 * not exist, names that nobody has. Looks names up, which may take long, and notes what they are. Adds to the configuration's problems;
 * true: what is wrong is not wrong for good, since all of it is that the system's tables of users did not answer. */
bool app_check_conf(struct conf *c, bool local);

/* Where the state is: command line and file, then the usual places. Heap; NULL: nowhere, or no memory. */
char *app_state_dir(const struct conf *c, bool user_mode);

/* restore.c: puts a backup, "-" = standard input, into the state directory of a daemon that does not run, as its owner. Prints what it
 * did, a line "key: value" each. The exit code. */
must_check int app_restore(const struct conf *c, bool user_mode, const char *file, bool other_host);

/* 0, or the exit code; the reason was printed. */
must_check int app_new(const struct app_options *o, struct app **ret);
int app_run(struct app *a);		/* the exit code */
struct app *app_free(struct app *a);	/* NULL is fine; returns NULL */

#endif
