/* SPDX-License-Identifier: MIT */
/* See fake.h. One process, poll(2), everything in memory; it ends when its parent lets go. */
#include "tests/unit/client/fake.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/gen/agentbox_command.pb-c.h"
#include "proto/gen/agentbox_daemon.pb-c.h"
#include "proto/gen/agentbox_file.pb-c.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"
#include "proto/gen/google_rpc_error_details.pb-c.h"

#include "proto/base/cc.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/frame.h"
#include "proto/wire/grpc.h"
#include "proto/wire/h2.h"

#define CONNS_MAX 64u

struct call {
	struct h2_stream *s;
	char path[96];
	struct frame_reader reader;
	unsigned n_messages;
	bool answered, stalled;
	uint64_t left;		/* of a flood */
	uint64_t at;		/* bytes sent or received */
	bool files, cut;
};

struct server {
	int listen_fd;
	struct {
		int fd;
		struct h2 *h2;
	} conns[CONNS_MAX];
	unsigned cancelled, connections, refused;
	uint64_t sent, stdin_bytes;
	bool dying;
	struct call *cat;
};

static struct server sv;

uint8_t fake_byte(uint64_t offset)
{
	return (uint8_t)(offset * 7 + (offset >> 8) * 13 + (offset >> 16));
}

static void say(struct call *c, const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8_t *p = malloc(n + FRAME_PREFIX_BYTES);

	must(p);
	frame_prefix(p, 0, (uint32_t)n);
	(void)protobuf_c_message_pack(m, p + FRAME_PREFIX_BYTES);
	must(h2_stream_write(c->s, p, n + FRAME_PREFIX_BYTES) != -ENOMEM);
	free(p);
}

static void head(struct call *c)
{
	struct fields f = FIELDS_NULL;

	must(grpc_response_head(&f) == 0);
	must(h2_respond(c->s, &f, false) != -ENOMEM);
	fields_fini(&f);
}

static void finish(struct call *c, enum ab_code code, const char *text, const void *details, size_t n)
{
	struct fields f = FIELDS_NULL;

	c->answered = true;
	must(grpc_trailers(&f, code, text, details, n) == 0);
	must(h2_stream_finish(c->s, &f) != -ENOMEM);
	fields_fini(&f);
}

static void answer(struct call *c, const ProtobufCMessage *m)
{
	say(c, m);
	finish(c, CODE_OK, "", NULL, 0);
}

static void refuse(struct call *c)
{
	Google__Rpc__Status st = GOOGLE__RPC__STATUS__INIT;
	Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
	Google__Rpc__ErrorInfo__MetadataEntry e = GOOGLE__RPC__ERROR_INFO__METADATA_ENTRY__INIT, *ep = &e;
	Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;
	Google__Protobuf__Duration d = GOOGLE__PROTOBUF__DURATION__INIT;
	Google__Protobuf__Any any[2] = { GOOGLE__PROTOBUF__ANY__INIT, GOOGLE__PROTOBUF__ANY__INIT };
	Google__Protobuf__Any *anys[2] = { &any[0], &any[1] };
	uint8_t a[256], b[64], all[512];

	e.key = (char *)"field";
	e.value = (char *)"sandbox \xe2\x98\x95";
	info.reason = (char *)"SANDBOX_NOT_FOUND";
	info.domain = (char *)"agentbox";
	info.n_metadata = 1;
	info.metadata = &ep;
	d.seconds = 1;
	d.nanos = 500000000;
	retry.retry_delay = &d;
	any[0].type_url = (char *)"type.googleapis.com/google.rpc.ErrorInfo";
	any[0].value.len = google__rpc__error_info__pack(&info, a);
	any[0].value.data = a;
	any[1].type_url = (char *)"type.googleapis.com/google.rpc.RetryInfo";
	any[1].value.len = google__rpc__retry_info__pack(&retry, b);
	any[1].value.data = b;
	st.code = CODE_NOT_FOUND;
	st.n_details = 2;
	st.details = anys;
	finish(c, CODE_NOT_FOUND, "no such sandbox: caf\xc3\xa9 100%", all,
	       google__rpc__status__pack(&st, all));
}

