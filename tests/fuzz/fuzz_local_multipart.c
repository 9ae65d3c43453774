/* SPDX-License-Identifier: MIT */
/* However the body is cut, the parts that come out are the same. The first byte is the step. */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/multipart.h"
#include "proto/base/buf.h"
#include "proto/base/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* A digest of the events; *ret_over: the end or an error was reached. */
static struct buf run(const uint8_t *p, size_t n, size_t step, bool *ret_over)
{
	struct buf out = BUF_NULL;
	struct multipart m;
	size_t from = 0, to = 0;
	bool done = false;

	must(!multipart_init(&m, "multipart/form-data; boundary=b"));
	*ret_over = false;
	while (!done) {
		const uint8_t *data = NULL;
		size_t used = 0, len = 0;
		enum multipart_event e = multipart_next(&m, p + from, to - from, &used, &data, &len);

		must(used <= to - from);
		if (e == MULTIPART_DATA) {
			must(len && data >= p + from && data + len <= p + to);
			must(!buf_put(&out, data, len));
		}
		from += used;
		if (e == MULTIPART_PART)
			must(!buf_printf(&out, "<%s|%s>", m.name ? m.name : "",
					 m.filename ? m.filename : ""));
		if (e == MULTIPART_PART_END)
			must(!buf_put_str(&out, ";"));
		if (e == MULTIPART_END || e == MULTIPART_BAD)
			*ret_over = done = true;
		if (e == MULTIPART_MORE) {
			done = to == n;
			to = MIN(n, to + step);
		}
	}
	multipart_fini(&m);
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct buf whole, cut;
	bool whole_over, cut_over;

	if (!n)
		return 0;
	whole = run(p + 1, n - 1, n, &whole_over);
	cut = run(p + 1, n - 1, (size_t)p[0] + 1, &cut_over);
	must(whole_over == cut_over);
	must(buf_len(&whole) == buf_len(&cut));
	must(!buf_len(&whole) || !memcmp(buf_data(&whole), buf_data(&cut), buf_len(&whole)));
	buf_fini(&whole);
	buf_fini(&cut);
	return 0;
}
