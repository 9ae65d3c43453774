/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/agent.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/message.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/frame.h"
#include "tests/fuzz/model.h"
#include "tests/fuzz/peers.h"
#include "tests/sim/sim.h"

#define PROCS	  64u
#define FIRST_PID 100u
#define WORDS_MAX 40000u	/* bytes of one piece of output */
#define HELPER	  "agentbox-helper"

#define TYPE_UNARY  "application/proto"
#define TYPE_STREAM "application/connect+proto"

static struct proc procs[PROCS];
static struct list streams[PROCS];	/* struct seat: who hears a process */
static unsigned n_procs, n_messages;
static bool lies, judged;

struct seat {
	struct list node;
	struct ask *ask;
};

void agent_begin(bool may_lie)
{
	memset(procs, 0, sizeof(procs));
	n_procs = n_messages = 0;
	lies = may_lie;
	judged = true;
}

bool agent_is_judged(void)
{
	return judged && !frames_were_changed();
}

unsigned messages_said(void)
{
	return n_messages;
}

struct proc *proc_of_tag(const char *tag)
{
	for (unsigned i = 0; i < n_procs; i++)
		if (str_eq(procs[i].tag, tag))
			return &procs[i];
	return NULL;
}

static struct proc *proc_of_pid(uint32_t pid)
{
	return pid >= FIRST_PID && pid - FIRST_PID < n_procs ? &procs[pid - FIRST_PID] : NULL;
}

static bool lies_now(void)
{
	return lies && !peers_are_calm() && choose(6) == 0;
}

/* Does its sandbox run? */
static bool is_reached(const struct ask *a)
{
	struct box *x = box_of(a->sandbox, strlen(a->sandbox));

	if (x && x->alive && !x->paused && clock_wall_ms() >= x->end_ms)
		x->alive = false;
	return x && x->alive && !x->paused;
}

/* --- answers --- */

static void put_pack(struct buf *b, const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8_t *p = malloc(n + 1);

	must(p);
	(void)protobuf_c_message_pack(m, p);
	must(!buf_put(b, p, n));
	free(p);
}

static void put_head(struct ask *a, unsigned status, const char *type)
{
	struct fields f = FIELDS_NULL;

	must(!fields_printf(&f, ":status", "%u", status));
	if (type)
		must(!fields_put(&f, "content-type", lies_now() ? (judged = false, "text/html") : type));
	(void)!h2_respond(a->s, &f, false);
	fields_fini(&f);
	a->began = true;
	n_answers++;
}

static void finish(struct ask *a)
{
	struct fields f = FIELDS_NULL;
	bool trailers = lies_now();

	if (trailers)
		must(!fields_put(&f, "grpc-status", "0") && !fields_put(&f, "x-more", "1"));
	(void)!h2_stream_finish(a->s, trailers ? &f : NULL);
	fields_fini(&f);
	a->over = true;
}

/* The whole of an answer. Takes b. */
static void answer(struct ask *a, unsigned status, const char *type, struct buf *b)
{
	if (lies_now()) {
		judged = false;
		lie(&status, b);
		if (status < 200 || status > 599)
			status = 500;
	}
	put_head(a, status, status == 200 || !buf_len(b) ? type : "application/json");
	if (buf_len(b))
		(void)!h2_stream_write(a->s, buf_data(b), buf_len(b));
	buf_fini(b);
	finish(a);
	peer_flush(a->peer);
}

static void refuse(struct ask *a, unsigned status, const char *code, const char *why)
{
	struct buf b = BUF_NULL;

	if (status == 502)
		must(!buf_printf(&b, "{\"sandboxId\":\"%s\",\"message\":\"The sandbox was not found\",\"code\":502}", a->sandbox));
	else
		must(!buf_printf(&b, "{\"code\":\"%s\",\"message\":\"%s\"}", code, why));
	answer(a, status, "application/json", &b);
}

