/* SPDX-License-Identifier: MIT */
/*
 * What egress.c (a sandbox's way out), egress_flow.c (its connections) and egress_dns.c (its questions for
 * addresses) share.
 */
#ifndef AB_DAEMON_LOCAL_EGRESS_EGRESS_INT_H
#define AB_DAEMON_LOCAL_EGRESS_EGRESS_INT_H

#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "daemon/local/egress/egress.h"
#include "daemon/local/egress/egress_host.h"
#include "daemon/local/egress/egrule.h"
#include "proto/base/list.h"

#define EGRESS_BOX_FLOWS_MAX	 256u		/* connections of a sandbox; more are reset */
#define EGRESS_BOX_QUESTIONS_MAX 64u		/* more are dropped: the asker asks again */
#define EGRESS_BUF_BYTES	 (32u * 1024)	/* each way of a connection */
#define EGRESS_NAME_WAIT_MS	 10000u		/* for the bytes that say which host is meant */
#define EGRESS_SILENCE_MS	 1000u		/* … where it may go on without, and headers may have to be set */
#define EGRESS_CONNECT_WAIT_MS	 30000u		/* for the name and the connection together */
#define EGRESS_DNS_WAIT_MS	 5000u

struct egress {
	unsigned magic;
	struct loop *loop;
	struct egress_host *host;
	const char *id;
	int tcp, udp;
	struct watch tcp_watch, udp_watch;
	struct timer again;		/* when there were no descriptors left */
	bool is_closed;			/* e->tcp does not listen: connections are refused at once */
	struct egrule *rules;
	struct list flows, questions;
	unsigned n_flows, n_questions;
	struct grave grave;
};

/* egress_flow.c: takes the accepted connection over. */
void egress_flow_start(struct egress *e, int fd);
/* Ends those that the rules do not allow any more; all of them. */
void egress_flows_check(struct egress *e);
void egress_flows_cut(struct egress *e);
/* Closes so that the other side sees a reset. */
int egress_reset(int fd);

/* egress_dns.c: whatever has come to e->udp. */
void egress_dns_read(struct egress *e);
void egress_dns_cut(struct egress *e);

#endif
