/* SPDX-License-Identifier: MIT */
#include "daemon/conf/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/conf/files.h"
#include "daemon/conf/secret.h"
#include "proto/base/fd.h"
#include "tests/lib/test.h"

static struct conf *read_text(const char *text)
{
	struct conf *c;

	CHECK_INT(conf_new(&c), 0);
	CHECK_INT(conf_read_text(c, "f.conf", (struct conf_text){ text, strlen(text) }), 0);
	return c;
}

TEST(values_by_precedence)
{
	struct conf *c = read_text("; a comment\n[daemon]\n history = 2h\nlog_level=debug\n"
				   "[account work]\napi_url = https://api.x.test\nproxy = none\n"
				   "[uid 1000]\naccount = work\nmax_streams = 1800\n");

	CHECK_STR(conf_errors(c), "");
	CHECK_INT(conf_get_number(c, "daemon", NULL, "history"), 7200000);
	CHECK_INT(conf_get_number(c, "daemon", NULL, "kill_grace"), 5000);
	CHECK_STR(conf_get(c, "account", "work", "api_url"), "https://api.x.test");
	CHECK_INT(conf_get_number(c, "uid", "1000", "max_streams"), 1800);
	CHECK_STR(conf_instance(c, "account", 0), "work");
	CHECK(!conf_instance(c, "account", 1));
	CHECK_INT(conf_set(c, CONF_COMMAND_LINE, "daemon", NULL, "log_level", "warn"), 0);
	CHECK_INT(conf_set(c, CONF_ENVIRONMENT, "daemon", NULL, "history", "1h"), 0);
	CHECK_STR(conf_get(c, "daemon", NULL, "log_level"), "warn");
	CHECK_STR(conf_get(c, "daemon", NULL, "history"), "2h");
	conf_free(c);
}

TEST(a_value_goes_on_in_the_next_line)
{
	struct conf *c = read_text("[account x]\napi_key_command = one \\\n\ttwo\\  \r\n\n"
				   "domain = \\\n a.test\nproxy = none\n# a comment \\\napi_url = https://x.test \\");
	char text[10000], *at = text, line[160];

	CHECK_STR(conf_errors(c), "");
	CHECK_STR(conf_get(c, "account", "x", "api_key_command"), "one two");
	CHECK_STR(conf_get(c, "account", "x", "domain"), "a.test");
	CHECK_STR(conf_get(c, "account", "x", "proxy"), "none");
	CHECK_STR(conf_get(c, "account", "x", "api_url"), "https://x.test");
	conf_free(c);

	at += sprintf(at, "[account x]\napi_key_command = a\\\n");
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = 0;
	for (int i = 0; i < 51; i++)
		at += sprintf(at, "%s\\\n", line);
	c = read_text(text);
	CHECK_STR(conf_errors(c), "");
	CHECK_INT(strlen(conf_get(c, "account", "x", "api_key_command")), 1 + 51 * 160);
	conf_free(c);
	sprintf(at, "%s\nnonsense\\\n[account y]\ndomain = y.test", line);
	c = read_text(text);
	CHECK(strstr(conf_errors(c), "f.conf:54: the line makes the value too long"));
	CHECK(strstr(conf_errors(c), "f.conf:55: the line is neither"));
	CHECK_STR(conf_get(c, "account", "y", "domain"), "y.test");	/* a bad line does not go on */
	conf_free(c);
}

TEST(all_problems_at_once_with_their_lines)
{
	static const char *const want[] = {
		"f.conf:2: [daemon] history: \"5\" is not a duration such as 90s, 5m or 1h30m",
		"f.conf:3: there is no key hystory in [daemon]",
		"f.conf:4: the line is neither [section], key = value nor a comment",
		"f.conf:5: [daemon] kill_grace: \"2h\" is out of range: from 0s to 3600s",
		"f.conf:6: there is no section [deamon]",
		"f.conf:8: [uid -me]: write [uid USER]",
		"f.conf:11: [account x] api_url: \"ftp://x\" does not begin",
		"f.conf:13: [account x] domain: is given twice, first in line 12",
		"f.conf:14: the line is too long; a value may go on in the next line after a \\",
		"f.conf:15: the line begins a section but has no ]",
		"f.conf:16: there is no section [acount]",
		"f.conf:17: [account ]: write [account NAME]",
	};
	char text[2000], longest[400];
	struct conf *c;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	snprintf(text, sizeof(text),
		 "[daemon]\nhistory = 5\nhystory = 5m\nnonsense\nkill_grace = 2h\n[deamon]\nx = y\n"
		 "[uid -me]\nmax_streams = 4\n[account x]\napi_url = ftp://x\ndomain = a\ndomain = b\n"
		 "domain = %s\n[pool\n[acount]\n[account ]\n", longest);
	c = read_text(text);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		if (!strstr(conf_errors(c), want[i])) {
			fprintf(stderr, "missing: %s\nin:\n%s", want[i], conf_errors(c));
			exit(1);
		}
	conf_free(c);
}

