/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONF_FILE_PVT_H
#define CONF_FILE_PVT_H

/**
 * @file
 * The lines of an INI file, in file order, without comments and blanks. Syntax errors are reported
 * with their line. Keys and values are not interpreted here.
 */

#include <stddef.h>

/** A header "[section]" (key NULL), or an entry "key = value" of the header before it. */
struct conf_item {
	unsigned int line;
	const char *name; /* of the section */
	const char *key;
	const char *value;
};

struct conf_file {
	char *text; /* the strings of the items point into it */
	struct conf_item *items;
	unsigned int n_items;
};

/** @return 0, or -errno with `path:line: ...` in @p err. Nothing to free on error. */
int kvr_conf__read(const char *path, struct conf_file *file, char *err, size_t errlen);
void kvr_conf__free(struct conf_file *file);

#endif
