/* SPDX-License-Identifier: MIT */
/* The variables of a service manager: lines of LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES, WATCHDOG_USEC, NOTIFY_SOCKET. */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/sd/listen_fds.h"
#include "daemon/common/sd/notify.h"
#include "proto/base/must.h"

#define SELF 700

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void try_listen(const struct listen_env *env)
{
	struct listen_fds l;

	if (listen_fds_parse(env, SELF, &l) < 0)
		must(!l.n && !l.v);
	for (size_t i = 0; i < l.n; i++)
		must(l.v[i].fd == LISTEN_FDS_FIRST + (int)i && l.v[i].name[0] && !strchr(l.v[i].name, ':'));
	for (size_t i = 0; i < l.n; i++)
		l.v[i].fd = -1;
	listen_fds_fini(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *text = strndup((const char *)p, n), *rest = text;
	const char *line[5] = { NULL };
	struct notify notify;
	uint64_t us;

	for (int i = 0; i < 5 && rest; i++)
		line[i] = strsep(&rest, "\n");
	try_listen(&(struct listen_env){ line[0], line[1], line[2] });
	if (notify_watchdog(line[3], line[0], SELF, &us) < 0)
		must(us == 0);
	if (notify_open(&notify, line[4]) == 0)
		must(notify_is_open(&notify) == (line[4] && line[4][0]));
	notify_close(&notify);
	free(text);
	return 0;
}
