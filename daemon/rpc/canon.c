/* SPDX-License-Identifier: MIT */
/* Depth and counts were bounded by the scan, so recursion and sorting are too. */
#include "daemon/rpc/canon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/gen/scan.h"

struct ranked {
	ProtobufCMessage *entry;
	size_t rank;		/* place in the request: of equal keys the last one counts */
};

static void *member(ProtobufCMessage *m, size_t offset)
{
	return (char *)m + offset;
}

/* Map keys of ours are strings; the first field of an entry. */
static const char *key_of(const ProtobufCMessage *entry)
{
	return *(char *const *)member((ProtobufCMessage *)entry, entry->descriptor->fields[0].offset);
}

static int by_key(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	int r = strcmp(key_of(x->entry), key_of(y->entry));

	return r ? r : x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int sort_map(ProtobufCMessage **entries, size_t *n)
{
	struct ranked *all = malloc(*n * sizeof(*all));
	size_t kept = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < *n; i++)
		all[i] = (struct ranked){ entries[i], i };
	qsort(all, *n, sizeof(*all), by_key);
	for (size_t i = 0; i < *n; i++) {
		if (i + 1 < *n && !strcmp(key_of(all[i].entry), key_of(all[i + 1].entry)))
			protobuf_c_message_free_unpacked(all[i].entry, NULL);
		else
			entries[kept++] = all[i].entry;
	}
	*n = kept;
	free(all);
	return 0;
}

static int canon_repeated(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	size_t *n = member(m, f->quantifier_offset);
	ProtobufCMessage **v = *(ProtobufCMessage ***)member(m, f->offset);
	const ProtobufCMessageDescriptor *type = f->descriptor;
	int r = 0;

	if (*n > 1 && scan_is_map_entry(type) && type->fields[0].type == PROTOBUF_C_TYPE_STRING)
		r = sort_map(v, n);
	for (size_t i = 0; !r && i < *n; i++)
		r = canon_message(v[i]);
	return r;
}

static bool is_set(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	return !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
	       *(uint32_t *)member(m, f->quantifier_offset) == f->id;
}

static void drop_unknown(ProtobufCMessage *m)
{
	for (unsigned i = 0; i < m->n_unknown_fields; i++)
		free(m->unknown_fields[i].data);
	free(m->unknown_fields);
	m->unknown_fields = NULL;
	m->n_unknown_fields = 0;
}

int canon_message(ProtobufCMessage *m)
{
	int r = 0;

	drop_unknown(m);
	for (unsigned i = 0; !r && i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];

		if (f->type != PROTOBUF_C_TYPE_MESSAGE)
			continue;
		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			r = canon_repeated(m, f);
		else if (is_set(m, f) && *(ProtobufCMessage **)member(m, f->offset))
			r = canon_message(*(ProtobufCMessage **)member(m, f->offset));
	}
	return r;
}