static void say_nothing(struct ask *a)
{
	struct buf b = BUF_NULL;

	answer(a, 200, TYPE_UNARY, &b);
}

static void say(struct ask *a, const ProtobufCMessage *m)
{
	struct buf b = BUF_NULL;

	put_pack(&b, m);
	answer(a, 200, TYPE_UNARY, &b);
}

/* --- streams --- */

static void spoil(struct buf *b, uint8_t *flags, uint32_t *n)
{
	unsigned dummy = 200;

	judged = false;
	switch (choose(5)) {
	case 0:
		*flags = (uint8_t)choose(256);
		break;
	case 1:
		*n = choose(2) ? 0xffffffffu : choose(256) * 64u;
		break;
	default:
		lie(&dummy, b);
		*n = (uint32_t)buf_len(b);
		break;
	}
}

/* One frame of the Connect protocol. Takes b. */
static void put_frame(struct ask *a, uint8_t flags, struct buf *b)
{
	uint8_t prefix[FRAME_PREFIX_BYTES];
	uint32_t n = (uint32_t)buf_len(b);

	if (lies_now())
		spoil(b, &flags, &n);
	frame_prefix(prefix, flags, n);
	(void)!h2_stream_write(a->s, prefix, sizeof(prefix));
	if (buf_len(b))
		(void)!h2_stream_write(a->s, buf_data(b), buf_len(b));
	buf_fini(b);
	a->said++;
	n_messages++;
}

static void put_event(struct ask *a, const Process__ProcessEvent *e)
{
	Process__StartResponse m = PROCESS__START_RESPONSE__INIT;
	struct buf b = BUF_NULL;

	m.event = (Process__ProcessEvent *)e;
	put_pack(&b, &m.base);
	put_frame(a, 0, &b);
}

static void say_started(struct ask *a, uint32_t pid)
{
	Process__ProcessEvent e = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__StartEvent s = PROCESS__PROCESS_EVENT__START_EVENT__INIT;

	s.pid = pid;
	e.event_case = PROCESS__PROCESS_EVENT__EVENT_START;
	e.start = &s;
	put_event(a, &e);
}

static void say_bytes(struct ask *a, unsigned stream, const void *p, size_t n)
{
	Process__ProcessEvent e = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__DataEvent d;

	process__process_event__data_event__init(&d);
	d.output_case = (Process__ProcessEvent__DataEvent__OutputCase)stream;
	d.stdout.data = (uint8_t *)p;	/* the three are members of one union */
	d.stdout.len = n;
	e.event_case = PROCESS__PROCESS_EVENT__EVENT_DATA;
	e.data = &d;
	put_event(a, &e);
}

static void say_alive(struct ask *a)
{
	Process__ProcessEvent e = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__KeepAlive k = PROCESS__PROCESS_EVENT__KEEP_ALIVE__INIT;

	e.event_case = PROCESS__PROCESS_EVENT__EVENT_KEEPALIVE;
	e.keepalive = &k;
	put_event(a, &e);
}

/* The end-of-stream record, and the stream's end; one of them may be missing. */
static void say_over(struct ask *a, const char *error)
{
	bool good = peers_are_calm(), record = good || choose(16);
	struct buf b = BUF_NULL;

	if (error)
		must(!buf_printf(&b, "{\"error\":{\"code\":\"%s\",\"message\":\"the model says %s\"}}", error, error));
	else
		must(!buf_put_str(&b, "{}"));
	if (record)
		put_frame(a, FRAME_FLAG_END_STREAM, &b);
	else
		buf_fini(&b);
	if (good || !record || !judged || choose(16))
		finish(a);
}

static void say_end(struct ask *a, int code, bool killed)
{
	Process__ProcessEvent e = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__EndEvent end = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
	char status[32];

	snprintf(status, sizeof(status), killed ? "signal: killed" : "exit status %d", code);
	end.exit_code = killed ? -1 : code;
	end.exited = !killed;
	end.status = status;
	e.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
	e.end = &end;
	put_event(a, &e);
	say_over(a, NULL);
}

