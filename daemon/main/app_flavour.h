/* SPDX-License-Identifier: MIT */
/* Which flavour of the cloud an account is of, by its configuration, the environment and its key. */
#ifndef AB_DAEMON_MAIN_APP_FLAVOUR_H
#define AB_DAEMON_MAIN_APP_FLAVOUR_H

#include "daemon/conf/conf.h"
#include "proto/cloud/flavour.h"

#define APP_ENV_MAX	32u	/* bytes of the name of an environment variable */
#define APP_FOREIGN_MAX 400u

/* Whether the SDKs' environment counts: for a daemon of many users only where no file (conf_file "") says how it is set up. */
bool app_takes_environment(bool user_mode, const char *conf_file);
/* The environment of the SDKs, for the first account. Only names of one flavour are read: of the
 * configured one, else AgentBox's if there is any, else E2B's, which then is the account's flavour. */
must_check int app_read_environment(struct conf *c);
/* The key of the environment, heap, or NULL; it is no longer in there, where it could be inherited or read in
 * /proc, and neither is the other flavour's. */
char *app_take_key(const struct conf *c, const char *account, char ret_name[APP_ENV_MAX]);
/* A key that does not count is said to be left alone, and is no longer in there either. */
void app_ignore_key(void);

/* `key` NULL = not known yet. */
const struct flavour *app_flavour(const struct conf *c, const char *account, const char *key);
/* It must not be sent there: the key is one flavour's, and the account's addresses are the other's; or it is a token of a
 * gateway, which would lead the daemon's calls back to one. */
bool app_key_is_foreign(const struct conf *c, const char *account, const char *key, char ret_why[APP_FOREIGN_MAX]);

#endif
