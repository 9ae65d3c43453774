/* SPDX-License-Identifier: MIT */
/*
 * daemon/cloud and daemon/upstream without the rest of the daemon: commands come line by line on
 * standard input, "VERB TAG args…"; each result is one line of JSON with its tag. For u_cloud.py,
 * which puts it in front of the scripted cloud.
 *
 *   create TAG seconds [k=v]…     connect|timeout|refresh TAG id seconds     get|kill TAG id
 *   list TAG   page TAG limit token|-   cancel|abandon TAG
 *   start TAG id token text of a command   attach TAG id token pid   hold|resume|free TAG
 *   input TAG id token pid text   stdin-close|signal TAG id token pid [n]
 *   stat|mkdir|rm TAG id token path   ls TAG id token path depth   mv TAG id token a b
 *   ps|health TAG id token   read TAG id token path offset length|-   write TAG id token path n known|unknown
 *   deadline MS   user NAME|-   key KEY   next-key KEY   fast 0|1 (no checksums)   stats TAG   sync TAG
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cloud/cloud.h"
#include "daemon/cloud/envd.h"
#include "daemon/common/ev/loop.h"
#include "daemon/common/net/tls.h"
#include "daemon/common/obs/log.h"
#include "daemon/upstream/pool.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define WORDS_MAX 16

struct probe {
	struct loop *loop;
	struct pool *pool;
	struct tls_client *tls;
	struct cloud *cloud;
	struct watch in;
	struct buf line;
	char *next_key;			/* given by on_key_rejected */
	char *user;
	uint64_t deadline_for_ms;
	struct list items;
	unsigned open;
	bool eof, fast;
};

struct item {
	struct list node;
	struct probe *p;
	char *tag;
	struct cloud_call *call;
	struct envd_call *ecall;
	struct envd_list *list;
	struct envd_stream *stream;
	struct envd_read *read;
	struct envd_write *write;
	bool held;
	uint64_t bytes[4], want, hash, began_us;
	uint32_t pid;
	char head[200];
	size_t n_head;
};

/* --- output --- */

static void emit_text(const char *key, const char *s)
{
	printf(",\"%s\":\"", key);
	for (; s && *s; s++)
		if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			printf("\\u%04x", *s);
		else
			putchar(*s);
	putchar('"');
}

static void emit_begin(const struct item *it, const char *what)
{
	printf("{\"tag\":\"%s\",\"what\":\"%s\"", it->tag, what);
}

static void emit_end(void)
{
	printf("}\n");
	fflush(stdout);
}

static void emit_status(const struct status *s)
{
	emit_text("code", status_code_name(s->code));
	emit_text("reason", status_reason_name(s->reason));
	emit_text("text", s->code ? s->text : "");
	printf(",\"retry_after\":%u", s->retry_after_ms);
	for (unsigned i = 0; i < s->n_evidence; i++)
		emit_text(s->evidence[i].key, s->evidence[i].value);
}

static struct item *item_new(struct probe *p, const char *tag)
{
	struct item *it = calloc(1, sizeof(*it));

	must(it);
	it->p = p;
	it->tag = str_dup(tag);
	it->hash = 1469598103934665603u;
	it->began_us = clock_boot_us();
	list_add_tail(&p->items, &it->node);
	p->open++;
	return it;
}

static struct item *item_find(struct probe *p, const char *tag)
{
	list_for_each(n, &p->items) {
		struct item *it = list_entry(n, struct item, node);

		if (str_eq(it->tag, tag))
			return it;
	}
	return NULL;
}

static void item_free(struct item *it)
{
	struct probe *p = it->p;

	envd_stream_free(it->stream);
	envd_list_free(it->list);
	envd_read_free(it->read);
	envd_write_free(it->write);
	list_del(&it->node);
	free(it->tag);
	free(it);
	p->open--;
	if (p->eof && !p->open)
		loop_stop(p->loop, 0);
}

static void mix(struct item *it, const uint8_t *d, size_t n)
{
	for (size_t i = 0; i < n && !it->p->fast; i++)
		it->hash = (it->hash ^ d[i]) * 1099511628211u;
}

/* --- control plane --- */

static const char *const outcomes[] = { "DONE", "UNSENT", "REFUSED", "UNKNOWN" };

