/* SPDX-License-Identifier: MIT */
/* DaemonService: what a user may ask of the daemon itself. */
#include "proto/gen/agentbox_daemon.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"

#define PATH(name) "/agentbox.v1.DaemonService/" name

int ab_daemon_status_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Status"),
		.reply = &agentbox__v1__status_response__descriptor,
		.make = msg_daemon_status,
		.repeatable = true,
	};
	Agentbox__V1__StatusRequest req = AGENTBOX__V1__STATUS_REQUEST__INIT;

	return call_start(c, &m, &req.base, how, ret);
}

int ab_daemon_status(struct ab_client *c, const struct ab_call_options *how,
		     struct ab_daemon_status **ret)
{
	return wait_object(c, ab_daemon_status_start(c, how, &c->started), (void **)ret);
}

int ab_daemon_config_start(struct ab_client *c, const char *section, const struct ab_call_options *how,
			   struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Config"),
		.reply = &agentbox__v1__config_response__descriptor,
		.make = msg_config,
		.repeatable = true,
	};
	Agentbox__V1__ConfigRequest req = AGENTBOX__V1__CONFIG_REQUEST__INIT;

	req.section = (char *)section;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_daemon_config(struct ab_client *c, const char *section, const struct ab_call_options *how,
		     struct ab_config **ret)
{
	return wait_object(c, ab_daemon_config_start(c, section, how, &c->started), (void **)ret);
}

int ab_daemon_reload_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Reload"),
		.reply = &agentbox__v1__reload_response__descriptor,
		.make = msg_reloaded,
		.repeatable = true,
	};
	Agentbox__V1__ReloadRequest req = AGENTBOX__V1__RELOAD_REQUEST__INIT;

	return call_start(c, &m, &req.base, how, ret);
}

int ab_daemon_reload(struct ab_client *c, const struct ab_call_options *how, struct ab_reloaded **ret)
{
	return wait_object(c, ab_daemon_reload_start(c, how, &c->started), (void **)ret);
}

int ab_daemon_quiesce_start(struct ab_client *c, const struct ab_quiesce_options *o, const struct ab_call_options *how,
			    struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Quiesce"),
		.reply = &agentbox__v1__quiesce_response__descriptor,
		.make = msg_quiesced,
		.repeatable = true,
	};
	Agentbox__V1__QuiesceRequest req = AGENTBOX__V1__QUIESCE_REQUEST__INIT;

	if (o) {
		req.off = o->off;
		req.reason = (char *)(o->reason ? o->reason : "");
	}
	return call_start(c, &m, &req.base, how, ret);
}

int ab_daemon_quiesce(struct ab_client *c, const struct ab_quiesce_options *o, const struct ab_call_options *how,
		      struct ab_quiesced **ret)
{
	return wait_object(c, ab_daemon_quiesce_start(c, o, how, &c->started), (void **)ret);
}

int ab_daemon_stop_local_start(struct ab_client *c, const struct ab_call_options *how,
			       struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("StopLocal"),
		.reply = &agentbox__v1__stop_local_response__descriptor,
		.make = msg_local_stopped,
	};
	Agentbox__V1__StopLocalRequest req = AGENTBOX__V1__STOP_LOCAL_REQUEST__INIT;

	return call_start(c, &m, &req.base, how, ret);
}

int ab_daemon_stop_local(struct ab_client *c, const struct ab_call_options *how,
			 struct ab_local_stopped **ret)
{
	return wait_object(c, ab_daemon_stop_local_start(c, how, &c->started), (void **)ret);
}
