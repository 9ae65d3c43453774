/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/rawfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/account.h"
#include "daemon/cloud/record.h"
#include "daemon/cloud/shell.h"
#include "proto/base/must.h"
#include "proto/base/name.h"
#include "proto/base/str.h"

#define RAWFS_MAGIC	0x72617766u

/* What the scripts end with. */
enum {
	END_NOT_FOUND = 64,
	END_EXISTS,
	END_NOT_A_DIRECTORY,
	END_NO_FIND,
};

/* $1 the path, $2 another one, $3 owner and group of what is made, $4 a number. */
static const char common[] =
	"w \"$1\"; p=$v; w \"$2\"; q=$v; w \"$3\"; o=$v\n"
	"f='" RECORD_FORMAT "'\n"
	"is() { [ -e \"$1\" ] || [ -L \"$1\" ]; }\n"
	"can_look() { find / -maxdepth 0 -printf '' 2>/dev/null || exit 67; }\n"
	"look() { find \"$1\" -maxdepth 0 -printf \"$f\"; }\n"
	"make() { a=$1; set --; while ! is \"$a\"; do set -- \"$a\" \"$@\"; a=${a%/*}; a=${a:-/}; done\n"
	"  for a; do mkdir -- \"$a\" && chown -- \"$o\" \"$a\" || exit 1; done; }\n";

static const char *const scripts[] = {
	[RAWFS_STAT] = "can_look; is \"$p\" || exit 64; look \"$p\"\n",
	[RAWFS_LIST] = "can_look; [ -e \"$p\" ] || exit 64; [ -d \"$p\" ] || exit 66\n"
		       "find -H \"$p\" -mindepth 1 -maxdepth \"$4\" -printf \"$f\" 2>/dev/null; exit 0\n",
	[RAWFS_MAKE_DIR] = "can_look; [ -d \"$p\" ] && exit 65; is \"$p\" && exit 66; make \"$p\"; look \"$p\"\n",
	[RAWFS_MOVE] = "can_look; is \"$p\" || exit 64; d=${q%/*}; make \"${d:-/}\"; mv -T -f -- \"$p\" \"$q\" && look \"$q\"\n",
	[RAWFS_REMOVE] = "rm -rf -- \"$p\"\n",
	/* A link is gone after a while, whoever asked for it. */
	[RAWFS_LINK] = "[ -e \"$p\" ] || exit 64; [ -d \"$p\" ] || exit 66; l=/tmp/.agentbox-$$-$4\n"
		       "ln -s -- \"$p\" \"$l\" || exit 1\n"
		       "(sleep 30; rm -f -- \"$l\") </dev/null >/dev/null 2>&1 &\n"
		       "printf '%s\\0' \"$l\"\n",
};

struct rawfs {
	uint32_t magic;
	struct loop *loop;
	enum rawfs_op op;
	enum envd_xfer state;
	struct agent_address at;
	uint64_t deadline_ms;
	char *path, *other;		/* as asked for; absolute once `home` was asked for, if need be */
	char *owner;			/* of what is made */
	uint32_t depth;
	struct envd_call *home;		/* asks what the user's home is */
	struct shell shell;
	struct buf record;		/* that is not whole yet */
	const uint8_t *piece;		/* of the script's output, not read yet */
	size_t n_piece;
	enum envd_class cls;
	struct status failure;
	rawfs_ready_fn *on_ready;
	void *user;
	struct grave grave;
};

bool rawfs_explains(const struct status *st)
{
	return st->reason == R_CLOUD_REFUSED && strstr(st->text, "invalid UTF-8");
}

static bool is_over(const struct rawfs *f)
{
	return f->state == ENVD_XFER_DONE || f->state == ENVD_XFER_FAILED;
}

static void rawfs_fail(struct rawfs *f, enum envd_class cls)
{
	must(!is_over(f));
	f->cls = cls;
	f->state = ENVD_XFER_FAILED;
}

/* --- one record --- */

static int link_of(const char *path, const char *link, struct envd_entry *ret)
{
	*ret = (struct envd_entry){ .path = str_dup(link), .name = str_dup(path), .permissions = str_dup(""),
				    .owner = str_dup(""), .group = str_dup("") };
	if (ret->path && ret->name && ret->permissions && ret->owner && ret->group)
		return 0;
	envd_entry_fini(ret);
	return -ENOMEM;
}

