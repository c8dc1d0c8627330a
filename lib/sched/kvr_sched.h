/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCHED_H
#define KVR_SCHED_H

/**
 * @file
 * The scheduler of one pool: eligibility, cost, choice, booking, load model, admission queue and
 * overload detector (RULES.md, sections 5 to 8 and 12). A pure object: it reads
 * no clock (every call that depends on time takes `now` in nanoseconds, any origin, never
 * falling), draws random numbers from the pool's seed, needs no EAL, and allocates only in
 * kvr_sched_create(). Same calls, same answers.
 *
 * Data structure. Ranks are dense indices 0..max_ranks-1, in structure-of-arrays form (active
 * prefill tokens, active blocks, requests, bit sets for "in use", "available", "overloaded" and
 * one per taint), so eligibility is a few word operations per 64 ranks and the cost of all ranks
 * is one vector loop (scalar, AVX2 or AVX-512, chosen at create, equal to the bit). Active
 * prompts are kept by lib/active: O(runs) per decision. Bookings are named by the caller's slot
 * number, so nothing is hashed. The queue is a leftist heap per (class, pinned rank or not),
 * linked through the slots: O(log n) for every operation, no memory of its own.
 *
 * Thread: one, the pool's scheduler lcore, for every function but create and destroy; the
 * accessors marked "any thread" read words that are written whole and may be one event old.
 * Nothing allocates, locks, logs or calls the kernel.
 *
 * Budget (128 blocks; 64 / 512 ranks) in cycles of a 2.1 GHz time stamp counter: project 250 / 700,
 * choose at most 4 a rank, book 330 / 500, mark 100 / 200, free 270 / 530; with the scoring of the
 * prompt and what is fetched ahead a decision takes 1,575 / 3,150 (0.75 / 1.5 us). Queue operations
 * 210 (100 ns) with 10,000 waiting. perf/micro/bench-decide and bench-queue measure them.
 *
 * Life of a slot:   free --route--> booked --finish/cancel/worker gone--> free
 *                     |                \--expire--> released --finish/cancel/worker gone--> free
 *                     \--route--> waiting --poll--> booked, or free with an error
 *                                      \--cancel--> free
 * A released slot has no load any more, and none again: prefill_done, output and renew change
 * nothing. Its rank is kept, so that the loss of the worker ends it.
 * Each slot that was booked is freed exactly once, whatever ends it; ending a free slot is a
 * counted no-op, so late and duplicate messages are harmless. The caller must not reuse a slot
 * number for another request before it has seen its end.
 *
 * Here stand the object's life and a request's way through it. What goes in and what comes out is
 * in kvr_sched_request.h, workers and ranks in kvr_sched_worker.h, loads and counters in
 * kvr_sched_stats.h; including this file includes them.
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

/** What the scheduler asks of its owner. All may be NULL. Called on the scheduler's thread. */
struct kvr_sched_ops {
	void *arg;
	/**
	 * A waiting request is about to be admitted and its overlap is too old (or was too large
	 * to keep): look it up again. The arrays must stay valid until the callback is called
	 * again or kvr_sched_poll() returns. Return false to keep what is known.
	 */
	bool (*refresh)(void *arg, uint32_t slot, const struct kvr_sched_req *req,
			struct kvr_sched_overlap *out);
	/** A booking, or what was left of a released one, ended because its rank went; the slot is
	 * already free. */
	void (*dropped)(void *arg, uint32_t slot, uint32_t rank);
	/** A dense index was given to (worker, dp_rank) / taken back (empty by then). */
	void (*rank_added)(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank);
	void (*rank_removed)(void *arg, uint32_t rank, uint64_t worker, uint32_t dp_rank);
	/* Memory: zeroed, aligned to 64. NULL = anonymous mappings, huge pages advised. */
	void *(*alloc)(void *arg, size_t bytes);
	void (*release)(void *arg, void *p);
};

/**
 * Build a scheduler; @p conf is copied. About 0.6 KiB a slot, 640 B per 64 active blocks, 8 B per
 * (shared run, rank); pages take memory when touched.
 * @return NULL with errno EINVAL (kvr_pool_conf_check() tells why) or ENOMEM.
 */
struct kvr_sched *kvr_sched_create(const struct kvr_pool_conf *conf,
				   const struct kvr_sched_ops *ops, uint64_t now);

/** Accepts NULL. */
void kvr_sched_destroy(struct kvr_sched *s);

