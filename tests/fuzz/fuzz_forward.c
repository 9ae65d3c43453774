/* SPDX-License-Identifier: MIT */
/* What agentboxctl port-forward reads of a gateway, its user and whoever else answers at the gateway's port: what is decided of a part of
 * an answer is never another thing than of the whole, and texts end. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/forward/forward.h"
#include "proto/base/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void try_texts(const uint8_t *p, size_t n)
{
	char *text = strndup((const char *)p, n), host[FORWARD_HOST_BYTES];
	struct forward_pair pair;
	uint16_t port;

	must(text);
	if (forward_pair_read(text, &pair))
		must(pair.remote && strlen(text) <= 11);
	if (forward_url_read(text, host, &port))
		must(port && *host && strlen(host) < strlen(text) && strstr(text, host));
	free(text);
}

static void try_answer(const uint8_t *p, size_t n)
{
	char why[FORWARD_WHY_BYTES] = "", part[FORWARD_WHY_BYTES];
	size_t used, k = n ? p[0] % n : 0;
	enum forward_answer whole = forward_answer_read((const char *)p, n, true, &used, why), some;

	must(whole != FORWARD_MORE && used <= n && strlen(why) < sizeof(why));
	must(whole == FORWARD_AGREED ? used >= 16 : *why);
	some = forward_answer_read((const char *)p, k, false, &used, part);
	must(some == FORWARD_MORE || some == whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	try_texts(p, n);
	try_answer(p, n);
	return 0;
}
