/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/recipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandbox/record.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/base/str.h"

/* The block's keys: these for single values; "m:KEY" and "e:KEY" for metadata and environment; "a:NAME" and "t:NAME" for
 * the audience and the type of a token. */
#define KEY_TEMPLATE "template"
#define KEY_NUMBERS  "numbers"
#define KEY_NETWORK  "network"
#define KEY_PASSWORD "egress_password"	/* cloud_network_format() leaves it out */

void recipe_fini(struct recipe *r)
{
	if (r->p)
		explicit_bzero(r->p, r->len);
	free(r->p);
	*r = (struct recipe){ 0 };
}

int recipe_set(struct recipe *r, const void *p, size_t len)
{
	char *copy = NULL;

	if (len) {
		copy = malloc(len);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, p, len);
	}
	recipe_fini(r);
	*r = (struct recipe){ copy, len };
	return 0;
}

/* --- packing --- */

struct packer {
	struct cloud_kvs kvs;	/* copies */
	int err;
};

static void recipe_put(struct packer *p, const char *prefix, const char *key, const char *value)
{
	char *whole;

	if (p->err)
		return;
	whole = str_printf("%s%s", prefix, key);
	p->err = whole ? cloud_kvs_add(&p->kvs, whole, value ? value : "") : -ENOMEM;
	free(whole);
}

static void put_all(struct packer *p, const char *prefix, const struct cloud_kvs *kvs)
{
	for (size_t i = 0; i < kvs->n; i++)
		recipe_put(p, prefix, kvs->v[i].key, kvs->v[i].value);
}

static void put_network(struct packer *p, const struct cloud_network *n)
{
	char *text;

	if (!n || p->err)
		return;
	text = cloud_network_format(n);
	if (!text) {
		p->err = -ENOMEM;
		return;
	}
	recipe_put(p, "", KEY_NETWORK, text);
	free(text);
	if (n->egress_password)
		recipe_put(p, "", KEY_PASSWORD, n->egress_password);
}

static void packer_fini(struct packer *p)
{
	for (size_t i = 0; i < p->kvs.n; i++)
		explicit_bzero(p->kvs.v[i].value, strlen(p->kvs.v[i].value));
	cloud_kvs_fini(&p->kvs);
}

/* Appends a string with its NUL; the caller made room. Returns the end. */
static char *append(char *at, const char *s)
{
	size_t n = strlen(s) + 1;

	memcpy(at, s, n);
	return at + n;
}

int recipe_pack(const struct cloud_create *c, struct recipe *ret)
{
	scoped(packer_fini) struct packer p = { 0 };
	struct recipe r = { 0 };
	char lifecycle[RULES_LIFECYCLE_TEXT_MAX], numbers[96];
	char *at;

	rules_lifecycle_format(&c->lifecycle, lifecycle);
	snprintf(numbers, sizeof(numbers), "%u %d %d %s", c->timeout_s, (int)c->secure,
		 (int)c->allow_internet_access, lifecycle);
	recipe_put(&p, "", KEY_TEMPLATE, c->template_id);
	recipe_put(&p, "", KEY_NUMBERS, numbers);
	put_network(&p, c->network);
	put_all(&p, "m:", &c->metadata);
	put_all(&p, "e:", &c->envs);
	for (size_t i = 0; i < c->n_iam_tokens; i++) {
		recipe_put(&p, "a:", c->iam_tokens[i].name, c->iam_tokens[i].audience);
		recipe_put(&p, "t:", c->iam_tokens[i].name, c->iam_tokens[i].token_type);
	}
	if (p.err)
		return p.err;
	for (size_t i = 0; i < p.kvs.n; i++)
		r.len += strlen(p.kvs.v[i].key) + strlen(p.kvs.v[i].value) + 2;
	r.p = at = malloc(r.len);
	if (!r.p)
		return -ENOMEM;
	for (size_t i = 0; i < p.kvs.n; i++) {
		at = append(at, p.kvs.v[i].key);
		at = append(at, p.kvs.v[i].value);
	}
	recipe_fini(ret);
	*ret = r;
	return 0;
}

/* --- unpacking --- */

