/* SPDX-License-Identifier: MIT */
#include "daemon/main/local_endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/fd.h"
#include "proto/base/host.h"
#include "proto/base/str.h"

/* 0 = not an address with a port. */
static uint16_t port_of(const char *address)
{
	struct host_port hp;

	return address && host_port_parse(address, strlen(address), &hp) == 0 ? hp.port : 0;
}

/* Clients would have to be told of its CA: ports of sandboxes are plain where they can be. */
static void set_names(struct local_endpoint *e, const char *address)
{
	snprintf(e->address, sizeof(e->address), "%s", address);
	snprintf(e->url, sizeof(e->url), "https://localhost:%u", e->port);
	snprintf(e->domain, sizeof(e->domain), "localhost:%u", e->plain_port ? e->plain_port : e->port);
}

static int take(const json_t *root, struct local_endpoint *ret)
{
	const char *address = json_string_value(json_object_get(root, "tls_address"));
	const char *ca = json_string_value(json_object_get(root, "ca_file"));
	const char *key = json_string_value(json_object_get(root, "api_key_file"));
	json_int_t pid = json_integer_value(json_object_get(root, "pid"));
	struct local_endpoint e = { .port = port_of(address),
				    .plain_port = port_of(json_string_value(json_object_get(root, "address"))) };

	if (!e.port || strlen(address) >= sizeof(e.address) || !ca || !key || pid <= 0 || pid > INT32_MAX)
		return -EPROTO;
	e.pid = (pid_t)pid;
	e.ca_file = strdup(ca);
	e.key_file = strdup(key);
	if (!e.ca_file || !e.key_file) {
		local_endpoint_fini(&e);
		return -ENOMEM;
	}
	set_names(&e, address);
	*ret = e;
	return 0;
}

int local_endpoint_parse(const char *text, struct local_endpoint *ret)
{
	json_error_t error;
	json_t *root = json_loads(text, 0, &error);
	int r = root ? take(root, ret) : -EPROTO;

	json_decref(root);
	return r;
}

int local_endpoint_read(const char *dir, struct local_endpoint *ret)
{
	char path[4096], *text;
	int r;

	snprintf(path, sizeof(path), "%s/endpoint", dir);
	r = fd_read_file(AT_FDCWD, path, LOCAL_ENDPOINT_MAX_BYTES, &text, NULL);
	if (r < 0)
		return r;
	r = local_endpoint_parse(text, ret);
	free(text);
	return r;
}

void local_endpoint_fini(struct local_endpoint *e)
{
	free(e->ca_file);
	free(e->key_file);
	*e = (struct local_endpoint){ 0 };
}

int local_endpoint_holder(const char *dir, pid_t *ret)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[4096];
	scoped(fd_closep) int fd = -1;

	*ret = 0;
	snprintf(path, sizeof(path), "%s/lock", dir);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fcntl(fd, F_GETLK, &lock) < 0)
		return -errno;
	if (lock.l_type == F_UNLCK)
		return 0;
	if (lock.l_pid <= 0)
		return -ESRCH;
	*ret = lock.l_pid;
	return 0;
}
