/* SPDX-License-Identifier: MIT */
/*
 * A stop, from the signal to the end of the loop, in two parts.
 *
 * It settles first: everybody is served, but nothing is begun any more whose request a successor would have to look for (RPC_BEGINS). What was
 * begun gets its answer, which takes as long as the cloud and its agents take, and the store does its work on the disk.
 *
 * Then it drains, and from here on nobody is served until the successor is: what is left gets its end, and the process exits.
 */
#include <signal.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/gateway/gateway.h"
#include "daemon/main/app.h"
#include "daemon/main/app_impl.h"
#include "daemon/rpc/limits.h"

#define TICK_STOP_MS 5u		/* look whether the last of what is waited for ended */
#define SETTLE_MS    5000u	/* an agent that does not answer is waited for so long */

static void end_now(struct app *a)
{
	rpc_server_drain_end(a->server);
	loop_stop(a->loop, 0);
}

/* --- it settles --- */

static bool is_settled(const struct app *a)
{
	return store_is_settled(a->store) && !commands_starting(a->commands) && !sandbox_core_unsettled(a->core);
}

static void drain_begin(struct app *a, uint64_t now)
{
	log_info("settled", "after_ms=%u starts=%u creates=%u store=%s", (unsigned)(now - a->stop_since_ms), commands_starting(a->commands),
		 sandbox_core_unsettled(a->core), store_is_settled(a->store) ? "yes" : "no");
	a->drain_since_ms = now;
	sandbox_core_drain(a->core);
	rpc_server_drain(a->server);
	if (!a->gateway)
		return;
	app_gateway_hand_over(a);
	gateway_drain(a->gateway);
}

/* --- it drains --- */

/* True: everybody has had an end, and has read it, or had time enough to. */
static bool drain(struct app *a, uint64_t now)
{
	bool end = now >= a->drain_since_ms + RPC_DRAIN_MS, gateway_waits;
	struct rpc_waited waited;
	struct rpc_counts counts;

	if (now >= a->drain_until_ms)
		return true;
	gateway_waits = a->gateway && gateway_drain_calls(a->gateway, end);
	if (rpc_server_drain_calls(a->server, end, &waited)) {
		app_manager_tell_stop(a, &waited);
		return false;
	}
	/* One whose sandbox had to be found first may have left since it settled. */
	if (gateway_waits || (now < a->settle_until_ms && commands_starting(a->commands)))
		return false;
	if (!a->drained_at_ms)
		a->drained_at_ms = now;
	rpc_server_count(a->server, (uid_t)-1, &counts);
	return !counts.connections || now >= a->drained_at_ms + RPC_DRAIN_FLUSH_MS;
}

/* --- both --- */

uint32_t app_stop_tick(struct app *a)
{
	uint64_t now = loop_now_ms(a->loop);

	if (!a->drain_since_ms && (now >= a->settle_until_ms || is_settled(a)))
		drain_begin(a, now);
	if (!a->drain_since_ms || !drain(a, now))
		return TICK_STOP_MS;
	end_now(a);
	return 0;
}

void app_stop(struct app *a, int signo)
{
	if (a->drain_until_ms || signo == SIGQUIT) {
		log_info("ending", "signal=%s", sigabbrev_np(signo));
		end_now(a);
		return;
	}
	a->stop_since_ms = loop_now_ms(a->loop);
	a->drain_until_ms = a->stop_since_ms + MAX(conf_get_number(a->conf, "daemon", NULL, "drain_timeout"), (uint64_t)1);
	a->settle_until_ms = MIN(a->stop_since_ms + SETTLE_MS, a->drain_until_ms);
	log_info("draining", "signal=%s", sigabbrev_np(signo));
	(void)notify_send(a->notify, "STOPPING=1");
	rpc_server_hold(a->server);
	sandbox_core_settle(a->core);
	store_settle(a->store);
	app_tick(a);
}
