/* SPDX-License-Identifier: MIT */
#include "daemon/main/app_warm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/auth/users.h"
#include "daemon/common/obs/log.h"
#include "daemon/conf/secret.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/base/str.h"
#include "proto/cloud/netrules.h"

#define LIST_MAX  256u		/* words of a list */

struct reader {
	struct conf *c;
	const struct app_known_accounts *accounts;
	const char *name;
	struct sandbox_warm_entry *e;
	uid_t *uids;
	gid_t *gids;
	int err;
};

/* "FILE:LINE: [warm NAME]" of the first key that the section has. */
static const char *place_of_section(const struct reader *r, char at[512])
{
	for (unsigned i = 0; i < conf_n_keys; i++)
		if (str_eq(conf_keys[i].section, "warm") && conf_is_set(r->c, "warm", r->name, conf_keys[i].key)) {
			char *end;

			conf_place(r->c, "warm", r->name, conf_keys[i].key, at);
			end = strrchr(at, ']');
			if (end)
				end[1] = 0;
			return at;
		}
	return "[warm]";
}

static const char *get(const struct reader *r, const char *key)
{
	return conf_get(r->c, "warm", r->name, key);
}

static uint64_t number(const struct reader *r, const char *key)
{
	return conf_get_number(r->c, "warm", r->name, key);
}

static void problem(struct reader *r, const char *key, const char *what, const char *do_this)
{
	char at[512];

	conf_problem(r->c, "%s: \"%.100s\" %s", conf_place(r->c, "warm", r->name, key, at), what, do_this);
}

/* --- lists --- */

/* Up to the next comma that no backslash is before. */
static size_t word_len(const char *s)
{
	size_t n = 0;

	while (s[n] && s[n] != ',')
		n += s[n] == '\\' && s[n + 1] == ',' ? 2 : 1;
	return n;
}

static void take_backslashes(char *s)
{
	char *to = s;

	for (; *s; s++)
		if (s[0] != '\\' || s[1] != ',')
			*to++ = *s;
	*to = 0;
}

/* The next word of a list by commas, without blanks around it; false at its end. Heap. */
static bool next_word(struct reader *r, const char **at, char **ret)
{
	const char *s = *at + strspn(*at, " \t,");
	size_t n = word_len(s);

	*at = s + n;
	while (n && strchr(" \t", s[n - 1]))
		n--;
	if (!n || r->err)
		return false;
	*ret = strndup(s, n);
	if (*ret)
		take_backslashes(*ret);
	else
		r->err = -ENOMEM;
	return *ret != NULL;
}

static void read_words(struct reader *r, const char *key, struct cloud_strs *ret)
{
	const char *at = get(r, key);
	char *word;

	while (next_word(r, &at, &word)) {
		if (!r->err)
			r->err = cloud_strs_add(ret, word);
		free(word);
	}
}

/* "NAME=VALUE" */
static void read_pairs(struct reader *r, const char *key, struct cloud_kvs *ret)
{
	const char *at = get(r, key);
	char *word;

	while (next_word(r, &at, &word)) {
		char *value = strchr(word, '=');

		if (!value || value == word) {
			problem(r, key, word, "is not NAME=VALUE");
		} else {
			*value++ = 0;
			if (cloud_kvs_get(ret, word))
				problem(r, key, word, "is named twice");
			else if (!r->err)
				r->err = cloud_kvs_add(ret, word, value);
		}
		free(word);
	}
}

/* --- who may claim --- */

/* What a reload's worker or the start has looked up already is not looked up again. */
static int find_id(struct reader *r, enum conf_id kind, const char *name, uint32_t *ret)
{
	if (conf_id(r->c, kind, name, ret))
		return 0;
	return kind == CONF_ID_USER ? users_look_name(name, ret) : users_look_group(name, ret);
}

