/* SPDX-License-Identifier: MIT */
/*
 * Input is a queue: pieces in the order they came, and perhaps the end behind them. A piece whose
 * call is gone is written all the same, as the agent does.
 */
#include "daemon/local/agent/proc_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/agent/proc.h"
#include "proto/base/fd.h"

#define INPUT_MAX_BYTES (64u * 1024 * 1024)	/* waiting for one command; -ENOBUFS above it */

struct proc_input {
	struct list node;
	struct loop *loop;
	uint8_t *data;		/* NULL: the end */
	size_t n, off;
	proc_written_fn *written;
	void *user;
	int r;
	struct defer report;
	struct grave grave;
};

static void input_free(void *v)
{
	struct proc_input *in = v;

	free(in->data);
	free(in);
}

static void on_report(struct defer *d, void *user)
{
	struct proc_input *in = user;

	if (in->written)
		in->written(in->user, in->r);
	loop_bury(in->loop, &in->grave, input_free, in);
}

static void input_done(struct proc_input *in, int r)
{
	list_del(&in->node);
	in->r = r;
	defer_post(&in->report);
}

void proc_input_forget(struct proc_input *in)
{
	in->written = NULL;
}

void proc_input_close(struct proc *p)
{
	if (p->in.fd >= 0) {
		watch_fini(&p->in.w);
		p->in.fd = fd_close(p->in.fd);
	}
	list_for_each_safe(n, &p->inputs) {
		struct proc_input *in = list_entry(n, struct proc_input, node);

		/* A pipe that is closed is what the end of input asked for. */
		input_done(in, in->data ? -EPIPE : 0);
	}
}

static void set_interest(struct proc *p)
{
	if (p->in.fd < 0 || !watch_set(&p->in.w, list_is_empty(&p->inputs) ? 0 : WATCH_WRITE))
		return;
	log_warn("command_input_unwatched", "pid=%u", p->pid);
	proc_input_close(p);
}

static void on_writable(struct watch *w, unsigned ready, void *user)
{
	struct proc *p = user;
	struct proc_input *in;

	while ((in = list_first(&p->inputs, struct proc_input, node))) {
		ssize_t n = 0;

		if (!in->data) {
			proc_input_close(p);
			return;
		}
		if (in->off < in->n)
			n = write(p->in.fd, in->data + in->off, in->n - in->off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			proc_input_close(p);
			return;
		}
		in->off += (size_t)n;
		if (in->off == in->n)
			input_done(in, 0);
	}
	set_interest(p);
}

int proc_input_open(struct proc *p, int fd, bool shared)
{
	int r;

	if (fd >= 0 && shared)
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return shared ? -errno : 0;
	r = watch_init(&p->in.w, p->loop, fd, on_writable, p);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	p->in.fd = fd;
	return 0;
}

static size_t waiting(const struct proc *p)
{
	size_t n = 0;

	list_for_each(node, &p->inputs) {
		const struct proc_input *in = list_entry(node, struct proc_input, node);

		n += in->n - in->off;
	}
	return n;
}

static bool end_is_queued(const struct proc *p)
{
	return !list_is_empty(&p->inputs) &&
	       !list_entry(p->inputs.prev, struct proc_input, node)->data;
}

int proc_write(struct proc *p, uint8_t *data, size_t n, proc_written_fn *written, void *user,
	       struct proc_input **ret)
{
	struct proc_input *in;

	if (data && (p->in.fd < 0 || end_is_queued(p)))
		return -EPIPE;
	if (waiting(p) + n > INPUT_MAX_BYTES)
		return -ENOBUFS;
	in = calloc(1, sizeof(*in));
	if (!in)
		return -ENOMEM;
	*in = (struct proc_input){
		.loop = p->loop, .data = data, .n = n, .written = written, .user = user
	};
	defer_init(&in->report, p->loop, on_report, in);
	list_add_tail(&p->inputs, &in->node);
	*ret = in;
	if (p->in.fd < 0)
		input_done(in, 0);	/* the end of what has ended */
	else
		set_interest(p);
	return 0;
}

int proc_resize(struct proc *p, uint16_t cols, uint16_t rows)
{
	if (!p->is_pty)
		return -EOPNOTSUPP;
	return p->out[0].fd < 0 ? -EPIPE : container_pty_resize(p->out[0].fd, cols, rows);
}
