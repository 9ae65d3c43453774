/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/multipart.h"
#include "proto/base/buf.h"
#include "tests/lib/test.h"

#define TYPE "multipart/form-data; boundary=XyZ"

/* What came, as text: "[name|filename]data;" and "END" or "BAD". Windows grow by `step`. */
static char *run(const char *body, size_t n, size_t step)
{
	struct buf out = BUF_NULL;
	struct multipart m;
	size_t from = 0, to = 0;
	bool over = false;

	CHECK(!multipart_init(&m, TYPE));
	while (!over) {
		const uint8_t *data;
		size_t used, len;
		enum multipart_event e =
			multipart_next(&m, (const uint8_t *)body + from, to - from, &used, &data, &len);

		CHECK(used <= to - from);
		from += used;
		switch (e) {
		case MULTIPART_MORE:
			over = to == n;
			to = MIN(n, to + step);
			break;
		case MULTIPART_PART:
			CHECK(!buf_printf(&out, "[%s|%s]", m.name ? m.name : "-",
					  m.filename ? m.filename : "-"));
			break;
		case MULTIPART_DATA:
			CHECK(len > 0);
			CHECK(!buf_put(&out, data, len));
			break;
		case MULTIPART_PART_END:
			CHECK(!buf_put_str(&out, ";"));
			break;
		case MULTIPART_END:
			CHECK(!buf_put_str(&out, "END"));
			over = true;
			break;
		case MULTIPART_BAD:
			CHECK(!buf_put_str(&out, "BAD"));
			over = true;
			break;
		}
	}
	multipart_fini(&m);
	return buf_take_str(&out);
}

TEST(bodies)
{
	static const struct {
		const char *body, *want;
	} t[] = {
		{ "--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a/b c.txt\"\r\n"
		  "Content-Type: text/plain\r\n\r\nhello\r\n--XyZ--\r\n",
		  "[file|/a/b c.txt]hello;END" },
		{ "preamble\r\n--XyZ\r\ncontent-disposition:form-data; name=file; filename=x\r\n\r\n"
		  "\r\n--XyZ\r\n\r\nrest\r\n--XyZ--epilogue",
		  "[file|x];[-|-]rest;END" },
		{ "--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"e\"\r\n\r\n"
		  "--XyZ--",
		  "[file|e];END" },
		/* Lines that only look like the boundary. */
		{ "--XyZ\r\n\r\na\r\n--Xy\r\n--XyZZ\r\n-\r\n--XyZ--",
		  "[-|-]a\r\n--Xy\r\n--XyZZ\r\n-;END" },
		{ "--XyZ \t\r\n\r\nx\r\n--XyZ  --", "[-|-]x;BAD" },
		{ "--XyZ\r\n\r\n\r\n\r\n--XyZ--", "[-|-]\r\n;END" },
		{ "--XyZ--", "END" },
		{ "--XyZ\r\nno colon\r\n\r\nx\r\n--XyZ--", "BAD" },
		{ "--XyZ\r\n\r\nnever ends", "[-|-]never" },
		{ "nothing at all", "" },
		{ "", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		for (size_t step = 1; step < 40; step++) {
			char *got = run(t[i].body, strlen(t[i].body), step);

			/* Before an open end some bytes are held back. */
			if (strstr(t[i].want, "END") || strstr(t[i].want, "BAD"))
				CHECK_STR(got, t[i].want);
			else
				CHECK(!strncmp(t[i].want, got, strlen(got)));
			free(got);
		}
	}
}

TEST(headers_have_a_limit)
{
	size_t n = MULTIPART_HEADER_MAX_BYTES + 100;
	char *body = malloc(n + 1), *got;

	memset(body, 'a', n);
	memcpy(body, "--XyZ\r\na: ", 10);
	got = run(body, n, 4096);
	CHECK_STR(got, "BAD");
	free(got);
	free(body);
}

TEST(parameters)
{
	static const struct {
		const char *header, *name, *want;
	} t[] = {
		{ "form-data; name=\"a\\\"b\"", "name", "a\"b" },
		{ "form-data; name=\"C:\\\\x\\y\"", "name", "C:\\x\\y" },
		{ "form-data; NAME=x", "name", "x" },
		{ "form-data; filename*=UTF-8''a%20%C3%BC; filename=\"z\"", "filename", "a \xc3\xbc" },
		{ "form-data; filename=\"a%22b\"", "filename", "a%22b" },
		{ "form-data", "name", NULL },
		{ "form-data; name", "name", NULL },
		{ "form-data; name=\"open", "name", NULL },
		{ "form-data; name=\"x\"y", "name", NULL },
		{ "form-data;;", "name", NULL },
		{ "form-data; filename*=latin1''x", "filename", NULL },
		{ "form-data; filename*=UTF-8''%00", "filename", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char *got = header_param(t[i].header, t[i].name);

		if (t[i].want)
			CHECK_STR(got, t[i].want);
		else
			CHECK(!got);
		free(got);
	}
}

TEST(boundaries)
{
	struct multipart m;
	char type[128];

	CHECK(multipart_init(&m, "multipart/form-data") < 0);
	CHECK(multipart_init(&m, "multipart/form-data; boundary=") < 0);
	CHECK(multipart_init(&m, "multipart/form-data; boundary=\"a\tb\"") < 0);
	CHECK(!multipart_init(&m, "multipart/form-data; boundary=\"a b\""));
	snprintf(type, sizeof(type), "multipart/form-data; boundary=%071d", 0);
	CHECK(multipart_init(&m, type) < 0);
}

TEST_MAIN()