static void sit_down(struct ask *a, struct proc *p)
{
	struct seat *s = calloc(1, sizeof(*s));

	must(s);
	s->ask = a;
	a->proc = p;
	list_add_tail(&streams[p - procs], &s->node);
}

void ask_gone(struct ask *a)
{
	if (!a->proc)
		return;
	list_for_each_safe(n, &streams[a->proc - procs]) {
		struct seat *s = list_entry(n, struct seat, node);

		if (s->ask != a)
			continue;
		list_del(&s->node);
		free(s);
	}
}

static void proc_ends(struct proc *p, int code, bool killed)
{
	struct list *l = &streams[p - procs];

	if (p->alive) {
		p->exit_code = code;
		p->killed = killed;
	}
	p->alive = p->zombie = false;
	list_for_each_safe(n, l) {
		struct ask *a = list_entry(n, struct seat, node)->ask;

		if (a->over)
			continue;
		say_end(a, p->exit_code, p->killed);
		peer_flush(a->peer);
	}
}

/* The same bytes to all who hear it; to nobody else. */
static void proc_speaks(struct proc *p)
{
	static uint8_t bytes[WORDS_MAX];
	unsigned stream = p->pty ? 3 : 1 + choose(2);
	size_t n = choose(16) == 0 ? choose(256) * 150u : choose(64) + 1;

	for (size_t i = 0; i < n; i++)
		bytes[i] = p->next_out[stream] = byte_after(p->next_out[stream]);
	list_for_each_safe(k, &streams[p - procs]) {
		struct ask *a = list_entry(k, struct seat, node)->ask;

		if (a->over)
			continue;
		say_bytes(a, stream, bytes, n);
		peer_flush(a->peer);
	}
}

/* Without a record. */
static void break_off(struct ask *a)
{
	if (choose(2))
		finish(a);
	else
		h2_stream_reset(a->s, choose(14));
	a->over = true;
	peer_flush(a->peer);
}

/* Half of a frame, and the end. */
static void tear(struct ask *a)
{
	uint8_t prefix[FRAME_PREFIX_BYTES];

	frame_prefix(prefix, 0, 100);
	(void)!h2_stream_write(a->s, prefix, choose(2) ? sizeof(prefix) : 1 + choose(4));
	break_off(a);
}

static void proc_lives(struct ask *a)
{
	struct proc *p = a->proc;
	unsigned what = choose(32);

	if (peers_are_calm()) {
		proc_ends(p, (int)choose(256), false);
	} else if (what < 14) {
		if (h2_stream_room(a->s))
			proc_speaks(p);
	} else if (what < 16) {
		say_alive(a);
		peer_flush(a->peer);
	} else if (what < 18) {
		proc_ends(p, (int)choose(256), choose(4) == 0);
	} else if (what == 18) {
		if (p->alive)
			p->exit_code = (int)choose(256);
		p->zombie = true;
		p->alive = false;
	} else if (what == 19) {
		tear(a);
	} else if (what == 20) {
		say_over(a, choose(2) ? "unavailable" : "internal");
		peer_flush(a->peer);
	} else if (what < 23) {
		break_off(a);
	}
}

/* --- Start and Connect --- */

static bool edge_refuses(struct ask *a)
{
	if (is_reached(a))
		return false;
	refuse(a, 502, NULL, NULL);
	return true;
}

static void kill_pid(const char *pid)
{
	struct proc *p = proc_of_pid((uint32_t)atoi(pid));

	if (p && (p->alive || p->zombie) && choose(8))
		proc_ends(p, 0, p->alive);
}

/* The agent waits for a process when it has given all output away. */
static bool is_unread(const struct proc *p)
{
	list_for_each(n, &streams[p - procs])
		if (h2_stream_unsent(list_entry(n, struct seat, node)->ask->s))
			return true;
	return false;
}

