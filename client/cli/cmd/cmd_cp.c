/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl cp: one file in or out of a sandbox (trees: cp_tree.h). Invariant: the file at the destination is the old
 * one or the whole new one; what was cut is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"
#include "client/cli/term/sig.h"
#include "client/cli/tree/cp.h"
#include "client/cli/tree/xfer.h"

static const struct opt cmd_cp_opts[] = {
	OPT('u', "user", OPT_TEXT, user, "USER", "user inside the sandbox"),
	OPT('r', "recursive", OPT_FLAG, recursive, NULL, "a directory with all in it"),
	OPT(0, "update", OPT_FLAG, update, NULL, "with -r: only what differs in size, mode or time"),
	OPT(0, "all-links", OPT_FLAG, all_links, NULL, "with -r: also links that lead out of the tree"),
};

struct copy {
	struct cli *cli;
	struct ab_path remote;
	const char *local;
	char *path;		/* remote path with the file's name at its end, if it had to be added */
	int sig_fd;
	struct xfer x;
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_dash(const char *word)
{
	return !strcmp(word, "-");
}

static int fail_local(struct copy *c, const char *what, const char *path, int err)
{
	return fail_here(c->cli, "cannot %s %s: %s", what, path, strerror(err));
}

/* After a transfer: what went wrong, if anything. */
static int outcome(struct copy *c, const struct ab_call *call, const char *local)
{
	if (c->x.error)
		return fail_local(c, "copy", local, c->x.error);
	if (c->x.signo)
		return 128 + c->x.signo;
	return ab_call_status(call) ? fail(c->cli, ab_call_error(call)) : EXIT_OK;
}

static void report(const struct copy *c)
{
	struct json j;

	if (!c->cli->args.json)
		return;
	json_begin(&j, stdout);
	json_text(&j, "sandbox", c->remote.sandbox);
	json_text(&j, "path", c->remote.path);
	json_uint(&j, "bytes", c->x.bytes);
	json_end(&j);
}

static void begin(struct copy *c, const char *label)
{
	c->x = (struct xfer){
		.cli = c->cli,
		.label = label,
		.progress = !c->cli->args.json && isatty(STDERR_FILENO) && !is_dash(c->local),
	};
}

/* --- up --- */

/* The rest of a regular file; 0 also where nothing is known (pipes, files of /proc). */
static uint64_t rest_of(int fd, const struct stat *st)
{
	off_t at;

	if (!S_ISREG(st->st_mode) || st->st_size <= 0)
		return 0;
	at = lseek(fd, 0, SEEK_CUR);
	return at >= 0 && at < st->st_size ? (uint64_t)(st->st_size - at) : 0;
}

static int upload_once(struct copy *c, int fd, const struct stat *st, bool *ret_is_dir)
{
	struct ab_write_options o = { .size = rest_of(fd, st) };
	struct ab_call *call;
	int r;

	o.size_known = o.size != 0;
	r = ab_file_write_start(c->cli->client, &c->remote, &o, NULL, &call);
	if (r < 0)
		return fail_here(c->cli, "%s", strerror(-r));
	begin(c, base_name(c->local));
	c->x.total = o.size;
	(void)xfer_up(&c->x, call, fd, c->sig_fd);
	*ret_is_dir = ab_call_error(call) && !strcmp(ab_call_error(call)->reason, "IS_A_DIRECTORY");
	r = *ret_is_dir ? EXIT_ERROR : outcome(c, call, c->local);
	ab_call_free(call);
	return r;
}

static bool add_name(struct copy *c)
{
	char *name = ab_path_text(base_name(c->local));

	c->path = name ? cp_join(c->remote.path, name) : NULL;
	free(name);
	if (c->path)
		c->remote.path = c->path;
	return c->path != NULL;
}

static int upload_fd(struct copy *c, int fd)
{
	size_t n = strlen(c->remote.path);
	bool is_dir = false, named;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return fail_local(c, "read", c->local, errno);
	if (S_ISDIR(st.st_mode))
		return fail_local(c, "copy", c->local, EISDIR);
	named = !is_dash(c->local);
	if (named && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))) {	/* some have no end */
		return fail_here(c->cli, "cannot copy %s: it is a device; - with it as standard input reads it", c->local);
	}
	if ((!n || c->remote.path[n - 1] == '/') && (!named || !add_name(c)))
		return usage(c->cli->command, "the destination needs a file's name");
	r = upload_once(c, fd, &st, &is_dir);
	if (!is_dir)
		return r;
	/* as cp does: into the directory, under the same name */
	if (!named || c->path || !S_ISREG(st.st_mode) || lseek(fd, 0, SEEK_SET) < 0 || !add_name(c))
		return fail_here(c->cli, "%s is a directory (IS_A_DIRECTORY)", c->remote.path);
	r = upload_once(c, fd, &st, &is_dir);
	if (is_dir)
		say(c->cli, "%s is a directory (IS_A_DIRECTORY)", c->remote.path);
	return r;
}

