/* SPDX-License-Identifier: MIT */
/* --capabilities: what this machine allows, and what of the cloud is not here. */
#ifndef AB_DAEMON_LOCAL_MAIN_CAPS_H
#define AB_DAEMON_LOCAL_MAIN_CAPS_H

#include "proto/base/cc.h"

struct engine;

/* One JSON object to stdout; `bs` has said that it is ready. 0 or -errno. */
must_check int caps_print(const struct engine *bs);

#endif
