/* SPDX-License-Identifier: MIT */
#include "daemon/main/page_text.h"

#include <stdio.h>
#include <string.h>

#include "daemon/auth/grant.h"
#include "daemon/auth/owner.h"
#include "daemon/gateway/gateway.h"
#include "proto/base/str.h"

#define PAGE GATEWAY_PAGE_PATH

/* --- parts --- */

static void put_cell(struct html *h, const char *s)
{
	html_put(h, "<td>");
	html_str(h, s);
	html_put(h, "</td>");
}

static void put_count(struct html *h, uint64_t n)
{
	html_put(h, "<td class=\"n\">");
	html_number(h, n);
	html_put(h, "</td>");
}

static void put_time_cell(struct html *h, int64_t wall_ms)
{
	html_put(h, "<td>");
	html_moment(h, wall_ms);
	html_put(h, "</td>");
}

/* `heads` is markup: the cells of the first row. */
static void table_begin(struct html *h, const char *title, const char *heads)
{
	html_put(h, "<h2>");
	html_put(h, title);
	html_put(h, "</h2><div class=\"scroll\"><table><thead><tr>");
	html_put(h, heads);
	html_put(h, "</tr></thead><tbody>");
}

void page_text_table_end(struct html *h)
{
	html_put(h, "</tbody></table></div>");
}

static void put_term(struct html *h, const char *term)
{
	html_put(h, "<dt>");
	html_put(h, term);
	html_put(h, "</dt><dd>");
}

static void put_fact(struct html *h, const char *term, const char *text)
{
	put_term(h, term);
	html_str(h, text);
	html_put(h, "</dd>");
}

static void put_fact_number(struct html *h, const char *term, uint64_t n)
{
	put_term(h, term);
	html_number(h, n);
	html_put(h, "</dd>");
}

static void put_fact_moment(struct html *h, const char *term, int64_t wall_ms)
{
	put_term(h, term);
	html_moment(h, wall_ms);
	html_put(h, "</dd>");
}

void page_text_more(struct html *h, size_t n, const char *of_what)
{
	html_put(h, "<p class=\"dim\">");
	html_number(h, n);
	html_put(h, " ");
	html_put(h, of_what);
	html_put(h, " are not shown.</p>");
}

void page_text_failure(struct html *h, const char *of_what, const struct status *st)
{
	html_put(h, "<h2>");
	html_put(h, of_what);
	html_put(h, "</h2><p class=\"bad\">");
	html_str(h, st->text);
	html_put(h, "</p>");
}

/* --- of all --- */

static void put_degradations(struct html *h, const struct daemon_facts *f)
{
	if (!f->n_degraded) {
		html_put(h, f->draining ? "<p class=\"bad\">It is stopping.</p>" : "<p class=\"good\">All is well.</p>");
		return;
	}
	html_put(h, "<ul>");
	for (size_t i = 0; i < f->n_degraded; i++) {
		const struct daemon_degradation *d = &f->degraded[i];

		html_put(h, "<li class=\"bad\">");
		html_str(h, d->what);
		if (!str_is_empty(d->account)) {
			html_put(h, " of ");
			html_str(h, d->account);
		}
		html_put(h, ", since ");
		html_moment(h, d->since_ms);
		html_put(h, ": ");
		html_str(h, d->message);
		html_put(h, "</li>");
	}
	html_put(h, "</ul>");
}

void page_text_facts(struct html *h, const struct principal *who, const struct daemon_facts *f)
{
	char whose[PRINCIPAL_USER_BYTES + 64];

	snprintf(whose, sizeof(whose), "%s uid %u%s%s%s", who->admin || who->observer ? "what is everybody's, to" : "what belongs to",
		 owner_uid(who->uid), *who->user ? " (" : "", who->user, *who->user ? ")" : "");
	html_put(h, "<h1>agentboxd " AB_VERSION "</h1>");
	put_degradations(h, f);
	html_put(h, "<dl>");
	put_fact(h, "Shown", whose);
	put_fact_moment(h, "Serving since", f->started_at_ms);
	put_term(h, "Sandboxes");
	html_number(h, f->running);
	html_put(h, " running, ");
	html_number(h, f->paused);
	html_put(h, " paused, ");
	html_number(h, f->changing);
	html_put(h, " changing</dd>");
	put_fact_number(h, "Leases", f->leases);
	put_fact_number(h, "Commands running", f->commands);
	put_term(h, "Output kept");
	html_size(h, f->spool_bytes);
	html_put(h, "</dd>");
	put_fact(h, "State", f->store.writable ? f->store.path : "cannot be written");
	html_put(h, "</dl>");
}