static void emit_sandbox(const struct cloud_sandbox *s)
{
	emit_text("id", s->id);
	emit_text("token", s->envd_access_token);
	emit_text("envd", s->envd_version);
	printf(",\"state\":%d,\"resumed\":%d,\"end_at\":%" PRId64, s->state, s->resumed, s->end_at_ms);
}

static void on_done(struct cloud_result *r, void *user)
{
	struct item *it = user;

	emit_begin(it, "done");
	emit_text("outcome", outcomes[r->outcome]);
	emit_status(&r->status);
	printf(",\"http\":%u,\"not_found\":%d,\"conflict\":%d,\"date\":%" PRId64, r->http_status,
	       r->not_found, r->conflict, r->date_ms);
	if (r->sandbox)
		emit_sandbox(r->sandbox);
	if (r->list) {
		printf(",\"n\":%zu,\"total\":%" PRId64, r->list->n, r->list->total_running);
		emit_text("next", r->list->next_token);
		printf(",\"ids\":\"");
		for (size_t i = 0; i < r->list->n; i++)
			printf("%s%s", i ? " " : "", r->list->v[i]->id);
		printf("\"");
	}
	emit_end();
	item_free(it);
}

static struct cloud_ask ask_of(struct probe *p, struct item *it)
{
	return (struct cloud_ask){
		.deadline_ms = p->deadline_for_ms ? loop_now_ms(p->loop) + p->deadline_for_ms : 0,
		.done = on_done,
		.user = it,
	};
}

static uint32_t number(const char *s)
{
	uint64_t n = 0;

	must(str_u64(s, strlen(s), UINT32_MAX, &n) == 0);
	return (uint32_t)n;
}

static bool do_cloud(struct probe *p, char **w, int n)
{
	struct cloud_ask ask;
	struct cloud_filter f = { 0 };
	struct item *it;

	if (str_eq(w[0], "create")) {
		struct cloud_kv meta[WORDS_MAX];
		struct cloud_create c = { .template_id = (char *)"base", .timeout_s = number(w[2]),
					  .metadata = { .v = meta } };

		for (int i = 3; i < n; i++) {
			meta[c.metadata.n].key = w[i];
			meta[c.metadata.n].value = strchr(w[i], '=') + 1;
			*strchr(w[i], '=') = 0;
			c.metadata.n++;
		}
		it = item_new(p, w[1]);
		ask = ask_of(p, it);
		it->call = cloud_create(p->cloud, &c, &ask);
		return true;
	}
	if (!str_eq(w[0], "connect") && !str_eq(w[0], "timeout") && !str_eq(w[0], "refresh") &&
	    !str_eq(w[0], "get") && !str_eq(w[0], "kill") && !str_eq(w[0], "list") && !str_eq(w[0], "page"))
		return false;
	it = item_new(p, w[1]);
	ask = ask_of(p, it);
	if (str_eq(w[0], "connect"))
		it->call = cloud_connect(p->cloud, w[2], number(w[3]), &ask);
	else if (str_eq(w[0], "timeout"))
		it->call = cloud_set_timeout(p->cloud, w[2], number(w[3]), &ask);
	else if (str_eq(w[0], "refresh"))
		it->call = cloud_refresh(p->cloud, w[2], number(w[3]), &ask);
	else if (str_eq(w[0], "get"))
		it->call = cloud_get(p->cloud, w[2], &ask);
	else if (str_eq(w[0], "kill"))
		it->call = cloud_kill(p->cloud, w[2], &ask);
	else if (str_eq(w[0], "list"))
		it->call = cloud_list_all(p->cloud, &f, &ask);
	if (str_eq(w[0], "page")) {
		f.limit = number(w[2]);
		f.token = str_eq(w[3], "-") ? NULL : w[3];
		it->call = cloud_list_page(p->cloud, &f, &ask);
	}
	return true;
}

/* --- the agent --- */

static const char *const classes[] = { "OK", "ANSWERED", "NOT_RUNNING", "TOKEN", "UNSENT", "LOST" };

