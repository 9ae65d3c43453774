/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl exec, attach, and logs' reading: one loop over the daemon, the two outputs, the input and signals. Invariants: an
 * event is taken from the stream only when the one before has been written, so a slow reader holds
 * the command, not memory; the exit code is the command's only if the daemon stated it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cmd/follow.h"
#include "client/cli/term/again.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/sig.h"
#include "client/cli/term/sink.h"
#include "client/cli/term/term.h"

#define INPUT_BYTES (64u * 1024)
#define KEPT_BYTES  (512u * 1024)	/* at least what fits into a stream */
#define KEYS_MAX    16u
#define END_OF_FILE 4			/* ctrl-d: VEOF of a new terminal */

static const struct opt cmd_exec_opts[] = {
	OPT('i', "interactive", OPT_FLAG, interactive, NULL, "pass standard input on"),
	OPT('t', "tty", OPT_FLAG, tty, NULL, "give it a terminal"),
	OPT('u', "user", OPT_TEXT, user, "USER", "user inside the sandbox"),
	OPT('w', "workdir", OPT_TEXT, dir, "DIR", "directory it starts in"),
	OPT('e', "env", OPT_PAIR, envs, "K=V", "in its environment; may be repeated"),
	OPT(0, "timeout", OPT_SPAN, timeout_ms, "D", "end it after this time, with exit code 124"),
	OPT('d', "detach", OPT_FLAG, detach, NULL, "only start it, and print its command id"),
	OPT(0, "detach-keys", OPT_TEXT, detach_keys, "KEYS", "of -it: leaves it running (ctrl-p,ctrl-q)"),
};
static const struct opt shell_opts[] = {
	OPT('u', "user", OPT_TEXT, user, "USER", "user inside the sandbox"),
	OPT('w', "workdir", OPT_TEXT, dir, "DIR", "directory it starts in"),
	OPT('e', "env", OPT_PAIR, envs, "K=V", "in its environment; may be repeated"),
	OPT(0, "detach-keys", OPT_TEXT, detach_keys, "KEYS", "leave it running (ctrl-p,ctrl-q)"),
};
static const struct opt attach_opts[] = {
	OPT(0, "from", OPT_TEXT, from, "OFFSET", "first byte of the output, or end (0)"),
	OPT(0, "detach-keys", OPT_TEXT, detach_keys, "KEYS", "of a terminal: leaves it (ctrl-p,ctrl-q)"),
};

struct exec {
	struct cli *cli;
	struct ab_call *stream;		/* run, or attach after the connection broke */
	struct ab_call *input, *kill;
	int sig_fd, winch_fd;
	int signo;			/* that ended us, 0 = none */
	bool attached;			/* not ours to end */
	bool ours;			/* its input, terminal and exit code are passed on; logs: false */
	bool detached;
	bool is_terminal;		/* ours is passed on to it */
	uint64_t input_offset;
	bool input_lost;		/* with the connection; a terminal's goes on */
	bool resize_due;
	struct ab_call *resize;
	char keys[KEYS_MAX];		/* that detach */
	size_t n_keys, n_matched;
	struct term term;
	struct sink out, err;

	const char *pending;		/* of the event in hand, not written yet */
	size_t n_pending;
	struct sink *pending_to;
	int write_error;

	char *command_id;		/* once it started */
	uint64_t from;			/* what is before is not passed on: a stream may be shorter */
	uint64_t offsets[4];		/* next byte by stream, to go on from */
	uint64_t gaps[4];		/* by stream: one past the offset of the last gap of unknown size that was told; 0 = none */
	struct ab_attach_options how;	/* as the first attach was asked */
	struct again again;
	bool done;
	int exit_code;

	char *in, *spare;		/* INPUT_BYTES each */
	char *kept;			/* KEPT_BYTES: passed on, and not taken by the command's side yet */
	size_t kept_n, kept_put;	/* of them: on the stream that is open */
	uint64_t kept_at;		/* the first one's place in the input */
	size_t in_at, in_n;
	bool in_eof, in_line;		/* in_line: what was read last does not end a line */
};

/* --- output --- */

