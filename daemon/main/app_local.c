/* SPDX-License-Identifier: MIT */
/*
 * --local: the account follows agentbox-local. Its calls wait while agentbox-local is starting, are refused with the reason
 * while it is down, and go to the new address when it is up again.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/main/app_impl.h"

#define RETRY_MS 1000u

/* The only one of --local. */
static struct account *local_account(struct app *a)
{
	return &a->accounts[0];
}

/* The key or the CA cannot be read, maybe for lack of descriptors. The first failure is an error in the log. */
static void cannot_follow(struct app *a, const struct status *why)
{
	enum log_level level = a->local_lost ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR;

	a->local_lost = true;
	log_event(level, "local_account", "error=%s next_try_in_ms=%u", log_q(why->text), RETRY_MS);
	if (timer_set(&a->local_retry, loop_now_ms(a->loop) + RETRY_MS) < 0)
		log_error("local_account", "error=\"out of memory, it stays as it is\"");
	cloud_set_gate(local_account(a)->cloud, CLOUD_SHUT, why);
}

static void follow(struct app *a, const struct local_info *at)
{
	struct account *c = local_account(a);
	struct status why = STATUS_OK;

	if (app_account_point(c, at, &why) < 0) {
		cannot_follow(a, &why);
		return;
	}
	a->local_lost = false;
	if (a->core)	/* make_life() passes the same value */
		sandbox_core_set_plain_ports(a->core, c->name, at->plain_ports);
	cloud_set_gate(c->cloud, CLOUD_OPEN, NULL);
	if (a->core)	/* those that ran ended with the process before */
		sandbox_core_reconcile(a->core, c->name);
}

static void on_local_change(void *user)
{
	struct app *a = user;
	struct local_info at;

	local_process_info(a->local, &at);
	timer_clear(&a->local_retry);
	if (at.state == LOCAL_RUNNING) {
		follow(a, &at);
		return;
	}
	cloud_set_gate(local_account(a)->cloud, at.soon ? CLOUD_AWAITED : CLOUD_SHUT, &at.why);
	if (at.start_failed && !at.was_up) {	/* the machine cannot run it */
		fprintf(stderr, "agentboxd: %s\n", at.why.text);
		loop_stop(a->loop, APP_EXIT_UNAVAILABLE);
	}
}

static void on_local_retry(struct timer *t, void *user)
{
	on_local_change(user);
}

void app_local_open(struct account *c)
{
	struct local_info at;

	local_process_info(c->app->local, &at);
	if (at.state == LOCAL_RUNNING)	/* commands of the daemon before are taken up by a later step of the start */
		follow(c->app, &at);
	else
		cloud_set_gate(c->cloud, CLOUD_AWAITED, &at.why);
}

int app_local_new(struct app *a)
{
	const struct local_process_options o = { .loop = a->loop, .children = a->children, .state_dir = a->state_dir,
						 .on_change = on_local_change, .user = a };
	struct status why = STATUS_OK;
	int r;

	if (!a->local_mode)
		return 0;
	timer_init(&a->local_retry, a->loop, on_local_retry, a);
	r = local_process_new(&o, &a->local, &why);
	if (r < 0)
		fprintf(stderr, "agentboxd: %s\n", status_ok(&why) ? strerrordesc_np(-r) : why.text);
	return r < 0 ? APP_EXIT_UNAVAILABLE : 0;
}
