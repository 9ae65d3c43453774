/* SPDX-License-Identifier: MIT */
/* One table says how each field of a sandbox is found; printing, order and the list of an error are made from it. */
#include "client/cli/term/field.h"

#include <string.h>

#include "client/cli/term/out.h"

#define METADATA "metadata."

enum field_kind {
	FIELD_TEXT,	/* const char * */
	FIELD_NOTE,	/* the same, not there when it is empty */
	FIELD_UINT,	/* uint32_t */
	FIELD_TIME,	/* int64_t */
	FIELD_BOOL,
	FIELD_CHOICE,	/* enum ab_choice, not there without one */
	FIELD_WORD,	/* by `word` */
	FIELD_OBJECT,	/* by `put` */
};

struct field {
	const char *name;
	enum field_kind kind;
	size_t at;	/* offset in struct ab_sandbox */
	const char *(*word)(const struct ab_sandbox *sb);
	void (*put)(struct json *j, const char *key, const struct ab_sandbox *sb);
};

static void json_choice(struct json *j, const char *key, enum ab_choice c)
{
	if (c != AB_DEFAULT)
		json_bool(j, key, c == AB_YES);
}

static void put_metadata(struct json *j, const char *key, const struct ab_sandbox *sb)
{
	json_pairs(j, key, sb->metadata, sb->n_metadata);
}

