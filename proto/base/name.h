/* SPDX-License-Identifier: MIT */
/*
 * Names of files in texts. A name, or a path, is bytes without NUL; a text of ours is UTF-8. In a text a name is written as it is,
 * but for
 *
 *     a byte that belongs to no well-formed character         \xHH, H = 0-9a-f: \x80 to \xff
 *     a backslash before what would then read as such a byte  \x5c
 *
 * and a text is read the same way: \x5c and \x80 to \xff, in lower case, are one byte, everything else is itself. So every name has
 * exactly one text, that text gives back the name, and names that are UTF-8 and hold no such sequence, which are nearly all, are
 * their own texts.
 *
 * Whoever writes names into texts in this form and does not say so otherwise (agentbox-local's agent, towards programs that know the
 * cloud's agent only, which has no such form) has the field NAME_FORM_FIELD with NAME_FORM_TEXT in the head of its answer.
 * NAME_FORM_RAW in the head of a request: its names are themselves.
 */
#ifndef AB_PROTO_BASE_NAME_H
#define AB_PROTO_BASE_NAME_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define NAME_FORM_FIELD "agentbox-names"
#define NAME_FORM_TEXT	"escaped"
#define NAME_FORM_RAW	"raw"

/* Heap; NULL without memory, or of NULL. */
char *name_to_text(const char *name);
char *name_from_text(const char *text);
/* Is it its own text? */
bool name_is_text(const char *name);

#endif
