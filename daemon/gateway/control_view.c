/* SPDX-License-Identifier: MIT */
/* What the core says of a sandbox, as the contract's document. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/gateway/control.h"
#include "proto/base/str.h"

enum cloud_state control_state(enum sandbox_state s)
{
	switch (s) {
	case SANDBOX_RUNNING:
	case SANDBOX_SNAPSHOTTING:
		return CLOUD_STATE_RUNNING;
	case SANDBOX_PAUSING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
		return CLOUD_STATE_PAUSED;
	default:
		return CLOUD_STATE_UNKNOWN;
	}
}

static char *text_or_none(const char *s)
{
	return *s ? (char *)s : NULL;
}

/* One that is known to have none gets ours. */
static const char *access_token(struct gateway_control *c, const struct sandbox_view *v)
{
	if (*v->access_token || !v->token_known)
		return v->access_token;
	made_token(c->g->o.secret, v->id, c->made);
	return c->made;
}

int control_view(struct gateway_control *c, const struct sandbox_view *v, struct cloud_sandbox *ret)
{
	struct cloud_kv *kvs = calloc(v->n_metadata ? v->n_metadata : 1, sizeof(*kvs));
	bool paused = control_state(v->state) == CLOUD_STATE_PAUSED;

	if (!kvs)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_metadata; i++)
		kvs[i] = (struct cloud_kv){ (char *)v->metadata[i].key, (char *)v->metadata[i].value };
	*ret = (struct cloud_sandbox){
		.id = (char *)v->id,
		.template_id = (char *)v->template_id,
		.alias = text_or_none(v->alias),
		.envd_version = (char *)(*v->envd_version ? v->envd_version : CLOUD_VERSION_UNKNOWN),
		.envd_access_token = text_or_none(access_token(c, v)),
		.traffic_access_token = text_or_none(v->traffic_token),
		.domain = paused ? NULL : text_or_none(v->domain),
		.state = control_state(v->state),
		.started_at_ms = v->started_at_ms,
		.end_at_ms = v->end_at_ms,
		.cpu_count = v->cpu_count,
		.memory_mb = v->memory_mb,
		.disk_size_mb = v->disk_size_mb,
		.metadata = { kvs, v->n_metadata },
		.allow_internet_access = v->allow_internet_access,
		.network = (struct cloud_network *)v->network,
		.lifecycle = cloud_lifecycle_told(&v->lifecycle),
	};
	return 0;
}

void control_view_fini(struct cloud_sandbox *s)
{
	free(s->metadata.v);	/* the texts are the view's */
}

int control_put_warm(struct gateway_control *c, const struct sandbox_view *v)
{
	int r = v->warm ? fields_put(&c->extra, "agentboxd-warm", "true") : 0;

	return !r && v->end_pending ? fields_put(&c->extra, "agentboxd-end-pending", "true") : r;
}

void control_reply_created(struct gateway_control *c, unsigned status, const struct sandbox_view *v)
{
	struct cloud_sandbox s;

	if (control_put_warm(c, v) < 0 || control_view(c, v, &s) < 0) {
		control_no_memory(c);
		return;
	}
	(void)str_copy(c->id, sizeof(c->id), v->id);	/* for the audit: what was made */
	control_reply_doc(c, status, CLOUD_DOC_SANDBOX, &s, CLOUD_CREATED);
	control_view_fini(&s);
}
