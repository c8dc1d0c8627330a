/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCHED_WORKER_H
#define KVR_SCHED_WORKER_H

/**
 * @file
 * The workers of a scheduler (kvr_sched.h) and their ranks: they come, change, report their load
 * and go, and what is known of each. Thread: the scheduler's, where nothing else is said.
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
 * Add a worker or replace its whole configuration. Ranks that stay keep their index, bookings,
 * load reports and draining mark; ranks that go lose them (ops->dropped, rank_removed); new ones
 * get free indices (ops->rank_added).
 * @return 0; -EINVAL dp_size 0, dp range beyond 2^32 or a taint over 255 bytes; -ENOSPC too many
 * ranks, workers or different taints. On error nothing changes.
 */
int kvr_sched_worker_set(struct kvr_sched *s, const struct kvr_sched_worker *w, uint64_t now);

/** End up to @p n bookings of a worker that is about to leave, released ones too (ops->dropped):
 * what kvr_sched_worker_gone() would have to do at once. @return how many are left; 0 for an
 * unknown one. */
uint32_t kvr_sched_worker_drop(struct kvr_sched *s, uint64_t id, uint32_t n, uint64_t now);

/**
 * Give up to @p n requests up that wait for a rank of the worker outside of the @p dp_size from
 * @p dp_start on: kvr_sched_poll() refuses them. What kvr_sched_worker_gone() (0 ranks stay) and
 * kvr_sched_worker_set() would have to do at once. @return whether none is left.
 */
bool kvr_sched_worker_unpin(struct kvr_sched *s, uint64_t id, uint32_t dp_start, uint32_t dp_size,
			    uint32_t n);

/** The worker left: ends its bookings (ops->dropped). @return 0, or -ENOENT. */
int kvr_sched_worker_gone(struct kvr_sched *s, uint64_t id, uint64_t now);

/**
 * A new life of the worker begins: it is not chosen, but those who wait for it go on waiting,
 * until kvr_sched_worker_available() says that it is there. Meanwhile its bookings are ended with
 * kvr_sched_worker_drop(), and kvr_sched_worker_set() says what it is now; of the former life
 * neither load reports nor the draining mark stay. @return 0, or -ENOENT.
 */
int kvr_sched_worker_renew(struct kvr_sched *s, uint64_t id, uint64_t now);

/** Draining takes it out of selection and keeps its bookings. @return 0, or -ENOENT. */
int kvr_sched_worker_drain(struct kvr_sched *s, uint64_t id, bool draining, uint64_t now);

/** Availability as seen by liveness (suspect = false). Starts true. @return 0, or -ENOENT. */
int kvr_sched_worker_available(struct kvr_sched *s, uint64_t id, bool available, uint64_t now);

/**
 * The worker has not acknowledged a request that it was sent. Until kvr_sched_responded() it gets
 * one every @p ns, as long as others fit which are not silent: a worker that reports and takes
 * nothing looks idle, and would draw all. Pins, and those who wait for a rank of it, stay. Unknown
 * ones are ignored.
 */
void kvr_sched_unresponsive(struct kvr_sched *s, uint64_t id, uint64_t ns, uint64_t now);

/** It has said something about a request. */
void kvr_sched_responded(struct kvr_sched *s, uint64_t id);

/** Silent workers. */
uint32_t kvr_sched_n_unresponsive(const struct kvr_sched *s);

/** How a booking has ended, as far as it tells how well its rank works. */
enum kvr_sched_outcome {
	KVR_SCHED_NEUTRAL, /**< it tells nothing: the request itself was wrong, or was stopped */
	KVR_SCHED_SERVED,
	KVR_SCHED_FAILED,     /**< by the engine, or by its agent for it */
	KVR_SCHED_OVERLOADED, /**< refused for want of room */
	KVR_SCHED_GIVEN_UP,   /**< its client has stopped waiting for it */
};

/**
 * How the booking of @p slot ends; call it before kvr_sched_finish(). A rank whose failure ratio
 * reaches failure_ratio, or that is overloaded, is avoided: as long as another rank fits and has
 * room, it gets one request at a time, after 0.5 s at first and at most 4 s, until one is served.
 * Avoiding is a preference: when all ranks that fit are avoided, the choice is made as if none
 * were. GIVEN_UP counts as a failure when the request has waited for a second or more, has no
 * token, and its rank has produced nothing since the booking. Slots that are not booked and health
 * probes are ignored.
 */
void kvr_sched_outcome(struct kvr_sched *s, uint32_t slot, enum kvr_sched_outcome how,
		       uint64_t now);

/** Ranks that are avoided for their outcomes, or being probed. */
uint32_t kvr_sched_n_failing(const struct kvr_sched *s);

/** Load report of one rank (12.2). @return 0, or -ENOENT unknown worker or rank. */
int kvr_sched_load_report(struct kvr_sched *s, uint64_t id, uint32_t dp_rank,
			  uint64_t kv_used_blocks, uint64_t now);

/** Ranks of a worker; 0 for an unknown one. */
uint32_t kvr_sched_worker_ranks(const struct kvr_sched *s, uint64_t id);

/** Bookings on all ranks of a worker; 0 for an unknown one. */
uint32_t kvr_sched_worker_bookings(const struct kvr_sched *s, uint64_t id);

/** Number of workers known. */
uint32_t kvr_sched_n_workers(const struct kvr_sched *s);

/** Ranks of the workers known, and those of them that may be chosen: neither suspect nor draining.
 * Cost: max_ranks / 64 words. */
void kvr_sched_n_ranks(const struct kvr_sched *s, uint32_t *ranks, uint32_t *open);

/** Ranks that can take requests: those that may be chosen, and those between two lives of their
 * worker, which will be in a moment. Cost: max_ranks / 64 words. */
uint32_t kvr_sched_n_able(const struct kvr_sched *s);

/** Ids of the workers known, ascending: the first @p cap of them. @return how many there are. */
uint32_t kvr_sched_workers(const struct kvr_sched *s, uint64_t id[], uint32_t cap);

/** Dense index of (worker, dp_rank), or KVR_SCHED_NO_RANK. */
uint32_t kvr_sched_rank_find(const struct kvr_sched *s, uint64_t id, uint32_t dp_rank);

/** State of a rank's circuit breaker: kvr_sched_outcome(). */
enum kvr_sched_breaker {
	KVR_SCHED_CLOSED,    /**< chosen like any other */
	KVR_SCHED_OPEN,	     /**< avoided until `probe_at` */
	KVR_SCHED_HALF_OPEN, /**< the next request may go there */
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
	bool refuses; /**< the breaker is not closed because the engine refuses for want of room */
	enum kvr_sched_breaker breaker;
	uint32_t failures;    /**< outcomes FAILED, and GIVEN_UP that counts, in this life */
	double failure_ratio; /**< of its last requests, 0 to 1 */
	uint64_t probe_at;    /**< OPEN: the end of the pause, ns */
	bool worker_overloaded;
	uint32_t active_requests;
	uint32_t active_blocks;
	uint64_t active_prefill_tokens; /**< without modelled decay since the last event */
	uint64_t kv_used_blocks;	/**< last report; UINT64_MAX = none yet */
	uint64_t total_kv_blocks;
	uint64_t max_num_batched_tokens;
};

/** @return 0, or -ENOENT when the index is not in use. */
int kvr_sched_rank_get(const struct kvr_sched *s, uint32_t rank, struct kvr_sched_rank_info *out);

/** Dense indices in use, ordered by (worker, dp_rank). @return how many there are. */
uint32_t kvr_sched_rank_order(const struct kvr_sched *s, const uint32_t **order);

#endif
