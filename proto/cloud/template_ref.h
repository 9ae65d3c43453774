/* SPDX-License-Identifier: MIT */
/* A reference to a template, a snapshot among them, as the cloud reads it. [pure] */
#ifndef AB_PROTO_CLOUD_TEMPLATE_REF_H
#define AB_PROTO_CLOUD_TEMPLATE_REF_H

#include "proto/base/cc.h"

#define TEMPLATE_NAME_MAX 127u

struct template_ref {
	char space[TEMPLATE_NAME_MAX + 1];	/* "" = none given */
	char name[TEMPLATE_NAME_MAX + 1];
	char tag[TEMPLATE_NAME_MAX + 1];	/* "" = none given */
};

/* "[space/]name[:tag]", trimmed and lowered. 0 or -EINVAL. */
must_check int template_ref_parse(const char *s, struct template_ref *ret);

#endif
