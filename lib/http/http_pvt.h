/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HTTP_PVT_H
#define KVR_HTTP_PVT_H

/**
 * @file
 * What reading and writing of heads have in common: which bytes may stand where (RFC 9110, section
 * 5), and the callbacks of the parser that collect fields.
 */

#include "kvr_http.h"

#include <http_parser.h>

/** What the parser's callbacks fill; its `data` while it reads a head. */
struct kvr_http__parse {
	struct kvr_http_head *head;
	int err;
	bool begun, value, done;
};

int kvr_http__on_begin(http_parser *p);
int kvr_http__on_name(http_parser *p, const char *at, size_t len);
int kvr_http__on_value(http_parser *p, const char *at, size_t len);

/** No head yet. */
void kvr_http__clear(struct kvr_http_head *head);

/** The parser lets blanks and controls pass in some places. @return 0 or -EBADMSG. */
int kvr_http__check_fields(const struct kvr_http_head *head);

/** A token: what names and methods are made of. */
bool kvr_http__is_token(const char *p, size_t n);

/** What a field's value may have: no control but the tab. */
bool kvr_http__is_value(const char *p, size_t n);

#endif
