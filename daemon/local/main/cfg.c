/* SPDX-License-Identifier: MIT */
#include "daemon/local/main/cfg.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/fd.h"
#include "proto/base/host.h"
#include "proto/base/str.h"

enum opt {
	OPT_LISTEN = 256,
	OPT_TLS_LISTEN,
	OPT_CERT,
	OPT_KEY,
	OPT_AUTO_TLS,
	OPT_STATE_DIR,
	OPT_API_KEY_FILE,
	OPT_READY_FD,
	OPT_CAPABILITIES,
	OPT_TEMPLATE,
	OPT_MAX_SANDBOXES,
	OPT_MAX_LENGTH,
	OPT_MEMORY,
	OPT_CPUS,
	OPT_EXIT_WHEN_IDLE,
	OPT_DOMAIN,
	OPT_LOG_LEVEL,
	OPT_NO_IDMAP,
	OPT_NO_CGROUP,
	OPT_NO_EGRESS,
	OPT_EGRESS_TO,
	OPT_VERSION,
	OPT_HELP,
};

static const struct option options[] = {
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "tls-listen", required_argument, NULL, OPT_TLS_LISTEN },
	{ "cert", required_argument, NULL, OPT_CERT },
	{ "key", required_argument, NULL, OPT_KEY },
	{ "auto-tls", no_argument, NULL, OPT_AUTO_TLS },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "api-key-file", required_argument, NULL, OPT_API_KEY_FILE },
	{ "ready-fd", required_argument, NULL, OPT_READY_FD },
	{ "capabilities", no_argument, NULL, OPT_CAPABILITIES },
	{ "template", required_argument, NULL, OPT_TEMPLATE },
	{ "max-sandboxes", required_argument, NULL, OPT_MAX_SANDBOXES },
	{ "max-length", required_argument, NULL, OPT_MAX_LENGTH },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "cpus", required_argument, NULL, OPT_CPUS },
	{ "exit-when-idle", required_argument, NULL, OPT_EXIT_WHEN_IDLE },
	{ "domain", required_argument, NULL, OPT_DOMAIN },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "no-idmap", no_argument, NULL, OPT_NO_IDMAP },
	{ "no-cgroup", no_argument, NULL, OPT_NO_CGROUP },
	{ "no-egress", no_argument, NULL, OPT_NO_EGRESS },
	{ "egress-to", required_argument, NULL, OPT_EGRESS_TO },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

static const struct template_option {
	const char *name;
	size_t offset;		/* of the string in struct template_run */
} template_options[] = {
	{ "start=", offsetof(struct template_run, start) },
	{ "ready=", offsetof(struct template_run, ready) },
	{ "user=", offsetof(struct template_run, user) },
	{ "workdir=", offsetof(struct template_run, workdir) },
};

static const char help[] =
	"usage: agentbox-local --listen ADDR:PORT --state-dir DIR [option…]\n"
	"       agentbox-local --capabilities [--state-dir DIR]\n"
	"\n"
	"Serves the sandbox cloud's API with sandboxes on this machine.\n"
	"\n"
	"  --listen ADDR:PORT       plain HTTP/1.1 and HTTP/2; port 0 takes a free one\n"
	"  --tls-listen ADDR:PORT   the same over TLS\n"
	"  --cert FILE --key FILE   certificate (with its chain) and key for it, PEM\n"
	"  --auto-tls               make a CA and a certificate for localhost in DIR instead\n"
	"  --state-dir DIR          everything that is kept; one process at a time\n"
	"  --api-key-file FILE      lines \"KEY [TEAM]\"; default DIR/api-key, made if missing\n"
	"  --ready-fd N             write one line of JSON with the addresses there, then close it\n"
	"  --capabilities           print what this machine allows and what is not supported\n"
	"  --template NAME=PATH[,start=CMD][,ready=CMD][,user=U][,workdir=D]\n"
	"                           one more template: a root file system, a tar of one, or an image's folder;\n"
	"                           start runs in each sandbox, which is made once ready ended with 0\n"
	"  --max-sandboxes N        of a team at a time (100)\n"
	"  --max-length SECONDS     of a sandbox's life (86400)\n"
	"  --memory MB, --cpus N    of a sandbox (0 = no limit)\n"
	"  --exit-when-idle SECONDS end that long after the last sandbox and client are gone\n"
	"  --domain NAME            of the answers (localhost:PORT)\n"
	"  --log-level LEVEL        error, warn, info or debug (info)\n"
	"  --no-egress              sandboxes have a loopback interface and no way out\n"
	"  --egress-to RANGE        they may reach this, too: addresses that are not the internet's\n"
	"  --no-idmap, --no-cgroup  do as on a machine that lacks them\n"
	"  --version, --help\n";

