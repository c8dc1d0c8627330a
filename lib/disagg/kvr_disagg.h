/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_DISAGG_H
#define KVR_DISAGG_H

/**
 * @file
 * Additions to the pool scheduler for serving a model with a prefill pool and a decode pool
 * (lib/sched/RULES.md, section 9): activation of the prefill side, the requests of the two legs
 * derived from the client's request, the bootstrap room, and the topology constraint of the
 * transfer.
 *
 * Pure functions on the caller's memory; the only state is one word of three flags. The caller
 * orders the legs: the prefill leg first; the decode leg at once if there is a bootstrap address,
 * otherwise after the prefill has ended. Each leg is a booking in its own pool. The booking of the
 * prefill leg ends when the prefill is done, with the first output or the end of the request; that
 * of the decode leg with the end of the request.
 */

#include "kvr_rand.h"
#include "kvr_sched.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVR_DISAGG_ACTIVATED 1u /**< a prefill worker has registered before */
#define KVR_DISAGG_DEACTIVATED                                                                     \
	2u /**< no prefill worker is left: each has left, is draining or is suspect */
#define KVR_DISAGG_HELD 4u /**< switched off by an operator, regardless of workers */

/**
 * Activation of the prefill side. All zero: never had a worker. Writer: the thread that schedules
 * the pair. Any thread may call kvr_disagg_active(), which reads one word and never sees a partial
 * change.
 */
struct kvr_disagg {
	_Atomic uint32_t state; /**< KVR_DISAGG_*; publishes nothing */
};

/**
 * Update after a change of the prefill workers or of their availability: @p n_able is
 * kvr_sched_n_able() of their pool. @return true if the side became active or inactive.
 */
bool kvr_disagg_workers(struct kvr_disagg *disagg, uint32_t n_able);

/**
 * Switch the side off for an operator, or on again. @return true if the side became active or
 * inactive.
 */
bool kvr_disagg_hold(struct kvr_disagg *disagg, bool hold);

/** Section 9.1: return true if requests can use the prefill leg now. Any thread. */
bool kvr_disagg_active(const struct kvr_disagg *disagg);

/** One leg with the pool that would decide it. */
struct kvr_disagg_side {
	struct kvr_sched *sched;
	const struct kvr_sched_req *req;
	const struct kvr_sched_overlap *overlap;
};

/**
 * Conditional disaggregation (section 9.5): return true if the decode pool alone serves the request
 * better. Queries both pools without booking; @p conf belongs to the decode pool. Tokens to compute
 * are those that the decode worker does not hold. A pinned prefill worker is never bypassed, nor is
 * the prefill pool if no decode worker can take the request.
 */
bool kvr_disagg_bypass(const struct kvr_pool_conf *conf, const struct kvr_disagg_side *prefill,
		       const struct kvr_disagg_side *decode, uint64_t now);

/**
 * Section 9.3: draw a uniform room below 2^63 with room mod dp_size = @p rank_place; dp_size >= 1.
 */
uint64_t kvr_disagg_room(struct kvr_rand *r, uint32_t rank_place, uint32_t dp_size);

/**
 * Derive the hints of the prefill leg: pinned only by prefill_worker_id, with prefill_dp_rank or
 * else dp_rank. The generic pin applies to the decode worker.
 */
void kvr_disagg_prefill_hints(const struct kvr_hints *in, struct kvr_hints *out);

/**
 * Change the overrides in @p hints to those of the decode leg: credit 0, no reuse, no prefill
 * tracking. Other fields are kept.
 */
void kvr_disagg_decode_override(struct kvr_hints *hints);

/**
 * Prefix of the taints that describe the location of a worker, before `<key>=<value>` (section
 * 9.4).
 */
#define KVR_TOPOLOGY_TAINT "dynamo.topology/"

/** Transfer policy of the chosen prefill worker (section 9.4). */
struct kvr_disagg_transfer {
	struct kvr_str taint; /**< dynamo.topology/<domain>=<value>; len 0: none */
	bool required;
	double weight; /**< weight of a preferred taint */
};

/**
 * Merge the constraints of the decode leg with those of the transfer: required taints as a set;
 * preferred taints appended, where the weight of the transfer replaces that of the client for the
 * same taint.
 * @param required,preferred arrays with space for one more element than `in` has.
 */
void kvr_disagg_merge(const struct kvr_hints *in, const struct kvr_disagg_transfer *transfer,
		      struct kvr_str required[], struct kvr_hint_preferred preferred[],
		      struct kvr_hints *out);

#endif
