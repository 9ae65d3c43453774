/* SPDX-License-Identifier: MIT */
/* cp -r into a sandbox: the tree of this machine becomes a stream that tar in the sandbox reads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/tree/cp_tree.h"
#include "client/cli/tree/remote.h"

#define PIECE_BYTES (256u * 1024)

/* -o: what is made belongs to who makes it */
static const char script[] =
	"command -v tar >/dev/null || exit 127\n"
	"w=\n"
	"if tar --version 2>/dev/null | grep -q GNU; then w=--warning=no-timestamp; fi\n"
	"p=$(printf '%b.' \"$1\")\n"
	"exec tar -x -p -o $w -f - -C \"${p%.}\"\n";

struct up {
	struct cp_tree *t;
	struct tree tree;
	size_t next;			/* node */
	int fd;				/* of the file in hand; -1 = none */
	uint64_t left;			/* of its announced size */
	size_t padding;
	bool ended;			/* the end was written */
	uint8_t *buf;			/* PIECE_BYTES */
	size_t at, n;
	uint64_t total;
};

/* --- what to send --- */

static void select_changed(struct up *u, const struct far_tree *far)
{
	struct tree *t = &u->tree;

	for (size_t i = t->n; i-- > 0;) {
		struct tree_node *node = &t->v[i];
		const struct far_node *f = far_find(far, node->rel);

		if (!node->skip && f && far_is_same(f, &node->st, node->link)) {
			node->skip = true;
			u->t->unchanged += *node->rel != '\0';
		}
	}
}

/* The times of a directory change with what is made in it: it is told again. */
static void select_parents(struct up *u)
{
	struct tree *t = &u->tree;

	for (size_t i = t->n; i-- > 1;) {
		char *slash = strrchr(t->v[i].rel, '/');
		struct tree_node key = { .rel = t->v[i].rel }, *dir;

		if (t->v[i].skip || !slash)
			continue;
		*slash = '\0';
		dir = bsearch(&key, t->v, t->n, sizeof(key), tree_by_name);
		*slash = '/';
		if (dir && dir->skip) {
			dir->skip = false;
			u->t->unchanged--;
		}
	}
}

static int choose(struct up *u)
{
	struct far_tree far = { 0 };
	int code = EXIT_OK;

	if (!u->t->made)
		u->tree.v[0].skip = true;	/* the destination was there: it stays as it is */
	if (u->t->cli->args.update && !u->t->made) {
		code = cp_list(u->t, &far);
		if (code == EXIT_OK && far.unknown)
			say(u->t->cli, "the sandbox has no GNU find: everything is copied");
		else if (code == EXIT_OK) {
			select_changed(u, &far);
			select_parents(u);
		}
	}
	far_tree_fini(&far);
	for (size_t i = 0; i < u->tree.n; i++)
		if (!u->tree.v[i].skip && S_ISREG(u->tree.v[i].st.st_mode) && !u->tree.v[i].same)
			u->total += (uint64_t)u->tree.v[i].st.st_size;
	return code;
}

/* --- the stream --- */

static enum tar_type type_of(const struct tree_node *node)
{
	if (S_ISDIR(node->st.st_mode))
		return TAR_DIRECTORY;
	if (S_ISLNK(node->st.st_mode))
		return TAR_SYMLINK;
	if (S_ISFIFO(node->st.st_mode))
		return TAR_FIFO;
	return node->same ? TAR_HARD_LINK : TAR_FILE;
}

/* The header of a node into the empty buffer. False: it is left out. */
static bool begin_node(struct up *u, struct tree_node *node)
{
	struct tar_entry e = { .type = type_of(node), .link = node->link ? node->link : "" };
	char name[TAR_NAME_MAX + 4];

	if (e.type == TAR_HARD_LINK)
		e.link = node->same->rel;
	if (e.type == TAR_FILE) {
		u->fd = tree_open(u->t->root, node->rel);
		if (u->fd < 0 || fstat(u->fd, &node->st) < 0 || !S_ISREG(node->st.st_mode)) {
			cp_warn(u->t, node->rel, u->fd < 0 ? strerror(-u->fd) : "it changed meanwhile");
			if (u->fd >= 0)
				(void)close(u->fd);
			u->fd = -1;
			return false;
		}
		e.size = u->left = (uint64_t)node->st.st_size;
		u->padding = tar_padding(e.size);
	}
	snprintf(name, sizeof(name), "%s%s", *node->rel ? node->rel : ".", e.type == TAR_DIRECTORY ? "/" : "");
	e.name = name;
	e.mode = node->st.st_mode & 07777;
	e.mtime_s = node->st.st_mtim.tv_sec;
	e.mtime_ns = (uint32_t)node->st.st_mtim.tv_nsec;
	u->n = tar_header(&e, u->buf);
	u->t->files += u->n && e.type != TAR_DIRECTORY;
	return u->n != 0;
}

