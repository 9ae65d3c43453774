/* SPDX-License-Identifier: MIT */
/*
 * Layers: the writable files of a sandbox, kept outside of any sandbox. STATE/layers/ID has what the
 * folder "lay" of a sandbox has (up, usrup), and `ids`, which says whose ids the files have. They
 * outlive the engine. Blocks: for the keeper and its children.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_BOXLAYER_H
#define AB_DAEMON_LOCAL_ENGINE_BOXLAYER_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct layer_ids {
	bool as_user;
	uint32_t first;		/* what 0 inside is on the disk */
};

/* Copies the files of the sandbox in the folder `box` of boxes_fd to a new layer, whole or not at
 * all. */
must_check int boxlayer_save(int boxes_fd, const char *box, int layers_fd, const char *layer,
			     const struct layer_ids *ids);
/* Moves them: the sandbox is dead and has no files any more. */
must_check int boxlayer_stash(int boxes_fd, const char *box, int layers_fd, const char *layer,
			      const struct layer_ids *ids);
/* Makes the folder "lay" of a sandbox from a layer, by copying it. */
must_check int boxlayer_copy(int layers_fd, const char *layer, int boxes_fd, const char *box,
			     const struct layer_ids *ids);
/* The same by moving it, which needs equal ids: -EXDEV else. */
must_check int boxlayer_move(int layers_fd, const char *layer, int boxes_fd, const char *box,
			     const struct layer_ids *ids);
/* Removes what a save left that was cut off. */
void boxlayer_clean(int layers_fd);

#endif
