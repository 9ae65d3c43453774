/* SPDX-License-Identifier: MIT */
#include "daemon/common/sd/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

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