const struct kvr_pool_conf *kvr_sched_conf(const struct kvr_sched *s);

/** Whether a pool that is there can take another value of this key: kvr_sched_tune(). Any thread.
 */
bool kvr_sched_tunable(const char *key);

/** Those keys, @p i from 0 on; NULL: there are no more. Any thread. */
const char *kvr_sched_tunable_key(size_t i);

/** The same for a key of a pool's policy classes. Any thread. */
bool kvr_sched_class_tunable(const char *key);

/**
 * From now on the tunable keys are those of @p conf, which is a checked copy of kvr_sched_conf()
 * with other values. What is booked and what waits stays; thresholds count at once. Scheduler
 * lcore.
 */
void kvr_sched_tune(struct kvr_sched *s, const struct kvr_pool_conf *conf);

/** max_ranks rounded up to a multiple of 64: the length of every per-rank array. Any thread. */
uint32_t kvr_sched_max_ranks(const struct kvr_sched *s);

/** Index of the policy class called @p name, or KVR_SCHED_NO_CLASS. Any thread. */
uint32_t kvr_sched_class_find(const struct kvr_sched *s, const char *name, size_t len);

/* ---- requests ------------------------------------------------------------------------- */

/** What can be said against @p req without looking at any worker, as kvr_sched_route() would. */
enum kvr_code kvr_sched_check(const struct kvr_sched *s, const struct kvr_sched_req *req);

/**
 * Route @p req under the name @p slot: choose and book, queue, answer a query, or refuse. A query
 * touches no slot: any number in range will do, that of a live request too.
 * @param ov overlap; NULL = none anywhere.
 * @return d->result.
 */
enum kvr_sched_result kvr_sched_route(struct kvr_sched *s, uint32_t slot,
				      const struct kvr_sched_req *req,
				      const struct kvr_sched_overlap *ov, uint64_t now,
				      struct kvr_sched_decision *d);

/**
 * From now on write the terms of every choice into @p terms (n = 0 when a call chose nothing),
 * the last one of a call staying; NULL = stop, the fast path. To explain a sampled decision, set
 * it before the call and take it away after; to explain kvr_sched_poll(), poll with n = 1.
 */
void kvr_sched_explain(struct kvr_sched *s, struct kvr_sched_terms *terms);

/**
 * Admit waiting requests whose turn it is; call after every burst of state changes and when
 * kvr_sched_next_timer() is due; returns at once when nothing changed. Each decision is ROUTED,
 * or ERROR when admission failed; either way the slot has left the queue. With late binding some
 * requests only wait for another rank afterwards: at most 8 a call, then kvr_sched_next_timer() is
 * due at once.
 * @return decisions written; when it equals @p n, call again.
 */
uint32_t kvr_sched_poll(struct kvr_sched *s, uint64_t now, struct kvr_sched_decision d[],
			uint32_t n);

/**
 * Fetch what a later call about a slot will touch. For callers that have a burst of messages:
 * step 0 some messages ahead, then steps 1 to KVR_SCHED_AHEAD - 1, each reading what the one before
 * fetched. Never needed for correctness.
 */
void kvr_sched_prefetch(const struct kvr_sched *s, uint32_t slot, int step);

/**
 * The same for a request that will be routed some messages later: each call goes one level deeper
 * into the active prompts, KVR_SCHED_AHEAD of them reach as deep as is worth while. @p ahead
 * remembers where; zero it before the first.
 */
void kvr_sched_prefetch_route(const struct kvr_sched *s, const struct kvr_sched_req *req,
			      struct kvr_active_ahead *ahead);

#define KVR_SCHED_AHEAD 4

/** A message about the request has come from its worker, or from its client if that runs it: the
 * silence that releases the booking starts again. prefill_done and output do the same. @return
 * whether the slot is booked. */
bool kvr_sched_renew(struct kvr_sched *s, uint32_t slot, uint64_t now);

/** First token seen. Idempotent. @return true the first time on a booked slot. */
bool kvr_sched_prefill_done(struct kvr_sched *s, uint32_t slot, uint64_t now);

/**
 * @p generated tokens exist in all (cumulative, so lost and repeated reports repair themselves;
 * falling values are ignored). The first call also marks prefill done.
 * @return false when the slot is not booked.
 */
bool kvr_sched_output(struct kvr_sched *s, uint32_t slot, uint32_t generated, uint64_t now);

/** The request ended, whatever the cause. @return true when a booking was freed, false too when it
 * had been released before. */