static void read_claimer(struct reader *r, const char *word)
{
	struct warm_claimers *w = &r->e->claimers;
	bool is_group = word[0] == '@';
	uint32_t id;
	int e;

	if (w->n_uids + w->n_gids == LIST_MAX) {
		problem(r, "uids", word, "is one too many: at most 256");
		return;
	}
	e = find_id(r, is_group ? CONF_ID_GROUP : CONF_ID_USER, word + is_group, &id);
	if (e < 0)
		problem(r, "uids", word, e != -ENOENT ? "cannot be looked up: the tables of users do not answer" :
			is_group ? "is no group of this machine" : "is no user of this machine");
	else if (is_group)
		r->gids[w->n_gids++] = id;
	else
		r->uids[w->n_uids++] = id;
}

static void read_claimers(struct reader *r, bool user_mode)
{
	const char *at = get(r, "uids");
	char *word, place[512];

	r->e->claimers.uids = r->uids = calloc(LIST_MAX, sizeof(*r->uids));
	r->e->claimers.gids = r->gids = calloc(LIST_MAX, sizeof(*r->gids));
	if (!r->uids || !r->gids) {
		r->err = -ENOMEM;
		return;
	}
	if (!*at && user_mode)
		r->uids[r->e->claimers.n_uids++] = geteuid();
	else if (!*at)
		conf_problem(r->c, "%s: uids is missing: name who may claim them, as in uids = alice, @devs", place_of_section(r, place));
	while (next_word(r, &at, &word)) {
		read_claimer(r, word);
		free(word);
	}
}

/* --- the network --- */

static struct cloud_rule *rule_of(struct reader *r, struct cloud_network *n, const char *domain)
{
	struct cloud_rule *rule = NULL;

	for (size_t i = 0; i < n->n_rules; i++)
		if (str_eq(n->rules[i].domain, domain))
			return &n->rules[i];
	r->err = cloud_network_add_rule(n, domain, &rule);
	return rule;
}

/* "HOST:NAME=VALUE" */
static void read_headers(struct reader *r, struct cloud_network *n)
{
	const char *at = get(r, "headers");
	char *word;

	while (next_word(r, &at, &word)) {
		char *name = strchr(word, ':'), *value = name ? strchr(name, '=') : NULL;
		struct cloud_rule *rule;

		if (!value || name == word || value == name + 1) {
			problem(r, "headers", word, "is not HOST:NAME=VALUE");
		} else {
			*name++ = *value++ = 0;
			rule = rule_of(r, n, word);
			if (rule && cloud_kvs_get(&rule->headers, name))
				problem(r, "headers", name, "is named twice for its host");
			else if (rule)
				r->err = cloud_kvs_add(&rule->headers, name, value);
		}
		free(word);
	}
}

static void read_proxy_password(struct reader *r, struct cloud_network *n, const char *file)
{
	struct secret *s;
	int e = secret_read(file, getenv("CREDENTIALS_DIRECTORY"), &s);

	if (e < 0) {
		problem(r, "egress_proxy_password_file", file, secret_error(e));
		return;
	}
	n->egress_password = str_dup(secret_text(s));
	if (!n->egress_password)
		r->err = -ENOMEM;
	secret_free(s);
}

/* "[USER@]HOST:PORT" */
static void read_proxy(struct reader *r, struct cloud_network *n)
{
	const char *proxy = get(r, "egress_proxy"), *at = strrchr(proxy, '@'), *file = get(r, "egress_proxy_password_file");
	char place[512];

	if (*proxy)
		n->egress_address = str_dup(at ? at + 1 : proxy);
	if (at)
		n->egress_username = strndup(proxy, (size_t)(at - proxy));
	if ((*proxy && !n->egress_address) || (at && !n->egress_username))
		r->err = -ENOMEM;
	if (*file && !at)
		conf_problem(r->c, "%s: is for a user in egress_proxy, as in USER@HOST:PORT",
			     conf_place(r->c, "warm", r->name, "egress_proxy_password_file", place));
	else if (*file)
		read_proxy_password(r, n, file);
}

