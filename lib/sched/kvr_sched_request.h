/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCHED_REQUEST_H
#define KVR_SCHED_REQUEST_H

/**
 * @file
 * What a scheduler (kvr_sched.h) is asked and what it answers: a request with its hints, override
 * and overlap; the decision, and the terms it was made of. Plain structs of the caller.
 */

#include "kvr_types.h"
#include <stdbool.h>
#include <stdint.h>

#define KVR_SCHED_NO_RANK  UINT32_MAX
#define KVR_SCHED_NO_CLASS UINT32_MAX

/* ---- codes ---------------------------------------------------------------------------- */

enum kvr_sched_result {
	KVR_SCHED_ROUTED, /**< booked on the rank named */
	KVR_SCHED_QUEUED, /**< waits; the decision comes from kvr_sched_poll() */
	KVR_SCHED_QUERY,  /**< the choice was made, nothing was booked */
	KVR_SCHED_ERROR,  /**< see err; nothing is booked or waiting */
};

/** Reasons of KVR_SCHED_ERROR, as they are counted: X(CODE, counter, "help"). */
#define KVR_SCHED_ERR_LIST(X)                                                                      \
	X(NO_ENDPOINTS, no_endpoints, "no worker is eligible")                                     \
	X(ALL_OVERLOADED, all_overloaded, "all eligible workers are overloaded")                   \
	X(PINNED_NOT_ALLOWED, pin_not_allowed, "the pinned worker is not eligible")                \
	X(PINNED_OVERLOADED, pin_overloaded, "the pinned worker is overloaded")                    \
	X(QUEUE_REJECTED, queue_rejected, "a limit of the policy class; details in reject")        \
	X(DP_RANK_REQUIRED, dp_rank_required, "pinned to a worker of several ranks without one")   \
	X(WORKER_ID_REQUIRED, worker_id_required, "direct mode without a pin")                     \
	X(INVALID_OVERRIDE, invalid_override, "an override out of range")                          \
	X(DUPLICATE_REQUEST, duplicate, "a request of this name is booked or waiting")             \
	X(EMPTY_PROMPT, empty_prompt, "isl = 0")                                                   \
	X(PROMPT_TOO_LONG, prompt_too_long, "more than max_prompt_blocks")                         \
	X(INVALID_WEIGHT, invalid_weight, "NaN or infinite taint weight or priority jump")         \
	X(UNKNOWN_POLICY_CLASS, unknown_class, "class index not below n_classes")                  \
	X(NO_MEMORY, bad_slot, "slot not below max_requests")                                      \
	X(SHUTDOWN, shutdown, "the queue was closed")

#define KVR_SCHED_ERR_ENUM(code, counter, help) KVR_SCHED_ERR_##code,

/** Places of the reasons among the counters; the first is that of their sum. */
enum kvr_sched_reason { KVR_SCHED_ERR_ANY, KVR_SCHED_ERR_LIST(KVR_SCHED_ERR_ENUM) KVR_SCHED_ERRS };

/** Which limit of section 7.5 refused a request. */
enum kvr_sched_limit {
	KVR_LIMIT_REQUESTS,
	KVR_LIMIT_RAW_ISL_TOKENS,
	KVR_LIMIT_CACHED_TOKENS,
};

/* ---- a request ------------------------------------------------------------------------ */

/* Constants here are KVR_SHINT_ and KVR_SOVER_ because lib/wire (kvr_wire.h) owns
 * KVR_HINT_ and KVR_OVERRIDE_; the router includes both headers.
 */

/** A string that need not end in NUL. */
struct kvr_sched_str {
	const char *ptr;
	uint32_t len;
};

struct kvr_sched_preferred {
	struct kvr_sched_str taint;
	double weight; /**< finite; negative repels */
};

#define KVR_SHINT_BACKEND_ID	  0x01u
#define KVR_SHINT_PREFILL_ID	  0x02u
#define KVR_SHINT_DECODE_ID	  0x04u
#define KVR_SHINT_DP_RANK	  0x08u
#define KVR_SHINT_PREFILL_DP_RANK 0x10u
#define KVR_SHINT_EXPECTED_OUTPUT 0x20u
#define KVR_SHINT_ALLOWED	  0x40u /**< `allowed` restricts; n_allowed = 0 allows nobody */
#define KVR_SHINT_EXCLUDE	  0x80u /**< not this worker again, unless it is pinned (8.5) */

#define KVR_SCHED_FAILED_AT 4u /**< ranks that a request may exclude */

/** A rank by its name. */
struct kvr_sched_place {
	uint64_t worker;
	uint32_t dp_rank; /**< UINT32_MAX: each of the worker's */
};

/** Routing hints (section 11.1); a field counts only when its flag or length says so. */
struct kvr_sched_hints {
	uint32_t flags; /**< KVR_SHINT_* */
	uint32_t dp_rank;
	uint32_t prefill_dp_rank;
	uint32_t expected_output_tokens;
	uint64_t backend_id;
	uint64_t prefill_id;
	uint64_t decode_id;
	uint64_t exclude_id;
	const uint64_t *allowed; /**< worker ids, any order */
	const struct kvr_sched_str *required;
	const struct kvr_sched_preferred *preferred;
	uint32_t n_allowed;
	uint32_t n_required;
	uint32_t n_preferred;
	uint32_t n_failed_at;
	uint32_t strict_priority;
	double priority_jump;	   /**< seconds; below 0 counts as 0 */
	uint32_t policy_class;	   /**< index, or KVR_SCHED_NO_CLASS for the first class */
	struct kvr_sched_str lora; /**< adapter, counted only; len 0 = the base model */
	/** Ranks where it has failed: not these as long as another fits and has room. */
	struct kvr_sched_place failed_at[KVR_SCHED_FAILED_AT];
};

