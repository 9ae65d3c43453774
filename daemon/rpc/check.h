/* SPDX-License-Identifier: MIT */
/* Checks of request fields. One that fails fills the status with the field's name, returns false. */
#ifndef AB_DAEMON_RPC_CHECK_H
#define AB_DAEMON_RPC_CHECK_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"

/* A string that must not be empty. */
bool check_required(const char *value, const char *field, struct status *st);
/* 0 = 100; at most 1000. */
bool check_page_size(uint32_t size, size_t *ret, struct status *st);
/* Is there room for this message in a page that holds *bytes already? Then they become more. The first one always has. */
bool check_page_room(size_t *bytes, const ProtobufCMessage *m);

#endif
