/* SPDX-License-Identifier: MIT */
#include "client/cli/cmd/diag_mask.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/term/cli.h"

#define ID_MIN 8u	/* of a host's first label; shorter ones are words */


static bool is_id_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static size_t id_length(const char *p)
{
	size_t n = 0;

	while (is_id_char(p[n]))
		n++;
	return n;
}

void diag_mask_fini(struct diag_mask *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->ids[i]);
	free(m->ids);
	*m = (struct diag_mask){ 0 };
}

static void print_id(struct diag_mask *m, FILE *f, const char *id, size_t n)
{
	size_t i = 0;

	while (i < m->n && (strlen(m->ids[i]) != n || memcmp(m->ids[i], id, n)))
		i++;
	if (i == m->n && i < DIAG_IDS_MAX) {
		char **ids = reallocarray(m->ids, i + 1, sizeof(char *));

		m->ids = ids ? ids : m->ids;
		if (ids && (ids[i] = strndup(id, n)))
			m->n++;
	}
	if (i < m->n)
		fprintf(f, "#%zu", i + 1);
	else
		(void)fputs("#many", f);
}

/* "sandbox=", "made=" and their like in JSON. Returns what is to be printed before the id, 0 = none begins here. */
static size_t key_length(const char *p)
{
	static const char *const keys[] = { "sandbox=\"", "sandbox=", "made=\"", "made=", "\"sandbox\": \"", "\"sandbox\":\"" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strncmp(p, keys[i], strlen(keys[i])))
			return strlen(keys[i]);
	return 0;
}

/* "49983-ID.": the length up to the id. */
static size_t port_length(const char *p)
{
	size_t n = strspn(p, "0123456789"), id;

	if (!n || p[n] != '-')
		return 0;
	id = strspn(p + n + 1, "abcdefghijklmnopqrstuvwxyz0123456789");
	return id >= ID_MIN && p[n + 1 + id] == '.' ? n + 1 : 0;
}

/* A key of one of the clouds, or a token of the gateway. */
static bool is_secret(const char *p)
{
	return (!strncmp(p, "e2b_", 4) && id_length(p) >= 12) || (!strncmp(p, "ab_", 3) && id_length(p) >= 23);
}

void diag_mask_print(struct diag_mask *m, FILE *f, const char *text)
{
	bool begins = true;	/* of a word */

	while (*text) {
		size_t before = begins ? key_length(text) : 0, n;

		if (!before && begins)
			before = port_length(text);
		n = before ? id_length(text + before) : 0;
		if (n) {
			(void)fwrite(text, 1, before, f);
			print_id(m, f, text + before, n);
			text += before + n;
		} else if (begins && is_secret(text)) {
			(void)fputs("***", f);
			text += id_length(text);
		} else {
			begins = !is_id_char(*text);
			(void)fputc(*text++, f);
			continue;
		}
		begins = false;
	}
}