TEST(every_default_is_valid_and_documented)
{
	struct conf *c;
	struct conf_row row;
	struct buf out;
	char *text;
	size_t n = 0;

	buf_init(&out, 0);
	CHECK_INT(conf_print_defaults(&out), 0);
	text = buf_take_str(&out);
	for (unsigned i = 0; i < conf_n_keys; i++)
		CHECK(strstr(text, conf_keys[i].help));
	CHECK_INT(conf_new(&c), 0);
	CHECK_INT(conf_read_text(c, "defaults", (struct conf_text){ text, strlen(text) }), 0);
	CHECK_STR(conf_errors(c), "");
	conf_free(c);
	CHECK_INT(conf_new(&c), 0);
	for (unsigned i = 0; i < conf_n_keys; i++) {
		CHECK(strlen(conf_keys[i].help) > 10);
		if (conf_keys[i].default_value[0])
			CHECK_INT(conf_set(c, CONF_FILE, conf_keys[i].section, "1", conf_keys[i].key,
					   conf_keys[i].default_value), 0);
	}
	CHECK_STR(conf_errors(c), "");
	while (conf_row(c, n, &row))
		n++;
	CHECK(n >= conf_n_keys);
	free(text);
	conf_free(c);
}

TEST(secrets_are_read_from_private_files_only)
{
	static const struct {
		const char *content;
		mode_t mode;
		int r;
	} t[] = {
		{ "e2b_00ff\n", 0600, 0 },	{ "e2b_00ff", 0400, 0 },  { "e2b_00ff\n", 0644, -EPERM },
		{ "", 0600, -EBADMSG },		{ "\n", 0600, -EBADMSG }, { "a b\n", 0600, -EBADMSG },
		{ "a\r\n", 0600, -EBADMSG },
	};
	char path[] = "/tmp/secret-XXXXXX";
	struct secret *s;
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CHECK_INT(ftruncate(fd, 0), 0);
		CHECK_INT(pwrite(fd, t[i].content, strlen(t[i].content), 0), strlen(t[i].content));
		CHECK_INT(fchmod(fd, t[i].mode), 0);
		CHECK_INT(secret_read(path, NULL, &s), t[i].r);
		if (!t[i].r) {
			CHECK_STR(secret_text(s), "e2b_00ff");
			secret_free(s);
		}
	}
	CHECK_INT(secret_read("/tmp", NULL, &s), -EINVAL);
	CHECK_INT(secret_read("/dev/zero", NULL, &s), -EINVAL);
	CHECK_INT(secret_read("/nonexistent", NULL, &s), -ENOENT);
	unlink(path);
	close(fd);
}

struct folder {
	char path[32], file[64];
};

static void folder_make(struct folder *f)
{
	char sub[64];

	CHECK(mkdtemp(strcpy(f->path, "/tmp/conf-XXXXXX")));
	snprintf(f->file, sizeof(f->file), "%s/a.conf", f->path);
	snprintf(sub, sizeof(sub), "%s/conf.d", f->path);
	CHECK_INT(mkdir(sub, 0755), 0);
}

static void folder_put(const struct folder *f, const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", f->path, name);
	file = fopen(path, "w");
	CHECK(file && fputs(text, file) >= 0 && !fclose(file));
}

static void folder_remove(const struct folder *f)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", f->path);
	CHECK_INT(system(command), 0);
}

static struct conf *read_folder(const struct folder *f, struct conf_files *ret)
{
	char why[CONF_FILES_WHY_BYTES];
	struct conf *c;

	CHECK_INT(conf_new(&c), 0);
	CHECK_INT(conf_files_read(f->file, ret, why), 0);
	CHECK_INT(conf_read_files(c, ret), 0);
	return c;
}