static void put_lifecycle(struct json *j, const char *key, const struct ab_sandbox *sb)
{
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

static void put_network(struct json *j, const char *key, const struct ab_sandbox *sb)
{
	const struct ab_network *n = sb->network;

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

static void put_policy(struct json *j, const char *key, const struct ab_sandbox *sb)
{
	json_policy(j, key, &sb->policy);
}

static const char *word_of_state(const struct ab_sandbox *sb)
{
	return state_name(sb->state);
}

static const char *word_of_source(const struct ab_sandbox *sb)
{
	return source_name(sb->source);
}

#define AT(member)	     .at = offsetof(struct ab_sandbox, member)
#define FIELD(kind_, member) { .name = #member, .kind = FIELD_##kind_, AT(member) }
#define FIELD_AS(kind_, name_, member) { .name = name_, .kind = FIELD_##kind_, AT(member) }
#define FIELD_BY(kind_, name_, how) { .name = name_, .kind = FIELD_##kind_, how }

static const struct field fields[] = {
	FIELD(TEXT, id),
	FIELD(TEXT, name),
	FIELD(TEXT, template_id),
	FIELD(TEXT, alias),
	FIELD_BY(WORD, "state", .word = word_of_state),
	FIELD_BY(OBJECT, "metadata", .put = put_metadata),
	FIELD_AS(TIME, "started_at", started_at_ms),
	FIELD_AS(TIME, "end_at", end_at_ms),
	FIELD(UINT, cpu_count),
	FIELD(UINT, memory_mb),
	FIELD(UINT, disk_size_mb),
	FIELD(TEXT, envd_version),
	FIELD(TEXT, domain),
	FIELD(CHOICE, allow_internet_access),
	FIELD_BY(OBJECT, "lifecycle", .put = put_lifecycle),
	FIELD_BY(OBJECT, "network", .put = put_network),
	FIELD(UINT, owner_uid),
	FIELD(UINT, leases),
	FIELD(UINT, generation),
	FIELD_BY(WORD, "source", .word = word_of_source),
	FIELD_AS(TIME, "as_of", as_of_ms),
	FIELD(TEXT, account),
	FIELD(BOOL, adopted),
	FIELD(BOOL, warm),
	FIELD(BOOL, end_pending),
	FIELD(NOTE, warning),
	FIELD(NOTE, gone_reason),
	FIELD_BY(OBJECT, "policy", .put = put_policy),
};

static const void *place(const struct field *f, const struct ab_sandbox *sb)
{
	return (const char *)sb + f->at;
}

static const char *text_of(const struct field *f, const struct ab_sandbox *sb)
{
	return f->kind == FIELD_WORD ? f->word(sb) : *(const char *const *)place(f, sb);
}

static void put_field(struct json *j, const char *key, const struct field *f, const struct ab_sandbox *sb)
{
	switch (f->kind) {
	case FIELD_NOTE:
		if (*text_of(f, sb))
			json_text(j, key, text_of(f, sb));
		return;
	case FIELD_TEXT:
	case FIELD_WORD:
		json_text(j, key, text_of(f, sb));
		return;
	case FIELD_UINT:
		json_uint(j, key, *(const uint32_t *)place(f, sb));
		return;
	case FIELD_TIME:
		json_time(j, key, *(const int64_t *)place(f, sb));
		return;
	case FIELD_BOOL:
		json_bool(j, key, *(const bool *)place(f, sb));
		return;
	case FIELD_CHOICE:
		json_choice(j, key, *(const enum ab_choice *)place(f, sb));
		return;
	case FIELD_OBJECT:
		f->put(j, key, sb);
	}
}

void print_sandbox_json(const struct ab_sandbox *sb)
{
	struct json j;

	json_begin(&j, stdout);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		put_field(&j, fields[i].name, &fields[i], sb);
	json_end(&j);
}

/* --- one by one --- */

const char *metadata_value(const struct ab_sandbox *sb, const char *key, size_t n)
{
	for (size_t i = 0; i < sb->n_metadata; i++)
		if (strlen(sb->metadata[i].key) == n && !memcmp(sb->metadata[i].key, key, n))
			return sb->metadata[i].value;
	return NULL;
}

static int refuse(const struct command *cmd, const char *name, size_t n)
{
	char list[512];
	int at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(fields) && (size_t)at < sizeof(list); i++)
		at += snprintf(list + at, sizeof(list) - (size_t)at, "%s, ", fields[i].name);
	return usage(cmd, "'%.*s' is no field; there are %s%sKEY", (int)n, name, list, METADATA);
}

int field_find(const struct command *cmd, const char *name, size_t n, struct field_ref *ret)
{
	*ret = (struct field_ref){ 0 };
	if (n > strlen(METADATA) && !memcmp(name, METADATA, strlen(METADATA))) {
		ret->key = name + strlen(METADATA);
		ret->n_key = n - strlen(METADATA);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (strlen(fields[i].name) == n && !memcmp(fields[i].name, name, n))
			ret->field = &fields[i];
	return ret->field ? 0 : refuse(cmd, name, n);
}

bool field_has_order(const struct field_ref *r)
{
	return r->key || r->field->kind != FIELD_OBJECT;
}

static int64_t number_of(const struct field *f, const struct ab_sandbox *sb)
{
	switch (f->kind) {
	case FIELD_UINT:
		return *(const uint32_t *)place(f, sb);
	case FIELD_TIME:
		return *(const int64_t *)place(f, sb);
	case FIELD_BOOL:
		return *(const bool *)place(f, sb);
	default:	/* FIELD_CHOICE: no is before yes */
		return *(const enum ab_choice *)place(f, sb) == AB_DEFAULT ? -1 : *(const enum ab_choice *)place(f, sb) == AB_YES;
	}
}

static int compare_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

int field_compare(const struct field_ref *r, const struct ab_sandbox *a, const struct ab_sandbox *b)
{
	int64_t one, other;

	if (r->key)
		return compare_text(metadata_value(a, r->key, r->n_key), metadata_value(b, r->key, r->n_key));
	if (r->field->kind == FIELD_TEXT || r->field->kind == FIELD_NOTE || r->field->kind == FIELD_WORD)
		return strcmp(text_of(r->field, a), text_of(r->field, b));
	one = number_of(r->field, a);
	other = number_of(r->field, b);
	return (one > other) - (one < other);
}

/* --- formats --- */

static void print_bare(FILE *f, const struct field_ref *r, const struct ab_sandbox *sb)
{
	const char *value = r->key ? metadata_value(sb, r->key, r->n_key) : NULL;
	struct json j = { .f = f, .bare = true };

	if (r->field)
		put_field(&j, NULL, r->field, sb);
	else if (value)
		json_text(&j, NULL, value);
}

/* One character of a format that is none of a field. Returns how many bytes it takes there. */
static size_t take_plain(const char *at, char *ret)
{
	bool twice = (at[0] == '{' || at[0] == '}') && at[1] == at[0];
	bool escape = at[0] == '\\' && (at[1] == 't' || at[1] == 'n');

	*ret = !escape ? at[0] : at[1] == 't' ? '\t' : '\n';
	return twice || escape ? 2 : 1;
}

/* With `sb` it prints, without it only checks. */
static int walk(const struct command *cmd, const char *format, FILE *f, const struct ab_sandbox *sb)
{
	while (*format) {
		struct field_ref ref;
		char c;

		if (format[0] != '{' || format[1] == '{') {
			format += take_plain(format, &c);
			if (sb)
				(void)fputc(c, f);
			continue;
		}
		size_t n = strcspn(++format, "}");

		if (!format[n])
			return usage(cmd, "--format: '{%s' has no '}'; a brace itself is '{{'", format);
		if (field_find(cmd, format, n, &ref))
			return EXIT_USAGE;
		if (sb)
			print_bare(f, &ref, sb);
		format += n + 1;
	}
	return 0;
}

int format_check(const struct command *cmd, const char *format)
{
	return walk(cmd, format, NULL, NULL);
}

void format_print(FILE *f, const char *format, const struct ab_sandbox *sb)
{
	(void)walk(NULL, format, f, sb);
	(void)fputc('\n', f);
}
