/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SC_LINE_H
#define KVR_SC_LINE_H

/**
 * @file
 * One line of a scenario: a JSON object, its values, and memory. Integers up to 2^64-1 are exact:
 * those above 2^63-1, which the JSON library cannot hold, are turned into marked strings before
 * parsing. A member that is null is as good as absent.
 *
 * A line is over with its operation, unless a worker or a request keeps it: it is what they are
 * made of. Problems are collected in one place: the first message wins, and the caller drops the
 * line. One thread; not for packet lcores.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/** First problem of the line; empty = none. */
struct kvr_sc_problem {
	char text[256];
};

/** Note a problem; returns false for `return kvr_sc_bad(...)`. */
bool kvr_sc_bad(struct kvr_sc_problem *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** Parse one line. @return an object, or NULL with the problem noted. */
json_t *kvr_sc_parse(const char *line, size_t len, struct kvr_sc_problem *p);

/* What a value is, beyond the library's own questions. */
bool kvr_sc_is_large(const json_t *v); /* an integer above 2^63-1 */
bool kvr_sc_is_u64(const json_t *v, uint64_t most);
bool kvr_sc_is_real(const json_t *v); /* finite, or an integer */
bool kvr_sc_is_text(const json_t *v);

/* Its value, when it is one. */
uint64_t kvr_sc_u64(const json_t *v);
double kvr_sc_real(const json_t *v);

/** The member, or NULL. */
const json_t *kvr_sc_get(const json_t *obj, const char *name);

/* Its value when it is there, as language.c has checked; @p obj may be NULL. */
uint64_t kvr_sc_u64_or(const json_t *obj, const char *name, uint64_t def);
double kvr_sc_real_or(const json_t *obj, const char *name, double def);
const char *kvr_sc_str_or(const json_t *obj, const char *name, const char *def);

/* ---- memory ------------------------------------------------------------------------------ */

struct kvr_sc_line {
	SLIST_HEAD(, kvr_sc_chunk) mem;
	json_t *obj;
	bool kept; /* somebody frees it later */
};

/** @p obj is the line's. Aborts without memory. */
struct kvr_sc_line *kvr_sc_line_new(json_t *obj);

/** All of it, and what lies in its memory. NULL is allowed. */
void kvr_sc_line_free(struct kvr_sc_line *l);

/** Zeroed memory, aligned to a cache line, that lives as long as the line. */
void *kvr_sc_alloc(struct kvr_sc_line *l, size_t n, size_t size);

/** An array of integers of @p width bytes (4, 8) in such memory. */
void *kvr_sc_ints(struct kvr_sc_line *l, const json_t *list, size_t width);

#endif
