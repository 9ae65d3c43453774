/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the library share: the client, its connections, its calls.
 *
 * A client has at most one connection that takes new calls, and any number that are retiring (the
 * daemon said GOAWAY, or died) and live until their calls have ended. All of them hang in one epoll,
 * whose descriptor is the one that event loops see.
 *
 * A call is queued, then open on a stream of a connection, then done. It may go back to the
 * queue when the daemon cannot have seen it, or when doing it twice does no harm. The `ready` callbacks
 * run at one place only, the end of ab_process(), from the list of calls that are ready.
 */
#ifndef AB_CLIENT_LIB_CLIENT_H
#define AB_CLIENT_LIB_CLIENT_H

#include <stdbool.h>
#include <sys/types.h>

#include <protobuf-c/protobuf-c.h>

#include "client/include/agentbox.h"
#include "client/lib/dial.h"
#include "proto/base/buf.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/wire/frame.h"
#include "proto/wire/h2.h"

#define STREAM_WINDOW_BYTES (1024u * 1024)	/* unread bytes per stream; then the daemon waits */
#define READ_BYTES	    (64u * 1024)	/* one recv() */
#define READS_PER_PASS	    16u			/* then others get their turn */
#define PUT_BYTES	    (64u * 1024)	/* data of one message that we send */
#define PUT_HEAD_BYTES	    48u			/* and what stands before it */
#define REPLY_MAX_BYTES	    (16u * 1024 * 1024)	/* of one message; a larger one fails its call */
#define ATTEMPTS_MAX	    8u			/* how often a call is sent, at most */
#define DIAL_EVERY_MS	    25u			/* between two attempts to reach the socket */
#define MUTE_MS		    3000u	/* of silence, then the user is told */
#define PING_AFTER_MS	    1500u	/* of silence while calls are open; doubles while PINGs are answered, … */
#define PING_AFTER_MAX_MS   24000u	/* … up to this */
#define CALL_MUTE_MS	    10000u	/* of silence, then calls with a deadline end */
#define CONN_MUTE_MS	    60000u	/* of silence, then all do */
#define DEADLINE_GRACE_MS   50u			/* in which the daemon's own answer is preferred */
#define DEFAULT_WAIT_MS	    3000u
#define DEFAULT_DEADLINE_MS 60000u
#define NO_TIME		    UINT64_MAX

struct conn {
	struct list link;		/* ab_client.conns */
	struct ab_client *client;
	struct h2 *h2;
	int fd;				/* -1: dead, kept for what its streams still hold */
	bool retiring;			/* no new calls */
	bool blocked;			/* EPOLLOUT is asked for */
	bool send_broken;		/* sending failed; there may be answers to read */
	bool greeted;			/* the daemon spoke; no call is opened before */
	unsigned silence;		/* how much of what silence brings has been done */
	uint64_t heard_ms;		/* the last bytes, or call opened; at first when it was made */
	uint64_t ping_ms;		/* of the one that was not answered; 0 = none */
	uint32_t ping_after_ms;
	unsigned n_calls;		/* that hold a stream of it */
};

struct ab_client {
	uint32_t magic;
	pid_t pid;			/* that made the connections */
	int epoll_fd;			/* -1 if a child could not make its own yet */
	char *socket;			/* NULL = the usual places */
	char *user_agent;
	uint64_t wait_ms, deadline_ms;

	struct list conns, calls, queued, noted;
	struct list calling;		/* of noted, while the callbacks run */
	bool dialing;			/* until a connection is greeted */
	bool gave_up;			/* dialing failed */
	const char *dial_why;		/* a connection was made and came to nothing: what the daemon does; NULL */
	uint64_t dial_until_ms, dial_next_ms;
	struct dial dial;
	void (*notice)(const char *text, void *user);
	void *notice_user;

	uint64_t next_deadline_ms;	/* not later than the earliest of all calls */
	bool in_callback;
	uint8_t *rx;			/* READ_BYTES */
	const struct ab_error *error;	/* of the last function that waited */
	struct ab_call *started;	/* by a function that waits, on its way from the start to wait_object() or wait_answer() */
};

enum call_state { CALL_QUEUED, CALL_OPEN, CALL_DONE };

struct ab_call;

