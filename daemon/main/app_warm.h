/* SPDX-License-Identifier: MIT */
/* The [warm NAME] sections: as the core takes them, and what runs their prepare. */
#ifndef AB_DAEMON_MAIN_APP_WARM_H
#define AB_DAEMON_MAIN_APP_WARM_H

#include <stdbool.h>

#include "daemon/conf/conf.h"
#include "daemon/sandbox/sandbox.h"

struct app_warm {		/* zeroed: none */
	struct sandbox_warm_entry *v;
	size_t n;
};

/* Which accounts there are, or will be when the configuration is taken up. */
struct app_known_accounts {
	bool (*has)(const void *user, const char *name);
	const void *user;
};

/* Asks the system who the users and groups are, which may take a while. What is wrong is added to
 * the configuration's problems. Texts are the configuration's. -ENOMEM. */
must_check int app_warm_read(struct conf *c, const struct app_known_accounts *accounts, bool user_mode, struct app_warm *ret);
void app_warm_free(struct app_warm *w);
/* The default of a [policy] section; UNSET where it does not say. */
enum sandbox_warm_mode app_warm_mode(const struct conf *c, const char *instance);

struct sandbox_preparer app_preparer(void);

#endif
