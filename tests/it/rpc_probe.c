/* SPDX-License-Identifier: MIT */
/*
 * rpc_probe SOCKET [MAX_STREAMS]: the daemon's gRPC server with a few methods of the API that only
 * play. Prints "ready"; SIGTERM drains it, ends what is open and exits 0.
 *
 *   SandboxService.Get          owner_uid = caller, leases = calls that were told "gone" so far,
 *                               name = why the last one was
 *   SandboxService.IsRunning    sandbox "slow": no answer; "fail": NOT_FOUND with evidence; else true
 *   CommandService.Attach       stdout_offset bytes of output, then open until it is cancelled; with
 *                               command.sandbox "end" it finishes
 *   CommandService.SendInput    acknowledges; finishes with the client
 *   FileService.Write           results[0].path = number of bytes
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/auth/principal.h"
#include "daemon/common/ev/loop.h"
#include "daemon/common/obs/log.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/socket.h"
#include "daemon/rpc/svc_daemon.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/gen/agentbox_command.pb-c.h"
#include "proto/gen/agentbox_file.pb-c.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"

#define CHUNK 32768u

static struct rpc_server *server;
static struct loop *loop;
static uint32_t n_gone;
static const char *last_gone = "";

static void note_gone(struct rpc_call *c, enum rpc_gone why)
{
	static const char *const names[] = { "cancelled", "deadline", "lost", "server" };

	n_gone++;
	last_gone = names[why];
	free(rpc_call_user(c));
}

static void on_get(struct rpc_call *c, const ProtobufCMessage *m)
{
	Agentbox__V1__Sandbox a = AGENTBOX__V1__SANDBOX__INIT;

	a.owner_uid = rpc_call_who(c)->uid;
	a.leases = n_gone;
	a.name = (char *)last_gone;
	rpc_call_reply(c, &a.base);
}

static void on_is_running(struct rpc_call *c, const ProtobufCMessage *m)
{
	const Agentbox__V1__IsRunningRequest *q = (const void *)m;
	Agentbox__V1__IsRunningResponse a = AGENTBOX__V1__IS_RUNNING_RESPONSE__INIT;
	struct status st;

	if (str_eq(q->sandbox, "slow"))
		return;
	if (str_eq(q->sandbox, "fail")) {
		status_set(&st, R_SANDBOX_GONE, "sandbox \"ä\" is gone: 100 %%");
		status_evidence(&st, "said_by", "cloud");
		st.retry_after_ms = 1500;
		rpc_call_fail(c, &st);
		return;
	}
	a.running = true;
	rpc_call_reply(c, &a.base);
}

struct flood {
	uint64_t at, left;
	bool end;
};

static void pour(struct rpc_call *c)
{
	static uint8_t zeros[CHUNK];
	struct flood *f = rpc_call_user(c);
	size_t room;

	while (f->left && (room = rpc_call_room(c))) {
		Agentbox__V1__CommandEvent e = AGENTBOX__V1__COMMAND_EVENT__INIT;
		Agentbox__V1__Output o = AGENTBOX__V1__OUTPUT__INIT;

		o.stream = AGENTBOX__V1__OUTPUT__STREAM__STDOUT;
		o.offset = f->at;
		o.data.data = zeros;
		o.data.len = MIN(MIN(f->left, MAX(room, 2048u)), CHUNK);
		e.event_case = AGENTBOX__V1__COMMAND_EVENT__EVENT_OUTPUT;
		e.output = &o;
		f->at += o.data.len;
		f->left -= o.data.len;
		rpc_call_send(c, &e.base);
	}
	if (!f->left && f->end) {
		free(f);
		rpc_call_finish(c);
	}
}

static void on_attach(struct rpc_call *c, const ProtobufCMessage *m)
{
	const Agentbox__V1__AttachCommandRequest *q = (const void *)m;
	Agentbox__V1__CommandEvent e = AGENTBOX__V1__COMMAND_EVENT__INIT;
	Agentbox__V1__Command started = AGENTBOX__V1__COMMAND__INIT;
	struct flood *f = calloc(1, sizeof(*f));

	must(f);
	f->left = q->stdout_offset;
	f->end = q->command && str_eq(q->command->sandbox, "end");
	rpc_call_set_user(c, f);
	rpc_call_accept(c);
	e.event_case = AGENTBOX__V1__COMMAND_EVENT__EVENT_STARTED;
	e.started = &started;
	started.running = true;
	rpc_call_send(c, &e.base);
	pour(c);
}

static void on_input(struct rpc_call *c, const ProtobufCMessage *m)
{
	const Agentbox__V1__SendInputRequest *q = (const void *)m;
	Agentbox__V1__SendInputAck a = AGENTBOX__V1__SEND_INPUT_ACK__INIT;

	a.accepted = q->offset + q->data.len;
	rpc_call_send(c, &a.base);
	rpc_call_next(c);
}

static void on_write(struct rpc_call *c, const ProtobufCMessage *m)
{
	const Agentbox__V1__WriteFileRequest *q = (const void *)m;
	uint64_t *n = rpc_call_user(c);

	if (!n) {
		n = calloc(1, sizeof(*n));
		must(n);
		rpc_call_set_user(c, n);
	}
	if (q->part_case == AGENTBOX__V1__WRITE_FILE_REQUEST__PART_DATA)
		*n += q->data.len;
	rpc_call_next(c);
}

static void on_written(struct rpc_call *c)
{
	Agentbox__V1__WriteFileResponse a = AGENTBOX__V1__WRITE_FILE_RESPONSE__INIT;
	Agentbox__V1__WriteResult r = AGENTBOX__V1__WRITE_RESULT__INIT, *list[] = { &r };
	uint64_t *n = rpc_call_user(c);
	char text[32];

	snprintf(text, sizeof(text), "%llu", n ? (unsigned long long)*n : 0);
	free(n);
	r.path = text;
	a.results = list;
	a.n_results = 1;
	rpc_call_reply(c, &a.base);
}

static void look(void *user, const struct principal *who, struct daemon_facts *ret)
{
	static const char *const features[] = { "probe" };
	static const struct daemon_degradation bad[] = {
		{ .what = "cloud", .message = "there is none", .account = "", .reason = R_UNREACHABLE,
		  .since_ms = 1500 },
	};

	*ret = (struct daemon_facts){
		.features = features, .n_features = 1, .socket = "s", .state_dir = "d", .host_id = "h",
		.identity = DAEMON_IDENTITY_PIDFD_INODE, .degraded = bad, .n_degraded = 1,
		.store = { .path = "p" },
	};
}

static void config(void *user, struct daemon_config *ret)
{
	static const char *const secret[] = { "hush" };
	static const struct daemon_config_value values[] = {
		{ .section = "daemon", .key = "history", .default_value = "24h",
		  .origin = DAEMON_CONFIG_DEFAULT },
		{ .section = "account", .key = "key", .default_value = "", .values = secret,
		  .n_values = 1, .origin = DAEMON_CONFIG_FILE, .secret = true },
	};

	*ret = (struct daemon_config){ .values = values, .n_values = 2, .file = "" };
}

#define HANDLER(...) (&(const struct rpc_handler){ __VA_ARGS__, .on_gone = note_gone })
static const struct rpc_method methods[] = {
	{ "/agentbox.v1.SandboxService/Get", RPC_UNARY, false,
	  &agentbox__v1__get_sandbox_request__descriptor, HANDLER(.on_message = on_get) },
	{ "/agentbox.v1.SandboxService/IsRunning", RPC_UNARY, false,
	  &agentbox__v1__is_running_request__descriptor, HANDLER(.on_message = on_is_running) },
	{ "/agentbox.v1.CommandService/Attach", RPC_SERVER_STREAM, false,
	  &agentbox__v1__attach_command_request__descriptor,
	  HANDLER(.on_message = on_attach, .on_room = pour) },
	{ "/agentbox.v1.CommandService/SendInput", RPC_BIDI, false,
	  &agentbox__v1__send_input_request__descriptor,
	  HANDLER(.on_message = on_input, .on_end = rpc_call_finish) },
	{ "/agentbox.v1.FileService/Write", RPC_CLIENT_STREAM, false,
	  &agentbox__v1__write_file_request__descriptor,
	  HANDLER(.on_message = on_write, .on_end = on_written) },
};

static unsigned patience;

/* Connections close by themselves when their last call is over. */
static void on_tick(struct timer *t, void *user)
{
	struct rpc_counts n;

	rpc_server_count(server, (uid_t)-1, &n);
	if (!n.connections || ++patience == 300)
		loop_stop(loop, n.connections ? 1 : 0);
	else
		must(timer_set(t, loop_now_ms(loop) + 10) == 0);
}