static bool is_nothing(const struct cloud_network *n)
{
	return !n->allow_out.n && !n->deny_out.n && !n->allow_public_traffic && !n->mask_request_host && !n->n_rules &&
	       !n->egress_address;
}

static void read_network(struct reader *r)
{
	struct cloud_network *n = calloc(1, sizeof(*n));
	const char *host = get(r, "mask_request_host");

	if (!n) {
		r->err = -ENOMEM;
		return;
	}
	r->e->what.network = n;
	read_words(r, "allow_out", &n->allow_out);
	read_words(r, "deny_out", &n->deny_out);
	if (!number(r, "allow_public_traffic"))
		n->allow_public_traffic = TRI_FALSE;
	if (*host && !(n->mask_request_host = str_dup(host)))
		r->err = -ENOMEM;
	read_headers(r, n);
	read_proxy(r, n);
	if (is_nothing(n))
		r->e->what.network = cloud_network_free(n);
	else if (!r->err)
		r->err = netrules_complete(n, r->e->what.allow_internet_access);
}

static int add_token(struct cloud_create *w, const char *name, const char *audience)
{
	struct cloud_iam_token *v = reallocarray(w->iam_tokens, w->n_iam_tokens + 1, sizeof(*v)), *t;

	if (!v)
		return -ENOMEM;
	w->iam_tokens = v;
	t = &v[w->n_iam_tokens++];
	*t = (struct cloud_iam_token){ .name = str_dup(name), .audience = str_dup(audience), .token_type = str_dup(NETRULES_TOKEN_TYPE) };
	return t->name && t->audience && t->token_type ? 0 : -ENOMEM;
}

static void read_tokens(struct reader *r)
{
	struct cloud_kvs pairs = { 0 };

	read_pairs(r, "iam_tokens", &pairs);
	for (size_t i = 0; i < pairs.n && !r->err; i++)
		r->err = add_token(&r->e->what, pairs.v[i].key, pairs.v[i].value);
	cloud_kvs_fini(&pairs);
}

/* --- the rest --- */

static void read_what(struct reader *r)
{
	struct cloud_create *w = &r->e->what;

	w->timeout_s = (uint32_t)(number(r, "timeout") / 1000);
	w->secure = tri_of(number(r, "secure") != 0);
	w->allow_internet_access = tri_of(number(r, "allow_internet_access") != 0);
	w->template_id = str_dup(get(r, "template"));
	if (!w->template_id)
		r->err = -ENOMEM;
	read_pairs(r, "envs", &w->envs);
	read_tokens(r);
	read_network(r);
}

static void check_what(struct reader *r)
{
	struct cloud_create *w = &r->e->what;
	const struct sandbox_create as = { .what = *w };
	const struct netrules_with with = { .secure = w->secure, .knows_tokens = true, .tokens = w->iam_tokens, .n_tokens = w->n_iam_tokens };
	struct netrules_fault fault;
	struct status st;
	char at[512];

	if (!w->template_id[0])
		conf_problem(r->c, "%s: template is missing: say what they are made from", place_of_section(r, at));
	else if (!rules_check_create(&as, &st))
		conf_problem(r->c, "%s: %s", place_of_section(r, at), st.text);
	if (netrules_tokens_ok(w->iam_tokens, w->n_iam_tokens, &fault) &&
	    (!w->network || netrules_network_ok(w->network, &with, &fault)))
		return;
	rules_network_fault(&fault, &st);
	conf_problem(r->c, "%s: %s", place_of_section(r, at), st.text);
}

static void check_secret(struct reader *r, const char *file)
{
	struct secret *s;
	int e = file[0] == '/' ? secret_read(file, getenv("CREDENTIALS_DIRECTORY"), &s) : -EINVAL;

	if (file[0] != '/')
		problem(r, "secret_envs", file, "is not an absolute path");
	else if (e < 0)
		problem(r, "secret_envs", file, secret_error(e));
	else
		secret_free(s);
}

