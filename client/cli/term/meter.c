/* SPDX-License-Identifier: MIT */
#include "client/cli/term/meter.h"

#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

#define BEATS_PER_S 5u

void meter_open(struct meter *m, bool show)
{
	const struct itimerspec beat = {
		.it_value = { .tv_nsec = 1000000000L / (long)BEATS_PER_S },
		.it_interval = { .tv_nsec = 1000000000L / (long)BEATS_PER_S },
	};

	*m = (struct meter){ .fd = -1 };
	if (!show)
		return;
	m->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (m->fd >= 0)
		(void)timerfd_settime(m->fd, 0, &beat, NULL);
}

void meter_draw(struct meter *m, const char *text, uint64_t bytes, uint64_t total)
{
	char done[32], speed[32], label[41], bar[21];
	uint64_t beats = 0;

	if (read(m->fd, &beats, sizeof(beats)) != sizeof(beats))
		return;
	m->beats += beats;
	(void)size_text(bytes, done);
	(void)size_text(bytes * BEATS_PER_S / m->beats, speed);
	(void)safe(text, label, sizeof(label));
	if (!total) {
		fprintf(stderr, "\r%s  %s  %s/s\033[K", label, done, speed);
		return;
	}
	memset(bar, ' ', sizeof(bar) - 1);
	bar[sizeof(bar) - 1] = '\0';
	for (size_t i = 0; i < sizeof(bar) - 1 && i * total < bytes * (sizeof(bar) - 1); i++)
		bar[i] = '#';
	fprintf(stderr, "\r%s  [%s] %3u%%  %s  %s/s\033[K", label, bar,
		(unsigned)(bytes >= total ? 100 : bytes * 100 / total), done, speed);
}

void meter_close(struct meter *m)
{
	if (m->fd < 0)
		return;
	(void)close(m->fd);
	if (m->beats)
		fputs("\r\033[K", stderr);
}
