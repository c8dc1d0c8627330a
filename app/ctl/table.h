/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H

/**
 * @file
 * An answer as people like to read it, whatever it holds: an object of objects is a table with a
 * row for each, an object of values is two columns, what is nested is a part of its own below its
 * name. Pure.
 */

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/** Print @p v; @p columns: those that a table shall have and their order, "state pool bookings",
 * or NULL: all there are. */
void table_print(const json_t *v, const char *columns, FILE *out);

/** A bar of @p width characters, of which @p share in [0, 1] is filled; text, for one line. */
const char *table_bar(double share, unsigned int width, char *buf, size_t len);

/** A number in three to four digits: 1,234 -> "1.2k". */
const char *table_short(double v, char *buf, size_t len);

#endif