static void put_sandbox_name(struct html *h, const struct principal *who, const struct sandbox_view *s)
{
	char masked[16];

	html_put(h, "<td>");
	if (grant_is_masked(who, s->owner_uid)) {
		snprintf(masked, sizeof(masked), "%.6s...", s->id);
		html_str(h, masked);
	} else {
		html_put(h, "<a href=\"" PAGE "sandbox/");
		html_str(h, s->id);
		html_put(h, "\"><code>");
		html_str(h, s->id);
		html_put(h, "</code></a>");
	}
	html_put(h, "</td>");
}

static void put_metadata(struct html *h, const struct sandbox_view *s)
{
	for (size_t i = 0; i < s->n_metadata; i++) {
		if (i)
			html_put(h, ", ");
		html_str(h, s->metadata[i].key);
		html_put(h, "=");
		html_str(h, s->metadata[i].value);
	}
}

static void put_sandbox_row(struct html *h, const struct principal *who, const struct sandbox_view *s)
{
	bool masked = grant_is_masked(who, s->owner_uid);

	html_put(h, "<tr>");
	put_sandbox_name(h, who, s);
	put_cell(h, masked ? "" : s->name);
	put_cell(h, sandbox_state_name(s->state));
	put_cell(h, *s->alias ? s->alias : s->template_id);
	put_count(h, s->leases);
	put_time_cell(h, s->started_at_ms);
	put_time_cell(h, s->end_at_ms);
	html_put(h, "<td class=\"n wide\">");
	html_number(h, owner_uid(s->owner_uid));
	html_put(h, "</td><td class=\"wide\">");
	if (!masked)
		put_metadata(h, s);
	html_put(h, "</td></tr>");
}

/* An observer's place in the list is no id of others: pages of theirs end here. */
static void put_pages(struct html *h, const struct principal *who, const struct sandbox_page *page, const char *from)
{
	html_put(h, "<nav>");
	if (!str_is_empty(from))
		html_put(h, "<a href=\"" PAGE "\">the newest</a> ");
	if (page->next_page_token[0] && (who->admin || !who->observer)) {
		html_put(h, "<a href=\"" PAGE "?page=");
		html_str(h, page->next_page_token);
		html_put(h, "\">older ones</a>");
	} else if (page->next_page_token[0]) {
		html_put(h, "older ones are not shown");
	}
	html_put(h, "</nav>");
}

void page_text_sandboxes(struct html *h, const struct principal *who, const struct sandbox_page *page, const char *from)
{
	table_begin(h, "Sandboxes", "<th>Id<th>Name<th>State<th>Template<th class=\"n\">Leases<th>Started<th>Ends<th class=\"n wide\">Owner"
				    "<th class=\"wide\">Metadata");
	for (size_t i = 0; i < page->n; i++)
		put_sandbox_row(h, who, &page->sandboxes[i]);
	page_text_table_end(h);
	if (!page->n)
		html_put(h, "<p class=\"dim\">There are none.</p>");
	put_pages(h, who, page, from);
}

void page_text_events_begin(struct html *h)
{
	table_begin(h, "Events", "<th>When<th>What<th>Sandbox<th>Reason");
}

void page_text_event(struct html *h, const struct principal *who, const struct sandbox_event *e)
{
	const char *name = sandbox_event_name(e->type);

	if (!name)	/* of the watch itself */
		return;
	html_put(h, "<tr>");
	put_time_cell(h, e->at_ms);
	put_cell(h, name);
	if (e->sandbox)
		put_sandbox_name(h, who, e->sandbox);
	else
		put_cell(h, "");
	put_cell(h, status_reason_name(e->reason));
	html_put(h, "</tr>");
}

static void put_cloud(struct html *h, const struct daemon_cloud *c)
{
	html_put(h, "<tr>");
	put_cell(h, c->account);
	put_cell(h, c->api_url);
	put_cell(h, c->key == DAEMON_KEY_PRESENT ? "there" : c->key == DAEMON_KEY_MISSING ? "missing" : "rejected");
	put_cell(h, c->reachable ? "reachable" : c->last_failure_message);
	put_count(h, c->in_flight);
	put_count(h, c->queued);
	html_put(h, "<td>");
	if (c->extend_most) {
		html_number(h, c->extend_kept);
		html_put(h, " of ");
		html_number(h, c->extend_most);
	}
	html_put(h, "</td></tr>");
}

static void put_origin(struct html *h, const struct daemon_origin *o)
{
	html_put(h, "<tr>");
	put_cell(h, o->origin);
	put_cell(h, o->protocol);
	put_count(h, o->connections);
	put_count(h, o->streams);
	put_count(h, o->queued);
	put_count(h, o->calls);
	put_count(h, o->failures);
	put_cell(h, o->last_error);
	html_put(h, "</tr>");
}

