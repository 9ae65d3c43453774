/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/check.h"

#include "daemon/rpc/limits.h"
#include "proto/base/str.h"

#define PAGE_DEFAULT 100u
#define PAGE_MAX     1000u

bool check_required(const char *value, const char *field, struct status *st)
{
	if (!str_is_empty(value))
		return true;
	status_field(st, field, "is required");
	return false;
}

bool check_page_size(uint32_t size, size_t *ret, struct status *st)
{
	if (size > PAGE_MAX) {
		status_field(st, "page_size", "is %u; at most %u", size, PAGE_MAX);
		return false;
	}
	*ret = size ? size : PAGE_DEFAULT;
	return true;
}

bool check_page_room(size_t *bytes, const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m) + 8;	/* its tag and length */

	if (*bytes && (n > RPC_PAGE_MAX_BYTES || *bytes > RPC_PAGE_MAX_BYTES - n))
		return false;
	*bytes += n;
	return true;
}