/* The next bytes of the file in hand; what it lost meanwhile is zeros. */
static void fill_data(struct up *u)
{
	size_t want = u->left < PIECE_BYTES - TAR_BLOCK ? (size_t)u->left : PIECE_BYTES - TAR_BLOCK;
	ssize_t n = want ? read(u->fd, u->buf, want) : 0;

	if (n < 0 && errno == EINTR)
		return;
	if (want && n <= 0) {
		cp_warn(u->t, u->tree.v[u->next - 1].rel,
			n < 0 ? strerror(errno) : "it became shorter while it was read");
		memset(u->buf, 0, want);
		n = (ssize_t)want;
	}
	u->left -= (uint64_t)n;
	u->t->bytes += (uint64_t)n;
	u->n = (size_t)n;
	if (u->left)
		return;
	memset(u->buf + u->n, 0, u->padding);
	u->n += u->padding;
	(void)close(u->fd);
	u->fd = -1;
}

/* More into the empty buffer. False: that was all. */
static bool fill(struct up *u)
{
	u->at = u->n = 0;
	while (!u->n) {
		if (u->fd >= 0) {
			fill_data(u);
			continue;
		}
		while (u->next < u->tree.n && u->tree.v[u->next].skip)
			u->next++;
		if (u->next < u->tree.n) {
			u->next++;
			(void)begin_node(u, &u->tree.v[u->next - 1]);
			continue;
		}
		if (u->ended)
			return false;
		u->ended = true;
		memset(u->buf, 0, TAR_END_BYTES);
		u->n = TAR_END_BYTES;
	}
	return true;
}

static int send_all(struct up *u)
{
	struct cp_tree *t = u->t;
	const char *const argv[] = { "/bin/sh", "-c", script, "sh", t->remote_word, NULL };
	struct remote r = { .cli = t->cli, .sig_fd = t->sig_fd, .meter = &t->meter, .label = t->label,
			    .total = u->total };
	int code = remote_start(&r, t->sandbox, t->user, argv, true);
	bool all = false;
	const void *p;
	size_t n;

	while (code == EXIT_OK && !r.signo) {
		ssize_t k = 1;
		int said = remote_read(&r, &p, &n);

		if (said < 0)
			break;
		while (!all && k > 0) {
			if (u->at == u->n && !fill(u)) {
				all = true;
				remote_write_end(&r);
				break;
			}
			k = remote_write(&r, u->buf + u->at, u->n - u->at);
			u->at += k > 0 ? (size_t)k : 0;
			all |= k < 0;	/* it takes no more: how it ended says why */
			r.bytes = t->bytes;
		}
		if (said == 0)
			remote_wait(&r);
	}
	t->signo = r.signo;
	if (code == EXIT_OK)
		code = r.signo ? 128 + r.signo : remote_verdict(&r, "tar");
	remote_close(&r);
	return code;
}

static bool anything(const struct up *u)
{
	for (size_t i = 0; i < u->tree.n; i++)
		if (!u->tree.v[i].skip)
			return true;
	return false;
}

int cp_up(struct cp_tree *t)
{
	struct up u = { .t = t, .fd = -1, .buf = malloc(PIECE_BYTES) };
	int code, r = u.buf ? tree_walk(t->root, &u.tree, cp_warn, t) : -ENOMEM;

	if (r < 0) {
		say(t->cli, "cannot read the tree: %s", strerror(-r));
		free(u.buf);
		return EXIT_ERROR;
	}
	code = choose(&u);
	if (code == EXIT_OK && anything(&u))
		code = send_all(&u);
	if (u.fd >= 0)
		(void)close(u.fd);
	tree_fini(&u.tree);
	free(u.buf);
	return code;
}