/* As a daemon that is about to end. */
static void stopping(struct call *c)
{
	Google__Rpc__Status st = GOOGLE__RPC__STATUS__INIT;
	Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
	Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *list[1] = { &any };
	uint8_t a[256], all[512];

	info.reason = (char *)"DRAINING";
	any.type_url = (char *)"type.googleapis.com/google.rpc.ErrorInfo";
	any.value.len = google__rpc__error_info__pack(&info, a);
	any.value.data = a;
	st.code = CODE_UNAVAILABLE;
	st.n_details = 1;
	st.details = list;
	finish(c, CODE_UNAVAILABLE, "about to end", all, google__rpc__status__pack(&st, all));
}

static void on_get(struct call *c, const Agentbox__V1__GetSandboxRequest *req)
{
	Agentbox__V1__Sandbox sb = AGENTBOX__V1__SANDBOX__INIT;
	Agentbox__V1__Sandbox__MetadataEntry e = AGENTBOX__V1__SANDBOX__METADATA_ENTRY__INIT, *ep = &e;
	Google__Protobuf__Timestamp end = GOOGLE__PROTOBUF__TIMESTAMP__INIT;

	if (str_eq(req->sandbox, "missing")) {
		refuse(c);
		return;
	}
	if (str_eq(req->sandbox, "slow"))
		return;
	if (str_eq(req->sandbox, "die"))
		_exit(0);
	if (str_starts(req->sandbox, "refuse:") &&
	    sv.refused < (unsigned)(req->sandbox[7] - '0')) {
		sv.refused++;
		h2_stream_reset(c->s, H2_REFUSED_STREAM);
		return;
	}
	if (str_starts(req->sandbox, "stop:") && sv.refused < (unsigned)(req->sandbox[5] - '0')) {
		sv.refused++;
		h2_goaway(h2_stream_conn(c->s), H2_NO_ERROR);
		stopping(c);
		return;
	}
	sb.id = req->sandbox;
	sb.state = AGENTBOX__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING;
	e.key = (char *)"k";
	e.value = (char *)"v";
	sb.n_metadata = 1;
	sb.metadata = &ep;
	end.seconds = 1700000000;
	end.nanos = 250000000;
	sb.end_at = &end;
	answer(c, &sb.base);
	if (str_eq(req->sandbox, "goaway"))
		h2_goaway(h2_stream_conn(c->s), H2_NO_ERROR);
}

static void event(struct call *c, int which, const void *data, size_t n)
{
	Agentbox__V1__CommandEvent ev = AGENTBOX__V1__COMMAND_EVENT__INIT;
	Agentbox__V1__Command cmd = AGENTBOX__V1__COMMAND__INIT;
	Agentbox__V1__Output out = AGENTBOX__V1__OUTPUT__INIT;
	Agentbox__V1__CommandResult res = AGENTBOX__V1__COMMAND_RESULT__INIT;
	Agentbox__V1__Heartbeat beat = AGENTBOX__V1__HEARTBEAT__INIT;

	ev.event_case = (Agentbox__V1__CommandEvent__EventCase)which;
	switch (which) {
	case AGENTBOX__V1__COMMAND_EVENT__EVENT_STARTED:
		cmd.command_id = (char *)"c1";
		cmd.sandbox = (char *)"sb";
		cmd.pid = 42;
		ev.started = &cmd;
		break;
	case AGENTBOX__V1__COMMAND_EVENT__EVENT_OUTPUT:
		out.stream = AGENTBOX__V1__OUTPUT__STREAM__STDOUT;
		out.offset = c->at;
		out.data.data = (uint8_t *)data;
		out.data.len = n;
		ev.output = &out;
		break;
	case AGENTBOX__V1__COMMAND_EVENT__EVENT_HEARTBEAT:
		ev.heartbeat = &beat;
		break;
	default:
		res.outcome = AGENTBOX__V1__COMMAND_RESULT__OUTCOME__EXITED;
		res._exit_code_case = AGENTBOX__V1__COMMAND_RESULT___EXIT_CODE_EXIT_CODE;
		res.exit_code = 7;
		res.output_complete = true;
		ev.exited = &res;
	}
	say(c, &ev.base);
}

