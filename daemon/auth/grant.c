/* SPDX-License-Identifier: MIT */
#include "daemon/auth/grant.h"

#include "proto/base/str.h"

enum grant grant_row(const struct principal *who, uid_t owner)
{
	return who->uid == owner || who->admin ? GRANT_OK : GRANT_HIDDEN;
}

enum grant grant_all_owners(const struct principal *who)
{
	return who->admin ? GRANT_OK : GRANT_DENIED;
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
