/* SPDX-License-Identifier: MIT */
/* Entries of warm sandboxes as objects. */
#include <errno.h>

#include "proto/gen/agentbox_warm.pb-c.h"

#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "client/lib/obj.h"

static struct ab_warm warm_in(const Agentbox__V1__WarmEntry *m)
{
	return (struct ab_warm){
		.name = m->name,
		.account = m->account,
		.template_id = m->template_id,
		.size = m->size,
		.configured_size = m->configured_size,
		.ready = m->ready,
		.coming = m->coming,
		.waiting = m->waiting,
		.failures = m->failures,
		.failed = m->failed,
		.why = m->why,
		.output = m->output,
		.made_in_hour = m->made_in_hour,
		.per_hour = m->per_hour,
		.hits = m->hits,
		.misses = m->misses,
		.made = m->made,
		.failures_in_all = m->failures_in_all,
		.prepare_ms = msg_span_us(m->prepare_time) / 1000,
		.oldest_ready_ms = msg_span_us(m->oldest_ready) / 1000,
	};
}

int msg_warm(ProtobufCMessage *message, void **ret)
{
	struct ab_warm w = warm_in((Agentbox__V1__WarmEntry *)message);

	return obj_take(message, &w, sizeof(w), ret);
}

int msg_warm_list(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ListWarmResponse *m = (Agentbox__V1__ListWarmResponse *)message;
	scoped(obj_freep) struct ab_warm_list *l = obj_new(sizeof(*l), message);
	struct ab_warm *v = l ? obj_alloc(l, m->n_entries + 1, sizeof(*v)) : NULL;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_entries; i++)
		v[i] = warm_in(m->entries[i]);
	l->items = v;
	l->n = m->n_entries;
	l->quarantined = m->quarantined;
	*ret = give(l);
	return 0;
}