static void on_term(int signo, void *user)
{
	static struct timer tick;

	rpc_server_drain(server);
	rpc_server_drain_end(server);
	timer_init(&tick, loop, on_tick, NULL);
	on_tick(&tick, NULL);
}

int main(int argc, char **argv)
{
	struct rpc_socket_options so = { .mode = 0666, .gid = (gid_t)-1 };
	struct svc_daemon_options daemon = { .look = look, .config = config };
	struct rpc_server_options o = { 0 };
	struct rlimit files;
	struct rpc_socket *s;
	struct status why;
	uint64_t max = 0;
	int r;

	if (argc < 2 || (argc > 2 && str_u64(argv[2], strlen(argv[2]), 10000, &max) < 0))
		return 2;
	log_setup(LOG_LEVEL_INFO);
	must(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = files.rlim_max;
	must(setrlimit(RLIMIT_NOFILE, &files) == 0);
	so.path = argv[1];
	if (rpc_socket_open(&so, &s, &why)) {
		fprintf(stderr, "%s\n", why.text);
		return 1;
	}
	must(loop_new(&loop) == 0);
	must(loop_signal(loop, SIGTERM, on_term, NULL) == 0);
	o.loop = loop;
	o.listen_fd = rpc_socket_take_fd(s);
	o.limits.max_streams = (uint32_t)max;
	must(rpc_server_new(&o, &server) == 0);
	must(rpc_server_add(server, methods, ARRAY_SIZE(methods), NULL) == 0);
	must(svc_daemon_add(server, &daemon) == 0);
	printf("ready\n");
	fflush(stdout);
	r = loop_run(loop);
	rpc_server_free(server);
	rpc_socket_free(s);
	loop_free(loop);
	return r ? 1 : 0;
}
