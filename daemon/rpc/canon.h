/* SPDX-License-Identifier: MIT */
/*
 * The canonical form of an unpacked message: map entries sorted by key, of equal keys only the last
 * one, no unknown fields, all the way down. Packing it gives equal bytes for equal meaning, which is
 * what a request id's parameters are compared by.
 */
#ifndef AB_DAEMON_RPC_CANON_H
#define AB_DAEMON_RPC_CANON_H

#include <protobuf-c/protobuf-c.h>

#include "proto/base/cc.h"

/* In place, for a message of protobuf_c_message_unpack(NULL, …). 0, or -ENOMEM half done. */
must_check int canon_message(ProtobufCMessage *m);

#endif
