/* SPDX-License-Identifier: MIT */
#include "proto/cloud/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"
#include "proto/cloud/json.h"
#include "proto/cloud/model.h"

static void copy_text(char *to, size_t cap, const char *from)
{
	(void)str_copy(to, cap, from ? from : "");
}

void cloud_error_take(const struct cloud_error *e, struct cloud_error_body *ret)
{
	*ret = (struct cloud_error_body){ .is_json = true, .has_port = e->has_port, .code = e->code };
	copy_text(ret->code_name, sizeof(ret->code_name), e->code_word);
	str_copy_ends(ret->message, sizeof(ret->message), e->message ? e->message : "");
	copy_text(ret->error_code, sizeof(ret->error_code), e->error_code);
}

void cloud_error_read(const void *p, size_t n, struct cloud_error_body *ret)
{
	struct cloud_error e = { .code = -1 };
	struct cloud_json_error why;

	if (cloud_json_read(CLOUD_DOC_ERROR, p, n, 0, &e, &why) == 0) {
		cloud_error_take(&e, ret);
		cloud_doc_fini(CLOUD_DOC_ERROR, &e);
		return;
	}
	*ret = (struct cloud_error_body){ .code = -1 };
	n = MIN(n, sizeof(ret->message) - 1);
	for (size_t i = 0; i < n; i++) {
		char c = ((const char *)p)[i];

		ret->message[i] = c >= 0x20 && c < 0x7f ? c : ' ';
	}
	while (n && ret->message[n - 1] == ' ')
		n--;
	ret->message[n] = 0;
}

int cloud_error_read_end(const void *p, size_t n, bool *ret_error, struct cloud_error_body *ret)
{
	struct cloud_stream_end end = { 0 };
	struct cloud_json_error why;
	int r = cloud_json_read(CLOUD_DOC_STREAM_END, p, n, 0, &end, &why);

	if (r < 0)
		return r;
	*ret = (struct cloud_error_body){ .code = -1 };
	*ret_error = end.error != NULL;
	if (end.error)
		cloud_error_take(end.error, ret);
	cloud_doc_fini(CLOUD_DOC_STREAM_END, &end);
	return 0;
}

int cloud_error_write(unsigned status, const char *error_code, const char *message, const struct flavour *f,
		      struct buf *out)
{
	struct cloud_error e = { .code = status, .message = (char *)message, .error_code = (char *)error_code };

	return cloud_json_write(CLOUD_DOC_ERROR, &e, f, 0, out);
}
