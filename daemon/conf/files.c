/* SPDX-License-Identifier: MIT */
#include "daemon/conf/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/fd.h"
#include "proto/base/str.h"

static int fail(int r, const char *path, char why[CONF_FILES_WHY_BYTES])
{
	(void)snprintf(why, CONF_FILES_WHY_BYTES, "%.400s: %s", path, strerrordesc_np(-r));
	return r;
}

/* Takes `path`, which is on the heap. */
static int add_file(struct conf_files *f, char *path, char why[CONF_FILES_WHY_BYTES])
{
	struct conf_file *v = path ? reallocarray(f->v, f->n + 1, sizeof(*v)) : NULL;
	int r;

	if (!v) {
		free(path);
		return fail(-ENOMEM, "configuration", why);
	}
	f->v = v;
	v[f->n] = (struct conf_file){ .name = path };
	r = fd_read_file(AT_FDCWD, path, CONF_FILE_MAX_BYTES, &v[f->n].text, &v[f->n].n);
	if (r < 0) {
		r = fail(r, path, why);
		free(path);
		return r;
	}
	f->n++;
	return 0;
}

/* Not what editors and dpkg leave beside them: .name.swp, name.conf.dpkg-new. */
static int is_ours(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return e->d_name[0] != '.' && n > 5 && str_eq(e->d_name + n - 5, ".conf");
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* A folder that is not there has no files. */
static int add_folder(struct conf_files *f, const char *folder, char why[CONF_FILES_WHY_BYTES])
{
	struct dirent **names;
	int n = scandir(folder, &names, is_ours, by_bytes), r = 0;

	if (n < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : fail(-errno, folder, why);
	if ((unsigned)n > CONF_FILES_MAX)
		r = fail(-E2BIG, folder, why);
	for (int i = 0; i < n; i++) {
		if (!r)
			r = add_file(f, str_printf("%s/%s", folder, names[i]->d_name), why);
		free(names[i]);
	}
	free(names);
	return r;
}

static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? str_printf("%.*s/conf.d", (int)(slash - path), path) : strdup("conf.d");
}

/* Without the file nobody could tell a folder that is not meant from one that is. */
static int check_main(const struct conf_files *f, const char *path, int r, char why[CONF_FILES_WHY_BYTES])
{
	if (r != -ENOENT || !f->n)
		return r;
	(void)snprintf(why, CONF_FILES_WHY_BYTES, "%.200s is missing, but there is %.200s: make it, empty if need be", path,
		       f->v[0].name);
	return -EINVAL;
}

int conf_files_read(const char *path, struct conf_files *ret, char why[CONF_FILES_WHY_BYTES])
{
	char *folder = folder_of(path), missing[CONF_FILES_WHY_BYTES];
	int main_r, r;

	*ret = (struct conf_files){ 0 };
	main_r = add_file(ret, str_dup(path), missing);
	r = folder ? 0 : fail(-ENOMEM, "configuration", why);
	if (!r && (!main_r || main_r == -ENOENT))
		r = add_folder(ret, folder, why);
	free(folder);
	if (!r && main_r < 0) {
		memcpy(why, missing, sizeof(missing));
		r = check_main(ret, path, main_r, why);
	}
	if (r < 0)
		conf_files_fini(ret);
	return r;
}

void conf_files_fini(struct conf_files *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->v[i].name);
		free(f->v[i].text);
	}
	free(f->v);
	*f = (struct conf_files){ 0 };
}

bool conf_files_equal(const struct conf_files *a, const struct conf_files *b)
{
	bool equal = a->n == b->n;

	for (size_t i = 0; equal && i < a->n; i++)
		equal = str_eq(a->v[i].name, b->v[i].name) && a->v[i].n == b->v[i].n &&
			!memcmp(a->v[i].text, b->v[i].text, a->v[i].n);
	return equal;
}

int conf_read_files(struct conf *c, const struct conf_files *f)
{
	int r = 0;

	for (size_t i = 0; !r && i < f->n; i++)
		r = conf_read_text(c, f->v[i].name, (struct conf_text){ f->v[i].text, f->v[i].n });
	return r;
}
