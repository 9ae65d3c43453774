/* SPDX-License-Identifier: MIT */
/* WarmService. */
#include <errno.h>

#include "proto/gen/agentbox_warm.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"
#include "proto/base/str.h"

#define PATH(name) "/agentbox.v1.WarmService/" name

int ab_warm_list_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("List"),
		.reply = &agentbox__v1__list_warm_response__descriptor,
		.make = msg_warm_list,
		.repeatable = true,
	};
	Agentbox__V1__ListWarmRequest req = AGENTBOX__V1__LIST_WARM_REQUEST__INIT;

	return call_start(c, &m, &req.base, how, ret);
}

int ab_warm_list(struct ab_client *c, const struct ab_call_options *how, struct ab_warm_list **ret)
{
	return wait_object(c, ab_warm_list_start(c, how, &c->started), (void **)ret);
}

int ab_warm_set_start(struct ab_client *c, const char *name, int size, const struct ab_call_options *how,
		      struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Set"),
		.reply = &agentbox__v1__warm_entry__descriptor,
		.make = msg_warm,
		.repeatable = true,
	};
	Agentbox__V1__SetWarmRequest req = AGENTBOX__V1__SET_WARM_REQUEST__INIT;

	if (str_is_empty(name))
		return -EINVAL;
	req.name = (char *)name;
	if (size >= 0) {
		req._size_case = AGENTBOX__V1__SET_WARM_REQUEST___SIZE_SIZE;
		req.size = (uint32_t)size;
	}
	return call_start(c, &m, &req.base, how, ret);
}

int ab_warm_set(struct ab_client *c, const char *name, int size, const struct ab_call_options *how, struct ab_warm **ret)
{
	return wait_object(c, ab_warm_set_start(c, name, size, how, &c->started), (void **)ret);
}

int ab_warm_retry_start(struct ab_client *c, const char *name, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Retry"),
		.reply = &agentbox__v1__warm_entry__descriptor,
		.make = msg_warm,
		.repeatable = true,
	};
	Agentbox__V1__RetryWarmRequest req = AGENTBOX__V1__RETRY_WARM_REQUEST__INIT;

	if (str_is_empty(name))
		return -EINVAL;
	req.name = (char *)name;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_warm_retry(struct ab_client *c, const char *name, const struct ab_call_options *how, struct ab_warm **ret)
{
	return wait_object(c, ab_warm_retry_start(c, name, how, &c->started), (void **)ret);
}