int cfg_parse_addr(const char *s, struct cfg_addr *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&ret->sa;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&ret->sa;
	struct host_port hp;
	const char *host;

	if (host_port_parse(s, strlen(s), &hp) < 0 || !hp.has_port)
		return -EINVAL;
	host = str_eq(hp.host, "localhost") ? "127.0.0.1" : hp.host;
	*ret = (struct cfg_addr){ .set = true };
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(hp.port);
		ret->len = sizeof(*v4);
		return 0;
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(hp.port);
		ret->len = sizeof(*v6);
		return 0;
	}
	return -EINVAL;
}

static int bad(const char *option, const char *value, const char *want)
{
	fprintf(stderr, "agentbox-local: --%s %s: %s\n", option, value, want);
	return -EINVAL;
}

static int take_u32(const char *option, const char *value, uint32_t max, uint32_t *ret)
{
	uint64_t n;

	if (str_u64(value, strlen(value), max, &n) < 0) {
		fprintf(stderr, "agentbox-local: --%s %s: not a number up to %u\n", option, value,
			max);
		return -EINVAL;
	}
	*ret = (uint32_t)n;
	return 0;
}

static int take_addr(const char *option, const char *value, struct cfg_addr *ret)
{
	if (!cfg_parse_addr(value, ret))
		return 0;
	return bad(option, value, "not ADDRESS:PORT with a numeric address");
}

/* Where the next option of a template begins: at a comma before one of its names. NULL: nowhere. */
static char *next_template_option(char *s)
{
	while ((s = strchr(s, ','))) {
		for (size_t i = 0; i < ARRAY_SIZE(template_options); i++)
			if (str_starts(s + 1, template_options[i].name))
				return s;
		s++;
	}
	return NULL;
}

/* "start=…", up to the next option, whose comma becomes a NUL. */
static int take_template_option(char *s, struct template_run *run)
{
	const struct template_option *o = template_options;
	const char **to, *value;

	while (!str_starts(s, o->name))
		o++;
	to = (const char **)(void *)((char *)run + o->offset);
	value = s + strlen(o->name);
	if (!*value || *to)
		return bad("template", s, *to ? "an option is given twice" : "an option of it says nothing");
	*to = value;
	return 0;
}

/* Cuts the options off the path. */
static int take_template_options(char *path, struct template_run *run)
{
	char *s = next_template_option(path);

	while (s) {
		char *next = next_template_option(s + 1);
		int r;

		*s = '\0';
		if (next)
			*next = '\0';
		r = take_template_option(s + 1, run);
		if (r < 0)
			return r;
		s = next;
	}
	return 0;
}

static int take_template(struct cfg *c, char *value)
{
	char *eq = strchr(value, '=');
	size_t n = eq ? (size_t)(eq - value) : 0;

	if (!n || n > 60 || !eq[1] || eq[1] == ',' ||
	    strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789-_") != n || *value == '-' ||
	    *value == '_')
		return bad("template", value, "not NAME=PATH with NAME of [a-z0-9][a-z0-9-_]*");
	if (c->n_templates == ARRAY_SIZE(c->templates))
		return bad("template", value, "too many templates");
	*eq = 0;
	c->templates[c->n_templates] = (struct container_template){ .name = value, .path = eq + 1 };
	return take_template_options(eq + 1, &c->runs[c->n_templates++]);
}

static int take_egress_to(struct cfg *c, const char *value)
{
	struct egrule_net *n = &c->egress_to[c->n_egress_to];

	if (c->n_egress_to == ARRAY_SIZE(c->egress_to))
		return bad("egress-to", value, "too many of them");
	if (!egrule_net_parse(value, n))
		return bad("egress-to", value, "not an IPv4 address or range");
	c->n_egress_to++;
	return 0;
}

