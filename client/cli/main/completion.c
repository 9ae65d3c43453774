/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl completion: what a shell completes the command line with, made from the tables of the options and of the
 * commands. From the words of a command's usage line come its subcommands ("ls [ID] | acquire ID"), its choices ("TERM|KILL"),
 * and whether a sandbox's id ("ID") or a place in it ("ID:PATH") may stand there; everything else is a file.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/main/commands.h"

enum target { TARGET_FILE, TARGET_ID, TARGET_PATH };

/* One of the alternatives of a usage line, or one word of it. */
struct piece {
	const char *at;
	size_t n;
};

/* The pieces one after the other; starts with *ret = { text, 0 }. */
static bool next_piece(struct piece *ret, const char *between)
{
	const char *end;

	ret->at += ret->n;
	if (!strncmp(ret->at, between, strlen(between)))
		ret->at += strlen(between);
	if (!*ret->at)
		return false;
	end = strstr(ret->at, between);
	ret->n = end ? (size_t)(end - ret->at) : strlen(ret->at);
	return true;
}

/* The subcommand that an alternative begins with, of no length without one. */
static struct piece subcommand(const struct piece *alternative)
{
	size_t n = 0;

	while (n < alternative->n && islower((unsigned char)alternative->at[n]))
		n++;
	return (struct piece){ alternative->at, n };
}

static enum target target_of(const struct piece *alternative)
{
	struct piece word = { alternative->at, 0 };

	while (next_piece(&word, " ") && word.at < alternative->at + alternative->n) {
		const char *id = word.at + strspn(word.at, "[");

		if (!strncmp(id, "ID", 2))
			return id[2] == ':' ? TARGET_PATH : TARGET_ID;
	}
	return TARGET_FILE;
}

static void print_subcommands(const struct command *c)
{
	struct piece alternative = { c->words, 0 };

	while (next_piece(&alternative, " | ")) {
		struct piece s = subcommand(&alternative);

		printf("%.*s%s", (int)s.n, s.at, s.n ? " " : "");
	}
}

/* "kill|pause" as words; text that is no list of choices is nothing. */
static void print_choices(const char *text)
{
	struct piece word = { text, 0 };

	while (text && next_piece(&word, " ")) {
		struct piece choice = { word.at, 0 };

		if (word.n == 1 || !memchr(word.at, '|', word.n))
			continue;
		while (next_piece(&choice, "|") && choice.at < word.at + word.n)
			printf("%.*s ", (int)strcspn(choice.at, "| "), choice.at);
	}
}

/* Between alternatives the bar stands alone. */
static bool has_choices(const char *text)
{
	const char *bar = strchr(text, '|');

	return bar && bar[1] != ' ';
}

/* --- options --- */

typedef void opt_printer(const struct command *c, const struct opt *o);

/* All that may stand behind the command, or with NULL before it. */
static void each_opt(const struct command *c, opt_printer *print)
{
	for (size_t i = 0; c && i < c->n_opts; i++)
		print(c, &c->opts[i]);
	for (size_t i = 0; i < opt_n_globals; i++)
		if (!c || !c->no_json || opt_globals[i].at != offsetof(struct args, json))
			print(c, &opt_globals[i]);
}

/* The first line, inside of single quotes: `quote` stands for one, and `escaped` characters get a backslash. */
static void print_quoted(const char *text, const char *quote, const char *escaped)
{
	for (; *text && *text != '\n'; text++) {
		if (*text == '\'')
			fputs(quote, stdout);
		else if (strchr(escaped, *text))
			printf("\\%c", *text);
		else
			putchar(*text);
	}
}

/* --- bash --- */

static void bash_opt(const struct command *c, const struct opt *o)
{
	if (o->letter)
		printf("-%c ", o->letter);
	printf("--%s ", o->name);
}

static void bash_valued(const struct command *c, const struct opt *o)
{
	if (o->kind != OPT_FLAG)
		bash_opt(c, o);
}

static void bash_choices(const struct command *c, const struct opt *o)
{
	if (!o->value || !strchr(o->value, '|'))
		return;
	printf("\t%s:--%s) choices='", c->name, o->name);
	print_choices(o->value);
	puts("' ;;");
}

static void bash_command(const struct command *c)
{
	printf("\t%s)\n\t\topts='", c->name);
	each_opt(c, bash_opt);
	printf("' valued=' ");
	each_opt(c, bash_valued);
	printf("'\n\t\tsubs='");
	print_subcommands(c);
	printf("' words='");
	print_choices(c->words);
	printf("' program=%zu ;;\n", !c->takes_rest ? 0 : c->min_words ? c->min_words : 1);
}