static void look_at(const Process__StartRequest *m, struct buf *out)
{
	for (size_t i = 3; i < m->process->n_args; i++) {
		struct proc *p = proc_of_pid((uint32_t)atoi(m->process->args[i]));

		if (p && (p->zombie || (!p->alive && is_unread(p))))
			must(!buf_printf(out, "%u %d\n", p->pid, p->killed ? 9 : p->exit_code << 8));
	}
}

/* What a script of the daemon's own prints. Returns its exit status. */
static int run_helper(const Process__StartRequest *m, struct buf *out)
{
	const char *script = m->process->n_args > 1 ? m->process->args[1] : "";
	static const int ends[] = { 0, 0, 1, 64, 65, 66, 67, 127 };

	if (strstr(script, "is_dead()")) {
		look_at(m, out);
		return 0;
	}
	if (strstr(script, "members()") || strstr(script, "kill -s")) {
		if (m->process->n_args > 3)
			kill_pid(m->process->args[3]);
		return 0;
	}
	if (choose(2)) {
		static const char record[] = "f\0f\0" "5\0" "644\0user\0user\0" "1700000000.5\0\0name";

		must(!buf_put(out, record, sizeof(record)));
		return 0;
	}
	return ends[choose(ARRAY_SIZE(ends))];
}

static void help(struct ask *a, const Process__StartRequest *m)
{
	struct buf out = BUF_NULL;
	int code = run_helper(m, &out);

	put_head(a, 200, TYPE_STREAM);
	say_started(a, 9000 + n_messages);
	if (buf_len(&out))
		say_bytes(a, 1, buf_data(&out), buf_len(&out));
	buf_fini(&out);
	say_end(a, code, false);
	peer_flush(a->peer);
}

/* It answers, and says nothing. */
static bool falls_silent(struct ask *a)
{
	if (peers_are_calm() || choose(24))
		return false;
	a->over = true;
	peer_flush(a->peer);
	return true;
}

static void start(struct ask *a, const Process__StartRequest *m)
{
	struct proc *p = proc_of_tag(m->tag);

	if (p && p->in_doubt && agent_is_judged())
		FINDING("%s was started twice", m->tag);
	if (n_procs == PROCS) {
		refuse(a, 429, "resource_exhausted", "too many processes");
		return;
	}
	p = &procs[n_procs];
	*p = (struct proc){ .pid = FIRST_PID + n_procs, .alive = true, .pty = m->pty };
	list_init(&streams[n_procs++]);
	(void)str_copy(p->tag, sizeof(p->tag), m->tag);
	(void)str_copy(p->sandbox, sizeof(p->sandbox), a->sandbox);
	if (!peers_are_calm() && choose(8) == 0) {	/* it runs, and nobody hears of it */
		p->in_doubt = true;
		peer_cut(a->peer);
		return;
	}
	put_head(a, 200, TYPE_STREAM);
	p->in_doubt = agent_is_judged();
	if (falls_silent(a))
		return;
	say_started(a, p->pid);
	sit_down(a, p);
	peer_flush(a->peer);
	ask_later(a, 1 + choose(100));
}

static void on_start(struct ask *a)
{
	Process__StartRequest *m = NULL;
	const uint8_t *p = buf_data(&a->body);
	size_t n = buf_len(&a->body);

	if (n >= FRAME_PREFIX_BYTES)
		m = process__start_request__unpack(NULL, n - FRAME_PREFIX_BYTES, p + FRAME_PREFIX_BYTES);
	if (!m || !m->process)
		FINDING("a start that cannot be read");
	if (!m->tag || str_eq(m->tag, HELPER))
		help(a, m);
	else
		start(a, m);
	process__start_request__free_unpacked(m, NULL);
}

static uint32_t pid_of(const Process__ProcessSelector *s)
{
	return s && s->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR_PID ? s->pid : 0;
}

