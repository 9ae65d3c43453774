/* SPDX-License-Identifier: MIT */
/* The status page around what it shows: one file, no address of others, and scripts and styles of this answer alone. [pure] */
#ifndef AB_DAEMON_GATEWAY_PAGE_SHELL_H
#define AB_DAEMON_GATEWAY_PAGE_SHELL_H

#include "daemon/common/http/html.h"

#define PAGE_SHELL_TYPE "text/html; charset=utf-8"
#define PAGE_SHELL_NO_SCRIPT "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
/* Both %s are the nonce of the answer. */
#define PAGE_SHELL_POLICY PAGE_SHELL_NO_SCRIPT "; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'"
#define PAGE_SHELL_OVER "your session is over, or there is none: agentboxctl page prints a link that opens this page"
#define PAGE_SHELL_USED "this link was used already, is too old, or is another user's: agentboxctl page prints a new one"

/* `live`: where the event stream is; `html` is written as it is. */
void page_shell_write(struct html *h, const char *nonce, const char *live, const char *html, size_t n);
/* A page with a line of text. */
void page_shell_say(struct html *h, const char *text);

#endif
