/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/forward/forward.h"

/* Of n digits, 1 to 65535; false: they are none. */
static bool read_port(const char *digits, size_t n, uint16_t *ret)
{
	uint32_t number = 0;

	for (size_t i = 0; i < n && i < 6; i++) {
		if (digits[i] < '0' || digits[i] > '9')
			return false;
		number = number * 10 + (uint32_t)(digits[i] - '0');
	}
	*ret = (uint16_t)number;
	return n && n < 6 && number && number <= UINT16_MAX;
}

bool forward_pair_read(const char *text, struct forward_pair *ret)
{
	const char *colon = strchr(text, ':'), *right = colon ? colon + 1 : text;
	struct forward_pair pair = { 0 };

	if (!read_port(right, strlen(right), &pair.remote))
		return false;
	if (!colon)
		pair.local = pair.remote;
	else if (colon > text && !read_port(text, (size_t)(colon - text), &pair.local))
		return false;
	*ret = pair;
	return true;
}

bool forward_url_read(const char *url, char host[FORWARD_HOST_BYTES], uint16_t *ret_port)
{
	static const char scheme[] = "http://";
	const char *at = url + strlen(scheme), *end;
	bool bracket;
	size_t n;

	if (strncmp(url, scheme, strlen(scheme)) != 0)
		return false;
	bracket = *at == '[';
	at += bracket;
	n = strcspn(at, bracket ? "]" : ":");
	end = at + n + (bracket && at[n]);
	if (!n || n >= FORWARD_HOST_BYTES || *end != ':' || !read_port(end + 1, strlen(end + 1), ret_port))
		return false;
	memcpy(host, at, n);
	host[n] = 0;
	return true;
}

/* A refusal is a line of text, which comes with its head. */
static void copy_why(const char *status, const char *body, size_t n, char why[FORWARD_WHY_BYTES])
{
	size_t k = 0;

	for (size_t i = 0; i < n && k < FORWARD_WHY_BYTES - 1 && body[i] != '\n'; i++)
		why[k++] = iscntrl((unsigned char)body[i]) ? '?' : body[i];
	why[k] = 0;
	if (!k)
		(void)snprintf(why, FORWARD_WHY_BYTES, "the gateway answers with HTTP %.3s", status);
}

enum forward_answer forward_answer_read(const char *p, size_t n, bool eof, size_t *ret_used, char why[FORWARD_WHY_BYTES])
{
	static const char start[] = "HTTP/1.1 ";
	const char *end = memmem(p, n, "\r\n\r\n", 4), *status = p + strlen(start);

	*ret_used = 0;
	if (n < strlen(start) + 3 || memcmp(p, start, strlen(start)) != 0) {
		if (!eof && n < strlen(start) + 3)
			return FORWARD_MORE;
		(void)snprintf(why, FORWARD_WHY_BYTES, "the gateway does not answer as one of agentboxd does");
		return FORWARD_REFUSED;
	}
	if (end && !memcmp(status, "101", 3)) {
		*ret_used = (size_t)(end - p) + 4;
		return FORWARD_AGREED;
	}
	if (!eof && (!end || end + 4 == p + n))
		return FORWARD_MORE;
	copy_why(status, end ? end + 4 : p, end ? n - (size_t)(end + 4 - p) : 0, why);
	return FORWARD_REFUSED;
}
