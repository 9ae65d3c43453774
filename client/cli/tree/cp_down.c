/* SPDX-License-Identifier: MIT */
/* cp -r out of a sandbox: a stream that tar in the sandbox writes is unpacked here. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/tree/cp_tree.h"
#include "client/cli/tree/remote.h"

/* GNU tar is told to keep fractions of seconds; any other does what it can. */
#define GNU "--format=posix --pax-option=delete=atime,delete=ctime"
static const char script_all[] =
	"command -v tar >/dev/null || exit 127\n"
	"p=$(printf '%b.' \"$1\"); cd -- \"${p%.}\" || exit 1\n"
	"if tar --version 2>/dev/null | grep -q GNU; then exec tar -c -f - " GNU " .; fi\n"
	"exec tar -c -f - .\n";
static const char script_some[] =
	"tar --version 2>/dev/null | grep -q GNU || exit 127\n"
	"p=$(printf '%b.' \"$1\"); cd -- \"${p%.}\" || exit 1\n"
	"exec tar -c -f - " GNU " --no-recursion --null -T -\n";

struct down {
	struct cp_tree *t;
	struct tar_reader *reader;
	struct put *put;
	char *names;			/* "./a\0./b\0": only these; NULL = all */
	size_t n_names, at_names;
	bool ended;			/* the archive is whole */
};

/* --- what to ask for --- */

static bool is_here(struct down *d, const struct far_node *f)
{
	struct stat st;
	bool same;
	char *link;

	if (fstatat(d->t->root, f->rel, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	link = S_ISLNK(st.st_mode) ? tree_read_link(d->t->root, f->rel, st.st_size) : NULL;
	same = far_is_same(f, &st, link);
	free(link);
	return same;
}

static bool is_parent_of_wanted(const struct far_tree *far, const bool *want, size_t i)
{
	size_t n = strlen(far->v[i].rel);

	for (size_t k = i + 1; k < far->n && !strncmp(far->v[k].rel, far->v[i].rel, n); k++)
		if (want[k] && far->v[k].rel[n] == '/' && !strchr(far->v[k].rel + n + 1, '/'))
			return true;
	return false;
}

/* The names to ask for. 0 or -ENOMEM. */
static int select_changed(struct down *d, const struct far_tree *far)
{
	bool *want = calloc(far->n + 1, sizeof(*want));
	size_t cap = 1;

	if (!want)
		return -ENOMEM;
	for (size_t i = 0; i < far->n; i++) {
		/* "" is the directory itself, which stays as it is; sockets and devices do not travel */
		want[i] = *far->v[i].rel && strchr("fdlp", far->v[i].type) && !is_here(d, &far->v[i]);
		cap += strlen(far->v[i].rel) + 3;
	}
	d->names = malloc(cap);
	for (size_t i = 0; d->names && i < far->n; i++) {
		if (!want[i] && (far->v[i].type != 'd' || !*far->v[i].rel || !is_parent_of_wanted(far, want, i))) {
			d->t->unchanged += *far->v[i].rel != '\0';
			continue;
		}
		d->n_names += (size_t)snprintf(d->names + d->n_names, cap - d->n_names, "./%s",
					       far->v[i].rel) + 1;
	}
	free(want);
	return d->names ? 0 : -ENOMEM;
}

static int choose(struct down *d)
{
	struct far_tree far = { 0 };
	int code;

	if (!d->t->cli->args.update || d->t->made)
		return EXIT_OK;
	code = cp_list(d->t, &far);
	if (code == EXIT_OK && far.unknown)
		say(d->t->cli, "the sandbox has no GNU find: everything is copied");
	else if (code == EXIT_OK && select_changed(d, &far) < 0) {
		say(d->t->cli, "out of memory");
		code = EXIT_ERROR;
	}
	far_tree_fini(&far);
	return code;
}

/* --- the stream --- */

static int refuse(struct down *d, const char *what)
{
	char name[256];

	return fail_here(d->t->cli, "refused: %s: %s", safe(d->reader->entry.name, name, sizeof(name)), what);
}

static int on_entry(struct down *d)
{
	const char *why;
	int r = put_entry(d->put, &d->reader->entry, &why);

	if (r < 0)
		return refuse(d, why ? why : strerror(-r));
	d->t->files += r == 0 && d->reader->entry.type != TAR_DIRECTORY;
	return EXIT_OK;
}

/* All of a piece. */
static int unpack(struct down *d, const uint8_t *p, size_t n)
{
	enum tar_event e;
	int r = 0;

	do {
		const uint8_t *data = NULL;
		size_t used, n_data = 0;

		e = tar_read(d->reader, p, n, &used, &data, &n_data);
		p += used;
		n -= used;
		if (e == TAR_BAD)
			return fail_here(d->t->cli, "what tar in the sandbox sends is no archive: %s", d->reader->why);
		if (e == TAR_ENTRY && on_entry(d) != EXIT_OK)
			return EXIT_ERROR;
		if (e == TAR_DATA) {
			r = put_data(d->put, data, n_data);
			d->t->bytes += n_data;
		} else if (e == TAR_ENTRY_END) {
			r = put_end(d->put);
		}
		if (r < 0)
			return refuse(d, strerror(-r));
		d->ended |= e == TAR_END;
	} while (e != TAR_MORE);
	return EXIT_OK;
}

static void send_names(struct down *d, struct remote *r)
{
	ssize_t k = 1;

	if (!d->names || d->at_names > d->n_names)
		return;
	while (d->at_names < d->n_names && k > 0) {
		k = remote_write(r, d->names + d->at_names, d->n_names - d->at_names);
		d->at_names += k > 0 ? (size_t)k : 0;
	}
	if (d->at_names == d->n_names && r->input) {
		remote_write_end(r);
		d->at_names++;
	}
}

static int receive(struct down *d)
{
	struct cp_tree *t = d->t;
	const char *const argv[] = { "/bin/sh", "-c", d->names ? script_some : script_all, "sh", t->remote_word, NULL };
	struct remote r = { .cli = t->cli, .sig_fd = t->sig_fd, .meter = &t->meter, .label = t->label };
	int code = remote_start(&r, t->sandbox, t->user, argv, d->names != NULL), k = 0;
	const void *p;
	size_t n;

	while (code == EXIT_OK && !r.signo && (k = remote_read(&r, &p, &n)) >= 0) {
		send_names(d, &r);
		if (k == 0)
			remote_wait(&r);
		else
			code = unpack(d, p, n);
		r.bytes = t->bytes;
	}
	t->signo = r.signo;
	if (r.signo)
		code = 128 + r.signo;
	else if (code == EXIT_OK)
		code = remote_verdict(&r, d->names ? "GNU tar" : "tar");
	if (code == EXIT_OK && !d->ended) {
		say(t->cli, "the archive is cut: it has no end");
		code = EXIT_ERROR;
	}
	remote_close(&r);
	return code;
}

int cp_down(struct cp_tree *t)
{
	const struct put_options o = { .root = t->root, .set_root = t->made,
				       .all_links = t->cli->args.all_links, .warn = cp_warn, .user = t };
	struct down d = { .t = t, .reader = calloc(1, sizeof(*d.reader)) };
	int code = d.reader && put_new(&o, &d.put) == 0 ? choose(&d) : EXIT_ERROR;

	if (!d.put)
		say(t->cli, "out of memory");
	if (code == EXIT_OK && (!d.names || d.n_names))
		code = receive(&d);
	if (d.put)
		put_finish(d.put);
	put_free(d.put);
	if (d.reader)
		tar_reader_fini(d.reader);
	free(d.reader);
	free(d.names);
	return code;
}
