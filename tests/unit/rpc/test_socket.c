/* SPDX-License-Identifier: MIT */
/* Rows U-13, U-14, U-15, U-25 and U-27. */
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/rpc/socket.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

static char dir[64], path[160], lock[200];

static void setup(void)
{
	(void)str_copy(dir, sizeof(dir), "/tmp/test_socket.XXXXXX");
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a.sock", dir);
	snprintf(lock, sizeof(lock), "%s.lock", path);
}

static void teardown(void)
{
	CHECK_INT(access(lock, F_OK), -1);
	(void)unlink(path);
	CHECK_INT(rmdir(dir), 0);
}

static int open_at(const char *p, struct rpc_socket **ret, struct status *why)
{
	struct rpc_socket_options o = { .path = p, .mode = 0660, .gid = (gid_t)-1 };

	return rpc_socket_open(&o, ret, why);
}

static int try_connect(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	memcpy(a.sun_path, path, strlen(path) + 1);
	r = connect(fd, (struct sockaddr *)&a, sizeof(a)) ? errno : 0;
	fd_close(fd);
	return r;
}

/* What a killed daemon leaves behind. */
static void leave_stale(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	memcpy(a.sun_path, path, strlen(path) + 1);
	CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	fd_close(fd);
}

TEST(serves_with_its_mode_whatever_the_umask)
{
	const mode_t masks[] = { 0, 022, 0777 };

	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		struct rpc_socket *s = NULL;
		struct status why;
		struct stat st;
		mode_t old;

		setup();
		old = umask(masks[i]);
		CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_OK);
		umask(old);
		CHECK(stat(path, &st) == 0);
		CHECK_INT(st.st_mode & 07777, 0660);
		CHECK_INT(try_connect(), 0);
		CHECK_INT(rpc_socket_check(s), RPC_SOCKET_THERE);
		rpc_socket_free(s);
		CHECK_INT(access(path, F_OK), -1);
		teardown();
	}
}

TEST(a_second_one_is_told)
{
	struct rpc_socket *s, *t;
	struct status why;

	setup();
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_OK);
	CHECK_INT(open_at(path, &t, &why), RPC_SOCKET_BUSY);
	CHECK(strstr(why.text, path));
	CHECK_INT(try_connect(), 0);
	rpc_socket_free(s);
	teardown();
}

TEST(a_stale_one_is_replaced)
{
	struct rpc_socket *s;
	struct status why;
	int fd;

	setup();
	leave_stale();
	fd = open(lock, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);	/* nobody holds it */
	fd_close(fd);
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_OK);
	CHECK_INT(try_connect(), 0);
	rpc_socket_free(s);
	teardown();
}

TEST(a_living_foreign_server_is_left_alone)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct rpc_socket *s;
	struct status why;

	setup();
	memcpy(a.sun_path, path, strlen(path) + 1);
	CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0);
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_BUSY);
	CHECK_INT(try_connect(), 0);
	fd_close(fd);
	teardown();
}

TEST(other_things_are_left_alone)
{
	struct rpc_socket *s;
	struct status why;
	char target[128];
	struct stat st;

	setup();
	CHECK(fd_write_file(AT_FDCWD, path, "x", 1, 0600) == 0);
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_REFUSED);
	CHECK(stat(path, &st) == 0 && st.st_size == 1);
	CHECK(unlink(path) == 0);

	snprintf(target, sizeof(target), "%s/target", dir);
	CHECK(symlink(target, path) == 0);		/* dangling: bind must not make the target */
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_REFUSED);
	CHECK_INT(access(target, F_OK), -1);
	teardown();
}

TEST(a_folder_others_can_write_is_refused)
{
	struct rpc_socket *s;
	struct status why;
	char link[128];

	setup();
	CHECK(chmod(dir, 0777) == 0);
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_REFUSED);
	CHECK(strstr(why.text, "0777") && strstr(why.text, dir));
	CHECK(chmod(dir, 0700) == 0);
	if (getuid() == 0) {
		CHECK(chown(dir, 12345, 12345) == 0);
		CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_REFUSED);
		CHECK(strstr(why.text, "12345"));
		CHECK(chown(dir, 0, 0) == 0);
	}
	snprintf(link, sizeof(link), "%s.link", dir);
	CHECK(symlink(dir, link) == 0);
	snprintf(path, sizeof(path), "%s/a.sock", link);
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_REFUSED);
	CHECK(unlink(link) == 0);
	teardown();
}

TEST(bad_paths_are_named)
{
	struct rpc_socket *s;
	struct status why;
	char name[200];

	CHECK_INT(open_at("a.sock", &s, &why), RPC_SOCKET_REFUSED);
	memset(name, 'a', sizeof(name));
	name[0] = '/';
	name[108] = '\0';
	CHECK_INT(open_at(name, &s, &why), RPC_SOCKET_REFUSED);
	CHECK(strstr(why.text, "108 bytes") && strstr(why.text, "107"));
	CHECK_INT(open_at("/nonexistent/x/a.sock", &s, &why), -ENOENT);
	CHECK(strstr(why.text, "/nonexistent/x"));
}

TEST(a_missing_folder_is_made)
{
	struct rpc_socket_options o = { .mode = 0600, .gid = (gid_t)-1, .dir_mode = 0700 };
	struct rpc_socket *s;
	struct status why;
	struct stat st;
	char sub[80];

	setup();
	snprintf(sub, sizeof(sub), "%s/sub", dir);
	snprintf(path, sizeof(path), "%s/a.sock", sub);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	o.path = path;
	CHECK_INT(rpc_socket_open(&o, &s, &why), RPC_SOCKET_OK);
	CHECK(stat(sub, &st) == 0);
	CHECK_INT(st.st_mode & 07777, 0700);
	rpc_socket_free(s);
	CHECK(rmdir(sub) == 0);
	teardown();
}

TEST(removed_and_replaced_files_are_noticed)
{
	struct rpc_socket *s;
	struct status why;
	int fd;

	setup();
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_OK);
	fd = rpc_socket_take_fd(s);
	CHECK(unlink(path) == 0);
	CHECK_INT(rpc_socket_check(s), RPC_SOCKET_MISSING);
	CHECK_INT(rpc_socket_rebind(s, &why), RPC_SOCKET_OK);
	CHECK_INT(rpc_socket_check(s), RPC_SOCKET_THERE);
	CHECK_INT(try_connect(), 0);
	fd_close(fd);
	CHECK(unlink(path) == 0);
	leave_stale();
	CHECK_INT(rpc_socket_check(s), RPC_SOCKET_REPLACED);
	rpc_socket_free(s);
	CHECK_INT(access(path, F_OK), 0);	/* not ours: not removed */
	teardown();
}

TEST(only_a_listening_unix_socket_is_adopted)
{
	struct rpc_socket *s;
	struct status why;
	int pair[2], fd;

	setup();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	CHECK_INT(rpc_socket_adopt(pair[0]), -EINVAL);
	fd_close(pair[0]);
	fd_close(pair[1]);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_INT(rpc_socket_adopt(fd), -EAFNOSUPPORT);
	fd_close(fd);
	CHECK_INT(open_at(path, &s, &why), RPC_SOCKET_OK);
	fd = rpc_socket_take_fd(s);
	CHECK_INT(rpc_socket_adopt(fd), 0);
	fd_close(fd);
	rpc_socket_free(s);
	teardown();
}

TEST_MAIN()
