/* SPDX-License-Identifier: MIT */
#include "client/cli/cmd/top_frame.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "client/cli/term/out.h"

#define HEAD_LINES 7u		/* above the sandboxes, their head included */
#define FOOT_LINES 2u
#define LINE_BYTES 2048u

static const char *const sort_names[TOP_SORTS] = { "use", "age", "end", "name", "state" };

const char *top_sort_name(enum top_sort s)
{
	return sort_names[s];
}

bool top_sort_parse(const char *name, enum top_sort *ret)
{
	for (unsigned i = 0; i < TOP_SORTS; i++)
		if (!strcmp(name, sort_names[i])) {
			*ret = (enum top_sort)i;
			return true;
		}
	return false;
}

static int order(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* Of the two that are equal by the key, the one with the lower id is first, so that rows do not jump. */
int top_compare(const void *a, const void *b, void *user)
{
	const struct ab_sandbox *x = *(const struct ab_sandbox *const *)a, *y = *(const struct ab_sandbox *const *)b;
	int r = 0;

	switch (*(const enum top_sort *)user) {
	case TOP_BY_USE:
		r = order(y->leases, x->leases);
		r = r ? r : order(x->state != AB_SANDBOX_RUNNING, y->state != AB_SANDBOX_RUNNING);
		break;
	case TOP_BY_AGE:
		r = order(x->started_at_ms, y->started_at_ms);
		break;
	case TOP_BY_END:
		r = order(x->end_at_ms, y->end_at_ms);
		break;
	case TOP_BY_NAME:
		r = strcmp(x->name, y->name);
		break;
	default:
		r = order(x->state, y->state);
	}
	return r ? r : strcmp(x->id, y->id);
}

/* How many bytes of it are `cols` characters; a character is never cut. */
static size_t cut(const char *text, size_t cols)
{
	size_t i = 0;

	for (; text[i]; i++)
		if (((unsigned char)text[i] & 0xc0) != 0x80 && !cols--)
			break;
	return i;
}

static size_t width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* One line of the picture, cut to its width; `mark`: it is the one that is marked. */
static void put_line(FILE *f, const struct top_view *t, const char *text, bool mark)
{
	char clean[LINE_BYTES];

	(void)safe(text, clean, sizeof(clean));
	if (mark && t->escapes)
		(void)fputs("\033[7m", f);
	fprintf(f, "%.*s", (int)cut(clean, t->cols), clean);
	if (mark && t->escapes)
		(void)fputs("\033[0m", f);
	(void)fputs(t->escapes ? "\033[K\r\n" : "\n", f);
}

static void printf_like(3, 4) say_line(FILE *f, const struct top_view *t, const char *fmt, ...)
{
	char text[LINE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	put_line(f, t, text, false);
}

/* Per second, since the picture before. */
static double rate(const struct top_view *t, uint64_t now, uint64_t before)
{
	int64_t ms = t->now.at_ms - t->before.at_ms;

	return t->before.at_ms && ms > 0 && now >= before ? (double)(now - before) * 1000.0 / (double)ms : 0;
}

static void print_pool(FILE *f, const struct top_view *t)
{
	uint32_t conns = 0, connecting = 0, streams = 0, queued = 0, down = 0;

	for (size_t i = 0; i < t->status->n_pool; i++) {
		conns += t->status->pool[i].connections;
		connecting += t->status->pool[i].connecting;
		streams += t->status->pool[i].streams;
		queued += t->status->pool[i].queued;
	}
	for (size_t i = 0; i < t->status->n_clouds; i++)
		down += !t->status->clouds[i].reachable;
	say_line(f, t, "pool: %u connections (%u coming), %u streams, %u waiting; %u of %zu clouds away", conns, connecting, streams,
		 queued, down, t->status->n_clouds);
}

static void print_head(FILE *f, const struct top_view *t)
{
	const struct ab_daemon_status *s = t->status;
	char up[32], spool[32], held[32];

	say_line(f, t, "agentboxd %s, pid %" PRId64 ", up %s%s%s", s->version, s->pid,
		 span_text((int64_t)(s->uptime_ms / 1000 * 1000), up), s->draining ? ", STOPS" : "",
		 s->n_degraded ? ", DEGRADED: see agentboxctl status" : "");
	say_line(f, t, "sandboxes: %u running, %u paused, %u changing; %u leases; %u commands, %s of output kept", s->sandboxes_running,
		 s->sandboxes_paused, s->sandboxes_changing, s->leases, s->commands_running, size_text(s->spool_bytes, spool));
	say_line(f, t, "clients: %u connections, %u calls, %u streams, %s held; gateway: %u connections, %u relayed", s->connections,
		 s->calls, s->streams, size_text(s->client_bytes, held), s->gateway_connections, s->gateway_relays);
	print_pool(f, t);
	say_line(f, t, "rates: %.1f calls of the cloud a second, %.1f requests of the gateway, %.1f refused",
		 rate(t, t->now.cloud_calls, t->before.cloud_calls), rate(t, t->now.gateway_requests, t->before.gateway_requests),
		 rate(t, t->now.refused, t->before.refused));
}

/* A column's text, at most and at least so wide. */
static void cell(char *line, size_t *at, const char *text, size_t cols)
{
	size_t n = cut(text, cols), w = width(text);

	*at += (size_t)snprintf(line + *at, LINE_BYTES - *at, "%.*s%*s", (int)n, text, (int)(cols + 1 - (w < cols ? w : cols)), "");
}

static const struct column {
	const char *head;
	uint32_t cols, from;	/* from: only where the terminal has so many columns */
} columns[] = {
	{ "SANDBOX", 22, 0 }, { "NAME", 14, 0 }, { "STATE", 10, 0 }, { "LEASES", 6, 0 }, { "AGE", 8, 0 }, { "ENDS IN", 8, 0 },
	{ "OWNER", 6, 0 }, { "TEMPLATE", 20, 110 }, { "ACCOUNT", 12, 130 }, { "CPU", 4, 140 }, { "MEMORY", 8, 150 },
	{ "AGENT", 10, 165 },
};

static const char *span_from(int64_t ms, char buf[32])
{
	return ms < 0 ? "-" : span_text(ms < 1000 ? 1000 : ms - ms % 1000, buf);
}

static const char *value(const struct top_view *t, const struct ab_sandbox *sb, size_t column, char buf[64])
{
	const char *texts[] = { sb->id, *sb->name ? sb->name : "-", state_name(sb->state) };

	if (column < ARRAY_SIZE(texts))
		return texts[column];
	switch (column) {
	case 3:
		(void)snprintf(buf, 64, "%u", sb->leases);
		return buf;
	case 4:
		return span_from(sb->started_at_ms ? t->wall_ms - sb->started_at_ms : -1, buf);
	case 5:
		return span_from(sb->end_at_ms ? sb->end_at_ms - t->wall_ms : -1, buf);
	case 6:
		(void)snprintf(buf, 64, "%u", sb->owner_uid);
		return buf;
	case 7:
		return *sb->alias ? sb->alias : sb->template_id;
	case 8:
		return sb->account;
	case 9:
		(void)snprintf(buf, 64, "%u", sb->cpu_count);
		return buf;
	case 10:
		(void)snprintf(buf, 64, "%u MiB", sb->memory_mb);
		return buf;
	default:
		return sb->envd_version;
	}
}

/* `sb` NULL: the heads. */
static void print_row(FILE *f, const struct top_view *t, const struct ab_sandbox *sb, bool mark)
{
	char line[LINE_BYTES] = "", buf[64];
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (t->cols >= columns[i].from)
			cell(line, &at, sb ? value(t, sb, i, buf) : columns[i].head, columns[i].cols);
	while (at && line[at - 1] == ' ')
		line[--at] = '\0';
	put_line(f, t, line, mark);
}

size_t top_room(const struct top_view *t)
{
	uint32_t taken = HEAD_LINES + FOOT_LINES;

	if (!t->rows)
		return t->n;
	return t->rows > taken ? t->rows - taken : 1;
}

static void print_sandboxes(FILE *f, const struct top_view *t)
{
	size_t room = top_room(t);

	print_row(f, t, NULL, false);
	for (size_t i = t->first; i < t->n && i - t->first < room; i++)
		print_row(f, t, t->v[i], i == t->selected);
	for (size_t i = t->n > t->first ? t->n - t->first : 0; t->rows && i < room; i++)
		put_line(f, t, "", false);
}

void top_print(FILE *f, const struct top_view *t)
{
	if (t->escapes)
		(void)fputs("\033[H", f);
	if (t->status)
		print_head(f, t);
	say_line(f, t, "%zu sandboxes, by %s%s%s", t->n, top_sort_name(t->sort), *t->error ? "; " : "", t->error);
	print_sandboxes(f, t);
	if (!t->escapes)
		return;
	put_line(f, t, t->line, *t->line != '\0');
	fprintf(f, "%.*s\033[J", (int)cut("q quit  up/down choose  s sort  f stay on it  p pause  k kill  space now", t->cols),
		"q quit  up/down choose  s sort  f stay on it  p pause  k kill  space now");
}