static struct envd_target target_of(struct probe *p, char **w)
{
	return (struct envd_target){
		.at = { .cloud = p->cloud, .id = w[2], .token = str_eq(w[3], "-") ? NULL : w[3] },
		.user = p->user,
		.deadline_ms = p->deadline_for_ms ? loop_now_ms(p->loop) + p->deadline_for_ms : 0,
	};
}

static void on_envd_done(struct envd_result *r, void *user)
{
	struct item *it = user;

	emit_begin(it, "done");
	emit_text("cls", classes[r->cls]);
	emit_status(&r->status);
	printf(",\"http\":%u,\"running\":%d,\"entries\":%zu,\"processes\":%zu", r->http_status, r->running,
	       r->n_entries, r->n_processes);
	if (r->n_entries) {
		emit_text("path", r->entries[0].path);
		printf(",\"size\":%" PRId64 ",\"type\":%d", r->entries[0].size, r->entries[0].type);
	}
	if (r->n_processes) {
		printf(",\"pid\":%u", r->processes[0].pid);
		emit_text("cmd", r->processes[0].cmd);
	}
	emit_end();
	item_free(it);
}

static void on_list(struct envd_list *l, void *user)
{
	struct item *it = user;
	struct status ok = STATUS_OK;
	const struct status *why;
	struct envd_entry e;
	enum envd_class cls;

	while (!it->held && envd_list_next(l, &e)) {
		if (!it->bytes[0]++)
			str_copy(it->head, sizeof(it->head), e.path);
		envd_entry_fini(&e);
	}
	if (envd_list_state(l) != ENVD_XFER_DONE && envd_list_state(l) != ENVD_XFER_FAILED)
		return;
	why = envd_list_failure(l, &cls);
	emit_begin(it, "done");
	emit_text("cls", classes[why ? cls : ENVD_OK]);
	emit_status(why ? why : &ok);
	printf(",\"entries\":%" PRIu64, it->bytes[0]);
	emit_text("path", it->head);
	emit_end();
	item_free(it);
}

static bool do_unary(struct probe *p, char **w, int n)
{
	struct envd_target t;
	struct item it0, *it = &it0;

	if (n < 4 || strstr("stat mkdir rm ls mv ps health input stdin-close signal", w[0]) == NULL)
		return false;
	t = target_of(p, w);
	it = item_new(p, w[1]);
	if (str_eq(w[0], "stat"))
		it->ecall = envd_stat(&t, w[4], on_envd_done, it);
	else if (str_eq(w[0], "mkdir"))
		it->ecall = envd_make_dir(&t, w[4], on_envd_done, it);
	else if (str_eq(w[0], "rm"))
		it->ecall = envd_remove(&t, w[4], on_envd_done, it);
	else if (str_eq(w[0], "ls"))
		it->list = envd_list(&t, w[4], number(w[5]), on_list, it);
	else if (str_eq(w[0], "mv"))
		it->ecall = envd_move(&t, w[4], w[5], on_envd_done, it);
	else if (str_eq(w[0], "ps"))
		it->ecall = envd_process_list(&t, on_envd_done, it);
	else if (str_eq(w[0], "health"))
		it->ecall = envd_health(&t, on_envd_done, it);
	else if (str_eq(w[0], "input"))
		it->ecall = envd_send_input(&t, number(w[4]), false, w[5], strlen(w[5]), on_envd_done, it);
	else if (str_eq(w[0], "stdin-close"))
		it->ecall = envd_close_stdin(&t, number(w[4]), on_envd_done, it);
	else
		it->ecall = envd_send_signal(&t, number(w[4]), (int)number(w[5]), on_envd_done, it);
	return true;
}

static void stream_end(struct item *it, const struct envd_event *e)
{
	it->head[it->n_head] = 0;
	emit_begin(it, "closed");
	emit_text("cls", classes[e->cls]);
	emit_status(&e->failure);
	printf(",\"stdout\":%" PRIu64 ",\"stderr\":%" PRIu64 ",\"hash\":\"%016" PRIx64 "\",\"us\":%" PRIu64,
	       it->bytes[1], it->bytes[2], it->hash, clock_boot_us() - it->began_us);
	emit_text("head", it->head);
	emit_end();
	item_free(it);
}

