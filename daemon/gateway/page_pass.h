/* SPDX-License-Identifier: MIT */
/*
 * What opens the status page: a ticket, which is in a link for a minute and for one use, and the session that it is exchanged for, which is
 * in a cookie. Both say whose they are and until when, with a sum that only this daemon can make; nothing is kept for them. [pure]
 */
#ifndef AB_DAEMON_GATEWAY_PAGE_PASS_H
#define AB_DAEMON_GATEWAY_PAGE_PASS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE_PASS_KEY	 32u	/* bytes */
#define PAGE_PASS_NONCE	 16u
#define PAGE_PASS_TEXT	 160u	/* with its end */
#define PAGE_TICKET_S	 60
#define PAGE_SESSION_S	 (12 * 3600)

enum page_pass_kind { PAGE_TICKET, PAGE_SESSION };

/* As much as whoever asked for the ticket could see; less, if they may see less by now. */
enum page_sight {
	PAGE_OWN,	/* what is the uid's */
	PAGE_MASKED,	/* an observer: of others without what is a secret */
	PAGE_ALL,	/* an administrator */
};

struct page_pass {
	enum page_pass_kind kind;
	enum page_sight sight;
	uid_t uid;				/* the owner's number (auth/owner.h) */
	int64_t end_s;				/* wall */
	uint8_t nonce[PAGE_PASS_NONCE];
};

/* "t.2.1000.1790000000.NONCE.SUM", hexadecimal both. */
void page_pass_write(const uint8_t key[PAGE_PASS_KEY], const struct page_pass *p, char ret[PAGE_PASS_TEXT]);
/* False: it was not made with this key, is of the other kind, or is over. */
bool page_pass_read(const uint8_t key[PAGE_PASS_KEY], const char *text, enum page_pass_kind kind, int64_t now_s, struct page_pass *ret);
/* The value of our cookie among those of a header "a=b; c=d". False: it is not there, or too long. */
bool page_cookie_find(const char *header, char ret[PAGE_PASS_TEXT]);

#define PAGE_COOKIE "agentboxd_page"

#endif
