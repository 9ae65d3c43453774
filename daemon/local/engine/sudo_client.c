/* SPDX-License-Identifier: MIT */
/*
 * The program `sudo` of a sandbox: asks the init to run a command as another user (sudo.h), with its own descriptors, and ends as that
 * ends. Linked statically, because a template may have any C library or none. Options that would need a policy are taken and mean nothing.
 */
#define SUDO_CLIENT
#include "daemon/local/engine/sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/local/engine/spawn.h"

extern char **environ;

static const char *const kept[] = { "TERM", "COLORTERM", "LANG", "LANGUAGE", "LC_", "TZ", "DISPLAY", "LS_COLORS", "DEBIAN_FRONTEND",
				    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy" };

struct asked {
	struct sudo_request q;
	const char *cwd;
	char **argv;		/* NULL-terminated */
	char **vars;		/* NAME=value before the command */
	size_t n_vars;
	const char *preserved;	/* a list of names; NULL */
	bool only_check;
};

static _Noreturn void end(int status)
{
	(void)fflush(NULL);
	_exit(status);
}

static _Noreturn void fail(const char *what, const char *why)
{
	fprintf(stderr, "sudo: %s%s%s\n", what, *why ? ": " : "", why);
	end(1);
}

/* --- the command line --- */

static const struct option long_options[] = {
	{ "user", required_argument, NULL, 'u' },	  { "login", no_argument, NULL, 'i' },
	{ "shell", no_argument, NULL, 's' },		  { "preserve-env", optional_argument, NULL, 'E' },
	{ "non-interactive", no_argument, NULL, 'n' },	  { "set-home", no_argument, NULL, 'H' },
	{ "stdin", no_argument, NULL, 'S' },		  { "validate", no_argument, NULL, 'v' },
	{ "list", no_argument, NULL, 'l' },		  { "reset-timestamp", no_argument, NULL, 'k' },
	{ "remove-timestamp", no_argument, NULL, 'K' },	  { "chdir", required_argument, NULL, 'D' },
	{ "prompt", required_argument, NULL, 'p' },	  { "preserve-groups", no_argument, NULL, 'P' },
	{ "askpass", no_argument, NULL, 'A' },		  { "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },		  { 0 },
};

static const char usage[] = "usage: sudo [-EHins] [-u USER] [-D DIR] [NAME=VALUE…] [COMMAND [ARGUMENT…]]\n"
			    "Runs a command as another user of this sandbox, root if none is named. No password is asked for.\n";

static void take_option(struct asked *a, int o)
{
	switch (o) {
	case 'u':
		if (strlen(optarg) >= SUDO_USER_MAX)
			fail("unknown user", optarg);
		memcpy(a->q.user, optarg, strlen(optarg) + 1);
		break;
	case 'i':
		a->q.is_login = 1;
		break;
	case 's':
		a->q.is_shell = 1;
		break;
	case 'E':
		a->preserved = optarg;
		a->q.keeps_env = !optarg;
		break;
	case 'D':
		a->cwd = optarg;
		break;
	case 'v':
	case 'k':
	case 'K':
	case 'l':
		a->only_check = true;
		break;
	case 'V':
		puts("sudo of agentbox-local");
		end(0);
	case 'h':
		fputs(usage, stdout);
		end(0);
	case '?':
		fputs(usage, stderr);
		end(1);
	default:	/* there is no policy, and nothing is asked for */
		break;
	}
}

static void parse(int argc, char **argv, struct asked *a)
{
	int o;

	while ((o = getopt_long(argc, argv, "+u:isEnHSvlkKD:p:PAVhBT:C:", long_options, NULL)) != -1)
		take_option(a, o);
	a->vars = argv + optind;
	while (argv[optind] && strchr(argv[optind], '=') && argv[optind][0] != '=' && argv[optind][0] != '/') {
		optind++;
		a->n_vars++;
	}
	a->argv = argv + optind;
	if (!*a->argv && a->only_check)
		end(0);
	if (!*a->argv && !a->q.is_login && !a->q.is_shell) {
		fputs(usage, stderr);
		end(1);
	}
}

static bool is_program(const char *dir, size_t n, const char *name)
{
	char path[4200];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%.*s/%s", (int)n, dir, name) < sizeof(path) && stat(path, &st) == 0 &&
	       S_ISREG(st.st_mode) && (st.st_mode & 0111);
}

/* A shell says it otherwise, and with another status. */
static void check_command(const char *name)
{
	const char *dir = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

	if (strchr(name, '/'))
		return;
	while (*dir) {
		size_t n = strcspn(dir, ":");

		if (is_program(dir, n, name))
			return;
		dir += n + (dir[n] == ':');
	}
	fail(name, "command not found");
}

/* --- the variables --- */

static bool is_listed(const char *list, const char *variable)
{
	size_t n_name = strcspn(variable, "=");

	while (list && *list) {
		size_t n = strcspn(list, ",");

		if (n == n_name && !strncmp(list, variable, n))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

static bool is_kept(const struct asked *a, const char *variable)
{
	if (a->q.keeps_env || is_listed(a->preserved, variable))
		return true;
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		size_t n = strlen(kept[i]);

		if (!strncmp(kept[i], variable, n) && (kept[i][n - 1] == '_' || variable[n] == '='))
			return true;
	}
	return false;
}

/* --- the request --- */

static void say(FILE *f, struct spawn_head *h, const char *s)
{
	size_t n = strlen(s) + 1;

	if (fwrite(s, 1, n, f) != n)
		fail("too much is said", strerror(errno));
	h->bytes += (uint32_t)n;
}

static int write_request(const struct asked *a)
{
	char *cwd = a->cwd ? NULL : getcwd(NULL, 0);
	struct spawn_head h = { .n_args = 0 };
	int fd = memfd_create("sudo", MFD_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 3), "w");

	if (!f || fseek(f, (long)sizeof(h), SEEK_SET) < 0)
		fail("no memory", strerror(errno));
	say(f, &h, a->cwd ? a->cwd : cwd ? cwd : "/");
	for (char **v = a->argv; *v; v++, h.n_args++)
		say(f, &h, *v);
	for (size_t i = 0; i < a->n_vars; i++, h.n_envs++)
		say(f, &h, a->vars[i]);
	for (char **e = environ; *e; e++)
		if (is_kept(a, *e)) {
			say(f, &h, *e);
			h.n_envs++;
		}
	if (fclose(f) != 0 || pwrite(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		fail("no memory", strerror(errno));
	free(cwd);
	return fd;
}

static int connect_to_init(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	memcpy(addr.sun_path + 1, SUDO_SOCKET, strlen(SUDO_SOCKET));
	if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SUDO_SOCKET))) < 0)
		fail("the sandbox's init does not answer", strerror(errno));
	return fd;
}

