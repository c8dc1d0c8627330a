/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CLIENT_HINTS_H
#define KVR_CLIENT_HINTS_H

/**
 * @file
 * Routing hints of a request, and the block hashes a front end may compute itself.
 *
 * A list is created once, filled, passed to any number of submits (which copy it), reset or
 * destroyed. A setter that fails returns its error, and marks the list: kvr_client_submit() rejects
 * a marked list, so that programs may check once, at submit. Names and meaning of the hints are
 * those of protocol.h and PROTOCOL.md. Strings are UTF-8. One thread per list.
 *
 * Setters return 0, -EINVAL (value out of range), -EMSGSIZE (list or string too long), -ENOMEM.
 */

#include "kvr_client.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @return NULL with errno ENOMEM. */
KVR_CLIENT_API struct kvr_client_hints *kvr_client_hints_create(void);

/** NULL is fine. */
KVR_CLIENT_API void kvr_client_hints_destroy(struct kvr_client_hints *h);

/** Remove all hints and the mark. */
KVR_CLIENT_API void kvr_client_hints_reset(struct kvr_client_hints *h);

/** First error of any setter since create or reset, 0 if none. */
KVR_CLIENT_API int kvr_client_hints_error(const struct kvr_client_hints *h);

/*
 * One setter for each row of KVR_REQUEST_HINTS in protocol.h, kvr_client_hint_<member>(h, ...), by
 * the format of the row:
 *
 *	U64, U32, I32, F64   the number; an F64 must be finite
 *	TEXT		     a string, not empty; the row has its bounds
 *	TEXTS		     likewise; one call for each entry
 *	BYTES		     data and its length
 *	U64S		     the whole list; no entries = an empty list
 *	PREFERRED	     string and weight, finite; one call for each entry
 *
 * The hints of the other formats have the functions below.
 */
/* clang-format off */
#define KVR_CLIENT_SET(member, ...) KVR_CLIENT_API int kvr_client_hint_##member(struct kvr_client_hints *h, __VA_ARGS__);
#define KVR_CLIENT_SET_U64(member) KVR_CLIENT_SET(member, uint64_t value)
#define KVR_CLIENT_SET_U32(member) KVR_CLIENT_SET(member, uint32_t value)
#define KVR_CLIENT_SET_I32(member) KVR_CLIENT_SET(member, int32_t value)
#define KVR_CLIENT_SET_F64(member) KVR_CLIENT_SET(member, double value)
#define KVR_CLIENT_SET_TEXT(member) KVR_CLIENT_SET(member, const char *text)
#define KVR_CLIENT_SET_TEXTS(member) KVR_CLIENT_SET(member, const char *text)
#define KVR_CLIENT_SET_BYTES(member) KVR_CLIENT_SET(member, const void *data, uint32_t len)
#define KVR_CLIENT_SET_U64S(member) KVR_CLIENT_SET(member, const uint64_t value[], uint32_t n)
#define KVR_CLIENT_SET_PREFERRED(member) KVR_CLIENT_SET(member, const char *text, double weight)
#define KVR_CLIENT_SET_RANKS(member)
#define KVR_CLIENT_SET_OVERRIDE(member)
#define KVR_CLIENT_SET_SESSION(member)
#define KVR_CLIENT_SET_MM(member)
#define KVR_CLIENT_SET_RANGES(member)
#define KVR_CLIENT_SET_BODY(member)
#define KVR_CLIENT_HINT(name, type, in, format, least, most, entries, member, ...) KVR_CLIENT_SET_##format(member)
KVR_REQUEST_HINTS(KVR_CLIENT_HINT)
/* clang-format on */

/** Hashes of the media objects inside one block; call once per block. */
KVR_CLIENT_API int kvr_client_hint_mm(struct kvr_client_hints *h, uint32_t block,
				      const uint64_t mm_hash[], uint32_t n);

/** Terms of the cost that one request may override. */
#define KVR_CLIENT_OVERRIDE(name, number, ...) KVR_CLIENT_##name = number,
enum kvr_client_override { KVR_OVERRIDES(KVR_CLIENT_OVERRIDE) };
/** May be repeated for different fields; the router checks the range. */
KVR_CLIENT_API int kvr_client_hint_override(struct kvr_client_hints *h,
					    enum kvr_client_override field, double value);

enum kvr_client_session {
	KVR_CLIENT_SESSION_USE,	 /**< go where the session is; pools with affinity begin one */
	KVR_CLIENT_SESSION_OPEN, /**< begin one on the chosen worker, before the request is sent */
	KVR_CLIENT_SESSION_CLOSE /**< go there, and end it when the request ends */
};
/**
 * The request belongs to session @p id, 1..256 bytes. @p timeout_s, with OPEN: the session ends
 * when no request has named it for this time, 1..31,536,000; 0: the default, 300.
 */
KVR_CLIENT_API int kvr_client_hint_session(struct kvr_client_hints *h, const char *id,
					   enum kvr_client_session action, uint32_t timeout_s);

/** Blocks start..end-1 are in a cache that all workers share; may be repeated, start < end. */
KVR_CLIENT_API int kvr_client_hint_shared(struct kvr_client_hints *h, uint32_t start, uint32_t end);

/** Hashes of the media objects inside one block. */
struct kvr_client_mm {
	uint32_t block;
	uint32_t n;		/**< at most 64 */
	const uint64_t *hashes; /**< in any order */
};

/** What the block hashes depend on beside the tokens; zero is plain text. */
struct kvr_client_hashing {
	uint32_t block_size;		/**< tokens, of the pool */
	const char *lora;		/**< NULL or "": none */
	const char *cache_namespace;	/**< NULL or "": none */
	bool eagle;			/**< windows of block_size + 1 tokens */
	const struct kvr_client_mm *mm; /**< blocks rising */
	uint32_t n_mm;
};

/**
 * Sequence hashes of a prompt's full blocks, as kvr_client_request.hashes takes them; about 6 ns
 * a block of 16 tokens. Any thread.
 * @param sh room for @p cap hashes; n_tokens / block_size are enough
 * @return number of hashes, -EINVAL (block_size 0), -ENOSPC (cap too small; nothing written),
 * -E2BIG (a block with more than 64 media hashes).
 */
KVR_CLIENT_API int kvr_client_hash_tokens(const struct kvr_client_hashing *how,
					  const uint32_t tokens[], uint32_t n_tokens, uint64_t sh[],
					  uint32_t cap);

#ifdef __cplusplus
}
#endif

#endif
