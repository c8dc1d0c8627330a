/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SC_LINE_H
#define KVR_SC_LINE_H

/**
 * @file
 * One line of a scenario: a JSON object, its values and its memory. Integers up to 2^64-1 are
 * exact: the JSON library cannot hold those above 2^63-1, so they are turned into marked strings
 * before parsing. A null member counts as absent.
 *
 * A line is freed after its operation, unless a worker or a request is stored in it. The first
 * problem of a line is kept, and the caller drops the line. One thread; not for packet lcores.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/** First problem of the line; empty: none. */
struct kvr_sc_problem {
	char text[256];
};

/** Note a problem. @return false, for `return kvr_sc_bad(...)`. */
bool kvr_sc_bad(struct kvr_sc_problem *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** Parse one line. @return an object, or NULL with the problem noted. */
json_t *kvr_sc_parse(const char *line, size_t len, struct kvr_sc_problem *p);

/* Types of values, in addition to those of the JSON library. */
bool kvr_sc_is_large(const json_t *v); /* an integer above 2^63-1 */
bool kvr_sc_is_u64(const json_t *v, uint64_t most);
bool kvr_sc_is_real(const json_t *v); /* finite, or an integer */
bool kvr_sc_is_text(const json_t *v);

/* The value of an integer. */
uint64_t kvr_sc_u64(const json_t *v);
double kvr_sc_real(const json_t *v);

/** The member, or NULL. */
const json_t *kvr_sc_get(const json_t *obj, const char *name);

/* The member's value, or the default. language.c has checked its type; @p obj may be NULL. */
uint64_t kvr_sc_u64_or(const json_t *obj, const char *name, uint64_t def);
double kvr_sc_real_or(const json_t *obj, const char *name, double def);
const char *kvr_sc_str_or(const json_t *obj, const char *name, const char *def);

/* ---- memory ------------------------------------------------------------------------------ */

struct kvr_sc_line {
	SLIST_HEAD(, kvr_sc_chunk) mem;
	json_t *obj;
	bool kept; /* freed later, by its owner */
};

/** A line with object @p obj, which it owns. Aborts without memory. */
struct kvr_sc_line *kvr_sc_line_new(json_t *obj);

/** Free the line and its memory. NULL is allowed. */
void kvr_sc_line_free(struct kvr_sc_line *l);

/** Zeroed memory, aligned to a cache line, freed with the line. */
void *kvr_sc_alloc(struct kvr_sc_line *l, size_t n, size_t size);

/** An array of integers of @p width bytes (4, 8), freed with the line. */
void *kvr_sc_ints(struct kvr_sc_line *l, const json_t *list, size_t width);

#endif