/* Sends what there is room for. */
static void pour(struct call *c)
{
	uint8_t piece[16384];

	while (!c->answered && c->left && h2_stream_room(c->s)) {
		size_t n = (size_t)MIN(c->left, sizeof(piece));

		for (size_t i = 0; i < n; i++)
			piece[i] = fake_byte(c->at + i);
		if (c->files) {
			Agentbox__V1__ReadFileResponse r = AGENTBOX__V1__READ_FILE_RESPONSE__INIT;

			r.part_case = AGENTBOX__V1__READ_FILE_RESPONSE__PART_DATA;
			r.data.data = piece;
			r.data.len = n;
			say(c, &r.base);
		} else {
			event(c, AGENTBOX__V1__COMMAND_EVENT__EVENT_OUTPUT, piece, n);
		}
		c->at += n;
		c->left -= n;
		sv.sent += n;
	}
	if (c->answered || c->left)
		return;
	if (c->cut && !c->files) {
		sv.dying = true;	/* once it is all out: conn_step() */
		return;
	}
	if (!c->files)
		event(c, AGENTBOX__V1__COMMAND_EVENT__EVENT_EXITED, NULL, 0);
	if (c->files && !c->cut) {
		Agentbox__V1__ReadFileResponse r = AGENTBOX__V1__READ_FILE_RESPONSE__INIT;
		Agentbox__V1__ReadEnd end = AGENTBOX__V1__READ_END__INIT;

		end.bytes = c->at;
		r.part_case = AGENTBOX__V1__READ_FILE_RESPONSE__PART_END;
		r.end = &end;
		say(c, &r.base);
	}
	finish(c, CODE_OK, "", NULL, 0);
}

static uint64_t number_after(const char *s, const char *prefix, bool *ret_is)
{
	uint64_t n = 0;

	*ret_is = str_starts(s, prefix);
	if (*ret_is)
		must(str_u64(s + strlen(prefix), strlen(s) - strlen(prefix), UINT64_MAX, &n) == 0);
	return n;
}

static void on_run(struct call *c, const Agentbox__V1__StartCommandRequest *req)
{
	const char *what;
	bool flood;

	if (req->what_case == AGENTBOX__V1__START_COMMAND_REQUEST__WHAT_ARGV)
		what = req->argv->args[0];
	else
		what = req->shell;
	if (!str_eq(what, "tty")) {
		event(c, AGENTBOX__V1__COMMAND_EVENT__EVENT_HEARTBEAT, NULL, 0);
		event(c, AGENTBOX__V1__COMMAND_EVENT__EVENT_STARTED, NULL, 0);
	}
	sv.stdin_bytes = 0;
	if (str_eq(what, "hang")) {
		sv.cat = c;
		return;
	}
	if (str_eq(what, "tty")) {
		finish(c, CODE_FAILED_PRECONDITION, "terminals are not there yet", NULL, 0);
		return;
	}
	if (str_eq(what, "cat")) {
		must(req->stdin);
		sv.cat = c;
		return;
	}
	c->left = number_after(what, "flood:", &flood);
	if (!flood)
		c->left = number_after(what, "cut:", &c->cut);
	must(flood || c->cut);
	pour(c);
}

static void on_read(struct call *c, const Agentbox__V1__ReadFileRequest *req)
{
	Agentbox__V1__ReadFileResponse r = AGENTBOX__V1__READ_FILE_RESPONSE__INIT;
	Agentbox__V1__FileInfo f = AGENTBOX__V1__FILE_INFO__INIT;
	bool whole;

	if (str_eq(req->path, "missing")) {
		refuse(c);
		return;
	}
	c->files = true;
	c->left = number_after(req->path, "size:", &whole);
	if (!whole)
		c->left = number_after(req->path, "cut:", &c->cut);
	f.name = (char *)"name";
	f.size = (int64_t)c->left;
	f.mode = 0640;
	r.part_case = AGENTBOX__V1__READ_FILE_RESPONSE__PART_FILE;
	r.file = &f;
	say(c, &r.base);
	pour(c);
}

