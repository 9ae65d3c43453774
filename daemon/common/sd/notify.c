/* SPDX-License-Identifier: MIT */
#include "daemon/common/sd/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

#define FD_NAME_MAX 255u
#define STORE_MS    100u	/* of a message that must not be lost, while the manager is busy */

static int set_address(struct notify *n, const char *address)
{
	size_t len = strlen(address);

	if (address[0] != '/' && address[0] != '@')
		return -EINVAL;
	if (len < 2)
		return -EINVAL;
	if (len >= sizeof(n->to.sun_path))
		return -E2BIG;
	n->to.sun_family = AF_UNIX;
	memcpy(n->to.sun_path, address, len);
	if (address[0] == '@')
		n->to.sun_path[0] = '\0';
	/* An abstract name ends where its length says, a path has its NUL. */
	n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (address[0] == '/'));
	return 0;
}

int notify_open(struct notify *n, const char *address)
{
	int r;

	*n = (struct notify)NOTIFY_NOBODY;
	if (str_is_empty(address))
		return 0;
	r = set_address(n, address);
	if (r < 0)
		return r;
	n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return n->fd < 0 ? -errno : 0;
}

void notify_close(struct notify *n)
{
	n->fd = fd_close(n->fd);
}

int notify_send(const struct notify *n, const char *lines)
{
	if (n->fd < 0)
		return 0;
	return sendto(n->fd, lines, strlen(lines), MSG_NOSIGNAL, (const struct sockaddr *)&n->to, n->to_len) < 0 ? -errno : 0;
}

/* One line of a message: whatever the text holds, it ends neither the line nor the message. */
static void put_line(char *ret, size_t cap, const char *text)
{
	str_copy_ends(ret, cap, text);
	for (; *ret; ret++)
		if ((unsigned char)*ret < 0x20 || *ret == 0x7f)
			*ret = ' ';
}

int notify_status(const struct notify *n, const char *fmt, ...)
{
	char text[2 * NOTIFY_STATUS_MAX], line[NOTIFY_STATUS_MAX] = "STATUS=";
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	put_line(line + strlen(line), sizeof(line) - strlen(line), text);
	return notify_send(n, line);
}

int notify_failed(const struct notify *n, int err, const char *why)
{
	char line[NOTIFY_STATUS_MAX], lines[NOTIFY_STATUS_MAX + 32];

	put_line(line, sizeof(line), why);
	snprintf(lines, sizeof(lines), "STATUS=%s\nERRNO=%d", line, err);
	return notify_send(n, lines);
}

int notify_reloading(const struct notify *n)
{
	struct timespec now = clock_mono_in_us(0);
	char lines[64];

	/* The time is wanted by managers that start a reload themselves (Type=notify-reload); older ones skip the line. */
	snprintf(lines, sizeof(lines), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
	return notify_send(n, lines);
}

int notify_extend(const struct notify *n, uint64_t us)
{
	char line[64];

	snprintf(line, sizeof(line), "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)us);
	return notify_send(n, line);
}

/* --- the manager's store of descriptors --- */

static bool is_fd_name(const char *name)
{
	size_t n = strlen(name);

	return n && n <= FD_NAME_MAX && str_is_printable(name, n) && !strchr(name, ':');
}

/* A socket that waits, for as long as STORE_MS, until the manager has room for a message. */
static int patient_socket(void)
{
	struct timeval limit = { .tv_usec = STORE_MS * 1000 };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
		return fd_close(fd);
	return fd;
}

static int send_with(const struct notify *n, const char *lines, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(NOTIFY_FDS_MAX * sizeof(int))];
	} control = { .space = { 0 } };
	struct iovec text = { .iov_base = (void *)(uintptr_t)lines, .iov_len = strlen(lines) };
	struct msghdr m = { .msg_name = (void *)(uintptr_t)&n->to, .msg_namelen = n->to_len, .msg_iov = &text, .msg_iovlen = 1 };
	scoped(fd_closep) int fd = patient_socket();

	if (fd < 0)
		return -errno;
	if (n_fds) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(n_fds * sizeof(int)), .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), fds, n_fds * sizeof(int));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int notify_store_fds(const struct notify *n, const int *fds, size_t n_fds, const char *name)
{
	char lines[FD_NAME_MAX + 64];

	if (!n_fds || n_fds > NOTIFY_FDS_MAX || !is_fd_name(name))
		return -EINVAL;
	if (n->fd < 0)
		return -ENOTCONN;
	snprintf(lines, sizeof(lines), "FDSTORE=1\nFDNAME=%s", name);
	return send_with(n, lines, fds, n_fds);
}

int notify_drop_fds(const struct notify *n, const char *name)
{
	char lines[FD_NAME_MAX + 64];

	if (!is_fd_name(name))
		return -EINVAL;
	if (n->fd < 0)
		return -ENOTCONN;
	snprintf(lines, sizeof(lines), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return send_with(n, lines, NULL, 0);
}

int notify_watchdog(const char *usec, const char *pid, pid_t self, uint64_t *ret_us)
{
	uint64_t us, of;

	*ret_us = 0;
	if (str_is_empty(usec))
		return 0;
	if (str_u64(usec, strlen(usec), UINT64_MAX - 1, &us) < 0 || !us)
		return -EINVAL;
	if (!str_is_empty(pid) && str_u64(pid, strlen(pid), INT32_MAX, &of) < 0)
		return -EINVAL;
	if (str_is_empty(pid) || (pid_t)of == self)
		*ret_us = us;
	return 0;
}
