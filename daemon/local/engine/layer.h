/* SPDX-License-Identifier: MIT */
/*
 * Layers: the writable files of a sandbox, kept outside of any sandbox. STATE/layers/ID has what the
 * folder "lay" of a sandbox has (up, usrup), and `ids`, which says whose ids the files have. They
 * outlive the engine. Blocks: for the supervisor and its children.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_LAYER_H
#define AB_DAEMON_LOCAL_ENGINE_LAYER_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct layer_ids {
	bool as_user;
	uint32_t first;		/* what 0 inside is on the disk */
};

/* Copies the files of the sandbox in the folder `container` of engine_fd to a new layer, whole or not at
 * all. */
must_check int layer_save(int engine_fd, const char *container, int layers_fd, const char *layer,
			  const struct layer_ids *ids);
/* Moves them: the sandbox is dead and has no files any more. */
must_check int layer_stash(int engine_fd, const char *container, int layers_fd, const char *layer,
			   const struct layer_ids *ids);
/* Makes the folder "lay" of a sandbox from a layer, by copying it. */
must_check int layer_copy(int layers_fd, const char *layer, int engine_fd, const char *container,
			  const struct layer_ids *ids);
/* The same by moving it, which needs equal ids: -EXDEV else. */
must_check int layer_move(int layers_fd, const char *layer, int engine_fd, const char *container,
			  const struct layer_ids *ids);
/* Removes what a save left that was cut off. */
void layer_clean(int layers_fd);

#endif
