/* SPDX-License-Identifier: MIT */
/* Why a socket may not be used, for the person who may not. */
#ifndef AB_CLIENT_LIB_DENIED_H
#define AB_CLIENT_LIB_DENIED_H

#include <stddef.h>

/* After EACCES of connect(): who this process is, whose the file or folder is that refuses, and what to change. */
void denied_text(const char *path, char *buf, size_t n);

#endif
