/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by reader and writer: allowed bytes, hop-by-hop fields, reason phrases. */
#include "http_pvt.h"
#include "kvr_http.h"

#include <http_parser.h>
#include <string.h>
#include <strings.h>

bool kvr_http__is_token(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] <= ' ' || p[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", p[i]) != NULL)
			return false;
	return n > 0;
}

bool kvr_http__is_value(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f)
			return false;
	return true;
}

bool kvr_http_is_hop(const char *name, size_t len)
{
	static const char *const hop[] = {
		"connection", "content-length", "host",	   "keep-alive",     "te",
		"trailer",    "expect",		"upgrade", "http2-settings", "transfer-encoding",
		NULL};

	for (unsigned int i = 0; hop[i] != NULL; i++)
		if (len == strlen(hop[i]) && strncasecmp(name, hop[i], len) == 0)
			return true;
	return len > 6 && strncasecmp(name, "proxy-", 6) == 0;
}

const char *kvr_http_reason(unsigned int status)
{
	switch (status) {
#define WORDS(num, name, string)                                                                   \
	case num:                                                                                  \
		return #string;
		HTTP_STATUS_MAP(WORDS)
#undef WORDS
	case 499:
		return "Client Closed Request";
	case 529:
		return "Site is overloaded";
	default:
		return "";
	}
}
