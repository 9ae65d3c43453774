/* SPDX-License-Identifier: MIT */
#include "daemon/cloud/record.h"

#include <errno.h>
#include <string.h>

#include "proto/base/name.h"
#include "proto/base/str.h"

enum { WORD_TYPE, WORD_TARGET_TYPE, WORD_SIZE, WORD_MODE, WORD_OWNER, WORD_GROUP, WORD_TIME, WORD_LINK, WORD_REST };

bool record_split(const uint8_t *p, size_t n, size_t words, const char *ret[], size_t *ret_n)
{
	size_t at = 0;

	for (size_t i = 0; i < words; i++) {
		const uint8_t *nul = memchr(p + at, 0, n - at);

		if (!nul)
			return false;
		ret[i] = (const char *)p + at;
		at = (size_t)(nul - p) + 1;
	}
	*ret_n = at;
	return true;
}

static enum envd_file_type type_of(char c)
{
	return c == 'f' ? ENVD_FILE_FILE : c == 'd' ? ENVD_FILE_DIRECTORY : ENVD_FILE_UNSPECIFIED;
}

/* As the agent writes it: letters for what it is, then the nine. */
static char *permissions_text(char type, uint32_t mode)
{
	static const char rwx[] = "rwxrwxrwx";
	char nine[10], what[8];
	size_t n = 0;

	for (unsigned i = 0; i < 9; i++)
		nine[i] = mode & 1u << (8 - i) ? rwx[i] : '-';
	nine[9] = 0;
	switch (type) {
	case 'd':
		what[n++] = 'd';
		break;
	case 'l':
		what[n++] = 'L';
		break;
	case 'c':
		what[n++] = 'D';
		what[n++] = 'c';
		break;
	case 'b':
		what[n++] = 'D';
		break;
	case 'p':
		what[n++] = 'p';
		break;
	case 's':
		what[n++] = 'S';
		break;
	default:
		break;
	}
	if (mode & 04000)
		what[n++] = 'u';
	if (mode & 02000)
		what[n++] = 'g';
	if (mode & 01000)
		what[n++] = 't';
	if (!n)
		what[n++] = '-';
	what[n] = 0;
	return str_printf("%s%s", what, nine);
}

/* "1796000984.8650000000"; before 1970 the fraction counts upwards from the second below. */
static void time_of(const char *s, struct envd_entry *ret)
{
	bool negative = *s == '-';
	size_t n = strcspn(s += negative, ".");
	uint64_t seconds = 0;
	int32_t unit = 100000000;

	if (str_u64(s, n, INT64_MAX, &seconds) < 0)
		return;
	ret->modified_s = negative ? -(int64_t)seconds : (int64_t)seconds;
	for (s += n + (s[n] == '.'); *s >= '0' && *s <= '9' && unit; s++, unit /= 10)
		ret->modified_ns += (*s - '0') * unit;
}

/* Octal digits. */
static bool mode_of(const char *s, uint32_t *ret)
{
	for (*ret = 0; *s >= '0' && *s <= '7' && *ret <= 07777; s++)
		*ret = *ret * 8 + (uint32_t)(*s - '0');
	return !*s && *ret <= 07777;
}

/* What a link leads to: a path of its own if it can be followed. */
static char *target_of(const char *path, const char *link, char type)
{
	const char *slash = strrchr(path, '/');

	if (type == 'N' || type == 'L' || type == '?')
		return str_dup(path);
	return link[0] == '/' ? str_dup(link) : str_printf("%.*s/%s", (int)(slash ? slash - path : 0), path, link);
}

int record_entry(const char *base, const char *const w[RECORD_WORDS], struct envd_entry *ret)
{
	bool is_link = w[WORD_TYPE][0] == 'l', is_root = str_eq(base, "/");
	const char *name;
	uint64_t size;
	uint32_t mode;

	*ret = (struct envd_entry){ .name = NULL };
	if (str_u64(w[WORD_SIZE], strlen(w[WORD_SIZE]), INT64_MAX, &size) < 0 || !mode_of(w[WORD_MODE], &mode))
		return -EBADMSG;
	ret->path = *w[WORD_REST] ? str_printf("%s/%s", is_root ? "" : base, w[WORD_REST]) : str_dup(base);
	name = ret->path ? strrchr(ret->path, '/') : NULL;
	ret->name = str_dup(name && name[1] ? name + 1 : ret->path);
	ret->type = type_of(w[is_link ? WORD_TARGET_TYPE : WORD_TYPE][0]);
	ret->size = (int64_t)size;
	ret->mode = mode & 0777;
	ret->permissions = permissions_text(w[WORD_TYPE][0], mode);
	ret->owner = name_to_text(w[WORD_OWNER]);
	ret->group = name_to_text(w[WORD_GROUP]);
	time_of(w[WORD_TIME], ret);
	if (is_link && ret->path)
		ret->symlink_target = target_of(ret->path, w[WORD_LINK], w[WORD_TARGET_TYPE][0]);
	if (ret->path && ret->name && ret->permissions && ret->owner && ret->group && (!is_link || ret->symlink_target))
		return 0;
	envd_entry_fini(ret);
	return -ENOMEM;
}
