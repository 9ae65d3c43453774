/* SPDX-License-Identifier: MIT */
/* The engine's pure parts: passwd and group, finding control groups, the workers' coding, paths. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/local/engine/base.h"
#include "daemon/local/engine/cg.h"
#include "daemon/local/engine/container.h"
#include "daemon/local/engine/fs_wire.h"
#include "daemon/local/engine/passwd.h"
#include "daemon/local/engine/rmtree.h"
#include "proto/base/fd.h"
#include "tests/lib/test.h"

TEST(passwd)
{
	static const char text[] = "root:x:0:0:root:/root:/bin/bash\nbroken\n:x:5:5::/:\n"
				   "far:x:4294967296:0::/:/bin/sh\nuser:x:1000:1001:,,,:/home/user:/bin/bash\n"
				   "rel:x:7:7::home:/bin/sh\nlast:x:8:9:l:/last";
	static const struct {
		const char *name;
		bool found;
		uint32_t uid, gid;
		const char *home;
	} t[] = {
		{ "root", true, 0, 0, "/root" },  { "user", true, 1000, 1001, "/home/user" },
		{ "use", false, 0, 0, "" },	  { "broken", false, 0, 0, "" },
		{ "far", false, 0, 0, "" },	  { "rel", true, 7, 7, "/" },
		{ "last", true, 8, 9, "/last" },  { "", false, 0, 0, "" },
		{ "1000", false, 0, 0, "" },
	};
	struct container_user u;
	char name[16];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_INT(passwd_find(text, t[i].name, &u), t[i].found);
		if (!t[i].found)
			continue;
		CHECK_INT(u.uid, t[i].uid);
		CHECK_INT(u.gid, t[i].gid);
		CHECK_STR(u.home, t[i].home);
	}
	CHECK(passwd_name_of(text, 1000, name, sizeof(name)));
	CHECK_STR(name, "user");
	CHECK(!passwd_name_of(text, 1001, name, sizeof(name)));
	CHECK(!passwd_name_of(text, 1000, name, 4));
}

TEST(groups)
{
	static const char text[] = "root:x:0:\nsudo:x:27:other,user\nuserx:x:28:userx,xuser\nuser:x:1000:user\n"
				   "bad:x:q:user\nlast:x:50:user";
	uint32_t g[4];

	CHECK_INT(passwd_groups(text, "user", 1000, g, 4), 3);
	CHECK_INT(g[0], 1000);
	CHECK_INT(g[1], 27);
	CHECK_INT(g[2], 50);
	CHECK_INT(passwd_groups(text, "user", 1000, g, 2), 2);
	CHECK_INT(passwd_groups("", "user", 5, g, 4), 1);
}

TEST(control_groups)
{
	static const char hybrid[] =
		"30 29 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755\n"
		"31 30 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw\n"
		"32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
		"33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
	static const char hybrid_own[] = "5:cpu,cpuacct:/\n4:memory:/a/b\n1:name=systemd:/x\n0::/c\n";
	static const char pure[] = "30 29 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
	static const struct {
		const char *mounts, *own;
		enum cg_ctl c;
		const char *path;	/* NULL: not there */
	} t[] = {
		{ hybrid, hybrid_own, CG_UNIFIED, "/sys/fs/cgroup/unified/c" },
		{ hybrid, hybrid_own, CG_MEMORY, "/sys/fs/cgroup/memory/a/b" },
		{ hybrid, hybrid_own, CG_CPU, "/sys/fs/cgroup/cpu,cpuacct" },
		{ hybrid, hybrid_own, CG_CPUACCT, "/sys/fs/cgroup/cpu,cpuacct" },
		{ hybrid, hybrid_own, CG_PIDS, NULL },
		{ pure, "0::/docker/abc/x\n", CG_UNIFIED, "/sys/fs/cgroup/x" },
		{ pure, "0::/docker/abc\n", CG_UNIFIED, "/sys/fs/cgroup" },
		{ pure, "0::/docker/abcd\n", CG_UNIFIED, NULL },
		{ pure, "0::/docker/abc\n", CG_MEMORY, NULL },
		{ "", "", CG_UNIFIED, NULL },
		{ "nonsense\n", "nonsense", CG_UNIFIED, NULL },
	};
	char path[CG_PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_INT(cg_find(t[i].mounts, t[i].own, t[i].c, path), t[i].path != NULL);
		if (t[i].path)
			CHECK_STR(path, t[i].path);
	}
}

TEST(containment)
{
	CHECK(base_contains("/", "/anything"));
	CHECK(base_contains("/a", "/a"));
	CHECK(base_contains("/a", "/a/b"));
	CHECK(!base_contains("/a", "/ab"));
	CHECK(!base_contains("/a/b", "/a"));
}

