/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CLIENT_HINTS_H
#define KVR_CLIENT_HINTS_H

/**
 * @file
 * Routing hints of a request, and the block hashes a front end may compute itself.
 *
 * A hint list is made once, filled, handed to any number of submits (which copy it), reset or
 * destroyed. A setter that fails returns its error and also leaves a mark: kvr_client_submit()
 * refuses a list with a mark, so programs may check once, at submit. Names and meaning of the
 * hints are those of PROTOCOL.md. Strings are UTF-8. One thread a list.
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

/** Empty the list and take its mark away. */
KVR_CLIENT_API void kvr_client_hints_reset(struct kvr_client_hints *h);

/** First error of any setter since create or reset, 0 if none. */
KVR_CLIENT_API int kvr_client_hints_error(const struct kvr_client_hints *h);

/* What the cached blocks depend on beside the tokens. At most 255 bytes. */
KVR_CLIENT_API int kvr_client_hint_lora(struct kvr_client_hints *h, const char *name);
KVR_CLIENT_API int kvr_client_hint_namespace(struct kvr_client_hints *h, const char *name);
/** Hashes of the media objects inside one block; call once per block. */
KVR_CLIENT_API int kvr_client_hint_mm(struct kvr_client_hints *h, uint32_t block,
				      const uint64_t mm_hash[], uint32_t n);

/* Pins: the request goes there or is rejected. */
KVR_CLIENT_API int kvr_client_hint_backend(struct kvr_client_hints *h, uint64_t worker);
KVR_CLIENT_API int kvr_client_hint_prefill_worker(struct kvr_client_hints *h, uint64_t worker);
KVR_CLIENT_API int kvr_client_hint_decode_worker(struct kvr_client_hints *h, uint64_t worker);
KVR_CLIENT_API int kvr_client_hint_dp_rank(struct kvr_client_hints *h, uint32_t dp_rank);
KVR_CLIENT_API int kvr_client_hint_prefill_dp_rank(struct kvr_client_hints *h, uint32_t dp_rank);

/* Constraints. */
/** Only these workers; n = 0 allows nobody. */
KVR_CLIENT_API int kvr_client_hint_allowed_workers(struct kvr_client_hints *h,
						   const uint64_t worker[], uint32_t n);
/** May be repeated: all are required. */
KVR_CLIENT_API int kvr_client_hint_required_taint(struct kvr_client_hints *h, const char *taint);
/** May be repeated. @param weight finite */
KVR_CLIENT_API int kvr_client_hint_preferred_taint(struct kvr_client_hints *h, const char *taint,
						   double weight);

/* Order of service. */
/** Seconds the request is treated as having arrived earlier; finite. */
KVR_CLIENT_API int kvr_client_hint_priority_jump(struct kvr_client_hints *h, double seconds);
KVR_CLIENT_API int kvr_client_hint_strict_priority(struct kvr_client_hints *h, uint32_t level);
/** For the engine. */
KVR_CLIENT_API int kvr_client_hint_priority(struct kvr_client_hints *h, int32_t priority);
KVR_CLIENT_API int kvr_client_hint_policy_class(struct kvr_client_hints *h, const char *name);

/** Terms of the cost that one request may override. */
enum kvr_client_override {
	KVR_CLIENT_OVERLAP_SCORE_WEIGHT = 1,
	KVR_CLIENT_ROUTER_TEMPERATURE = 2,
	KVR_CLIENT_ASSUME_KV_REUSE = 3,	     /**< 0.0 or 1.0 */
	KVR_CLIENT_TRACK_PREFILL_TOKENS = 4, /**< 0.0 or 1.0 */
	KVR_CLIENT_SHARED_CACHE_MULTIPLIER = 5,
	KVR_CLIENT_OVERLAP_SCORE_CREDIT = 6,
	KVR_CLIENT_PREFILL_LOAD_SCALE = 7,
};
/** May be repeated for different fields; the router checks the range. */
KVR_CLIENT_API int kvr_client_hint_override(struct kvr_client_hints *h,
					    enum kvr_client_override field, double value);

enum kvr_client_session {
	KVR_CLIENT_SESSION_USE,	 /**< go where the session is; pools with affinity begin one */
	KVR_CLIENT_SESSION_OPEN, /**< begin one on the chosen worker, before the request is sent */
	KVR_CLIENT_SESSION_CLOSE /**< go there, and end it when the request ends */
};
/** The request belongs to session @p id, 1..256 bytes; the session ends when no request names it
 * for
 * @p timeout_s, given with OPEN: 1..31,536,000, 0: the default, 300. */
KVR_CLIENT_API int kvr_client_hint_session(struct kvr_client_hints *h, const char *id,
					   enum kvr_client_session action, uint32_t timeout_s);

/** Blocks start..end-1 are in a cache that all workers share; may be repeated, start < end. */
KVR_CLIENT_API int kvr_client_hint_shared_hits(struct kvr_client_hints *h, uint32_t start,
					       uint32_t end);

/** Opaque trace context passed on to the engine, at most 64 bytes. */
KVR_CLIENT_API int kvr_client_hint_trace(struct kvr_client_hints *h, const void *data,
					 uint32_t len);

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
