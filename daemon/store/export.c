/* SPDX-License-Identifier: MIT */
/*
 * A copy of the database for a caller: made in steps between commits, like the second copy, into a file that has no name once it is
 * whole. export_some() runs on the worker.
 */
#include "daemon/store/export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/impl.h"
#include "proto/base/fd.h"

struct store_export {
	struct store_tx tx;	/* kind EXPORT; its rc as of BACKUP */
	bool under_way;		/* until `done` */
	_Atomic bool is_dropped;	/* nobody waits any more: the worker gives it up, and its job's done frees it */
	int fd;			/* -1 = not whole yet */
	uint64_t bytes;
	store_export_fn *done;
	void *user;
};

static int take_file(struct store *s, struct store_export *x)
{
	struct stat st;

	x->fd = openat(s->dir.fd, EXPORT_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (x->fd < 0 || fstat(x->fd, &st) < 0 || unlinkat(s->dir.fd, EXPORT_FILE, 0) < 0)
		return -errno;
	x->bytes = (uint64_t)st.st_size;
	return 1;
}

int export_some(struct store *s, struct store_tx *t)
{
	struct store_export *x = container_of(t, struct store_export, tx);
	int r = 0;

	if (!s->db.sql || x->is_dropped) {
		backup_drop(&s->export, &s->db);
		return x->is_dropped ? -ECANCELED : -EIO;
	}
	if (!s->export.run)	/* also after a failed commit, which gives up what was copied */
		r = backup_begin(&s->export, &s->db, EXPORT_FILE, 0);
	if (r == 0)
		r = backup_copy(&s->export, &s->db, BACKUP_STEP);
	return r == 1 ? take_file(s, x) : r;
}

static struct store_export *release(struct store_export *x)
{
	x->tx.store->exporting = NULL;
	fd_close(x->fd);
	free(x);
	return NULL;
}

static void explain(const struct store *s, int r, struct status *ret)
{
	*ret = (struct status)STATUS_OK;
	if (r == 0)
		status_set(ret, R_DRAINING, "agentboxd is stopping");
	else if (r == -ENOSPC || r == -EDQUOT || r == -EFBIG)
		status_set(ret, R_NO_SPACE, "%s has no room for a copy of the database, which is made there first", s->dir.path);
	else if (r == -EROFS)
		status_set(ret, R_STORE_READONLY, "the daemon's state in %s cannot be written", s->dir.path);
	else if (r < 0)
		status_errno(ret, r, "copying the database");
}

static void on_export_step(struct job *j)
{
	struct store_export *x = container_of(container_of(j, struct store_tx, job), struct store_export, tx);
	struct store *s = x->tx.store;
	struct status st;

	if (x->tx.rc == 0 && !s->closing) {
		worker_submit(s->worker, j);
		return;
	}
	x->under_way = false;
	if (x->is_dropped) {
		release(x);
		return;
	}
	explain(s, x->tx.rc, &st);
	if (!s->muted)
		x->done(x->user, &st, x->fd, x->bytes);
}

int store_export(struct store *s, store_export_fn *done, void *user, struct store_export **ret)
{
	struct store_export *x;

	if (s->exporting)
		return -EBUSY;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	*x = (struct store_export){ .tx = { .store = s, .kind = TX_EXPORT, .job.done = on_export_step }, .under_way = true,
				    .fd = -1, .done = done, .user = user };
	list_init(&x->tx.job.node);
	s->exporting = x;
	worker_submit(s->worker, &x->tx.job);
	*ret = x;
	return 0;
}

struct store_export *store_export_free(struct store_export *x)
{
	if (!x)
		return NULL;
	if (!x->under_way)
		return release(x);
	x->is_dropped = true;
	return NULL;
}
