/* SPDX-License-Identifier: MIT */
/*
 * The library against a daemon that answers anything: HTTP/2 is right, what it carries is the input. Every
 * call must come to an end, with a result only if the answer was whole.
 *
 *	byte 0: which call; byte 1: grpc-status; byte 2: 1 no trailers, 2 reset, 4 details from the body;
 *	bytes 3, 4: how many bytes of the rest are the body (frames included), the others are the details
 */
#include <agentbox.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/wire/grpc.h"
#include "proto/wire/h2.h"

#define STEPS_MAX 2000u

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct input {
	uint8_t which, code, how;
	const uint8_t *body, *details;
	size_t n_body, n_details;
};

struct peer {
	int fd;
	struct h2 *h2;
	const struct input *in;
};

#define KINDS 14	/* of calls; the first byte chooses */

static char dir[] = "/tmp/ab-fuzz-XXXXXX";
static char path[64];
static int listen_fd = -1;

static void drop_socket(void)
{
	(void)unlink(path);
	(void)rmdir(dir);
}

static void listen_once(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	if (listen_fd >= 0)
		return;
	must(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	must(listen_fd >= 0 && bind(listen_fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	must(listen(listen_fd, 8) == 0);
	must(atexit(drop_socket) == 0);
}

static void reply(struct h2_stream *s, const struct input *in)
{
	struct fields f = FIELDS_NULL;
	int r;

	must(grpc_response_head(&f) == 0);
	r = h2_respond(s, &f, false);
	if (r == 0 && in->n_body)
		r = h2_stream_write(s, in->body, in->n_body);
	fields_clear(&f);
	must(grpc_trailers(&f, (enum ab_code)in->code, "what it says: 100%", in->details,
			   in->n_details) == 0);
	if (in->how & 2)
		h2_stream_reset(s, in->code);
	else if (r == 0)
		r = h2_stream_finish(s, in->how & 1 ? NULL : &f);
	must(r != -ENOMEM);
	fields_fini(&f);
}

static void peer_step(struct peer *d)
{
	const struct h2_options o = { .server = true, .any_authority = true };
	uint8_t buf[65536];
	struct h2_stream *s;
	const uint8_t *p;
	size_t n;
	ssize_t k;

	if (d->fd < 0) {
		if (fd_accept(listen_fd, &d->fd) < 0) {
			d->fd = -1;
			return;
		}
		must(h2_new(&o, clock_boot_ms(), &d->h2) == 0);
	}
	k = recv(d->fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (k > 0)
		must(h2_feed(d->h2, buf, (size_t)k, clock_boot_ms()) == 0);
	while ((s = h2_next_ready(d->h2))) {
		unsigned flags = h2_stream_take_ready(s);

		h2_stream_consume(s, h2_stream_buffered(s));
		if (flags & H2_READY_HEAD)
			reply(s, d->in);
		if (flags & H2_READY_CLOSED)
			h2_stream_release(s);
	}
	while (h2_output(d->h2, &p, &n) == 0 && n) {
		k = send(d->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (k < 0)
			return;
		h2_sent(d->h2, (size_t)k);
	}
}

static int start(struct ab_client *c, const struct input *in, struct ab_call **ret)
{
	static const char *const argv[] = { "true", NULL };
	const struct ab_command_options run = { .sandbox = "s", .argv = argv };
	const struct ab_command_ref ref = { .command_id = "c" };
	const struct ab_path at = { .sandbox = "s", .path = "p" };

	switch (in->which % KINDS) {
	case 0:
		return ab_sandbox_get_start(c, "s", 0, NULL, ret);
	case 1:
		return ab_sandbox_list_start(c, NULL, NULL, ret);
	case 2:
		return ab_command_run_start(c, &run, NULL, ret);
	case 3:
		return ab_file_read_start(c, &at, NULL, NULL, ret);
	case 4:
		return ab_file_write_start(c, &at, NULL, NULL, ret);
	case 5:
		return ab_file_list_start(c, &at, 0, NULL, ret);
	case 6:
		return ab_daemon_status_start(c, NULL, ret);
	case 7:
		return ab_daemon_config_start(c, NULL, NULL, ret);
	case 8:
		return ab_command_list_start(c, "s", NULL, NULL, ret);
	case 9:
		return ab_command_wait_start(c, &ref, NULL, ret);
	case 10:
		return ab_command_input_start(c, &ref, 0, NULL, ret);
	case 12:
		return ab_file_watch_start(c, &at, NULL, NULL, ret);
	case 13:
		return ab_file_sign_start(c, &at, false, 0, NULL, ret);
	default:
		return ab_command_kill_start(c, &ref, NULL, ret);
	}
}

static void take(struct ab_call *call, const struct input *in)
{
	struct ab_command_event ev;
	struct ab_file_event fe;
	const struct ab_file *f;
	const void *data;
	size_t n;

	if (in->which % KINDS == 2)
		while (ab_command_next(call, &ev))
			must(ev.type);
	if (in->which % KINDS == 3)
		while (ab_file_read_next(call, &data, &n))
			must(n > 0);
	if (in->which % KINDS == 5)
		while (ab_file_list_next(call, &f))
			must(f->name);
	if (in->which % KINDS == 12)
		while (ab_file_watch_next(call, &fe))
			must(fe.type && fe.name);
	if (in->which % KINDS == 4 && !ab_call_is_done(call))
		(void)ab_file_write_put(call, "x", 1);
}

static void one_call(struct ab_client *c, struct peer *d)
{
	struct ab_call *call;
	unsigned steps = 0;

	must(start(c, d->in, &call) == 0);
	while (!ab_call_is_done(call) && steps++ < STEPS_MAX) {
		must(ab_process(c) == 0);
		peer_step(d);
		take(call, d->in);
	}
	must(ab_call_is_done(call));
	must(!ab_call_status(call) == !ab_call_error(call));
	if (ab_call_error(call))
		must(*ab_call_error(call)->status_name && !ab_call_take(call));
	ab_free(ab_call_take(call));
	ab_call_free(call);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct ab_client_options o = { .deadline_ms = AB_NEVER };
	struct input in;
	struct peer d = { .fd = -1, .in = &in };
	struct ab_client *c;

	if (n < 5 || n > 60000)
		return 0;
	listen_once();
	in = (struct input){ .which = p[0], .code = p[1] % 18, .how = p[2], .body = p + 5 };
	in.n_body = MIN(n - 5, (size_t)(p[3] | p[4] << 8));
	in.details = in.how & 4 ? in.body : in.body + in.n_body;
	in.n_details = in.how & 4 ? in.n_body : n - 5 - in.n_body;
	in.n_details = MIN(in.n_details, 4096u);
	o.socket = path;
	must(ab_client_new(&o, &c) == 0);
	one_call(c, &d);
	ab_client_free(c);
	h2_free(d.h2);
	fd_close(d.fd);
	return 0;
}