TEST(requests)
{
	const struct fs_meta meta[] = { { "k", "v" }, { "k2", "" } };
	const struct fsw_request q = { .op = FSW_OPEN_WRITE, .depth = 3, .uid = 4, .gid = 5, .path = "/a",
				       .to = "/b", .meta = meta, .n_meta = 2 };
	struct buf b = BUF_NULL;
	struct fs_meta *m;
	struct fsw_request r;

	CHECK_INT(fsw_request_encode(&q, &b), 0);
	CHECK_INT(fsw_request_decode(buf_data(&b), buf_len(&b), &r, &m), 0);
	CHECK_INT(r.op, FSW_OPEN_WRITE);
	CHECK_INT(r.depth, 3);
	CHECK_INT(r.gid, 5);
	CHECK_STR(r.path, "/a");
	CHECK_STR(r.to, "/b");
	CHECK_STR(r.meta[1].key, "k2");
	CHECK_STR(r.meta[1].value, "");
	free(m);
	for (size_t n = 0; n < buf_len(&b); n++)
		CHECK_INT(fsw_request_decode(buf_data(&b), n, &r, &m), -EBADMSG);
	buf_fini(&b);
}

TEST(entries)
{
	const struct fs_meta meta[] = { { "k", "v" } };
	const struct fs_entry e = { .path = "/d/f", .type = FS_FILE, .mode = 0644,
				       .permissions = "-rw-r--r--", .size = 7, .owner = "u", .group = "g",
				       .meta = meta, .n_meta = 1 };
	const struct fs_entry l = { .path = "/", .type = FS_DIRECTORY, .owner = "1", .group = "2",
				       .symlink_target = "/x" };
	struct fsw_entries all;
	struct buf b = BUF_NULL;

	CHECK_INT(fsw_entry_encode(&e, &b), 0);
	CHECK_INT(fsw_entry_encode(&l, &b), 0);
	CHECK_INT(fsw_entry_encode(&e, &b), 0);
	CHECK_INT(fsw_entries_decode(buf_data(&b), buf_len(&b), 3, &all), 0);
	CHECK_STR(all.e[0].name, "f");
	CHECK_STR(all.e[0].permissions, "-rw-r--r--");
	CHECK(!all.e[0].symlink_target);
	CHECK_STR(all.e[1].name, "/");
	CHECK_STR(all.e[1].symlink_target, "/x");
	CHECK_INT(all.e[1].n_meta, 0);
	CHECK_STR(all.e[2].meta[0].value, "v");
	fsw_entries_fini(&all);
	for (size_t n = 0; n < buf_len(&b); n++)
		CHECK_INT(fsw_entries_decode(buf_data(&b), n, 3, &all), -EBADMSG);
	CHECK_INT(fsw_entries_decode(buf_data(&b), buf_len(&b), 1u << 30, &all), -EBADMSG);
	buf_fini(&b);
}

/* A template's teams are read where its links lead inside it, never from this machine. */
TEST(template_with_links)
{
	char dir[] = "/tmp/agentbox-patch-XXXXXX", secret[64], root[64], patch[64], *text;
	size_t n;
	int at;

	CHECK(mkdtemp(dir));
	at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(secret, sizeof(secret), "%s/secret", dir);
	snprintf(root, sizeof(root), "%s/t", dir);
	snprintf(patch, sizeof(patch), "%s/p", dir);
	CHECK_INT(fd_write_file(AT_FDCWD, secret, "hush:x:\n", 8, 0600), 0);
	CHECK(mkdirat(at, "t", 0755) == 0 && mkdirat(at, "t/etc", 0755) == 0 && mkdirat(at, "p", 0755) == 0);
	CHECK_INT(symlinkat(secret, at, "t/etc/passwd"), 0);
	CHECK_INT(symlinkat("/etc/ours", at, "t/etc/group"), 0);
	CHECK_INT(fd_write_file(at, "t/etc/ours", "wheel:x:7:\n", 11, 0644), 0);
	CHECK_INT(base_build_patch(patch, root, geteuid() != 0, NULL), 0);
	CHECK_INT(fd_read_file(at, "p/etc/passwd", 4096, &text, &n), 0);
	CHECK_STR(text, "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n");
	free(text);
	CHECK_INT(fd_read_file(at, "p/etc/group", 4096, &text, &n), 0);
	CHECK_STR(text, "wheel:x:7:\nuser:x:1000:\n");
	free(text);
	fd_close(at);
	CHECK_INT(rmtree(AT_FDCWD, dir), 0);
}

TEST_MAIN()
