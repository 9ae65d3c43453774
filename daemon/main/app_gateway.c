/* SPDX-License-Identifier: MIT */
/* The gateway: its tokens, its listeners, and that no account leads back to it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/auth/token.h"
#include "daemon/cloud/account.h"
#include "daemon/common/obs/log.h"
#include "daemon/gateway/gateway.h"
#include "daemon/main/app_impl.h"
#include "daemon/main/gateway_address.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "proto/cloud/link.h"

#define SECRET_FILE "gateway-secret"

static const char *get(const struct app *a, const char *key)
{
	return conf_get(a->conf, "gateway", NULL, key);
}

int app_tokens_new(struct app *a)
{
	struct tokens_options o = { .loop = a->loop, .store = a->store, .sha256 = cloud_sha256,
				    .rows_are_old = store_doubt(a->store) == STORE_OLD };
	int r = tokens_new(&o, &a->tokens);

	if (!r)
		r = templates_new(a->store, &a->templates);
	if (!r)
		return 0;
	fprintf(stderr, "agentboxd: loading the gateway's tokens and templates: %s\n", strerrordesc_np(-r));
	return APP_EXIT_UNAVAILABLE;
}

int app_tokens_start(struct app *a)
{
	tokens_start(a->tokens);
	return 0;
}

static char *page_link(void *user, const struct principal *who, int64_t *ret_expires_at_ms)
{
	const struct app *a = user;
	char path[GATEWAY_PAGE_LINK];

	gateway_page_link(a->gateway, who, path);
	*ret_expires_at_ms = clock_wall_ms() + PAGE_TICKET_S * 1000;
	return str_printf("%s%s", a->gateway_url, path);
}

int app_token_service_add(struct app *a)
{
	a->svc_token.tokens = a->tokens;
	a->svc_token.page_link = page_link;
	a->svc_token.user = a;
	return svc_token_add(a->server, &a->svc_token);
}

/* --- listeners --- */

static int say_taken(const char *address, uint16_t port, int r, bool is_kept, const struct app *a)
{
	if (is_kept)
		fprintf(stderr, "agentboxd: gateway: port %u of %s, which %s/%s keeps, cannot be had: %s; end the program that has "
				"it, or set [gateway] listen (none: no gateway)\n",
			port, address, a->state_dir, GATEWAY_PORT_FILE, strerrordesc_np(-r));
	else
		fprintf(stderr, "agentboxd: [gateway] listen: port %u of %s cannot be had: %s\n", port, address, strerrordesc_np(-r));
	return r == -EADDRINUSE ? APP_EXIT_BUSY : APP_EXIT_CONFIG;
}

static int listen_on(struct app *a, const char *address, uint16_t port, const char *shown)
{
	struct gateway_listen l = { .tls = a->gateway_tls, .shown = shown };
	int r = 0;

	l.fd = app_gateway_kept_take(a, address, port);
	if (l.fd < 0)
		r = gateway_bind(address, port, &l.fd);
	if (r < 0)
		return r;
	app_gateway_kept_add(a, l.fd);
	return gateway_listen(a->gateway, &l);
}

/* Both families, so that nobody else can be "localhost" for the other one; without IPv6 there is only one. */
static int listen_localhost(struct app *a, uint16_t port, bool is_kept)
{
	char shown[64];
	int r;

	snprintf(shown, sizeof(shown), "http%s://localhost:%u", a->gateway_tls ? "s" : "", port);
	r = listen_on(a, "127.0.0.1", port, shown);
	if (r == -EADDRNOTAVAIL && is_kept) {
		log_warn("gateway", "error=\"this machine has no loopback address\" action=\"no gateway\"");
		return 0;
	}
	if (r < 0)
		return say_taken("127.0.0.1", port, r, is_kept, a);
	free(a->gateway_url);
	a->gateway_url = strdup(shown);
	if (!a->gateway_url)
		return APP_EXIT_UNAVAILABLE;
	r = listen_on(a, "::1", port, shown);
	if (r < 0 && r != -EADDRNOTAVAIL && r != -EAFNOSUPPORT)
		return say_taken("::1", port, r, is_kept, a);
	return 0;
}

static int listen_kept(struct app *a)
{
	uint16_t port;
	int r = gateway_kept_port(a->state_dir, &port);

	if (!r)
		return listen_localhost(a, port, true);
	fprintf(stderr, "agentboxd: gateway: %s/%s: %s\n", a->state_dir, GATEWAY_PORT_FILE,
		r == -EBADMSG ? "holds no port; write one into it, or remove it for a new one" : strerrordesc_np(-r));
	return APP_EXIT_CONFIG;
}

