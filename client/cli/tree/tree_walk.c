/* SPDX-License-Identifier: MIT */
/* Lists a tree. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/cli/tree/tree.h"

struct walk {
	int root;
	struct tree *tree;
	tree_warn_fn *warn;
	void *user;
};

int tree_open_below(int root, const char *rel, int flags)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	long fd;

	do
		fd = syscall(SYS_openat2, root, *rel ? rel : ".", &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : (int)fd;
}

int tree_open(int root, const char *rel)
{
	return tree_open_below(root, rel, O_RDONLY | O_NONBLOCK | O_NOCTTY);
}

char *tree_read_link(int at, const char *name, off_t size)
{
	size_t cap = size > 0 && size < TAR_NAME_MAX ? (size_t)size + 1 : TAR_NAME_MAX + 1;
	char *text = malloc(cap + 1);
	ssize_t n = text ? readlinkat(at, name, text, cap) : -1;

	if (n < 0 || (size_t)n >= cap) {	/* it grew meanwhile: it is another one */
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

static struct tree_node *add(struct tree *t)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 256;
		struct tree_node *v = reallocarray(t->v, cap, sizeof(*v));

		if (!v)
			return NULL;
		t->v = v;
		t->cap = cap;
	}
	t->v[t->n] = (struct tree_node){ .rel = NULL };
	return &t->v[t->n];
}

/* One name in the open directory `at`. 0 or -ENOMEM. */
static int look(struct walk *w, int at, const char *dir, const char *name)
{
	struct tree_node *node = add(w->tree);
	int n;

	if (!node)
		return -ENOMEM;
	n = asprintf(&node->rel, "%s%s%s", dir, *dir ? "/" : "", name);
	if (n < 0)
		return -ENOMEM;
	w->tree->n++;
	if ((size_t)n > TAR_NAME_MAX - 2) {
		w->warn(w->user, node->rel, "the name is too long");
		node->skip = true;
	} else if (fstatat(at, name, &node->st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			w->warn(w->user, node->rel, strerror(errno));
		node->skip = true;
	} else if (S_ISLNK(node->st.st_mode)) {
		node->link = tree_read_link(at, name, node->st.st_size);
		node->skip = !node->link;
		if (node->skip)
			w->warn(w->user, node->rel, "the link cannot be read");
	} else if (!S_ISREG(node->st.st_mode) && !S_ISDIR(node->st.st_mode) && !S_ISFIFO(node->st.st_mode)) {
		w->warn(w->user, node->rel, "neither file, directory, link nor pipe: left out");
		node->skip = true;
	}
	return 0;
}

/* What is in the directory number `i`. 0, -ENOMEM; of the root also why it cannot be read. */
static int look_inside(struct walk *w, size_t i)
{
	char *dir = strdup(w->tree->v[i].rel);
	int fd = dir ? tree_open_below(w->root, dir, O_RDONLY | O_DIRECTORY) : -ENOMEM, r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		r = fd < 0 ? fd : -ENOMEM;
		if (fd >= 0)
			(void)close(fd);
		if (dir && *dir && r != -ENOMEM) {
			w->warn(w->user, dir, strerror(-r));
			r = 0;
		}
		free(dir);
		return r;
	}
	while (r == 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = look(w, dirfd(d), dir, e->d_name);
	(void)closedir(d);
	free(dir);
	return r;
}

int tree_by_name(const void *a, const void *b)
{
	return strcmp(((const struct tree_node *)a)->rel, ((const struct tree_node *)b)->rel);
}

static int by_file(const void *a, const void *b)
{
	const struct tree_node *x = *(struct tree_node *const *)a, *y = *(struct tree_node *const *)b;

	if (x->st.st_dev != y->st.st_dev)
		return x->st.st_dev < y->st.st_dev ? -1 : 1;
	if (x->st.st_ino != y->st.st_ino)
		return x->st.st_ino < y->st.st_ino ? -1 : 1;
	return strcmp(x->rel, y->rel);
}

/* Names of one file point to the first of them. */
static int find_same(struct tree *t)
{
	struct tree_node **v = calloc(t->n + 1, sizeof(*v));
	size_t n = 0;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++)
		if (!t->v[i].skip && S_ISREG(t->v[i].st.st_mode) && t->v[i].st.st_nlink > 1)
			v[n++] = &t->v[i];
	if (n)
		qsort(v, n, sizeof(struct tree_node *), by_file);
	for (size_t i = 1; i < n; i++)
		if (v[i]->st.st_dev == v[i - 1]->st.st_dev && v[i]->st.st_ino == v[i - 1]->st.st_ino)
			v[i]->same = v[i - 1]->same ? v[i - 1]->same : v[i - 1];
	free(v);
	return 0;
}

int tree_walk(int root, struct tree *ret, tree_warn_fn *warn, void *user)
{
	struct tree t = { 0 };
	struct walk w = { .root = root, .tree = &t, .warn = warn, .user = user };
	struct tree_node *top = add(&t);
	int r = top ? 0 : -ENOMEM;

	if (top) {
		top->rel = strdup("");
		t.n = 1;
		r = !top->rel ? -ENOMEM : fstat(root, &top->st) < 0 ? -errno : 0;
	}
	for (size_t i = 0; r == 0 && i < t.n; i++)
		if (!t.v[i].skip && S_ISDIR(t.v[i].st.st_mode))
			r = look_inside(&w, i);
	if (r == 0) {
		qsort(t.v, t.n, sizeof(*t.v), tree_by_name);
		r = find_same(&t);
	}
	if (r < 0)
		tree_fini(&t);
	else
		*ret = t;
	return r;
}

void tree_fini(struct tree *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->v[i].rel);
		free(t->v[i].link);
	}
	free(t->v);
	*t = (struct tree){ 0 };
}