TEST(a_later_file_wins_and_is_named)
{
	struct conf_files files, again;
	char at[512], want[256];
	struct folder f;
	struct conf *c;

	folder_make(&f);
	folder_put(&f, "a.conf", "[daemon]\nhistory = 2h\nkill_grace = 1s\n");
	folder_put(&f, "conf.d/20-b.conf", "[daemon]\nhistory = 4h\n");
	folder_put(&f, "conf.d/10-a.conf", "[daemon]\n\nhistory = 3h\nmax_staleness = 1s\n");
	folder_put(&f, "conf.d/30-c.conf.dpkg-new", "[daemon]\nhistory = 5h\n");
	folder_put(&f, "conf.d/.hidden.conf", "[daemon]\nhistory = 6h\n");
	c = read_folder(&f, &files);
	CHECK_STR(conf_errors(c), "");
	CHECK_INT(files.n, 3);
	CHECK_STR(conf_get(c, "daemon", NULL, "history"), "4h");
	CHECK_STR(conf_get(c, "daemon", NULL, "kill_grace"), "1s");
	snprintf(want, sizeof(want), "%s/conf.d/10-a.conf:4: [daemon] max_staleness", f.path);
	CHECK_STR(conf_place(c, "daemon", NULL, "max_staleness", at), want);
	CHECK_STR(conf_file(c, "daemon", NULL, "kill_grace"), f.file);
	CHECK_STR(conf_file(c, "daemon", NULL, "log_level"), "");
	conf_free(c);

	folder_put(&f, "conf.d/20-b.conf", "[daemon]\nhistory = 4h\nhistory = 5h\nnonsense = 1\n");
	c = read_folder(&f, &again);
	snprintf(want, sizeof(want),
		 "%s/conf.d/20-b.conf:3: [daemon] history: is given twice, first in line 2\n"
		 "%s/conf.d/20-b.conf:4: there is no key nonsense in [daemon]\n", f.path, f.path);
	CHECK_STR(conf_errors(c), want);
	CHECK(!conf_files_equal(&files, &again) && conf_files_equal(&again, &again));
	conf_free(c);
	conf_files_fini(&files);
	conf_files_fini(&again);
	folder_remove(&f);
}

TEST(files_that_cannot_be_read)
{
	char why[CONF_FILES_WHY_BYTES], want[256];
	struct conf_files files;
	struct folder f;

	folder_make(&f);
	CHECK_INT(conf_files_read(f.file, &files, why), -ENOENT);
	folder_put(&f, "conf.d/x.conf", "");
	CHECK_INT(conf_files_read(f.file, &files, why), -EINVAL);
	snprintf(want, sizeof(want), "%s is missing, but there is %s/conf.d/x.conf: make it, empty if need be", f.file, f.path);
	CHECK_STR(why, want);
	folder_put(&f, "a.conf", "");
	snprintf(want, sizeof(want), "%s/conf.d/y.conf", f.path);
	CHECK_INT(mkdir(want, 0755), 0);
	CHECK_INT(conf_files_read(f.file, &files, why), -EISDIR);
	CHECK(strstr(why, want));
	CHECK_INT(rmdir(want), 0);
	for (unsigned i = 0; i < CONF_FILES_MAX; i++) {
		snprintf(want, sizeof(want), "conf.d/%u.conf", i);
		folder_put(&f, want, "");
	}
	CHECK_INT(conf_files_read(f.file, &files, why), -E2BIG);
	CHECK(strstr(why, "conf.d"));
	folder_remove(&f);
}

static void note_change(const struct conf_key *key, const char *instance, void *user)
{
	char *said = user;
	size_t n = strlen(said);

	snprintf(said + n, 256 - n, " %s%s%s", instance ? instance : "", instance ? "." : "", key->key);
}

