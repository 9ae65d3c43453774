/* SPDX-License-Identifier: MIT */
/* The fields of a sandbox. */
#include <string.h>

#include "client/cli/term/field.h"
#include "client/cli/term/out.h"

static void put_metadata(struct json *j, const char *key, const void *row)
{
	const struct ab_sandbox *sb = row;

	json_pairs(j, key, sb->metadata, sb->n_metadata);
}

static void put_lifecycle(struct json *j, const char *key, const void *row)
{
	const struct ab_sandbox *sb = row;

	json_open(j, key, '{');
	if (sb->on_timeout)
		json_text(j, "on_timeout", sb->on_timeout == AB_ON_TIMEOUT_PAUSE ? "pause" : "kill");
	json_choice(j, "keep_memory", sb->keep_memory);
	json_choice(j, "auto_resume", sb->auto_resume);
	json_close(j, '}');
}

static void put_rules(struct json *j, const struct ab_network *n)
{
	json_open(j, "rules", '{');
	for (size_t i = 0; i < n->n_rules; i++)
		json_pairs(j, n->rules[i].host, n->rules[i].headers, n->rules[i].n_headers);
	json_close(j, '}');
}

static void put_network(struct json *j, const char *key, const void *row)
{
	const struct ab_network *n = ((const struct ab_sandbox *)row)->network;

	if (!n)
		return;
	json_open(j, key, '{');
	json_words(j, "allow_out", n->allow_out, n->n_allow_out);
	json_words(j, "deny_out", n->deny_out, n->n_deny_out);
	json_choice(j, "allow_public_traffic", n->allow_public_traffic);
	if (*n->mask_request_host)
		json_text(j, "mask_request_host", n->mask_request_host);
	put_rules(j, n);
	if (*n->proxy_address) {
		json_open(j, "egress_proxy", '{');
		json_text(j, "address", n->proxy_address);
		json_text(j, "username", n->proxy_username);
		json_close(j, '}');
	}
	json_close(j, '}');
}

static void put_policy(struct json *j, const char *key, const void *row)
{
	const struct ab_sandbox *sb = row;

	json_policy(j, key, &sb->policy);
}

static const char *word_of_state(const void *row)
{
	return state_name(((const struct ab_sandbox *)row)->state);
}

static const char *word_of_source(const void *row)
{
	return source_name(((const struct ab_sandbox *)row)->source);
}

const char *metadata_value(const struct ab_sandbox *sb, const char *key, size_t n)
{
	for (size_t i = 0; i < sb->n_metadata; i++)
		if (strlen(sb->metadata[i].key) == n && !memcmp(sb->metadata[i].key, key, n))
			return sb->metadata[i].value;
	return NULL;
}

static const char *metadata_of(const void *row, const char *key, size_t n)
{
	return metadata_value(row, key, n);
}

#define ROW struct ab_sandbox
static const struct field sandbox_fields[] = {
	FIELD(ROW, TEXT, id),
	FIELD(ROW, TEXT, name),
	FIELD(ROW, TEXT, template_id),
	FIELD(ROW, TEXT, alias),
	FIELD_BY(WORD, "state", .word = word_of_state),
	FIELD_BY(OBJECT, "metadata", .put = put_metadata),
	FIELD_AS(ROW, TIME, "started_at", started_at_ms),
	FIELD_AS(ROW, TIME, "end_at", end_at_ms),
	FIELD(ROW, UINT, cpu_count),
	FIELD(ROW, UINT, memory_mb),
	FIELD(ROW, UINT, disk_size_mb),
	FIELD(ROW, TEXT, envd_version),
	FIELD(ROW, TEXT, domain),
	FIELD(ROW, CHOICE, allow_internet_access),
	FIELD_BY(OBJECT, "lifecycle", .put = put_lifecycle),
	FIELD_BY(OBJECT, "network", .put = put_network),
	FIELD(ROW, UINT, owner_uid),
	FIELD(ROW, UINT, leases),
	FIELD(ROW, UINT, generation),
	FIELD_BY(WORD, "source", .word = word_of_source),
	FIELD_AS(ROW, TIME, "as_of", as_of_ms),
	FIELD(ROW, TEXT, account),
	FIELD(ROW, BOOL, adopted),
	FIELD(ROW, BOOL, warm),
	FIELD(ROW, BOOL, end_pending),
	FIELD(ROW, NOTE, warning),
	FIELD(ROW, NOTE, gone_reason),
	FIELD_BY(OBJECT, "policy", .put = put_policy),
};
#undef ROW

const struct field_table fields_of_sandbox = { sandbox_fields, ARRAY_SIZE(sandbox_fields), metadata_of };

void print_sandbox_json(const struct ab_sandbox *sb)
{
	fields_print_json(&fields_of_sandbox, sb);
}
