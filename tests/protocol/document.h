/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DOCUMENT_H
#define DOCUMENT_H

/** @file PROTOCOL.md as one string, for the tests that compare it with the code. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MOST (1u << 20)

/** The text at @p path, for ever. @return NULL, and a line on stderr, when it cannot be read. */
static inline char *document_read(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = f != NULL ? calloc(1, DOCUMENT_MOST) : NULL;

	if (text == NULL || fread(text, 1, DOCUMENT_MOST - 1, f) == 0)
		perror(path);
	if (f != NULL)
		fclose(f);
	return text;
}

#endif
