/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SC_OUT_H
#define KVR_SC_OUT_H

/**
 * @file
 * Output lines: JSON objects with their keys in the order of writing. The JSON library is not used,
 * as its integers are signed and ids go up to 2^64-1. One thread per writer.
 */

#include <stdbool.h>
#include <stdio.h>

/** Zeroed except for `to`: nothing is written yet. */
struct kvr_sc_out {
	FILE *to;
	bool some; /** < the innermost object or array is not empty */
	int depth;
};

/**
 * Write a part of a line as in @p fmt, words separated by single blanks: `key:T` is a member, `T`
 * an element; `key:{`, `key:[`, `{` and `[` begin an object or array, `}` and `]` end it. The end
 * of the outermost object ends the line. T is the type of the next argument:
 *
 *   s  const char *		     u  uint32_t
 *   S  const char *, uint32_t bytes  U  uint64_t
 *   b  bool			     f  double: the shortest text that reads back the same
 */
void kvr_sc_out(struct kvr_sc_out *o, const char *fmt, ...);

#endif