static void on_stream(struct envd_stream *s, void *user)
{
	struct item *it = user;
	struct envd_event e;

	while (!it->held)
		switch (envd_stream_next(s, &e)) {
		case ENVD_EVENT_NONE:
			return;
		case ENVD_EVENT_START:
			it->pid = e.pid;
			emit_begin(it, "start");
			printf(",\"pid\":%u", e.pid);
			emit_end();
			break;
		case ENVD_EVENT_DATA:
			it->bytes[e.stream] += e.n;
			if (e.stream == ENVD_STDOUT) {
				size_t k = MIN(e.n, sizeof(it->head) - 1 - it->n_head);

				memcpy(it->head + it->n_head, e.data, k);
				it->n_head += k;
				mix(it, e.data, e.n);
			}
			break;
		case ENVD_EVENT_KEEPALIVE:
			break;
		case ENVD_EVENT_END:
			emit_begin(it, "end");
			printf(",\"exit\":%d,\"exited\":%d", e.exit_code, e.exited);
			emit_text("status", e.status);
			emit_end();
			break;
		case ENVD_EVENT_CLOSED:
			stream_end(it, &e);
			return;
		}
}

static bool do_stream(struct probe *p, char **w, int n, const char *rest)
{
	struct envd_target t;
	struct item *it;

	if (str_eq(w[0], "start") && n >= 5) {
		const char *args[] = { "-l", "-c", rest };
		struct envd_start s = { .cmd = "/bin/bash", .args = args, .n_args = 3, .stdin_open = true };

		t = target_of(p, w);
		it = item_new(p, w[1]);
		it->stream = envd_start(&t, &s, on_stream, it);
		return true;
	}
	if (str_eq(w[0], "attach")) {
		t = target_of(p, w);
		it = item_new(p, w[1]);
		it->stream = envd_attach(&t, number(w[4]), on_stream, it);
		return true;
	}
	return false;
}

/* --- files --- */

static void xfer_end(struct item *it, enum envd_class cls, const struct status *failure, const char *path)
{
	struct status ok = STATUS_OK;

	emit_begin(it, "done");
	emit_text("cls", classes[cls]);
	emit_status(failure ? failure : &ok);
	printf(",\"bytes\":%" PRIu64 ",\"hash\":\"%016" PRIx64 "\",\"us\":%" PRIu64, it->bytes[0], it->hash,
	       clock_boot_us() - it->began_us);
	emit_text("path", path);
	if (it->read)
		printf(",\"size\":%" PRId64 ",\"file_size\":%" PRId64, envd_read_size(it->read),
		       envd_read_file_size(it->read));
	emit_end();
	item_free(it);
}

static void on_read(struct envd_read *r, void *user)
{
	struct item *it = user;
	const uint8_t *d;
	size_t n;
	enum envd_class cls;

	while (!it->held && (n = envd_read_peek(r, &d)) > 0) {
		it->bytes[0] += n;
		mix(it, d, n);
		envd_read_consume(r, n);
	}
	if (envd_read_state(r) == ENVD_XFER_DONE || envd_read_state(r) == ENVD_XFER_FAILED) {
		const struct status *why = envd_read_failure(r, &cls);

		xfer_end(it, cls, why, "");
	}
}

static void on_write(struct envd_write *wr, void *user)
{
	struct item *it = user;
	uint8_t chunk[16384] = { 0 };
	size_t n;
	enum envd_class cls;

	while (!it->held && it->bytes[0] < it->want && (n = envd_write_room(wr)) > 0) {
		n = MIN(MIN(n, sizeof(chunk)), (size_t)(it->want - it->bytes[0]));
		for (size_t i = 0; i < n && !it->p->fast; i++)
			chunk[i] = (uint8_t)((it->bytes[0] + i) * 2654435761u >> 13);
		if (envd_write_put(wr, chunk, n) < 0)
			break;
		mix(it, chunk, n);
		it->bytes[0] += n;
		if (it->bytes[0] == it->want)
			(void)!envd_write_finish(wr);
	}
	if (!it->want && envd_write_state(wr) == ENVD_XFER_OPEN)
		(void)!envd_write_finish(wr);
	if (envd_write_state(wr) == ENVD_XFER_DONE || envd_write_state(wr) == ENVD_XFER_FAILED) {
		const struct status *why = envd_write_failure(wr, &cls);

		xfer_end(it, cls, why, envd_write_path(wr));
	}
}

