/* SPDX-License-Identifier: MIT */
/* struct status → google.rpc.Status with ErrorInfo, RetryInfo and BadRequest. */
#ifndef AB_DAEMON_RPC_ERROR_H
#define AB_DAEMON_RPC_ERROR_H

#include "proto/base/status.h"
#include "proto/gen/google_rpc_status.pb-c.h"

#define RPC_ERROR_DOMAIN "agentbox"

/* Serialized, on the heap, for grpc-status-details-bin. *ret_n = 0 where there is nothing to add to
 * code and text. */
must_check int rpc_error_pack(const struct status *st, uint8_t **ret, size_t *ret_n);
/* As a message, for results per item; google__rpc__status__free_unpacked(m, NULL). NULL without
 * memory. */
Google__Rpc__Status *rpc_error_message(const struct status *st);

#endif