/* Writes what can be written. true: nothing is pending. */
static bool push(struct exec *x)
{
	while (x->n_pending) {
		ssize_t n = sink_write(x->pending_to, x->pending, x->n_pending);

		if (n == 0)
			return false;
		if (n < 0) {
			x->write_error = (int)-n;
			x->n_pending = 0;
			return true;
		}
		x->pending += n;
		x->n_pending -= (size_t)n;
	}
	return true;
}

static int signal_by_name(const char *name)
{
	if (!strncmp(name, "SIG", 3))
		name += 3;
	for (int i = 1; i < NSIG; i++) {
		const char *abbrev = sigabbrev_np(i);

		if (abbrev && !strcmp(abbrev, name))
			return i;
	}
	return 0;
}

int command_exit_code(const struct ab_command_result *r)
{
	int signo;

	if (r->timed_out)
		return EXIT_TIMED_OUT;
	switch (r->outcome) {
	case AB_EXITED:
		/* a parent sees 8 bits; what they would turn into 0 is not success */
		return r->exit_code && !(r->exit_code & 0xff) ? 255 : r->exit_code & 0xff;
	case AB_SIGNALED:
		signo = signal_by_name(r->signal);
		return signo ? 128 + signo : 255;
	case AB_NOT_STARTED:
		return EXIT_FAILED;
	default:
		return EXIT_UNKNOWN;
	}
}

static void on_exited(struct exec *x, const struct ab_command_result *r)
{
	x->done = true;
	x->exit_code = !x->ours ? EXIT_OK : x->signo ? 128 + x->signo : command_exit_code(r);
	if (r->outcome == AB_NOT_STARTED || r->outcome == AB_LOST || r->outcome == AB_OUTCOME_UNKNOWN)
		say(x->cli, "%s: %s%s%s%s",
		    r->outcome == AB_NOT_STARTED ? "not started" : "how it ended is not known", r->message,
		    *r->reason ? " (" : "", r->reason, *r->reason ? ")" : "");
	else if (r->timed_out)
		say(x->cli, "ended by --timeout");
	if (r->outcome != AB_NOT_STARTED && !r->output_complete)
		say(x->cli, "warning: some of its output was lost");
	if (r->pipes_held)
		say(x->cli, "warning: processes that it left hold its output; what they print is not shown");
	for (size_t i = 0; i < r->n_survivors; i++)
		say(x->cli, "warning: process %u of it is still running", r->survivors[i]);
}

static bool is_on_terminal(const struct args *a)
{
	return a->tty && a->interactive && isatty(STDIN_FILENO);
}

static void on_started(struct exec *x, const struct ab_command *c)
{
	const struct args *a = &x->cli->args;
	const struct ab_command_ref ref = { .command_id = c->command_id };
	bool terminal = x->attached ? x->ours && c->pty && c->running && isatty(STDIN_FILENO) : is_on_terminal(a);

	if (x->command_id)
		return;		/* an attach says it again */
	x->command_id = strdup(c->command_id);
	if (!x->command_id)
		return;
	if (x->how.from_end) {	/* where that was, should the connection break before each stream has said something */
		x->offsets[AB_STDOUT] = c->stdout_kept.end;
		x->offsets[AB_STDERR] = c->stderr_kept.end;
		x->offsets[AB_PTY] = c->pty_kept.end;
	}
	x->is_terminal = terminal;
	x->kept_at = x->input_offset;
	x->resize_due = terminal;
	if ((terminal || a->interactive) &&
	    ab_command_input_start(x->cli->client, &ref, x->input_offset, NULL, &x->input) < 0)
		say(x->cli, "warning: standard input is not passed on: out of memory");
	if (terminal)
		term_set_raw(&x->term);
}

/* The command's side has taken it up to there. */
static void forget_kept(struct exec *x, uint64_t to)
{
	size_t n = to > x->kept_at ? (size_t)(to - x->kept_at) : 0;

	n = n < x->kept_n ? n : x->kept_n;
	memmove(x->kept, x->kept + n, x->kept_n - n);
	x->kept_n -= n;
	x->kept_at += n;
	x->kept_put -= n < x->kept_put ? n : x->kept_put;
}

