/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl top. The terminal is put back however it ends: signals arrive on a descriptor, and everything that leaves goes through
 * close_screen().
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cmd/sandboxes.h"
#include "client/cli/cmd/top_frame.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"
#include "client/cli/term/out.h"
#include "client/cli/term/sig.h"
#include "client/cli/term/term.h"

#define EVERY_MS   1000
#define ASK_MS	   3000u	/* a daemon that says nothing for so long is told of, and asked again */
#define KEYS_BYTES 64u

static const struct opt cmd_top_opts[] = {
	OPT(0, "sort", OPT_TEXT, sort, "KEY", "use (leases), age, end, name or state"),
	OPT(0, "once", OPT_FLAG, once, NULL, "print one picture as text, and end"),
	OPT(0, "all-owners", OPT_FLAG, all_owners, NULL, "of all users (administrators)"),
};

struct top {
	struct cli *cli;
	struct ab_daemon_status *status;
	struct ab_sandbox_list *page;		/* the sandboxes of the view */
	const struct ab_sandbox **v;
	struct top_view view;
	char line[256], error[256];
	char question;				/* 'k' or 'p': the line asks; 0 = nothing is asked */
	char target[128];			/* the id that it is about */
	char chosen[128];			/* the id that is marked, while the mark stays on it */
	bool stays;
	struct term term;
	int sig_fd, winch_fd;
	bool over;
	int signo;
};

static void printf_like(2, 3) tell(struct top *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(t->line, sizeof(t->line), fmt, ap);
	va_end(ap);
}

/* --- what is shown --- */

static void count(const struct ab_daemon_status *s, struct top_counters *ret)
{
	*ret = (struct top_counters){ .gateway_requests = s->gateway_requests,
				      .refused = s->refused_calls + s->gateway_refused,
				      .at_ms = cli_boot_ms() };
	for (size_t i = 0; i < s->n_pool; i++)
		ret->cloud_calls += s->pool[i].calls;
}

static void keep_mark(struct top *t)
{
	struct top_view *w = &t->view;

	for (size_t i = 0; t->stays && i < w->n; i++)
		if (!strcmp(w->v[i]->id, t->chosen))
			w->selected = i;
	if (w->selected >= w->n)
		w->selected = w->n ? w->n - 1 : 0;
	if (w->selected < w->first)
		w->first = w->selected;
	if (w->selected >= w->first + top_room(w))
		w->first = w->selected + 1 - top_room(w);
	(void)snprintf(t->chosen, sizeof(t->chosen), "%s", w->n ? w->v[w->selected]->id : "");
}

static void sort_rows(struct top *t)
{
	qsort_r(t->v, t->view.n, sizeof(struct ab_sandbox *), top_compare, &t->view.sort);
	keep_mark(t);
}

/* The new rows take the place of the old ones, which go. */
static bool take_rows(struct top *t, struct ab_sandbox_list *page)
{
	const struct ab_sandbox **v = calloc(page->n + 1, sizeof(struct ab_sandbox *));

	if (!v) {
		ab_free(page);
		return false;
	}
	for (size_t i = 0; i < page->n; i++)
		v[i] = page->items[i];
	ab_free(t->page);
	free(t->v);
	t->page = page;
	t->v = v;
	t->view.v = v;
	t->view.n = page->n;
	sort_rows(t);
	return true;
}

static int read_all(struct top *t)
{
	const struct ab_call_options how = { .deadline_ms = ASK_MS };
	const struct ab_sandbox_list_options o = { .page_size = 1000, .cached = true, .all_owners = t->cli->args.all_owners };
	struct ab_daemon_status *status;
	struct ab_sandbox_list *page;

	if (ab_daemon_status(t->cli->client, &how, &status))
		return -EIO;
	ab_free(t->status);
	t->view.status = t->status = status;
	t->view.before = t->view.now;
	count(status, &t->view.now);
	t->view.wall_ms = cli_wall_ms();
	if (ab_sandbox_list(t->cli->client, &o, &how, &page))
		return -EIO;
	return take_rows(t, page) ? 0 : -ENOMEM;
}

