/* SPDX-License-Identifier: MIT */
/* The init's side of sudo: a process for each asker, which starts the command, passes signals on and tells how it ended. */
#include "daemon/local/engine/sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/local/engine/container.h"
#include "daemon/local/engine/packet.h"
#include "daemon/local/engine/passwd.h"
#include "daemon/local/engine/spawn_int.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define BACKLOG	    16
#define OWN_VARS    10u
#define SECURE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct sudo {
	struct sudo_request q;
	struct container_user user;
	char asker[SUDO_USER_MAX], shell[256];
	struct spawn_head head;
	struct spawn_args args;		/* as they came */
	char *argv[SPAWN_WRAPPER + 6];	/* of a shell */
	char *own[OWN_VARS], *command;
};

int sudo_listen(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t n = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SUDO_SOCKET);

	memcpy(a.sun_path + 1, SUDO_SOCKET, strlen(SUDO_SOCKET));
	if (fd >= 0 && bind(fd, (const struct sockaddr *)&a, n) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	return fd_close(fd);
}

/* --- who --- */

/* The last field of the line, or /bin/sh. */
static void find_shell(const char *passwd, const char *name, char ret[256])
{
	size_t n = strlen(name);

	str_copy(ret, 256, "/bin/sh");
	for (const char *s = passwd; s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL) {
		const char *end = s + strcspn(s, "\n"), *last = memrchr(s, ':', (size_t)(end - s));

		if (strncmp(s, name, n) != 0 || s[n] != ':' || !last || last[1] != '/' || end - last > 255)
			continue;
		memcpy(ret, last + 1, (size_t)(end - last - 1));
		ret[end - last - 1] = '\0';
		return;
	}
}

static int look_up(struct sudo *s)
{
	scoped(fd_closep) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *passwd = NULL, *group = NULL;
	int r = passwd_read(root, "/etc/passwd", &passwd);

	if (r == 0 && !passwd_find(passwd, s->q.user, &s->user))
		r = -ENOENT;
	if (r == 0) {
		find_shell(passwd, s->q.user, s->shell);
		if (!passwd_name_of(passwd, s->q.uid, s->asker, sizeof(s->asker)))
			snprintf(s->asker, sizeof(s->asker), "%u", s->q.uid);
		s->head.uid = s->user.uid;
		s->head.gid = s->user.gid;
		s->head.groups[0] = s->user.gid;
		s->head.n_groups = 1;
		if (passwd_read(root, "/etc/group", &group) == 0)
			s->head.n_groups = passwd_groups(group, s->user.name, s->user.gid, s->head.groups, SPAWN_GROUPS_MAX);
	}
	free(passwd);
	free(group);
	return r;
}

/* --- what --- */

/* All arguments as one text for a shell; "" for none. */
static char *shell_text(char *const *argv)
{
	size_t n = 1;
	char *text, *to;

	for (char *const *a = argv; *a; a++)
		n += 2 * strlen(*a) + 1;
	text = to = malloc(n);
	for (char *const *a = argv; text && *a; a++) {
		if (a != argv)
			*to++ = ' ';
		for (const char *c = *a; *c; c++) {
			if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-$", *c))
				*to++ = '\\';
			*to++ = *c;
		}
	}
	if (text)
		*to = '\0';
	return text;
}

/* `-i` and `-s`: a shell, with what else was said as its command. */
static int take_shell(struct sudo *s)
{
	size_t n = 0;

	s->command = shell_text(s->args.argv + SPAWN_WRAPPER);
	if (!s->command)
		return -ENOMEM;
	for (; n < SPAWN_WRAPPER; n++)
		s->argv[n] = s->args.argv[n];
	s->argv[n++] = s->shell;
	if (s->q.is_login)
		s->argv[n++] = (char *)"-l";
	if (*s->command) {
		s->argv[n++] = (char *)"-c";
		s->argv[n++] = s->command;
	}
	s->argv[n] = NULL;
	free(s->args.argv);
	s->args.argv = NULL;
	return 0;
}

static bool is_own(const struct sudo *s, const char *variable)
{
	for (size_t i = 0; i < OWN_VARS && s->own[i]; i++) {
		size_t n = strcspn(s->own[i], "=") + 1;

		if (!strncmp(s->own[i], variable, n))
			return true;
	}
	return false;
}

