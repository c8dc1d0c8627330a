/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_IN_H
#define EX_IN_H

/**
 * @file
 * Input: one JSON object, and its values. Integers up to 2^64-1 are exact: those above 2^63-1,
 * which the JSON library cannot hold, are turned into marked strings before parsing. A member that
 * is null is as good as absent.
 *
 * Problems are collected in one place: the first message wins, and the caller drops the line.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** First problem of the line; empty = none. */
struct ex_problem {
	char text[256];
};

/** Note a problem; returns false for `return ex_bad(...)`. */
bool ex_bad(struct ex_problem *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** Parse one line. @return an object, or NULL with the problem noted. */
json_t *ex_parse(const char *line, size_t len, struct ex_problem *p);

/* What a value is, beyond the library's own questions. */
bool ex_is_large(const json_t *v); /* an integer above 2^63-1 */
bool ex_is_u64(const json_t *v, uint64_t most);
bool ex_is_real(const json_t *v); /* finite, or an integer */
bool ex_is_text(const json_t *v);

/* Its value, when it is one. */
uint64_t ex_u64(const json_t *v);
double ex_real(const json_t *v);

/** The member, or NULL. */
const json_t *ex_get(const json_t *obj, const char *name);

/* Its value when it is there, as language.c has checked; @p obj may be NULL. */
uint64_t ex_u64_or(const json_t *obj, const char *name, uint64_t def);
double ex_real_or(const json_t *obj, const char *name, double def);
const char *ex_str_or(const json_t *obj, const char *name, const char *def);

#endif
