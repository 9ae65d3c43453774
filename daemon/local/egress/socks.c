/* SPDX-License-Identifier: MIT */
#include "daemon/local/egress/socks.h"

#include <string.h>

#include "proto/base/must.h"

#define VERSION	      5
#define AUTH_VERSION  1
#define NO_AUTH	      0
#define USER_PASSWORD 2
#define CONNECT	      1
#define IPV4	      1
#define NAME	      3
#define IPV6	      4
#define REPLY_HEAD    5u	/* to the length of a name */

int socks_begin(struct socks *s, struct buf *out)
{
	static const uint8_t without[] = { VERSION, 1, NO_AUTH };
	static const uint8_t with[] = { VERSION, 2, NO_AUTH, USER_PASSWORD };

	s->step = SOCKS_METHOD;
	return s->user ? buf_put(out, with, sizeof(with)) : buf_put(out, without, sizeof(without));
}

static int put_text(struct buf *out, const char *s)
{
	uint8_t n = (uint8_t)strlen(s);
	int r = buf_put(out, &n, 1);

	must(strlen(s) <= UINT8_MAX);
	return r < 0 ? r : buf_put(out, s, n);
}

static int put_request(const struct socks *s, struct buf *out)
{
	const uint8_t head[] = { VERSION, CONNECT, 0, s->to.name ? NAME : IPV4 };
	const uint8_t address[] = { (uint8_t)(s->to.address >> 24), (uint8_t)(s->to.address >> 16),
				    (uint8_t)(s->to.address >> 8), (uint8_t)s->to.address };
	const uint8_t port[] = { (uint8_t)(s->to.port >> 8), (uint8_t)s->to.port };
	int r = buf_put(out, head, sizeof(head));

	if (r == 0)
		r = s->to.name ? put_text(out, s->to.name) : buf_put(out, address, sizeof(address));
	return r < 0 ? r : buf_put(out, port, sizeof(port));
}

static int put_credentials(const struct socks *s, struct buf *out)
{
	const uint8_t version = AUTH_VERSION;
	int r = buf_put(out, &version, 1);

	if (r == 0)
		r = put_text(out, s->user);
	return r < 0 ? r : put_text(out, s->password ? s->password : "");
}

static enum socks_result socks_refuse(const char *why, const char **ret_why)
{
	*ret_why = why;
	return SOCKS_REFUSED;
}

static enum socks_result on_method(struct socks *s, struct buf *in, struct buf *out, const char **ret_why)
{
	const uint8_t *p = buf_data(in);
	bool auth;

	if (buf_len(in) < 2)
		return SOCKS_MORE;
	if (p[0] != VERSION)
		return socks_refuse("the proxy does not speak SOCKS5", ret_why);
	auth = p[1] == USER_PASSWORD;
	if ((auth && !s->user) || (!auth && p[1] != NO_AUTH))
		return socks_refuse("the proxy wants another kind of authentication", ret_why);
	buf_drop(in, 2);
	s->step = auth ? SOCKS_AUTH : SOCKS_REPLY;
	return (auth ? put_credentials(s, out) : put_request(s, out)) < 0 ? SOCKS_NO_MEMORY : SOCKS_MORE;
}

static enum socks_result on_auth(struct socks *s, struct buf *in, struct buf *out, const char **ret_why)
{
	const uint8_t *p = buf_data(in);

	if (buf_len(in) < 2)
		return SOCKS_MORE;
	if (p[0] != AUTH_VERSION || p[1])
		return socks_refuse("the proxy does not take the username and password", ret_why);
	buf_drop(in, 2);
	s->step = SOCKS_REPLY;
	return put_request(s, out) < 0 ? SOCKS_NO_MEMORY : SOCKS_MORE;
}

static const char *reply_text(uint8_t code)
{
	static const char *const texts[] = {
		[1] = "the proxy failed",
		[2] = "the proxy's rules forbid it",
		[3] = "the proxy cannot reach the network",
		[4] = "the proxy cannot reach the host",
		[5] = "the connection was refused, says the proxy",
		[6] = "the time to live expired, says the proxy",
		[7] = "the proxy does not know the command",
		[8] = "the proxy does not know the kind of address",
	};

	return code < ARRAY_SIZE(texts) && texts[code] ? texts[code] : "the proxy says an unknown error";
}

static enum socks_result on_reply(struct socks *s, struct buf *in, const char **ret_why)
{
	const uint8_t *p = buf_data(in);
	size_t n = buf_len(in), want;

	if (n >= 1 && p[0] != VERSION)
		return socks_refuse("the proxy does not speak SOCKS5", ret_why);
	if (n >= 2 && p[1])
		return socks_refuse(reply_text(p[1]), ret_why);
	if (n < REPLY_HEAD)
		return SOCKS_MORE;
	if (p[3] == IPV4)
		want = 4 + 4 + 2;
	else if (p[3] == IPV6)
		want = 4 + 16 + 2;
	else if (p[3] == NAME)
		want = 4 + 1 + p[4] + 2u;
	else
		return socks_refuse("the proxy answers with an unknown kind of address", ret_why);
	if (n < want)
		return SOCKS_MORE;
	buf_drop(in, want);
	s->step = SOCKS_OPEN;
	return SOCKS_DONE;
}

enum socks_result socks_talk(struct socks *s, struct buf *in, struct buf *out, const char **ret_why)
{
	enum socks_result r;

	do {
		enum socks_step before = s->step;

		must(s->step != SOCKS_OPEN);
		r = s->step == SOCKS_METHOD ? on_method(s, in, out, ret_why)
		    : s->step == SOCKS_AUTH ? on_auth(s, in, out, ret_why)
					    : on_reply(s, in, ret_why);
		if (s->step == before)
			break;
	} while (r == SOCKS_MORE);
	return r;
}
