/* SPDX-License-Identifier: MIT */
/* Command line of agentboxd; everything else is app.c's. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/common/sd/notify.h"
#include "daemon/conf/conf.h"
#include "daemon/main/app.h"
#include "daemon/main/app_warm.h"
#include "daemon/main/app_flavour.h"
#include "proto/base/buf.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

static const char help[] =
	"usage: agentboxd [OPTION]…\n"
	"The daemon that every process on an agent host shares to reach the sandboxes of AgentBox.\n"
	"\n"
	"  -c, --config FILE     configuration; default /etc/agentboxd/agentboxd.conf, for a user daemon\n"
	"                        $XDG_CONFIG_HOME/agentboxd/agentboxd.conf\n"
	"      --local           run the sandboxes on this machine, by agentbox-local; no account needed\n"
	"      --system          serve all users of this machine (default for root without $XDG_RUNTIME_DIR)\n"
	"  -s, --socket PATH     Unix socket to serve\n"
	"      --state-dir DIR   folder of the database and spools\n"
	"      --log-level L     error, warn, info or debug\n"
	"      --check-config    read the configuration, report every problem, exit 0 or 78\n"
	"      --print-config    print the commented default configuration\n"
	"      --restore FILE    put a backup into the state folder of a daemon that does not run (- = standard input)\n"
	"      --other-host      with --restore: also where the folder belongs to another host\n"
	"  -V, --version\n"
	"  -h, --help\n";

enum { OPT_LOCAL = 256, OPT_SYSTEM, OPT_STATE_DIR, OPT_LOG_LEVEL, OPT_CHECK, OPT_PRINT, OPT_RESTORE, OPT_OTHER_HOST };

static const struct option options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "local", no_argument, NULL, OPT_LOCAL },
	{ "system", no_argument, NULL, OPT_SYSTEM },
	{ "socket", required_argument, NULL, 's' },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "check-config", no_argument, NULL, OPT_CHECK },
	{ "print-config", no_argument, NULL, OPT_PRINT },
	{ "restore", required_argument, NULL, OPT_RESTORE },
	{ "other-host", no_argument, NULL, OPT_OTHER_HOST },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct args {
	const char *config;
	const char *restore;		/* NULL = serve */
	bool local, system, check, other_host;
};

/* Relative paths of the command line mean the caller's folder. */
static char *absolute(const char *path)
{
	char *cwd, *ret;

	if (path[0] == '/')
		return strdup(path);
	cwd = getcwd(NULL, 0);
	ret = cwd ? str_printf("%s/%s", cwd, path) : NULL;
	free(cwd);
	return ret;
}

static int set_path(struct conf *c, const char *key, const char *path)
{
	char *full = absolute(path);
	int r = full ? conf_set(c, CONF_COMMAND_LINE, "daemon", NULL, key, full) : -ENOMEM;

	free(full);
	return r;
}

static int print_defaults(void)
{
	struct buf out;
	int r;

	buf_init(&out, 0);
	r = conf_print_defaults(&out);
	if (!r)
		r = buf_put(&out, "", 1);
	if (!r)
		r = fd_print("agentboxd", (const char *)buf_data(&out));
	buf_fini(&out);
	return r < 0;
}

/* Not the empty one, which would mean the default, or the folder that the caller is in. */
static bool has_no_value(int option)
{
	if (!optarg || *optarg)
		return false;
	for (const struct option *o = options; o->name; o++)
		if (o->val == option)
			fprintf(stderr, "agentboxd: --%s needs a value\n", o->name);
	return true;
}

/* -1 = go on, else the exit code. */
static int parse_args(int argc, char **argv, struct conf *c, struct args *ret)
{
	int o, r = 0;

	while (!r && (o = getopt_long(argc, argv, "c:s:Vh", options, NULL)) != -1) {
		if (has_no_value(o))
			return APP_EXIT_USAGE;
		switch (o) {
		case 'c':
			ret->config = optarg;
			break;
		case OPT_LOCAL:
			ret->local = true;
			break;
		case OPT_SYSTEM:
			ret->system = true;
			break;
		case 's':
			r = set_path(c, "socket", optarg);
			break;
		case OPT_STATE_DIR:
			r = set_path(c, "state_dir", optarg);
			break;
		case OPT_LOG_LEVEL:
			r = conf_set(c, CONF_COMMAND_LINE, "daemon", NULL, "log_level", optarg);
			break;
		case OPT_CHECK:
			ret->check = true;
			break;
		case OPT_PRINT:
			return print_defaults();
		case OPT_RESTORE:
			ret->restore = optarg;
			break;
		case OPT_OTHER_HOST:
			ret->other_host = true;
			break;
		case 'V':
			return fd_print("agentboxd", "agentboxd " AB_VERSION "\n") < 0;
		case 'h':
			return fd_print("agentboxd", help) < 0;
		default:
			fputs("agentboxd: try --help\n", stderr);
			return APP_EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "agentboxd: %s: there are no arguments; try --help\n", argv[optind]);
		return APP_EXIT_USAGE;
	}
	if (ret->local && ret->system) {
		fputs("agentboxd: --local is for one user's daemon; beside the system's, start agentbox-local and name "
		      "it in an [account]\n", stderr);
		return APP_EXIT_USAGE;
	}
	return r < 0 ? APP_EXIT_UNAVAILABLE : -1;
}