static void on_connect(struct ask *a)
{
	const uint8_t *p = buf_data(&a->body);
	size_t n = buf_len(&a->body);
	Process__ConnectRequest *m = process__connect_request__unpack(NULL, n - FRAME_PREFIX_BYTES, p + FRAME_PREFIX_BYTES);
	struct proc *x = m ? proc_of_pid(pid_of(m->process)) : NULL;

	if (m)
		process__connect_request__free_unpacked(m, NULL);
	put_head(a, 200, TYPE_STREAM);
	if (falls_silent(a))
		return;
	if (!x || (!x->alive && !x->zombie && choose(2))) {
		say_over(a, "not_found");
	} else {
		say_started(a, x->pid);
		sit_down(a, x);
		if (x->alive || x->zombie)
			ask_later(a, 1 + choose(100));
		else
			say_end(a, x->exit_code, x->killed);
	}
	peer_flush(a->peer);
}

/* --- calls about processes --- */

static void on_list(struct ask *a)
{
	Process__ListResponse m = PROCESS__LIST_RESPONSE__INIT;
	Process__ProcessInfo v[PROCS], *ptrs[PROCS];
	Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;

	config.cmd = (char *)"/bin/bash";
	for (unsigned i = 0; i < n_procs; i++) {
		if ((!procs[i].alive && !procs[i].zombie) || !str_eq(procs[i].sandbox, a->sandbox))
			continue;
		process__process_info__init(&v[m.n_processes]);
		v[m.n_processes].config = &config;
		v[m.n_processes].pid = procs[i].pid;
		v[m.n_processes].tag = procs[i].tag;
		v[m.n_processes]._tag_case = PROCESS__PROCESS_INFO___TAG_TAG;
		ptrs[m.n_processes] = &v[m.n_processes];
		m.n_processes++;
	}
	m.processes = ptrs;
	say(a, &m.base);
}

/* Each word of it is its number. */
static void take_input(struct proc *p, const ProtobufCBinaryData *d)
{
	for (size_t i = 0; i + 4 <= d->len; i += 4) {
		uint32_t word = (uint32_t)d->data[i] << 24 | (uint32_t)d->data[i + 1] << 16 | (uint32_t)d->data[i + 2] << 8 |
				d->data[i + 3];

		if (word < p->next_in && agent_is_judged())
			FINDING("%s got its input %u twice", p->tag, word);
		p->next_in = word + 1;
		p->words++;
	}
}

static void on_input(struct ask *a)
{
	Process__SendInputRequest *m = process__send_input_request__unpack(NULL, buf_len(&a->body), buf_data(&a->body));
	struct proc *p = m ? proc_of_pid(pid_of(m->process)) : NULL;

	if (p && p->alive && m->input)
		take_input(p, &m->input->stdin);
	if (m)
		process__send_input_request__free_unpacked(m, NULL);
	if (!p || !p->alive)
		refuse(a, 404, "not_found", "no such process");
	else if (!peers_are_calm() && choose(6) == 0)	/* it came, and nobody hears of it */
		peer_cut(a->peer);
	else
		say_nothing(a);
}

static void on_signal(struct ask *a)
{
	Process__SendSignalRequest *m = process__send_signal_request__unpack(NULL, buf_len(&a->body), buf_data(&a->body));
	struct proc *p = m ? proc_of_pid(pid_of(m->process)) : NULL;
	bool deadly = m && (m->signal == PROCESS__SIGNAL__SIGNAL_SIGKILL || choose(2));

	if (m)
		process__send_signal_request__free_unpacked(m, NULL);
	if (!p || (!p->alive && !p->zombie)) {
		refuse(a, 404, "not_found", "no such process");
		return;
	}
	if (deadly)
		proc_ends(p, 0, p->alive);
	say_nothing(a);
}

/* --- files --- */