/* After a new attach: where the daemon stopped taking it. What was typed and on its way is not sent again, a file is. */
static void input_again(struct exec *x)
{
	const struct ab_command_ref ref = { .command_id = x->command_id };

	if (!x->input_lost)
		return;
	/* twice: bytes in doubt are told once; then a file has a hole there */
	for (int i = 0; i < (x->is_terminal ? 2 : 1) && x->input_lost; i++)
		x->input_lost = ab_command_send_input(x->cli->client, &ref, 0, "", 0, false, NULL, &x->input_offset) != AB_OK;
	if (!x->input_lost) {
		forget_kept(x, x->input_offset);
		x->kept_put = 0;
		x->kept_n = x->is_terminal ? 0 : x->kept_n;
		x->kept_at = x->input_offset;
	}
	if (!x->input_lost)
		x->input_lost = ab_command_input_start(x->cli->client, &ref, x->input_offset, NULL, &x->input) < 0;
	/* Else the next event asks again: the daemon may not have reached the sandbox yet. */
	if (x->input_lost && !x->is_terminal && !strcmp(ab_client_error(x->cli->client)->reason, "OUTCOME_UNKNOWN")) {
		x->input_lost = false;
		say(x->cli, "warning: standard input is cut: what the command has read of it is not known");
	}
}

static void on_output(struct exec *x, const struct ab_command_event *ev)
{
	size_t skip;

	if ((unsigned)ev->stream < ARRAY_SIZE(x->offsets))
		x->offsets[ev->stream] = ev->offset + ev->size;
	if (ev->offset + ev->size <= x->from)
		return;
	skip = x->from > ev->offset ? (size_t)(x->from - ev->offset) : 0;
	x->pending = (const char *)ev->data + skip;
	x->n_pending = (size_t)ev->size - skip;
	x->pending_to = ev->stream == AB_STDERR ? &x->err : &x->out;
}

static void on_gap(struct exec *x, const struct ab_command_event *ev)
{
	const char *name = ev->stream == AB_STDERR ? "error output" : "output";

	if (!ev->size_known && (unsigned)ev->stream < ARRAY_SIZE(x->gaps)) {
		if (x->gaps[ev->stream] == ev->offset + 1)	/* an attach from there tells it again */
			return;
		x->gaps[ev->stream] = ev->offset + 1;
	}
	if (ev->size_known)
		say(x->cli, "warning: %llu bytes of %s are lost (%s)", (unsigned long long)ev->size, name,
		    ev->reason);
	else
		say(x->cli, "warning: some %s is lost (%s)", name, ev->reason);
}

/* Takes events until one has to be written. */
static void take_events(struct exec *x)
{
	struct ab_command_event ev;

	while (push(x) && !x->write_error && ab_command_next(x->stream, &ev)) {
		again_heard(&x->again);
		if (ev.type == AB_EVENT_STARTED)
			on_started(x, ev.command);
		else if (ev.type == AB_EVENT_OUTPUT)
			on_output(x, &ev);
		else if (ev.type == AB_EVENT_GAP)
			on_gap(x, &ev);
		else if (ev.type == AB_EVENT_EXITED)
			on_exited(x, ev.result);
		if (ev.type == AB_EVENT_STARTED || ev.type == AB_EVENT_GAP)
			input_again(x);
	}
}

/* --- input --- */

static void input_end(struct exec *x)
{
	const struct ab_error *e = ab_call_error(x->input);

	/* A stop of the daemon comes when all that it took is told of; a broken connection leaves a doubt, which a person sees. */
	x->input_lost = e && e->status == AB_UNAVAILABLE && (!strcmp(e->reason, "DRAINING") || (e->local && x->is_terminal));
	/* a command that ends or closes its input early has every right to */
	if (e && !x->input_lost && strcmp(e->reason, "PROCESS_STDIN_CLOSED") != 0 &&
	    strcmp(e->reason, "PROCESS_NOT_FOUND") != 0)
		say(x->cli, "warning: standard input is cut: %s", e->message);
	ab_call_free(x->input);
	x->input = NULL;
}

