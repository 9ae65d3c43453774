/* SPDX-License-Identifier: MIT */
/*
 * Whose request is it: the control plane's, or that of a port of a sandbox? Decided by the head alone. [pure]
 *
 * In this order: a host label PORT-ID. wins. Then routing headers, in the spelling of any flavour: a port other than the agent's
 * is always data; the agent's is control only if the path is in the contract's table of routes and none of the agent's own
 * (old SDKs send them with every call). Then a signed link, which has neither. All else is the control plane's.
 */
#ifndef AB_DAEMON_GATEWAY_PLANE_H
#define AB_DAEMON_GATEWAY_PLANE_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/cloud/model.h"
#include "proto/wire/fields.h"

enum plane_kind {
	PLANE_CONTROL,
	PLANE_PORT,		/* of the sandbox and port in the result */
	PLANE_LINK,		/* a signed link without a sandbox's name: whose signature fits is searched for */
	PLANE_BAD,		/* 400 with `why`, in the edge's words */
};

struct plane_port {
	char sandbox[CLOUD_SANDBOX_ID_MAX + 1];
	uint16_t port;
	bool by_label;		/* the host named it, as a browser does */
};

struct plane {
	enum plane_kind kind;
	struct plane_port port;
	const char *why;
};

void plane_find(const struct fields *head, struct plane *ret);

#endif