static void print_names(void)
{
	for (size_t i = 0; i < n_commands; i++)
		printf("%s ", commands[i]->name);
}

/* The patterns of "COMMAND SUBCOMMAND" where this may stand. */
static void print_targets(enum target target)
{
	const char *between = "";

	for (size_t i = 0; i < n_commands; i++) {
		struct piece alternative = { commands[i]->words, 0 };

		while (next_piece(&alternative, " | ")) {
			struct piece s = subcommand(&alternative);

			if (target_of(&alternative) != target)
				continue;
			printf("%s'%s %.*s'", between, commands[i]->name, (int)s.n, s.at);
			between = "|";
		}
	}
}

static const char bash_skip[] =
	"_agentboxctl_sandboxes()\n{\n"
	"\tagentboxctl \"${socket[@]}\" --wait 0s ls --cached --format '{id} {name}' 2>/dev/null\n}\n"
	"# An option at i: i goes on to its value, which may stand behind a =.\n"
	"_agentboxctl_skip()\n{\n"
	"\t[[ $valued == *\" ${COMP_WORDS[i]} \"* ]] || return\n"
	"\t[[ ${COMP_WORDS[++i]} == = ]] && ((i++))\n}\n";
static const char bash_command_word[] =
	"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	"\t\tcase ${COMP_WORDS[i]} in\n"
	"\t\t-s|--socket) _agentboxctl_skip; socket=(-s \"${COMP_WORDS[i]}\") ;;\n"
	"\t\t-*) _agentboxctl_skip ;;\n"
	"\t\t*) cmd=${COMP_WORDS[i]}; break ;;\n"
	"\t\tesac\n\tdone\n";
static const char bash_words[] =
	"\tfor ((i++; i < COMP_CWORD && (!program || n < program); i++)); do\n"
	"\t\tcase ${COMP_WORDS[i]} in\n"
	"\t\t-*) _agentboxctl_skip ;;\n"
	"\t\t*) ((n++ == 0)) && [[ $subs ]] && sub=${COMP_WORDS[i]} ;;\n"
	"\t\tesac\n\tdone\n"
	"\tif ((program && n >= program)); then compopt -o default; return; fi\n"
	"\tif [[ $cur == = ]]; then cur=; fi\n"
	"\tif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n";
static const char bash_answers[] =
	"\tif [[ $valued == *\" $prev \"* ]]; then\n"
	"\t\tif [[ $choices ]]; then COMPREPLY=($(compgen -W \"$choices\" -- \"$cur\")); else compopt -o default; fi\n"
	"\t\treturn\n\tfi\n"
	"\tif [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$opts\" -- \"$cur\")); return; fi\n"
	"\tif [[ $subs && ! $sub ]]; then COMPREPLY=($(compgen -W \"$subs\" -- \"$cur\")); return; fi\n";
static const char bash_end[] =
	"\tif [[ $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); else compopt -o default; fi\n"
	"}\ncomplete -F _agentboxctl agentboxctl\n";

static void bash_options(void)
{
	fputs("\tcase $cmd in\n\t'')\n\t\topts='", stdout);
	each_opt(NULL, bash_opt);
	fputs("' subs='help ", stdout);
	print_names();
	fputs("' ;;\n\thelp)\n\t\tsubs='", stdout);
	print_names();
	puts("' ;;");
	for (size_t i = 0; i < n_commands; i++)
		bash_command(commands[i]);
	puts("\tesac");
}

static void print_bash(void)
{
	puts("# bash completion for agentboxctl, as `agentboxctl completion bash` prints it");
	fputs(bash_skip, stdout);
	fputs("_agentboxctl()\n{\n"
	      "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} socket=()\n"
	      "\tlocal i n=0 cmd= sub= opts= subs= words= choices= program=0 valued=' ", stdout);
	each_opt(NULL, bash_valued);
	printf("'\n\tCOMPREPLY=()\n%s", bash_command_word);
	bash_options();
	printf("%s\tcase $cmd:$prev in\n", bash_words);
	for (size_t i = 0; i < n_commands; i++)
		for (size_t k = 0; k < commands[i]->n_opts; k++)
			bash_choices(commands[i], &commands[i]->opts[k]);
	printf("\tesac\n%s\tcase \"$cmd $sub\" in\n\t", bash_answers);
	print_targets(TARGET_ID);
	fputs(") words+=\" $(_agentboxctl_sandboxes)\" ;;\n\t", stdout);
	print_targets(TARGET_PATH);
	printf(")\n\t\tif [[ $cur == : || $prev == : ]]; then return; fi\n\t\tcompopt -o nospace\n"
	       "\t\tCOMPREPLY=($(compgen -S : -W \"$(_agentboxctl_sandboxes)\" -- \"$cur\"))\n\t\treturn ;;\n"
	       "\tesac\n%s", bash_end);
}

