/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl env: exports for a shell. The token is made once and kept in a file that only its user reads; it is made anew when the
 * daemon does not know it any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cmd/gwenv.h"

#define LABEL	  "agentboxctl env"
#define LINE_MAX_ 160u

static const struct opt cmd_env_opts[] = {
	OPT(0, "control", OPT_FLAG, control, NULL, "only the control plane; the sandboxes' own traffic goes to the cloud"),
};

struct kept {
	char dir[4096], path[4200];
	char id[64], secret[96];
};

/* A daemon is known by where its gateway is. */
static bool name_file(struct kept *k, const char *url)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME"), *port = strrchr(url, ':');
	int n = state && *state ? snprintf(k->dir, sizeof(k->dir), "%s/agentboxctl", state) :
				  snprintf(k->dir, sizeof(k->dir), "%s/.local/state/agentboxctl", home ? home : "");

	if (n <= 0 || (size_t)n >= sizeof(k->dir) || (!home && !(state && *state)))
		return false;
	(void)snprintf(k->path, sizeof(k->path), "%s/token-%s", k->dir, port ? port + 1 : "0");
	return true;
}

/* "ID SECRET": false if there is none, or others could have read or written it. */
static bool read_kept(struct kept *k)
{
	int fd = open(k->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char line[LINE_MAX_ + 1];
	struct stat st;
	ssize_t n = -1;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077))
		n = read(fd, line, LINE_MAX_);
	(void)close(fd);
	if (n <= 0)
		return false;
	line[n] = 0;
	return sscanf(line, "%63s %95s", k->id, k->secret) == 2 && !strncmp(k->secret, "ab_", 3);
}

static bool is_known(struct cli *cli, const struct kept *k, int *ret_code)
{
	struct ab_token_list *l;
	bool known = false;

	*ret_code = 0;
	if (ab_token_list(cli->client, NULL, &l)) {
		*ret_code = fail_client(cli);
		return false;
	}
	for (size_t i = 0; i < l->n; i++)
		known |= !strcmp(l->items[i]->id, k->id);
	ab_free(l);
	return known;
}

static int make_dirs(char *path)
{
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		if (mkdir(path, 0700) < 0 && errno != EEXIST) {
			*p = '/';
			return -errno;
		}
		*p = '/';
	}
	return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* Beside it and renamed over it: nobody reads half of one. */
static int write_kept(struct kept *k)
{
	char temp[4300], line[LINE_MAX_ + 1];
	int r = make_dirs(k->dir), fd, n;

	if (r < 0)
		return r;
	(void)snprintf(temp, sizeof(temp), "%s.%d", k->path, (int)getpid());
	(void)unlink(temp);
	fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	n = snprintf(line, sizeof(line), "%s %s\n", k->id, k->secret);
	r = write(fd, line, (size_t)n) == n ? 0 : -EIO;
	if (close(fd) < 0 && !r)
		r = -errno;
	if (!r && rename(temp, k->path) < 0)
		r = -errno;
	if (r < 0)
		(void)unlink(temp);
	return r;
}

static int make_kept(struct cli *cli, struct kept *k)
{
	const struct ab_token_options o = { .label = LABEL };
	struct ab_token *t;
	int r;

	if (ab_token_create(cli->client, &o, NULL, &t))
		return fail_client(cli);
	(void)snprintf(k->id, sizeof(k->id), "%s", t->id);
	(void)snprintf(k->secret, sizeof(k->secret), "%s", t->secret);
	ab_free(t);
	r = write_kept(k);
	if (r < 0)
		say(cli, "%s: %s", k->path, strerror(-r));
	return r < 0 ? EXIT_ERROR : 0;
}

/* In single quotes, where a shell takes everything else as it is. */
static bool print_export(void *user, const char *name, const char *value)
{
	printf("export %s='", name);
	for (; *value; value++) {
		if (*value == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*value);
	}
	puts("'");
	return true;
}

static int cmd_env_run(struct cli *cli)
{
	struct ab_gateway *gateway;
	struct kept k;
	int r = gwenv_find(cli, &gateway);

	if (r)
		return r;
	if (!name_file(&k, gateway->url)) {
		say(cli, "there is no place for the token: neither $XDG_STATE_HOME nor $HOME is set");
		r = EXIT_ERROR;
	} else if (!read_kept(&k) || (!is_known(cli, &k, &r) && !r)) {
		r = make_kept(cli, &k);
	}
	if (!r)
		r = gwenv_each(gateway->url, k.secret, cli->args.control, print_export, NULL);
	ab_free(gateway);
	return r;
}

const struct command cmd_env = {
	.name = "env",
	.words = "",
	.help = "Prints what a shell has to export for programs with an SDK: eval \"$(agentboxctl env)\".",
	.opts = cmd_env_opts,
	.n_opts = ARRAY_SIZE(cmd_env_opts),
	.no_json = true,
	.run = cmd_env_run,
};
