/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl hold: a command on this host that uses a sandbox. It begins when the lease is held; it
 * does not outlive us (PR_SET_PDEATHSIG), and we end with its exit code. A lease that is lost by a restart of
 * the daemon is taken again; one whose sandbox is gone ends the command.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"

#define RETRY_FOR_MS 25000	/* within the daemon's restart_grace */
#define RETRY_GAP_MS 200

static const struct opt cmd_hold_opts[] = {
	OPT(0, "label", OPT_TEXT, label, "TEXT", "shown in lists of leases"),
};

struct hold {
	struct cli *cli;
	struct ab_call *call;
	char lease_id[64];
	pid_t child;		/* 0 = not begun */
	int sig_fd;
	sigset_t old_mask;
	int64_t retry_until_ms;	/* 0 = it is held */
	bool ending;		/* the command was told to end */
};

static int open_signals(struct hold *h)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGHUP);
	(void)sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, &h->old_mask) < 0)
		return -errno;
	h->sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return h->sig_fd < 0 ? -errno : 0;
}

static int ask(struct hold *h)
{
	const struct ab_lease_options o = { .label = h->cli->args.label,
					    .lease_id = h->lease_id[0] ? h->lease_id : NULL };

	return ab_lease_hold_start(h->cli->client, h->cli->args.words[0], &o, NULL, &h->call);
}

static void run_child(const struct hold *h, pid_t parent)
{
	char **argv = h->cli->args.rest;

	(void)sigprocmask(SIG_SETMASK, &h->old_mask, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)	/* it died before it could be asked for */
		_exit(128 + SIGTERM);
	(void)execvp(argv[0], argv);
	fprintf(stderr, "agentboxctl: hold: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static int begin(struct hold *h)
{
	pid_t parent = getpid();

	h->child = fork();
	if (h->child < 0) {
		say(h->cli, "fork: %s", strerror(errno));
		h->child = 0;
		return EXIT_ERROR;
	}
	if (!h->child)
		run_child(h, parent);
	return 0;
}

static void end_child(struct hold *h, int signo)
{
	h->ending = true;
	if (h->child)
		(void)kill(h->child, signo);
}

/* -1, or the exit code. */
static int take_signals(struct hold *h)
{
	struct signalfd_siginfo si;
	int status;

	while (read(h->sig_fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGCHLD) {
			if (h->child && waitpid(h->child, &status, WNOHANG) == h->child) {
				h->child = 0;
				return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			}
			continue;
		}
		if (!h->child)
			return 128 + (int)si.ssi_signo;
		/* An interrupt from the terminal went to the command as well. */
		if (si.ssi_signo != SIGINT || si.ssi_code != SI_KERNEL)
			(void)kill(h->child, (int)si.ssi_signo);
	}
	return -1;
}

static bool may_pass(const struct ab_error *e)
{
	return e->status == AB_UNAVAILABLE || e->status == AB_CANCELLED;
}

/* The stream ended: again, if that can help; else the command has to end. -1, or an exit code. */
static int lost(struct hold *h)
{
	const struct ab_error *e = ab_call_error(h->call);
	bool again = h->child && e && may_pass(e);
	int code = e ? fail(h->cli, e) : EXIT_ERROR;

	if (!h->retry_until_ms)
		h->retry_until_ms = cli_boot_ms() + RETRY_FOR_MS;
	ab_call_free(h->call);
	h->call = NULL;
	if (!h->child)
		return code;
	if (!again || cli_boot_ms() >= h->retry_until_ms) {
		say(h->cli, "the lease is lost; ending the command");
		end_child(h, SIGTERM);
	}
	return -1;
}

/* -1, or an exit code. */
static int look(struct hold *h)
{
	const struct ab_lease *l;

	while (h->call && ab_lease_hold_next(h->call, &l)) {
		(void)snprintf(h->lease_id, sizeof(h->lease_id), "%s", l->id);
		h->retry_until_ms = 0;
		if (!h->child && !h->ending && begin(h))
			return EXIT_ERROR;
	}
	return h->call && ab_call_is_done(h->call) ? lost(h) : -1;
}

static int wait_timeout(const struct hold *h)
{
	int ms = ab_timeout(h->cli->client);

	return !h->call && !h->ending && (ms < 0 || ms > RETRY_GAP_MS) ? RETRY_GAP_MS : ms;
}

static int loop(struct hold *h)
{
	struct ab_client *c = h->cli->client;
	int code = -1;

	while (code < 0) {
		struct pollfd p[] = { { .fd = ab_fd(c), .events = (short)ab_events(c) },
				      { .fd = h->sig_fd, .events = POLLIN } };

		(void)poll(p, ARRAY_SIZE(p), wait_timeout(h));
		(void)ab_process(c);
		code = look(h);
		if (code < 0 && !h->call && !h->ending && ask(h) < 0)
			end_child(h, SIGTERM);
		if (code < 0)
			code = take_signals(h);
	}
	return code;
}

static int cmd_hold_run(struct cli *cli)
{
	struct hold h = { .cli = cli };
	int r;

	if (!cli->args.n_rest)
		return usage(cli->command, "the command to run is missing: hold ID CMD…");
	r = open_signals(&h);
	if (!r)
		r = ask(&h);
	if (r < 0) {
		say(cli, "%s", strerror(-r));
		return EXIT_ERROR;
	}
	r = loop(&h);
	ab_call_free(h.call);
	return r;
}

const struct command cmd_hold = {
	.name = "hold",
	.words = "ID [--] CMD…",
	.help = "Runs a command on this host while holding a lease on a sandbox; ends with its exit code.",
	.opts = cmd_hold_opts,
	.n_opts = ARRAY_SIZE(cmd_hold_opts),
	.min_words = 1,
	.max_words = 1,
	.takes_rest = true,
	.no_json = true,
	.run = cmd_hold_run,
};
