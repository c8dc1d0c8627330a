/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCHED_WORKER_H
#define KVR_SCHED_WORKER_H

/**
 * @file
 * Workers and ranks of a scheduler (kvr_sched.h): addition, change, load reports, removal, state.
 * Thread: scheduler, unless stated otherwise.
 */

#include "kvr_sched_request.h"
#include <stdbool.h>
#include <stdint.h>

struct kvr_sched;

struct kvr_sched_worker {
	uint64_t id;
	uint32_t dp_start;
	uint32_t dp_size;		 /**< >= 1 */
	uint64_t total_kv_blocks;	 /**< 0 = unknown */
	uint64_t max_num_batched_tokens; /**< 0 = unknown: 10,000,000 counts */
	bool cpu;			 /**< no accelerator (device-aware-weighted) */
	const struct kvr_str *taints;
	uint32_t n_taints;
};

/**
 * Add a worker or replace its whole configuration. Remaining ranks keep their index,
 * bookings, load reports and draining mark. Removed ranks lose them (ops->dropped, rank_removed).
 * New ranks get free indices (ops->rank_added).
 * @return 0; -EINVAL dp_size 0, dp range beyond 2^32 or a taint over 255 bytes; -ENOSPC too many
 * ranks, workers or different taints. On error nothing changes.
 */
int kvr_sched_worker_set(struct kvr_sched *s, const struct kvr_sched_worker *w, uint64_t now);

/** End up to @p n bookings of a worker before its removal, released ones included (ops->dropped).
 * Splits the work of kvr_sched_worker_gone(). @return number of bookings left; 0 if unknown. */
uint32_t kvr_sched_worker_drop(struct kvr_sched *s, uint64_t id, uint32_t n, uint64_t now);

/**
 * Unpin up to @p n requests that wait for a rank of the worker outside @p dp_start to @p dp_start +
 * @p dp_size - 1; kvr_sched_poll() rejects them. Splits the work of kvr_sched_worker_gone()
 * (dp_size 0) and kvr_sched_worker_set(). @return true if none is left.
 */
bool kvr_sched_worker_unpin(struct kvr_sched *s, uint64_t id, uint32_t dp_start, uint32_t dp_size,
			    uint32_t n);

/** Remove a worker and end its bookings (ops->dropped). @return 0, or -ENOENT. */
int kvr_sched_worker_gone(struct kvr_sched *s, uint64_t id, uint64_t now);

/**
 * Start a new incarnation of a worker. It is not chosen until kvr_sched_worker_available();
 * requests that wait for it stay in the queue. Meanwhile the caller ends its bookings with
 * kvr_sched_worker_drop() and sets its configuration with kvr_sched_worker_set(). Load reports and
 * the draining mark are reset. @return 0, or -ENOENT.
 */
int kvr_sched_worker_renew(struct kvr_sched *s, uint64_t id, uint64_t now);

/** Set the draining mark: a draining worker is not chosen and keeps its bookings. @return 0, or
 * -ENOENT. */
int kvr_sched_worker_drain(struct kvr_sched *s, uint64_t id, bool draining, uint64_t now);

/** Set availability (false: suspect). Initially true. @return 0, or -ENOENT. */
int kvr_sched_worker_available(struct kvr_sched *s, uint64_t id, bool available, uint64_t now);

/**
 * Report a request that the worker has not acknowledged. Until kvr_sched_responded(), the worker
 * gets one request every @p ns while responsive workers are eligible. Reason: a worker that reports
 * but takes no requests looks idle and would attract all. Pinned and waiting requests are not
 * affected. No-op for unknown workers.
 */
void kvr_sched_unresponsive(struct kvr_sched *s, uint64_t id, uint64_t ns, uint64_t now);

/** Report a message of the worker about a request. */
void kvr_sched_responded(struct kvr_sched *s, uint64_t id);

/** Number of unresponsive workers. */
uint32_t kvr_sched_n_unresponsive(const struct kvr_sched *s);

/** Outcome of a booking with respect to the health of its rank. */
enum kvr_sched_outcome {
	KVR_SCHED_NEUTRAL, /**< not related to the rank: faulty or stopped request */
	KVR_SCHED_SERVED,
	KVR_SCHED_FAILED,     /**< reported by the engine or its agent */
	KVR_SCHED_OVERLOADED, /**< rejected for lack of capacity */
	KVR_SCHED_GIVEN_UP,   /**< cancelled by its client */
};