static void on_write(struct call *c, const Agentbox__V1__WriteFileRequest *req)
{
	if (req->part_case == AGENTBOX__V1__WRITE_FILE_REQUEST__PART_HEADER) {
		c->stalled = str_eq(req->header->path, "stall");
		c->cut = str_eq(req->header->path, "broken");
		if (str_eq(req->header->path, "refuse"))
			refuse(c);
		return;
	}
	for (size_t i = 0; i < req->data.len; i++)
		must(req->data.data[i] == fake_byte(c->at + i));
	c->at += req->data.len;
}

static void written(struct call *c)
{
	Agentbox__V1__WriteFileResponse r = AGENTBOX__V1__WRITE_FILE_RESPONSE__INIT;
	Agentbox__V1__WriteResult w = AGENTBOX__V1__WRITE_RESULT__INIT, *wp = &w;
	Agentbox__V1__FileInfo f = AGENTBOX__V1__FILE_INFO__INIT;
	Google__Rpc__Status st = GOOGLE__RPC__STATUS__INIT;

	f.size = (int64_t)c->at;
	st.code = CODE_RESOURCE_EXHAUSTED;
	st.message = (char *)"the disk is full";
	w.result_case = c->cut ? AGENTBOX__V1__WRITE_RESULT__RESULT_ERROR
			       : AGENTBOX__V1__WRITE_RESULT__RESULT_FILE;
	if (c->cut)
		w.error = &st;
	else
		w.file = &f;
	r.n_results = 1;
	r.results = &wp;
	answer(c, &r.base);
}

static void on_input(struct call *c, const Agentbox__V1__SendInputRequest *req)
{
	Agentbox__V1__SendInputAck ack = AGENTBOX__V1__SEND_INPUT_ACK__INIT;

	must(req->offset == sv.stdin_bytes);
	for (size_t i = 0; i < req->data.len; i++)
		must(req->data.data[i] == fake_byte(sv.stdin_bytes + i));
	sv.stdin_bytes += req->data.len;
	ack.accepted = sv.stdin_bytes;
	ack.closed = req->close;
	say(c, &ack.base);
	if (req->close && sv.cat) {
		char text[32];
		int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)sv.stdin_bytes);

		event(sv.cat, AGENTBOX__V1__COMMAND_EVENT__EVENT_OUTPUT, text, (size_t)n);
		event(sv.cat, AGENTBOX__V1__COMMAND_EVENT__EVENT_EXITED, NULL, 0);
		finish(sv.cat, CODE_OK, "", NULL, 0);
		sv.cat = NULL;
	}
}

/* Ends what hangs. */
static void on_kill_command(struct call *c)
{
	Agentbox__V1__KillCommandResponse r = AGENTBOX__V1__KILL_COMMAND_RESPONSE__INIT;

	r.found = sv.cat != NULL;
	if (sv.cat) {
		event(sv.cat, AGENTBOX__V1__COMMAND_EVENT__EVENT_OUTPUT, "bye\n", 4);
		event(sv.cat, AGENTBOX__V1__COMMAND_EVENT__EVENT_EXITED, NULL, 0);
		finish(sv.cat, CODE_OK, "", NULL, 0);
		sv.cat = NULL;
	}
	answer(c, &r.base);
}

static void on_resize(struct call *c)
{
	Agentbox__V1__ResizeResponse r = AGENTBOX__V1__RESIZE_RESPONSE__INIT;

	answer(c, &r.base);
}

static void on_status(struct call *c)
{
	Agentbox__V1__StatusResponse r = AGENTBOX__V1__STATUS_RESPONSE__INIT;
	Agentbox__V1__Counts n = AGENTBOX__V1__COUNTS__INIT;

	r.pid = getpid();
	n.streams = sv.cancelled;
	n.connections = sv.connections;
	n.spool_bytes = sv.sent;
	r.counts = &n;
	answer(c, &r.base);
}