/* What a reload compares, and takes. */
TEST(two_configurations)
{
	static const char before[] = "[daemon]\nlog_level = info\nhistory = 24h\ndrain_timeout = 3s\n[uid 5]\nmax_streams = 7\n"
				     "[account a]\ndomain = x.example\n";
	static const char after[] = "[daemon]\nlog_level = debug\nhistory = 48h\n[uid 6]\nmax_streams = 8\n"
				    "[account a]\ndomain = x.example\n";
	struct conf *now = read_text(before), *fresh = read_text(after);
	char said[256] = "";

	conf_compare(now, fresh, note_change, said);
	CHECK_STR(said, " history log_level drain_timeout 6.max_streams 5.max_streams");
	for (unsigned i = 0; i < conf_n_keys; i++)
		if (conf_keys[i].reloadable && !strcmp(conf_keys[i].section, "daemon"))
			conf_take(now, fresh, &conf_keys[i], NULL);
	CHECK_STR(conf_get(now, "daemon", NULL, "log_level"), "debug");
	CHECK_INT(conf_get_number(now, "daemon", NULL, "drain_timeout"), 20000);
	CHECK_STR(conf_get(now, "daemon", NULL, "history"), "24h");
	conf_free(fresh);
	said[0] = '\0';
	fresh = read_text(before);
	CHECK_INT(conf_set(now, CONF_COMMAND_LINE, "daemon", NULL, "history", "1h"), 0);
	CHECK_INT(conf_keep_given(fresh, now), 0);
	conf_compare(now, fresh, note_change, said);
	CHECK_STR(said, " log_level drain_timeout");
	conf_free(fresh);
	conf_free(now);
}

static const struct conf_key *key_of(const char *section, const char *key)
{
	for (unsigned i = 0; i < conf_n_keys; i++)
		if (!strcmp(conf_keys[i].section, section) && !strcmp(conf_keys[i].key, key))
			return &conf_keys[i];
	return NULL;
}

/* Instances come and go with their values; what was taken away lives until the other one ends. */
TEST(instances_are_taken)
{
	struct conf *now = read_text("[policy]\nmax_age = 1h\n[policy uid:5]\nmax_age = 2h\n[policy uid:6]\nmax_age = 3h\n");
	struct conf *fresh = read_text("[policy uid:6]\nmax_age = 4h\n[policy uid:7]\nmax_age = 5h\n");
	const struct conf_key *k = key_of("policy", "max_age");
	const char *old = conf_get(now, "policy", "uid:5", "max_age");
	static const char *const of[] = { NULL, "uid:5", "uid:6", "uid:7" };

	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		conf_take(now, fresh, k, of[i]);
	conf_take_instances(now, fresh);
	CHECK_STR(old, "2h");
	conf_free(fresh);
	CHECK_INT(conf_n_instances(now, "policy"), 3);
	CHECK_STR(conf_instance(now, "policy", 0), "");
	CHECK_STR(conf_instance(now, "policy", 1), "uid:6");
	CHECK_STR(conf_instance(now, "policy", 2), "uid:7");
	CHECK_STR(conf_get(now, "policy", NULL, "max_age"), "");
	CHECK_STR(conf_get(now, "policy", "uid:6", "max_age"), "4h");
	CHECK_STR(conf_get(now, "policy", "uid:7", "max_age"), "5h");
	conf_free(now);
}

/* What the service manager keeps for us is closed to others by its folder; its files may have any mode. */
TEST(credentials_may_have_any_mode)
{
	static const struct {
		const char *folder, *file;	/* below the place */
		int r;
	} t[] = {
		{ "/cred", "/cred/key", 0 },	   { "/cred/", "/cred/key", 0 },      { "/cre", "/cred/key", -EPERM },
		{ "/cred", "/cred/../key", -EPERM }, { "/cred/key", "/cred/key", -EPERM }, { NULL, "/cred/key", -EPERM },
	};
	char place[] = "/tmp/credentials-XXXXXX", folder[64], path[64], key[64], outside[64];
	struct secret *s;

	CHECK(mkdtemp(place));
	snprintf(folder, sizeof(folder), "%s/cred", place);
	snprintf(key, sizeof(key), "%s/cred/key", place);
	snprintf(outside, sizeof(outside), "%s/key", place);
	CHECK_INT(mkdir(folder, 0700), 0);
	CHECK_INT(fd_write_file(AT_FDCWD, key, "e2b_00ff\n", 9, 0644), 0);
	CHECK_INT(fd_write_file(AT_FDCWD, outside, "e2b_00ff\n", 9, 0644), 0);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		snprintf(folder, sizeof(folder), "%s%s", place, t[i].folder ? t[i].folder : "");
		snprintf(path, sizeof(path), "%s%s", place, t[i].file);
		CHECK_INT(secret_read(path, t[i].folder ? folder : NULL, &s), t[i].r);
		if (!t[i].r)
			secret_free(s);
	}
	unlink(key);
	unlink(outside);
	snprintf(folder, sizeof(folder), "%s/cred", place);
	rmdir(folder);
	rmdir(place);
}

TEST_MAIN()
