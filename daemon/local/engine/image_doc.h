/* SPDX-License-Identifier: MIT */
/* The JSON documents of an image in a layout folder (OCI image specification 1.1; Docker's of schema 2). Pure; what they say may be an enemy's. */
#ifndef AB_DAEMON_LOCAL_ENGINE_IMAGE_DOC_H
#define AB_DAEMON_LOCAL_ENGINE_IMAGE_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/cc.h"

#define IMAGE_DOC_MAX_BYTES (4u * 1024 * 1024)
#define IMAGE_LIST_MAX	    1024u	/* of an index */
#define IMAGE_LAYERS_MAX    128u
#define IMAGE_ENV_MAX	    1024u
#define IMAGE_DIGEST_MAX    136u	/* "sha512:" and 128 digits */
#define IMAGE_DOC_WHY_MAX   160u

/* What a document says of another. Strings are its own. */
struct image_ref {
	char *media_type;	/* "" if it does not say */
	char digest[IMAGE_DIGEST_MAX];	/* "sha256:HEX" or "sha512:HEX", well-formed */
	uint64_t size;
	char *os, *arch;	/* NULL: not said */
	char *name;		/* org.opencontainers.image.ref.name; NULL */
};

struct image_doc {
	bool is_index;		/* then `list`, else `config` and `list`, which are its layers */
	struct image_ref config;
	struct image_ref *list;
	size_t n;
};

struct image_config {
	char *os, *arch;	/* NULL: not said */
	char **env;		/* "NAME=value", as the cloud takes them over; NULL-terminated */
	char (*diff_ids)[IMAGE_DIGEST_MAX];
	size_t n_diff_ids;
};

/* An index or a manifest. 0; -EBADMSG with the reason; -ENOMEM. */
must_check int image_doc_parse(const char *text, size_t n, struct image_doc *ret, char why[IMAGE_DOC_WHY_MAX]);
must_check int image_config_parse(const char *text, size_t n, struct image_config *ret, char why[IMAGE_DOC_WHY_MAX]);
void image_doc_fini(struct image_doc *d);
void image_config_fini(struct image_config *c);

/* "sha256:HEX", "sha512:HEX". */
bool image_digest_ok(const char *s);

#endif
