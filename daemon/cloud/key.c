/* SPDX-License-Identifier: MIT */
/* Whether anything may be sent with an account's key. */
#include "daemon/cloud/account.h"

bool cloud_key_is_bad(const struct cloud *c, struct status *ret)
{
	const struct flavour *of = flavour_of_key(c->key), *there = flavour_of_host(c->api.host);

	if (of && there && of != there)
		status_set(ret, R_KEY_REJECTED,
			   "the API key is %s's (%s…) and %s is %s's: it is not sent there; see cloud, domain and "
			   "api_url of the account",
			   of->title, of->key_prefix, c->api.host, there->title);
	else if (c->check_key_format && !flavour_key_ok(c->flavour, c->key))
		status_set(ret, R_KEY_REJECTED, "the API key is not of the form %s<hex>; see check_key_format",
			   c->flavour->key_prefix);
	else
		return false;
	return true;
}

void cloud_key_missing(struct status *ret)
{
	status_set(ret, R_KEY_MISSING,
		   "the account has no API key: write it into the file that api_key_file names, or set api_key_file or "
		   "api_key_command in the account's section; the log says what such a command said");
}

bool cloud_key_is_unfit(struct cloud *c, struct status *ret_why)
{
	if (c->on_key_use)
		(void)c->on_key_use(c, c->user);
	if (c->gate != CLOUD_OPEN)
		*ret_why = c->gate_why;
	else if (!c->key)
		cloud_key_missing(ret_why);
	else if (c->trust != CLOUD_KEY_TRUSTED)
		*ret_why = c->trust_why;
	else
		return cloud_key_is_bad(c, ret_why);
	return true;
}