static void read_prepare(struct reader *r)
{
	struct cloud_kvs files = { 0 };
	char at[512];

	r->e->prepare = *get(r, "prepare") ? get(r, "prepare") : NULL;
	r->e->secret_envs = *get(r, "secret_envs") ? get(r, "secret_envs") : NULL;
	if (r->e->secret_envs && !r->e->prepare)
		conf_problem(r->c, "%s: is for prepare, and there is none", conf_place(r->c, "warm", r->name, "secret_envs", at));
	read_pairs(r, "secret_envs", &files);
	for (size_t i = 0; i < files.n; i++)
		check_secret(r, files.v[i].value);
	cloud_kvs_fini(&files);
}

static void read_entry(struct reader *r, bool user_mode)
{
	struct sandbox_warm_entry *e = r->e;

	e->name = r->name;
	e->account = *get(r, "account") ? get(r, "account") : NULL;
	if (e->account && !r->accounts->has(r->accounts->user, e->account))
		problem(r, "account", e->account, "is no [account NAME] that the daemon runs with: if it is in the file, it needs a restart");
	e->size = (uint32_t)number(r, "size");
	e->burst = (uint32_t)number(r, "burst");
	e->per_hour = (uint32_t)number(r, "per_hour");
	e->ready_timeout_ms = number(r, "ready_timeout");
	e->max_age_ms = number(r, "max_age");
	e->active_ms = number(r, "active");
	read_claimers(r, user_mode);
	read_what(r);
	read_prepare(r);
	if (!r->err)
		check_what(r);
	if (!e->per_hour)
		log_warn("warm_no_bound", "entry=%s per_hour=0 text=\"what it may cost has no bound\"", e->name);
}

static void check_modes(struct conf *c)
{
	enum sandbox_warm_mode mode;
	const char *instance;
	char at[512];

	for (size_t i = 0; (instance = conf_instance(c, "policy", i)); i++) {
		const char *text = conf_get(c, "policy", instance, "warm");

		if (!warm_mode_parse(text, &mode))
			conf_problem(c, "%s: \"%.100s\" is not one of never, prefer and require",
				     conf_place(c, "policy", *instance ? instance : NULL, "warm", at), text);
	}
}

int app_warm_read(struct conf *c, const struct app_known_accounts *accounts, bool user_mode, struct app_warm *ret)
{
	size_t n = conf_n_instances(c, "warm");
	struct app_warm w = { .v = calloc(n + 1, sizeof(*w.v)) };
	int err = w.v ? 0 : -ENOMEM;

	check_modes(c);
	for (size_t i = 0; i < n && !err; i++) {
		struct reader r = { .c = c, .accounts = accounts, .name = conf_instance(c, "warm", i), .e = &w.v[w.n++] };

		read_entry(&r, user_mode);
		err = r.err;
	}
	if (err < 0)
		app_warm_free(&w);
	else
		*ret = w;
	return err;
}

void app_warm_free(struct app_warm *w)
{
	for (size_t i = 0; i < w->n; i++) {
		cloud_create_fini(&w->v[i].what);
		free((uid_t *)w->v[i].claimers.uids);
		free((gid_t *)w->v[i].claimers.gids);
	}
	free(w->v);
	*w = (struct app_warm){ 0 };
}

enum sandbox_warm_mode app_warm_mode(const struct conf *c, const char *instance)
{
	enum sandbox_warm_mode mode = SANDBOX_WARM_UNSET;

	/* check_modes() has refused what is none. */
	if (conf_is_set(c, "policy", instance, "warm") && !warm_mode_parse(conf_get(c, "policy", instance, "warm"), &mode))
		mode = SANDBOX_WARM_NEVER;
	return mode;
}