static int read_numbers(struct cloud_create *c, const char *s)
{
	int secure, internet, end = 0;
	unsigned timeout;

	if (sscanf(s, "%u %d %d %n", &timeout, &secure, &internet, &end) != 3 || !timeout ||
	    secure < TRI_UNSET || secure > TRI_TRUE || internet < TRI_UNSET ||
	    internet > TRI_TRUE || !rules_lifecycle_parse(s + end, &c->lifecycle))
		return -EBADMSG;
	c->timeout_s = timeout;
	c->secure = (enum tri)secure;
	c->allow_internet_access = (enum tri)internet;
	return 0;
}

static int add_token(struct cloud_create *c, const char *name)
{
	struct cloud_iam_token *v = reallocarray(c->iam_tokens, c->n_iam_tokens + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	c->iam_tokens = v;
	v[c->n_iam_tokens++] = (struct cloud_iam_token){ 0 };
	return text_set(&v[c->n_iam_tokens - 1].name, name);
}

/* Audiences come in the order of the tokens, types after all of them. */
static int read_token(struct cloud_create *c, bool audience, const char *name, const char *value)
{
	int r;

	if (audience) {
		r = add_token(c, name);
		return r < 0 ? r : text_set(&c->iam_tokens[c->n_iam_tokens - 1].audience, value);
	}
	for (size_t i = 0; i < c->n_iam_tokens; i++)
		if (str_eq(c->iam_tokens[i].name, name))
			return text_set(&c->iam_tokens[i].token_type, value);
	return -EBADMSG;
}

static int read_pair(struct cloud_create *c, const char *key, const char *value)
{
	if (str_eq(key, KEY_TEMPLATE))
		return text_set(&c->template_id, value);
	if (str_eq(key, KEY_NUMBERS))
		return read_numbers(c, value);
	if (str_eq(key, KEY_NETWORK))
		return cloud_network_parse(value, &c->network);
	if (str_eq(key, KEY_PASSWORD))
		return c->network ? text_set(&c->network->egress_password, value) : -EBADMSG;
	if (str_starts(key, "m:"))
		return cloud_kvs_add(&c->metadata, key + 2, value);
	if (str_starts(key, "e:"))
		return cloud_kvs_add(&c->envs, key + 2, value);
	if (str_starts(key, "a:") || str_starts(key, "t:"))
		return read_token(c, key[0] == 'a', key + 2, value);
	return 0;	/* of a later version */
}

int recipe_unpack(const struct recipe *r, struct cloud_create *c)
{
	const char *at = r->p, *end = r->p + r->len;
	int e = 0;

	if (!r->len || end[-1])
		return -EBADMSG;
	while (!e && at < end) {
		const char *key = at, *value = key + strlen(key) + 1;

		if (value >= end)
			return -EBADMSG;
		at = value + strlen(value) + 1;
		e = read_pair(c, key, value);
	}
	if (!e && (!c->timeout_s || str_is_empty(c->template_id)))
		e = -EBADMSG;
	for (size_t i = 0; i < c->n_iam_tokens; i++)
		if (!c->iam_tokens[i].audience || !c->iam_tokens[i].token_type)
			e = e ? e : -EBADMSG;
	return e;
}

/* --- when --- */

enum recipe_verdict recipe_judge(const struct recipe_facts *f)
{
	if (f->on_gone != POLICY_RECREATE || f->ended || !f->named || f->reason == R_SANDBOX_KILLED)
		return RECIPE_NOT_ASKED;
	if (!f->ours || f->in_doubt)
		return RECIPE_IN_DOUBT;
	/* Nobody used it when its time was over, or when it vanished while it was paused. */
	if ((f->reason == R_SANDBOX_EXPIRED && !(f->in_use && f->keep_alive)) ||
	    (f->before == SANDBOX_PAUSED && !f->in_use))
		return RECIPE_UNUSED;
	if (!f->known)
		return RECIPE_MISSING;
	if (f->generation > 1 && f->age_ms >= 0 && f->age_ms < RECIPE_TOO_SOON_MS)
		return RECIPE_TOO_SOON;
	return RECIPE_GO;
}

const char *recipe_verdict_name(enum recipe_verdict v)
{
	static const char *const names[] = {
		[RECIPE_NOT_ASKED] = "",
		[RECIPE_GO] = "begun",
		[RECIPE_UNUSED] = "no, nobody used it",
		[RECIPE_IN_DOUBT] = "no, its row is in doubt",
		[RECIPE_MISSING] = "no, its parameters are not known",
		[RECIPE_TOO_SOON] = "no, the last one lived less than a minute",
	};

	return names[v];
}