static int make_own(struct sudo *s)
{
	size_t n = 0;

	s->own[n++] = str_printf("PATH=%s", SECURE_PATH);
	s->own[n++] = str_printf("LOGNAME=%s", s->user.name);
	s->own[n++] = str_printf("USER=%s", s->user.name);
	s->own[n++] = str_printf("SHELL=%s", s->shell);
	s->own[n++] = str_printf("SUDO_USER=%s", s->asker);
	s->own[n++] = str_printf("SUDO_UID=%u", s->q.uid);
	s->own[n++] = str_printf("SUDO_GID=%u", s->q.gid);
	if (!s->q.keeps_env)
		s->own[n++] = str_printf("HOME=%s", s->user.home);
	for (size_t i = 0; i < n; i++)
		if (!s->own[i])
			return -ENOMEM;
	return 0;
}

/* What was sent is kept unless it is sudo's own to say. */
static int take_env(struct sudo *s)
{
	char **sent = s->args.envp, **v;
	size_t n = 0;

	while (sent[n])
		n++;
	v = calloc(n + OWN_VARS + 1, sizeof(*v));
	if (!v || make_own(s) < 0)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < OWN_VARS && s->own[i]; i++)
		v[n++] = s->own[i];
	for (char **e = sent; *e; e++)
		if (!is_own(s, *e))
			v[n++] = *e;
	free(sent);
	s->args.envp = v;
	return 0;
}

static int prepare(struct sudo *s, int memfd)
{
	int r = spawn_args_map(memfd, &s->args);

	if (r == 0)
		r = take_env(s);
	if (r == 0 && (s->q.is_login || s->q.is_shell))
		r = take_shell(s);
	if (s->q.is_login)
		s->args.cwd = s->user.home;
	s->args.head = &s->head;
	if (r == 0 && !s->args.argv)
		s->args.argv = s->argv;
	return r;
}

/* --- doing it --- */

static void answer(int sock, int status, const char *why)
{
	struct sudo_reply r = { .status = status };

	str_copy(r.why, sizeof(r.why), why);
	(void)!pkt_send(sock, &r, sizeof(r), NULL, 0);
}

/* Signals are passed on; a client that is gone leaves the command alone, as sudo does when it is killed. */
static int wait_for(int sock, pid_t pid)
{
	scoped(fd_closep) int pidfd = -1;
	struct pollfd p[2];
	int status = 0;

	if (fd_pidfd(pid, &pidfd) < 0)
		sock = -1;
	p[0] = (struct pollfd){ .fd = sock, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = pidfd, .events = POLLIN };
	while (pidfd >= 0 && poll(p, 2, -1) >= 0 && !p[1].revents) {
		struct sudo_signal sig;
		int fds[PKT_FDS_MAX];

		if (!p[0].revents)
			continue;
		if (pkt_recv(sock, &sig, sizeof(sig), fds) != sizeof(sig)) {
			p[0].fd = -1;
			continue;
		}
		pkt_close_fds(fds);
		if (sig.sig > 0 && sig.sig < NSIG)
			(void)kill(pid, sig.sig);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void start(struct sudo *s, int sock, const int std[3], bool as_user)
{
	struct spawn_failure f = { 0 };
	int status[2];
	pid_t pid;

	if (pipe2(status, O_CLOEXEC) < 0) {
		answer(sock, 0, strerror(errno));
		return;
	}
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGPIPE, SIG_DFL);
		spawn_child_run(&s->args, std, status[1], as_user);
	}
	fd_close(status[1]);
	if (pid < 0)
		answer(sock, 0, strerror(errno));
	else if (read(status[0], &f, sizeof(f)) == sizeof(f))
		answer(sock, 0, strerror(f.err));
	else
		answer(sock, wait_for(sock, pid), "");
	fd_close(status[0]);
}

void sudo_serve(int sock, bool as_user)
{
	struct sudo *s = calloc(1, sizeof(*s));
	char why[SUDO_USER_MAX + 16];
	int fds[PKT_FDS_MAX], r;

	(void)signal(SIGPIPE, SIG_IGN);
	if (!s || pkt_recv(sock, &s->q, sizeof(s->q), fds) != sizeof(s->q))
		return;
	s->q.user[SUDO_USER_MAX - 1] = '\0';
	r = look_up(s);
	if (r < 0) {
		snprintf(why, sizeof(why), "unknown user %s", s->q.user);
		answer(sock, 0, r == -ENOENT ? why : strerror(-r));
		return;
	}
	r = prepare(s, fds[0]);
	if (r < 0)
		answer(sock, 0, strerror(-r));
	else
		start(s, sock, fds + 1, as_user);
}	/* the process ends, and with it all that it holds */