static void fill_entry(Filesystem__EntryInfo *e)
{
	filesystem__entry_info__init(e);
	e->name = (char *)"a-file";
	e->path = (char *)"/home/user/a-file";
	e->type = (Filesystem__FileType)choose(5);
	e->size = (int64_t)choose(256) - 1;
	e->mode = 0644;
	e->owner = e->group = (char *)"user";
	e->permissions = (char *)"-rw-r--r--";
}

static void on_stat(struct ask *a)
{
	Filesystem__StatResponse m = FILESYSTEM__STAT_RESPONSE__INIT;
	Filesystem__EntryInfo e;

	if (choose(4) == 0) {
		refuse(a, 404, "not_found", "no such file or directory");
		return;
	}
	fill_entry(&e);
	m.entry = &e;
	say(a, &m.base);
}

static void on_list_dir(struct ask *a)
{
	Filesystem__ListDirResponse m = FILESYSTEM__LIST_DIR_RESPONSE__INIT;
	Filesystem__EntryInfo v[16], *ptrs[16];

	m.n_entries = choose(17);
	for (size_t i = 0; i < m.n_entries; i++) {
		fill_entry(&v[i]);
		ptrs[i] = &v[i];
	}
	m.entries = ptrs;
	say(a, &m.base);
}

static void say_watched(struct ask *a, unsigned what)
{
	Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
	Filesystem__WatchDirResponse__StartEvent s = FILESYSTEM__WATCH_DIR_RESPONSE__START_EVENT__INIT;
	Filesystem__WatchDirResponse__KeepAlive k = FILESYSTEM__WATCH_DIR_RESPONSE__KEEP_ALIVE__INIT;
	Filesystem__FilesystemEvent f = FILESYSTEM__FILESYSTEM_EVENT__INIT;
	Filesystem__EntryInfo e;
	struct buf b = BUF_NULL;

	m.event_case = (Filesystem__WatchDirResponse__EventCase)what;
	if (what == FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_START) {
		m.start = &s;
	} else if (what == FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_KEEPALIVE) {
		m.keepalive = &k;
	} else {
		fill_entry(&e);
		f.name = (char *)"a-file";
		f.type = (Filesystem__EventType)choose(7);
		f.entry = choose(2) ? &e : NULL;
		f._entry_case = f.entry ? FILESYSTEM__FILESYSTEM_EVENT___ENTRY_ENTRY : 0;
		m.filesystem = &f;
	}
	put_pack(&b, &m.base);
	put_frame(a, 0, &b);
}

static void on_watch(struct ask *a)
{
	put_head(a, 200, TYPE_STREAM);
	say_watched(a, FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_START);
	peer_flush(a->peer);
	ask_later(a, 1 + choose(200));
}

static void watch_goes_on(struct ask *a)
{
	if (peers_are_calm() || choose(12) == 0)
		say_over(a, choose(2) ? "unavailable" : NULL);
	else if (choose(12) == 0)
		tear(a);
	else
		say_watched(a, 1 + choose(3));
	peer_flush(a->peer);
}

static void on_file(struct ask *a)
{
	static const char text[] = "what a file has";
	struct buf b = BUF_NULL;

	if (str_eq(a->method, "POST")) {
		must(!buf_put_str(&b, "[{\"path\":\"/home/user/a-file\",\"name\":\"a-file\",\"type\":\"file\"}]"));
		answer(a, 200, "application/json", &b);
		return;
	}
	if (choose(4) == 0) {
		refuse(a, 404, "not_found", "no such file");
		return;
	}
	for (unsigned i = choose(64); i--;)
		must(!buf_put(&b, text, sizeof(text)));
	answer(a, 200, "application/octet-stream", &b);
}

/* --- what is asked --- */