static void refresh(struct top *t)
{
	int r = read_all(t);
	const struct ab_error *e = r == -EIO ? ab_client_error(t->cli->client) : NULL;

	t->error[0] = '\0';
	if (r)
		(void)snprintf(t->error, sizeof(t->error), "no news: %s", e ? e->message : "out of memory");
}

/* One write for a whole picture, so that it does not flicker. */
static int draw(struct top *t)
{
	char *text = NULL;
	size_t n = 0, at = 0;
	FILE *f = open_memstream(&text, &n);

	if (!f)
		return -ENOMEM;
	term_size(&t->view.cols, &t->view.rows);
	keep_mark(t);
	top_print(f, &t->view);
	(void)fclose(f);
	while (at < n) {
		ssize_t k = write(STDOUT_FILENO, text + at, n - at);

		if (k < 0 && errno != EINTR)
			break;
		at += k > 0 ? (size_t)k : 0;
	}
	free(text);
	return at < n ? -EIO : 0;
}

/* --- keys --- */

static void act(struct top *t)
{
	const struct ab_call_options how = { .deadline_ms = 10 * ASK_MS };
	bool answer = false;
	int r = t->question == 'k' ? ab_sandbox_kill(t->cli->client, t->target, &how, &answer) :
				     ab_sandbox_pause(t->cli->client, t->target, AB_DEFAULT, &how, &answer);
	const struct ab_error *e = r ? ab_client_error(t->cli->client) : NULL;

	if (r)
		tell(t, "%s: %s", t->target, e ? e->message : "failed");
	else
		tell(t, "%s %s", t->target, t->question == 'k' ? (answer ? "was killed" : "is not there any more") :
							(answer ? "was paused" : "was paused already"));
	refresh(t);
}

static void question(struct top *t, char what)
{
	if (!t->view.n)
		return;
	t->question = what;
	(void)snprintf(t->target, sizeof(t->target), "%s", t->view.v[t->view.selected]->id);
	tell(t, "%s %s? y or n", what == 'k' ? "Kill" : "Pause", t->target);
}

static void answer(struct top *t, char key)
{
	t->line[0] = '\0';
	if (key == 'y' || key == 'Y')
		act(t);
	else
		tell(t, "nothing was done");
	t->question = 0;
}

static void move(struct top *t, int by)
{
	struct top_view *w = &t->view;

	if (by < 0 && w->selected)
		w->selected--;
	else if (by > 0 && w->selected + 1 < w->n)
		w->selected++;
	if (w->n)
		(void)snprintf(t->chosen, sizeof(t->chosen), "%s", w->v[w->selected]->id);
}

static void on_key(struct top *t, char key)
{
	t->line[0] = '\0';
	switch (key) {
	case 'q':
	case 3:			/* Ctrl-C, which is a key in raw mode */
		t->over = true;
		break;
	case 's':
		t->view.sort = (t->view.sort + 1) % TOP_SORTS;
		sort_rows(t);
		break;
	case 'f':
		t->stays = !t->stays;
		tell(t, t->stays ? "the mark stays on %s" : "the mark stays in its row", t->chosen);
		break;
	case 'k':
	case 'p':
		question(t, key);
		break;
	case ' ':
		refresh(t);
		break;
	default:
		break;
	}
}

/* Arrows are three bytes; what else begins with an escape is left out. */
static void on_keys(struct top *t, const char *keys, size_t n)
{
	for (size_t i = 0; i < n && !t->over; i++) {
		if (t->question) {
			answer(t, keys[i]);
		} else if (keys[i] == '\033') {
			if (i + 2 < n && keys[i + 1] == '[' && (keys[i + 2] == 'A' || keys[i + 2] == 'B'))
				move(t, keys[i + 2] == 'A' ? -1 : 1);
			i += 2;
		} else {
			on_key(t, keys[i]);
		}
	}
}

