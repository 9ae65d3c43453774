/* SPDX-License-Identifier: MIT */
/*
 * Control groups. Version 2 is preferred where it has the controller, version 1 fills the gaps: on a
 * hybrid machine freezing comes from version 2, memory and process limits from version 1.
 */
#include "daemon/local/engine/cg.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/fd.h"
#include "proto/base/str.h"

#define CG_FILE_MAX	(1024u * 1024)	/* of a /proc or control file we read */
#define CG_PERIOD_US	100000u
#define CG_DEPTH_MAX	8
#define CG_REMOVE_TRIES 50
#define CG_REMOVE_PAUSE_MS 5
#define CG_HOME_SUFFIX	"/agentbox-supervisor"

static const char *const v1_names[CG_N] = {
	[CG_MEMORY] = "memory", [CG_PIDS] = "pids",	  [CG_CPU] = "cpu",
	[CG_CPUACCT] = "cpuacct", [CG_FREEZER] = "freezer",
};

/* --- small file work --- */

static int path_of(char ret[PATH_MAX], const char *dir, const char *container, const char *file)
{
	int n = snprintf(ret, PATH_MAX, "%s%s%s%s%s", dir, *container ? "/" : "", container,
			 *file ? "/" : "", file);

	return n > 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int cg_put(const char *dir, const char *container, const char *file, const char *value)
{
	char path[PATH_MAX];
	scoped(fd_closep) int fd = -1;
	int r = path_of(path, dir, container, file);

	if (r < 0)
		return r;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

static int put_u64(const char *dir, const char *container, const char *file, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	return cg_put(dir, container, file, text);
}

static bool has(const char *dir, const char *container, const char *file)
{
	char path[PATH_MAX];

	return path_of(path, dir, container, file) == 0 && access(path, F_OK) == 0;
}

static char *get(const char *dir, const char *container, const char *file)
{
	char path[PATH_MAX], *text;
	size_t n;

	if (path_of(path, dir, container, file) < 0)
		return NULL;
	return fd_read_file(AT_FDCWD, path, CG_FILE_MAX, &text, &n) < 0 ? NULL : text;
}

static uint64_t number_at(const char *s)
{
	uint64_t v = 0;

	while (*s == ' ' || *s == '\t')
		s++;
	for (; *s >= '0' && *s <= '9'; s++)
		v = v * 10 + (uint64_t)(*s - '0');
	return v;
}

/* The number after "key " at the start of a line; without a key the file is one number. */
static uint64_t get_u64(const char *dir, const char *container, const char *file, const char *key)
{
	scoped(str_freep) char *text = get(dir, container, file);
	size_t n = key ? strlen(key) : 0;

	if (!text)
		return 0;
	if (!key)
		return number_at(text);
	for (const char *s = text; s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
		if (!strncmp(s, key, n) && s[n] == ' ')
			return number_at(s + n);
	return 0;
}

/* A word of a list separated by commas or spaces. */
static bool list_has(const char *list, size_t len, const char *word)
{
	size_t n = strlen(word);

	for (size_t i = 0; i + n <= len; i++) {
		bool starts = i == 0 || list[i - 1] == ',' || list[i - 1] == ' ';
		bool ends = i + n == len || list[i + n] == ',' || list[i + n] == ' ' ||
			    list[i + n] == '\n';

		if (starts && ends && !strncmp(list + i, word, n))
			return true;
	}
	return false;
}

/* --- where we are --- */

/* The caller's path in the hierarchy, from the lines "N:controllers:path" of /proc/self/cgroup. */
static bool own_path(const char *cgroup, enum cg_ctl c, char ret[CG_PATH_MAX])
{
	for (const char *s = cgroup; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL) {
		const char *a = strchr(s, ':'), *b = a ? strchr(a + 1, ':') : NULL;
		size_t n;

		if (!b)
			return false;
		if (c == CG_UNIFIED ? !str_starts(s, "0::")
				    : !list_has(a + 1, (size_t)(b - a - 1), v1_names[c]))
			continue;
		n = strcspn(b + 1, "\n");
		if (n >= CG_PATH_MAX)
			return false;
		memcpy(ret, b + 1, n);
		ret[n] = '\0';
		return true;
	}
	return false;
}

/* One line of mountinfo: "id parent dev ROOT POINT opts … - FSTYPE source SUPEROPTS". */
static bool mount_line(const char *line, enum cg_ctl c, char root[CG_PATH_MAX],
		       char point[CG_PATH_MAX])
{
	size_t len = strcspn(line, "\n");
	scoped(str_freep) char *copy = strndup(line, len);
	char type[32], super[256];
	char *tail;

	if (!copy)
		return false;
	tail = strstr(copy, " - ");
	if (!tail || sscanf(tail, " - %31s %*s %255s", type, super) != 2)
		return false;
	if (c == CG_UNIFIED ? !str_eq(type, "cgroup2")
			    : !str_eq(type, "cgroup") || !list_has(super, strlen(super), v1_names[c]))
		return false;
	return sscanf(copy, "%*s %*s %*s %511s %511s", root, point) == 2;
}

bool cg_find(const char *mountinfo, const char *cgroup, enum cg_ctl c, char ret[CG_PATH_MAX])
{
	char own[CG_PATH_MAX], root[CG_PATH_MAX], point[CG_PATH_MAX];
	const char *rel = own;
	size_t n;

	if (!own_path(cgroup, c, own))
		return false;
	for (const char *s = mountinfo; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL) {
		if (!mount_line(s, c, root, point))
			continue;
		/* A mount of a subtree shows its root as "/": the common part is not in its paths. */
		n = strlen(root);
		if (n > 1) {
			if (strncmp(own, root, n) || (own[n] && own[n] != '/'))
				continue;
			rel = own + n;
		}
		if (str_eq(rel, "/"))
			rel = "";
		return (size_t)snprintf(ret, CG_PATH_MAX, "%s%s", point, rel) < CG_PATH_MAX;
	}
	return false;
}

/* --- our parent groups --- */

static bool make_parent(const char *own, const char *name, char ret[CG_PATH_MAX])
{
	int n = snprintf(ret, CG_PATH_MAX, "%s/%s", own, name);

	if (n > 0 && (size_t)n < CG_PATH_MAX && (mkdir(ret, 0755) == 0 || errno == EEXIST))
		return true;
	ret[0] = '\0';
	return false;
}

/* Gives the children of `dir` a controller; false if it is not there or not allowed. */
static bool enable(const char *dir, const char *controller)
{
	scoped(str_freep) char *have = get(dir, "", "cgroup.controllers");
	char word[32];

	if (!have || !list_has(have, strlen(have), controller))
		return false;
	snprintf(word, sizeof(word), "+%s", controller);
	return cg_put(dir, "", "cgroup.subtree_control", word) == 0;
}

void cg_leave(const struct cg_roots *roots)
{
	char below[CG_PATH_MAX + sizeof(CG_HOME_SUFFIX)];

	if (!roots->home[0])
		return;
	(void)cg_put(roots->home, "", "cgroup.subtree_control", "-memory -pids -cpu");
	(void)cg_put(roots->home, "", "cgroup.procs", "0");
	snprintf(below, sizeof(below), "%s" CG_HOME_SUFFIX, roots->home);
	(void)rmdir(below);
}

static void move_down(const char *own, struct cg_roots *ret)
{
	char below[CG_PATH_MAX + sizeof(CG_HOME_SUFFIX)];

	snprintf(below, sizeof(below), "%s" CG_HOME_SUFFIX, own);
	if (mkdir(below, 0755) < 0 && errno != EEXIST)
		return;
	str_copy(ret->home, sizeof(ret->home), own);
	if (cg_put(below, "", "cgroup.procs", "0") < 0 || !enable(own, "pids")) {
		cg_leave(ret);
		ret->home[0] = '\0';
	}
}

/*
 * A version 2 group that has processes cannot give controllers to its children. A group delegated to
 * us (a systemd unit) holds only ourselves: we move one down. One that holds others says EBUSY
 * again, and we go on without controllers.
 */
static void unified_setup(const char *own, const char *name, struct cg_roots *ret)
{
	static const char *const want[] = { "memory", "pids", "cpu" };
	bool *flags[] = { &ret->v2_memory, &ret->v2_pids, &ret->v2_cpu };
	char *dir = ret->dir[CG_UNIFIED];
	scoped(str_freep) char *have = get(own, "", "cgroup.controllers");

	if (!make_parent(own, name, dir))
		return;
	if (have && list_has(have, strlen(have), "pids") && !enable(own, "pids"))
		move_down(own, ret);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		*flags[i] = enable(own, want[i]) && enable(dir, want[i]);
	ret->v2_freeze = has(dir, "", "cgroup.freeze");
}

void cg_setup(const char *name, struct cg_roots *ret)
{
	scoped(str_freep) char *mounts = NULL, *own = NULL;
	char path[CG_PATH_MAX];
	size_t n;

	*ret = (struct cg_roots){ 0 };
	if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", CG_FILE_MAX, &mounts, &n) < 0 ||
	    fd_read_file(AT_FDCWD, "/proc/self/cgroup", CG_FILE_MAX, &own, &n) < 0)
		return;
	if (cg_find(mounts, own, CG_UNIFIED, path))
		unified_setup(path, name, ret);
	for (enum cg_ctl c = CG_MEMORY; c < CG_N; c++) {
		if ((c == CG_MEMORY && ret->v2_memory) || (c == CG_PIDS && ret->v2_pids) ||
		    (c == CG_CPU && ret->v2_cpu) || (c == CG_CPUACCT && ret->dir[CG_UNIFIED][0]) ||
		    (c == CG_FREEZER && ret->v2_freeze))
			continue;
		if (cg_find(mounts, own, c, path))
			(void)make_parent(path, name, ret->dir[c]);
	}
}

void cg_renew(const struct cg_roots *r)
{
	for (enum cg_ctl c = 0; c < CG_N; c++)
		if (r->dir[c][0])
			(void)mkdir(r->dir[c], 0755);
	if (r->v2_memory)
		(void)enable(r->dir[CG_UNIFIED], "memory");
	if (r->v2_pids)
		(void)enable(r->dir[CG_UNIFIED], "pids");
	if (r->v2_cpu)
		(void)enable(r->dir[CG_UNIFIED], "cpu");
}

static void kill_processes(const char *dir)
{
	scoped(str_freep) char *text = NULL;

	if (cg_put(dir, "", "cgroup.kill", "1") == 0)
		return;
	text = get(dir, "", "cgroup.procs");
	for (const char *s = text; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL) {
		pid_t pid = (pid_t)number_at(s);

		if (pid > 1)
			(void)kill(pid, SIGKILL);
	}
}

/* Kills and removes a group with its children. The killed leave a moment later: it asks again. */
static void destroy(const char *dir, bool only_children, int depth)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char sub[PATH_MAX];

	if (!d)
		return;
	while (depth < CG_DEPTH_MAX && (e = readdir(d)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.' && path_of(sub, dir, e->d_name, "") == 0)
			destroy(sub, false, depth + 1);
	closedir(d);
	if (only_children)
		return;
	for (int i = 0; i < CG_REMOVE_TRIES; i++) {
		kill_processes(dir);
		(void)cg_put(dir, "", "cgroup.freeze", "0");
		(void)cg_put(dir, "", "freezer.state", "THAWED");
		if (rmdir(dir) == 0 || errno != EBUSY)
			return;
		(void)poll(NULL, 0, CG_REMOVE_PAUSE_MS);
	}
}

void cg_destroy(const char *dir, bool only_children)
{
	destroy(dir, only_children, 0);
}

void cg_teardown(const struct cg_roots *roots)
{
	for (enum cg_ctl c = 0; c < CG_N; c++)
		if (roots->dir[c][0])
			destroy(roots->dir[c], false, 0);
}

/* --- one sandbox --- */

static int set_limits(const struct cg_roots *r, const char *container, const struct cg_limits *l)
{
	const char *v2 = r->dir[CG_UNIFIED];
	char text[48];
	int a = 0, b = 0, c = 0;

	if (l->memory_bytes && r->v2_memory) {
		a = put_u64(v2, container, "memory.max", l->memory_bytes);
		(void)cg_put(v2, container, "memory.swap.max", "0");
	} else if (l->memory_bytes && r->dir[CG_MEMORY][0]) {
		a = put_u64(r->dir[CG_MEMORY], container, "memory.limit_in_bytes", l->memory_bytes);
		(void)put_u64(r->dir[CG_MEMORY], container, "memory.memsw.limit_in_bytes",
			      l->memory_bytes);
	}
	if (l->max_pids && r->v2_pids)
		b = put_u64(v2, container, "pids.max", l->max_pids);
	else if (l->max_pids && r->dir[CG_PIDS][0])
		b = put_u64(r->dir[CG_PIDS], container, "pids.max", l->max_pids);
	if (l->cpus && r->v2_cpu) {
		snprintf(text, sizeof(text), "%llu %u",
			 (unsigned long long)l->cpus * CG_PERIOD_US, CG_PERIOD_US);
		c = cg_put(v2, container, "cpu.max", text);
	} else if (l->cpus && r->dir[CG_CPU][0]) {
		c = put_u64(r->dir[CG_CPU], container, "cpu.cfs_quota_us",
			    (uint64_t)l->cpus * CG_PERIOD_US);
	}
	return a < 0 ? a : b < 0 ? b : c;
}

int cg_make(const struct cg_roots *r, const char *container, const struct cg_limits *l)
{
	char path[PATH_MAX];

	for (enum cg_ctl c = 0; c < CG_N; c++) {
		if (!r->dir[c][0])
			continue;
		if (path_of(path, r->dir[c], container, "") < 0)
			return -ENAMETOOLONG;
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return set_limits(r, container, l);
}

int cg_open_unified(const struct cg_roots *r, const char *container)
{
	char path[PATH_MAX];

	if (!r->dir[CG_UNIFIED][0] || path_of(path, r->dir[CG_UNIFIED], container, "") < 0)
		return -1;
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* "tasks" moves one thread without the lock over all of the machine's forks that "cgroup.procs"
 * takes: milliseconds each. */
int cg_join(const struct cg_roots *r, const char *container, bool cloned_into)
{
	int e = 0;

	if (r->dir[CG_UNIFIED][0] && !cloned_into)
		e = cg_put(r->dir[CG_UNIFIED], container, "cgroup.procs", "0");
	for (enum cg_ctl c = CG_MEMORY; c < CG_N && e == 0; c++)
		if (r->dir[c][0])
			e = cg_put(r->dir[c], container, "tasks", "0");
	return e;
}

int cg_remove(const struct cg_roots *r, const char *container)
{
	char path[PATH_MAX];
	int worst = 0;

	for (enum cg_ctl c = 0; c < CG_N; c++) {
		if (!r->dir[c][0] || path_of(path, r->dir[c], container, "") < 0)
			continue;
		if (rmdir(path) < 0 && errno != ENOENT)
			worst = -errno;
	}
	return worst;
}

int cg_freeze(const struct cg_roots *r, const char *container, bool on)
{
	if (r->v2_freeze)
		return cg_put(r->dir[CG_UNIFIED], container, "cgroup.freeze", on ? "1" : "0");
	if (r->dir[CG_FREEZER][0])
		return cg_put(r->dir[CG_FREEZER], container, "freezer.state", on ? "FROZEN" : "THAWED");
	return -EOPNOTSUPP;
}

bool cg_is_frozen(const struct cg_roots *r, const char *container)
{
	scoped(str_freep) char *text = NULL;

	if (r->v2_freeze)
		return get_u64(r->dir[CG_UNIFIED], container, "cgroup.events", "frozen") == 1;
	if (r->dir[CG_FREEZER][0])
		text = get(r->dir[CG_FREEZER], container, "freezer.state");
	return text && str_starts(text, "FROZEN");
}

void cg_usage(const struct cg_roots *r, const char *container, struct cg_usage *ret)
{
	const char *v2 = r->dir[CG_UNIFIED];

	*ret = (struct cg_usage){ 0 };
	if (*v2)
		ret->cpu_us = get_u64(v2, container, "cpu.stat", "usage_usec");
	else if (r->dir[CG_CPUACCT][0])
		ret->cpu_us = get_u64(r->dir[CG_CPUACCT], container, "cpuacct.usage", NULL) / 1000;
	if (r->v2_memory) {
		ret->mem_bytes = get_u64(v2, container, "memory.current", NULL);
		ret->mem_cache_bytes = get_u64(v2, container, "memory.stat", "file");
	} else if (r->dir[CG_MEMORY][0]) {
		ret->mem_bytes = get_u64(r->dir[CG_MEMORY], container, "memory.usage_in_bytes", NULL);
		ret->mem_cache_bytes = get_u64(r->dir[CG_MEMORY], container, "memory.stat", "cache");
	}
}

bool cg_has_memory(const struct cg_roots *r)
{
	return r->v2_memory || r->dir[CG_MEMORY][0];
}

bool cg_has_pids(const struct cg_roots *r)
{
	return r->v2_pids || r->dir[CG_PIDS][0];
}

bool cg_has_cpu(const struct cg_roots *r)
{
	return r->v2_cpu || r->dir[CG_CPU][0];
}

bool cg_has_usage(const struct cg_roots *r)
{
	return r->dir[CG_UNIFIED][0] || r->dir[CG_CPUACCT][0];
}

bool cg_has_freezer(const struct cg_roots *r)
{
	return r->v2_freeze || r->dir[CG_FREEZER][0];
}