#define KVR_SOVER_TEMPERATURE	0x01u
#define KVR_SOVER_CREDIT	0x02u
#define KVR_SOVER_PREFILL_SCALE 0x04u
#define KVR_SOVER_SHARED_MULT	0x08u
#define KVR_SOVER_KV_REUSE	0x10u
#define KVR_SOVER_TRACK_PREFILL 0x20u
#define KVR_SOVER_SCORE_WEIGHT	0x40u /**< deprecated alias, see kvr_pool_conf_set() */

/** Per-request override (section 5.6); out of range = KVR_E_INVALID_OVERRIDE. */
struct kvr_sched_override {
	uint32_t flags; /**< KVR_SOVER_* */
	bool assume_kv_reuse;
	bool track_prefill_tokens;
	double temperature;		/**< finite, >= 0 */
	double overlap_score_credit;	/**< finite, >= 0 */
	double prefill_load_scale;	/**< finite, >= 0 */
	double shared_cache_multiplier; /**< 0..1 */
	double overlap_score_weight;	/**< finite, >= 0 */
};

/**
 * Overlap of the prompt with each rank's cache, in blocks, by dense rank index: `host` is the
 * extension beyond device, `disk` beyond host, `external` beyond disk. NULL = none anywhere.
 * Entries of indices not in use are ignored. Each array has kvr_sched_max_ranks() entries (the
 * multiple of 64) and any alignment of 4. Borrowed for the call only: what a waiting request
 * needs is copied.
 */
struct kvr_sched_overlap {
	const uint32_t *device;
	const uint32_t *host;
	const uint32_t *disk;
	const uint32_t *external;
};

/** Half-open range of block positions present in the external shared pool. */
struct kvr_sched_range {
	uint32_t start;
	uint32_t end;
};

/**
 * One request. Owned by the caller; when the answer is KVR_SCHED_QUEUED, the struct and all it
 * points to (except the overlap, which is a separate argument) must stay valid and unchanged
 * until the slot leaves the queue. Keep it in the request slot.
 */
struct kvr_sched_req {
	const void *sh; /**< n sequence hashes, 8 bytes each in host order, any alignment */
	uint32_t n;	/**< complete blocks of the prompt: isl / block_size (fewer is accepted) */
	uint32_t isl;	/**< prompt tokens used for routing, > 0 */
	uint32_t exec_isl; /**< prompt tokens the engine sees: prefill load and output blocks of the
			    * booking; 0 = isl */
	bool query_only;
	/** A health probe: chosen as a query is, and booked without weight, so that its end, its
	 * age and the loss of its rank are known. It waits for nobody, and where it is pinned
	 * overload does not count. */
	bool probe;
	enum kvr_role phase;
	const struct kvr_sched_hints *hints;	   /**< NULL = none */
	const struct kvr_sched_override *override; /**< NULL = none */
	const struct kvr_sched_range *shared;	   /**< sorted, disjoint */
	uint32_t n_shared;
};

/* ---- a decision ----------------------------------------------------------------------- */

struct kvr_sched_decision {
	enum kvr_sched_result result;
	enum kvr_code err;
	uint32_t slot;
	uint32_t rank; /**< dense index; KVR_SCHED_NO_RANK unless routed or query */
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t overlap_blocks;	  /**< round(effective), halves up */
	uint32_t required_blocks;	  /**< ceil(isl / block_size) */
	uint32_t potential_decode_blocks; /**< of the rank once admitted (5.4) */
	uint64_t cached_tokens;		  /**< round(effective * block_size), halves up */
	double effective_overlap;	  /**< blocks */
	double cost;
	uint64_t waited_ns; /**< 0 unless it waited */
	bool pinned;
	bool refreshed; /**< the overlap was looked up again before admission */
	bool trial; /**< booked to see whether the rank, which has let requests time out, works */
	uint32_t policy_class; /**< index of the class that counted */
	uint32_t better_rank;  /**< eligible rank with strictly more effective overlap (5.9) */
	double better_overlap; /**< its blocks; only when better_rank is set */
	struct {
		enum kvr_sched_limit kind;
		uint64_t current;
		uint64_t limit;
	} reject; /**< for KVR_E_QUEUE_REJECTED */
};

/** What selection knew about one eligible rank, before booking. */
struct kvr_sched_term {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t rank;
	double cost;
	uint32_t device;
	uint32_t host;
	uint32_t disk; /**< disk plus external */
	uint32_t shared;
	uint64_t prefill_tokens;
	uint32_t decode_blocks;
	uint32_t active_requests;
	/* Mode ttft: cost = wait + left / (1 - rho) + decode_weight * tokens in flight. */
	bool by_ttft;	      /**< the rest counts */
	double wait_tokens;   /**< booked there and not computed, or waiting for it: Q */
	double left_tokens;   /**< of this prompt to compute there: u */
	double decode_weight; /**< of a token in flight */
	double rho;	      /**< part of the pool's time that prefill takes */
	double us_token;      /**< of prefill, as learned; 0 = not yet */
};

/** Buffer for terms, ordered by (worker, dp_rank). n counts all, v holds the first cap. */
struct kvr_sched_terms {
	struct kvr_sched_term *v;
	uint32_t cap;
	uint32_t n;
};

#endif