/* What is known about a method at build time. */
struct call_method {
	const char *path;			/* "/agentbox.v1.SandboxService/Get" */
	const ProtobufCMessageDescriptor *reply;
	/* A whole message came in; takes it. 0, -ENOMEM, -EPROTO. `make`: it becomes the call's
	 * object. Neither, and no `skip`: it is an answer, or nothing but the end. */
	int (*make)(ProtobufCMessage *m, void **ret);
	int (*on_reply)(struct ab_call *call, ProtobufCMessage *m);
	size_t answer_at;			/* of the reply's yes or no (protobuf_c_boolean); 0 = it has none */
	/* The user takes messages one by one (call_next_body()). Takes one more thing and drops it. 1, or 0 if there is none
	 * now. */
	int (*skip)(struct ab_call *call);
	/* The stream ended well; a last look. NULL = fine. */
	const struct ab_error *(*on_end)(struct ab_call *call);
	bool repeatable;			/* doing it twice does no harm */
	bool no_deadline;			/* unless the user gives one */
	bool puts;				/* the user sends messages after the first */
	bool replies_optional;
};

struct ab_call {
	uint32_t magic;
	struct ab_client *client;
	const struct call_method *method;
	enum call_state state;
	struct list link;		/* ab_client.calls */
	struct list queue_link;		/* ab_client.queued */
	struct list noted_link;		/* ab_client.noted, calling */
	void (*ready)(struct ab_call *call, void *user);
	void *user;
	uint64_t deadline_at_ms;	/* NO_TIME = none */
	char request_id[32];		/* that we made */
	char *given_id;			/* that the user gave */

	struct buf request;		/* framed, what goes out when it is opened; kept for another attempt */
	struct conn *conn;		/* with stream */
	struct h2_stream *stream;	/* while open, and until all was taken */
	unsigned attempts;
	struct frame_reader reader;
	bool have_body;			/* reader.body is in the user's hands */
	bool got_reply;			/* at least one message came */
	bool progressed;			/* since the last ab_call_poll() */
	bool has_put;			/* a message after the first was sent: no other attempt */
	bool finished;			/* our side is ended */

	const struct ab_error *error;
	void *object;			/* the result */
	bool answer;

	/* of the streams, by kind */
	void *event;			/* object behind the last event */
	struct ab_file *info;		/* Read: what is being read */
	const struct ab_error *refusal;	/* Write: of the one file */
	uint64_t bytes;			/* Read: so far; SendInput: offset of the next byte */
	uint64_t accepted;		/* SendInput */
	bool end_seen;			/* Read */
};

/* client.c: functions that use a connection begin with one of these two, which notices a fork. */
void client_enter(struct ab_client *c);
struct ab_client *call_enter(struct ab_call *call);
/* A call waits to be sent. */
void client_queue(struct ab_client *c, struct ab_call *call);
/* The call is ready for the user. */
void client_note(struct ab_client *c, struct ab_call *call);
void client_set_error(struct ab_client *c, const struct ab_error *e);	/* takes it */

/* silence.c: the next moment at which a connection's silence means something; NO_TIME. */
uint64_t conn_silence_due_ms(const struct conn *conn);
/* Does what is due at that moment, if it came. true: another pass may find something to do. */
bool conn_check_silence(struct conn *conn, uint64_t now_ms);

/* conn.c */
int conn_new(struct ab_client *c, int fd, uint64_t now_ms, struct conn **ret);	/* takes fd if 0 */
/* Closes without a byte more; its calls lose their streams. */
void conn_free(struct conn *conn);
/* The daemon is taken for dead: its calls lose their streams. */
void conn_die(struct conn *conn);
/* true: did something. */
bool conn_pass(struct conn *conn, uint64_t now_ms);
void conn_flush(struct conn *conn);
/* Ends it if nobody needs it any more. */
void conn_reap(struct conn *conn);

/* call.c */
/* An empty call, not yet the client's to send. */
int call_new(struct ab_client *c, const struct call_method *m, const struct ab_call_options *how,
	     struct ab_call **ret);
/* The same with a request id, the given one or one made here, which is the call's. */
int call_new_once(struct ab_client *c, const struct call_method *m, const struct ab_call_options *how,
		  const char *given, char **ret_id, struct ab_call **ret);
