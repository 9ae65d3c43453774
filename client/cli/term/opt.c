/* SPDX-License-Identifier: MIT */
/*
 * Options out of argv by table, and help out of the same table. They may stand anywhere before "--"; of a command that runs
 * a program only before the program's sandbox, since what stands behind that is the program's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

const struct opt opt_globals[] = {
	OPT('s', "socket", OPT_TEXT, socket, "PATH", "the daemon's socket"),
	OPT(0, "context", OPT_TEXT, context, "NAME", "the daemon of that name (agentboxctl config contexts)"),
	OPT(0, "json", OPT_FLAG, json, NULL, "print JSON"),
	OPT(0, "wait", OPT_SPAN, wait_ms, "D", "how long to try to reach the daemon (3s)"),
	OPT('h', "help", OPT_FLAG, help, NULL, "this"),
	OPT('V', "version", OPT_FLAG, version, NULL, "print the version"),
};
const size_t opt_n_globals = ARRAY_SIZE(opt_globals);

struct parse {
	const struct command *cmd;
	struct args *args;
	int argc, at;
	char **argv;
};

static const struct opt *find_in(const struct opt *o, size_t n, char letter, const char *name, size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (name ? strlen(o[i].name) == len && !memcmp(o[i].name, name, len)
			 : o[i].letter == letter)
			return &o[i];
	return NULL;
}

static const struct opt *find(const struct parse *p, char letter, const char *name, size_t len)
{
	const struct opt *o = find_in(opt_globals, opt_n_globals, letter, name, len);

	return o || !p->cmd ? o : find_in(p->cmd->opts, p->cmd->n_opts, letter, name, len);
}

static int set_pair(const struct parse *p, const struct opt *o, struct pairs *to, char *value)
{
	char *eq = strchr(value, '=');
	struct ab_pair *v;

	if (!eq || eq == value)
		return usage(p->cmd, "--%s takes KEY=VALUE, not '%s'", o->name, value);
	v = reallocarray(to->v, to->n + 1, sizeof(*v));
	if (!v)
		return usage(p->cmd, "out of memory");
	*eq = '\0';
	to->v = v;
	v[to->n++] = (struct ab_pair){ .key = value, .value = eq + 1 };
	return 0;
}

static int set_span(const struct parse *p, const struct opt *o, uint64_t *to, const char *value)
{
	uint64_t ms;
	int r = ab_parse_duration(value, &ms);

	if (r == -ERANGE)
		return usage(p->cmd, "--%s: '%s' is too long", o->name, value);
	if (r < 0)
		return usage(p->cmd, "--%s takes a duration with a unit, such as 90s or 1h30m, not '%s'",
			     o->name, value);
	*to = ms ? ms : AB_ZERO_MS;
	return 0;
}

static int add_word(const struct parse *p, const struct opt *o, struct words *to, const char *value)
{
	const char **v;

	if (!*value)
		return usage(p->cmd, "--%s: the value is empty", o->name);
	v = reallocarray(to->v, to->n + 1, sizeof(*v));
	if (!v)
		return usage(p->cmd, "out of memory");
	to->v = v;
	v[to->n++] = value;
	return 0;
}

/* value NULL: the option stands without one. */
static int set(struct parse *p, const struct opt *o, char *value)
{
	void *field = (char *)p->args + o->at;

	if (o->kind == OPT_FLAG) {
		if (value)
			return usage(p->cmd, "--%s takes no value", o->name);
		*(bool *)field = true;
		return 0;
	}
	if (!value) {
		if (p->at >= p->argc)
			return usage(p->cmd, "--%s needs a value", o->name);
		value = p->argv[p->at++];
	}
	switch (o->kind) {
	case OPT_TEXT:
		if (!*value)
			return usage(p->cmd, "--%s: the value is empty", o->name);
		*(const char **)field = value;
		return 0;
	case OPT_SPAN:
		return set_span(p, o, field, value);
	case OPT_WORDS:
		return add_word(p, o, field, value);
	default:
		return set_pair(p, o, field, value);
	}
}

static int parse_long(struct parse *p, char *word)
{
	char *eq = strchr(word, '=');
	size_t len = eq ? (size_t)(eq - word) : strlen(word);
	const struct opt *o = find(p, 0, word, len);

	if (!o)
		return usage(p->cmd, "unknown option --%.*s", (int)len, word);
	return set(p, o, eq ? eq + 1 : NULL);
}

/* One letter, or several: flags, of which the last may take a value. */
static int parse_letters(struct parse *p, char *word)
{
	if (*word >= '0' && *word <= '9' && p->cmd)
		return usage(p->cmd, "'-%s': nothing negative is allowed", word);
	for (char *c = word; *c; c++) {
		const struct opt *o = find(p, *c, NULL, 0);
		int r;

		if (!o)
			return usage(p->cmd, "unknown option -%c", *c);
		if (o->kind != OPT_FLAG)
			return set(p, o, c[1] ? c + 1 : NULL);
		r = set(p, o, NULL);
		if (r)
			return r;
	}
	return 0;
}

