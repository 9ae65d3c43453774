/* SPDX-License-Identifier: MIT */
/*
 * What agentbox-local reads of a sandbox's connections: their first bytes, and what their proxy says. A name that is found is
 * one, is found in no shorter beginning differently, and is judged by rules without fault. The same bytes
 * as a resolv.conf and as an address range.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/egress/egress_host.h"
#include "daemon/local/egress/egrule.h"
#include "daemon/local/egress/header_rewrite.h"
#include "daemon/local/egress/sniff.h"
#include "daemon/local/egress/socks.h"
#include "proto/base/must.h"
#include "proto/cloud/model.h"
#include "proto/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static bool is_name(const char *s)
{
	size_t n = strlen(s);

	return n && n <= SNIFF_NAME_MAX && s[0] != '.' && s[n - 1] != '.' && !strstr(s, "..") &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == n;
}

static void check_sniff(const uint8_t *p, size_t n)
{
	char name[SNIFF_NAME_MAX + 1], shorter[SNIFF_NAME_MAX + 1];
	enum sniff r = sniff_name(p, n, name), before;

	if (r == SNIFF_MORE) {
		must(n < SNIFF_MAX_BYTES);
		return;
	}
	if (r == SNIFF_NONE)
		return;
	must(is_name(name));
	for (size_t k = n > 64 ? n - 64 : 0; k < n; k++) {
		before = sniff_name(p, k, shorter);
		must(before == SNIFF_MORE || (before == r && str_eq(shorter, name)));
	}
}

static void check_text(const char *s)
{
	char *entry = (char *)s;
	struct cloud_network network = { .allow_out = { &entry, 1 }, .deny_out = { &entry, 1 } };
	struct sockaddr_storage v[3];
	struct egrule_net net;
	struct egrule *r;

	must(egress_parse_resolv(s, v, ARRAY_SIZE(v)) <= ARRAY_SIZE(v));
	if (egrule_net_parse(s, &net))
		must(egrule_net_has(&net, net.first) && egrule_net_has(&net, net.first | ~net.mask));
	must(egrule_new(&network, true, &r) == 0);
	must(egrule_address(r, 0x01020304) != EGRULE_BY_NAME || egrule_dns(r));
	(void)egrule_name(r, s);
	egrule_free(r);
}

/* What a proxy says: heard in two pieces it is the same. */
static enum socks_result hear(const uint8_t *p, size_t n, size_t cut, size_t *ret_left)
{
	struct socks s = { .to = { "a.test", 0, 443 }, .user = n & 1 ? "me" : NULL };
	struct buf in = BUF_NULL, out = BUF_NULL;
	const char *why = NULL;
	enum socks_result r;

	must(socks_begin(&s, &out) == 0 && buf_put(&in, p, cut) == 0);
	r = socks_talk(&s, &in, &out, &why);
	if (r == SOCKS_MORE || r == SOCKS_DONE)
		must(buf_put(&in, p + cut, n - cut) == 0);
	if (r == SOCKS_MORE)
		r = socks_talk(&s, &in, &out, &why);
	must((r == SOCKS_REFUSED) == (why != NULL));
	*ret_left = r == SOCKS_DONE ? buf_len(&in) : 0;
	buf_fini(&in);
	buf_fini(&out);
	return r;
}

static void check_socks(const uint8_t *p, size_t n)
{
	size_t left, again;
	enum socks_result r = hear(p, n, n, &left);

	for (size_t cut = 0; cut < n && cut < 24; cut++)
		must(hear(p, n, cut, &again) == r && again == left);
}

/* Requests, given in two pieces: what goes out is the same, and none goes out without its header. */
static int rewrite(const uint8_t *p, size_t n, size_t cut, struct buf *out)
{
	struct cloud_kv set = { (char *)"x-set", (char *)"1" };
	struct cloud_rule rule = { .domain = (char *)"a.test", .headers = { &set, 1 } };
	struct cloud_network network = { .rules = &rule, .n_rules = 1 };
	struct header_rewrite *h;
	struct egrule *r;
	const char *why;
	int e;

	must(egrule_new(&network, false, &r) == 0 && header_rewrite_new("a.test", 0, &h) == 0);
	must(buf_put(header_rewrite_raw(h), p, cut) == 0);
	e = header_rewrite_run(h, r, out, &why);
	must(buf_put(header_rewrite_raw(h), p + cut, n - cut) == 0);
	if (e == 0)
		e = header_rewrite_run(h, r, out, &why);
	must(e == 0 || e == -EPROTO);
	header_rewrite_free(h);
	egrule_free(r);
	return e;
}

static bool may_be_chunked(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i + 6 <= n; i++)
		if (!strncasecmp((const char *)p + i, "hunked", 6))
			return true;
	return false;
}

static void check_header_rewrite(const uint8_t *p, size_t n)
{
	struct buf whole = BUF_NULL, parts = BUF_NULL;
	int e = rewrite(p, n, n, &whole), again = rewrite(p, n, n / 2, &parts);

	must(e == again);
	/* Runs of a chunked body may be cut differently. */
	if (!may_be_chunked(p, n) && buf_len(&whole) < HEADER_REWRITE_AHEAD)
		must(buf_len(&whole) == buf_len(&parts) &&
		     (!buf_len(&whole) || !memcmp(buf_data(&whole), buf_data(&parts), buf_len(&whole))));
	buf_fini(&whole);
	buf_fini(&parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *text = malloc(n + 1);

	must(text);
	memcpy(text, p, n);
	text[n] = '\0';
	check_sniff(p, n);
	check_socks(p, n);
	check_header_rewrite(p, n);
	check_text(text);
	free(text);
	return 0;
}
