/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cloud/model.h"

char *lines_join(const struct cloud_strs *l)
{
	size_t n = 1;
	char *text, *p;

	for (size_t i = 0; i < l->n; i++)
		n += strlen(l->v[i]) + 1;
	text = p = malloc(n);
	if (!text)
		return NULL;
	for (size_t i = 0; i < l->n; i++) {
		size_t len = strlen(l->v[i]);

		memcpy(p, l->v[i], len);
		p += len;
		*p++ = '\n';
	}
	*p = 0;
	return text;
}

int lines_split(struct cloud_strs *ret, const char *text)
{
	int r = 0;

	while (*text && !r) {
		size_t n = strcspn(text, "\n");
		char *line = strndup(text, n);

		r = line ? cloud_strs_add(ret, line) : -ENOMEM;
		free(line);
		text += n + (text[n] == '\n');
	}
	return r;
}