bool kvr_sched_finish(struct kvr_sched *s, uint32_t slot, uint64_t now);

/** As finish, but only when the booking is on dense index @p rank. */
bool kvr_sched_finish_on(struct kvr_sched *s, uint32_t slot, uint32_t rank, uint64_t now);

/** The client went away: leave the queue, or free the booking. @return true when either was, false
 * too when the booking had been released before. */
bool kvr_sched_cancel(struct kvr_sched *s, uint32_t slot, uint64_t now);

/**
 * The owner has stood still, or could not receive, for @p ns in all since create; never falls.
 * That time counts as no silence: messages of workers were not read in it.
 */
void kvr_sched_stood_still(struct kvr_sched *s, uint64_t ns);

/**
 * Release the bookings that were not renewed for more than request_expiry_s, once in 60 s; 0: none
 * ever. @return how many; when it equals @p n, call again.
 */
uint32_t kvr_sched_expire(struct kvr_sched *s, uint64_t now, uint32_t slots[], uint32_t n);

/**
 * Refuse the waiting requests among slots @p from to @p to - 1 with KVR_E_SHUTDOWN; slots above
 * max_requests are none. @param d room for as many. @return how many were refused.
 */
uint32_t kvr_sched_close_queue(struct kvr_sched *s, uint32_t from, uint32_t to,
			       struct kvr_sched_decision d[]);

/* ---- long prompts in slices ------------------------------------------------------------ */

/*
 * A prompt of 62,500 blocks (4 MB of tokens) takes 60 us or more each to match, to book and to
 * free. An owner whose turns are short does it in slices:
 *
 *   before a decision  kvr_sched_prepare() until it says true, then the call, then
 *                      kvr_sched_prepare_over(); without it the call matches all at once;
 *   after it           a booking or an end does its first slice, the rest is kept here and done by
 *                      kvr_sched_settle();
 *   a waiting request  kvr_sched_poll() matches it in slices by itself and says 0 until then:
 *                      kvr_sched_admits().
 *
 * No decision sees half of anything: whatever reads the active prompts (a route, a query, an
 * admission, potential loads, output) finishes first what is kept, at once and however long. So
 * decisions are the same, to the bit, with slices and without, and an owner that hands on no event
 * while !kvr_sched_settled() or kvr_sched_admits() never does more at once than its slices. The
 * overload detector is told of a booking or an end when the last slice is done. Ends are never
 * refused: they stand in a list through the slots that are free again. A booking that ends before
 * it is wholly entered is entered first. A pool of runs that is full makes the rest private, as
 * ever. What is kept at the stop goes with the object.
 */

/** From now on a booking and an end do @p runs runs at once; 0: all, as after create. A slice is
 * then what an event costs at most, 40 to 150 ns a run. */
void kvr_sched_slices(struct kvr_sched *s, uint32_t runs);

/** Do at most @p runs runs of what is kept. @return whether nothing is kept any more. */
bool kvr_sched_settle(struct kvr_sched *s, uint32_t runs);

/** Whether nothing is kept. */
bool kvr_sched_settled(const struct kvr_sched *s);

/** Whether the booking that is kept needs the hashes at @p sh still: those of its request, which
 * must stay until it is settled. */
bool kvr_sched_enters(const struct kvr_sched *s, const void *sh);

/** Settle, then match the prompt of @p req that is going to be routed or asked about, each over at
 * most @p runs runs. @return whether all is done; else call again with the same. */
bool kvr_sched_prepare(struct kvr_sched *s, const struct kvr_sched_req *req, uint32_t runs);

/** The request that was prepared for has been handled, or will never be. */
void kvr_sched_prepare_over(struct kvr_sched *s);

/** Whether the next request to be admitted is being matched. */
bool kvr_sched_admits(const struct kvr_sched *s);

/** What has been matched of it is thrown away: the next kvr_sched_poll() begins again, with the
 * same request unless another one has become more urgent. */
void kvr_sched_admit_again(struct kvr_sched *s);

/** Waiting requests that wait for another rank than before, or for one at all (late binding), since
 * the beginning: a choice each. */
uint64_t kvr_sched_moves(const struct kvr_sched *s);

/** Runs of active prompts looked at since the beginning: what all this costs. */
uint64_t kvr_sched_walked(const struct kvr_sched *s);

/** Time at which kvr_sched_expire() and kvr_sched_poll() are due again; UINT64_MAX = never. */
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
