/* SPDX-License-Identifier: MIT */
/* Keys are compared in constant time and wiped when they go. */
#include "daemon/local/state/teams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/fd.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "proto/cloud/flavour.h"

#define KEY_PREFIX	"e2b_"	/* of a new one: its form is taken by the SDKs of every flavour */
#define KEY_MAX		128u
#define FILE_MAX_BYTES	65536u
#define DEFAULT_TEAM	"default"

struct account {
	char key[KEY_MAX + 1];
	const char *team;
};

struct teams {
	size_t n;
	struct account v[TEAM_KEYS_MAX];
	char teams[TEAM_KEYS_MAX][TEAM_NAME_MAX + 1];
	size_t n_teams;
};

static bool key_is_valid(const char *key)
{
	return strlen(key) <= KEY_MAX && flavour_key_known(key);
}

static const char *team_intern(struct teams *a, const char *name)
{
	for (size_t i = 0; i < a->n_teams; i++)
		if (str_eq(a->teams[i], name))
			return a->teams[i];
	str_copy(a->teams[a->n_teams], sizeof(a->teams[0]), name);
	return a->teams[a->n_teams++];
}

/* One line, cut in place. */
static int take_line(struct teams *a, char *line)
{
	char *key = line + strspn(line, " \t\r"), *team, *end;

	key[strcspn(key, "#\r\n")] = 0;
	if (!*key)
		return 0;
	if (a->n == TEAM_KEYS_MAX)
		return -E2BIG;
	team = key + strcspn(key, " \t");
	if (*team)
		*team++ = 0;
	team += strspn(team, " \t");
	end = team + strcspn(team, " \t");
	if (end[strspn(end, " \t")] || !key_is_valid(key) || strlen(team) > TEAM_NAME_MAX)
		return -EINVAL;
	*end = 0;
	if (team[strspn(team, "abcdefghijklmnopqrstuvwxyz0123456789-_")])
		return -EINVAL;
	str_copy(a->v[a->n].key, sizeof(a->v[0].key), key);
	a->v[a->n++].team = team_intern(a, *team ? team : DEFAULT_TEAM);
	return 0;
}

static int take_lines(struct teams *a, char *text, const char *path, char **ret_why)
{
	unsigned number = 0;
	char *next;
	int r;

	for (char *line = text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		number++;
		r = take_line(a, line);
		if (r < 0) {
			*ret_why = str_printf("%s:%u: %s", path, number,
					      r == -E2BIG ? "too many keys"
							  : "a line is \"KEY [TEAM]\": KEY is ab_ and letters, "
							    "digits, - or _, or e2b_ and lower-case hex digits; "
							    "TEAM of [a-z0-9-_]");
			return r;
		}
	}
	if (!a->n) {
		*ret_why = str_printf("%s: holds no key", path);
		return -EINVAL;
	}
	return 0;
}

int teams_load(const char *path, char **ret_why, struct teams **ret)
{
	struct teams *a;
	char *text;
	size_t n;
	int r;

	*ret_why = NULL;
	r = fd_read_file(AT_FDCWD, path, FILE_MAX_BYTES, &text, &n);
	if (r < 0) {
		*ret_why = str_printf("%s: %s", path, strerror(-r));
		return r;
	}
	a = calloc(1, sizeof(*a));
	r = !a ? -ENOMEM : strlen(text) != n ? -EINVAL : take_lines(a, text, path, ret_why);
	explicit_bzero(text, n);
	free(text);
	if (r < 0) {
		teams_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

int teams_load_or_make(const char *path, char **ret_why, struct teams **ret)
{
	uint8_t random[20];
	char hex[41], line[64];
	int r = teams_load(path, ret_why, ret);

	if (r != -ENOENT)
		return r;
	free(*ret_why);
	*ret_why = NULL;
	rng_system(random, sizeof(random));
	str_hex(random, sizeof(random), hex);
	memcpy(line, KEY_PREFIX, 4);
	memcpy(line + 4, hex, 40);
	line[44] = '\n';
	r = fd_write_file(AT_FDCWD, path, line, 45, 0600);
	explicit_bzero(line, sizeof(line));
	explicit_bzero(hex, sizeof(hex));
	if (r < 0) {
		*ret_why = str_printf("%s: %s", path, strerror(-r));
		return r;
	}
	return teams_load(path, ret_why, ret);
}

struct teams *teams_free(struct teams *a)
{
	if (a)
		explicit_bzero(a, sizeof(*a));
	free(a);
	return NULL;
}

const char *teams_first_key(const struct teams *a)
{
	return a->v[0].key;
}

const char *teams_of_key(const struct teams *a, const char *key)
{
	const char *team = NULL;

	if (!key || !key_is_valid(key))
		return NULL;
	for (size_t i = 0; i < a->n; i++)
		if (str_eq_secret(a->v[i].key, strlen(a->v[i].key), key, strlen(key)))
			team = a->v[i].team;
	return team;
}

const char *teams_named(const struct teams *a, const char *name)
{
	for (size_t i = 0; i < a->n_teams; i++)
		if (str_eq(a->teams[i], name))
			return a->teams[i];
	return NULL;
}
