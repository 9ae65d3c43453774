/* SPDX-License-Identifier: MIT */
#include "daemon/local/engine/image.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/local/engine/image_doc.h"
#include "daemon/local/engine/unzip.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define INDEX_DEPTH_MAX 4	/* an index may list others */
#define PIECE		(64u * 1024)

struct image {
	char *dir;
	int dir_fd;	/* -1 but while it is opened: no descriptor outlives a fork */
	char digest[IMAGE_DIGEST_MAX];
	struct image_doc manifest;
	struct image_config config;
};

static int refuse(char why[IMAGE_WHY_MAX], int r, const char *what, const char *words)
{
	snprintf(why, IMAGE_WHY_MAX, "%s%s%s", what, *what ? ": " : "", words);
	return r;
}

/* --- digests --- */

static EVP_MD_CTX *digest_begin(const char *digest)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	const EVP_MD *kind = str_starts(digest, "sha512:") ? EVP_sha512() : EVP_sha256();

	if (md && EVP_DigestInit_ex(md, kind, NULL) == 1)
		return md;
	EVP_MD_CTX_free(md);
	return NULL;
}

/* Frees md. */
static bool digest_is(EVP_MD_CTX *md, const char *digest)
{
	uint8_t sum[EVP_MAX_MD_SIZE];
	char hex[2 * EVP_MAX_MD_SIZE + 1];
	unsigned n = 0;
	bool ok = EVP_DigestFinal_ex(md, sum, &n) == 1;

	EVP_MD_CTX_free(md);
	if (!ok)
		return false;
	str_hex(sum, n, hex);
	return str_eq(hex, strchr(digest, ':') + 1);
}

static int check_file(int fd, const char *digest)
{
	EVP_MD_CTX *md = digest_begin(digest);
	uint8_t piece[PIECE];
	off_t at = 0;
	ssize_t n;

	if (!md)
		return -ENOMEM;
	while ((n = pread(fd, piece, sizeof(piece), at)) > 0 && EVP_DigestUpdate(md, piece, (size_t)n) == 1)
		at += n;
	if (n < 0) {
		EVP_MD_CTX_free(md);
		return -errno;
	}
	return digest_is(md, digest) ? 0 : -EBADMSG;
}

/* --- blobs --- */

