/* SPDX-License-Identifier: MIT */
/* Rows U-05 and U-06: the process, not the open socket, is the identity. */
#include "tests/lib/test.h"

#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(knows_itself)
{
	struct principal p;
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	CHECK_INT(peer_read(pair[0], (gid_t)-1, &p), PEER_OK);
	CHECK_INT(p.uid, getuid());
	CHECK_INT(p.gid, getgid());
	CHECK_INT(p.pid, getpid());
	CHECK(p.admin);
	CHECK(p.pidfd >= 0);
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
	CHECK_INT(peer_read(fd, (gid_t)-1, &p), PEER_OK);
	CHECK_INT(p.uid, 12345);
	CHECK(!p.admin);
	CHECK_INT(p.n_groups, 2);
	CHECK(principal_in_group(&p, 4712));
	fd_close(p.pidfd);
	CHECK_INT(peer_read(fd, 4711, &p), PEER_OK);
	CHECK(p.admin);
	fd_close(p.pidfd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fd_close(fd);

	pid = client(&a, listen_fd, 65534, false, &fd);
	CHECK_INT(peer_read(fd, (gid_t)-1, &p), PEER_UNMAPPED);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fd_close(fd);
	fd_close(listen_fd);
}

TEST(death_is_seen_while_a_child_holds_the_socket)
{
	struct sockaddr_un a;
	struct principal p;
	int listen_fd = listener(&a), fd;
	pid_t pid = client(&a, listen_fd, 0, true, &fd);
	struct pollfd pf;

	CHECK_INT(peer_read(fd, (gid_t)-1, &p), PEER_OK);
	CHECK_INT(p.pid, pid);
	pf = (struct pollfd){ .fd = p.pidfd, .events = POLLIN };
	CHECK_INT(poll(&pf, 1, 0), 0);
	kill(pid, SIGKILL);
	CHECK_INT(poll(&pf, 1, 5000), 1);
	waitpid(pid, NULL, 0);

	pf = (struct pollfd){ .fd = fd, .events = POLLIN };
	CHECK_INT(poll(&pf, 1, 0), 0);		/* no end of file: the child lives */
	fd_close(p.pidfd);
	CHECK_INT(peer_read(fd, (gid_t)-1, &p), PEER_DEAD);
	fd_close(fd);				/* lets the child end */
	fd_close(listen_fd);
}

TEST_MAIN()
