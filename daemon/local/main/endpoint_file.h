/* SPDX-License-Identifier: MIT */
/* The state directory as a place: its lock, the seed of tokens, the endpoint file. */
#ifndef AB_DAEMON_LOCAL_MAIN_ENDPOINT_FILE_H
#define AB_DAEMON_LOCAL_MAIN_ENDPOINT_FILE_H

#include "daemon/local/main/cfg.h"
#include "daemon/local/state/sign.h"

/*
 * Makes the directory (0700) and locks it for this process: a record lock, which no child inherits.
 * The lock ends with the process. *ret_dir: its absolute path, heap. -EBUSY: another process holds
 * it (the reason names it); -errno with the reason, heap.
 */
must_check int endpoint_take(const char *dir, char **ret_dir, char **ret_why);
/* Kept over restarts, made if missing. */
must_check int endpoint_seed(const char *dir, uint8_t ret[SIGN_SEED_BYTES]);

struct endpoint {
	const char *address, *tls_address;	/* "127.0.0.1:8080"; NULL = none */
	const char *ca_file, *bundle_file, *api_key_file, *domain;
	const char *api_key;
};

/* Written atomically, 0600; and to `ready_fd` (closed then) unless that is -1. Beside it the file `env`: the same as lines for a
 * shell, in which the SDKs of both flavours then talk to us. */
must_check int endpoint_announce(const char *dir, const struct endpoint *e, int ready_fd);
void endpoint_leave(const char *dir);	/* removes both */

/* Listening, non-blocking; *ret_text: what came of it, "127.0.0.1:8080" (heap). */
must_check int endpoint_listen(const struct cfg_addr *a, int *ret_fd, char **ret_text,
			       uint16_t *ret_port);

#endif
