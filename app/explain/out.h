/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_OUT_H
#define EX_OUT_H

/**
 * @file
 * Output lines: JSON objects written as they are built, keys in the order of the calls. Own
 * writer, as ids go up to 2^64-1 and the library's integers are signed. One line at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Start a line: {"op":"<op>" */
void ex_out_line(const char *op);
void ex_out_str(const char *key, const char *v);
void ex_out_strn(const char *key, const char *v, size_t len);
void ex_out_u64(const char *key, uint64_t v);
/** Shortest text that reads back as the same number; always looks like a real. */
void ex_out_f64(const char *key, double v);
void ex_out_bool(const char *key, bool v);
/** Key may be NULL inside an array. */
void ex_out_open(const char *key, char bracket);
void ex_out_close(char bracket);
/** An element of an array of integers. */
void ex_out_item(uint64_t v);
/** }\n */
void ex_out_end(void);

#endif