static bool do_file(struct probe *p, char **w, int n)
{
	struct envd_target t;
	struct item *it;

	if (n < 7 || (!str_eq(w[0], "read") && !str_eq(w[0], "write")))
		return false;
	t = target_of(p, w);
	it = item_new(p, w[1]);
	if (str_eq(w[0], "read")) {
		struct envd_read_options o = { .path = w[4], .offset = number(w[5]), .streamed = n > 7,
					       .length = str_eq(w[6], "-") ? UINT64_MAX : number(w[6]) };

		it->read = envd_read(&t, &o, on_read, it);
	} else {
		struct envd_write_options o = { .path = w[4], .size = -1 };

		it->want = number(w[5]);
		if (str_eq(w[6], "known"))
			o.size = (int64_t)it->want;
		it->write = envd_write(&t, &o, on_write, it);
	}
	return true;
}

/* --- commands --- */

static void do_stats(struct probe *p, const char *tag)
{
	const struct origin *at = NULL;
	struct pool_stats s;

	while (pool_stats(p->pool, &at, &s)) {
		printf("{\"tag\":\"%s\",\"what\":\"stats\",\"port\":%u,\"conns\":%u,\"streams\":%u,"
		       "\"queued\":%u,"
		       "\"version\":%u,\"requests\":%" PRIu64 ",\"dials\":%" PRIu64
		       ",\"dial_failures\":%" PRIu64 ",\"goaways\":%" PRIu64
		       ",\"enhance_calm_count\":%" PRIu64 ",\"replays\":%" PRIu64
		       ",\"pings_lost\":%" PRIu64,
		       tag, s.port, s.conns, s.streams, s.queued, s.version, s.requests, s.dials,
		       s.dial_failures, s.goaways, s.enhance_calm_count, s.replays, s.pings_lost);
		emit_text("group", s.group);
		emit_text("last_error", s.last_error);
		emit_end();
	}
	printf("{\"tag\":\"%s\",\"what\":\"synced\"}\n", tag);
	fflush(stdout);
}

static bool do_item(struct probe *p, char **w)
{
	struct item *it = item_find(p, w[1]);

	if (str_eq(w[0], "cancel")) {
		if (it) {
			cloud_call_cancel(it->call);
			envd_call_cancel(it->ecall);
			item_free(it);
		}
	} else if (str_eq(w[0], "abandon")) {
		if (it)
			cloud_call_abandon(it->call);
	} else if (str_eq(w[0], "free")) {
		if (it)
			item_free(it);
	} else if (str_eq(w[0], "hold")) {
		if (it)
			it->held = true;
	} else if (str_eq(w[0], "resume")) {
		if (it) {
			it->held = false;
			if (it->stream)
				on_stream(it->stream, it);
			else if (it->read)
				on_read(it->read, it);
			else if (it->list)
				on_list(it->list, it);
		}
	} else {
		return false;
	}
	return true;
}

static void do_line(struct probe *p, char *line)
{
	char *w[WORDS_MAX], *rest = NULL;
	int n = 0;

	for (char *s = line; *s && n < WORDS_MAX;) {
		w[n++] = s;
		if (n == 5)
			rest = s;
		s += strcspn(s, " ");
		if (*s && !(n == 5 && str_eq(w[0], "start")))
			*s++ = 0;
		else if (*s)
			break;
	}
	if (!n)
		return;
	if (str_eq(w[0], "deadline")) {
		p->deadline_for_ms = number(w[1]);
	} else if (str_eq(w[0], "user")) {
		free(p->user);
		p->user = str_eq(w[1], "-") ? NULL : str_dup(w[1]);
	} else if (str_eq(w[0], "key")) {
		cloud_set_key(p->cloud, w[1]);
	} else if (str_eq(w[0], "fast")) {
		p->fast = number(w[1]);
	} else if (str_eq(w[0], "next-key")) {
		free(p->next_key);
		p->next_key = str_dup(w[1]);
	} else if (str_eq(w[0], "stats") || str_eq(w[0], "sync")) {
		do_stats(p, w[1]);
	} else if (!do_item(p, w) && !do_cloud(p, w, n) && !do_stream(p, w, n, rest) &&
		   !do_file(p, w, n) && !do_unary(p, w, n)) {
		fprintf(stderr, "unknown: %s\n", w[0]);
		loop_stop(p->loop, 2);
	}
}

