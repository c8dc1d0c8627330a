/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONF_FILE_PVT_H
#define CONF_FILE_PVT_H

/**
 * @file
 * The lines of an INI file. rte_cfgfile knows neither line numbers nor '#' comments and prints
 * its own messages, so the file is read once here: every syntax error is found with its line, and
 * a copy that rte_cfgfile cannot misread (no comments, no blanks, no over-long lines) is made
 * for it. Items stand in file order, as do rte_cfgfile's sections and entries.
 */

#include <stddef.h>

/** One header ("[section]", key NULL) or one "key = value". */
struct conf_item {
	unsigned int line;
	unsigned int section; /* 0, 1, ... in file order */
	const char *name;     /* section */
	const char *key;
	const char *value;
};

struct conf_file {
	char *text;  /* names point into it */
	char *clean; /* for rte_cfgfile */
	struct conf_item *items;
	unsigned int n_items, n_sections;
};

/** @return 0, or -errno with `path:line: ...` in @p err. Nothing to free on error. */
int kvr_conf__read(const char *path, struct conf_file *f, char *err, size_t errlen);
void kvr_conf__free(struct conf_file *f);

/** The item of @p key (NULL: the header) in section number @p section, or NULL. */
const struct conf_item *kvr_conf__item(const struct conf_file *f, unsigned int section,
				       const char *key);

#endif