static void take_rest(struct parse *p)
{
	p->args->rest = p->argv + p->at;
	p->args->n_rest = (size_t)(p->argc - p->at);
	p->at = p->argc;
}

/* The program and its arguments, as they are. */
static int take_program(struct parse *p)
{
	struct args *a = p->args;
	const char *word = p->at < p->argc ? p->argv[p->at] : "";

	if (!strcmp(word, "--"))
		p->at++;
	else if (word[0] == '-')
		return usage(p->cmd, "'%s' behind %s is no program; options stand before %s", word,
			     a->words[a->n_words - 1], a->words[a->n_words - 1]);
	take_rest(p);
	return 0;
}

static int take_word(struct parse *p, char *word)
{
	struct args *a = p->args;

	if (p->cmd->takes_rest && !p->cmd->min_words) {	/* this one is the program */
		p->at--;
		take_rest(p);
		return 0;
	}
	a->words[a->n_words++] = word;
	return p->cmd->takes_rest && a->n_words == p->cmd->min_words ? take_program(p) : 0;
}

/* Behind "--" there are no options. */
static int take_words(struct parse *p)
{
	int r = 0;

	while (r == 0 && p->at < p->argc)
		r = take_word(p, p->argv[p->at++]);
	return r;
}

static int check_words(const struct parse *p)
{
	const struct args *a = p->args;

	if (a->help || a->version)
		return 0;
	if (a->n_words < p->cmd->min_words)
		return usage(p->cmd, "needs %s", p->cmd->words);
	if (a->n_words > p->cmd->max_words)
		return usage(p->cmd, "unexpected argument '%s'", a->words[p->cmd->max_words]);
	for (size_t i = 0; i < a->n_words; i++)
		if (!*a->words[i])
			return usage(p->cmd, "needs %s, and an argument is empty", p->cmd->words);
	if (a->json && p->cmd->no_json)
		return usage(p->cmd, "has no --json");
	return 0;
}

int opt_parse(const struct command *cmd, int argc, char **argv, int *at, struct args *ret)
{
	struct parse p = { .cmd = cmd, .args = ret, .argc = argc, .argv = argv, .at = *at };
	int r = 0;

	if (cmd) {
		ret->words = calloc((size_t)argc + 1, sizeof(*ret->words));
		if (!ret->words)
			return usage(cmd, "out of memory");
	}
	while (r == 0 && p.at < argc) {
		char *word = argv[p.at];

		if (!cmd && (word[0] != '-' || !word[1] || !strcmp(word, "--")))
			break;
		p.at++;
		if (!strcmp(word, "--"))
			r = take_words(&p);
		else if (word[0] == '-' && word[1] == '-')
			r = parse_long(&p, word + 2);
		else if (word[0] == '-' && word[1])
			r = parse_letters(&p, word + 1);
		else
			r = take_word(&p, word);
	}
	*at = p.at;
	return r || !cmd ? r : check_words(&p);
}

bool opt_number(const char *text, uint32_t max, uint32_t *ret)
{
	uint64_t n = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		n = n * 10 + (unsigned)(*text - '0');
		if (n > max)
			return false;
	}
	*ret = (uint32_t)n;
	return true;
}

void opt_free(struct args *a)
{
	free(a->metadata.v);
	free(a->envs.v);
	free(a->headers.v);
	free(a->filters.v);
	free(a->iam.v);
	free(a->allow_out.v);
	free(a->deny_out.v);
	free(a->scope.v);
	for (size_t i = 0; i < a->texts.n; i++)
		free((char *)a->texts.v[i]);
	free(a->texts.v);
	free(a->words);
}

static void print_opts(const struct command *cmd, const struct opt *o, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char left[64];

		if (cmd->no_json && o[i].at == offsetof(struct args, json))
			continue;
		(void)snprintf(left, sizeof(left), "%c%c%s --%s%s%s", o[i].letter ? '-' : ' ',
			       o[i].letter ? o[i].letter : ' ', o[i].letter ? "," : " ", o[i].name,
			       o[i].value ? " " : "", o[i].value ? o[i].value : "");

		printf("  %-26s ", left);
		print_wrapped(stdout, 3 + (strlen(left) > 26 ? strlen(left) : 26), o[i].help);
	}
}

void opt_print_help(const struct command *cmd)
{
	char line[256];

	(void)snprintf(line, sizeof(line), "agentboxctl %s [options]%s%s", cmd->name, *cmd->words ? " " : "", cmd->words);
	printf("usage: ");
	print_wrapped(stdout, strlen("usage: "), line);
	print_wrapped(stdout, 0, cmd->help);
	printf("\noptions:\n");
	print_opts(cmd, cmd->opts, cmd->n_opts);
	print_opts(cmd, opt_globals, opt_n_globals);
}