static int upload(struct copy *c)
{
	int fd = is_dash(c->local) ? STDIN_FILENO : sig_open_file(c->local, O_RDONLY), r;

	if (fd < 0)
		return fail_local(c, "open", c->local, errno);
	r = upload_fd(c, fd);
	if (fd != STDIN_FILENO)
		(void)close(fd);
	return r;
}

/* --- down --- */

/* Where the bytes go: the standard output, something that is no file, or a new file beside the old. */
struct target {
	int fd;
	char *path;		/* final; NULL: fd is not ours to name */
	char *temp;
	bool replaces;
	mode_t mode;		/* of the file that was there */
};

static void target_drop(struct target *t)
{
	if (t->temp)
		(void)unlink(t->temp);
	if (t->fd > STDERR_FILENO)
		(void)close(t->fd);
	free(t->temp);
	free(t->path);
	*t = (struct target){ .fd = -1 };
}

static int target_temp(struct target *t)
{
	const char *name = base_name(t->path);

	if (asprintf(&t->temp, "%.*s.%.200s.XXXXXX", (int)(name - t->path), t->path, name) < 0) {
		t->temp = NULL;
		return -ENOMEM;
	}
	t->fd = mkostemp(t->temp, O_CLOEXEC);
	if (t->fd >= 0)
		return 0;
	free(t->temp);
	t->temp = NULL;
	return -errno;
}

static int target_open(struct copy *c, struct target *t)
{
	struct stat st;
	char *real, *name;

	*t = (struct target){ .fd = STDOUT_FILENO };
	if (is_dash(c->local))
		return 0;
	t->fd = -1;
	t->path = strdup(c->local);
	if (t->path && stat(t->path, &st) == 0 && S_ISDIR(st.st_mode)) {
		free(t->path);
		name = ab_path_bytes(base_name(c->remote.path));
		t->path = name ? cp_join(c->local, name) : NULL;
		free(name);
	}
	if (!t->path)
		return -ENOMEM;
	if (stat(t->path, &st) < 0)
		return errno == ENOENT ? target_temp(t) : -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode)) {	/* a device or pipe is written to, not replaced */
		t->fd = sig_open_file(t->path, O_WRONLY | O_NOCTTY);
		free(t->path);
		t->path = NULL;
		return t->fd < 0 ? -errno : 0;
	}
	t->replaces = true;
	t->mode = st.st_mode & 0777;	/* set-user-id bits were for the old content, and its owner */
	/* a link stays, what it points to is replaced */
	real = realpath(t->path, NULL);
	free(t->path);
	t->path = real;
	return real ? target_temp(t) : -errno;
}

static int target_keep(struct target *t, const struct ab_file *info)
{
	mode_t mask, mode = t->mode;

	if (!t->path)
		return 0;
	if (!t->replaces) {
		mask = umask(0);
		(void)umask(mask);
		mode = (info && info->mode ? info->mode & 0777 : 0666) & ~mask;
	}
	if (fchmod(t->fd, mode) < 0)
		return -errno;
	if (close(t->fd) < 0) {
		t->fd = -1;
		return -errno;
	}
	t->fd = -1;
	if (rename(t->temp, t->path) < 0)
		return -errno;
	free(t->temp);
	t->temp = NULL;
	return 0;
}