/* --- the screen --- */

static void put(const char *text)
{
	(void)!write(STDOUT_FILENO, text, strlen(text));
}

static int open_screen(struct top *t)
{
	t->sig_fd = sig_open();
	t->winch_fd = sig_open_winch();
	if (t->sig_fd < 0 || t->winch_fd < 0)
		return -EIO;
	term_set_raw(&t->term);
	put("\033[?1049h\033[?25l\033[2J");
	return 0;
}

static void close_screen(struct top *t)
{
	if (t->term.raw)
		put("\033[?25h\033[?1049l");
	term_restore(&t->term);
}

static void wait_for_news(struct top *t, int64_t until_ms)
{
	struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = t->sig_fd, .events = POLLIN },
			      { .fd = t->winch_fd, .events = POLLIN } };
	int64_t left = until_ms - cli_boot_ms();
	char keys[KEYS_BYTES];
	ssize_t n;

	if (poll(p, ARRAY_SIZE(p), left > 0 ? (int)left : 0) <= 0)
		return;
	if (p[1].revents) {
		t->signo = sig_take(t->sig_fd);
		t->over = true;
		return;
	}
	if (p[2].revents)
		(void)sig_take(t->winch_fd);
	if (!p[0].revents)
		return;
	n = read(STDIN_FILENO, keys, sizeof(keys));
	if (n > 0)
		on_keys(t, keys, (size_t)n);
	else
		t->over = true;		/* the terminal is gone */
}

static int show(struct top *t)
{
	int64_t next_ms = 0;
	int r = open_screen(t);

	while (!r && !t->over) {
		if (cli_boot_ms() >= next_ms) {
			refresh(t);
			next_ms = cli_boot_ms() + EVERY_MS;
		}
		r = draw(t);
		if (!r)
			wait_for_news(t, next_ms);
	}
	close_screen(t);
	return r ? EXIT_ERROR : EXIT_OK;
}

static int print_once(struct top *t)
{
	uint32_t rows;

	if (read_all(t))
		return fail_client(t->cli);
	term_size(&t->view.cols, &rows);
	top_print(stdout, &t->view);
	return EXIT_OK;
}

static int cmd_top_check(struct cli *cli)
{
	enum top_sort sort;

	if (cli->args.sort && !top_sort_parse(cli->args.sort, &sort))
		return usage(cli->command, "--sort %s: use, age, end, name or state", cli->args.sort);
	if (!cli->args.once && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)))
		return usage(cli->command, "needs a terminal, or --once");
	return 0;
}

static int cmd_top_run(struct cli *cli)
{
	struct top t = { .cli = cli, .stays = true, .sig_fd = -1, .winch_fd = -1 };
	int r;

	t.view.line = t.line;
	t.view.error = t.error;
	t.view.escapes = !cli->args.once;
	if (cli->args.sort)
		(void)top_sort_parse(cli->args.sort, &t.view.sort);
	r = cli->args.once ? print_once(&t) : show(&t);
	ab_free(t.status);
	ab_free(t.page);
	free(t.v);
	if (t.signo)
		sig_die(t.signo);
	return r;
}

const struct command cmd_top = {
	.name = "top",
	.words = "",
	.help = "Shows sandboxes, leases, commands, connections and rates, anew every second, until q is pressed.\n"
		"Keys: up and down choose a sandbox, s sorts by the next key, f lets the mark stay on its sandbox or in its row,\n"
		"p pauses and k kills it after a question, space asks at once. At most 1000 sandboxes are shown.",
	.opts = cmd_top_opts,
	.n_opts = ARRAY_SIZE(cmd_top_opts),
	.no_json = true,
	.check = cmd_top_check,
	.run = cmd_top_run,
};
