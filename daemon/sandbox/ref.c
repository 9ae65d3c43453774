/* SPDX-License-Identifier: MIT */
/*
 * Which sandbox a caller's reference means: the id of a row, else a name of the caller's, else an id in
 * the caller's account. A row of another uid is no row: the cloud is asked about its id as about any other, and what
 * it says is kept from the caller (op_found()). Else a cloud that is away would tell which ids there are.
 */
#include <string.h>

#include "daemon/auth/grant.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/base/str.h"

void ref_not_found(struct status *st, const char *ref)
{
	status_set(st, R_SANDBOX_NOT_FOUND, "there is no sandbox %s", ref);
	status_evidence(st, "sandbox", "%s", ref);
}

bool ref_hides(struct sandbox_core *core, const struct principal *who, const char *id)
{
	const struct sandbox *b = core_find_any(core, core_account_of(core, who->uid), id);

	return b && grant_row(who, b->uid) != GRANT_OK;
}

enum ref_kind ref_find(struct sandbox_core *core, const struct principal *who, const char *ref,
		       struct sandbox **ret_sandbox, struct account **ret_account,
		       struct status *ret_st)
{
	struct name_slot *n;
	struct sandbox *b;

	if (str_is_empty(ref)) {
		status_field(ret_st, "sandbox", "is empty; give a sandbox id or a name");
		return REF_NONE;
	}
	if (strlen(ref) > RULES_NAME_MAX + 1) {
		status_field(ret_st, "sandbox", "is too long to be a sandbox id or a name");
		return REF_NONE;
	}
	b = core_find_any(core, core_account_of(core, who->uid), ref);
	if (b && grant_row(who, b->uid) == GRANT_OK) {
		*ret_sandbox = b;
		return REF_SANDBOX;
	}
	n = rules_name_is_valid(ref) ? core_find_name(core, who->uid, ref) : NULL;
	if (n && n->id[0]) {
		b = core_find(core, n->account, n->id);
		if (b) {
			*ret_sandbox = b;
			return REF_SANDBOX;
		}
	}
	if (n && n->creation) {
		status_set(ret_st, R_STATE_CHANGING, "sandbox %s is being created", ref);
		return REF_NONE;
	}
	if (rules_looks_like_id(ref)) {
		*ret_account = core_account_of(core, who->uid);
		return REF_ID;
	}
	if (rules_name_is_valid(ref))
		ref_not_found(ret_st, ref);
	else
		status_field(ret_st, "sandbox", "is neither a sandbox id nor a name");
	return REF_NONE;
}