static const struct {
	const char *path;
	const ProtobufCMessageDescriptor *d;
} methods[] = {
	{ "/agentbox.v1.SandboxService/Get", &agentbox__v1__get_sandbox_request__descriptor },
	{ "/agentbox.v1.SandboxService/Kill", &agentbox__v1__kill_sandbox_request__descriptor },
	{ "/agentbox.v1.CommandService/Run", &agentbox__v1__start_command_request__descriptor },
	{ "/agentbox.v1.CommandService/SendInput", &agentbox__v1__send_input_request__descriptor },
	{ "/agentbox.v1.FileService/Read", &agentbox__v1__read_file_request__descriptor },
	{ "/agentbox.v1.FileService/Write", &agentbox__v1__write_file_request__descriptor },
	{ "/agentbox.v1.DaemonService/Status", &agentbox__v1__status_request__descriptor },
	{ "/agentbox.v1.CommandService/Kill", &agentbox__v1__kill_command_request__descriptor },
	{ "/agentbox.v1.CommandService/Resize", &agentbox__v1__resize_request__descriptor },
};

static void on_message(struct call *c, ProtobufCMessage *m)
{
	if (!c->n_messages++)
		head(c);
	if (str_eq(c->path, methods[0].path))
		on_get(c, (Agentbox__V1__GetSandboxRequest *)m);
	else if (str_eq(c->path, methods[1].path))
		_exit(0);
	else if (str_eq(c->path, methods[2].path))
		on_run(c, (Agentbox__V1__StartCommandRequest *)m);
	else if (str_eq(c->path, methods[3].path))
		on_input(c, (Agentbox__V1__SendInputRequest *)m);
	else if (str_eq(c->path, methods[4].path))
		on_read(c, (Agentbox__V1__ReadFileRequest *)m);
	else if (str_eq(c->path, methods[5].path))
		on_write(c, (Agentbox__V1__WriteFileRequest *)m);
	else if (str_eq(c->path, methods[6].path))
		on_status(c);
	else if (str_eq(c->path, methods[7].path))
		on_kill_command(c);
	else
		on_resize(c);
}

static void take(struct call *c)
{
	const ProtobufCMessageDescriptor *d = NULL;
	const uint8_t *p;
	size_t n, used;
	uint8_t flags;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (str_eq(c->path, methods[i].path))
			d = methods[i].d;
	must(d);
	while (!c->stalled && (n = h2_stream_peek(c->s, &p))) {
		int r = frame_reader_feed(&c->reader, p, n, &used, &flags);

		h2_stream_consume(c->s, used);
		if (r == FRAME_MESSAGE) {
			ProtobufCMessage *m = protobuf_c_message_unpack(
				d, NULL, buf_len(&c->reader.body), buf_data(&c->reader.body));

			must(m);
			on_message(c, m);
			protobuf_c_message_free_unpacked(m, NULL);
			frame_reader_next(&c->reader);
		}
	}
	if (h2_stream_at_end(c->s) && !c->answered) {
		if (str_eq(c->path, methods[5].path))
			written(c);
		else if (str_eq(c->path, methods[3].path))
			finish(c, CODE_OK, "", NULL, 0);
	}
}

static void on_stream(struct h2_stream *s, unsigned flags)
{
	struct call *c = h2_stream_user(s);
	uint32_t code = 0;

	if (!c) {
		c = calloc(1, sizeof(*c));
		must(c);
		c->s = s;
		frame_reader_init(&c->reader, 4u << 20);
		h2_stream_set_user(s, c);
		(void)str_copy(c->path, sizeof(c->path), fields_get(h2_stream_head(s), ":path"));
	}
	if (flags & (H2_READY_DATA | H2_READY_END))
		take(c);
	if (flags & H2_READY_ROOM && c->left)
		pour(c);
	if (!(flags & H2_READY_CLOSED))
		return;
	if (h2_stream_closed(s, &code) == H2_CLOSE_RESET && code == H2_CANCEL)
		sv.cancelled++;
	if (sv.cat == c)
		sv.cat = NULL;
	frame_reader_fini(&c->reader);
	h2_stream_release(s);
	free(c);
}