static void on_input(struct watch *w, unsigned ready, void *user)
{
	struct probe *p = user;
	uint8_t *space = buf_space(&p->line, 65536);
	ssize_t n;
	const uint8_t *nl;

	must(space);
	n = read(w->fd, space, 65536);
	if (n <= 0) {
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		p->eof = true;
		watch_fini(&p->in);
		if (!p->open)
			loop_stop(p->loop, 0);
		return;
	}
	buf_added(&p->line, (size_t)n);
	while (buf_len(&p->line) && (nl = memchr(buf_data(&p->line), '\n', buf_len(&p->line)))) {
		size_t len = (size_t)(nl - buf_data(&p->line));
		char *line = strndup((const char *)buf_data(&p->line), len);

		must(line);
		buf_drop(&p->line, len + 1);
		do_line(p, line);
		free(line);
	}
}

static bool on_key_rejected(struct cloud *c, void *user)
{
	struct probe *p = user;

	if (p->next_key)
		cloud_set_key(c, p->next_key);
	return false;
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
	for (int i = 1; i + 1 < argc; i += 2)
		if (str_eq(argv[i], name))
			return argv[i + 1];
	return otherwise;
}

int main(int argc, char **argv)
{
	struct probe p = { 0 };
	struct status why = STATUS_OK;
	const char *ca = option(argc, argv, "--ca", NULL);
	struct pool_options po = {
		.max_conns_h2 = number(option(argc, argv, "--max-conns", "0")),
		.ping_after_ms = number(option(argc, argv, "--ping-after", "0")),
		.ping_answer_ms = number(option(argc, argv, "--ping-answer", "0")),
		.age_ms = number(option(argc, argv, "--age", "0")),
		.fresh_ms = number(option(argc, argv, "--fresh", "0")),
		.idle_ms = number(option(argc, argv, "--idle", "0")),
		.warm_ms = number(option(argc, argv, "--warm", "0")),
	};
	struct cloud_options co = {
		.account = "probe",
		.api_url = option(argc, argv, "--api", NULL),
		.domain = option(argc, argv, "--domain", NULL),
		.sandbox_url = option(argc, argv, "--sandbox", NULL),
		.api_key = option(argc, argv, "--key", NULL),
		.proxy = option(argc, argv, "--proxy", NULL),
		.plain_http2 = str_eq(option(argc, argv, "--h2c", "0"), "1"),
		.on_key_rejected = on_key_rejected,
		.user = &p,
	};
	int r;

	log_setup(LOG_LEVEL_DEBUG);
	tls_setup();
	list_init(&p.items);
	buf_init(&p.line, 0);
	must(loop_new(&p.loop) == 0);
	po.loop = co.loop = p.loop;
	if (tls_client_new(&(struct tls_client_options){ .ca_file = ca }, &p.tls, &why) < 0 ||
	    pool_new(&po, &p.pool) < 0) {
		fprintf(stderr, "%s\n", why.text);
		return 2;
	}
	co.pool = p.pool;
	co.tls = p.tls;
	if (cloud_new(&co, &p.cloud, &why) < 0) {
		fprintf(stderr, "%s\n", why.text);
		return 2;
	}
	must(fd_set_nonblock(0, true) == 0);
	must(watch_init(&p.in, p.loop, 0, on_input, &p) == 0 && watch_set(&p.in, WATCH_READ) == 0);
	r = loop_run(p.loop);
	list_for_each_safe(n, &p.items) {
		struct item *it = list_entry(n, struct item, node);

		cloud_call_cancel(it->call);
		envd_call_cancel(it->ecall);
		item_free(it);
	}
	watch_fini(&p.in);
	cloud_free(p.cloud);
	pool_free(p.pool);
	for (int i = 0; i < 3; i++)	/* connections end from the loop */
		(void)!loop_once(p.loop, 0);
	tls_client_unref(p.tls);
	loop_free(p.loop);
	buf_fini(&p.line);
	free(p.next_key);
	free(p.user);
	return r;
}
