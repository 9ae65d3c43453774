/* SPDX-License-Identifier: MIT */
/* TemplateService. */
#include "proto/gen/agentbox_template.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"

int ab_template_list_start(struct ab_client *c, const struct ab_template_list_options *o,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = "/agentbox.v1.TemplateService/List",
		.reply = &agentbox__v1__list_templates_response__descriptor,
		.make = msg_template_list,
		.repeatable = true,
	};
	static const struct ab_template_list_options none;
	Agentbox__V1__ListTemplatesRequest req = AGENTBOX__V1__LIST_TEMPLATES_REQUEST__INIT;

	o = o ? o : &none;
	req.page_size = o->page_size;
	req.page_token = (char *)o->page_token;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_template_list(struct ab_client *c, const struct ab_template_list_options *o,
		     const struct ab_call_options *how, struct ab_template_list **ret)
{
	return wait_object(c, ab_template_list_start(c, o, how, &c->started), (void **)ret);
}
