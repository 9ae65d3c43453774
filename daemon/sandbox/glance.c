/* SPDX-License-Identifier: MIT */
/* What memory says of a sandbox at once, for the gateway, which judges a request before it asks for anything. */
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/runner.h"

static void glance_fill(const struct sandbox *b, struct sandbox_glance *ret)
{
	sandbox_target_of(b, &ret->target);
	ret->token_known = b->token_known;
	ret->is_sure = b->token_known && b->claimed && (b->state == SANDBOX_SNAPSHOTTING ||
					  (b->state == SANDBOX_RUNNING &&
					   (!b->end_at_ms || account_cloud_now(b->account) < b->end_at_ms)));
}

bool sandbox_glance(struct sandbox_core *core, const char *id, struct sandbox_glance *ret)
{
	const struct sandbox *b = core_find_any(core, &core->accounts[0], id);

	if (!b || !sandbox_is_live(b))
		return false;
	glance_fill(b, ret);
	return true;
}

bool sandbox_glance_search(struct sandbox_core *core, unsigned most, sandbox_glance_fn *fits, void *user,
			   struct sandbox_glance *ret)
{
	list_for_each(n, &core->sandboxes) {
		const struct sandbox *b = list_entry(n, struct sandbox, node);

		if (!sandbox_is_live(b) || !b->token_known)
			continue;
		if (!most--)
			return false;
		glance_fill(b, ret);
		if (fits(user, ret))
			return true;
	}
	return false;
}
