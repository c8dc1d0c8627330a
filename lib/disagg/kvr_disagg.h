/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_DISAGG_H
#define KVR_DISAGG_H

/**
 * @file
 * What serving a model from a prefill pool and a decode pool adds to the pool scheduler
 * (behaviour specification, section 9): activation of the prefill side, the two legs' requests
 * derived from the client's, the bootstrap room, and the topology constraint of the transfer.
 *
 * Pure rules over the caller's memory; nothing is kept but one word of three flags. The order of
 * the legs is the caller's: prefill leg first; with a bootstrap address the decode leg at once,
 * else after the prefill has ended. Each leg is a booking of its own pool, ended by prefill done
 * (prefill leg), by the first output (prefill leg) or by the end of the request (both).
 */

#include "kvr_rand.h"
#include "kvr_sched.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVR_DISAGG_ACTIVATED   1u /**< a prefill worker was seen once */
#define KVR_DISAGG_DEACTIVATED 2u /**< the last one is gone, drains or is suspect */
#define KVR_DISAGG_HELD	       4u /**< switched off by an operator, workers or not */

/** Activation of the prefill side. Zeroed = never had a worker. Writer: the thread that schedules
 * the pair. Any thread may ask with kvr_disagg_active(): one word, so never half of a change. */
struct kvr_disagg {
	_Atomic uint32_t state; /**< KVR_DISAGG_*; publishes nothing */
};

/** The prefill workers, or which of them can take requests, have changed: @p n_able is
 * kvr_sched_n_able() of their pool. @return true when the side became (in)active. */
bool kvr_disagg_workers(struct kvr_disagg *d, uint32_t n_able);

/** An operator switches the side off, or leaves it to its workers again. @return true on change. */
bool kvr_disagg_hold(struct kvr_disagg *d, bool hold);

/** Section 9.1: whether the prefill leg can be taken now. Any thread. */
bool kvr_disagg_active(const struct kvr_disagg *d);

/** One leg as its pool would decide it. */
struct kvr_disagg_side {
	struct kvr_sched *sched;
	const struct kvr_sched_req *req;
	const struct kvr_sched_overlap *overlap;
};

/**
 * Conditional disaggregation (section 9.5): whether the request is better served by the decode
 * pool alone. Asks both pools where the request would go and books nothing; @p conf is the decode
 * pool's. Tokens to compute are those that the decode worker does not hold, as it would compute
 * them. A pinned prefill worker, and a decode pool that has nobody, are never bypassed.
 */
bool kvr_disagg_bypass(const struct kvr_pool_conf *conf, const struct kvr_disagg_side *prefill,
		       const struct kvr_disagg_side *decode, uint64_t now);

/** Section 9.3: uniform room below 2^63 with room mod dp_size = the rank's place; dp_size >= 1. */
uint64_t kvr_disagg_room(struct kvr_rand *r, uint32_t rank_place, uint32_t dp_size);

/**
 * Hints of the prefill leg: pinned only by prefill_worker_id, with prefill_dp_rank else dp_rank;
 * the generic pin is the decode worker's.
 */
void kvr_disagg_prefill_hints(const struct kvr_sched_hints *in, struct kvr_sched_hints *out);

/** Override of the decode leg: credit 0, no reuse, no prefill tracking; the rest kept. */
void kvr_disagg_decode_override(const struct kvr_sched_override *in,
				struct kvr_sched_override *out);

/** The taint of a worker for each place it is in, before `<key>=<value>` (section 9.4). */
#define KVR_TOPOLOGY_TAINT "dynamo.topology/"

/** Transfer policy of the chosen prefill worker (section 9.4). */
struct kvr_disagg_transfer {
	struct kvr_sched_str taint; /**< dynamo.topology/<domain>=<value>; len 0 = none */
	bool required;
	double weight; /**< when preferred */
};

/**
 * Unite the decode leg's constraints with the transfer's: required taints as a set, preferred
 * ones extended, the transfer's weight winning over the client's for the same taint.
 * @param required,preferred room for one more than `in` has.
 */
void kvr_disagg_merge(const struct kvr_sched_hints *in, const struct kvr_disagg_transfer *t,
		      struct kvr_sched_str required[], struct kvr_sched_preferred preferred[],
		      struct kvr_sched_hints *out);

#endif