/* Into what is held until the command's side has taken it, as far as there is room. */
static void keep(struct exec *x)
{
	size_t n = KEPT_BYTES - x->kept_n;

	n = n < x->in_n ? n : x->in_n;
	memcpy(x->kept + x->kept_n, x->in + x->in_at, n);
	x->kept_n += n;
	x->in_at += n;
	x->in_n -= n;
}

static void input_push(struct exec *x)
{
	if (!x->input)
		return;
	forget_kept(x, ab_input_accepted(x->input));
	keep(x);
	while (x->kept_put < x->kept_n) {
		ptrdiff_t n = ab_input_put(x->input, x->kept + x->kept_put, x->kept_n - x->kept_put);

		if (n <= 0)
			break;
		x->kept_put += (size_t)n;
	}
	if (x->in_eof && !x->in_n && x->kept_put == x->kept_n)
		(void)ab_input_finish(x->input, !x->is_terminal && !x->cli->args.tty);
	if (ab_call_is_done(x->input))
		input_end(x);
}

/* Leaves out the keys that detach; what only looked like their beginning is passed on. */
static void find_keys(struct exec *x)
{
	char *typed = x->in;
	size_t to = 0;

	x->in = x->spare;
	x->spare = typed;
	for (size_t i = 0; i < x->in_n && !x->detached; i++) {
		if (x->n_matched && typed[i] != x->keys[x->n_matched]) {
			memcpy(x->in + to, x->keys, x->n_matched);
			to += x->n_matched;
			x->n_matched = 0;
		}
		if (typed[i] == x->keys[x->n_matched])
			x->detached = ++x->n_matched == x->n_keys;
		else
			x->in[to++] = typed[i];
	}
	x->in_n = to;
}

/* Its terminal has no other end of input than the character for it, of which one that stands in a line only passes that on. */
static void type_end(struct exec *x)
{
	memset(x->in, END_OF_FILE, 2);
	x->in_n = x->in_line ? 2 : 1;
}

static void input_read(struct exec *x)
{
	ssize_t n = read(STDIN_FILENO, x->in, INPUT_BYTES - KEYS_MAX);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0)
		say(x->cli, "warning: cannot read standard input: %s", strerror(errno));
	x->in_eof = n <= 0;
	x->in_at = 0;
	x->in_n = n > 0 ? (size_t)n : 0;
	if (x->in_n)
		x->in_line = x->in[x->in_n - 1] != '\n';
	else if (!x->is_terminal && x->cli->args.tty)
		type_end(x);
	if (x->is_terminal && x->n_keys)
		find_keys(x);
}

/* --- the size of the terminal: the last one wins --- */

static void resize_push(struct exec *x)
{
	const struct ab_command_ref ref = { .command_id = x->command_id };
	uint32_t cols, rows;

	if (x->resize && ab_call_is_done(x->resize)) {
		ab_call_free(x->resize);
		x->resize = NULL;
	}
	if (!x->resize_due || x->resize || !x->command_id || x->done)
		return;
	x->resize_due = false;
	term_size(&cols, &rows);
	/* a size that is not told is no reason to end */
	(void)ab_command_resize_start(x->cli->client, &ref, cols, rows, NULL, &x->resize);
}

/* --- the end of the stream, and of us --- */

/* NULL: there is nothing yet to attach to. */
static const char *whose(const struct exec *x)
{
	return x->command_id ? x->command_id : x->attached ? x->cli->args.words[0] : NULL;
}

/* The connection broke, the command may well live: go on where we were. */
static bool attach_again(struct exec *x)
{
	const struct ab_command_ref ref = { .command_id = whose(x) };
	struct ab_attach_options o = x->how;
	struct ab_call *stream;

	int signo;

	if (!whose(x))
		return false;
	signo = again_wait(&x->again, x->cli, ab_call_error(x->stream), x->sig_fd);
	if (signo < 0)
		return false;
	if (signo) {
		x->signo = signo;
		x->exit_code = 128 + signo;
		x->done = true;
		return true;
	}
	o.stdout_offset = x->offsets[AB_STDOUT];
	o.stderr_offset = x->offsets[AB_STDERR];
	o.pty_offset = x->offsets[AB_PTY];
	o.from_end = o.from_end && !x->command_id;
	if (ab_command_attach_start(x->cli->client, &ref, &o, NULL, &stream) < 0)
		return false;
	ab_call_free(x->stream);
	x->stream = stream;
	return true;
}

