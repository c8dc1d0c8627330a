/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCHED_H
#define KVR_SCHED_H

/**
 * @file
 * The scheduler of one pool: eligibility, cost, choice, booking, load model, admission queue and
 * overload detector (RULES.md, sections 5 to 8 and 12). Deterministic: it reads no
 * clock (calls take `now` in nanoseconds, any origin, monotonic), draws random numbers from the
 * seed of the pool, needs no EAL, and allocates only in kvr_sched_create().
 *
 * Data structure. Ranks are dense indices 0..max_ranks-1, in structure-of-arrays form (active
 * prefill tokens, active blocks, requests, bit sets for "in use", "available", "overloaded" and
 * one per taint), so eligibility is a few word operations per 64 ranks and the cost of all ranks
 * is one vector loop (scalar, AVX2 or AVX-512, chosen at create, equal to the bit). lib/active
 * stores active prompts: O(runs) per decision. The slot number of the caller identifies a booking,
 * so nothing is hashed. The queue is a leftist heap per class and lane (one lane per pinned rank,
 * one for unpinned requests), linked through the slots: O(log n) per operation, without memory of
 * its own.
 *
 * Thread: the scheduler lcore of the pool, except for create and destroy. Accessors marked "any
 * thread" read words that are written atomically and may be one event old.
 * Nothing allocates, locks, logs or calls the kernel.
 *
 * Budget (128 blocks; 64 / 512 ranks) in cycles of a 2.1 GHz time stamp counter: project 250 / 700,
 * choose at most 4 a rank, book 330 / 500, mark 100 / 200, free 270 / 530; including the
 * scoring of the prompt and prefetching, a decision takes 1,575 / 3,150 (0.75 / 1.5 us). Queue
 * operations 210 (100 ns) with 10,000 waiting. perf/micro/bench-decide and bench-queue measure
 * them.
 *
 * States of a slot:   free --route--> booked --finish/cancel/worker gone--> free
 *                     |                \--expire--> released --finish/cancel/worker gone--> free
 *                     \--route--> waiting --poll--> booked, or free with an error
 *                                      \--cancel--> free
 * A released slot has no load: prefill_done, output and renew have no effect. It keeps its rank, so
 * that the loss of the worker ends it.
 * Each booked slot is freed exactly once, whatever ends it. Ending a free slot is a counted no-op,
 * so late and duplicate messages are harmless. The caller must not reuse a slot number before the
 * end of its request.
 *
 * This file: creation, and the path of a request. Input and output structs: kvr_sched_request.h;
 * workers and ranks: kvr_sched_worker.h; loads and counters: kvr_sched_stats.h. All are included
 * here.
 */

#include "kvr_active.h"
#include "kvr_pool_conf.h"
#include "kvr_sched_request.h"
#include "kvr_sched_stats.h"
#include "kvr_sched_worker.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_sched;

/* ---- life cycle ----------------------------------------------------------------------- */

/** Callbacks to the owner, each may be NULL. Thread: scheduler. */
struct kvr_sched_ops {
	void *arg;
	/**
	 * Look up the overlap of a waiting request again before admission, as the stored one is too
	 * old or did not fit. The arrays must stay valid until the next call or the return of
	 * kvr_sched_poll(). Return false to use the stored overlap.
	 */
	bool (*refresh)(void *arg, uint32_t slot, const struct kvr_sched_req *req,
			struct kvr_sched_overlap *out);
	/** A booking, released or not, ended because its rank was removed. The slot is already
	 * free. */
	void (*dropped)(void *arg, uint32_t slot, uint32_t rank);
	/** A dense index was assigned to (worker, dp_rank) / freed, without bookings. */
	void (*rank_added)(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank);
	void (*rank_removed)(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank);
	/* Memory: zeroed, aligned to 64. NULL = anonymous mappings, huge pages advised. */
	void *(*alloc)(void *arg, size_t bytes);
	void (*release)(void *arg, void *p);
};

/**
 * Build a scheduler; @p conf is copied. About 0.6 KiB a slot, 640 B per 64 active blocks, 8 B per
 * (shared run, rank); pages take memory when touched.
 * @return NULL with errno EINVAL (see kvr_pool_conf_check()) or ENOMEM.
 */
struct kvr_sched *kvr_sched_create(const struct kvr_pool_conf *conf,
				   const struct kvr_sched_ops *ops, uint64_t now);

/** Accepts NULL. */
void kvr_sched_destroy(struct kvr_sched *s);

const struct kvr_pool_conf *kvr_sched_conf(const struct kvr_sched *s);