void page_text_clouds(struct html *h, const struct daemon_facts *f)
{
	table_begin(h, "Accounts", "<th>Account<th>Cloud<th>Key<th>State<th class=\"n\">Calls<th class=\"n\">Waiting<th>Kept alive");
	for (size_t i = 0; i < f->n_clouds; i++)
		put_cloud(h, &f->clouds[i]);
	page_text_table_end(h);
	table_begin(h, "Connections to the cloud", "<th>Origin<th>Protocol<th class=\"n\">Open<th class=\"n\">Streams<th class=\"n\">Waiting<th class=\"n\">Calls"
		    "<th class=\"n\">Failures<th>Last failure");
	for (size_t i = 0; i < f->n_pool; i++)
		put_origin(h, &f->pool[i]);
	page_text_table_end(h);
	table_begin(h, "Rates", "<th>Account<th>Route<th class=\"n\">In flight<th>A second<th>Next");
	for (size_t i = 0; i < f->n_clouds; i++)
		for (size_t k = 0; k < f->clouds[i].n_limits; k++) {
			const struct daemon_limit *l = &f->clouds[i].limits[k];
			char rate[32];

			snprintf(rate, sizeof(rate), "%u.%03u", l->per_s_milli / 1000, l->per_s_milli % 1000);
			html_put(h, "<tr>");
			put_cell(h, f->clouds[i].account);
			put_cell(h, l->route);
			put_count(h, l->in_flight);
			put_cell(h, l->per_s_milli ? rate : "");
			put_time_cell(h, l->next_at_ms);
			html_put(h, "</tr>");
		}
	page_text_table_end(h);
}

/* --- of one --- */

void page_text_sandbox(struct html *h, const struct sandbox_view *s)
{
	char machine[96];

	html_put(h, "<nav><a href=\"" PAGE "\">all sandboxes</a></nav><h1><code>");
	html_str(h, s->id);
	html_put(h, "</code></h1><dl>");
	if (*s->name)
		put_fact(h, "Name", s->name);
	put_fact(h, "State", sandbox_state_name(s->state));
	put_fact(h, "Template", *s->alias ? s->alias : s->template_id);
	put_fact(h, "Account", s->account);
	put_fact_number(h, "Owner", owner_uid(s->owner_uid));
	put_fact_moment(h, "Started", s->started_at_ms);
	put_fact_moment(h, s->end_pending ? "Ends (asked for)" : "Ends", s->end_at_ms);
	if (s->cpu_count) {
		snprintf(machine, sizeof(machine), "%u CPUs, %u MiB of memory, %u MiB of disk", s->cpu_count, s->memory_mb, s->disk_size_mb);
		put_fact(h, "Machine", machine);
	}
	if (s->n_metadata) {
		put_term(h, "Metadata");
		put_metadata(h, s);
		html_put(h, "</dd>");
	}
	if (*s->warning)
		put_fact(h, "Warning", s->warning);
	put_fact_moment(h, "As of", s->as_of_ms);
	html_put(h, "</dl>");
}

void page_text_leases(struct html *h, const struct sandbox_lease *v, size_t n)
{
	table_begin(h, "Leases", "<th>Lease<th>Label<th class=\"n\">Uid<th class=\"n\">Process<th>Until");
	for (size_t i = 0; i < n; i++) {
		html_put(h, "<tr>");
		put_cell(h, v[i].id);
		put_cell(h, v[i].label);
		put_count(h, owner_uid(v[i].uid));
		put_count(h, (uint64_t)v[i].pid);
		if (v[i].expires_at_ms)
			put_time_cell(h, v[i].expires_at_ms);
		else
			put_cell(h, "held");
		html_put(h, "</tr>");
	}
	page_text_table_end(h);
	if (!n)
		html_put(h, "<p class=\"dim\">There are none.</p>");
}

static void put_end(struct html *h, const struct command_result *r)
{
	char text[64];

	switch (r ? r->outcome : COMMAND_RUNNING) {
	case COMMAND_RUNNING:
		html_put(h, "<span class=\"good\">running</span>");
		return;
	case COMMAND_EXITED:
		snprintf(text, sizeof(text), "exited with %d", r->exit_code);
		break;
	case COMMAND_SIGNALED:
		snprintf(text, sizeof(text), "ended by %s", *r->signal ? r->signal : "a signal");
		break;
	default:
		snprintf(text, sizeof(text), "%s", status_reason_name(r->reason));
	}
	html_str(h, text);
	html_put(h, " at ");
	html_moment(h, r->exited_at_ms);
}

void page_text_command(struct html *h, const struct command_view *c)
{
	html_put(h, "<h2><code>");
	html_str(h, c->shell);
	for (size_t i = 0; str_is_empty(c->shell) && i < c->n_args; i++) {
		html_put(h, i ? " " : "");
		html_str(h, c->args[i]);
	}
	html_put(h, "</code></h2><p class=\"dim\">");
	if (c->pid) {
		html_put(h, "pid ");
		html_number(h, c->pid);
		html_put(h, ", ");
	}
	html_put(h, c->foreign ? "not started through agentboxd, " : "");
	html_put(h, "since ");
	html_moment(h, c->started_at_ms);
	html_put(h, ", ");
	put_end(h, c->result);
	html_put(h, "</p>");
}
