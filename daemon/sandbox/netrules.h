/* SPDX-License-Identifier: MIT */
/*
 * What a network configuration, workload tokens and the end of a sandbox may say, so that a mistake
 * is told with the name of its field and before anything is sent. The
 * cloud's own rules may be stricter: features that an account has not, names that do not resolve. [pure]
 */
#ifndef AB_DAEMON_SANDBOX_NETRULES_H
#define AB_DAEMON_SANDBOX_NETRULES_H

#include <stdbool.h>

#include "proto/cloud/model.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/cc.h"

#define NETRULES_TOKENS_MAX  5u
#define NETRULES_DOMAINS_MAX 10u
#define NETRULES_HEADERS_MAX 20u
#define NETRULES_TOKEN_TYPE  "JWT-SVID"

struct netrules_with {
	bool creates;			/* else it replaces the egress of one that runs */
	enum tri secure, allow_internet_access;
	const struct cloud_iam_token *tokens;	/* of the create: placeholders must name one of them */
	size_t n_tokens;
};

/* False with FIELD_INVALID, which names the field. */
bool netrules_network(const struct cloud_network *n, const struct netrules_with *with, struct status *st);
bool netrules_tokens(const struct cloud_iam_token *v, size_t n, struct status *st);
bool netrules_lifecycle(enum sandbox_on_timeout on_timeout, int keep_memory, int auto_resume,
			struct status *st);

#endif