static void on_stream_end(struct exec *x)
{
	const struct ab_error *e = ab_call_error(x->stream);

	if (x->done || x->signo) {
		x->done = true;
		return;
	}
	if (e && attach_again(x))
		return;
	x->done = true;
	if (!e) {		/* only where nobody waits for its end */
		x->exit_code = EXIT_OK;
		return;
	}
	x->exit_code = fail(x->cli, e);
	if (!x->attached || (x->command_id && e->status != AB_NOT_FOUND))
		x->exit_code = x->command_id || !strcmp(e->reason, "OUTCOME_UNKNOWN") ? EXIT_UNKNOWN : EXIT_FAILED;
	if (x->exit_code == EXIT_UNKNOWN && whose(x))
		say(x->cli, "what became of command %s is not known; agentboxctl attach %s goes on with it", whose(x),
		    whose(x));
	else if (x->exit_code == EXIT_UNKNOWN)
		say(x->cli, "what became of the command is not known");
}

/* The first asks the command to end, and what it still says is passed on; the second one leaves. */
static void on_signal(struct exec *x, int signo)
{
	const struct ab_command_ref ref = { .command_id = x->command_id };
	bool again = x->signo != 0;

	x->signo = signo;
	x->exit_code = 128 + signo;
	if (!again && x->command_id && !x->done && !x->attached &&
	    ab_command_kill_start(x->cli->client, &ref, NULL, &x->kill) == 0)
		return;
	ab_call_cancel(x->stream);
	x->done = true;
	x->n_pending = 0;
}

static void wait_and_serve(struct exec *x)
{
	struct ab_client *c = x->cli->client;
	bool want_input = x->input && !x->in_n && !x->in_eof;
	struct pollfd p[5] = {
		{ .fd = ab_fd(c), .events = (short)ab_events(c) },
		{ .fd = x->sig_fd, .events = POLLIN },
		{ .fd = x->n_pending ? x->pending_to->fd : -1, .events = POLLOUT },
		{ .fd = want_input ? STDIN_FILENO : -1, .events = POLLIN },
		{ .fd = x->winch_fd, .events = POLLIN },
	};
	int signo;

	if (poll(p, ARRAY_SIZE(p), ab_timeout(c)) < 0 && errno != EINTR)
		return;
	if (p[3].revents)
		input_read(x);
	if (p[1].revents && (signo = sig_take(x->sig_fd)))
		on_signal(x, signo);
	if (p[4].revents)
		x->resize_due |= sig_take(x->winch_fd) != 0 && x->is_terminal;
	(void)ab_process(c);
}

static void loop(struct exec *x)
{
	while ((!x->done || x->n_pending) && !x->detached) {
		if (!x->done)
			take_events(x);
		else
			(void)push(x);
		if (x->write_error)
			return;
		if (!x->n_pending && ab_call_is_done(x->stream))
			on_stream_end(x);
		if (x->kill && ab_call_is_done(x->kill) && ab_call_status(x->kill)) {
			ab_call_cancel(x->stream);	/* cannot be asked to end: then this way */
			x->done = true;
		}
		input_push(x);
		resize_push(x);
		if (!x->done || x->n_pending)
			wait_and_serve(x);
	}
}

/* "ctrl-p,ctrl-q" or plain letters. False: it cannot be read. */
static bool take_keys(struct exec *x, const char *text)
{
	x->n_keys = 0;
	while (*text) {
		size_t n = strcspn(text, ",");
		bool ctrl = n == 6 && !strncasecmp(text, "ctrl-", 5);

		if (x->n_keys == KEYS_MAX || (!ctrl && n != 1))
			return false;
		x->keys[x->n_keys++] = ctrl ? (char)(text[5] & 0x1f) : text[0];
		text += n;
		text += *text == ',';
	}
	return x->n_keys > 0;
}

