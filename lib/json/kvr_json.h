/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_JSON_H
#define KVR_JSON_H

/**
 * @file
 * JSON (RFC 8259) as spans of the text it stands in, without a tree: one strict pass says whether a
 * text is JSON, members are found by name or path, and members of an object are replaced, added or
 * taken out while all else stays as it was, byte for byte.
 *
 * Strict: UTF-8 is checked, a text is one value, nothing follows it but white space. A name that
 * occurs twice in an object means its last value, as it does to the servers behind us.
 *
 * All calls are pure over the caller's memory, allocate nothing, and take time linear in the text;
 * any thread. A value is valid as long as the text it lies in. Only kvr_json_parse() may be given
 * text that nobody checked; all others take values that came from it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Arrays and objects in one another, at most. */
#define KVR_JSON_MAX_DEPTH 64u
/** Names that one call looks for, and edits it makes, at most. */
#define KVR_JSON_MAX_NAMES 32u

enum kvr_json_type {
	KVR_JSON_NONE = 0, /**< not there */
	KVR_JSON_NULL,
	KVR_JSON_BOOL,
	KVR_JSON_NUMBER,
	KVR_JSON_STRING,
	KVR_JSON_ARRAY,
	KVR_JSON_OBJECT,
};

/** One value: its bytes in the text, quotes and brackets included. Zeroed: not there. */
struct kvr_json_value {
	const char *p;
	size_t len;
	enum kvr_json_type type;
};

/**
 * Check @p text, which needs no terminator, and give its value.
 * @param at position of the first byte that is wrong, when not NULL; the length if it ends early.
 * @return 0; -EBADMSG no JSON; -EILSEQ not UTF-8; -E2BIG deeper than KVR_JSON_MAX_DEPTH.
 */
int kvr_json_parse(const char *text, size_t len, struct kvr_json_value *root, size_t *at);

/** Walking an array or object; fields are private. */
struct kvr_json_iter {
	const char *p, *end;
	bool object;
};

/** Begin with the first element of @p v; of anything else than an array or object there is none. */
struct kvr_json_iter kvr_json_begin(const struct kvr_json_value *v);

/** Next element, and its name when it is a member (else @p name is zeroed). @return false: no more.
 */
bool kvr_json_next(struct kvr_json_iter *it, struct kvr_json_value *name,
		   struct kvr_json_value *value);

/**
 * Find members of @p object in one pass: out[i] is the last one called names[i], or zeroed.
 * Something that is no object has none. @p n is at most KVR_JSON_MAX_NAMES.
 * @return how many of the names were found.
 */
unsigned int kvr_json_members(const struct kvr_json_value *object, const char *const names[],
			      unsigned int n, struct kvr_json_value out[]);

/**
 * Follow names joined by dots from @p root, such as "usage.prompt_tokens"; a number is the place
 * in an array. Names that contain a dot cannot be reached.
 * @return true, or false with a zeroed @p out.
 */
bool kvr_json_get(const struct kvr_json_value *root, const char *path, struct kvr_json_value *out);

/** Is it a string whose content, escapes resolved, is @p text? */
bool kvr_json_equals(const struct kvr_json_value *v, const char *text);

/**
 * Content of a string, escapes resolved, as UTF-8 in @p buf with a terminator.
 * @return its length without that; -EINVAL no string; -ENOSPC it needs more than @p size bytes;
 * -EILSEQ it has half of a surrogate pair.
 */
int64_t kvr_json_string(const struct kvr_json_value *v, char *buf, size_t size);

/** @return 0; -EINVAL neither true nor false. */
int kvr_json_bool(const struct kvr_json_value *v, bool *out);

/** @return 0; -EINVAL no number, or not written as a whole one; -ERANGE does not fit. */
int kvr_json_u64(const struct kvr_json_value *v, uint64_t *out);

/** @return as kvr_json_u64(). */
int kvr_json_i64(const struct kvr_json_value *v, int64_t *out);

/** @return 0; -EINVAL no number; -ERANGE not finite as a double, or longer than 63 characters. */
int kvr_json_f64(const struct kvr_json_value *v, double *out);

/**
 * An array of whole numbers, each at most UINT32_MAX.
 * @param out the first @p cap of them; NULL to count only.
 * @return how many there are, which may be more than @p cap; -EINVAL no array, or something else
 * in it; -ERANGE one does not fit.
 */
int64_t kvr_json_u32s(const struct kvr_json_value *v, uint32_t out[], size_t cap);

/** What is to become of one member of an object. */
struct kvr_json_edit {
	const char *name;  /**< as it stands between the quotes: nothing in it may need an escape */
	const char *value; /**< JSON text; NULL: take the member out */
	size_t len;	   /**< of value */
};

/** Bytes that kvr_json_edit() may need at most. */
size_t kvr_json_edit_bound(const struct kvr_json_value *object, const struct kvr_json_edit edits[],
			   unsigned int n);

/**
 * Copy @p object to @p out with the edits made: a member that is there gets the value in its
 * place (its copies are taken out), one that is not is added behind the last. Each name at most
 * once. What is written has no terminator.
 * @return bytes written; -EINVAL no object, or more than KVR_JSON_MAX_NAMES edits; -ENOSPC.
 */
int64_t kvr_json_edit(const struct kvr_json_value *object, const struct kvr_json_edit edits[],
		      unsigned int n, char *out, size_t size);

/**
 * Write @p text (UTF-8) as a JSON string with its quotes and a terminator.
 * @return its length without that; -ENOSPC; -EILSEQ not UTF-8.
 */
int64_t kvr_json_quote(const char *text, size_t len, char *buf, size_t size);

#endif
