/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/coalesce.h"

#include "proto/base/str.h"

bool coalesce_may(const struct coalesce_facts *f)
{
	if (!f->same_group || !f->same_proxy || !f->same_tls || !f->same_port)
		return false;
	if (!f->is_tls || !f->is_h2 || !f->cert_covers || f->misdirected || !f->conn_address)
		return false;
	for (size_t i = 0; i < f->n_addresses; i++)
		if (str_eq(f->addresses[i], f->conn_address))
			return true;
	return false;
}