/* What both kinds of loop need. 0 or -errno. */
static int prepare(struct exec *x)
{
	x->in = malloc(INPUT_BYTES);
	x->spare = malloc(INPUT_BYTES);
	x->kept = malloc(KEPT_BYTES);
	x->sig_fd = sig_open();
	x->winch_fd = sig_open_winch();
	return !x->in || !x->spare || !x->kept ? -ENOMEM : x->sig_fd < 0 ? x->sig_fd : x->winch_fd < 0 ? x->winch_fd : 0;
}

static struct ab_command_options what_to_run(const struct args *a)
{
	struct ab_command_options o = {
		.sandbox = a->words[0],
		.argv = (const char *const *)a->rest,
		.envs = a->envs.v,
		.n_envs = a->envs.n,
		.cwd = a->dir,
		.user = a->user,
		.command_timeout_ms = a->timeout_ms,
		.stdin_open = a->interactive,
	};

	if (a->tty)
		term_size(&o.pty_cols, &o.pty_rows);
	return o;
}

static int start(struct exec *x)
{
	const struct args *a = &x->cli->args;
	struct ab_command_options o = what_to_run(a);
	int r = prepare(x);

	/* what can be left running must not end with us; a signal to us still ends it */
	o.detach = is_on_terminal(a);
	if (r == 0)
		r = ab_command_run_start(x->cli->client, &o, NULL, &x->stream);
	if (r < 0)
		say(x->cli, "%s", strerror(-r));
	return r;
}

/* After the loop, or instead of it. */
static int finish(struct exec *x)
{
	struct cli *cli = x->cli;

	term_restore(&x->term);
	if (x->detached)
		fprintf(stderr, "\nagentboxctl: it goes on: agentboxctl attach %s\n", x->command_id);
	ab_call_free(x->input);
	ab_call_free(x->kill);
	ab_call_free(x->resize);
	ab_call_free(x->stream);	/* if it still runs, this kills it, unless it can be left running */
	sink_close(&x->out);
	sink_close(&x->err);
	free(x->command_id);
	free(x->in);
	free(x->spare);
	free(x->kept);
	(void)close(x->sig_fd);
	(void)close(x->winch_fd);
	if (x->write_error == EPIPE)
		sig_die(SIGPIPE);
	if (x->write_error) {
		say(cli, "cannot write the output: %s", strerror(x->write_error));
		return EXIT_FAILED;
	}
	return x->detached ? EXIT_OK : x->exit_code;
}

/* exec -d */
static int start_only(struct cli *cli)
{
	const struct ab_command_options o = what_to_run(&cli->args);
	struct ab_command *c;

	if (ab_command_spawn(cli->client, &o, NULL, &c))
		return fail_client(cli);
	printf("%s\n", c->command_id);
	ab_free(c);
	return EXIT_OK;
}

/* Without a program it is the sandbox's login shell. */
static int run_program(struct cli *cli)
{
	struct exec x = { .cli = cli, .exit_code = EXIT_FAILED, .sig_fd = -1, .winch_fd = -1, .ours = true };
	const struct args *a = &cli->args;

	if (!take_keys(&x, a->detach_keys ? a->detach_keys : "ctrl-p,ctrl-q"))
		return usage(cli->command, "--detach-keys takes keys such as ctrl-p,ctrl-q");
	if (a->detach)
		return start_only(cli);
	sink_open(&x.out, STDOUT_FILENO);
	sink_open(&x.err, STDERR_FILENO);
	if (start(&x) == 0)
		loop(&x);
	return finish(&x);
}

static int cmd_exec_run(struct cli *cli)
{
	if (!cli->args.n_rest)
		return usage(cli->command, "needs ID COMMAND [ARGUMENT…]");
	return run_program(cli);
}

/* --- shell --- */

static int check_shell(struct cli *cli)
{
	if (isatty(STDIN_FILENO))
		return 0;
	return usage(cli->command, "standard input is no terminal; agentboxctl exec -i %s bash reads a script there",
		     cli->args.words[0]);
}

static int run_shell(struct cli *cli)
{
	cli->args.interactive = true;
	cli->args.tty = true;
	return run_program(cli);
}

