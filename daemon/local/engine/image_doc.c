/* SPDX-License-Identifier: MIT */
#include "daemon/local/engine/image_doc.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

#define REF_NAME "org.opencontainers.image.ref.name"

static int refuse(char why[IMAGE_DOC_WHY_MAX], const char *words)
{
	str_copy(why, IMAGE_DOC_WHY_MAX, words);
	return -EBADMSG;
}

bool image_digest_ok(const char *s)
{
	size_t n = str_starts(s, "sha256:") ? 64 : str_starts(s, "sha512:") ? 128 : 0;

	return n && strlen(s) == 7 + n && strspn(s + 7, "0123456789abcdef") == n;
}

/* NULL for what is no text. */
static const char *text_of(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static int copy(const char *s, char **ret)
{
	*ret = s ? str_dup(s) : NULL;
	return s && !*ret ? -ENOMEM : 0;
}

static int load(const char *text, size_t n, json_t **ret, char why[IMAGE_DOC_WHY_MAX])
{
	json_error_t e;

	if (n > IMAGE_DOC_MAX_BYTES)
		return refuse(why, "it is larger than 4 MiB");
	*ret = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	if (*ret && !json_is_object(*ret)) {
		json_decref(*ret);
		*ret = NULL;
	}
	return *ret ? 0 : refuse(why, "it is no JSON object");
}

/* --- references --- */

static void ref_fini(struct image_ref *r)
{
	free(r->media_type);
	free(r->os);
	free(r->arch);
	free(r->name);
}

static int parse_ref(const json_t *o, struct image_ref *ret, char why[IMAGE_DOC_WHY_MAX])
{
	const json_t *platform = json_object_get(o, "platform"), *size = json_object_get(o, "size");
	const char *digest = text_of(o, "digest"), *type = text_of(o, "mediaType");

	if (!digest || !image_digest_ok(digest))
		return refuse(why, "a digest is missing, or neither sha256 nor sha512");
	if (!json_is_integer(size) || json_integer_value(size) < 0)
		return refuse(why, "a size is missing, or no number");
	str_copy(ret->digest, sizeof(ret->digest), digest);
	ret->size = (uint64_t)json_integer_value(size);
	if (copy(type ? type : "", &ret->media_type) < 0 || copy(text_of(platform, "os"), &ret->os) < 0 ||
	    copy(text_of(platform, "architecture"), &ret->arch) < 0 ||
	    copy(text_of(json_object_get(o, "annotations"), REF_NAME), &ret->name) < 0)
		return -ENOMEM;
	return 0;
}

static int parse_list(const json_t *list, size_t max, struct image_doc *d, char why[IMAGE_DOC_WHY_MAX])
{
	size_t n = json_array_size(list);
	int r = 0;

	if (n > max)
		return refuse(why, "it lists too many");
	d->list = calloc(n + 1, sizeof(*d->list));
	if (!d->list)
		return -ENOMEM;
	for (; d->n < n && r == 0; d->n++)
		r = parse_ref(json_array_get(list, d->n), &d->list[d->n], why);
	return r;
}

void image_doc_fini(struct image_doc *d)
{
	ref_fini(&d->config);
	for (size_t i = 0; i < d->n; i++)
		ref_fini(&d->list[i]);
	free(d->list);
	*d = (struct image_doc){ .n = 0 };
}

static int parse_doc(const json_t *o, struct image_doc *d, char why[IMAGE_DOC_WHY_MAX])
{
	const json_t *list = json_object_get(o, "manifests"), *layers = json_object_get(o, "layers");
	int r;

	d->is_index = json_is_array(list);
	if (d->is_index == json_is_array(layers))
		return refuse(why, "it is neither an index nor a manifest");
	if (d->is_index)
		return parse_list(list, IMAGE_LIST_MAX, d, why);
	r = parse_ref(json_object_get(o, "config"), &d->config, why);
	return r < 0 ? r : parse_list(layers, IMAGE_LAYERS_MAX, d, why);
}

int image_doc_parse(const char *text, size_t n, struct image_doc *ret, char why[IMAGE_DOC_WHY_MAX])
{
	json_auto_t *o = NULL;
	int r = load(text, n, &o, why);

	*ret = (struct image_doc){ .n = 0 };
	if (r == 0)
		r = parse_doc(o, ret, why);
	if (r < 0)
		image_doc_fini(ret);
	return r;
}

/* --- the configuration --- */

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static void trim(const char **p, size_t *n)
{
	while (*n && is_space(**p)) {
		(*p)++;
		(*n)--;
	}
	while (*n && is_space((*p)[*n - 1]))
		(*n)--;
}

/* As the cloud: both sides trimmed, and none that is empty then. *ret NULL: left out. */
static int parse_variable(const char *s, char **ret)
{
	const char *eq = strchr(s, '='), *name = s, *value = eq ? eq + 1 : "";
	size_t n_name = eq ? (size_t)(eq - s) : 0, n_value = strlen(value);

	trim(&name, &n_name);
	trim(&value, &n_value);
	*ret = NULL;
	if (!n_name || !n_value)
		return 0;
	*ret = str_printf("%.*s=%.*s", (int)n_name, name, (int)n_value, value);
	return *ret ? 0 : -ENOMEM;
}

static int parse_env(const json_t *list, struct image_config *c, char why[IMAGE_DOC_WHY_MAX])
{
	size_t max = json_array_size(list), n = 0;
	int r = 0;

	if (max > IMAGE_ENV_MAX)
		return refuse(why, "it has too many variables");
	c->env = calloc(max + 1, sizeof(*c->env));
	if (!c->env)
		return -ENOMEM;
	for (size_t i = 0; i < max && r == 0; i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (!s)
			return refuse(why, "config.Env is no list of texts");
		r = parse_variable(s, &c->env[n]);
		n += c->env[n] != NULL;
	}
	return r;
}

static int parse_diff_ids(const json_t *list, struct image_config *c, char why[IMAGE_DOC_WHY_MAX])
{
	size_t n = json_array_size(list);

	if (!json_is_array(list) || n > IMAGE_LAYERS_MAX)
		return refuse(why, "rootfs.diff_ids is missing, or lists too many");
	c->diff_ids = calloc(n + 1, sizeof(*c->diff_ids));
	if (!c->diff_ids)
		return -ENOMEM;
	for (; c->n_diff_ids < n; c->n_diff_ids++) {
		const char *s = json_string_value(json_array_get(list, c->n_diff_ids));

		if (!s || !image_digest_ok(s))
			return refuse(why, "rootfs.diff_ids has what is no digest");
		str_copy(c->diff_ids[c->n_diff_ids], IMAGE_DIGEST_MAX, s);
	}
	return 0;
}

void image_config_fini(struct image_config *c)
{
	for (char **e = c->env; e && *e; e++)
		free(*e);
	free(c->env);
	free(c->os);
	free(c->arch);
	free(c->diff_ids);
	*c = (struct image_config){ .os = NULL };
}

int image_config_parse(const char *text, size_t n, struct image_config *ret, char why[IMAGE_DOC_WHY_MAX])
{
	json_auto_t *o = NULL;
	int r = load(text, n, &o, why);

	*ret = (struct image_config){ .os = NULL };
	if (r == 0 && (copy(text_of(o, "os"), &ret->os) < 0 || copy(text_of(o, "architecture"), &ret->arch) < 0))
		r = -ENOMEM;
	if (r == 0)
		r = parse_env(json_object_get(json_object_get(o, "config"), "Env"), ret, why);
	if (r == 0)
		r = parse_diff_ids(json_object_get(json_object_get(o, "rootfs"), "diff_ids"), ret, why);
	if (r < 0)
		image_config_fini(ret);
	return r;
}
