/* SPDX-License-Identifier: MIT */
/*
 * The model cloud's ends of the connections: HTTP/2 over pairs of sockets in simulated time. What it says may come in pieces, late,
 * never, or with its frames changed; a connection may end at any moment. What is answered is fuzz_agent.c's.
 */
#ifndef AB_TESTS_FUZZ_PEERS_H
#define AB_TESTS_FUZZ_PEERS_H

#include "daemon/common/ev/loop.h"
#include "proto/base/buf.h"
#include "proto/base/list.h"
#include "proto/wire/h2.h"

struct peer;
struct proc;

struct ask {			/* a request */
	struct list node;
	struct peer *peer;
	struct h2_stream *s;
	struct timer timer;
	struct buf body;
	char *method, *path, *sandbox;	/* sandbox: "" = of the control plane */
	struct proc *proc;		/* whose stream it is */
	bool began, over;		/* its answer's head was sent; its end was */
	unsigned said;			/* messages of a stream */
};

enum peer_fault {		/* of what is sent in a sequence */
	PEER_GOOD,
	PEER_CUTS,		/* pieces, silence, connections that end */
	PEER_FRAMES,		/* … and frames of HTTP/2 that are changed */
};

void peers_begin(enum peer_fault faults);
void peers_end(void);
void peers_calm(void);		/* from now on it is a good cloud */
bool peers_are_calm(void);
bool frames_were_changed(void);
/* All that was written to it goes out, as far as it does. May end the connection, and the ask with it. */
void peer_flush(struct peer *p);
void peer_cut(struct peer *p);
void peer_leave(struct peer *p);	/* GOAWAY */
/* Implemented by who answers: the request is complete; its timer's moment has come; it is gone. */
void ask_came(struct ask *a);
void ask_due(struct ask *a);
void ask_gone(struct ask *a);
/* Its timer, from now. */
void ask_later(struct ask *a, unsigned ms);

#endif