static int listen_address(struct app *a, const struct host_port *at)
{
	bool is_v6 = strchr(at->host, ':');
	char *shown = str_printf("http%s://%s%s%s:%u", a->gateway_tls ? "s" : "", is_v6 ? "[" : "", at->host, is_v6 ? "]" : "",
				 at->port);
	int r = shown ? listen_on(a, at->host, at->port, shown) : -ENOMEM;

	if (r < 0) {
		free(shown);
		return say_taken(at->host, at->port, r, false, a);
	}
	if (a->gateway_url)
		free(shown);
	else
		a->gateway_url = shown;
	return 0;
}

static int listen_set(struct app *a)
{
	struct host_port v[GATEWAY_ADDRESSES_MAX];
	struct status why = STATUS_OK;
	size_t n;
	int r = 0;

	if (gateway_addresses_parse(get(a, "listen"), v, &n, &why) < 0)
		return APP_EXIT_CONFIG;		/* app_check_conf() has said it */
	for (size_t i = 0; i < n && !r; i++)
		r = str_eq(v[i].host, "localhost") ? listen_localhost(a, v[i].port, false) : listen_address(a, &v[i]);
	return r;
}

/* Whoever can open its file may connect; what counts is the token. */
static int listen_socket(struct app *a)
{
	struct rpc_socket_options where = { .path = get(a, "socket"), .mode = 0666, .gid = (gid_t)-1,
					    .dir_mode = a->user_mode ? 0700 : 0755 };
	struct gateway_listen l = { .is_unix = true };
	struct status why = STATUS_OK;
	char *shown;
	int r = rpc_socket_open(&where, &a->gateway_socket, &why);

	if (r) {
		fprintf(stderr, "agentboxd: [gateway] socket: %s\n", why.text);
		return r == RPC_SOCKET_BUSY ? APP_EXIT_BUSY : APP_EXIT_CONFIG;
	}
	shown = str_printf("unix:%s", where.path);
	l.fd = rpc_socket_take_fd(a->gateway_socket);
	l.shown = shown ? shown : "unix";
	r = gateway_listen(a->gateway, &l);
	free(shown);
	a->gateway_path = strdup(where.path);
	return r < 0 || !a->gateway_path ? APP_EXIT_UNAVAILABLE : 0;
}

static int make_listeners(struct app *a)
{
	const char *listen = get(a, "listen");
	size_t n_passed;
	int r;

	app_gateway_kept_read(a);
	r = app_gateway_listen_passed(a, &n_passed);
	if (r || n_passed)
		return r;
	if (str_is_empty(listen) && a->user_mode)
		r = listen_kept(a);
	else if (!str_eq(listen, "none"))
		r = listen_set(a);
	if (!r && !str_is_empty(get(a, "socket")))
		r = listen_socket(a);
	return r;
}

static int make_gateway_tls(struct app *a)
{
	struct tls_server_options o = { .cert_file = get(a, "tls_cert"), .key_file = get(a, "tls_key") };
	struct status why = STATUS_OK;

	if (str_is_empty(o.cert_file))
		return 0;
	if (tls_server_new(&o, &a->gateway_tls, &why) == 0)
		return 0;
	fprintf(stderr, "agentboxd: [gateway] %s\n", status_ok(&why) ? "out of memory" : why.text);
	return APP_EXIT_CONFIG;
}

/* --- no way back to itself --- */

static bool leads_here(const struct app *a, const char *url)
{
	struct url u;
	bool yes;

	if (str_is_empty(url) || url_parse(url, &u) < 0)
		return false;
	yes = gateway_is_own(a->gateway, u.host, u.port);
	url_fini(&u);
	return yes;
}

bool app_gateway_is_account(const struct app *a, const struct conf *c, const char *account, const char **ret_key)
{
	static const char *const keys[] = { "api_url", "sandbox_url" };

	for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
		*ret_key = keys[k];
		if (leads_here(a, conf_get(c, "account", account, keys[k])))
			return true;
	}
	return false;
}

