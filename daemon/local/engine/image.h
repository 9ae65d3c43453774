/* SPDX-License-Identifier: MIT */
/*
 * An image in a layout folder (OCI image specification 1.1: oci-layout, index.json, blobs), as `skopeo copy … oci:DIR` makes one, and archives
 * of a root file system. What they say may be an enemy's: nothing is believed that its digest does not prove, and nothing is made but below the folder
 * that is asked for (unpack.h). Blocks.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_IMAGE_H
#define AB_DAEMON_LOCAL_ENGINE_IMAGE_H

#include <stdbool.h>

#include "daemon/local/engine/unpack.h"

#define IMAGE_WHY_MAX 320u

struct image;

/* Is the folder one? */
bool image_is_layout(const char *dir);
/* Finds the image for this machine, or the one of that name (NULL: any; a second that fits is an error), and reads its configuration.
 * -errno with the reason. */
must_check int image_open(const char *dir, const char *name, struct image **ret, char why[IMAGE_WHY_MAX]);
struct image *image_free(struct image *im);	/* NULL is fine; returns NULL */

const char *image_digest(const struct image *im);	/* of its manifest */
const char *const *image_env(const struct image *im);	/* "NAME=value", NULL-terminated */

/* All layers into the empty folder dir_fd; each is proved before anything of it is used. -errno with the reason. */
must_check int image_unpack(struct image *im, int dir_fd, bool as_user, const struct unpack_limits *limits,
			    char why[IMAGE_WHY_MAX]);
/* The same of one archive. */
must_check int image_unpack_tar(const char *path, int dir_fd, bool as_user, const struct unpack_limits *limits,
				char why[IMAGE_WHY_MAX]);

#endif
