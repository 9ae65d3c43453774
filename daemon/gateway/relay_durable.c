/* SPDX-License-Identifier: MIT */
/* Requests that the gateway may answer from the daemon's own commands: they are read whole before it is known. */
#include <errno.h>

#include "daemon/common/http/route.h"
#include "daemon/gateway/durable.h"
#include "daemon/gateway/relay_impl.h"

bool gateway_relay_is_durable(const struct gateway_relay *rl)
{
	return rl->g->o.commands && rl->to.port == ENVD_PORT && !rl->is_asleep && durable_kind_of(http_stream_head(rl->x)) != DURABLE_NONE;
}

int gateway_relay_gather(struct gateway_relay *rl)
{
	int r;

	if (!rl->gathers) {
		rl->gathers = true;
		buf_init(&rl->body, DURABLE_BODY_MAX);
		buf_set_quota(&rl->body, rl->quota);
	}
	r = http_stream_take(rl->x, &rl->body);
	if (r < 0 || !http_stream_at_end(rl->x))
		return r;
	rl->gathers = false;
	rl->gathered = true;
	return 1;
}

int gateway_relay_make_durable(struct gateway_relay *rl, const struct sandbox_target *t, struct gateway_durable **ret)
{
	struct durable_ask ask = { 0 };
	int r = durable_ask_read(http_stream_head(rl->x), buf_data(&rl->body), buf_len(&rl->body), &ask);

	if (!r)
		r = gateway_durable_new(rl->g, &(struct durable_open){ .ask = &ask, .target = t, .peer = rl->peer, .token = rl->token,
								       .quota = rl->quota }, ret);
	durable_ask_fini(&ask);
	return r;
}