/* 1: an entry; 0: p holds none; -errno. *ret_used of p. */
static int take_record(const struct rawfs *f, const uint8_t *p, size_t n, size_t *ret_used, struct envd_entry *ret)
{
	const char *w[RECORD_WORDS];
	int r;

	if (!record_split(p, n, f->op == RAWFS_LINK ? 1 : RECORD_WORDS, w, ret_used))
		return n > RECORD_MAX_BYTES ? -EBADMSG : 0;
	r = f->op == RAWFS_LINK ? link_of(f->path, w[0], ret) : record_entry(f->op == RAWFS_MOVE ? f->other : f->path, w, ret);
	return r < 0 ? r : 1;
}

/* The next entry out of what came: of the piece, or of what is kept of those before it. */
static int next_entry(struct rawfs *f, struct envd_entry *ret)
{
	size_t used;
	int r;

	if (buf_len(&f->record) && f->n_piece) {
		r = buf_put(&f->record, f->piece, f->n_piece);
		f->n_piece = 0;
		if (r < 0)
			return r;
	}
	if (buf_len(&f->record)) {
		r = take_record(f, buf_data(&f->record), buf_len(&f->record), &used, ret);
		if (r > 0)
			buf_drop(&f->record, used);
		return r;
	}
	r = take_record(f, f->piece, f->n_piece, &used, ret);
	if (r > 0) {
		f->piece += used;
		f->n_piece -= used;
	} else if (r == 0) {
		r = buf_put(&f->record, f->piece, f->n_piece);
		f->n_piece = 0;
	}
	return r;
}

/* --- the end --- */

static void say_path(struct rawfs *f, enum ab_reason reason, const char *what)
{
	char *text = name_to_text(f->path);

	status_set(&f->failure, reason, "%.200s: %s", text ? text : "", what);
	free(text);
}

static void script_ended(struct rawfs *f)
{
	char *said;

	switch (f->shell.exit_code) {
	case 0:
		if (!buf_len(&f->record)) {
			f->state = ENVD_XFER_DONE;
			return;
		}
		status_set(&f->failure, R_BAD_CLOUD_REPLY, "the end of an entry is missing");
		break;
	case END_NOT_FOUND:
		say_path(f, R_FILE_NOT_FOUND, "no such file or directory");
		break;
	case END_EXISTS:
		status_set_code(&f->failure, CODE_ALREADY_EXISTS, "it exists already");
		break;
	case END_NOT_A_DIRECTORY:
		say_path(f, R_NOT_A_DIRECTORY, "not a directory");
		break;
	case END_NO_FIND:
		status_set(&f->failure, R_UNSUPPORTED,
			   "there are names that are not UTF-8, which the sandbox's agent cannot tell, and no find that can: the "
			   "sandbox's image needs GNU findutils");
		break;
	default:
		said = name_to_text(f->shell.said);
		status_set(&f->failure, R_CLOUD_REFUSED, "in the sandbox: %s", said && *said ? said : "the script failed");
		free(said);
	}
	rawfs_fail(f, ENVD_ANSWERED);
}

static void out_of_memory(struct rawfs *f)
{
	status_errno(&f->failure, ENOMEM, "asking the sandbox");
	rawfs_fail(f, ENVD_LOST);
}

bool rawfs_next(struct rawfs *f, struct envd_entry *ret)
{
	enum envd_class cls = ENVD_OK;
	int r;

	while (f->state == ENVD_XFER_OPEN) {
		if (f->n_piece || buf_len(&f->record)) {
			r = next_entry(f, ret);
			if (r > 0)
				return true;
			if (r == -ENOMEM) {
				out_of_memory(f);
			} else if (r < 0) {
				status_set(&f->failure, R_BAD_CLOUD_REPLY, "what the script printed cannot be read");
				rawfs_fail(f, ENVD_LOST);
			}
			if (r < 0)
				return false;
		}
		switch (shell_next(&f->shell, &f->piece, &f->n_piece, &cls, &f->failure)) {
		case SHELL_NONE:
			return false;
		case SHELL_DATA:
			break;
		case SHELL_ENDED:
			script_ended(f);
			break;
		case SHELL_FAILED:
			rawfs_fail(f, cls);
			break;
		}
	}
	return false;
}

/* --- the beginning --- */

static void on_shell_ready(struct envd_stream *s, void *user)
{
	struct rawfs *f = user;

	must(f->magic == RAWFS_MAGIC);
	if (!is_over(f))
		f->on_ready(f, f->user);
}

