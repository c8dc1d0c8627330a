/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_OUT_H
#define EX_OUT_H

/**
 * @file
 * Output lines: JSON objects written as they are said, keys in their order. Own writer, as ids go
 * up to 2^64-1 and the JSON library's integers are signed.
 */

/**
 * Write a part of a line, in the words of @p fmt, separated by single blanks: `key:T` a member,
 * `T` an element, `key:{`, `key:[`, `{` and `[` begin an object or array, `}` and `]` end it. The
 * end of the outermost object ends the line. T says what the next argument is:
 *
 *   s  const char *		     u  uint32_t
 *   S  const char *, uint32_t bytes  U  uint64_t
 *   b  bool			     f  double: the shortest text that reads back the same
 */
void ex_out(const char *fmt, ...);

#endif
