/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl port-forward: a connection that came to a forwarded port, joined with one to the gateway. The gateway is told first which
 * port of which sandbox the connection is for (docs/internals/gateway.md); behind its answer bytes pass both ways as they are.
 */
#ifndef AB_CLIENT_CLI_FORWARD_FORWARD_H
#define AB_CLIENT_CLI_FORWARD_FORWARD_H

#include <poll.h>
#include <sys/socket.h>

#include "client/cli/term/cli.h"

#define FORWARD_ADDRESSES  4u
#define FORWARD_BUF_BYTES  32768u
#define FORWARD_HEAD_BYTES 1024u
#define FORWARD_WHY_BYTES  256u
#define FORWARD_HOST_BYTES 256u

/* "8080:3000"; ":3000": any port that is free; "3000": the same on both sides. False: it is none of them. [pure] */
struct forward_pair {
	uint16_t local;		/* 0 = any */
	uint16_t remote;
};
bool forward_pair_read(const char *text, struct forward_pair *ret);

/* Host and port of "http://localhost:24711". False: it is no address of plain HTTP. [pure] */
bool forward_url_read(const char *url, char host[FORWARD_HOST_BYTES], uint16_t *ret_port);

enum forward_answer {
	FORWARD_MORE,		/* the head is not all here */
	FORWARD_AGREED,		/* what stands behind *ret_used bytes is the sandbox's */
	FORWARD_REFUSED,	/* `why`: in its words, as far as they are here */
};

/* The gateway's answer, of which `n` bytes are here; `eof`: and no more will come. [pure] */
enum forward_answer forward_answer_read(const char *p, size_t n, bool eof, size_t *ret_used, char why[FORWARD_WHY_BYTES]);

/* Where the gateway is, and what it is told. */
struct forward_gateway {
	struct sockaddr_storage at[FORWARD_ADDRESSES];
	socklen_t len[FORWARD_ADDRESSES];
	size_t n;
	const char *sandbox, *token;
};

struct forward_pipe {
	char bytes[FORWARD_BUF_BYTES];
	size_t from, to;	/* what is in it */
	bool eof, shut;		/* no more comes in; the end was passed on */
};

enum forward_state {
	FORWARD_WAITS,		/* the gateway is not there, as over a restart */
	FORWARD_DIALS,
	FORWARD_ASKS,
	FORWARD_JOINED,
	FORWARD_OVER,
};

struct forward_conn {
	struct forward_conn *next;
	enum forward_state state;
	int local, gate;	/* descriptors; -1 = none */
	uint16_t remote;
	size_t tried;		/* addresses of the gateway */
	int64_t until_ms;	/* it is tried again */
	struct forward_pipe up, down;
	char why[FORWARD_WHY_BYTES];	/* of its end; "" = it ended well */
};

/* Takes the descriptor over. NULL: no memory, and it is closed. */
struct forward_conn *forward_conn_new(int local, uint16_t remote, int64_t until_ms);
struct forward_conn *forward_conn_free(struct forward_conn *c);		/* returns the next one */
/* What it waits for: two of them, of which a descriptor may be -1. */
void forward_conn_poll(const struct forward_conn *c, struct pollfd p[2]);
/* As far as it goes without waiting. In FORWARD_WAITS it dials again. */
void forward_conn_go(struct forward_conn *c, const struct forward_gateway *g, const struct pollfd p[2], int64_t now_ms);

#endif
