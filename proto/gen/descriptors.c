/* SPDX-License-Identifier: MIT */
/* Look-ups in the generated tables. */
#include "proto/gen/descriptors.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"

#define FILES_MAX 64u	/* far above what the tree has; the closure walk keeps its marks on the stack */

const struct descriptor_file *descriptor_by_name(const char *name)
{
	for (size_t i = 0; i < n_descriptor_files; i++)
		if (!strcmp(descriptor_files[i].name, name))
			return &descriptor_files[i];
	return NULL;
}

static int by_name(const void *key, const void *element)
{
	const struct descriptor_symbol *s = element;

	return strcmp(key, s->name);
}

const struct descriptor_file *descriptor_by_symbol(const char *symbol)
{
	const struct descriptor_symbol *s = bsearch(symbol, descriptor_symbols, n_descriptor_symbols,
						    sizeof(*s), by_name);

	return s ? &descriptor_files[s->file] : NULL;
}

size_t descriptor_closure(const struct descriptor_file *f, const struct descriptor_file **ret)
{
	bool wanted[FILES_MAX] = { false };
	size_t n = 0;

	must(n_descriptor_files <= FILES_MAX);
	/* Imports come first in the table, so one walk from the end marks them all. */
	wanted[f - descriptor_files] = true;
	for (size_t i = n_descriptor_files; i-- > 0;)
		for (size_t d = 0; wanted[i] && d < descriptor_files[i].n_deps; d++)
			wanted[descriptor_files[i].deps[d]] = true;
	for (size_t i = 0; i < n_descriptor_files; i++)
		if (wanted[i])
			ret[n++] = &descriptor_files[i];
	return n;
}
