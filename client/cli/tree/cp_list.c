/* SPDX-License-Identifier: MIT */
/* The tree that is in the sandbox, by find. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/tree/cp_tree.h"
#include "client/cli/tree/remote.h"

#define LIST_MAX_BYTES (512u * 1024 * 1024)

static const char script[] =
	"find --version 2>/dev/null | grep -q GNU || exit 127\n"
	"p=$(printf '%b.' \"$1\"); cd -- \"${p%.}\" || exit 1\n"
	"exec find . -printf '%y %m %s %T@ %P\\0%l\\0'\n";

/* --- the answer, whole --- */

struct text {
	char *p;
	size_t n, cap;
};

static bool add(struct text *t, const void *p, size_t n)
{
	if (t->n + n + 1 > t->cap) {
		size_t cap = 2 * (t->n + n + 1);
		char *more = cap <= LIST_MAX_BYTES ? realloc(t->p, cap) : NULL;

		if (!more)
			return false;
		t->p = more;
		t->cap = cap;
	}
	memcpy(t->p + t->n, p, n);
	t->n += n;
	t->p[t->n] = '\0';
	return true;
}

/* --- its records --- */

static bool parse_number(const char **p, unsigned base, uint64_t *ret)
{
	const char *from = *p;

	for (*ret = 0; **p >= '0' && **p < (char)('0' + base); ++*p) {
		if (*ret > (UINT64_MAX - base) / base)
			return false;
		*ret = *ret * base + (uint64_t)(**p - '0');
	}
	return *p != from;
}

/* "[-]S.FRACTION": GNU find prints the kernel's two numbers, so the fraction always counts upwards. */
static bool parse_time(const char **p, struct far_node *f)
{
	bool negative = **p == '-';
	uint32_t unit = 100000000;
	uint64_t s;

	*p += negative;
	if (!parse_number(p, 10, &s) || s > INT64_MAX)
		return false;
	f->mtime_s = negative ? -(int64_t)s : (int64_t)s;
	if (**p != '.')
		return true;
	for (++*p; **p >= '0' && **p <= '9'; ++*p, unit /= 10)
		f->mtime_ns += (uint32_t)(**p - '0') * unit;
	return true;
}

/* One record and its link behind it. *used: bytes of both. */
static bool parse_record(const char *p, size_t n, struct far_node *f, size_t *used)
{
	const char *nul = memchr(p, 0, n), *nul2 = nul ? memchr(nul + 1, 0, n - (size_t)(nul + 1 - p)) : NULL;
	const char *at = p + 2;
	uint64_t mode;

	if (!nul2 || nul - p < 8 || p[1] != ' ')
		return false;
	*f = (struct far_node){ .type = p[0] };
	if (!parse_number(&at, 8, &mode) || *at++ != ' ' || !parse_number(&at, 10, &f->size) || *at++ != ' ' ||
	    !parse_time(&at, f) || *at++ != ' ')
		return false;
	f->mode = (uint32_t)mode & 07777;
	f->rel = strdup(at);
	f->link = strdup(nul + 1);
	*used = (size_t)(nul2 + 1 - p);
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct far_node *)a)->rel, ((const struct far_node *)b)->rel);
}

static int parse(const struct text *t, struct far_tree *ret)
{
	struct far_tree f = { 0 };
	size_t cap = 0, used;

	for (size_t at = 0; at < t->n; at += used, f.n++) {
		if (f.n == cap) {
			struct far_node *v = reallocarray(f.v, cap ? 2 * cap : 256, sizeof(*v));

			if (!v) {
				far_tree_fini(&f);
				return -ENOMEM;
			}
			f.v = v;
			cap = cap ? 2 * cap : 256;
		}
		if (!parse_record(t->p + at, t->n - at, &f.v[f.n], &used)) {
			far_tree_fini(&f);
			return -EPROTO;
		}
		if (!f.v[f.n].rel || !f.v[f.n].link) {
			f.n++;
			far_tree_fini(&f);
			return -ENOMEM;
		}
	}
	if (f.n)
		qsort(f.v, f.n, sizeof(*f.v), by_name);
	*ret = f;
	return 0;
}

void far_tree_fini(struct far_tree *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->v[i].rel);
		free(f->v[i].link);
	}
	free(f->v);
	*f = (struct far_tree){ .unknown = f->unknown };
}

const struct far_node *far_find(const struct far_tree *f, const char *rel)
{
	const struct far_node key = { .rel = (char *)rel };

	return f->n ? bsearch(&key, f->v, f->n, sizeof(key), by_name) : NULL;
}

bool far_is_same(const struct far_node *f, const struct stat *st, const char *link)
{
	char type = S_ISREG(st->st_mode) ? 'f' : S_ISDIR(st->st_mode) ? 'd' : S_ISLNK(st->st_mode) ? 'l' :
		    S_ISFIFO(st->st_mode) ? 'p' : '?';

	if (f->type != type)
		return false;
	if (type == 'l')
		return link && !strcmp(f->link, link);
	/* set-user-id and the like do not travel down */
	if ((f->mode & 0777) != (st->st_mode & 0777))
		return false;
	if (type == 'f' && f->size != (uint64_t)st->st_size)
		return false;
	return f->mtime_s == st->st_mtim.tv_sec &&
	       (f->mtime_ns == (uint32_t)st->st_mtim.tv_nsec || !f->mtime_ns || !st->st_mtim.tv_nsec);
}

int cp_list(struct cp_tree *t, struct far_tree *ret)
{
	const char *const argv[] = { "/bin/sh", "-c", script, "sh", t->remote_word, NULL };
	struct remote r = { .cli = t->cli, .sig_fd = t->sig_fd };
	struct text text = { 0 };
	const void *p;
	size_t n;
	int code = remote_start(&r, t->sandbox, t->user, argv, false), k = 0;

	while (code == EXIT_OK && !r.signo && (k = remote_read(&r, &p, &n)) >= 0) {
		if (k == 0)
			remote_wait(&r);
		else if (!add(&text, p, n))
			code = EXIT_ERROR;
	}
	t->signo = r.signo;
	if (r.signo)
		code = 128 + r.signo;
	else if (code != EXIT_OK)
		say(t->cli, "the list of the tree in the sandbox is too long");
	else if (r.known && r.exit_code == 127)
		ret->unknown = true;
	else
		code = remote_verdict(&r, "find");
	if (code == EXIT_OK && !ret->unknown) {
		k = parse(&text, ret);
		if (k < 0) {
			say(t->cli, "cannot read the list of the tree in the sandbox: %s", strerror(-k));
			code = EXIT_ERROR;
		}
	}
	remote_close(&r);
	free(text.p);
	return code;
}
