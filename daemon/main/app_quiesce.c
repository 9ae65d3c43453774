/* SPDX-License-Identifier: MIT */
/* Before a maintenance an admin has the daemon make no new sandboxes. It is the state of this run: a restart ends it. */
#include <stdio.h>

#include "daemon/auth/principal.h"
#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

static void quiesce_begin(struct app *a, const struct principal *who, const char *reason)
{
	char by[32], why[SANDBOX_QUIESCED_BYTES];

	snprintf(by, sizeof(by), "uid %u", owner_uid(who->uid));
	snprintf(why, sizeof(why), "as %s said%s%s", str_is_empty(who->user) ? by : who->user,
		 str_is_empty(reason) ? "" : ": ", reason);
	if (!a->quiesced_at_ms)
		a->quiesced_at_ms = clock_wall_ms();
	sandbox_core_quiesce(a->core, why);
	log_warn("quiesced", "by=%s why=%s", log_q(str_is_empty(who->user) ? by : who->user), log_q(reason));
}

static void quiesce_end(struct app *a)
{
	if (!a->quiesced_at_ms)
		return;
	a->quiesced_at_ms = 0;
	sandbox_core_quiesce(a->core, NULL);
	log_info("quiesce_over", "ended=by_call");
}

void app_quiesce(void *user, const struct principal *who, bool off, const char *reason, struct daemon_quiesced *ret)
{
	struct sandbox_core_counts counts;
	struct app *a = user;

	if (off)
		quiesce_end(a);
	else
		quiesce_begin(a, who, reason);
	sandbox_core_count(a->core, (uid_t)-1, &counts);
	*ret = (struct daemon_quiesced){ .since_ms = a->quiesced_at_ms, .changing = counts.other };
}
