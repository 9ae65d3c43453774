/* SPDX-License-Identifier: MIT */
/* DaemonService.Backup: the front door sends what the store copies. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/main/app_impl.h"
#include "daemon/store/export.h"

struct backup {
	struct app *app;
	struct store_export *copy;
	svc_backup_done_fn *done;
	void *user;
};

static void on_copied(void *user, const struct status *st, int fd, uint64_t bytes)
{
	struct backup *b = user;
	struct svc_backup_source s = { .fd = fd, .bytes = bytes, .schema = (uint32_t)b->app->store_report.schema_known,
				       .host_id = store_host_id(b->app->store) };

	b->done(b->user, st, &s);
}

static void *backup_begin_copy(void *user, svc_backup_done_fn *done, void *done_user, struct status *ret)
{
	struct app *a = user;
	struct backup *b = calloc(1, sizeof(*b));
	int r = -ENOMEM;

	if (b) {
		*b = (struct backup){ .app = a, .done = done, .user = done_user };
		r = store_export(a->store, on_copied, b, &b->copy);
	}
	if (r == 0)
		return b;
	free(b);
	if (r == -EBUSY)
		status_set(ret, R_STATE_CHANGING, "another backup is being made; try again when it is done");
	else
		status_errno(ret, r, "making a backup");
	return NULL;
}

static void backup_end_copy(void *user, void *op)
{
	struct backup *b = op;

	store_export_free(b->copy);
	free(b);
}

int app_backup_new(struct app *a)
{
	a->svc_backup = (struct svc_backup_options){ .begin = backup_begin_copy, .end = backup_end_copy, .user = a };
	return svc_backup_add(a->server, &a->svc_backup);
}
