/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCHED_REQUEST_H
#define KVR_SCHED_REQUEST_H

/**
 * @file
 * Input and output of a scheduler (kvr_sched.h): request, hints (kvr_hints.h), overlap; decision
 * and its terms. Plain structs in memory of the caller.
 */

#include "kvr_hints.h"
#include "kvr_types.h"
#include <stdbool.h>
#include <stdint.h>

#define KVR_SCHED_NO_RANK  UINT32_MAX
#define KVR_SCHED_NO_CLASS UINT32_MAX

/* ---- codes ---------------------------------------------------------------------------- */

enum kvr_sched_result {
	KVR_SCHED_ROUTED, /**< booked on the rank named */
	KVR_SCHED_QUEUED, /**< waiting; the decision follows from kvr_sched_poll() */
	KVR_SCHED_QUERY,  /**< chosen, not booked */
	KVR_SCHED_ERROR,  /**< see err; nothing is booked or waiting */
};

/** Reasons of KVR_SCHED_ERROR and their counters: X(CODE, counter, "help"). */
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

/** Index of each reason among the counters; the first is their sum. */
enum kvr_sched_reason { KVR_SCHED_ERR_ANY, KVR_SCHED_ERR_LIST(KVR_SCHED_ERR_ENUM) KVR_SCHED_ERRS };

/** Limit of section 7.5 that rejected a request. */
enum kvr_sched_limit {
	KVR_LIMIT_REQUESTS,
	KVR_LIMIT_RAW_ISL_TOKENS,
	KVR_LIMIT_CACHED_TOKENS,
};

/* ---- a request ------------------------------------------------------------------------ */

/**
 * Overlap of the prompt with each rank's cache, in blocks, by dense rank index: `host` is the
 * extension beyond device, `disk` beyond host, `external` beyond disk. NULL = none anywhere.
 * Entries of indices not in use are ignored. Each array has kvr_sched_max_ranks() entries (the
 * multiple of 64) and any alignment of 4. Read during the call only; the overlap of a
 * waiting request is copied.
 */
struct kvr_sched_overlap {
	const uint32_t *device;
	const uint32_t *host;
	const uint32_t *disk;
	const uint32_t *external;
};

/**
 * One request, owned by the caller. After KVR_SCHED_QUEUED, the struct and everything it points to
 * must stay valid and unchanged until the slot leaves the queue. Keep it in the request slot.
 */
struct kvr_sched_req {
	const void *sh; /**< n sequence hashes, 8 bytes each in host order, any alignment */
	uint32_t n;	/**< complete blocks of the prompt: isl / block_size (fewer is accepted) */
	uint32_t isl;	/**< prompt tokens used for routing, > 0 */
	uint32_t exec_isl; /**< prompt tokens the engine sees: prefill load and output blocks of the
			    * booking; 0 = isl */
	bool query_only;
	/** Health probe: chosen like a query, booked without load so that its end, age and the loss
	 * of its rank are tracked. Never queued. With a pin, overload is ignored. */
	bool probe;
	enum kvr_role phase;
	/** NULL: none. From the message; the caller adds expected_output_tokens, exclude_worker and
	 * policy_class (KVR_SCHED_NO_CLASS: the first class). Values out of range give
	 * KVR_E_INVALID_OVERRIDE or KVR_E_INVALID_WEIGHT (sections 5.6 and 11.1). */
	const struct kvr_hints *hints;
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
	uint32_t potential_decode_blocks; /**< of the rank after admission (5.4) */
	uint64_t cached_tokens;		  /**< round(effective * block_size), halves up */
	double effective_overlap;	  /**< blocks */
	double cost;
	uint64_t waited_ns; /**< 0: did not wait */
	bool pinned;
	bool refreshed;	       /**< the overlap was looked up again before admission */
	bool trial;	       /**< probe of a rank that let requests time out */
	uint32_t policy_class; /**< index of the class that was used */
	uint32_t better_rank;  /**< eligible rank with strictly more effective overlap (5.9) */
	double better_overlap; /**< its effective overlap in blocks; valid if better_rank is set */
	struct {
		enum kvr_sched_limit kind;
		uint64_t current;
		uint64_t limit;
	} reject; /**< for KVR_E_QUEUE_REJECTED */
};

/** Terms of the cost of one eligible rank, before booking. */
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
	bool by_ttft;	      /**< the following fields are valid */
	double wait_tokens;   /**< Q: booked but not computed tokens, and tokens that wait for the
				 rank */
	double left_tokens;   /**< u: tokens of this prompt to compute */
	double decode_weight; /**< per token in flight */
	double rho;	      /**< fraction of the time of the pool spent on prefill */
	double us_token;      /**< learned prefill time per token; 0: unknown */
};

/** Buffer for n terms, ordered by (worker, dp_rank); v holds the first cap. */
struct kvr_sched_terms {
	struct kvr_sched_term *v;
	uint32_t cap;
	uint32_t n;
};

#endif
