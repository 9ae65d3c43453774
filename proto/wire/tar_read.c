/* SPDX-License-Identifier: MIT */
/* A reader of tar that is fed in pieces of any size: a state machine that keeps no data but a header's. */
#include "proto/wire/tar.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

#define SIZE_LIMIT ((uint64_t)INT64_MAX)

enum state {
	AT_HEADER = 0,
	AT_META,		/* data of a pax or GNU header */
	AT_ENTRY,		/* an entry was told; its data follows */
	AT_PADDING,
	AT_END,
	AT_FAULT,
};

/* Offsets of a header's fields. */
enum { NAME = 0, MODE = 100, UID = 108, GID = 116, SIZE = 124, MTIME = 136, CHECKSUM = 148, TYPE = 156, LINK = 157, MAGIC = 257,
       PREFIX = 345 };

static enum tar_event tar_bad(struct tar_reader *r, const char *why)
{
	r->state = AT_FAULT;
	r->why = why;
	return TAR_BAD;
}

void tar_reader_fini(struct tar_reader *r)
{
	free(r->pax);
	r->pax = NULL;
}

/* --- fields --- */

/* Octal digits with spaces or NULs around them, or GNU's base 256. */
static bool tar_number(const uint8_t *f, size_t n, int64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	if (f[0] & 0x80) {
		bool negative = f[0] & 0x40;

		v = negative ? ~0ull : 0;
		for (i = 0; i < n; i++) {
			uint8_t byte = i ? f[i] : negative ? f[0] : f[0] & 0x3f;

			if (v >> 55 != (negative ? 0x1ffu : 0))
				return false;	/* does not fit */
			v = v << 8 | byte;
		}
		*ret = (int64_t)v;
		return true;
	}
	while (i < n && f[i] == ' ')
		i++;
	for (; i < n && f[i] >= '0' && f[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(f[i] - '0');
	for (; i < n; i++)
		if (f[i] != ' ' && f[i] != '\0')
			return false;
	*ret = (int64_t)v;
	return true;
}

static bool checksum_is_right(const uint8_t *b)
{
	unsigned sum = 0;
	int64_t said;

	if (!tar_number(b + CHECKSUM, 8, &said))
		return false;
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= CHECKSUM && i < CHECKSUM + 8 ? ' ' : b[i];
	return said == (int64_t)sum;
}

static bool all_zero(const uint8_t *b)
{
	for (size_t i = 0; i < TAR_BLOCK; i++)
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
	return str_u64(p, n, SIZE_LIMIT, ret) == 0;
}

/* "[-]SECONDS[.FRACTION]" */
static bool pax_time(struct tar_reader *r, const char *p, size_t n)
{
	bool negative = n && p[0] == '-';
	const char *dot;
	uint64_t s;
	uint32_t ns = 0, unit = 100000000;

	p += negative;
	n -= negative;
	dot = memchr(p, '.', n);
	if (!decimal(p, dot ? (size_t)(dot - p) : n, &s))
		return false;
	for (const char *q = dot ? dot + 1 : p + n; q < p + n; q++) {
		if (*q < '0' || *q > '9')
			return false;
		ns += (uint32_t)(*q - '0') * unit;
		unit /= 10;
	}
	r->pax_mtime_s = negative ? -(int64_t)s - (ns ? 1 : 0) : (int64_t)s;
	r->pax_mtime_ns = negative && ns ? 1000000000u - ns : ns;
	r->has_mtime = true;
	return true;
}

static bool take_tar_name(char *to, const char *value, size_t n, bool *ret_has)
{
	if (!n || n > TAR_NAME_MAX || memchr(value, 0, n))
		return false;
	memcpy(to, value, n);
	to[n] = '\0';
	*ret_has = true;
	return true;
}

static bool is_key(const char *key, size_t n, const char *want)
{
	return n == strlen(want) && !memcmp(key, want, n);
}

static bool take_number(const char *value, size_t n, uint64_t *to, bool *ret_has)
{
	*ret_has = decimal(value, n, to);
	return *ret_has;
}

static bool take_record(struct tar_reader *r, const char *key, size_t n_key, const char *value, size_t n)
{
	if (is_key(key, n_key, "path"))
		return take_tar_name(r->name, value, n, &r->has_path);
	if (is_key(key, n_key, "linkpath"))
		return take_tar_name(r->link, value, n, &r->has_link);
	if (is_key(key, n_key, "mtime"))
		return pax_time(r, value, n);
	if (is_key(key, n_key, "size"))
		return take_number(value, n, &r->pax_size, &r->has_size);
	if (is_key(key, n_key, "uid"))
		return take_number(value, n, &r->pax_uid, &r->has_uid);
	if (is_key(key, n_key, "gid"))
		return take_number(value, n, &r->pax_gid, &r->has_gid);
	/* A file with holes has another shape, which we never ask for. */
	return n_key < 11 || memcmp(key, "GNU.sparse.", 11) != 0;
}

/* All records of a pax header: "LEN key=value\n"… */
static bool take_pax(struct tar_reader *r)
{
	const char *p = (const char *)r->pax, *end = p + r->n_pax;

	while (p < end) {
		const char *space = memchr(p, ' ', (size_t)(end - p)), *eq;
		uint64_t len;

		if (!space || !decimal(p, (size_t)(space - p), &len) || len > (uint64_t)(end - p) ||
		    len < (uint64_t)(space - p) + 3 || p[len - 1] != '\n')
			return false;
		eq = memchr(space + 1, '=', (size_t)(p + len - 1 - (space + 1)));
		if (!eq || !take_record(r, space + 1, (size_t)(eq - space - 1), eq + 1, (size_t)(p + len - 1 - eq - 1)))
			return false;
		p += len;
	}
	return true;
}

static bool take_meta(struct tar_reader *r)
{
	size_t n = strnlen((const char *)r->pax, r->n_pax);

	switch (r->type) {
	case 'x':
		return take_pax(r);
	case 'L':
		return take_tar_name(r->name, (const char *)r->pax, n, &r->has_path);
	case 'K':
		return take_tar_name(r->link, (const char *)r->pax, n, &r->has_link);
	default:		/* 'g' and what we do not know: nothing in it is for us */
		return true;
	}
}

/* --- headers --- */

static bool make_room(struct tar_reader *r, size_t n)
{
	uint8_t *pax = r->pax && n <= r->cap_pax ? r->pax : realloc(r->pax, n + 1);

	if (!pax)
		return false;
	r->pax = pax;
	r->cap_pax = n > r->cap_pax ? n : r->cap_pax;
	return true;
}

static enum tar_event begin_meta(struct tar_reader *r, int64_t size)
{
	if (size > TAR_PAX_MAX)
		return tar_bad(r, "an extended header is too large");
	if (++r->extensions > TAR_EXTENSIONS_MAX)
		return tar_bad(r, "an entry has too many extended headers");
	if (!make_room(r, (size_t)size))
		return tar_bad(r, "out of memory");
	r->n_pax = 0;
	r->left = (uint64_t)size;
	r->padding = tar_padding((uint64_t)size);
	r->state = AT_META;
	return TAR_MORE;
}

static enum tar_type type_of(char c)
{
	switch (c) {
	case '\0':
	case '0':
	case '7':
		return TAR_FILE;
	case '1':
		return TAR_HARD_LINK;
	case '2':
		return TAR_SYMLINK;
	case '3':
	case '4':
		return TAR_DEVICE;
	case '5':
		return TAR_DIRECTORY;
	case '6':
		return TAR_FIFO;
	default:
		return TAR_OTHER;
	}
}

static void take_ustar_name(struct tar_reader *r, const uint8_t *b)
{
	size_t n = 0;

	if (!memcmp(b + MAGIC, "ustar\0", 6) && b[PREFIX]) {
		n = take_field(r->name, b + PREFIX, 155);
		r->name[n++] = '/';
	}
	(void)take_field(r->name + n, b + NAME, 100);
}

/* What an extended header said is of this entry alone. */
static void forget_extensions(struct tar_reader *r)
{
	r->has_path = r->has_link = r->has_size = r->has_mtime = r->has_uid = r->has_gid = false;
	r->n_pax = 0;
	r->extensions = 0;
}

static bool take_numbers(struct tar_reader *r, const uint8_t *b)
{
	int64_t mode, uid, gid, mtime;

	if (!tar_number(b + MODE, 8, &mode) || !tar_number(b + UID, 8, &uid) || !tar_number(b + GID, 8, &gid) || !tar_number(b + MTIME, 12, &mtime) ||
	    uid < 0 || gid < 0)
		return false;
	r->entry = (struct tar_entry){ .name = r->name, .link = r->link, .mode = (uint32_t)mode & 07777,
				       .uid = r->has_uid ? r->pax_uid : (uint64_t)uid, .gid = r->has_gid ? r->pax_gid : (uint64_t)gid,
				       .mtime_s = r->has_mtime ? r->pax_mtime_s : mtime, .mtime_ns = r->has_mtime ? r->pax_mtime_ns : 0 };
	return true;
}

static enum tar_event begin_entry(struct tar_reader *r, const uint8_t *b, int64_t size)
{
	struct tar_entry *e = &r->entry;
	bool has_data;

	if (!r->has_path)
		take_ustar_name(r, b);
	if (!r->has_link)
		(void)take_field(r->link, b + LINK, 100);
	if (!take_numbers(r, b))
		return tar_bad(r, "a number in a header cannot be read");
	if (!*r->name)
		return tar_bad(r, "an entry has no name");
	e->type = type_of(r->type);
	/* Old archives mark a directory by its name alone. */
	if (e->type == TAR_FILE && r->name[strlen(r->name) - 1] == '/')
		e->type = TAR_DIRECTORY;
	has_data = e->type == TAR_FILE || e->type == TAR_OTHER;
	if (has_data)
		e->size = r->has_size ? r->pax_size : (uint64_t)size;
	r->left = e->size;
	r->padding = tar_padding(e->size);
	forget_extensions(r);
	r->state = AT_ENTRY;
	return TAR_ENTRY;
}

static enum tar_event take_header(struct tar_reader *r)
{
	const uint8_t *b = r->block;
	int64_t size;

	if (all_zero(b)) {
		if (r->has_path || r->has_link)
			return tar_bad(r, "an extended header without an entry");
		r->state = r->zeros ? AT_END : AT_HEADER;
		r->zeros = true;
		return r->state == AT_END ? TAR_END : TAR_MORE;
	}
	if (r->zeros)
		return tar_bad(r, "data behind the end");
	if (!checksum_is_right(b))
		return tar_bad(r, "this is no header of tar");
	if (!tar_number(b + SIZE, 12, &size) || size < 0)
		return tar_bad(r, "a number in a header cannot be read");
	r->type = (char)b[TYPE];
	if (r->type == 'x' || r->type == 'g' || r->type == 'L' || r->type == 'K')
		return begin_meta(r, size);
	return begin_entry(r, b, size);
}

/* --- the stream --- */

static enum tar_event feed_meta(struct tar_reader *r, const uint8_t *p, size_t n, size_t *used)
{
	size_t k = r->left < n ? (size_t)r->left : n;

	memcpy(r->pax + r->n_pax, p, k);
	r->n_pax += k;
	r->left -= k;
	*used += k;
	if (r->left)
		return TAR_MORE;
	if (!take_meta(r))
		return tar_bad(r, "an extended header cannot be read, or is of a file with holes");
	r->n_pax = 0;
	r->state = AT_PADDING;
	return TAR_MORE;
}

static enum tar_event step(struct tar_reader *r, const uint8_t *p, size_t n, size_t *used, const uint8_t **ret_data,
			   size_t *ret_n)
{
	size_t k;

	switch (r->state) {
	case AT_HEADER:
		k = TAR_BLOCK - r->n_block < n ? TAR_BLOCK - r->n_block : n;
		memcpy(r->block + r->n_block, p, k);
		r->n_block += k;
		*used += k;
		if (r->n_block < TAR_BLOCK)
			return TAR_MORE;
		r->n_block = 0;
		return take_header(r);
	case AT_META:
		return feed_meta(r, p, n, used);
	case AT_ENTRY:
		k = r->left < n ? (size_t)r->left : n;
		if (!r->left) {
			r->state = AT_PADDING;
			return TAR_ENTRY_END;
		}
		if (!k)
			return TAR_MORE;
		*ret_data = p;
		*ret_n = k;
		*used += k;
		r->left -= k;
		return TAR_DATA;
	default:
		k = r->padding < n ? (size_t)r->padding : n;
		*used += k;
		r->padding -= k;
		if (!r->padding)
			r->state = AT_HEADER;
		return TAR_MORE;
	}
}

bool tar_may_end(const struct tar_reader *r)
{
	return r->state == AT_END || (r->zeros && !r->n_block);
}

enum tar_event tar_read(struct tar_reader *r, const uint8_t *p, size_t n, size_t *used, const uint8_t **ret_data,
			size_t *ret_n)
{
	enum tar_event e;

	*used = 0;
	if (r->state == AT_FAULT)
		return TAR_BAD;
	if (r->state == AT_END) {
		*used = n;
		return TAR_MORE;
	}
	do {
		e = step(r, p + *used, n - *used, used, ret_data, ret_n);
	} while (e == TAR_MORE && (*used < n || (r->state == AT_PADDING && !r->padding) ||
				   (r->state == AT_META && !r->left)) &&
		 r->state != AT_END);
	return e;
}
