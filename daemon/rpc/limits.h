/* SPDX-License-Identifier: MIT */
/* The caps of the gRPC server; each says what happens there. */
#ifndef AB_DAEMON_RPC_LIMITS_H
#define AB_DAEMON_RPC_LIMITS_H

#define RPC_CONNS_PER_UID	1024u		/* one more: closed when accepted */
#define RPC_CONNS		8192u		/* of all uids: closed when accepted */
#define RPC_STREAMS_PER_UID	1000u		/* long streams: RESOURCE_EXHAUSTED TOO_MANY_STREAMS */
#define RPC_STREAMS		4000u		/* of all uids: the same */
#define RPC_CALLS_PER_UID	1000u		/* unary in flight: the same */
#define RPC_CALLS		4000u		/* of all uids: the same; a uid has RPC_CALLS_KEPT all the same */
#define RPC_CALLS_KEPT		64u		/* of each uid, also above RPC_CALLS */
#define RPC_H2_STREAMS		2000u		/* SETTINGS_MAX_CONCURRENT_STREAMS: the client waits */
#define RPC_PAGE_MAX_BYTES	(3u << 20)	/* of a list's answer: the page ends early; clients refuse 4 MiB */
#define RPC_UNARY_MAX_BYTES	(1024u * 1024)	/* request: INVALID_ARGUMENT TOO_LARGE */
#define RPC_STREAM_MAX_BYTES	(256u * 1024)	/* each message of a client's stream: the same */
#define RPC_SEND_MAX_BYTES	(256u * 1024)	/* unsent per call; above it room is 0 */
#define RPC_WINDOW_BYTES	(256u * 1024)	/* receive window of a stream: the client waits */
#define RPC_HEAD_MAX_N		128u		/* header fields: RESOURCE_EXHAUSTED TOO_LARGE */
#define RPC_HEAD_MAX_BYTES	(16u * 1024)	/* the same */
/* Memory held. From 7/8 of one of the three on calls are refused, RESOURCE_EXHAUSTED QUOTA_UID or TOO_MANY_STREAMS; a connection
 * that needs more than there is gets closed. */
#define RPC_MEMORY_ALL		(128u << 20)	/* for all clients */
#define RPC_MEMORY_UID		(40u << 20)	/* for those of one uid */
#define RPC_MEMORY_CONN		(24u << 20)	/* for one connection */
#define RPC_CONN_BYTES		65536u		/* a connection and a few calls: without room for it, closed when accepted */
#define RPC_CALL_BYTES		4096u		/* about what a call takes here, its request aside */
#define RPC_REQUEST_COPIES	3u		/* forms in which a request is held: as it came, ours, the cloud's */
#define RPC_FEED_MS		2u		/* between two looks at calls that wait for memory */
#define RPC_INFLATE_BYTES	(256u * 1024)	/* inflated in one pass of the loop; the rest waits for the next */
#define RPC_RELIEF_MS		1000u		/* a client without memory left that reads nothing for so long: closed */
#define RPC_HANDSHAKE_MS	10000u		/* preface and first request: closed */
#define RPC_REQUEST_MS		60000u		/* a whole request: DEADLINE_EXCEEDED */
#define RPC_FLUSH_MS		60000u		/* a client that takes less than RPC_FLUSH_BYTES of the end in it: reset */
#define RPC_FLUSH_BYTES		6144u
#define RPC_SILENCE_MS		30000u		/* then a long stream sends a heartbeat */
#define RPC_DRAIN_MS		100u		/* of a stop: unary calls may end by themselves; then they are ended */
#define RPC_DRAIN_FLUSH_MS	100u		/* after that, for clients to read what was sent and the GOAWAY */
#define RPC_PUSHBACK_MS		50u		/* of DRAINING: when to try again; a passed socket queues who comes early */
#define RPC_METADATA_MAX	64u		/* entries of `metadata`: TOO_LARGE */
#define RPC_ENVS_MAX		256u		/* entries of `envs`: TOO_LARGE */
#define RPC_ARGS_MAX		4096u		/* of a command: TOO_LARGE */

#endif
