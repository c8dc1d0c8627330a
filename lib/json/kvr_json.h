/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_JSON_H
#define KVR_JSON_H

/**
 * @file
 * JSON (RFC 8259) as spans of its text, without a tree. One strict pass validates a text; members
 * are found by name or path; members of an object are replaced, added or deleted while all other
 * bytes stay unchanged.
 *
 * Strict: UTF-8 is checked, and a text is one value followed by nothing but white space. Of two
 * members with the same name the last one counts, as it does for the engines.
 *
 * All functions are pure over the caller's memory, allocate nothing and take linear time; any
 * thread. A value is valid as long as its text. Only kvr_json_parse() accepts unchecked text; all
 * other functions take values that come from it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Maximum depth of nested arrays and objects. */
#define KVR_JSON_MAX_DEPTH 64u
/** Maximum number of names in one search and of edits in one call. */
#define KVR_JSON_MAX_NAMES 32u

enum kvr_json_type {
	KVR_JSON_NONE = 0, /**< missing */
	KVR_JSON_NULL,
	KVR_JSON_BOOL,
	KVR_JSON_NUMBER,
	KVR_JSON_STRING,
	KVR_JSON_ARRAY,
	KVR_JSON_OBJECT,
};

/** One value: its bytes in the text, quotes and brackets included. Zeroed: missing. */
struct kvr_json_value {
	const char *p;
	size_t len;
	enum kvr_json_type type;
};

/**
 * Validate @p text, which needs no terminator, and return its value.
 * @param at position of the first invalid byte if not NULL; the length if the text ends early.
 * @return 0; -EBADMSG no JSON; -EILSEQ not UTF-8; -E2BIG deeper than KVR_JSON_MAX_DEPTH.
 */
int kvr_json_parse(const char *text, size_t len, struct kvr_json_value *root, size_t *at);

/** Iterator over an array or object; fields are private. */
struct kvr_json_iter {
	const char *p, *end;
	bool object;
};

/** Start at the first element of @p v. A value that is neither array nor object has no elements. */
struct kvr_json_iter kvr_json_begin(const struct kvr_json_value *v);

/**
 * Next element, and its name if it is a member (else @p name is zeroed). @return false after the
 * last.
 */
bool kvr_json_next(struct kvr_json_iter *it, struct kvr_json_value *name,
		   struct kvr_json_value *value);

/**
 * Find members of @p object in one pass: out[i] is the last member called names[i], or zeroed. A
 * value that is no object has no members. @p n is at most KVR_JSON_MAX_NAMES.
 * @return number of names found.
 */
unsigned int kvr_json_members(const struct kvr_json_value *object, const char *const names[],
			      unsigned int n, struct kvr_json_value out[]);

/**
 * Follow names joined by dots from @p root, such as "usage.prompt_tokens"; a number is an index of
 * an array. A name that contains a dot cannot be addressed.
 * @return true, or false with a zeroed @p out.
 */
bool kvr_json_get(const struct kvr_json_value *root, const char *path, struct kvr_json_value *out);

/** True if @p v is a string whose content, escapes decoded, is @p text. */
bool kvr_json_equals(const struct kvr_json_value *v, const char *text);

/**
 * Copy the content of a string, escapes decoded, as UTF-8 into @p buf with a terminator.
 * @return its length without the terminator; -EINVAL no string; -ENOSPC more than @p size bytes;
 * -EILSEQ half of a surrogate pair.
 */
int64_t kvr_json_string(const struct kvr_json_value *v, char *buf, size_t size);

/** @return 0; -EINVAL neither true nor false. */
int kvr_json_bool(const struct kvr_json_value *v, bool *out);

/** @return 0; -EINVAL not a number, or not written as a whole number; -ERANGE out of range. */
int kvr_json_u64(const struct kvr_json_value *v, uint64_t *out);

/** @return as kvr_json_u64(). */
int kvr_json_i64(const struct kvr_json_value *v, int64_t *out);

/**
 * @return 0; -EINVAL not a number; -ERANGE not finite as a double, or longer than 63 characters.
 */
int kvr_json_f64(const struct kvr_json_value *v, double *out);

/**
 * Read an array of whole numbers, each at most UINT32_MAX.
 * @param out the first @p cap of them; NULL to count only.
 * @return number of elements, which may exceed @p cap; -EINVAL not an array, or another element in
 * it; -ERANGE a number is out of range.
 */
int64_t kvr_json_u32s(const struct kvr_json_value *v, uint32_t out[], size_t cap);

/** Edit of one member of an object. */
struct kvr_json_edit {
	const char *name;  /**< text between the quotes; must not need escapes */
	const char *value; /**< JSON text; NULL = delete the member */
	size_t len;	   /**< length of value */
};

/** Upper bound of the bytes that kvr_json_edit() writes. */
size_t kvr_json_edit_bound(const struct kvr_json_value *object, const struct kvr_json_edit edits[],
			   unsigned int n);

/**
 * Copy @p object to @p out with the edits applied: an existing member gets the value in its place
 * (duplicates are deleted), a new one is added after the last. Each name at most once. The output
 * has no terminator.
 * @return bytes written; -EINVAL not an object, or more than KVR_JSON_MAX_NAMES edits; -ENOSPC.
 */
int64_t kvr_json_edit(const struct kvr_json_value *object, const struct kvr_json_edit edits[],
		      unsigned int n, char *out, size_t size);

/**
 * Write @p text (UTF-8) as a JSON string with quotes and a terminator.
 * @return its length without the terminator; -ENOSPC; -EILSEQ not UTF-8.
 */
int64_t kvr_json_quote(const char *text, size_t len, char *buf, size_t size);

#endif
