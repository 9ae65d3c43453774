/* SPDX-License-Identifier: MIT */
#include "daemon/common/obs/tally.h"

#include "proto/base/must.h"
#include "proto/base/str.h"

#define CODES_FROM 64u	/* numbers of codes; those of reasons are below */
#define CODES	   17u

unsigned tally_number(const struct status *st)
{
	must(st->reason < CODES_FROM && st->code < CODES);
	return st->reason ? st->reason : CODES_FROM + st->code;
}

const char *tally_name(unsigned number)
{
	const char *name = number && number < CODES_FROM ? status_reason_name((enum ab_reason)number) : "";

	if (number >= CODES_FROM && number < CODES_FROM + CODES)
		name = status_code_name((enum ab_code)(number - CODES_FROM));
	return str_is_empty(name) ? NULL : name;
}

bool tally_is_ok(unsigned number)
{
	return number == CODES_FROM + CODE_OK;
}
