/* SPDX-License-Identifier: MIT */
/* Rows U-05 and U-06: the process, not the open socket, is the identity. */
#include "tests/lib/test.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/rpc/foreign.h"
#include "daemon/rpc/peer.h"
#include "proto/base/fd.h"

static int listener(struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* An abstract name chosen by the kernel: nothing to clean up. */
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	socklen_t n = sizeof(a->sun_family);

	CHECK(bind(fd, (struct sockaddr *)a, n) == 0);
	n = sizeof(*a);
	CHECK(getsockname(fd, (struct sockaddr *)a, &n) == 0);
	CHECK(listen(fd, 8) == 0);
	return fd;
}

/* A child that connects (after becoming uid) and stays until killed; with `fork_again` a child of its
 * own has the socket too, and stays until the other end closes it. */
static pid_t client(const struct sockaddr_un *a, int listen_fd, uid_t uid, bool fork_again, int *ret_fd)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		if (uid && (setgroups(2, (gid_t[]){ 4711, 4712 }) < 0 || setgid(uid) < 0 ||
			    setuid(uid) < 0))
			_exit(1);
		if (fork_again && fork() == 0) {
			char c;

			while (read(fd, &c, 1) != 0)	/* ENOTCONN at first */
				sched_yield();
			_exit(0);
		}
		if (connect(fd, (const struct sockaddr *)a, sizeof(a->sun_family) + 6) < 0)
			_exit(2);
		for (;;)
			pause();
	}
	struct pollfd p = { .fd = listen_fd, .events = POLLIN };

	CHECK(poll(&p, 1, 5000) == 1);
	CHECK(fd_accept(listen_fd, ret_fd) == 0);
	return pid;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

TEST(knows_itself)
{
	struct principal p;
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	CHECK_INT(peer_read(pair[0], &p), PEER_OK);
	CHECK_INT(p.uid, getuid());
	CHECK_INT(p.gid, getgid());
	CHECK_INT(p.pid, getpid());
	CHECK(p.pidfd >= 0);
	CHECK(!peer_is_foreign(pair[0], &p));
	fd_close(p.pidfd);
	fd_close(pair[0]);
	fd_close(pair[1]);
}

TEST(another_uid_and_its_groups)
{
	struct principal p;
	struct sockaddr_un a;
	int listen_fd = listener(&a), fd;
	pid_t pid;

	if (getuid() != 0) {
		printf("skip another_uid_and_its_groups: needs root\n");
		return;
	}
	pid = client(&a, listen_fd, 12345, false, &fd);
	CHECK_INT(peer_read(fd, &p), PEER_OK);
	CHECK_INT(p.uid, 12345);
	CHECK_INT(p.n_groups, 2);
	CHECK(principal_in_group(&p, 4712));
	CHECK(principal_in_group(&p, 4711));
	CHECK(!peer_is_foreign(fd, &p));
	fd_close(p.pidfd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fd_close(fd);

	pid = client(&a, listen_fd, 65534, false, &fd);
	CHECK_INT(peer_read(fd, &p), PEER_UNMAPPED);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fd_close(fd);
	fd_close(listen_fd);
}

TEST(how_deep_a_process_is)
{
	CHECK_INT(foreign_depth("Name:\tx\nNSpid:\t12\nNSpgid:\t1\t2\n"), 1);
	CHECK_INT(foreign_depth("NSpid:\t12\t1"), 2);
	CHECK_INT(foreign_depth("Name:\tNSpid:\t1\nPid:\t12\n"), 0);
	CHECK_INT(foreign_depth("NSpid:\n"), 0);
	CHECK_INT(foreign_depth("NSpid:\t12\tx\n"), 0);
	CHECK_INT(foreign_depth(""), 0);
}

/* A client of root's that has left the daemon's namespaces, connected before or after. */
static void check_foreign(int flags, const char *map)
{
	struct sockaddr_un a;
	struct principal p;
	int listen_fd = listener(&a), fd, go[2];
	pid_t pid;

	CHECK(pipe(go) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		char c;

		if (unshare(flags) < 0)
			_exit(3);
		if (flags & CLONE_NEWPID && fork() > 0)
			pause();
		(void)!read(go[0], &c, 1);	/* the map is written by then */
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&a, sizeof(a.sun_family) + 6) < 0)
			_exit(4);
		for (;;)
			pause();
	}
	if (map) {
		char path[64], now[64];

		snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
		do {	/* it has a namespace of its own once this one is empty */
			FILE *f = fopen(path, "r");

			now[0] = '\0';
			CHECK(f);
			(void)!fgets(now, sizeof(now), f);
			fclose(f);
		} while (now[0]);
		write_text(path, map);
		snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
		write_text(path, map);
	}
	CHECK(write(go[1], "", 1) == 1);
	struct pollfd pf = { .fd = listen_fd, .events = POLLIN };

	CHECK(poll(&pf, 1, 5000) == 1);
	CHECK(fd_accept(listen_fd, &fd) == 0);
	CHECK_INT(peer_read(fd, &p), PEER_OK);
	CHECK_INT(p.uid, 0);
	CHECK(peer_is_foreign(fd, &p));
	kill(p.pid, SIGKILL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fd_close(p.pidfd);
	fd_close(fd);
	fd_close(listen_fd);
	fd_close(go[0]);
	fd_close(go[1]);
}

TEST(root_of_another_namespace_is_foreign)
{
	if (getuid() != 0) {
		printf("skip root_of_another_namespace_is_foreign: needs root\n");
		return;
	}
	check_foreign(CLONE_NEWUSER, "0 0 1\n");
	check_foreign(CLONE_NEWUSER, "0 0 4294967295\n");	/* every uid is itself */
	check_foreign(CLONE_NEWPID, NULL);
}

TEST(death_is_seen_while_a_child_holds_the_socket)
{
	struct sockaddr_un a;
	struct principal p;
	int listen_fd = listener(&a), fd;
	pid_t pid = client(&a, listen_fd, 0, true, &fd);
	struct pollfd pf;

	CHECK_INT(peer_read(fd, &p), PEER_OK);
	CHECK_INT(p.pid, pid);
	pf = (struct pollfd){ .fd = p.pidfd, .events = POLLIN };
	CHECK_INT(poll(&pf, 1, 0), 0);
	kill(pid, SIGKILL);
	CHECK_INT(poll(&pf, 1, 5000), 1);
	waitpid(pid, NULL, 0);

	pf = (struct pollfd){ .fd = fd, .events = POLLIN };
	CHECK_INT(poll(&pf, 1, 0), 0);		/* no end of file: the child lives */
	fd_close(p.pidfd);
	CHECK_INT(peer_read(fd, &p), PEER_DEAD);
	fd_close(fd);				/* lets the child end */
	fd_close(listen_fd);
}

TEST_MAIN()
