/* SPDX-License-Identifier: MIT */
/*
 * What the commands of agentboxctl share. A command is one file with one `struct command`: its words,
 * its options, its help (all printed from there) and the function that does it. That function
 * returns the exit code: 0 ok, 1 error, 2 usage, 3 not found, 4 unreachable; exec has its own.
 */
#ifndef AB_CLIENT_CLI_TERM_CLI_H
#define AB_CLIENT_CLI_TERM_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <agentbox.h>

#define ARRAY_SIZE(a)	  (sizeof(a) / sizeof((a)[0]))
#define printf_like(f, a) __attribute__((format(printf, f, a)))

enum exit_code {
	EXIT_OK = 0,
	EXIT_ERROR = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_FOUND = 3,
	EXIT_UNREACHABLE = 4,
	EXIT_TIMED_OUT = 124,	/* of commands that end as a program does: exec, shell, wait, run */
	EXIT_FAILED = 125,
	EXIT_UNKNOWN = 126,
};

struct pairs {
	struct ab_pair *v;	/* keys and values are words of argv, cut at the '=' */
	size_t n;
};

struct words {
	const char **v;
	size_t n;
};

/* Everything options can set; a command looks at its own. */
struct args {
	const char *socket, *context;
	bool json, help, version;
	uint64_t wait_ms;

	const char *template_name, *name, *request_id, *user, *dir, *policy, *reset, *label, *cursor;
	uint64_t timeout_ms, ttl_ms;
	struct pairs metadata, envs;
	const char *count, *on_timeout, *mask_host, *proxy;
	struct words allow_out, deny_out;
	struct pairs headers, iam;
	const char *states, *format, *sort;	/* ls */
	struct pairs filters;
	uint64_t older_than_ms;			/* kill */
	bool yes;
	bool no_memory, auto_resume, internet, no_internet, private_ports, clear, not_secure, must_create, wait_ready;
	bool interactive, tty, quiet, cached, all, all_hosts, all_owners, adopt, initial;

	bool recursive, update, all_links;	/* cp, watch */
	bool write, entries;
	uint64_t expires_ms;
	bool detach;				/* exec, attach */
	const char *detach_keys, *from;
	const char *since;			/* logs */
	const char *warm;			/* create */
	bool follow;
	struct words scope;			/* token */
	const char *on_release;			/* run */
	bool prefers_warm;			/* run */
	bool control;				/* env */
	bool once;				/* top */
	const char *state_dir;			/* restore */
	bool off;				/* quiesce */
	const char *reason;
	bool other_host;

	char **words;		/* what is no option; with `rest`, min_words of them */
	size_t n_words;
	char **rest;		/* the program and its arguments, NULL-terminated */
	size_t n_rest;
	struct words texts;	/* of words that are not UTF-8: heap */
};

enum opt_kind { OPT_FLAG, OPT_TEXT, OPT_SPAN, OPT_PAIR, OPT_WORDS };

struct opt {
	char letter;		/* 0 = none */
	const char *name;
	enum opt_kind kind;
	size_t at;		/* offset in struct args */
	const char *value, *help;
};

#define OPT(letter, name, kind, field, value, help)                                                \
	{ letter, name, kind, offsetof(struct args, field), value, help }

struct cli {
	const struct command *command;
	struct args args;
	struct ab_client *client;	/* connected, or NULL (see is_offline) */
};

struct command {
	const char *name;
	const char *words;		/* "ID DURATION", for the usage line */
	const char *help;		/* one sentence, then details after a newline */
	const struct opt *opts;
	size_t n_opts;
	size_t min_words, max_words;
	bool takes_rest;		/* what stands behind min_words is a program, with options of its own */
	bool no_json;
	int fail_code;			/* of failing before it began; 0 = by kind of failure */
	int (*check)(struct cli *cli);	/* 0, or EXIT_USAGE after saying what is wrong, before it connects; may be NULL */
	bool (*is_offline)(const struct args *a);	/* needs no daemon: cli->client is NULL; NULL = never */
	int (*run)(struct cli *cli);
};

extern const struct command cmd_create, cmd_ls, cmd_get, cmd_inspect, cmd_shell, cmd_connect, cmd_timeout, cmd_kill, cmd_exec,
	cmd_ps, cmd_cp, cmd_cat, cmd_files, cmd_stat, cmd_mkdir, cmd_rm, cmd_mv, cmd_watch, cmd_sign, cmd_attach, cmd_logs,
	cmd_wait, cmd_signal,
	cmd_lease, cmd_hold, cmd_run, cmd_env, cmd_token, cmd_warm, cmd_policy, cmd_events, cmd_status, cmd_top, cmd_page, cmd_diag, cmd_pool, cmd_reload, cmd_config, cmd_quiesce, cmd_backup, cmd_restore, cmd_local,
	cmd_fork, cmd_pause, cmd_resume, cmd_snapshot, cmd_template, cmd_network, cmd_metrics, cmd_host, cmd_port_forward, cmd_running;

/* cmd_exec.c: what a shell would say of a command that ended so. */
int command_exit_code(const struct ab_command_result *r);

/* opt.c. 0, or EXIT_USAGE after saying what is wrong. `to` NULL: only the global options, and it stops
 * at the first word; *at is the index to go on from. */
int opt_parse(const struct command *cmd, int argc, char **argv, int *at, struct args *ret);
void opt_free(struct args *a);
/* Decimal digits, at most `max`. */
bool opt_number(const char *text, uint32_t max, uint32_t *ret);
void opt_print_help(const struct command *cmd);
/* What every command takes, and may stand before it. */
extern const struct opt opt_globals[];
extern const size_t opt_n_globals;

/* fail.c. A line on stderr, "agentboxctl: COMMAND: …". */
void say(const struct cli *cli, const char *fmt, ...) printf_like(2, 3);
/* Says it and returns EXIT_USAGE. */
int usage(const struct command *cmd, const char *fmt, ...) printf_like(2, 3);
/* Says what failed on this machine and returns the exit code of that. */
int fail_here(const struct cli *cli, const char *fmt, ...) printf_like(2, 3);
/* Says what is wrong and returns the exit code that belongs to it. */
int fail(const struct cli *cli, const struct ab_error *e);
/* The same for an answer that is no error, but says that there is no such thing. */
int fail_missing(const struct cli *cli, const char *reason, const char *fmt, ...) printf_like(3, 4);
/* The same for a call with a request id that failed: how to find out what became of it. */
int fail_create(const struct cli *cli, const struct ab_call *call);
/* The same for the last function that waited. */
int fail_client(const struct cli *cli);
/* Bytes of the control character that the text begins with; 0: it begins with none. Those of C1, such as U+009B, which begins an
 * escape on many terminals, are two. */
size_t control_length(const char *text);
/* Copies what fits into buf, with a '?' for each control character, since text may come from a sandbox. Returns buf. */
const char *safe(const char *text, char *buf, size_t n);

#endif
