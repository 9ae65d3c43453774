/* SPDX-License-Identifier: MIT */
/* Signals that ask us to end, as a descriptor. */
#ifndef AB_CLIENT_CLI_TERM_SIG_H
#define AB_CLIENT_CLI_TERM_SIG_H

struct ab_client;

/* INT, TERM, HUP and QUIT arrive on the descriptor from now on, those that were not ignored before; PIPE is ignored. The
 * descriptor, or -errno. */
int sig_open(void);
/* The same for a terminal that changed its size (SIGWINCH). */
int sig_open_winch(void);
/* open(); a signal ends the process while a FIFO's other end is awaited. */
int sig_open_file(const char *path, int flags);
/* Waits until the client has something to do, and processes; 0, or a signal that came first. */
int sig_wait(struct ab_client *c, int fd);
/* The next one, 0 if there is none. */
int sig_take(int fd);
/* Ends this process by that signal, so that whoever waits for it can tell. */
void sig_die(int signo) __attribute__((noreturn));

#endif