/* --- zsh --- */

static void zsh_value(const struct opt *o)
{
	putchar(':');
	print_quoted(o->value, "'\\''", "[]:\\");
	if (!strchr(o->value, '|')) {
		fputs(":_files", stdout);
		return;
	}
	fputs(":(", stdout);
	print_choices(o->value);
	putchar(')');
}

static void zsh_opt(const struct command *c, const struct opt *o)
{
	const char *again = o->kind == OPT_PAIR || o->kind == OPT_WORDS ? "*" : "";

	if (o->letter)
		printf(" \\\n\t\t'%s'{-%c,--%s}'[", again, o->letter, o->name);
	else
		printf(" \\\n\t\t'%s--%s[", again, o->name);
	print_quoted(o->help, "'\\''", "[]:\\");
	putchar(']');
	if (o->kind != OPT_FLAG)
		zsh_value(o);
	putchar('\'');
}

static void zsh_words(const struct command *c)
{
	if (islower((unsigned char)*c->words)) {
		fputs(" \\\n\t\t'1:subcommand:(", stdout);
		print_subcommands(c);
		fputs(")'", stdout);
	}
	if (c->takes_rest && c->min_words)
		fputs(" \\\n\t\t'1:sandbox:_agentboxctl_sandboxes'", stdout);
	if (c->takes_rest)
		puts(" \\\n\t\t'(-)*::program:_normal' ;;");
	else
		puts(" \\\n\t\t'*:argument:_agentboxctl_argument' ;;");
}

/* The subcommand is the first word behind the command. */
static void zsh_argument(void)
{
	puts("_agentboxctl_sandboxes()\n{\n"
	     "\tcompadd \"$@\" -- ${=\"$(agentboxctl --wait 0s ls --cached --format '{id} {name}' 2>/dev/null)\"}\n}\n"
	     "_agentboxctl_argument()\n{\n"
	     "\tlocal sub=\n\tcase $words[1] in");
	for (size_t i = 0; i < n_commands; i++)
		if (islower((unsigned char)*commands[i]->words))
			printf("\t%s) sub=${${(@)words[2,CURRENT-1]:#-*}[1]} ;;\n", commands[i]->name);
	for (size_t i = 0; i < n_commands; i++) {
		if (!has_choices(commands[i]->words))
			continue;
		printf("\t%s) compadd ", commands[i]->name);
		print_choices(commands[i]->words);
		puts(";;");
	}
	fputs("\tesac\n\tcase \"$words[1] $sub\" in\n\t", stdout);
	print_targets(TARGET_ID);
	fputs(") _agentboxctl_sandboxes ;;\n\t", stdout);
	print_targets(TARGET_PATH);
	puts(") _agentboxctl_sandboxes -S : ;;\n\t*) _files ;;\n\tesac\n}");
}

static void print_zsh(void)
{
	puts("#compdef agentboxctl\n# zsh completion for agentboxctl, as `agentboxctl completion zsh` prints it");
	zsh_argument();
	puts("_agentboxctl()\n{\n"
	     "\tlocal context state state_descr line curcontext=$curcontext\n"
	     "\tlocal -a commands\n\ttypeset -A opt_args\n\tcommands=(\n\t\t'help:Says more about a command.'");
	for (size_t i = 0; i < n_commands; i++) {
		printf("\t\t'%s:", commands[i]->name);
		print_quoted(commands[i]->help, "'\\''", ":\\");
		puts("'");
	}
	fputs("\t)\n\t_arguments -C", stdout);
	each_opt(NULL, zsh_opt);
	puts(" \\\n\t\t'1:command:->command' '*::argument:->argument' && return\n"
	     "\tif [[ $state == command || $words[1] == help ]]; then _describe command commands; return; fi\n"
	     "\tcase $words[1] in");
	for (size_t i = 0; i < n_commands; i++) {
		printf("\t%s)\n\t\t_arguments -S", commands[i]->name);
		each_opt(commands[i], zsh_opt);
		zsh_words(commands[i]);
	}
	puts("\tesac\n}\n"
	     "if [[ $funcstack[1] == _agentboxctl ]]; then _agentboxctl \"$@\"; else compdef _agentboxctl agentboxctl; fi");
}

/* --- fish --- */

