/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SC_OUT_H
#define KVR_SC_OUT_H

/**
 * @file
 * Output lines: JSON objects written as they are said, keys in their order. Own writer, as ids go
 * up to 2^64-1 and the JSON library's integers are signed. One thread for each writer.
 */

#include <stdbool.h>
#include <stdio.h>

/** Zeroed but for `to`: nothing is written yet. */
struct kvr_sc_out {
	FILE *to;
	bool some; /**< something stands in the innermost object or array */
	int depth;
};

/**
 * Write a part of a line, in the words of @p fmt, separated by single blanks: `key:T` a member,
 * `T` an element, `key:{`, `key:[`, `{` and `[` begin an object or array, `}` and `]` end it. The
 * end of the outermost object ends the line. T says what the next argument is:
 *
 *   s  const char *		     u  uint32_t
 *   S  const char *, uint32_t bytes  U  uint64_t
 *   b  bool			     f  double: the shortest text that reads back the same
 */
void kvr_sc_out(struct kvr_sc_out *o, const char *fmt, ...);

#endif
