/* SPDX-License-Identifier: MIT */
/* A table is held until its end, since its widest cells are known only then; JSON is printed as it is made. */
#include "client/cli/term/out.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/term/term.h"

/* --- JSON --- */

void json_begin(struct json *j, FILE *f)
{
	*j = (struct json){ .f = f };
	json_open(j, NULL, '{');
}

void json_end(struct json *j)
{
	json_close(j, '}');
	(void)fputc('\n', j->f);	/* out_flush() tells */
}

/* Length of the well-formed UTF-8 sequence at s, 0 if there is none. */
static size_t utf8_length(const unsigned char *s)
{
	static const struct {
		unsigned char lo, hi, second_lo, second_hi, n;
	} t[] = {
		{ 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 },
		{ 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
		{ 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	if (s[0] < 0x80)
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		if (s[0] < t[i].lo || s[0] > t[i].hi)
			continue;
		if (s[1] < t[i].second_lo || s[1] > t[i].second_hi)
			return 0;
		for (size_t k = 2; k < t[i].n; k++)
			if ((s[k] & 0xc0) != 0x80)
				return 0;
		return t[i].n;
	}
	return 0;
}

bool is_utf8(const char *s)
{
	size_t n;

	for (; *s; s += n) {
		n = utf8_length((const unsigned char *)s);
		if (!n)
			return false;
	}
	return true;
}

static void put_string(FILE *f, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	(void)fputc('"', f);
	while (*s) {
		size_t n = utf8_length(s);

		if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if (*s == '\n')
			(void)fputs("\\n", f);
		else if (*s == '\t')
			(void)fputs("\\t", f);
		else if (control_length((const char *)s))
			fprintf(f, "\\u%04x", n == 2 ? s[1] : s[0]);
		else if (!n)
			(void)fputs("\\ufffd", f);
		else
			(void)fwrite(s, 1, n, f);
		s += n ? n : 1;
	}
	(void)fputc('"', f);
}

/* Text at the top of a bare document: as it is, but for control characters. */
static void put_bare(FILE *f, const char *text)
{
	for (size_t n; *text; text += n ? n : 1) {
		n = control_length(text);
		(void)fputc(n ? '?' : *text, f);
	}
}

static void key_part(struct json *j, const char *key)
{
	if (j->comma)
		(void)fputc(',', j->f);
	j->comma = true;
	if (!key)
		return;
	put_string(j->f, key);
	(void)fputc(':', j->f);
}

void json_open(struct json *j, const char *key, char bracket)
{
	key_part(j, key);
	(void)fputc(bracket, j->f);
	j->comma = false;
	j->bare = false;
}

void json_close(struct json *j, char bracket)
{
	(void)fputc(bracket, j->f);
	j->comma = true;
}

void json_text(struct json *j, const char *key, const char *value)
{
	key_part(j, key);
	if (j->bare)
		put_bare(j->f, value);
	else
		put_string(j->f, value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
	key_part(j, key);
	fprintf(j->f, "%" PRId64, value);
}

void json_uint(struct json *j, const char *key, uint64_t value)
{
	key_part(j, key);
	fprintf(j->f, "%" PRIu64, value);
}

void json_number(struct json *j, const char *key, const char *digits)
{
	key_part(j, key);
	(void)fputs(digits, j->f);
}

void json_bool(struct json *j, const char *key, bool value)
{
	key_part(j, key);
	(void)fputs(value ? "true" : "false", j->f);
}

/* Without the zone. */
static void format_time(int64_t at_ms, char buf[32])
{
	time_t s = (time_t)(at_ms / 1000);
	struct tm tm;

	if (!gmtime_r(&s, &tm) || !strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm))
		buf[0] = '\0';
}

void json_time(struct json *j, const char *key, int64_t at_ms)
{
	char buf[32], text[48];

	if (at_ms <= 0) {
		key_part(j, key);
		(void)fputs(j->bare ? "" : "null", j->f);
		return;
	}
	format_time(at_ms, buf);
	(void)snprintf(text, sizeof(text), "%s.%03dZ", buf, (int)(at_ms % 1000));
	json_text(j, key, text);
}

void json_choice(struct json *j, const char *key, enum ab_choice c)
{
	if (c != AB_DEFAULT)
		json_bool(j, key, c == AB_YES);
}

void json_pairs(struct json *j, const char *key, const struct ab_pair *v, size_t n)
{
	json_open(j, key, '{');
	for (size_t i = 0; i < n; i++)
		json_text(j, v[i].key, v[i].value);
	json_close(j, '}');
}

void json_words(struct json *j, const char *key, const char *const *v, size_t n)
{
	json_open(j, key, '[');
	for (size_t i = 0; i < n; i++)
		json_text(j, NULL, v[i]);
	json_close(j, ']');
}

/* --- tables --- */

void table_begin(struct table *t, const char *const *heads)
{
	*t = (struct table){ 0 };
	while (heads[t->columns])
		t->columns++;
	for (size_t i = 0; i < t->columns; i++)
		table_cell(t, heads[i]);
}

void table_cell(struct table *t, const char *text)
{
	size_t n = strlen(text) + 1;
	char *copy;

	if (t->n_cells == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 128;
		char **v = reallocarray(t->cells, cap, sizeof(*v));

		if (!v) {
			t->failed = true;
			return;
		}
		t->cells = v;
		t->cap = cap;
	}
	copy = malloc(n);
	if (!copy) {
		t->failed = true;
		return;
	}
	(void)safe(text, copy, n);
	t->cells[t->n_cells++] = copy;
}

void table_number(struct table *t, uint64_t n)
{
	char buf[32];

	(void)snprintf(buf, sizeof(buf), "%" PRIu64, n);
	table_cell(t, buf);
}

/* Columns on a screen, where every character is one wide, of the first n bytes. */
static size_t width_of(const char *s, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += ((unsigned char)s[i] & 0xc0) != 0x80;
	return sum;
}

static size_t width(const char *s)
{
	return width_of(s, strlen(s));
}

#define CUT_MIN 20u	/* characters that are left of what is cut */

struct layout {
	size_t widths[TABLE_COLUMNS_MAX];
	bool hidden[TABLE_COLUMNS_MAX];
	size_t last;			/* the last column that is shown */
};

static size_t total(const struct table *t, struct layout *l)
{
	size_t sum = 0;

	for (size_t i = 0; i < t->columns; i++) {
		if (l->hidden[i])
			continue;
		sum += l->widths[i] + 2;
		l->last = i;
	}
	return sum ? sum - 2 : 0;
}

static void hide(const struct table *t, struct layout *l, const char *head)
{
	for (size_t i = 0; i < t->columns; i++)
		l->hidden[i] |= !strcmp(t->cells[i], head);
}

/* What cutting can save. */
static size_t slack(const struct table *t, const struct layout *l)
{
	return t->cuts_last && l->widths[l->last] > CUT_MIN ? l->widths[l->last] - CUT_MIN : 0;
}

static void lay_out(const struct table *t, struct layout *l)
{
	const char *const *spare = t->spare;
	uint32_t cols = 0, rows;
	size_t sum;

	for (size_t i = 0; i < t->n_cells; i++) {
		size_t w = width(t->cells[i]);

		if (w > l->widths[i % t->columns])
			l->widths[i % t->columns] = w;
	}
	sum = total(t, l);
	if (!isatty(STDOUT_FILENO))
		return;
	term_size(&cols, &rows);
	for (; sum > cols + slack(t, l) && spare && *spare; spare++) {
		hide(t, l, *spare);
		sum = total(t, l);
	}
	if (sum > cols && sum <= cols + slack(t, l))
		l->widths[l->last] -= sum - cols;
}

/* At most so many characters of it. */
static void cut(char *s, size_t n)
{
	while (*s && n--) {
		size_t k = utf8_length((const unsigned char *)s);

		s += k ? k : 1;
	}
	*s = '\0';
}

static void print_cell(const struct layout *l, size_t column, char *text)
{
	if (l->hidden[column])
		return;
	if (column == l->last) {
		cut(text, l->widths[column]);
		puts(text);
	} else {
		printf("%s%*s", text, (int)(l->widths[column] - width(text) + 2), "");
	}
}

int table_end(struct table *t)
{
	struct layout l = { 0 };
	bool shows = !t->failed && !t->quiet;

	if (shows)
		lay_out(t, &l);
	for (size_t i = 0; i < t->n_cells; i++) {
		if (shows)
			print_cell(&l, i % t->columns, t->cells[i]);
		free(t->cells[i]);
	}
	free(t->cells);
	if (t->failed && !t->quiet)
		fputs("agentboxctl: out of memory\n", stderr);
	return t->failed ? EXIT_ERROR : EXIT_OK;
}

/* --- text --- */

void print_wrapped(FILE *f, size_t indent, const char *text)
{
	uint32_t cols, rows;
	size_t at = indent;

	if (!isatty(fileno(f))) {
		fprintf(f, "%s\n", text);
		return;
	}
	term_size(&cols, &rows);
	while (*text) {
		size_t n = strcspn(text, " \n"), w = width_of(text, n);

		if (at > indent && at + 1 + w > cols) {
			fprintf(f, "\n%*s", (int)indent, "");
			at = indent;
		} else if (at > indent) {
			fputc(' ', f);
			at++;
		}
		fprintf(f, "%.*s", (int)n, text);
		at += w;
		text += n;
		if (*text == '\n') {
			fprintf(f, "\n%*s", (int)indent, "");
			at = indent;
		}
		text += *text != '\0';
	}
	fputc('\n', f);
}

/* --- values --- */

const char *time_text(int64_t at_ms, char buf[32])
{
	if (at_ms <= 0)
		return "-";
	format_time(at_ms, buf);
	(void)strncat(buf, "Z", 32 - strlen(buf) - 1);
	return buf;
}

const char *size_text(uint64_t bytes, char buf[32])
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes / 1024;
	size_t u = 0;

	if (bytes < 1024) {
		(void)snprintf(buf, 32, "%u B", (unsigned)bytes);
		return buf;
	}
	for (; v >= 1024 && u + 1 < ARRAY_SIZE(units); u++)
		v /= 1024;
	(void)snprintf(buf, 32, "%.1f %s", v, units[u]);
	return buf;
}

const char *span_text(int64_t ms, char buf[32])
{
	int64_t s = ms / 1000;

	if (ms <= 0)
		return "-";
	if (ms < 1000 || ms % 1000)
		(void)snprintf(buf, 32, "%" PRId64 "ms", ms);
	else if (s < 60 || (s < 600 && s % 60))
		(void)snprintf(buf, 32, "%" PRId64 "s", s);
	else if (s < 3600)
		(void)snprintf(buf, 32, "%" PRId64 "m", s / 60);
	else if (s % 3600 / 60)
		(void)snprintf(buf, 32, "%" PRId64 "h%" PRId64 "m", s / 3600, s % 3600 / 60);
	else
		(void)snprintf(buf, 32, "%" PRId64 "h", s / 3600);
	return buf;
}

const char *action_name(enum ab_action a)
{
	static const char *const names[] = { "default", "leave", "pause", "kill", "warn" };

	return (size_t)a < ARRAY_SIZE(names) ? names[a] : "unknown";
}

const char *policy_text(const struct ab_policy *p, char *buf, size_t n)
{
	char span[32];
	int at = snprintf(buf, n, "%s", action_name(p->on_release));

	if (p->on_release != AB_ACTION_LEAVE && (size_t)at < n)
		at += snprintf(buf + at, n - (size_t)at, " after %s",
			       p->release_grace_ms ? span_text((int64_t)p->release_grace_ms, span) : "0s");
	if (p->idle_timeout_ms && (size_t)at < n)
		at += snprintf(buf + at, n - (size_t)at, ", idle %s %s", action_name(p->on_idle),
			       span_text((int64_t)p->idle_timeout_ms, span));
	if (p->max_age_ms && (size_t)at < n)
		at += snprintf(buf + at, n - (size_t)at, ", age %s %s", action_name(p->on_max_age),
			       span_text((int64_t)p->max_age_ms, span));
	if (p->recreate == AB_YES && (size_t)at < n)
		(void)snprintf(buf + at, n - (size_t)at, ", gone recreate");
	return buf;
}

void json_policy(struct json *j, const char *key, const struct ab_policy *p)
{
	json_open(j, key, '{');
	json_bool(j, "keep_alive", p->keep_alive == AB_YES);
	json_text(j, "on_release", action_name(p->on_release));
	json_uint(j, "release_grace_ms", p->release_grace_ms);
	if (p->idle_timeout_ms)
		json_uint(j, "idle_timeout_ms", p->idle_timeout_ms);
	json_text(j, "on_idle", action_name(p->on_idle));
	if (p->max_age_ms)
		json_uint(j, "max_age_ms", p->max_age_ms);
	json_text(j, "on_max_age", action_name(p->on_max_age));
	json_text(j, "on_cap", action_name(p->on_cap));
	json_text(j, "on_gone", p->recreate == AB_YES ? "recreate" : "fail");
	json_bool(j, "resume_on_use", p->resume_on_use == AB_YES);
	json_close(j, '}');
}

int policy_option(const struct command *cmd, const char *text, struct ab_policy *ret)
{
	const char *bad;

	if (ab_parse_policy(text, ret, &bad) == 0)
		return 0;
	return usage(cmd, "'%.*s' is no part of a policy, such as on_release=kill, release_grace=2s or keep_alive=no",
		     (int)strcspn(bad, ","), bad);
}

const char *state_name(enum ab_sandbox_state s)
{
	static const char *const names[] = {
		[AB_SANDBOX_UNKNOWN] = "unknown",   [AB_SANDBOX_CREATING] = "creating",
		[AB_SANDBOX_RUNNING] = "running",   [AB_SANDBOX_PAUSING] = "pausing",
		[AB_SANDBOX_PAUSED] = "paused",	    [AB_SANDBOX_RESUMING] = "resuming",
		[AB_SANDBOX_SNAPSHOTTING] = "snapshotting",
		[AB_SANDBOX_KILLING] = "killing",   [AB_SANDBOX_GONE] = "gone",
	};

	return (size_t)s < ARRAY_SIZE(names) ? names[s] : "unknown";
}

const char *source_name(enum ab_source s)
{
	switch (s) {
	case AB_SOURCE_CLOUD:
		return "cloud";
	case AB_SOURCE_CACHE:
		return "cache";
	case AB_SOURCE_CACHE_UNREACHABLE:
		return "cache_cloud_unreachable";
	default:
		return "unknown";
	}
}

static void line(const char *name, const char *value)
{
	char clean[512];

	if (*value)
		printf("%-12s %s\n", name, safe(value, clean, sizeof(clean)));
}

void print_sandbox(const struct cli *cli, const struct ab_sandbox *sb)
{
	char buf[32], text[128];

	if (*sb->warning)
		say(cli, "warning: %s", sb->warning);
	if (cli->args.json) {
		print_sandbox_json(sb);
		return;
	}
	line("id", sb->id);
	line("name", sb->name);
	line("template", sb->template_id);
	line("alias", sb->alias);
	line("state", state_name(sb->state));
	line("gone_reason", sb->gone_reason);
	line("started", time_text(sb->started_at_ms, buf));
	line("ends", time_text(sb->end_at_ms, buf));
	(void)snprintf(text, sizeof(text), "%u CPU, %u MB memory, %u MB disk", sb->cpu_count,
		       sb->memory_mb, sb->disk_size_mb);
	line("size", text);
	line("domain", sb->domain);
	line("envd", sb->envd_version);
	(void)snprintf(text, sizeof(text), "uid %u%s, %u leases", sb->owner_uid,
		       sb->adopted ? " (adopted)" : "", sb->leases);
	line("owner", text);
	line("policy", policy_text(&sb->policy, text, sizeof(text)));
	line("account", sb->account);
	for (size_t i = 0; i < sb->n_metadata; i++) {
		char pair[512];

		(void)snprintf(pair, sizeof(pair), "%s=%s", sb->metadata[i].key, sb->metadata[i].value);
		line(i ? "" : "metadata", pair);
	}
	(void)snprintf(text, sizeof(text), "%s (%s)", time_text(sb->as_of_ms, buf),
		       source_name(sb->source));
	line("as of", text);
}

int out_flush(const struct cli *cli)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_OK;
	return fail_here(cli, "cannot write the output: %s", strerror(errno));
}
