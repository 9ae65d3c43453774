/* SPDX-License-Identifier: MIT */
#include "daemon/local/engine/tarball.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_LIMIT     ((uint64_t)INT64_MAX)
#define EXTENSIONS_MAX 16	/* of one entry */

/* Offsets of a header's fields. */
enum { NAME = 0, MODE = 100, UID = 108, GID = 116, SIZE = 124, MTIME = 136, CHECKSUM = 148, TYPE = 156, LINK = 157, MAGIC = 257,
       PREFIX = 345 };

struct tarball {
	struct tarball_source *source;
	struct tarball_entry entry;
	const char *why;
	uint64_t left, padding;		/* of the entry's data */
	char *pax;			/* of TARBALL_PAX_MAX + 1, once it is needed */
	bool has_path, has_link, has_size, has_mtime, has_uid, has_gid;
	uint64_t size, uid, gid;
	int64_t mtime_s;
	uint32_t mtime_ns;
	char name[TARBALL_NAME_MAX + 1], link[TARBALL_NAME_MAX + 1];
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
		free(t->pax);
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

/* --- bytes --- */

/* All n bytes; 0 if the source ended before the first of them. */
static ssize_t read_all(struct tarball *t, void *p, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t k = t->source->read(t->source, (char *)p + got, n - got);

		if (k < 0)
			return k;
		if (k == 0)
			return got ? broken(t, "it ends in the middle") : 0;
		got += (size_t)k;
	}
	return (ssize_t)n;
}

static int skip(struct tarball *t, uint64_t n)
{
	char piece[16 * TARBALL_BLOCK];

	while (n) {
		size_t want = n < sizeof(piece) ? (size_t)n : sizeof(piece);
		ssize_t k = read_all(t, piece, want);

		if (k <= 0)
			return k < 0 ? (int)k : broken(t, "it ends in the middle");
		n -= want;
	}
	return 0;
}

static uint64_t padding_of(uint64_t size)
{
	return (TARBALL_BLOCK - size % TARBALL_BLOCK) % TARBALL_BLOCK;
}

/* --- fields --- */

/* GNU's base 256: not below 0, and no more than fits. */
static bool binary(const uint8_t *f, size_t n, uint64_t *ret)
{
	uint64_t v = f[0] & 0x3f;

	if (f[0] & 0x40)
		return false;
	for (size_t i = 1; i < n; i++) {
		if (v > SIZE_LIMIT >> 8)
			return false;
		v = v << 8 | f[i];
	}
	*ret = v;
	return true;
}