/**
 * Report the outcome of the booking of @p slot, before kvr_sched_finish(). A rank that is
 * overloaded, or reaches failure_ratio, is avoided while another eligible rank has capacity: it
 * gets one request at a time, at first after 0.5 s, later after up to 4 s, until one is served. If
 * all eligible ranks are avoided, the choice ignores avoidance. GIVEN_UP counts as a failure if the
 * request waited for 1 s or more, has no token, and its rank has produced nothing since the
 * booking. Slots without booking and health probes are ignored.
 */
void kvr_sched_outcome(struct kvr_sched *s, uint32_t slot, enum kvr_sched_outcome how,
		       uint64_t now);

/** Number of ranks whose circuit breaker is not closed. */
uint32_t kvr_sched_n_failing(const struct kvr_sched *s);

/** Store the load report of one rank (12.2). @return 0, or -ENOENT: unknown worker or rank. */
int kvr_sched_load_report(struct kvr_sched *s, uint64_t id, uint32_t dp_rank,
			  uint64_t kv_used_blocks, uint64_t now);

/** Ranks of a worker; 0 for an unknown one. */
uint32_t kvr_sched_worker_ranks(const struct kvr_sched *s, uint64_t id);

/** Bookings on all ranks of a worker; 0 for an unknown one. */
uint32_t kvr_sched_worker_bookings(const struct kvr_sched *s, uint64_t id);

/** Number of workers. */
uint32_t kvr_sched_n_workers(const struct kvr_sched *s);

/** Number of ranks, and of those that are neither suspect nor draining. Cost: max_ranks / 64 words.
 */
void kvr_sched_n_ranks(const struct kvr_sched *s, uint32_t *ranks, uint32_t *open);

/** Number of ranks that take requests now, or will when the incarnation of their worker that has
 * begun is available. Cost: max_ranks / 64 words. */
uint32_t kvr_sched_n_able(const struct kvr_sched *s);

/** Write the first @p cap worker ids in ascending order. @return number of workers. */
uint32_t kvr_sched_workers(const struct kvr_sched *s, uint64_t id[], uint32_t cap);

/** Dense index of (worker, dp_rank), or KVR_SCHED_NO_RANK. */
uint32_t kvr_sched_rank_find(const struct kvr_sched *s, uint64_t id, uint32_t dp_rank);

/** State of a rank's circuit breaker: kvr_sched_outcome(). */
enum kvr_sched_breaker {
	KVR_SCHED_CLOSED,    /**< chosen normally */
	KVR_SCHED_OPEN,	     /**< avoided until `probe_at` */
	KVR_SCHED_HALF_OPEN, /**< admits one request as a probe */
};

/** State of one rank, for telemetry. Any thread. */
struct kvr_sched_rank_info {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t rank;
	bool in_use;
	bool available;
	bool draining;
	bool silent;	 /**< its worker */
	bool overloaded; /**< this rank */
	bool refuses; /**< the breaker is not closed because the engine rejected requests for lack
			 of capacity */
	enum kvr_sched_breaker breaker;
	uint32_t failures;    /**< FAILED and counted GIVEN_UP outcomes of this incarnation */
	double failure_ratio; /**< of its last requests, 0 to 1 */
	uint64_t probe_at;    /**< OPEN: the end of the pause, ns */
	bool worker_overloaded;
	uint32_t active_requests;
	uint32_t active_blocks;
	uint64_t active_prefill_tokens; /**< as of the last event, without decay since */
	uint64_t kv_used_blocks;	/**< last report; UINT64_MAX: none */
	uint64_t total_kv_blocks;
	uint64_t max_num_batched_tokens;
};

/** @return 0, or -ENOENT when the index is not in use. */
int kvr_sched_rank_get(const struct kvr_sched *s, uint32_t rank, struct kvr_sched_rank_info *out);

/** Point @p order to the dense indices in use, by (worker, dp_rank). @return their number. */
uint32_t kvr_sched_rank_order(const struct kvr_sched *s, const uint32_t **order);

#endif
