/* SPDX-License-Identifier: MIT */
/*
 * A stream of tar: ustar with pax headers; read are GNU's and older ones, too. Pure: no descriptor, no clock. What is read is checked as
 * if an enemy had written it; whether a name may be used on this machine is not decided here.
 *
 * Names are bytes. Those that fit stand in the ustar header as they are; longer ones, and times with fractions of a second, go into a
 * pax header.
 */
#ifndef AB_PROTO_WIRE_TAR_H
#define AB_PROTO_WIRE_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK      512u
#define TAR_NAME_MAX   4096u		/* longer: TAR_BAD */
#define TAR_PAX_MAX    (1024u * 1024)	/* of one extended header: TAR_BAD above it */
#define TAR_EXTENSIONS_MAX 16	/* of one entry: TAR_BAD above it */
#define TAR_HEADER_MAX (16u * 1024)	/* most that tar_header() writes */

enum tar_type {
	TAR_FILE,
	TAR_HARD_LINK,		/* link: the name of an earlier entry */
	TAR_SYMLINK,
	TAR_DIRECTORY,
	TAR_FIFO,
	TAR_DEVICE,
	TAR_OTHER,		/* not known: has data to skip, perhaps */
};

struct tar_entry {
	enum tar_type type;
	const char *name;
	const char *link;	/* "" if none */
	uint32_t mode;		/* 07777 */
	uint64_t uid, gid;	/* read; written is 0 */
	uint64_t size;		/* of the data that follows; TAR_FILE only, as far as we write it */
	int64_t mtime_s;
	uint32_t mtime_ns;
};

/* --- writing --- */

/* Bytes of the header, or 0: a name is too long for any header. `buf` holds TAR_HEADER_MAX. */
size_t tar_header(const struct tar_entry *e, uint8_t *buf);
/* How many zeros follow `size` bytes of data. */
size_t tar_padding(uint64_t size);
/* Two blocks of zeros end the stream. */
#define TAR_END_BYTES (2 * TAR_BLOCK)

/* --- reading --- */

enum tar_event {
	TAR_MORE = 0,		/* everything was used; feed more */
	TAR_ENTRY,		/* reader->entry, valid until the next ENTRY */
	TAR_DATA,		/* a piece of the entry's data */
	TAR_ENTRY_END,		/* all of it was there; follows every ENTRY, with data or without */
	TAR_END,		/* of the stream; what follows is not looked at */
	TAR_BAD,		/* reader->why; nothing more may be fed */
};

struct tar_reader {
	struct tar_entry entry;
	const char *why;
	/* private */
	int state;
	uint8_t block[TAR_BLOCK];
	size_t n_block;
	uint64_t left, padding;
	char type;
	bool zeros;			/* one block of them was seen */
	uint8_t *pax;			/* of cap_pax + 1, once it is needed */
	size_t n_pax, cap_pax;
	unsigned extensions;		/* headers of the next entry so far */
	bool has_path, has_link, has_size, has_mtime, has_uid, has_gid;
	uint64_t pax_size, pax_uid, pax_gid;
	int64_t pax_mtime_s;
	uint32_t pax_mtime_ns;
	char name[TAR_NAME_MAX + 1], link[TAR_NAME_MAX + 1];
};

/* tar_reader is large: keep it on the heap. A zeroed one is ready. */
void tar_reader_fini(struct tar_reader *r);
/* Looks at p[0..n); *used says how much of it was taken. DATA: *ret_data, *ret_n lie in p. */
enum tar_event tar_read(struct tar_reader *r, const uint8_t *p, size_t n, size_t *used,
			const uint8_t **ret_data, size_t *ret_n);
/* Whether a stream that ends here is whole: behind its mark of the end, or the first half of it. */
bool tar_may_end(const struct tar_reader *r);

#endif
