/* SPDX-License-Identifier: MIT */
#include "daemon/local/main/endpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/net/xport.h"
#include "proto/base/buf.h"
#include "proto/base/fd.h"
#include "proto/base/host.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define BACKLOG 512

static int explain(char **ret_why, int r, const char *dir, const char *what)
{
	*ret_why = str_printf("%s: %s: %s", dir, what, strerror(-r));
	return r;
}

static int lock(const char *dir, char **ret_why)
{
	char *path = str_printf("%s/lock", dir);
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	/* Never closed: closing any descriptor of the file would end the lock. */
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;

	if (fd < 0) {
		free(path);
		return explain(ret_why, path ? -errno : -ENOMEM, dir, "cannot open the lock");
	}
	free(path);
	if (!fcntl(fd, F_SETLK, &l))
		return 0;
	if (errno != EACCES && errno != EAGAIN)
		return explain(ret_why, -errno, dir, "cannot lock it");
	l = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
	if (fcntl(fd, F_GETLK, &l) < 0 || l.l_type == F_UNLCK)
		l.l_pid = 0;
	*ret_why = str_printf("%s: in use by process %d", dir, l.l_pid);
	return -EBUSY;
}

int endpoint_take(const char *dir, char **ret_dir, char **ret_why)
{
	struct stat st;
	char *real;
	int r;

	*ret_why = NULL;
	r = fd_mkdirs(dir, 0700);
	if (r < 0)
		return explain(ret_why, r, dir, "cannot make it");
	real = realpath(dir, NULL);
	if (!real || stat(real, &st) < 0) {
		free(real);
		return explain(ret_why, -errno, dir, "cannot use it");
	}
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)) {
		free(real);
		*ret_why = str_printf("%s: must be a folder of this user that no one else can write",
				      dir);
		return -EPERM;
	}
	r = chmod(real, 0700) < 0 ? explain(ret_why, -errno, dir, "cannot protect it")
				  : lock(real, ret_why);
	if (r < 0)
		free(real);
	else
		*ret_dir = real;
	return r;
}

int endpoint_seed(const char *dir, uint8_t ret[SIGN_SEED_BYTES])
{
	char *path = str_printf("%s/seed", dir), *text = NULL;
	size_t n = 0;
	int r;

	if (!path)
		return -ENOMEM;
	r = fd_read_file(AT_FDCWD, path, SIGN_SEED_BYTES, &text, &n);
	if (!r && n == SIGN_SEED_BYTES) {
		memcpy(ret, text, n);
	} else if (!r || r == -ENOENT || r == -EFBIG) {
		rng_system(ret, SIGN_SEED_BYTES);
		r = fd_write_file(AT_FDCWD, path, ret, SIGN_SEED_BYTES, 0600);
	}
	if (text)
		explicit_bzero(text, n);
	free(text);
	free(path);
	return r;
}

static char *endpoint_text(const struct endpoint *e)
{
	json_auto_t *o = json_pack("{s:s?, s:s?, s:i, s:s?, s:s?, s:s?, s:s}", "address", e->address,
				   "tls_address", e->tls_address, "pid", (int)getpid(), "ca_file",
				   e->ca_file, "api_key_file", e->api_key_file, "domain", e->domain,
				   "version", AB_VERSION);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	char *line = text ? str_printf("%s\n", text) : NULL;

	free(text);
	return line;
}

/* --- for a shell --- */

/* export NAME='value' */
static int put_export(struct buf *out, const char *name, const char *value)
{
	int r = buf_printf(out, "export %s='", name);

	for (const char *s = value; *s && !r; s++)
		r = *s == '\'' ? buf_put_str(out, "'\\''") : buf_put(out, s, 1);
	return r ? r : buf_put_str(out, "'\n");
}

/* localhost, which the certificate is for and every listener but those of other addresses hears. */
static char *own_url(const struct endpoint *e)
{
	const char *address = e->tls_address ? e->tls_address : e->address, *scheme = e->tls_address ? "https" : "http";
	struct host_port hp;

	if (host_port_parse(address, strlen(address), &hp) < 0)
		return NULL;
	if (host_is_loopback(hp.host) || str_eq(hp.host, "0.0.0.0") || str_eq(hp.host, "::"))
		return str_printf("%s://localhost:%u", scheme, hp.port);
	return str_printf("%s://%s", scheme, address);
}

static int put_exports(const struct endpoint *e, struct buf *out)
{
	char *url = own_url(e);
	const char *const rows[][2] = {
		{ "AGENTBOX_API_KEY", e->api_key }, { "AGENTBOX_API_URL", url }, { "AGENTBOX_SANDBOX_URL", url },
		{ "AGENTBOX_DOMAIN", e->domain },   { "E2B_API_KEY", e->api_key }, { "E2B_API_URL", url },
		{ "E2B_SANDBOX_URL", url },	    { "E2B_DOMAIN", e->domain },
		{ "E2B_VALIDATE_API_KEY", str_starts(e->api_key, "e2b_") ? NULL : "false" },
		{ "SSL_CERT_FILE", e->bundle_file }, { "REQUESTS_CA_BUNDLE", e->bundle_file },
		{ "CURL_CA_BUNDLE", e->bundle_file }, { "NODE_EXTRA_CA_CERTS", e->ca_file },
	};
	int r = url ? 0 : -ENOMEM;

	for (size_t i = 0; i < ARRAY_SIZE(rows) && !r; i++)
		if (rows[i][1])
			r = put_export(out, rows[i][0], rows[i][1]);
	free(url);
	return r;
}

static int write_env(const char *dir, const struct endpoint *e)
{
	scoped(buf_fini) struct buf out = BUF_NULL;
	char *path = str_printf("%s/env", dir);
	int r = path ? put_exports(e, &out) : -ENOMEM;

	if (!r)
		r = fd_write_file(AT_FDCWD, path, (const char *)buf_data(&out), buf_len(&out), 0600);
	free(path);
	return r;
}

int endpoint_announce(const char *dir, const struct endpoint *e, int ready_fd)
{
	char *line = endpoint_text(e), *path = str_printf("%s/endpoint", dir);
	int r = line && path ? write_env(dir, e) : -ENOMEM;

	if (!r)
		r = fd_write_file(AT_FDCWD, path, line, strlen(line), 0600);
	if (!r && ready_fd >= 0) {
		/* Nobody may be waiting any more. */
		(void)!fd_write_all(ready_fd, line, strlen(line));
		fd_close(ready_fd);
	}
	free(line);
	free(path);
	return r;
}

void endpoint_leave(const char *dir)
{
	char *path = str_printf("%s/endpoint", dir), *env = str_printf("%s/env", dir);

	if (path)
		(void)unlink(path);
	if (env)
		(void)unlink(env);
	free(path);
	free(env);
}

int endpoint_listen(const struct cfg_addr *a, int *ret_fd, char **ret_text, uint16_t *ret_port)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t len = sizeof(sa);
	char text[INET6_ADDRSTRLEN + 10];
	int on = 1, r = 0;
	int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, (const struct sockaddr *)(const void *)&a->sa, a->len) < 0 ||
	    listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)(void *)&sa, &len) < 0)
		r = -errno;
	if (!r) {
		sock_text((const struct sockaddr *)(const void *)&sa, text, sizeof(text));
		/* At the same place in both families. */
		*ret_port = ntohs(((const struct sockaddr_in *)(const void *)&sa)->sin_port);
		*ret_text = str_dup(text);
		r = *ret_text ? 0 : -ENOMEM;
	}
	if (r < 0)
		fd_close(fd);
	else
		*ret_fd = fd;
	return r;
}