static int print(const char *text)
{
	int r = fd_print("agentbox-local", text);

	return r < 0 ? r : CFG_DONE;
}

static int take_option(struct cfg *c, int o, char *arg)
{
	uint32_t n = 0;
	int r = 0;

	switch (o) {
	case OPT_LISTEN:
		return take_addr("listen", arg, &c->listen);
	case OPT_TLS_LISTEN:
		return take_addr("tls-listen", arg, &c->tls_listen);
	case OPT_CERT:
		c->cert_file = arg;
		return 0;
	case OPT_KEY:
		c->key_file = arg;
		return 0;
	case OPT_AUTO_TLS:
		c->auto_tls = true;
		return 0;
	case OPT_STATE_DIR:
		c->state_dir = arg;
		return 0;
	case OPT_API_KEY_FILE:
		c->api_key_file = arg;
		return 0;
	case OPT_READY_FD:
		r = take_u32("ready-fd", arg, 1 << 20, &n);
		c->ready_fd = (int)n;
		return r;
	case OPT_CAPABILITIES:
		c->capabilities = true;
		return 0;
	case OPT_TEMPLATE:
		return take_template(c, arg);
	case OPT_MAX_SANDBOXES:
		return take_u32("max-sandboxes", arg, 100000, &c->max_sandboxes);
	case OPT_MAX_LENGTH:
		return take_u32("max-length", arg, INT32_MAX, &c->max_length_s);
	case OPT_MEMORY:
		return take_u32("memory", arg, 1 << 24, &c->memory_mb);
	case OPT_CPUS:
		return take_u32("cpus", arg, 1024, &c->cpus);
	case OPT_EXIT_WHEN_IDLE:
		return take_u32("exit-when-idle", arg, INT32_MAX, &c->exit_when_idle_s);
	case OPT_DOMAIN:
		c->domain = arg;
		return 0;
	case OPT_LOG_LEVEL:
		return log_level_parse(arg, &c->log_level)
			       ? 0
			       : bad("log-level", arg, "not error, warn, info or debug");
	case OPT_NO_IDMAP:
		c->no_idmap = true;
		return 0;
	case OPT_NO_CGROUP:
		c->no_cgroup = true;
		return 0;
	case OPT_NO_EGRESS:
		c->no_egress = true;
		return 0;
	case OPT_EGRESS_TO:
		return take_egress_to(c, arg);
	case OPT_VERSION:
		return print("agentbox-local " AB_VERSION "\n");
	case OPT_HELP:
		return print(help);
	default:
		fputs("agentbox-local: try --help\n", stderr);
		return -EINVAL;
	}
}

static int check(const struct cfg *c)
{
	const char *why = NULL;

	if (c->capabilities)
		return 0;
	if (!c->listen.set && !c->tls_listen.set)
		why = "--listen or --tls-listen is needed";
	else if (!c->state_dir)
		why = "--state-dir is needed";
	else if (c->auto_tls && (c->cert_file || c->key_file))
		why = "--auto-tls and --cert exclude each other";
	else if (!c->cert_file != !c->key_file)
		why = "--cert and --key belong together";
	else if (c->tls_listen.set && !c->auto_tls && !c->cert_file)
		why = "--tls-listen needs --cert and --key, or --auto-tls";
	else if (!c->max_sandboxes || !c->max_length_s)
		why = "--max-sandboxes and --max-length must be at least 1";
	if (!why)
		return 0;
	fprintf(stderr, "agentbox-local: %s\n", why);
	return -EINVAL;
}

static int no_value(int option)
{
	for (const struct option *o = options; o->name; o++)
		if (o->val == option)
			fprintf(stderr, "agentbox-local: --%s needs a value\n", o->name);
	return -EINVAL;
}

int cfg_parse(int argc, char **argv, struct cfg *ret)
{
	struct cfg c = {
		.ready_fd = -1,
		.max_sandboxes = 100,
		.max_length_s = 86400,
		.memory_mb = 512,
		.cpus = 0,
		.log_level = LOG_LEVEL_INFO,
	};
	int o, r;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		r = optarg && !*optarg ? no_value(o) : take_option(&c, o, optarg);
		if (r)
			return r;
	}
	if (optind < argc)
		return bad("", argv[optind], "unexpected argument");
	r = check(&c);
	if (!r)
		*ret = c;
	return r;
}