/* --- attach, and the reading of logs --- */

static int take_offset(const struct cli *cli, struct ab_attach_options *o, uint64_t *ret)
{
	const char *text = cli->args.from;
	uint64_t n = 0;

	if (!text)
		return EXIT_OK;
	if (!strcmp(text, "end")) {
		o->from_end = true;
		return EXIT_OK;
	}
	for (const char *p = text; *p; p++) {
		if (*p < '0' || *p > '9' || n > (UINT64_MAX - 9) / 10)
			return usage(cli->command, "--from takes a number of bytes, or end, not '%s'", text);
		n = n * 10 + (uint64_t)(*p - '0');
	}
	*ret = n;
	return EXIT_OK;
}

static int follow(struct cli *cli, const struct ab_attach_options *o, bool ours)
{
	struct exec x = { .cli = cli, .exit_code = EXIT_FAILED, .sig_fd = -1, .winch_fd = -1, .attached = true,
			  .how = *o, .ours = ours };
	const struct ab_command_ref ref = { .command_id = cli->args.words[0] };
	int r;

	r = take_offset(cli, &x.how, &x.from);
	if (r != EXIT_OK)
		return r;
	x.offsets[AB_STDOUT] = o->stdout_offset;
	x.offsets[AB_STDERR] = o->stderr_offset;
	x.offsets[AB_PTY] = o->pty_offset;
	if (!take_keys(&x, cli->args.detach_keys ? cli->args.detach_keys : "ctrl-p,ctrl-q"))
		return usage(cli->command, "--detach-keys takes keys such as ctrl-p,ctrl-q");
	/* input goes on where the writer before us stopped; a command without input says so, which is fine */
	if (ours && isatty(STDIN_FILENO))
		(void)ab_command_send_input(cli->client, &ref, 0, "", 0, false, NULL, &x.input_offset);
	sink_open(&x.out, STDOUT_FILENO);
	sink_open(&x.err, STDERR_FILENO);
	r = prepare(&x);
	if (r == 0)
		r = ab_command_attach_start(cli->client, &ref, &x.how, NULL, &x.stream);
	if (r == 0)
		loop(&x);
	else
		say(cli, "%s", strerror(-r));
	return finish(&x);
}

int follow_logs(struct cli *cli, const struct ab_attach_options *o)
{
	return follow(cli, o, false);
}

static int run_attach(struct cli *cli)
{
	return follow(cli, &(struct ab_attach_options){ 0 }, true);
}

const struct command cmd_attach = {
	.name = "attach",
	.words = "COMMAND_ID",
	.help = "Passes on what a command prints, and ends as it ends; its terminal becomes ours.\n"
		"Interrupting this leaves the command alone.",
	.opts = attach_opts,
	.n_opts = ARRAY_SIZE(attach_opts),
	.min_words = 1,
	.max_words = 1,
	.no_json = true,
	.run = run_attach,
};

const struct command cmd_exec = {
	.name = "exec",
	.words = "ID [--] COMMAND [ARGUMENT…]",
	.help = "Runs a command in a sandbox and ends as it ends.\n"
		"What stands behind ID is the command's, also what looks like an option of ours.\n"
		"Exit codes: the command's, or 128+n if signal n ended it; 124 --timeout ended it;\n"
		"125 agentboxctl or the daemon failed; 126 what became of it is not known.",
	.opts = cmd_exec_opts,
	.n_opts = ARRAY_SIZE(cmd_exec_opts),
	.min_words = 1,
	.max_words = 1,
	.takes_rest = true,
	.no_json = true,
	.fail_code = EXIT_FAILED,
	.run = cmd_exec_run,
};

const struct command cmd_shell = {
	.name = "shell",
	.words = "ID",
	.help = "Opens a login shell of a sandbox on this terminal, as exec -it does with a command.",
	.opts = shell_opts,
	.n_opts = ARRAY_SIZE(shell_opts),
	.min_words = 1,
	.max_words = 1,
	.no_json = true,
	.fail_code = EXIT_FAILED,
	.check = check_shell,
	.run = run_shell,
};