static const char fish_functions[] =
	"# The words behind agentboxctl that are no options.\n"
	"function __agentboxctl_words\n"
	"\tset -l skip 0\n"
	"\tfor t in (commandline -opc)[2..-1]\n"
	"\t\tif test $skip = 1\n\t\t\tset skip 0\n"
	"\t\telse if contains -- $t $__agentboxctl_valued\n\t\t\tset skip 1\n"
	"\t\telse if not string match -q -- '-*' $t\n\t\t\tprintf '%s\\n' $t\n"
	"\t\tend\n\tend\nend\n"
	"function __agentboxctl_at\n"
	"\tset -l w (__agentboxctl_words)\n"
	"\ttest \"$w[1]\" = \"$argv[1]\"; and begin; test (count $argv) = 1; or test \"$w[2]\" = \"$argv[2]\"; end\nend\n"
	"function __agentboxctl_first\n"
	"\ttest (count (__agentboxctl_words)) = $argv[1]\nend\n"
	"function __agentboxctl_sandboxes\n"
	"\tagentboxctl --wait 0s ls --cached --format '{id}\\t{name}' 2>/dev/null\n"
	"\tagentboxctl --wait 0s ls --cached --format '{name}' 2>/dev/null | string match -v ''\nend\n"
	"complete -c agentboxctl -f\n";

static void fish_quoted(const char *text)
{
	putchar('\'');
	print_quoted(text, "\\'", "\\");
	putchar('\'');
}

static void fish_opt(const struct command *c, const struct opt *o)
{
	printf("complete -c agentboxctl -n '%s%s'", c ? "__agentboxctl_at " : "__agentboxctl_first 0", c ? c->name : "");
	if (o->letter)
		printf(" -s %c", o->letter);
	printf(" -l %s -d ", o->name);
	fish_quoted(o->help);
	if (o->kind != OPT_FLAG && !strchr(o->value, '|'))
		fputs(" -r -F", stdout);
	if (o->kind != OPT_FLAG && strchr(o->value, '|')) {
		fputs(" -x -a '", stdout);
		print_choices(o->value);
		putchar('\'');
	}
	putchar('\n');
}

static void fish_words(const struct command *c)
{
	static const char *const what[] = {
		[TARGET_FILE] = "-F", [TARGET_ID] = "-a '(__agentboxctl_sandboxes)'",
		[TARGET_PATH] = "-a '(__agentboxctl_sandboxes | string replace -r \"(\\t|\\$)\" \":\\$1\")'",
	};
	struct piece alternative = { c->words, 0 };

	if (islower((unsigned char)*c->words)) {
		printf("complete -c agentboxctl -n '__agentboxctl_first 1; and __agentboxctl_at %s' -a '", c->name);
		print_subcommands(c);
		puts("'");
	}
	while (next_piece(&alternative, " | ")) {
		struct piece s = subcommand(&alternative);

		printf("complete -c agentboxctl -n '__agentboxctl_at %s %.*s' %s\n", c->name, (int)s.n, s.at,
		       what[target_of(&alternative)]);
	}
	if (has_choices(c->words)) {
		printf("complete -c agentboxctl -n '__agentboxctl_at %s' -a '", c->name);
		print_choices(c->words);
		puts("'");
	}
}

static void print_fish(void)
{
	fputs("# fish completion for agentboxctl, as `agentboxctl completion fish` prints it\nset -g __agentboxctl_valued ", stdout);
	each_opt(NULL, bash_valued);
	printf("\n%s", fish_functions);
	each_opt(NULL, fish_opt);
	fputs("complete -c agentboxctl -n '__agentboxctl_at help' -a '", stdout);
	print_names();
	puts("'\ncomplete -c agentboxctl -n '__agentboxctl_first 0' -a help -d 'Says more about a command.'");
	for (size_t i = 0; i < n_commands; i++) {
		printf("complete -c agentboxctl -n '__agentboxctl_first 0' -a %s -d ", commands[i]->name);
		fish_quoted(commands[i]->help);
		putchar('\n');
		each_opt(commands[i], fish_opt);
		fish_words(commands[i]);
	}
}

/* --- the command --- */

static const struct {
	const char *name;
	void (*print)(void);
} shells[] = { { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };

static bool is_offline(const struct args *a)
{
	return true;
}

static int cmd_completion_run(struct cli *cli)
{
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		if (!strcmp(cli->args.words[0], shells[i].name)) {
			shells[i].print();
			return EXIT_OK;
		}
	}
	return usage(cli->command, "'%s' is no shell that this knows; there are %s", cli->args.words[0], cli->command->words);
}

const struct command cmd_completion = {
	.name = "completion",
	.words = "bash | zsh | fish",
	.help = "Prints what a shell completes command lines of agentboxctl with.",
	.min_words = 1,
	.max_words = 1,
	.no_json = true,
	.is_offline = is_offline,
	.run = cmd_completion_run,
};