static int open_regular(int dir_fd, const char *path, int *ret_fd, uint64_t *ret_size)
{
	int fd = openat(dir_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), r = 0;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = -EMEDIUMTYPE;
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	*ret_fd = fd;
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

/* A blob that is what it is called. */
static int open_blob(int dir_fd, const struct image_ref *ref, int *ret_fd, char why[IMAGE_WHY_MAX])
{
	char path[IMAGE_DIGEST_MAX + 8];
	uint64_t size;
	int fd, r;

	snprintf(path, sizeof(path), "blobs/%.6s/%s", ref->digest, ref->digest + 7);
	r = open_regular(dir_fd, path, &fd, &size);
	if (r < 0)
		return refuse(why, r, ref->digest, r == -EMEDIUMTYPE ? "this is no file" : strerror(-r));
	if (size != ref->size)
		r = refuse(why, -EBADMSG, ref->digest, "its size is not what the document that names it says");
	if (r == 0) {
		r = check_file(fd, ref->digest);
		if (r < 0)
			(void)refuse(why, r, ref->digest, r == -EBADMSG ? "its content is not what its digest says" : strerror(-r));
	}
	if (r < 0)
		fd_close(fd);
	else
		*ret_fd = fd;
	return r;
}

static int read_text(int fd, uint64_t size, const char *what, char **ret, char why[IMAGE_WHY_MAX])
{
	char *text = size > IMAGE_DOC_MAX_BYTES ? NULL : malloc(size + 1);
	size_t got = 0;
	ssize_t n;

	if (!text)
		return size > IMAGE_DOC_MAX_BYTES ? refuse(why, -EFBIG, what, "it is larger than 4 MiB") :
						    refuse(why, -ENOMEM, what, strerror(ENOMEM));
	while (got < size && (n = pread(fd, text + got, size - got, (off_t)got)) > 0)
		got += (size_t)n;
	text[got] = '\0';
	*ret = text;
	if (got == size)
		return 0;
	free(text);
	return refuse(why, -EIO, what, "it cannot be read whole");
}

/* The blob may have changed since: what is parsed is proved again. */
static int read_blob(int dir_fd, const struct image_ref *ref, char **ret, char why[IMAGE_WHY_MAX])
{
	scoped(fd_closep) int fd = -1;
	EVP_MD_CTX *md;
	int r = open_blob(dir_fd, ref, &fd, why);

	if (r == 0)
		r = read_text(fd, ref->size, ref->digest, ret, why);
	if (r < 0)
		return r;
	md = digest_begin(ref->digest);
	if (md && EVP_DigestUpdate(md, *ret, (size_t)ref->size) == 1 && digest_is(md, ref->digest))
		return 0;
	free(*ret);
	return refuse(why, -EBADMSG, ref->digest, "it changes while it is read");
}

static int read_file(int dir_fd, const char *name, char **ret, size_t *ret_n, char why[IMAGE_WHY_MAX])
{
	scoped(fd_closep) int fd = -1;
	uint64_t size = 0;
	int r = open_regular(dir_fd, name, &fd, &size);

	*ret_n = (size_t)size;
	return r < 0 ? refuse(why, r, name, strerror(-r)) : read_text(fd, size, name, ret, why);
}

/* --- choosing --- */

#if defined(__x86_64__)
static const char machine_arch[] = "amd64";
#elif defined(__aarch64__)
static const char machine_arch[] = "arm64";
#elif defined(__arm__)
static const char machine_arch[] = "arm";
#elif defined(__i386__)
static const char machine_arch[] = "386";
#elif defined(__riscv) && __riscv_xlen == 64
static const char machine_arch[] = "riscv64";
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
static const char machine_arch[] = "ppc64le";
#elif defined(__s390x__)
static const char machine_arch[] = "s390x";
#else
#error "what does GOARCH call this machine?"
#endif

static bool fits(const char *os, const char *arch)
{
	return (!os || str_eq(os, "linux")) && (!arch || str_eq(arch, machine_arch));
}

static bool is_called(const struct image_ref *ref, const char *name)
{
	return !name || (ref->name && str_eq(ref->name, name));
}

static int none_fits(const char *name, char why[IMAGE_WHY_MAX])
{
	if (name)
		snprintf(why, IMAGE_WHY_MAX, "there is no image \"%.100s\" for linux/%s in it", name, machine_arch);
	else
		snprintf(why, IMAGE_WHY_MAX, "there is no image for linux/%s in it", machine_arch);
	return -ENOENT;
}

/* Of those that say their platform the first is the best; of others there may be one. */
static int choose(const struct image_doc *index, const char *name, const struct image_ref **ret, char why[IMAGE_WHY_MAX])
{
	const struct image_ref *found = NULL;

	for (size_t i = 0; i < index->n; i++) {
		const struct image_ref *ref = &index->list[i];

		if (!fits(ref->os, ref->arch) || !is_called(ref, name))
			continue;
		if (found && !found->arch && !str_eq(found->digest, ref->digest))
			return refuse(why, -EINVAL, "", "there are several images in it: say which, as in DIR:NAME");
		if (!found)
			found = ref;
	}
	*ret = found;
	return found ? 0 : none_fits(name, why);
}

static int parse(const char *text, size_t n, const char *what, struct image_doc *ret, char why[IMAGE_WHY_MAX])
{
	char words[IMAGE_DOC_WHY_MAX] = "out of memory";
	int r = image_doc_parse(text, n, ret, words);

	return r < 0 ? refuse(why, r, what, words) : 0;
}

/* Goes from index to index, down to a manifest. */
static int find_manifest(struct image *im, const char *name, char why[IMAGE_WHY_MAX])
{
	struct image_doc *d = &im->manifest;
	size_t n;
	char *text;
	int r = read_file(im->dir_fd, "index.json", &text, &n, why);

	if (r < 0)
		return r;
	r = parse(text, n, "index.json", d, why);
	free(text);
	if (r == 0 && !d->is_index)
		r = refuse(why, -EBADMSG, "index.json", "this is no index");
	for (int depth = 0; r == 0 && d->is_index; depth++) {
		const struct image_ref *ref;

		r = depth > INDEX_DEPTH_MAX ? refuse(why, -EBADMSG, "", "indexes within indexes") : choose(d, depth ? NULL : name, &ref, why);
		if (r == 0)
			r = read_blob(im->dir_fd, ref, &text, why);
		if (r < 0)
			break;
		n = (size_t)ref->size;
		str_copy(im->digest, sizeof(im->digest), ref->digest);
		image_doc_fini(d);
		r = parse(text, n, im->digest, d, why);
		free(text);
	}
	return r;
}

static int take_config(struct image *im, char why[IMAGE_WHY_MAX])
{
	const struct image_ref *ref = &im->manifest.config;
	char words[IMAGE_DOC_WHY_MAX] = "out of memory", *text;
	int r = read_blob(im->dir_fd, ref, &text, why);

	if (r < 0)
		return r;
	r = image_config_parse(text, (size_t)ref->size, &im->config, words);
	free(text);
	if (r < 0)
		return refuse(why, r, ref->digest, words);
	if (!fits(im->config.os, im->config.arch)) {
		snprintf(why, IMAGE_WHY_MAX, "the image is for %.20s/%.20s, this machine is linux/%s", im->config.os ? im->config.os : "linux",
			 im->config.arch ? im->config.arch : "any", machine_arch);
		return -ENOEXEC;
	}
	if (im->config.n_diff_ids != im->manifest.n)
		return refuse(why, -EBADMSG, ref->digest, "rootfs.diff_ids and the layers of the manifest differ in number");
	return 0;
}

/* Encrypted layers, and whatever else is no tar. */
static int check_layers(const struct image *im, char why[IMAGE_WHY_MAX])
{
	for (size_t i = 0; i < im->manifest.n; i++) {
		const char *type = im->manifest.list[i].media_type;

		if (!(strstr(type, ".tar") && !strstr(type, "+encrypted")) && *type) {
			snprintf(why, IMAGE_WHY_MAX, "%.20s…: a layer of type %.100s cannot be unpacked", im->manifest.list[i].digest, type);
			return -EOPNOTSUPP;
		}
	}
	return 0;
}

static int image_dir_open(struct image *im, char why[IMAGE_WHY_MAX])
{
	im->dir_fd = open(im->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return im->dir_fd < 0 ? refuse(why, -errno, im->dir, strerror(errno)) : 0;
}

bool image_is_layout(const char *dir)
{
	char *path = str_printf("%s/oci-layout", dir);
	bool is = path && access(path, F_OK) == 0;

	free(path);
	return is;
}

int image_open(const char *dir, const char *name, struct image **ret, char why[IMAGE_WHY_MAX])
{
	struct image *im = calloc(1, sizeof(*im));
	int r;

	if (!im)
		return refuse(why, -ENOMEM, "", strerror(ENOMEM));
	im->dir = str_dup(dir);
	im->dir_fd = -1;
	r = im->dir ? image_dir_open(im, why) : refuse(why, -ENOMEM, "", strerror(ENOMEM));
	if (r == 0)
		r = find_manifest(im, name, why);
	if (r == 0)
		r = take_config(im, why);
	if (r == 0)
		r = check_layers(im, why);
	im->dir_fd = fd_close(im->dir_fd);
	if (r < 0)
		image_free(im);
	else
		*ret = im;
	return r;
}

struct image *image_free(struct image *im)
{
	if (!im)
		return NULL;
	free(im->dir);
	image_doc_fini(&im->manifest);
	image_config_fini(&im->config);
	free(im);
	return NULL;
}

const char *image_digest(const struct image *im)
{
	return im->digest;
}

const char *const *image_env(const struct image *im)
{
	return (const char *const *)im->config.env;
}

/* --- unpacking --- */

struct archive {
	struct tarball_source s;
	struct unzip z;
	EVP_MD_CTX *md;		/* NULL: nothing is proved by it */
};

static ssize_t read_archive(struct tarball_source *s, void *p, size_t n)
{
	struct archive *a = container_of(s, struct archive, s);
	ssize_t k = unzip_read(&a->z, p, n);

	return k > 0 && a->md && EVP_DigestUpdate(a->md, p, (size_t)k) != 1 ? -EIO : k;
}

static int missing_program(const struct unzip *z, char why[IMAGE_WHY_MAX])
{
	snprintf(why, IMAGE_WHY_MAX, "%s is needed to unpack it, and not installed", z->program);
	return -ENOEXEC;
}

typedef int pass_fn(struct unpack *u, struct tarball_source *s);

/* diff_id: of all that comes out; NULL = not known. */
static int run_pass(struct unpack *u, int fd, const char *diff_id, pass_fn *pass, char why[IMAGE_WHY_MAX])
{
	struct archive a = { .s = { read_archive }, .md = diff_id ? digest_begin(diff_id) : NULL };
	int r = diff_id && !a.md ? -ENOMEM : unzip_open(fd, &a.z), closed;

	if (r < 0) {
		EVP_MD_CTX_free(a.md);
		return refuse(why, r, "", strerror(-r));
	}
	r = pass(u, &a.s);
	if (r < 0)
		(void)refuse(why, r, "", unpack_why(u));
	closed = unzip_close(&a.z, r < 0);
	if (closed == -ENOEXEC)
		r = missing_program(&a.z, why);
	else if (closed < 0)
		r = refuse(why, closed, a.z.program, "it cannot be decompressed");
	if (!a.md)
		return r;
	if (!digest_is(a.md, diff_id) && r == 0)
		r = refuse(why, -EBADMSG, diff_id, "its content is not what its digest says");
	return r;
}

static int pass_layer(struct unpack *u, struct tarball_source *s)
{
	return unpack_files(u, s, true);
}

static int pass_files(struct unpack *u, struct tarball_source *s)
{
	return unpack_files(u, s, false);
}

/* Whiteouts first: they are about what is there, not about what this layer brings, in whatever order they stand. */
static int unpack_layer(const struct image *im, size_t i, struct unpack *u, char why[IMAGE_WHY_MAX])
{
	scoped(fd_closep) int fd = -1;
	const char *diff_id = im->config.diff_ids[i];
	char words[IMAGE_WHY_MAX];
	int r = open_blob(im->dir_fd, &im->manifest.list[i], &fd, words);

	if (r == 0)
		r = run_pass(u, fd, diff_id, unpack_whiteouts, words);
	if (r == 0)
		r = run_pass(u, fd, diff_id, pass_layer, words);
	if (r < 0)
		snprintf(why, IMAGE_WHY_MAX, "layer %zu of %zu: %.280s", i + 1, im->manifest.n, words);
	return r;
}

int image_unpack(struct image *im, int dir_fd, bool as_user, const struct unpack_limits *limits, char why[IMAGE_WHY_MAX])
{
	struct unpack *u;
	int r = unpack_new(dir_fd, as_user, limits, &u);

	if (r < 0)
		return refuse(why, r, "", strerror(-r));
	r = image_dir_open(im, why);
	for (size_t i = 0; i < im->manifest.n && r == 0; i++)
		r = unpack_layer(im, i, u, why);
	im->dir_fd = fd_close(im->dir_fd);
	unpack_free(u);
	return r;
}

int image_unpack_tar(const char *path, int dir_fd, bool as_user, const struct unpack_limits *limits, char why[IMAGE_WHY_MAX])
{
	scoped(fd_closep) int fd = -1;
	struct unpack *u;
	uint64_t size;
	int r = open_regular(AT_FDCWD, path, &fd, &size);

	if (r == 0)
		r = unpack_new(dir_fd, as_user, limits, &u);
	if (r < 0)
		return refuse(why, r, "", strerror(-r));
	r = run_pass(u, fd, NULL, pass_files, why);
	unpack_free(u);
	return r;
}
