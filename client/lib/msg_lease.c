/* SPDX-License-Identifier: MIT */
/* Leases and events as objects. */
#include <errno.h>

#include "proto/gen/agentbox_lease.pb-c.h"

#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "client/lib/obj.h"

static struct ab_lease lease_in(const Agentbox__V1__Lease *m)
{
	return (struct ab_lease){
		.id = m->id,
		.sandbox = m->sandbox,
		.uid = m->uid,
		.pid = m->pid,
		.label = m->label,
		.expires_at_ms = msg_at_ms(m->expires_at),
		.sandbox_end_at_ms = msg_at_ms(m->sandbox_end_at),
		.heartbeat = m->heartbeat,
	};
}

int msg_lease(ProtobufCMessage *m, void **ret)
{
	struct ab_lease l = lease_in((Agentbox__V1__Lease *)m);

	return obj_take(m, &l, sizeof(l), ret);
}

int msg_lease_list(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ListLeasesResponse *m = (Agentbox__V1__ListLeasesResponse *)message;
	scoped(obj_freep) struct ab_lease_list *l = obj_new(sizeof(*l), message);
	struct ab_lease *v = l ? obj_alloc(l, m->n_leases + 1, sizeof(*v)) : NULL;
	const struct ab_lease **items = v ? obj_alloc(l, m->n_leases + 1, sizeof(*items)) : NULL;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_leases; i++) {
		v[i] = lease_in(m->leases[i]);
		items[i] = &v[i];
	}
	l->items = items;
	l->n = m->n_leases;
	l->next_page_token = m->next_page_token;
	*ret = give(l);
	return 0;
}

int msg_sandbox_event(ProtobufCMessage *message, void **ret, struct ab_sandbox_event *ret_event)
{
	const Agentbox__V1__SandboxEvent *m = (Agentbox__V1__SandboxEvent *)message;
	scoped(obj_freep) struct ab_sandbox *box = obj_new(sizeof(*box), message);
	const ProtobufCEnumValue *name;
	struct ab_sandbox_event e;
	int r;

	if (!box)
		return -ENOMEM;
	name = protobuf_c_enum_descriptor_get_value(&agentbox__v1__sandbox_event__type__descriptor, (int)m->type);
	e = (struct ab_sandbox_event){
		.type = name ? (enum ab_sandbox_event_type)m->type : AB_SANDBOX_EVENT_NONE,
		.type_name = name ? name->name : "",
		.cursor = m->cursor,
		.at_ms = msg_at_ms(m->at),
		.sandbox = m->sandbox ? box : NULL,
		.reason = msg_reason((int)m->reason),
	};
	r = m->sandbox ? msg_sandbox_fill(box, m->sandbox, box) : 0;
	if (!r)
		r = msg_pairs_in(box, m->n_evidence, m->evidence, &e.evidence, &e.n_evidence);
	if (r < 0)
		return r;
	*ret_event = e;
	*ret = give(box);
	return 0;
}
