/* SPDX-License-Identifier: MIT */
/* agentbox.v1.TemplateService: decodes, asks daemon/sandbox, replies. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/rpc/check.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/pending.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/svc_sandbox.h"
#include "proto/gen/agentbox_template.pb-c.h"

struct msg_template {
	Agentbox__V1__Template m;
	msg_timestamp created_at, updated_at, spawned_at;
};

static void svc_template_fill(struct msg_template *t, const struct sandbox_template *from)
{
	agentbox__v1__template__init(&t->m);
	t->m.id = (char *)from->id;
	t->m.names = (char **)from->names;
	t->m.n_names = from->n_names;
	t->m.public_ = from->is_public;
	t->m.build_id = (char *)from->build_id;
	t->m.build_status = (char *)from->build_status;
	t->m.envd_version = (char *)from->envd_version;
	t->m.cpu_count = from->cpu_count;
	t->m.memory_mb = from->memory_mb;
	t->m.disk_size_mb = from->disk_size_mb;
	t->m.created_at = msg_time(&t->created_at, from->created_at_ms);
	t->m.updated_at = msg_time(&t->updated_at, from->updated_at_ms);
	t->m.last_spawned_at = msg_time(&t->spawned_at, from->spawned_at_ms);
	t->m.spawn_count = from->spawn_count;
}

/* Of a page that is too large for one message the first ones are sent, with the token of the rest. */
static void svc_template_reply(void *user, const struct status *st, const struct sandbox_template_page *page)
{
	Agentbox__V1__ListTemplatesResponse m = AGENTBOX__V1__LIST_TEMPLATES_RESPONSE__INIT;
	size_t n = page ? page->n : 0, k = 0, bytes = 0;
	struct msg_template *v = calloc(n + 1, sizeof(*v));
	Agentbox__V1__Template **list = calloc(n + 1, sizeof(*list));
	struct status out = *st;
	char *token = NULL;

	if (status_ok(&out) && (!v || !list))
		status_errno(&out, -ENOMEM, "answering");
	for (; k < n && status_ok(&out); k++) {
		svc_template_fill(&v[k], &page->templates[k]);
		list[k] = &v[k].m;
		if (!check_page_room(&bytes, &list[k]->base))
			break;
	}
	if (status_ok(&out) && k < n &&
	    !(token = sandbox_index_token(page->from + k, page->templates[k - 1].id, page->question)))
		status_errno(&out, -ENOMEM, "answering");
	if (status_ok(&out)) {
		m.templates = list;
		m.n_templates = k;
		m.next_page_token = token ? token : (char *)page->next_page_token;
	}
	rpc_call_answer(pending_take(user), &out, &m.base);
	free(token);
	free(v);
	free(list);
}

static void svc_template_on_list(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__ListTemplatesRequest *q = (const void *)message;
	struct pending *p = pending_new(c, NULL);
	const struct sandbox_template_list args = { .page_size = q->page_size, .page_token = q->page_token };

	if (p)
		pending_started(p, sandbox_list_templates(p->core, &p->head, &args, svc_template_reply, &p->op));
}

static const struct rpc_method svc_template_methods[] = {
	PENDING_METHOD("TemplateService", "List", list_templates, svc_template_on_list, RPC_READS),
};

int svc_template_add(struct rpc_server *s, struct sandbox_core *core)
{
	return rpc_server_add(s, svc_template_methods, ARRAY_SIZE(svc_template_methods), core);
}
