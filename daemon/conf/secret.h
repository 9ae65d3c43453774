/* SPDX-License-Identifier: MIT */
/* A secret text: in memory that is locked, left out of core dumps and wiped. It has no print form. */
#ifndef AB_DAEMON_CONF_SECRET_H
#define AB_DAEMON_CONF_SECRET_H

#include "proto/base/cc.h"

struct secret;

#define SECRET_MAX_BYTES 4096u

/* From a file: one trailing newline is cut; refused are other than regular files (-EINVAL), files that others can read (-EPERM,
 * but not those in `credentials`, the value of $CREDENTIALS_DIRECTORY or NULL, where the service manager sees to that), larger
 * ones (-EFBIG), empty ones and control bytes (-EBADMSG). */
must_check int secret_read(const char *path, const char *credentials, struct secret **ret);
const char *secret_error(int r);	/* what such a failure means, for a person */
/* A copy; wipes the original. */
must_check int secret_take(char *text, struct secret **ret);
const char *secret_text(const struct secret *s);	/* NULL → NULL */
struct secret *secret_free(struct secret *s);		/* NULL is fine; returns NULL */

#endif
