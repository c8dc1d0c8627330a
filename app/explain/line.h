/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_LINE_H
#define EX_LINE_H

/**
 * @file
 * One line of a scenario: an object as the language has it, and memory. A line is over
 * with its operation, unless a worker or a request keeps it: it is what they are made of.
 */

#include "in.h"

#include <sys/queue.h>

struct ex_line {
	SLIST_HEAD(, ex_chunk) mem;
	json_t *obj;
	bool kept; /* somebody frees it later */
};

/** @p obj is the line's. Aborts without memory. */
struct ex_line *ex_line_new(json_t *obj);

/** All of it, and what lies in its memory. NULL is allowed. */
void ex_line_free(struct ex_line *l);

/** Zeroed memory, aligned to a cache line, that lives as long as the line. */
void *ex_alloc(struct ex_line *l, size_t n, size_t size);

/** An array of integers of @p width bytes (4, 8) in such memory. */
void *ex_ints(struct ex_line *l, const json_t *list, size_t width);

#endif
