/* SPDX-License-Identifier: MIT */
/* The roots that the system trusts, from the two places that are compiled into OpenSSL, whatever the environment says. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/net/tls_impl.h"
#include "proto/base/fd.h"
#include "proto/base/map.h"
#include "proto/base/str.h"

#define CERTIFICATE_MAX ((size_t)64 << 10)
#define BUNDLE_MAX	((size_t)8 << 20)
#define PEM_BEGIN	"-----BEGIN "
#define PEM_END		"-----END "

/* "8 hex digits.number", as c_rehash names links to certificates. */
static bool is_hashed_name(const char *name)
{
	return strlen(name) >= 10 && strspn(name, "0123456789abcdef") == 8 && name[8] == '.' &&
	       name[9 + strspn(name + 9, "0123456789")] == '\0';
}

/* The hash of the next certificate's text; false at the last one's end. */
static bool next_certificate(const char **text, uint64_t *ret)
{
	const char *begin = strstr(*text, PEM_BEGIN), *end = begin ? strstr(begin, PEM_END) : NULL;

	if (!end)
		return false;
	*ret = map_hash(begin, (size_t)(end - begin));
	*text = end;
	return true;
}

static int add_certificates(struct map *known, int dir_fd, const char *name)
{
	scoped(str_freep) char *text = NULL;
	const char *pos;
	uint64_t hash;
	int r = 0;

	if (fd_read_file(dir_fd, name, CERTIFICATE_MAX, &text, NULL) < 0)
		return 0;
	pos = text;
	while (!r && next_certificate(&pos, &hash))
		r = map_put_u64(known, hash, known);
	return r;
}

static int read_folder(struct map *known, const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int r = 0;

	while (d && !r && (e = readdir(d)))
		if (is_hashed_name(e->d_name))
			r = add_certificates(known, dirfd(d), e->d_name);
	if (d)
		closedir(d);
	return r;
}

bool tls_dir_has_all(const char *dir, const char *bundle)
{
	scoped(str_freep) char *text = NULL;
	struct map known = MAP_NULL;
	const char *pos;
	uint64_t hash;
	bool all;

	if (fd_read_file(AT_FDCWD, bundle, BUNDLE_MAX, &text, NULL) < 0)
		return false;
	all = !read_folder(&known, dir);
	pos = text;
	while (all && next_certificate(&pos, &hash))
		all = map_get_u64(&known, hash);
	map_fini(&known);
	return all;
}

/* The folder is read certificate by certificate as they are needed. To parse the bundle takes 20 ms and 0.8 MiB for each account, so that is
 * done only where it says more: a system without such a folder, or a company's own CA that is mounted over the bundle or added to it. */
void tls_load_roots(SSL_CTX *ctx)
{
	const char *file = X509_get_default_cert_file(), *dir = X509_get_default_cert_dir();

	(void)SSL_CTX_load_verify_dir(ctx, dir);
	if (!access(file, R_OK) && !tls_dir_has_all(dir, file))
		(void)SSL_CTX_load_verify_file(ctx, file);
	ERR_clear_error();
}
