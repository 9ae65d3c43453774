/* SPDX-License-Identifier: MIT */
/* Headers of tar: one of ustar, and a pax header before it for what does not fit there. */
#include "proto/wire/tar.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES   100u
#define PREFIX_BYTES 155u
#define OCTAL_SIZE   077777777777ull	/* what eleven octal digits hold */

struct ustar {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct ustar) == TAR_BLOCK, "a header is a block");

static void put_octal(char *field, size_t n, uint64_t v)
{
	field[--n] = '\0';
	while (n) {
		field[--n] = (char)('0' + (v & 7));
		v >>= 3;
	}
}

static void put_bytes(char *field, size_t n, const char *text)
{
	size_t k = strnlen(text, n);

	memcpy(field, text, k);		/* a full field has no NUL */
}

/* Splits at a slash so that both parts fit. False: they do not. */
static bool put_name(struct ustar *h, const char *name)
{
	size_t n = strlen(name);

	if (n <= NAME_BYTES) {
		put_bytes(h->name, NAME_BYTES, name);
		return true;
	}
	for (size_t at = n > NAME_BYTES + 1 ? n - NAME_BYTES - 1 : 0; at < n && at <= PREFIX_BYTES; at++)
		if (at && name[at] == '/' && name[at + 1]) {
			memcpy(h->prefix, name, at);
			put_bytes(h->name, NAME_BYTES, name + at + 1);
			return true;
		}
	return false;
}

static void put_checksum(struct ustar *h)
{
	const uint8_t *p = (const uint8_t *)h;
	unsigned sum = 0;

	memset(h->checksum, ' ', sizeof(h->checksum));
	for (size_t i = 0; i < sizeof(*h); i++)
		sum += p[i];
	put_octal(h->checksum, 7, sum);
	h->checksum[7] = ' ';
}

static void put_common(struct ustar *h, char type, uint64_t size, uint32_t mode, int64_t mtime_s)
{
	put_octal(h->mode, sizeof(h->mode), mode & 07777);
	put_octal(h->uid, sizeof(h->uid), 0);
	put_octal(h->gid, sizeof(h->gid), 0);
	put_octal(h->size, sizeof(h->size), size <= OCTAL_SIZE ? size : 0);
	put_octal(h->mtime, sizeof(h->mtime), mtime_s >= 0 && mtime_s <= (int64_t)OCTAL_SIZE ? (uint64_t)mtime_s : 0);
	h->type = type;
	memcpy(h->magic, "ustar", 6);
	memcpy(h->version, "00", 2);
	put_octal(h->major, sizeof(h->major), 0);
	put_octal(h->minor, sizeof(h->minor), 0);
}

/* "LEN key=value\n", where LEN counts itself. */
static size_t put_record(uint8_t *p, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3, n = rest + 1;
	char digits[24];

	while ((size_t)snprintf(digits, sizeof(digits), "%zu", n) + rest != n)
		n = rest + strlen(digits);
	memcpy(p, digits, strlen(digits));
	p += strlen(digits);
	*p++ = ' ';
	memcpy(p, key, strlen(key));
	p += strlen(key);
	*p++ = '=';
	memcpy(p, value, strlen(value));
	p[strlen(value)] = '\n';
	return n;
}

/* Seconds and a fraction towards later, as pax wants it: -0.5 is "-0.5". */
static void time_text(const struct tar_entry *e, char ret[40])
{
	bool negative = e->mtime_s < 0;
	uint64_t s = negative ? (uint64_t)-(e->mtime_s + (e->mtime_ns ? 1 : 0)) : (uint64_t)e->mtime_s;
	uint32_t ns = negative && e->mtime_ns ? 1000000000u - e->mtime_ns : e->mtime_ns;

	snprintf(ret, 40, "%s%llu.%09u", negative ? "-" : "", (unsigned long long)s, ns);
}

/* The records that the ustar header cannot hold; 0 if there are none. */
static size_t pax_records(const struct tar_entry *e, bool name_fits, uint8_t *p)
{
	char text[40];
	size_t n = 0;

	if (!name_fits)
		n += put_record(p + n, "path", e->name);
	if (strlen(e->link) > NAME_BYTES)
		n += put_record(p + n, "linkpath", e->link);
	if (e->size > OCTAL_SIZE) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)e->size);
		n += put_record(p + n, "size", text);
	}
	if (e->mtime_ns || e->mtime_s < 0 || e->mtime_s > (int64_t)OCTAL_SIZE) {
		time_text(e, text);
		n += put_record(p + n, "mtime", text);
	}
	return n;
}

size_t tar_header(const struct tar_entry *e, uint8_t *buf)
{
	static const char types[] = { [TAR_FILE] = '0', [TAR_HARD_LINK] = '1', [TAR_SYMLINK] = '2',
				      [TAR_DIRECTORY] = '5', [TAR_FIFO] = '6' };
	struct ustar h = { .type = 0 }, pax = { .type = 0 };
	size_t n_pax, total = 0;
	bool fits;

	if (e->type >= TAR_DEVICE || strlen(e->name) > TAR_NAME_MAX || strlen(e->link) > TAR_NAME_MAX)
		return 0;
	fits = put_name(&h, e->name);
	if (!fits)
		put_bytes(h.name, NAME_BYTES, e->name);	/* for readers that know no pax */
	put_bytes(h.link, NAME_BYTES, e->link);
	put_common(&h, types[e->type], e->size, e->mode, e->mtime_s);
	put_checksum(&h);
	n_pax = pax_records(e, fits, buf + TAR_BLOCK);
	if (n_pax) {
		put_bytes(pax.name, NAME_BYTES, "././@PaxHeader");
		put_common(&pax, 'x', n_pax, 0644, 0);
		put_checksum(&pax);
		memcpy(buf, &pax, TAR_BLOCK);
		memset(buf + TAR_BLOCK + n_pax, 0, tar_padding(n_pax));
		total = TAR_BLOCK + n_pax + tar_padding(n_pax);
	}
	memcpy(buf + total, &h, TAR_BLOCK);
	return total + TAR_BLOCK;
}

size_t tar_padding(uint64_t size)
{
	return (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}