/** Return true if kvr_sched_tune() can change key @p key. Any thread. */
bool kvr_sched_tunable(const char *key);

/** Tunable key number @p i, from 0; NULL: end. Any thread. */
const char *kvr_sched_tunable_key(size_t i);

/** Return true if kvr_sched_tune() can change key @p key of a policy class. Any thread. */
bool kvr_sched_class_tunable(const char *key);

/**
 * Set the tunable keys to those of @p conf, a checked copy of kvr_sched_conf() with new values.
 * Bookings and waiting requests stay; thresholds apply at once. Scheduler lcore.
 */
void kvr_sched_tune(struct kvr_sched *s, const struct kvr_pool_conf *conf);

/** max_ranks rounded up to a multiple of 64: the length of every per-rank array. Any thread. */
uint32_t kvr_sched_max_ranks(const struct kvr_sched *s);

/** Index of the policy class called @p name, or KVR_SCHED_NO_CLASS. Any thread. */
uint32_t kvr_sched_class_find(const struct kvr_sched *s, const char *name, size_t len);

/* ---- requests ------------------------------------------------------------------------- */

/** Check @p req as kvr_sched_route() does, except for conditions that depend on workers. */
enum kvr_code kvr_sched_check(const struct kvr_sched *s, const struct kvr_sched_req *req);

/**
 * Route @p req as @p slot: choose and book, queue, answer a query, or reject. A query does not use
 * its slot: any number in range is valid, including that of a live request.
 * @param ov overlap; NULL = none anywhere.
 * @return d->result.
 */
enum kvr_sched_result kvr_sched_route(struct kvr_sched *s, uint32_t slot,
				      const struct kvr_sched_req *req,
				      const struct kvr_sched_overlap *ov, uint64_t now,
				      struct kvr_sched_decision *d);

/**
 * Write the terms of every following choice to @p terms: those of the last choice of a call, n = 0
 * if there was none. NULL: stop (fast path). To explain a sampled decision, set @p terms before the
 * call and reset it afterwards. To explain kvr_sched_poll(), poll with n = 1.
 */
void kvr_sched_explain(struct kvr_sched *s, struct kvr_sched_terms *terms);

/**
 * Admit waiting requests. Call it after every burst of state changes and when
 * kvr_sched_next_timer() is due; it returns at once if nothing changed. Each decision is ROUTED, or
 * ERROR if admission failed. In both cases the slot has left the queue. With late binding, a call
 * moves at most 8 requests to another rank without a decision; kvr_sched_next_timer() is then due
 * at once.
 * @return decisions written; when it equals @p n, call again.
 */
uint32_t kvr_sched_poll(struct kvr_sched *s, uint64_t now, struct kvr_sched_decision d[],
			uint32_t n);

/**
 * Prefetch the memory that a later call about @p slot uses. For bursts of messages: step 0 some
 * messages ahead, then steps 1 to KVR_SCHED_AHEAD - 1, each of which reads the lines that the
 * previous step prefetched. Optional.
 */
void kvr_sched_prefetch(const struct kvr_sched *s, uint32_t slot, int step);

/**
 * Prefetch for a request that will be routed some messages later. Each of KVR_SCHED_AHEAD calls
 * goes one level deeper into the active prompts. @p ahead holds the position; zero it before the
 * first call.
 */
void kvr_sched_prefetch_route(const struct kvr_sched *s, const struct kvr_sched_req *req,
			      struct kvr_active_ahead *ahead);

#define KVR_SCHED_AHEAD 4

/** Renew the booking of @p slot after a message about its request, from the worker or, with book,
 * from the client. prefill_done and output renew too. @return true if the slot is booked. */
bool kvr_sched_renew(struct kvr_sched *s, uint32_t slot, uint64_t now);

/** Report the first token. Idempotent. @return true at the first call for a booked slot. */
bool kvr_sched_prefill_done(struct kvr_sched *s, uint32_t slot, uint64_t now);

/**
 * Report @p generated tokens in total. The value is cumulative, so lost and repeated reports are
 * harmless; smaller values are ignored. The first call also marks prefill as done.
 * @return false if the slot is not booked.
 */
bool kvr_sched_output(struct kvr_sched *s, uint32_t slot, uint32_t generated, uint64_t now);

/** End the request. @return true if a booking was freed; false if it had been released before. */
bool kvr_sched_finish(struct kvr_sched *s, uint32_t slot, uint64_t now);

/** As finish, but only if the booking is on dense index @p rank. */
bool kvr_sched_finish_on(struct kvr_sched *s, uint32_t slot, uint32_t rank, uint64_t now);

