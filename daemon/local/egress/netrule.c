/* SPDX-License-Identifier: MIT */
#include "daemon/local/egress/netrule.h"

#include "daemon/local/egress/egrule.h"
#include "proto/base/buf.h"
#include "proto/base/str.h"
#include "proto/cloud/model.h"
#include "proto/cloud/netrules.h"

/* What such a value cannot be here, and what is the transport's own. */
static const char *header_unsupported(const char *name, const char *value)
{
	static const char *const own[] = { "connection", "content-length", "keep-alive", "proxy-connection", "te",
					   "trailer", "transfer-encoding", "upgrade", "expect" };

	if (netrules_has_placeholder(value))
		return "network.rules with tokens or secrets";
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (mem_eq_ci(name, strlen(name), own[i]))
			return "network.rules for a header of the transport";
	return NULL;
}

static const char *rule_unsupported(const struct cloud_rule *r)
{
	const char *what = NULL;

	for (size_t i = 0; i < r->headers.n && !what; i++)
		what = header_unsupported(r->headers.v[i].key, r->headers.v[i].value);
	return what;
}

const char *netrule_unsupported(const struct cloud_network *n, bool egress)
{
	const char *what = NULL;

	if (!egress && n->allow_out.n)
		return "network.allowOut (sandboxes have no network outside)";
	if (!egress && n->n_rules)
		return "network.rules (sandboxes have no network outside)";
	if (n->asks_https_ports)
		return "network.httpsPorts";
	for (size_t i = 0; i < n->n_rules && !what; i++)
		what = rule_unsupported(&n->rules[i]);
	return what;
}

bool netrule_is_too_long(const struct cloud_network *n)
{
	return n->allow_out.n > EGRULE_LIST_MAX || n->deny_out.n > EGRULE_LIST_MAX;
}

char *netrule_mask_host(const char *mask, uint64_t port)
{
	scoped(buf_fini) struct buf out = BUF_NULL;
	int r = 0;

	while (*mask && r == 0) {
		if (str_starts(mask, "${PORT}")) {
			r = buf_printf(&out, "%llu", (unsigned long long)port);
			mask += 7;
		} else {
			r = buf_put(&out, mask++, 1);
		}
	}
	if (r == 0)
		r = buf_put(&out, "", 1);
	return r < 0 ? NULL : str_dup((const char *)buf_data(&out));
}