static int check_loops(const struct app *a)
{
	const char *key;

	for (size_t i = 0; !a->local_mode && i < a->n_accounts; i++) {
		if (!app_gateway_is_account(a, a->conf, a->accounts[i].name, &key))
			continue;
		fprintf(stderr, "agentboxd: [account %s] %s: %s is this daemon's own gateway; name the cloud's address, or start it without "
				"what agentboxctl env sets\n", a->accounts[i].name, key, conf_get(a->conf, "account", a->accounts[i].name, key));
		return APP_EXIT_CONFIG;
	}
	return 0;
}

/* STATE/gateway-secret, made once: the tokens that are made of it are good for as long as it is there. */
static int take_secret(struct app *a)
{
	scoped(fd_closep) int dir = open(a->state_dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	char *text = NULL;
	size_t n = 0;
	int r = dir < 0 ? -errno : fd_read_file(dir, SECRET_FILE, sizeof(a->gateway_secret), &text, &n);

	if (r == -ENOENT) {
		rng_system(a->gateway_secret, sizeof(a->gateway_secret));
		return fd_write_file(dir, SECRET_FILE, a->gateway_secret, sizeof(a->gateway_secret), 0600);
	}
	if (!r && n == sizeof(a->gateway_secret))
		memcpy(a->gateway_secret, text, n);
	else if (!r)
		r = -EBADMSG;
	free(text);
	return r;
}

static const uint8_t *own_secret(struct app *a)
{
	int r = take_secret(a);

	if (!r)
		return a->gateway_secret;
	log_warn("gateway", "file=%s/" SECRET_FILE " error=%s action=\"no access tokens are made\"", log_q(a->state_dir),
		 log_q(strerrordesc_np(-r)));
	return NULL;
}

/* At each call, so that a reload counts at once. */
static void read_uid(void *user, uid_t uid, struct gateway_uid *ret)
{
	const struct app *a = user;
	const char *section = app_uid_instance(a->conf, uid);

	ret->passes = pass_level_find(conf_get(a->conf, "uid", app_uid_section(a->conf, section, "relay"), "relay"));
	ret->account = conf_get(a->conf, "uid", app_uid_section(a->conf, section, "account"), "account");
}

int app_gateway_new(struct app *a)
{
	struct gateway_account accounts[APP_ACCOUNTS_MAX];
	struct gateway_options o = {
		.loop = a->loop, .core = a->core, .tokens = a->tokens, .accounts = accounts, .n_accounts = a->n_accounts,
		.own_uid = geteuid(), .whole_account = a->user_mode,
		.metadata_words = conf_get_bool(a->conf, "gateway", NULL, "metadata_words"),
		.commands = conf_get_bool(a->conf, "gateway", NULL, "durable_commands") ? a->commands : NULL,
		.quotas = a->quotas, .secret = own_secret(a), .read_uid = read_uid, .rules = &a->access, .owners = a->owners, .users = a->users,
		.templates = a->templates,
		.view = app_page_view, .view_cancel = app_page_cancel, .user = a,
	};
	int r;

	app_limits_of_gateway(a->conf, &o.limits);
	for (size_t i = 0; i < a->n_accounts; i++)
		accounts[i] = (struct gateway_account){ .name = a->accounts[i].name, .cloud = a->accounts[i].cloud };
	if (gateway_new(&o, &a->gateway) < 0) {
		fprintf(stderr, "agentboxd: out of memory\n");
		return APP_EXIT_UNAVAILABLE;
	}
	r = make_gateway_tls(a);
	if (!r)
		r = make_listeners(a);
	a->svc_token.url = a->gateway_url;
	a->svc_token.socket = a->gateway_path;
	if (r)
		return r;
	app_gateway_kept_end(a);
	return check_loops(a);
}

void app_gateway_collect(const struct app *a, struct daemon_gateway *ret)
{
	struct gateway_counts n;

	gateway_counts(a->gateway, &n);
	*ret = (struct daemon_gateway){
		.url = a->gateway_url ? a->gateway_url : "", .socket = a->gateway_path ? a->gateway_path : "",
		.connections = n.connections, .calls = n.controls, .relays = n.relays, .requests = n.requests,
		.refused = n.refused, .bytes_up = n.relayed_up, .bytes_down = n.relayed_down,
	};
}

void app_gateway_free(struct app *a)
{
	a->gateway = gateway_free(a->gateway);
	a->gateway_socket = rpc_socket_free(a->gateway_socket);
	a->gateway_tls = tls_server_unref(a->gateway_tls);
	free(a->gateway_url);
	free(a->gateway_path);
	a->gateway_url = a->gateway_path = NULL;
}
