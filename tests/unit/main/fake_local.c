/* SPDX-License-Identifier: MIT */
/*
 * An agentbox-local without sandboxes, for test_local_process.c. STATE/local/mode says what it does; each start adds a line to
 * STATE/local/starts: the two ports that it was asked for, and its pid.
 *
 *   ready       holds the lock, says where it is, ends at SIGTERM
 *   deaf        the same, but for SIGTERM
 *   taken       as where the ports that it is asked for are another's: exit status 1; with port 0 as ready
 *   brief       says where it is and ends
 *   mute        holds the lock and says nothing
 *   exit        exit status 7
 *   garbage     says a line that is no place
 *   endless     says more than a line
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char *dir;
static int port, plain_port, ready_fd = -1;

static int port_of(const char *address)
{
	const char *colon = strrchr(address, ':');

	return colon ? atoi(colon + 1) : 0;
}

static void take_options(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++) {
		if (!strcmp(argv[i], "--state-dir"))
			dir = argv[i + 1];
		else if (!strcmp(argv[i], "--tls-listen"))
			port = port_of(argv[i + 1]);
		else if (!strcmp(argv[i], "--listen"))
			plain_port = port_of(argv[i + 1]);
		else if (!strcmp(argv[i], "--ready-fd"))
			ready_fd = atoi(argv[i + 1]);
	}
}

static const char *path_of(const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void note_start(void)
{
	FILE *f = fopen(path_of("starts"), "a");

	if (!f)
		exit(90);
	fprintf(f, "%d %d %d\n", port, plain_port, (int)getpid());
	fclose(f);
}

static void read_mode(char mode[32])
{
	FILE *f = fopen(path_of("mode"), "r");

	if (!f || fscanf(f, "%31s", mode) != 1)
		exit(91);
	fclose(f);
}

static void hold_lock(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = open(path_of("lock"), O_RDWR | O_CREAT, 0600);

	if (fd < 0 || fcntl(fd, F_SETLK, &l) < 0)
		exit(92);
}

static void announce(void)
{
	char line[4096];
	FILE *f;

	if (!port)
		port = 20000 + (int)getpid() % 20000;
	if (!plain_port)
		plain_port = port + 1;
	snprintf(line, sizeof(line),
		 "{\"address\":\"127.0.0.1:%d\",\"tls_address\":\"127.0.0.1:%d\",\"pid\":%d,\"ca_file\":\"/ca\","
		 "\"api_key_file\":\"/key\"}\n", plain_port, port, (int)getpid());
	f = fopen(path_of("endpoint"), "w");
	if (!f || fputs(line, f) < 0 || fclose(f))
		exit(93);
	if (ready_fd >= 0 && write(ready_fd, line, strlen(line)) < 0)
		exit(94);
	close(ready_fd);
}

int main(int argc, char **argv)
{
	char mode[32], block[8192];

	prctl(PR_SET_PDEATHSIG, SIGKILL);	/* a test that failed leaves nothing */
	take_options(argc, argv);
	read_mode(mode);
	note_start();
	if (!strcmp(mode, "exit"))
		return 7;
	if (!strcmp(mode, "taken") && port)
		return 1;
	hold_lock();
	if (!strcmp(mode, "deaf"))
		signal(SIGTERM, SIG_IGN);
	memset(block, 'x', sizeof(block));
	if (!strcmp(mode, "garbage"))
		(void)!write(ready_fd, "hello\n", 6);
	else if (!strcmp(mode, "endless"))
		(void)!write(ready_fd, block, sizeof(block));
	else if (strcmp(mode, "mute") != 0)
		announce();
	if (!strcmp(mode, "brief"))
		return 0;
	for (;;)
		pause();
}