/* Paths are absolute and have no slash at their end. */
static int run_script(struct rawfs *f)
{
	struct envd_target t = { .at = f->at, .deadline_ms = f->deadline_ms };
	char number[32];
	const char *words[SHELL_WORDS_MAX] = { f->path, f->other, f->owner, number };
	char *script = str_printf("%s%s", common, scripts[f->op]);
	int r;

	snprintf(number, sizeof(number), "%llu",
		 f->op == RAWFS_LINK ? (unsigned long long)rng_u64(&f->at.cloud->rng)
				     : (unsigned long long)f->depth);
	r = script ? shell_start(&f->shell, &t, script, words, ARRAY_SIZE(words), on_shell_ready, f) : -ENOMEM;
	free(script);
	if (r == 0)
		f->state = ENVD_XFER_OPEN;
	return r;
}

static bool is_relative(const char *path)
{
	return path && path[0] != '/';
}

/* "x", "~/x", "~" → below `home`; NULL stays it. Takes path. */
static char *below(const char *home, char *path)
{
	const char *rest = path;
	char *out;

	if (!is_relative(path))
		return path;
	if (*rest == '~')
		rest++;
	rest += strspn(rest, "/");
	out = *rest ? str_printf("%s/%s", home, rest) : str_dup(home);
	free(path);
	return out;
}

static void on_home(struct envd_result *r, void *user)
{
	struct rawfs *f = user;
	bool has_other = f->other;

	f->home = NULL;
	if (r->cls != ENVD_OK || !r->n_entries) {
		f->failure = r->status;
		if (r->cls == ENVD_OK)
			status_set(&f->failure, R_BAD_CLOUD_REPLY, "the agent answered without an entry");
		rawfs_fail(f, r->cls == ENVD_OK ? ENVD_LOST : r->cls);
		f->on_ready(f, f->user);
		return;
	}
	f->path = below(r->entries[0].path, give(f->path));
	f->other = below(r->entries[0].path, give(f->other));
	f->owner = str_printf("%s:%s", r->entries[0].owner, r->entries[0].group);
	if (!f->path || (has_other && !f->other) || !f->owner || run_script(f) < 0) {
		out_of_memory(f);
		f->on_ready(f, f->user);
	}
}

/* Where the path begins, and whose what is made is, is what the agent says of the user's home. */
static int begin(struct rawfs *f, const struct envd_target *t)
{
	if (!is_relative(f->path) && !is_relative(f->other) && f->op != RAWFS_MAKE_DIR && f->op != RAWFS_MOVE)
		return run_script(f);
	f->home = envd_stat(t, ".", on_home, f);
	return f->home ? 0 : -ENOMEM;
}

static char *without_slashes(const char *path)
{
	size_t n = path ? strlen(path) : 0;
	char *out = str_dup(path);

	while (out && n > 1 && out[n - 1] == '/')
		out[--n] = 0;
	return out;
}

static void rawfs_bury(void *p)
{
	struct rawfs *f = p;

	buf_fini(&f->record);
	agent_address_fini(&f->at);
	free(f->path);
	free(f->other);
	free(f->owner);
	f->magic = 0;
	free(f);
}

struct rawfs *rawfs_new(const struct envd_target *t, const struct rawfs_ask *a, rawfs_ready_fn *on_ready, void *user)
{
	struct rawfs *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	*f = (struct rawfs){ .magic = RAWFS_MAGIC, .loop = t->at.cloud->loop, .op = a->op, .depth = a->depth,
			     .deadline_ms = t->deadline_ms, .on_ready = on_ready, .user = user };
	buf_init(&f->record, 0);
	if (agent_address_set(&f->at, &t->at) < 0 || !(f->path = without_slashes(a->path)) ||
	    (a->other && !(f->other = without_slashes(a->other))) || begin(f, t) < 0) {
		rawfs_bury(f);
		return NULL;
	}
	return f;
}

enum envd_xfer rawfs_state(const struct rawfs *f)
{
	return f->state;
}

const struct status *rawfs_failure(const struct rawfs *f, enum envd_class *ret_cls)
{
	if (ret_cls)
		*ret_cls = f->cls;
	return f->state == ENVD_XFER_FAILED ? &f->failure : NULL;
}

struct rawfs *rawfs_free(struct rawfs *f)
{
	if (!f)
		return NULL;
	must(f->magic == RAWFS_MAGIC);
	envd_call_cancel(f->home);
	f->home = NULL;
	shell_fini(&f->shell);
	f->state = ENVD_XFER_FAILED;
	loop_bury(f->loop, &f->grave, rawfs_bury, f);
	return NULL;
}
