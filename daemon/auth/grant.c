/* SPDX-License-Identifier: MIT */
#include "daemon/auth/grant.h"

#include "proto/base/str.h"

enum grant grant_row(const struct principal *who, uid_t owner)
{
	return who->uid == owner || who->admin ? GRANT_OK : GRANT_HIDDEN;
}

enum grant grant_all_owners(const struct principal *who)
{
	return who->admin || who->observer ? GRANT_OK : GRANT_DENIED;
}

enum grant grant_look_account(const struct principal *who, const char *own, const char *asked)
{
	return who->observer ? GRANT_OK : grant_account(who, own, asked);
}

bool grant_is_masked(const struct principal *who, uid_t owner)
{
	return !who->admin && (who->uid != owner || who->looks_only);
}

enum grant grant_account(const struct principal *who, const char *own, const char *asked)
{
	if (str_is_empty(asked) || str_eq(own, asked))
		return GRANT_OK;
	return who->admin ? GRANT_OK : GRANT_DENIED;
}

enum grant grant_daemon(const struct principal *who)
{
	return who->admin ? GRANT_OK : GRANT_DENIED;
}

void grant_refuse(struct status *st, const char *what)
{
	status_set(st, R_UID_DENIED, "only an administrator may %s", what);
	status_evidence(st, GRANT_NEEDS, "admin");
}