/* Octal digits with spaces or NULs around them, or base 256. */
static bool number(const uint8_t *f, size_t n, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	if (f[0] & 0x80)
		return binary(f, n, ret);
	while (i < n && f[i] == ' ')
		i++;
	for (; i < n && f[i] >= '0' && f[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(f[i] - '0');
	for (; i < n; i++)
		if (f[i] != ' ' && f[i] != '\0')
			return false;
	*ret = v;
	return true;
}

static bool checksum_is_right(const uint8_t *b)
{
	uint64_t said, sum = 0;

	for (size_t i = 0; i < TARBALL_BLOCK; i++)
		sum += i >= CHECKSUM && i < CHECKSUM + 8 ? ' ' : b[i];
	return number(b + CHECKSUM, 8, &said) && said == sum;
}

static bool all_zero(const uint8_t *b)
{
	for (size_t i = 0; i < TARBALL_BLOCK; i++)
		if (b[i])
			return false;
	return true;
}

static size_t take_field(char *to, const uint8_t *f, size_t n)
{
	size_t k = strnlen((const char *)f, n);

	memcpy(to, f, k);
	to[k] = '\0';
	return k;
}

/* --- extended headers --- */

static bool decimal(const char *p, size_t n, uint64_t *ret)
{
	uint64_t v = 0;

	if (!n)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9' || v > (SIZE_LIMIT - 9) / 10)
			return false;
		v = v * 10 + (uint64_t)(p[i] - '0');
	}
	*ret = v;
	return true;
}

/* "SECONDS[.FRACTION]"; times before 1970 are 1970. */
static bool pax_time(struct tarball *t, const char *p, size_t n)
{
	const char *dot = memchr(p, '.', n);
	bool negative = n && *p == '-';
	uint64_t s;
	uint32_t ns = 0, unit = 100000000;

	if (!decimal(p + negative, (dot ? (size_t)(dot - p) : n) - negative, &s))
		return false;
	for (const char *q = dot ? dot + 1 : p + n; q < p + n; q++) {
		if (*q < '0' || *q > '9')
			return false;
		ns += (uint32_t)(*q - '0') * unit;
		unit /= 10;
	}
	t->mtime_s = negative ? 0 : (int64_t)s;
	t->mtime_ns = negative ? 0 : ns;
	t->has_mtime = true;
	return true;
}

static bool copy_name(char *to, const char *value, size_t n, bool *ret_has)
{
	if (!n || n > TARBALL_NAME_MAX || memchr(value, 0, n))
		return false;
	memcpy(to, value, n);
	to[n] = '\0';
	*ret_has = true;
	return true;
}

static bool take_number(const char *value, size_t n, uint64_t *to, bool *ret_has)
{
	*ret_has = decimal(value, n, to);
	return *ret_has;
}

static bool is_key(const char *key, size_t n, const char *want)
{
	return n == strlen(want) && !memcmp(key, want, n);
}

static bool take_record(struct tarball *t, const char *key, size_t n_key, const char *value, size_t n)
{
	if (is_key(key, n_key, "path"))
		return copy_name(t->name, value, n, &t->has_path);
	if (is_key(key, n_key, "linkpath"))
		return copy_name(t->link, value, n, &t->has_link);
	if (is_key(key, n_key, "mtime"))
		return pax_time(t, value, n);
	if (is_key(key, n_key, "size"))
		return take_number(value, n, &t->size, &t->has_size);
	if (is_key(key, n_key, "uid"))
		return take_number(value, n, &t->uid, &t->has_uid);
	if (is_key(key, n_key, "gid"))
		return take_number(value, n, &t->gid, &t->has_gid);
	/* A file with holes has another shape. */
	return n_key < 11 || memcmp(key, "GNU.sparse.", 11) != 0;
}

/* All records of a pax header: "LEN key=value\n"… */
static bool take_pax(struct tarball *t, size_t n)
{
	const char *p = t->pax, *end = p + n;

	while (p < end) {
		const char *space = memchr(p, ' ', (size_t)(end - p)), *eq;
		uint64_t len;

		if (!space || !decimal(p, (size_t)(space - p), &len) || len > (uint64_t)(end - p) ||
		    len < (uint64_t)(space - p) + 3 || p[len - 1] != '\n')
			return false;
		eq = memchr(space + 1, '=', (size_t)(p + len - 1 - (space + 1)));
		if (!eq || !take_record(t, space + 1, (size_t)(eq - space - 1), eq + 1, (size_t)(p + len - 1 - eq - 1)))
			return false;
		p += len;
	}
	return true;
}

static bool take_extension(struct tarball *t, char type, size_t n)
{
	size_t text = strnlen(t->pax, n);

	switch (type) {
	case 'x':
		return take_pax(t, n);
	case 'L':
		return copy_name(t->name, t->pax, text, &t->has_path);
	case 'K':
		return copy_name(t->link, t->pax, text, &t->has_link);
	default:	/* 'g': nothing in it is for us */
		return true;
	}
}

static int read_extension(struct tarball *t, char type, uint64_t size)
{
	ssize_t k;

	if (size > TARBALL_PAX_MAX)
		return broken(t, "an extended header is too large");
	if (!t->pax)
		t->pax = malloc(TARBALL_PAX_MAX + 1);
	if (!t->pax)
		return -ENOMEM;
	k = size ? read_all(t, t->pax, (size_t)size) : 0;
	if (k < 0)
		return (int)k;
	if ((uint64_t)k < size)
		return broken(t, "it ends in the middle");
	if (!take_extension(t, type, (size_t)size))
		return broken(t, "an extended header cannot be read, or is of a file with holes");
	return skip(t, padding_of(size));
}

/* --- headers --- */

static bool type_of(char c, enum tarball_type *ret)
{
	static const char known[] = "0123456";
	static const enum tarball_type types[] = { TARBALL_FILE, TARBALL_HARD_LINK, TARBALL_SYMLINK, TARBALL_DEVICE, TARBALL_DEVICE,
						   TARBALL_DIRECTORY, TARBALL_FIFO };
	const char *at;

	if (!c || c == '7')
		c = '0';
	at = strchr(known, c);
	if (!at)
		return false;
	*ret = types[at - known];
	return true;
}

static void take_ustar_name(struct tarball *t, const uint8_t *b)
{
	size_t n = 0;

	if (!memcmp(b + MAGIC, "ustar\0", 6) && b[PREFIX]) {
		n = take_field(t->name, b + PREFIX, 155);
		t->name[n++] = '/';
	}
	(void)take_field(t->name + n, b + NAME, 100);
}

/* What an extended header said is of this entry alone. */
static void forget_extension(struct tarball *t)
{
	t->has_path = t->has_link = t->has_size = t->has_mtime = t->has_uid = t->has_gid = false;
}

static int take_numbers(struct tarball *t, const uint8_t *b, uint64_t *ret_size)
{
	struct tarball_entry *e = &t->entry;
	uint64_t mode, mtime;

	if (!number(b + MODE, 8, &mode) || !number(b + UID, 8, &e->uid) || !number(b + GID, 8, &e->gid) ||
	    !number(b + SIZE, 12, ret_size) || *ret_size > SIZE_LIMIT)
		return broken(t, "a number in a header cannot be read");
	if (!number(b + MTIME, 12, &mtime))
		mtime = 0;	/* before 1970 */
	e->mode = (uint32_t)mode & 07777;
	e->mtime_s = t->has_mtime ? t->mtime_s : (int64_t)(mtime & SIZE_LIMIT);
	e->mtime_ns = t->has_mtime ? t->mtime_ns : 0;
	e->uid = t->has_uid ? t->uid : e->uid;
	e->gid = t->has_gid ? t->gid : e->gid;
	return 0;
}

static int take_entry(struct tarball *t, const uint8_t *b)
{
	struct tarball_entry *e = &t->entry;
	uint64_t size;
	int r;

	if (!t->has_path)
		take_ustar_name(t, b);
	if (!t->has_link)
		(void)take_field(t->link, b + LINK, 100);
	*e = (struct tarball_entry){ .name = t->name, .link = t->link };
	if (!type_of((char)b[TYPE], &e->type))
		return broken(t, "an entry is of a kind that is not known");
	r = take_numbers(t, b, &size);
	if (r < 0)
		return r;
	if (!*t->name || ((e->type == TARBALL_HARD_LINK || e->type == TARBALL_SYMLINK) && !*t->link))
		return broken(t, "an entry has no name, or a link leads nowhere");
	/* Old archives mark a directory by its name alone. */
	if (e->type == TARBALL_FILE && t->name[strlen(t->name) - 1] == '/')
		e->type = TARBALL_DIRECTORY;
	if (e->type == TARBALL_FILE)
		e->size = t->has_size ? t->size : size;
	t->left = e->size;
	t->padding = padding_of(e->size);
	forget_extension(t);
	return 1;
}

static bool is_extension(char type)
{
	return type == 'x' || type == 'g' || type == 'L' || type == 'K';
}

int tarball_next(struct tarball *t, const struct tarball_entry **ret)
{
	uint8_t b[TARBALL_BLOCK];
	int r = skip(t, t->left + t->padding), extensions = 0;

	t->left = t->padding = 0;
	while (r == 0) {
		ssize_t k = read_all(t, b, sizeof(b));
		uint64_t size;

		if (k < 0)
			return (int)k;
		if (k == 0)
			return broken(t, "it ends without its mark of the end");
		if (all_zero(b))
			return t->has_path || t->has_link ? broken(t, "an extended header without an entry") : 0;
		if (!checksum_is_right(b))
			return broken(t, "this is no header of tar");
		if (!is_extension((char)b[TYPE])) {
			*ret = &t->entry;
			return take_entry(t, b);
		}
		if (++extensions > EXTENSIONS_MAX)
			return broken(t, "an entry has too many extended headers");
		r = number(b + SIZE, 12, &size) ? read_extension(t, (char)b[TYPE], size) :
						  broken(t, "a number in a header cannot be read");
	}
	return r;
}

ssize_t tarball_data(struct tarball *t, void *p, size_t n)
{
	size_t want = t->left < n ? (size_t)t->left : n;
	ssize_t k = want ? read_all(t, p, want) : 0;

	if (want && k == 0)
		return broken(t, "it ends in the middle");
	if (k > 0)
		t->left -= (uint64_t)k;
	return k;
}
