/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H

/**
 * @file
 * JSON as text for people. An object of objects is a table with one row each; an object of values
 * has two columns; a nested object is a section under its name. Pure.
 */

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/** Print @p v. @p columns: the columns of a table in their order, such as "state pool bookings";
 * NULL: all. */
void table_print(const json_t *v, const char *columns, FILE *out);

/** Write a bar of @p width characters with @p share in [0, 1] filled. @return buf. */
const char *table_format_bar(double share, unsigned int width, char *buf, size_t len);

/** Write a number with three or four digits: 1,234 becomes "1.2k". @return buf. */
const char *table_format_short(double v, char *buf, size_t len);

#endif