static void conn_step(unsigned i)
{
	struct h2 *h2 = sv.conns[i].h2;
	uint8_t in[65536];
	struct h2_stream *s;
	const uint8_t *p;
	size_t n;
	ssize_t k = recv(sv.conns[i].fd, in, sizeof(in), MSG_DONTWAIT);

	if (k == 0 || (k < 0 && errno != EAGAIN))
		h2_lost(h2);
	else if (k > 0)
		must(h2_feed(h2, in, (size_t)k, clock_boot_ms()) == 0);
	while ((s = h2_next_ready(h2)))
		on_stream(s, h2_stream_take_ready(s));
	while (h2_output(h2, &p, &n) == 0 && n) {
		k = send(sv.conns[i].fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (k < 0)
			break;
		h2_sent(h2, (size_t)k);
	}
	if (sv.dying && !h2_wants_output(h2))
		_exit(0);
	while ((s = h2_next_ready(h2)))		/* sending makes room */
		on_stream(s, h2_stream_take_ready(s));
	if (h2_is_dead(h2)) {
		h2_free(h2);
		fd_close(sv.conns[i].fd);
		sv.conns[i].h2 = NULL;
	}
}

static void conn_accept(void)
{
	const struct h2_options o = { .server = true, .any_authority = true, .max_streams = 1000 };

	for (unsigned i = 0; i < CONNS_MAX; i++) {
		if (sv.conns[i].h2)
			continue;
		if (fd_accept(sv.listen_fd, &sv.conns[i].fd) < 0)
			return;
		must(h2_new(&o, clock_boot_ms(), &sv.conns[i].h2) == 0);
		sv.connections++;
		return;
	}
}

static noreturn_ void serve(int parent_fd)
{
	for (;;) {
		struct pollfd p[CONNS_MAX + 2] = {
			{ .fd = parent_fd, .events = POLLIN },
			{ .fd = sv.listen_fd, .events = POLLIN },
		};

		for (unsigned i = 0; i < CONNS_MAX; i++) {
			struct h2 *h2 = sv.conns[i].h2;

			p[i + 2].fd = h2 ? sv.conns[i].fd : -1;
			p[i + 2].events =
				(short)(POLLIN | (h2 && h2_wants_output(h2) ? POLLOUT : 0));
		}
		(void)poll(p, CONNS_MAX + 2, -1);
		if (p[0].revents)
			_exit(0);
		if (p[1].revents)
			conn_accept();
		for (unsigned i = 0; i < CONNS_MAX; i++)
			if (sv.conns[i].h2 && p[i + 2].revents)
				conn_step(i);
	}
}

static void listen_on(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	must(str_copy(sa.sun_path, sizeof(sa.sun_path), path));
	sv.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(sv.listen_fd >= 0);
	must(bind(sv.listen_fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	must(listen(sv.listen_fd, 128) == 0);
}

void fake_nowhere(struct fake *f)
{
	*f = (struct fake){ .release_fd = -1 };
	(void)str_copy(f->dir, sizeof(f->dir), "/tmp/ab-client-XXXXXX");
	must(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/s", f->dir);
}

void fake_start(struct fake *f, unsigned after_ms)
{
	int pair[2];

	fake_nowhere(f);
	must(pipe(pair) == 0);
	fflush(NULL);
	if (!after_ms)
		listen_on(f->path);
	f->pid = fork();
	must(f->pid >= 0);
	if (f->pid == 0) {
		struct pollfd p = { .fd = pair[0], .events = POLLIN };

		close(pair[1]);
		if (after_ms) {
			if (poll(&p, 1, (int)after_ms))
				_exit(0);
			listen_on(f->path);
		}
		serve(pair[0]);
	}
	close(pair[0]);
	if (!after_ms)
		close(sv.listen_fd);
	f->release_fd = pair[1];
}

void fake_stop(struct fake *f)
{
	int status = 0;

	fd_close(f->release_fd);
	if (f->pid) {
		must(waitpid(f->pid, &status, 0) == f->pid);
		must(status == 0);
	}
	(void)unlink(f->path);
	(void)rmdir(f->dir);
}
