/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_JSON_PVT_H
#define KVR_JSON_PVT_H

/**
 * @file
 * Scanner functions shared by the files of this library. Pointers point into a text; `end` is the
 * byte after its last.
 */

#include "kvr_json.h"

/** First byte from @p p on that is not white space. */
static inline const char *kvr_json__skip_blanks(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	return p;
}

/**
 * First byte from @p p on that needs attention inside a string: a quote, a backslash, a byte below
 * 0x20, or the start of a multi-byte UTF-8 character.
 */
const char *kvr_json__find_special(const char *p, const char *end);

/** Bytes of the UTF-8 character at @p p, 1 to 4; 0 if it is invalid. */
unsigned int kvr_json__utf8_len(const char *p, const char *end);

/** First quote or bracket from @p p on. */
const char *kvr_json__find_bracket(const char *p, const char *end);

/** First byte after the value at @p p of a validated text, and the value's type. */
const char *kvr_json__skip_value(const char *p, const char *end, enum kvr_json_type *type);

/** True if the content of the string @p v equals the @p n bytes of @p text. */
bool kvr_json__text_equals(const struct kvr_json_value *v, const char *text, size_t n);

#endif
