/* SPDX-License-Identifier: MIT */
/*
 * The reader of tar: never reads beyond its input, says the same however the bytes are cut, and what it
 * tells can be written and read again.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/wire/tar.h"
#include "client/cli/tree/tree.h"
#include "proto/base/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct digest {
	uint64_t h;
	unsigned entries;
	enum tar_event last;
};

static void mix(struct digest *d, const void *p, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		d->h = (d->h ^ b[i]) * 1099511628211ull;
}

static void check_again(const struct tar_entry *e)
{
	static uint8_t head[TAR_HEADER_MAX];
	struct tar_reader *r;
	const uint8_t *data;
	char name[TAR_NAME_MAX + 1];
	size_t n, used, k;

	strcpy(name, e->name);
	if (put_clean_name(name))
		must(name[0] != '/' && strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0);
	if (e->type >= TAR_DEVICE || (e->type != TAR_FILE && e->type != TAR_DIRECTORY && !*e->link && e->type != TAR_FIFO))
		return;
	n = tar_header(e, head);
	if (!n)
		return;
	r = calloc(1, sizeof(*r));
	must(r);
	must(tar_read(r, head, n, &used, &data, &k) == TAR_ENTRY && used == n);
	must(!strcmp(r->entry.name, e->name) && r->entry.size == e->size);
	must(r->entry.mtime_s == e->mtime_s && r->entry.mtime_ns == e->mtime_ns && r->entry.mode == e->mode);
	tar_reader_fini(r);
	free(r);
}

static struct digest digest(const uint8_t *p, size_t n, size_t piece)
{
	struct tar_reader *r = calloc(1, sizeof(*r));
	struct digest d = { .h = 14695981039346656037ull };

	must(r);
	for (size_t at = 0; at < n && d.last != TAR_BAD;) {
		size_t k = piece < n - at ? piece : n - at, used, len = 0;
		const uint8_t *data = NULL;

		do {
			d.last = tar_read(r, p + at, k, &used, &data, &len);
			must(used <= k);
			at += used;
			k -= used;
			if (d.last == TAR_ENTRY) {
				d.entries++;
				mix(&d, r->entry.name, strlen(r->entry.name));
				mix(&d, &r->entry.size, sizeof(r->entry.size));
				if (piece > 100)
					check_again(&r->entry);
			} else if (d.last == TAR_DATA) {
				must(data >= p && data + len <= p + n);
				mix(&d, data, len);
			}
		} while (d.last != TAR_MORE && d.last != TAR_BAD);
		must(d.last == TAR_BAD || k == 0);
	}
	tar_reader_fini(r);
	free(r);
	return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct digest whole = digest(p, n, n ? n : 1), bytes = digest(p, n, 1), odd = digest(p, n, 509);

	must(whole.entries == bytes.entries && whole.entries == odd.entries);
	must(whole.h == bytes.h && whole.h == odd.h);
	must((whole.last == TAR_BAD) == (bytes.last == TAR_BAD));
	return 0;
}