/* Packs its first message and queues it. If it fails, the call is gone. */
int call_submit(struct ab_call *call, const ProtobufCMessage *first, struct ab_call **ret);
/* Both at once, for methods without a request id. */
int call_start(struct ab_client *c, const struct call_method *m, const ProtobufCMessage *first,
	       const struct ab_call_options *how, struct ab_call **ret);
/* Opens a stream for it. 0; -EAGAIN: no room on this connection. */
int call_open(struct ab_call *call, struct conn *conn, uint64_t now_ms);
/* The stream is ready: flags H2_READY_…. */
void call_on_ready(struct ab_call *call, unsigned flags);
/* Done; takes the error (NULL = it went well). */
void call_finish(struct ab_call *call, const struct ab_error *e);
/* Ends it, if it is not done, for an -errno: of its answers -EPROTO, -EMSGSIZE; or one of error_errno(). 0: of a `next`, nothing
 * to take. */
int call_fail(struct ab_call *call, int r);
void call_drop_stream(struct ab_call *call);
void call_destroy(struct ab_call *call);
/* Nobody but us takes its messages. */
static inline bool call_takes_replies(const struct ab_call *call)
{
	return !call->method->skip;
}
/* The body of the next message, valid until the next: 1; 0 none now. Only for methods whose user takes
 * them. */
int call_next_body(struct ab_call *call, const uint8_t **ret, size_t *ret_n);
/* The next message, unpacked and the caller's: 1; 0 none now (also after one that is broken, which
 * ends the call). */
int call_next_message(struct ab_call *call, ProtobufCMessage **ret);
/* Sends a message: its packed head of at most PUT_HEAD_BYTES, then the bytes of `field`, if there are
 * any; of a call that is still queued, after its first message. 0, -EPIPE, -ENOMEM. */
int call_put(struct ab_call *call, const void *head, size_t n_head, unsigned field, const void *data,
	     size_t n_data);
typedef int call_put_fn(struct ab_call *call, const void *data, size_t n);
/* In pieces, as far as there is room: how many bytes were taken; -EPIPE, -ENOMEM. */
ptrdiff_t call_put_pieces(struct ab_call *call, const void *data, size_t n, call_put_fn *put);
/* Bytes that may be put now; 0 none; -EPIPE once it cannot be any more. */
ptrdiff_t call_room(const struct ab_call *call);
int call_put_end(struct ab_call *call);

/* wait.c */
/* Sleeps until something is due, at most timeout_ms (< 0: no bound), then processes. -errno. */
int client_wait(struct ab_client *c, int timeout_ms);
/* The same for a call, which ends if its client cannot work at all. */
void wait_once(struct ab_call *call, int timeout_ms);
/* r is what a start into c->started returned. Waits for the outcome of that call, moves result or error, ends it. Returns the
 * status. ret may be NULL. */
int wait_object(struct ab_client *c, int r, void **ret);
int wait_answer(struct ab_client *c, int r, bool *ret);
/* Puts all of it, waiting for room. false: the call ended. */
bool wait_put(struct ab_call *call, const uint8_t *p, size_t n,
	      ptrdiff_t (*put)(struct ab_call *call, const void *data, size_t n));
/* Attempts at one stream, for functions that wait: over restarts of the daemon, within what the caller gave for all of them. */
struct repeat {
	struct ab_client *c;
	struct ab_call_options how;	/* of the next attempt */
	bool is_input;			/* a SendInput: the daemon may not have reached the sandbox again, or miss the end of the last one */
	uint64_t deadline_at_ms;	/* 0 = none */
	uint64_t until_ms;		/* of attempts without progress; 0 = none of them has failed */
};
void repeat_init(struct repeat *p, struct ab_client *c, const struct ab_call_options *how);
void repeat_heard(struct repeat *p);	/* there was progress */
/* Whether there is another attempt, after one that ended as e (NULL: well). Waits a moment from the second on. */
bool repeat_may(struct repeat *p, const struct ab_error *e);
/* Ends a call that is done or was cancelled; its error becomes the client's. Returns the status. */
int wait_end(struct ab_client *c, struct ab_call *call);

#endif