/* Until it is known that there is a file to read, or that there is none. */
static void await_file(struct copy *c, struct ab_call *call)
{
	while (!ab_call_is_done(call) && !ab_file_read_info(call) && !c->x.signo) {
		if (ab_call_poll(call, 100) != 1)
			c->x.signo = sig_take(c->sig_fd);
		else
			return;
	}
}

static int download_to(struct copy *c, struct ab_call *call, struct target *t)
{
	int r = target_open(c, t);

	if (r < 0)
		return fail_local(c, "write", c->local, -r);
	(void)xfer_down(&c->x, call, t->fd, c->sig_fd);
	r = outcome(c, call, c->local);
	if (r)
		return r;
	r = target_keep(t, ab_file_read_info(call));
	return r < 0 ? fail_local(c, "write", c->local, -r) : EXIT_OK;
}

static int download(struct copy *c)
{
	struct target t = { .fd = -1 };
	struct ab_call *call;
	int r;

	if (!*base_name(c->remote.path))
		return usage(c->cli->command, "the source needs a file's name");
	r = ab_file_read_start(c->cli->client, &c->remote, NULL, NULL, &call);
	if (r < 0)
		return fail_here(c->cli, "%s", strerror(-r));
	begin(c, base_name(c->remote.path));
	await_file(c, call);
	r = outcome(c, call, c->local);
	if (!r)
		r = download_to(c, call, &t);
	target_drop(&t);
	ab_call_free(call);
	return r;
}

/* With -r. CP_IS_A_FILE: it is one file after all. */
static int copy_tree(struct copy *c, bool down)
{
	struct stat st;

	if (is_dash(c->local))
		return usage(c->cli->command, "-r copies no - ; tar in the sandbox does that");
	if (down)
		return cp_tree_down(c->cli, &c->remote, c->local, c->sig_fd, &c->x.signo);
	if (stat(c->local, &st) == 0 && !S_ISDIR(st.st_mode))
		return CP_IS_A_FILE;
	return cp_tree_up(c->cli, &c->remote, c->local, c->sig_fd, &c->x.signo);
}

static int copy_file(struct copy *c, bool down)
{
	int r = down ? download(c) : upload(c);

	if (r == EXIT_OK)
		report(c);
	return r;
}

static int cmd_cp_run(struct cli *cli)
{
	char **w = cli->args.words;
	struct copy c = { .cli = cli };
	struct ab_path from, to;
	bool from_remote = xfer_split(cli, w[0], &from), to_remote = xfer_split(cli, w[1], &to);
	int r;

	if ((cli->args.update || cli->args.all_links) && !cli->args.recursive)
		return usage(cli->command, "--update and --all-links go with -r");
	if (from_remote == to_remote)
		return usage(cli->command, "needs ID:PATH on one side and a path of this machine on the other");
	c.remote = from_remote ? from : to;
	c.remote.user = cli->args.user;
	c.local = from_remote ? w[1] : w[0];
	c.sig_fd = sig_open();
	r = cli->args.recursive ? copy_tree(&c, from_remote) : CP_IS_A_FILE;
	if (r == CP_IS_A_FILE)
		r = copy_file(&c, from_remote);
	free(c.path);
	(void)close(c.sig_fd);
	if (c.x.signo || (c.x.error == EPIPE && is_dash(c.local)))
		sig_die(c.x.signo ? c.x.signo : SIGPIPE);
	return r;
}

const struct command cmd_cp = {
	.name = "cp",
	.words = "SOURCE DESTINATION",
	.help = "Copies a file, or a tree, into or out of a sandbox.\n"
		"One of them is ID:PATH; the other a path of this machine, or - for standard input or output.\n"
		"A tree needs tar in the sandbox, and for --update GNU find.",
	.opts = cmd_cp_opts,
	.n_opts = ARRAY_SIZE(cmd_cp_opts),
	.min_words = 2,
	.max_words = 2,
	.run = cmd_cp_run,
};
