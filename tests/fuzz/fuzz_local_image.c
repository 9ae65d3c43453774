/* SPDX-License-Identifier: MIT */
/*
 * What an image says: the reader of archives, which says the same however the bytes come and never gives a name or a size that its
 * header does not allow, and the JSON documents. The first byte chooses.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/engine/image_doc.h"
#include "daemon/local/engine/tarball.h"
#include "daemon/local/engine/unpack.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

struct memory {
	struct tarball_source s;
	const uint8_t *p;
	size_t n, most;		/* most: of one read */
};

struct digest {
	uint64_t h;
	int r;
};

static ssize_t read_memory(struct tarball_source *s, void *p, size_t n)
{
	struct memory *m = container_of(s, struct memory, s);

	n = MIN(MIN(n, m->n), m->most);
	memcpy(p, m->p, n);
	m->p += n;
	m->n -= n;
	return (ssize_t)n;
}

static void add(struct digest *d, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		d->h = (d->h ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
}

/* A clean name has no empty part, no "." and no "..", and is its own. */
static void check_name(const char *name)
{
	char clean[TAR_NAME_MAX + 1], again[TAR_NAME_MAX + 1];

	must(*name && strlen(name) <= TAR_NAME_MAX);
	if (!unpack_clean_name(name, clean))
		return;
	must(clean[0] != '/' && !strstr(clean, "//") && unpack_clean_name(clean, again) && str_eq(clean, again));
	for (const char *s = clean; *s; s += strcspn(s, "/") + (strchr(s, '/') != NULL))
		must(strcspn(s, "/") && strncmp(s, "../", 3) != 0 && !str_eq(s, "..") && strncmp(s, "./", 2) != 0);
}

static void check_entry(const struct tar_entry *e, struct digest *d)
{
	check_name(e->name);
	must(!(e->mode & ~07777u) && e->mtime_ns < 1000000000 && (e->type == TAR_FILE || !e->size));
	if (e->type == TAR_HARD_LINK || e->type == TAR_SYMLINK)
		check_name(e->link);
	add(d, e->name, strlen(e->name) + 1);
	add(d, &e->type, sizeof(e->type));
	add(d, &e->size, sizeof(e->size));
	add(d, &e->uid, sizeof(e->uid));
	add(d, &e->mtime_s, sizeof(e->mtime_s));
}

static struct digest read_all(const uint8_t *p, size_t n, size_t most)
{
	struct memory m = { { read_memory }, p, n, most };
	struct digest d = { .h = 14695981039346656037ull };
	const struct tar_entry *e;
	struct tarball *t;
	const void *piece;

	if (tarball_new(&m.s, &t) < 0)
		return d;
	while ((d.r = tarball_next(t, &e)) > 0) {
		uint64_t got = 0, size = e->size;
		ssize_t k;

		check_entry(e, &d);
		while ((k = tarball_data(t, &piece)) > 0) {
			add(&d, piece, (size_t)k);
			got += (size_t)k;
		}
		must(got <= size && (k < 0 || got == size));
		d.r = (int)k;
		if (k < 0)
			break;
	}
	must(d.r != -EBADMSG || tarball_why(t)[0]);
	tarball_free(t);
	return d;
}

static void fuzz_archive(const uint8_t *p, size_t n)
{
	struct digest whole = read_all(p, n, SIZE_MAX), cut = read_all(p, n, 7);

	must(whole.h == cut.h && whole.r == cut.r);
}

static void check_ref(const struct image_ref *r)
{
	must(image_digest_ok(r->digest) && !strchr(r->digest, '/') && r->media_type);
}

static void fuzz_doc(const char *p, size_t n)
{
	char why[IMAGE_DOC_WHY_MAX] = "";
	struct image_doc d;
	int r = image_doc_parse(p, n, &d, why);

	must(r == 0 || why[0] || r == -ENOMEM);
	if (r < 0)
		return;
	must(d.n <= (d.is_index ? IMAGE_LIST_MAX : IMAGE_LAYERS_MAX));
	if (!d.is_index)
		check_ref(&d.config);
	for (size_t i = 0; i < d.n; i++)
		check_ref(&d.list[i]);
	image_doc_fini(&d);
}

static void fuzz_config(const char *p, size_t n)
{
	char why[IMAGE_DOC_WHY_MAX] = "";
	struct image_config c;
	int r = image_config_parse(p, n, &c, why);

	must(r == 0 || why[0] || r == -ENOMEM);
	if (r < 0)
		return;
	for (char **e = c.env; *e; e++)
		must(strchr(*e, '=') > *e && strchr(*e, '=')[1]);
	for (size_t i = 0; i < c.n_diff_ids; i++)
		must(image_digest_ok(c.diff_ids[i]));
	image_config_fini(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	if (!n)
		return 0;
	switch (*p % 3) {
	case 0:
		fuzz_archive(p + 1, n - 1);
		break;
	case 1:
		fuzz_doc((const char *)p + 1, n - 1);
		break;
	default:
		fuzz_config((const char *)p + 1, n - 1);
		break;
	}
	return 0;
}