static const struct {
	const char *path;
	void (*fn)(struct ask *a);
} calls[] = {
	{ "/process.Process/Start", on_start },		{ "/process.Process/Connect", on_connect },
	{ "/process.Process/List", on_list },		{ "/process.Process/SendInput", on_input },
	{ "/process.Process/SendSignal", on_signal },	{ "/process.Process/CloseStdin", say_nothing },
	{ "/process.Process/Update", say_nothing },	{ "/filesystem.Filesystem/Stat", on_stat },
	{ "/filesystem.Filesystem/MakeDir", on_stat },	{ "/filesystem.Filesystem/Move", on_stat },
	{ "/filesystem.Filesystem/Remove", say_nothing }, { "/filesystem.Filesystem/ListDir", on_list_dir },
	{ "/filesystem.Filesystem/WatchDir", on_watch }, { "/files", on_file }, { "/health", say_nothing },
};

static void answer_agent(struct ask *a)
{
	if (edge_refuses(a))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (str_starts(a->path, calls[i].path)) {
			calls[i].fn(a);
			return;
		}
	FINDING("nobody knows %s", a->path);
}

static char *metadata_tag(const char *body, char ret[80])
{
	char *metadata = value_of(body, "\"metadata\":");

	tag_of(metadata, ret);
	free(metadata);
	return ret;
}

/* Is it a create, and which of them? */
static bool note_create(const struct ask *a, const char *body, unsigned *ret)
{
	char tag[80];

	if (!str_eq(a->method, "POST") || (!str_eq(a->path, "/sandboxes") && !str_eq(a->path, "/v2/sandboxes")))
		return false;
	*ret = frames_were_changed() ? create_sent("") : create_sent(metadata_tag(body, tag));
	return true;
}

static void answer_cloud(struct ask *a)
{
	char *body = buf_len(&a->body) ? strndup((const char *)buf_data(&a->body), buf_len(&a->body)) : str_dup("");
	struct fields head = FIELDS_NULL;
	struct buf b = BUF_NULL;
	unsigned status, post, what = peers_are_calm() ? 99 : choose(32);
	bool is_create = note_create(a, body, &post);

	n_answers++;
	status = act(a->method, a->path, body, &b);
	if (status >= 300 && !buf_len(&b))
		must(!buf_printf(&b, "{\"code\":%u,\"message\":\"the model says %u\"}", status, status));
	keep_answer(&b);
	free(body);
	if (what == 0) {
		if (is_create)
			create_in_doubt(post);
		buf_fini(&b);
		peer_cut(a->peer);
		return;
	}
	if (what < 8)
		lie(&status, &b);
	if (status < 200 || status > 599)
		status = 599;
	if (is_create && status < 300)
		create_in_doubt(post);
	must(!fields_printf(&head, ":status", "%u", status));
	head_of(&head);
	(void)!h2_respond(a->s, &head, false);
	fields_fini(&head);
	if (buf_len(&b))
		(void)!h2_stream_write(a->s, buf_data(&b), buf_len(&b));
	buf_fini(&b);
	finish(a);
	peer_flush(a->peer);
}

/* Before it acted, in a way that says so, or does not. */
static bool falls_over(struct ask *a)
{
	unsigned what = peers_are_calm() ? 99 : choose(48);

	if (what == 0)
		peer_cut(a->peer);
	else if (what == 1)
		h2_stream_reset(a->s, choose(14));
	else if (what == 2)
		peer_leave(a->peer);
	else if (what != 3)	/* 3: it never answers */
		return false;
	a->over = what != 2;
	peer_flush(a->peer);
	return what != 2;
}

void ask_came(struct ask *a)
{
	ask_later(a, 1 + (rarely() ? choose(256) * 20u : choose(40)));
}

void ask_due(struct ask *a)
{
	if (a->over || h2_stream_closed(a->s, NULL) != H2_OPEN)
		return;
	if (!a->began) {
		if (falls_over(a))
			return;
		if (a->sandbox[0])
			answer_agent(a);
		else
			answer_cloud(a);
		return;
	}
	if (!is_reached(a))
		break_off(a);
	else if (a->proc)
		proc_lives(a);
	else
		watch_goes_on(a);
	if (!a->over)
		ask_later(a, 1 + (rarely() ? choose(256) * 40u : choose(200)));
}
