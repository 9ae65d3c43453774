/* SPDX-License-Identifier: MIT */
/* Templates as objects. The same invariant as msg.c's. */
#include <errno.h>

#include "proto/gen/agentbox_template.pb-c.h"

#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "client/lib/obj.h"

static int template_in(void *object, const Agentbox__V1__Template *m, struct ab_template *ret)
{
	*ret = (struct ab_template){
		.id = m->id,
		.n_names = m->n_names,
		.is_public = m->public_,
		.build_id = m->build_id,
		.build_status = m->build_status,
		.cpu_count = m->cpu_count,
		.memory_mb = m->memory_mb,
		.disk_size_mb = m->disk_size_mb,
		.envd_version = m->envd_version,
		.created_at_ms = msg_at_ms(m->created_at),
		.updated_at_ms = msg_at_ms(m->updated_at),
		.last_spawned_at_ms = msg_at_ms(m->last_spawned_at),
		.spawn_count = m->spawn_count,
	};
	return msg_words(object, m->n_names, m->names, &ret->names);
}

int msg_template_list(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ListTemplatesResponse *m = (Agentbox__V1__ListTemplatesResponse *)message;
	scoped(obj_freep) struct ab_template_list *l = obj_new(sizeof(*l), message);
	struct ab_template *v = l ? obj_alloc(l, m->n_templates + 1, sizeof(*v)) : NULL;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_templates; i++) {
		int r = template_in(l, m->templates[i], &v[i]);

		if (r < 0)
			return r;
	}
	l->items = v;
	l->n = m->n_templates;
	l->next_page_token = m->next_page_token;
	*ret = give(l);
	return 0;
}
