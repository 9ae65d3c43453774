/* SPDX-License-Identifier: MIT */
/*
 * sudo without a password inside a sandbox. Set-user-id programs have no power there, so the program `sudo` (sudo_client.c) asks the init, which
 * has the right to start commands as anybody inside: over a socket of the sandbox's own network namespace, where nobody else is.
 * What is asked for is started with the asker's descriptors. Who may ask may do no more by it than a command of the user root.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_SUDO_H
#define AB_DAEMON_LOCAL_ENGINE_SUDO_H

#include <stdbool.h>
#include <stdint.h>

#define SUDO_SOCKET   "agentbox-sudo"	/* abstract, SOCK_SEQPACKET */
#define SUDO_USER_MAX 64u

/* With four descriptors: a memfd as in spawn.h (folder, arguments, the variables to keep; its ids are not looked at), and the three
 * standard ones. */
struct sudo_request {
	char user[SUDO_USER_MAX];
	uint32_t uid, gid;	/* of the asker, as he sees them */
	uint8_t is_login, is_shell, keeps_env;
};

/* Then, as often as there is one: a signal to pass on. */
struct sudo_signal {
	int32_t sig;
};

/* Once, at the end. */
struct sudo_reply {
	int32_t status;		/* as wait() says it, if `why` is empty */
	char why[120];		/* it was not started */
};

#ifndef SUDO_CLIENT
/* The listening socket, or -1. */
int sudo_listen(void);
/* In a process of its own: serves one asker. */
void sudo_serve(int sock, bool as_user);
#endif

#endif
