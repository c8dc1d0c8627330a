/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_JSON_PVT_H
#define KVR_JSON_PVT_H

/**
 * @file
 * What the files of the scan share. Pointers go through a text; `end` is behind its last byte.
 */

#include "kvr_json.h"

/** The first byte from @p p on that is no white space. */
static inline const char *kvr_json__blank(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	return p;
}

/** The first byte from @p p on that a string cannot have as it is: a quote, a backslash, one below
 * 0x20, or one of UTF-8 with several. */
const char *kvr_json__plain(const char *p, const char *end);

/** Bytes of the UTF-8 character at @p p, 1..4, or 0: it is none. */
unsigned int kvr_json__utf8(const char *p, const char *end);

/** The first quote or bracket from @p p on. */
const char *kvr_json__bracket(const char *p, const char *end);

/** Behind the value at @p p of a text that was checked, and its type. */
const char *kvr_json__skip(const char *p, const char *end, enum kvr_json_type *type);

/** Does the content of the string at @p p equal the @p n bytes of @p text? */
bool kvr_json__same(const struct kvr_json_value *v, const char *text, size_t n);

#endif