static void send_request(int sock, const struct asked *a, int memfd)
{
	int fds[4] = { memfd, STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO };
	struct iovec v = { (void *)&a->q, sizeof(a->q) };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(fds))];
	} control = { .buf = { 0 } };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	if (sendmsg(sock, &m, MSG_NOSIGNAL) < 0)
		fail("a standard descriptor is closed", strerror(errno));
}

/* --- its end --- */

static _Noreturn void end_as(int status)
{
	if (WIFSIGNALED(status)) {
		sigset_t none;

		sigemptyset(&none);
		(void)signal(WTERMSIG(status), SIG_DFL);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		(void)raise(WTERMSIG(status));
		end(128 + WTERMSIG(status));
	}
	end(WEXITSTATUS(status));
}

static _Noreturn void wait_for(int sock, int signals)
{
	struct pollfd p[2] = { { .fd = sock, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
	struct sudo_reply r;

	for (;;) {
		struct signalfd_siginfo si;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			fail("poll", strerror(errno));
		if (p[1].revents && read(signals, &si, sizeof(si)) == (ssize_t)sizeof(si))
			(void)!send(sock, &(struct sudo_signal){ (int32_t)si.ssi_signo }, sizeof(struct sudo_signal), MSG_NOSIGNAL);
		if (!p[0].revents)
			continue;
		if (recv(sock, &r, sizeof(r), 0) != (ssize_t)sizeof(r))
			fail("the sandbox's init does not answer", "");
		r.why[sizeof(r.why) - 1] = '\0';
		if (r.why[0])
			fail(r.why, "");
		end_as(r.status);
	}
}

int main(int argc, char **argv)
{
	struct asked a = { .q = { .user = "root", .uid = getuid(), .gid = getgid() } };
	static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM };
	sigset_t set;
	int sock;

	parse(argc, argv, &a);
	if (*a.argv && !a.q.is_login && !a.q.is_shell)
		check_command(*a.argv);
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		sigaddset(&set, passed[i]);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	sock = connect_to_init();
	send_request(sock, &a, write_request(&a));
	wait_for(sock, signalfd(-1, &set, SFD_CLOEXEC));
}
