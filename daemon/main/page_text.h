/* SPDX-License-Identifier: MIT */
/* The words and tables of the status page. [pure] */
#ifndef AB_DAEMON_MAIN_PAGE_TEXT_H
#define AB_DAEMON_MAIN_PAGE_TEXT_H

#include "daemon/command/command.h"
#include "daemon/common/http/html.h"
#include "daemon/rpc/svc_daemon.h"
#include "daemon/sandbox/sandbox.h"

/* Of all. What belongs to others is masked where `who` may not see it whole (grant.h). */
void page_text_facts(struct html *h, const struct principal *who, const struct daemon_facts *f);
void page_text_sandboxes(struct html *h, const struct principal *who, const struct sandbox_page *page, const char *from);
void page_text_events_begin(struct html *h);
void page_text_event(struct html *h, const struct principal *who, const struct sandbox_event *e);
void page_text_table_end(struct html *h);
void page_text_clouds(struct html *h, const struct daemon_facts *f);

/* Of one that `who` may see whole; without its tokens and environment. */
void page_text_sandbox(struct html *h, const struct sandbox_view *s);
void page_text_leases(struct html *h, const struct sandbox_lease *v, size_t n);
void page_text_command(struct html *h, const struct command_view *c);
void page_text_more(struct html *h, size_t n, const char *of_what);
void page_text_failure(struct html *h, const char *of_what, const struct status *st);

#endif