/** Cancel the request: remove it from the queue or free its booking. @return true if one of them
 * was done; false if the booking had been released before. */
bool kvr_sched_cancel(struct kvr_sched *s, uint32_t slot, uint64_t now);

/**
 * Set the total time since create in which the owner did not receive; monotonic. This time does not
 * count as silence of a worker.
 */
void kvr_sched_stood_still(struct kvr_sched *s, uint64_t ns);

/**
 * Release bookings that were not renewed within request_expiry_s (0: never). Runs once in 60 s.
 * @return number of released slots; if it equals @p n, call again.
 */
uint32_t kvr_sched_expire(struct kvr_sched *s, uint64_t now, uint32_t slots[], uint32_t n);

/**
 * Reject the waiting requests of slots @p from to @p to - 1 with KVR_E_SHUTDOWN; slots above
 * max_requests are ignored. @param d @p to - @p from entries. @return number of rejections.
 */
uint32_t kvr_sched_close_queue(struct kvr_sched *s, uint32_t from, uint32_t to,
			       struct kvr_sched_decision d[]);

/* ---- long prompts in slices ------------------------------------------------------------ */

/*
 * A prompt of 62,500 blocks (4 MB of tokens) takes at least 60 us each to match, book and free. An
 * owner with short turns does this work in slices:
 *
 *   before a decision  kvr_sched_prepare() until it returns true, then the call, then
 *                      kvr_sched_prepare_over(). Without it the call matches the whole prompt.
 *   after a decision   a booking or an end does its first slice and defers the rest to
 *                      kvr_sched_settle().
 *   a waiting request  kvr_sched_poll() matches it in slices and returns 0 until then; see
 *                      kvr_sched_admits().
 *
 * No decision sees a partial result: every reader of the active prompts (route, query, admission,
 * potential loads, output) first completes the deferred work, however long it takes. Decisions are
 * therefore identical with and without slices. An owner that delivers no event while
 * !kvr_sched_settled() or kvr_sched_admits() never exceeds its slice. The overload detector gets
 * the report of a booking or end with the last slice. Ends are never rejected: they form a list
 * through the freed slots. A booking that ends before it is complete is completed first. If the
 * pool of runs is full, the remaining blocks are private. kvr_sched_destroy() drops deferred work.
 */

/** Limit the first slice of a booking or an end to @p runs runs (40 to 150 ns each); 0: no limit,
 * the initial value. */
void kvr_sched_slices(struct kvr_sched *s, uint32_t runs);

/** Do at most @p runs runs of the deferred work. @return true if none is left. */
bool kvr_sched_settle(struct kvr_sched *s, uint32_t runs);

/** Return true if no work is deferred. */
bool kvr_sched_settled(const struct kvr_sched *s);

/** Return true if a deferred booking still reads the hashes @p sh of its request, which must stay
 * valid until it is settled. */
bool kvr_sched_enters(const struct kvr_sched *s, const void *sh);

/** Settle, then match the prompt of @p req before its route or query, each over at most @p runs
 * runs.
 * @return true if complete, else call again with the same @p req. */
bool kvr_sched_prepare(struct kvr_sched *s, const struct kvr_sched_req *req, uint32_t runs);

/** End the preparation: the request was handled or dropped. */
void kvr_sched_prepare_over(struct kvr_sched *s);

/** Return true while the next request to be admitted is being matched. */
bool kvr_sched_admits(const struct kvr_sched *s);

/** Drop that match. The next kvr_sched_poll() starts again with the most urgent request. */
void kvr_sched_admit_again(struct kvr_sched *s);

/** Number of choices of a new rank for a waiting request since create (late binding). */
uint64_t kvr_sched_moves(const struct kvr_sched *s);

/** Number of runs of active prompts visited since create. */
uint64_t kvr_sched_walked(const struct kvr_sched *s);

/** Time at which kvr_sched_expire() and kvr_sched_poll() are due; UINT64_MAX: never. */
uint64_t kvr_sched_next_timer(const struct kvr_sched *s);

enum kvr_sched_slot_state {
	KVR_SLOT_FREE,
	KVR_SLOT_BOOKED,
	KVR_SLOT_WAITING,
	KVR_SLOT_RELEASED,
};

enum kvr_sched_slot_state kvr_sched_slot_state(const struct kvr_sched *s, uint32_t slot);

/** Dense rank of a booking, or KVR_SCHED_NO_RANK. */
uint32_t kvr_sched_slot_rank(const struct kvr_sched *s, uint32_t slot);

#endif
