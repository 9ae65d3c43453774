/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/address.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/base/str.h"

static char *text(const char *s)
{
	return str_dup(s ? s : "");
}

int agent_address_set(struct agent_address *a, const struct agent_address *from)
{
	struct agent_address copy = *from;

	copy.account = text(from->account);
	copy.id = text(from->id);
	copy.domain = text(from->domain);
	copy.token = text(from->token);
	copy.traffic_token = text(from->traffic_token);
	copy.version = text(from->version);
	if (!copy.account || !copy.id || !copy.domain || !copy.token || !copy.traffic_token || !copy.version) {
		agent_address_fini(&copy);
		return -ENOMEM;
	}
	agent_address_fini(a);
	*a = copy;
	return 0;
}

void agent_address_fini(struct agent_address *a)
{
	free(a->account);
	free(a->id);
	free(a->domain);
	str_free_secret(a->token);
	str_free_secret(a->traffic_token);
	free(a->version);
	*a = (struct agent_address){ 0 };
}
