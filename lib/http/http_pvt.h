/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HTTP_PVT_H
#define KVR_HTTP_PVT_H

/**
 * @file
 * Shared by reader and writer of heads: the bytes allowed in each place (RFC 9110, section 5), and
 * the callbacks of http_parser that collect fields.
 */

#include "kvr_http.h"

#include <http_parser.h>

/** State of the parser's callbacks, their `data` while a head is parsed. */
struct kvr_http__parse {
	struct kvr_http_head *head;
	int err;
	bool begun, value, done;
};

int kvr_http__on_begin(http_parser *p);
int kvr_http__on_name(http_parser *p, const char *at, size_t len);
int kvr_http__on_value(http_parser *p, const char *at, size_t len);

/** Reset to an empty head. */
void kvr_http__clear(struct kvr_http_head *head);

/**
 * Check names and values: the parser accepts blanks and control characters in some places. @return
 * 0 or -EBADMSG.
 */
int kvr_http__check_fields(const struct kvr_http_head *head);

/** True for a token, the syntax of names and methods. */
bool kvr_http__is_token(const char *p, size_t n);

/** True for a valid field value: no control characters except the tab. */
bool kvr_http__is_value(const char *p, size_t n);

#endif
