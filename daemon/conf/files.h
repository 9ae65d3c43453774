/* SPDX-License-Identifier: MIT */
/*
 * The text of the configuration: the file, and after it the files of the folder conf.d beside it whose names end with .conf, in the order of
 * the bytes of their names. A value of a later file stands for the one before.
 */
#ifndef AB_DAEMON_CONF_FILES_H
#define AB_DAEMON_CONF_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/conf/conf.h"
#include "proto/base/cc.h"

#define CONF_FILES_MAX	     128u
#define CONF_FILE_MAX_BYTES  (1024u * 1024)
#define CONF_FILES_WHY_BYTES 512u

struct conf_file {
	char *name, *text;	/* heap */
	size_t n;
};

struct conf_files {
	struct conf_file *v;
	size_t n;
};

/* -errno with the file and what is wrong with it in `why`; -ENOENT only if there is neither the file nor one of conf.d. */
must_check int conf_files_read(const char *path, struct conf_files *ret, char why[CONF_FILES_WHY_BYTES]);
void conf_files_fini(struct conf_files *f);	/* of none too */
bool conf_files_equal(const struct conf_files *a, const struct conf_files *b);
must_check int conf_read_files(struct conf *c, const struct conf_files *f);	/* as conf_read_text() */

#endif
