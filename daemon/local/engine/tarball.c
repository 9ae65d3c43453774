/* SPDX-License-Identifier: MIT */
#include "daemon/local/engine/tarball.h"

#include <errno.h>
#include <stdlib.h>

struct tarball {
	struct tarball_source *source;
	struct tar_reader reader;
	const char *why;
	size_t at, n;			/* of `piece`: used, filled */
	uint8_t piece[128 * TAR_BLOCK];
};

int tarball_new(struct tarball_source *s, struct tarball **ret)
{
	struct tarball *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->source = s;
	t->why = "";
	*ret = t;
	return 0;
}

struct tarball *tarball_free(struct tarball *t)
{
	if (t)
		tar_reader_fini(&t->reader);
	free(t);
	return NULL;
}

const char *tarball_why(const struct tarball *t)
{
	return t->why;
}

static int broken(struct tarball *t, const char *why)
{
	t->why = why;
	return -EBADMSG;
}

/* More bytes for the reader: 1; 0 if the archive has ended where it may. */
static int fill(struct tarball *t)
{
	ssize_t n = t->source->read(t->source, t->piece, sizeof(t->piece));

	if (n < 0)
		return (int)n;
	t->at = 0;
	t->n = (size_t)n;
	if (n == 0 && !tar_may_end(&t->reader))
		return broken(t, "it ends without its mark of the end");
	return n > 0;
}

/* What comes next of TAR_ENTRY, TAR_DATA, TAR_ENTRY_END and TAR_END. */
static int next_event(struct tarball *t, enum tar_event *ret, const uint8_t **ret_data, size_t *ret_n)
{
	for (;;) {
		size_t used;
		int r;

		*ret = tar_read(&t->reader, t->piece + t->at, t->n - t->at, &used, ret_data, ret_n);
		t->at += used;
		if (*ret == TAR_BAD)
			return broken(t, t->reader.why);
		if (*ret != TAR_MORE)
			return 0;
		r = fill(t);
		if (r < 0)
			return r;
		if (r == 0) {
			*ret = TAR_END;
			return 0;
		}
	}
}

static int check_entry(struct tarball *t)
{
	const struct tar_entry *e = &t->reader.entry;

	if (e->type == TAR_OTHER)
		return broken(t, "an entry is of a kind that is not known");
	if ((e->type == TAR_HARD_LINK || e->type == TAR_SYMLINK) && !*e->link)
		return broken(t, "a link leads nowhere");
	return 1;
}

int tarball_next(struct tarball *t, const struct tar_entry **ret)
{
	enum tar_event e;
	const uint8_t *data;
	size_t n;
	int r;

	do {
		r = next_event(t, &e, &data, &n);
	} while (r == 0 && e != TAR_ENTRY && e != TAR_END);
	if (r < 0 || e == TAR_END)
		return r;
	*ret = &t->reader.entry;
	return check_entry(t);
}

ssize_t tarball_data(struct tarball *t, const void **ret)
{
	enum tar_event e;
	const uint8_t *data;
	size_t n;
	int r = next_event(t, &e, &data, &n);

	if (r < 0 || e != TAR_DATA)
		return r;
	*ret = data;
	return (ssize_t)n;
}
