/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_IN_H
#define EX_IN_H

/**
 * @file
 * Input lines: strict reading of one JSON object. Integers up to 2^64-1 are exact: those above
 * 2^63-1, which the JSON library cannot hold, are turned into marked strings before parsing.
 *
 * Problems are collected in one place: the first message wins, and the caller drops the line.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** What a field holds. */
enum ex_kind {
	EX_STR,
	EX_U64,
	EX_U32,
	EX_POS,	 /* finite real or integer >= 0 */
	EX_REAL, /* any finite real or integer */
	EX_BOOL,
	EX_ARR,
	EX_OBJ,
	EX_U64S, /* array of u64 */
	EX_U32S,
	EX_STRS,
};

#define EX_REQUIRED 0x1u
#define EX_NULL	    0x2u /* null is the same as absent */

struct ex_field {
	const char *name;
	enum ex_kind kind;
	unsigned int flags;
};

/** First problem of the line; empty = none. */
struct ex_problem {
	char text[256];
};

/** Note a problem; returns false for `return ex_bad(...)`. */
bool ex_bad(struct ex_problem *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** Parse one line. @return an object, or NULL with the problem noted. */
json_t *ex_parse(const char *line, size_t len, struct ex_problem *p);

/** Every field known and of its kind, required ones there. Table ends with name NULL. */
bool ex_check(const json_t *obj, const struct ex_field *fields, struct ex_problem *p);

/** The field, or NULL when absent or null. */
const json_t *ex_get(const json_t *obj, const char *name);

/* Values of checked fields. */
uint64_t ex_u64(const json_t *v);
uint64_t ex_u64_or(const json_t *obj, const char *name, uint64_t def);
double ex_real(const json_t *v);
const char *ex_str_or(const json_t *obj, const char *name, const char *def);
/** Whether a string is a number in disguise. */
bool ex_is_number(const json_t *v);

#endif