static char *default_config(bool user_mode)
{
	const char *home = getenv("XDG_CONFIG_HOME"), *given = getenv("CONFIGURATION_DIRECTORY");

	if (!str_is_empty(given))	/* the first of ConfigurationDirectory= */
		return str_printf("%.*s/agentboxd.conf", (int)strcspn(given, ":"), given);
	if (!user_mode)
		return strdup("/etc/agentboxd/agentboxd.conf");
	if (!str_is_empty(home))
		return str_printf("%s/agentboxd/agentboxd.conf", home);
	home = getenv("HOME");
	return str_printf("%s/.config/agentboxd/agentboxd.conf", home ? home : "");
}

static bool has_account(const void *user, const char *name)
{
	return conf_has_instance(user, "account", name);
}

/* 0, or the exit code. */
static int read_config(struct conf *c, const struct args *args, bool user_mode, char **ret_file)
{
	const struct app_known_accounts accounts = { .has = has_account, .user = c };
	struct app_warm warm = { 0 };
	char *file = args->config ? strdup(args->config) : default_config(user_mode);
	bool may_pass = false;
	struct conf_files files = { 0 };
	char why[CONF_FILES_WHY_BYTES] = "out of memory";
	int r = file ? conf_files_read(file, &files, why) : -ENOMEM;

	if (r == 0)
		r = conf_read_files(c, &files);
	if (r == -ENOENT && !args->config) {
		r = 0;
		file[0] = 0;
	}
	*ret_file = file;
	if (r < 0) {
		fprintf(stderr, "agentboxd: %s\n", r == -ENOMEM ? "out of memory" : why);
		conf_files_fini(&files);
		return APP_EXIT_CONFIG;
	}
	if (!args->local && app_takes_environment(user_mode, file) && app_read_environment(c) < 0) {
		conf_files_fini(&files);
		return APP_EXIT_UNAVAILABLE;
	}
	if (app_check_trust(c, &files, user_mode))
		may_pass = app_check_conf(c, args->local);
	if (app_warm_read(c, &accounts, user_mode, &warm) < 0) {
		conf_files_fini(&files);
		return APP_EXIT_UNAVAILABLE;
	}
	app_warm_free(&warm);
	conf_files_fini(&files);
	if (!conf_errors(c)[0])
		return 0;
	fprintf(stderr, "agentboxd: the configuration has errors:\n%s", conf_errors(c));
	return may_pass ? APP_EXIT_UNAVAILABLE : APP_EXIT_CONFIG;
}

/* A service whose manager cannot be told still serves. */
static void open_notify(struct notify *n)
{
	const char *address = getenv("NOTIFY_SOCKET");
	int r = notify_open(n, address);

	if (r < 0)
		fprintf(stderr, "agentboxd: NOTIFY_SOCKET=%s: %s; the service manager is told nothing\n", address,
			strerrordesc_np(-r));
}

static void tell_failure(const struct notify *n, int code)
{
	switch (code) {
	case 0:
		break;
	case APP_EXIT_CONFIG:
		(void)notify_failed(n, EINVAL, "not started: the configuration or the state folder is wrong, see the log");
		break;
	case APP_EXIT_BUSY:
		(void)notify_failed(n, EBUSY, "not started, or given up: another daemon has the socket or the state folder");
		break;
	default:
		(void)notify_failed(n, EIO, "ended with an error, see the log");
	}
}

static int run_daemon(struct conf *c, const struct args *args, bool user_mode, const char *file)
{
	struct notify notify;
	struct app_options o = { .conf = c, .conf_file = file, .local = args->local, .user_mode = user_mode,
				 .notify = &notify };
	struct app *app;
	int r;

	open_notify(&notify);
	r = app_new(&o, &app);
	if (!r) {
		r = app_run(app);
		app_free(app);
	}
	tell_failure(&notify, r);
	notify_close(&notify);
	return r;
}

int main(int argc, char **argv)
{
	struct args args = { 0 };
	struct conf *c;
	char *file = NULL;
	bool user_mode;
	int r;

	if (fd_fill_standard() < 0 || conf_new(&c) < 0)
		return APP_EXIT_UNAVAILABLE;
	r = parse_args(argc, argv, c, &args);
	if (r >= 0) {
		conf_free(c);
		return r;
	}
	user_mode = !args.system && (args.local || geteuid() != 0 || !str_is_empty(getenv("XDG_RUNTIME_DIR")));
	/* A directory that is named needs no configuration, which may be lost with what is restored. */
	if (!args.restore || !conf_is_set(c, "daemon", NULL, "state_dir"))
		r = read_config(c, &args, user_mode, &file);
	else
		r = 0;
	if (!r)
		log_setup((enum log_level)conf_get_number(c, "daemon", NULL, "log_level"));
	if (!r && args.restore)
		r = app_restore(c, user_mode, args.restore, args.other_host);
	if (r || args.check || args.restore)
		conf_free(c);
	else
		r = run_daemon(c, &args, user_mode, file);
	free(file);
	return r;
}
