/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCHED_H
#define KVR_SCHED_H

/**
 * @file
 * The scheduler of one pool: eligibility, cost, choice, booking, load model, admission queue and
 * overload detector (behaviour specification, sections 5 to 8 and 12). A pure object: it reads
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
 * Life of a slot:   free --route--> booked --finish/cancel/expire/worker gone--> free
 *                     \--route--> waiting --poll--> booked, or free with an error
 *                                      \--cancel--> free
 * Each slot that was booked is freed exactly once, whatever ends it; ending a free slot is a
 * counted no-op, so late and duplicate messages are harmless. The caller must not reuse a slot
 * number for another request before it has seen its end.
 */

#include "kvr_active.h"
#include "kvr_pool_conf.h"
#include "kvr_stats.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_SCHED_NO_RANK  UINT32_MAX
#define KVR_SCHED_NO_CLASS UINT32_MAX

struct kvr_sched;

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
	uint32_t strict_priority;
	double priority_jump;	   /**< seconds; below 0 counts as 0 */
	uint32_t policy_class;	   /**< index, or KVR_SCHED_NO_CLASS for the first class */
	struct kvr_sched_str lora; /**< adapter, counted only; len 0 = the base model */
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
	bool refreshed;	       /**< the overlap was looked up again before admission */
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
	double wait_tokens;   /**< booked there and not computed: Q */
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
	/** A booking ended because its rank went; the slot is already free. */
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

/** max_ranks rounded up to a multiple of 64: the length of every per-rank array. Any thread. */
uint32_t kvr_sched_max_ranks(const struct kvr_sched *s);

/** Index of the policy class called @p name, or KVR_SCHED_NO_CLASS. Any thread. */
uint32_t kvr_sched_class_find(const struct kvr_sched *s, const char *name, size_t len);

/* ---- workers -------------------------------------------------------------------------- */

struct kvr_sched_worker {
	uint64_t id;
	uint32_t dp_start;
	uint32_t dp_size;		 /**< >= 1 */
	uint64_t total_kv_blocks;	 /**< 0 = unknown */
	uint64_t max_num_batched_tokens; /**< 0 = unknown: 10,000,000 counts */
	bool cpu;			 /**< no accelerator (device-aware-weighted) */
	const struct kvr_sched_str *taints;
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

/** End up to @p n bookings of a worker that is about to leave (ops->dropped): what
 * kvr_sched_worker_gone() would have to do at once. @return bookings left; 0 for an unknown one. */
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

/** Load report of one rank (12.2). @return 0, or -ENOENT unknown worker or rank. */
int kvr_sched_load_report(struct kvr_sched *s, uint64_t id, uint32_t dp_rank,
			  uint64_t kv_used_blocks, uint64_t now);

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

/** State of one rank, for telemetry. Any thread. */
struct kvr_sched_rank_info {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t rank;
	bool in_use;
	bool available;
	bool draining;
	bool overloaded; /**< this rank */
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
 * or ERROR when admission failed; either way the slot has left the queue.
 * @return decisions written; when it equals @p n, call again.
 */
uint32_t kvr_sched_poll(struct kvr_sched *s, uint64_t now, struct kvr_sched_decision d[],
			uint32_t n);

/**
 * Fetch what a later call about a slot will touch. For callers that have a burst of messages:
 * step 0 some messages ahead, then step 1, then step 2, each reading what the one before
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

#define KVR_SCHED_AHEAD 3

/** First token seen. Idempotent. @return true the first time on a booked slot. */
bool kvr_sched_prefill_done(struct kvr_sched *s, uint32_t slot, uint64_t now);

/**
 * @p generated tokens exist in all (cumulative, so lost and repeated reports repair themselves;
 * falling values are ignored). The first call also marks prefill done.
 * @return false when the slot is not booked.
 */
bool kvr_sched_output(struct kvr_sched *s, uint32_t slot, uint32_t generated, uint64_t now);

/** The request ended, whatever the cause. @return true when a booking was freed. */
bool kvr_sched_finish(struct kvr_sched *s, uint32_t slot, uint64_t now);

/** As finish, but only when the booking is on dense index @p rank. */
bool kvr_sched_finish_on(struct kvr_sched *s, uint32_t slot, uint32_t rank, uint64_t now);

/** The client went away: leave the queue, or free the booking. @return true when either was. */
bool kvr_sched_cancel(struct kvr_sched *s, uint32_t slot, uint64_t now);

/**
 * Free bookings older than request_expiry_s, oldest first. @return how many; when it equals
 * @p n, call again.
 */
uint32_t kvr_sched_expire(struct kvr_sched *s, uint64_t now, uint32_t slots[], uint32_t n);

/**
 * Refuse the waiting requests among slots @p from to @p to - 1 with KVR_E_SHUTDOWN; slots above
 * max_requests are none. @param d room for as many. @return how many were refused.
 */
uint32_t kvr_sched_close_queue(struct kvr_sched *s, uint32_t from, uint32_t to,
			       struct kvr_sched_decision d[]);

/** Time at which kvr_sched_expire() and kvr_sched_poll() are due again; UINT64_MAX = never. */
uint64_t kvr_sched_next_timer(const struct kvr_sched *s);

enum kvr_sched_slot_state {
	KVR_SLOT_FREE,
	KVR_SLOT_BOOKED,
	KVR_SLOT_WAITING,
};

enum kvr_sched_slot_state kvr_sched_slot_state(const struct kvr_sched *s, uint32_t slot);

/** Dense rank of a booking, or KVR_SCHED_NO_RANK. */
uint32_t kvr_sched_slot_rank(const struct kvr_sched *s, uint32_t slot);

/* ---- questions ------------------------------------------------------------------------ */

struct kvr_sched_load {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t rank;
	uint64_t potential_prefill_tokens;
	uint32_t potential_decode_blocks;
	uint32_t active_requests;
};

/**
 * Potential loads of every rank (section 15), draining ones too, ordered by (worker, dp_rank).
 * @return how many ranks there are; the first @p cap are written.
 */
uint32_t kvr_sched_loads(struct kvr_sched *s, const struct kvr_sched_req *req,
			 const struct kvr_sched_overlap *ov, uint64_t now,
			 struct kvr_sched_load v[], uint32_t cap);

#define KVR_SCHED_ADAPTERS  128u /* LoRA adapters told apart */
#define KVR_SCHED_LORA_NAME 255u /* bytes */

/** Load of one LoRA adapter (6.1, 11.1). */
struct kvr_sched_lora {
	uint32_t active; /**< bookings now */
	uint32_t len;
	uint64_t booked;		    /**< since the name has its place in the table */
	char name[KVR_SCHED_LORA_NAME + 1]; /**< len bytes and a NUL */
};

/**
 * Adapters in no order, from number @p from on, at most @p cap. One without bookings stays until
 * its place is needed. @return how many there are.
 */
uint32_t kvr_sched_loras(const struct kvr_sched *s, uint32_t from, struct kvr_sched_lora v[],
			 uint32_t cap);

/** Bookings of the adapter called @p name, 0 for an unknown one. */
uint32_t kvr_sched_lora_active(const struct kvr_sched *s, const char *name, size_t len);

/** Bookings of the adapters for which the table had no place, together; without a name. */
void kvr_sched_lora_other(const struct kvr_sched *s, struct kvr_sched_lora *out);

/** What waits, whole pool. Any thread. */
struct kvr_sched_pending {
	uint32_t count;
	uint64_t isl_tokens;
	uint64_t cached_tokens;
};

void kvr_sched_pending(const struct kvr_sched *s, struct kvr_sched_pending *p);

/** The same for one policy class. @return 0, or -ENOENT. */
int kvr_sched_pending_class(const struct kvr_sched *s, uint32_t policy_class,
			    struct kvr_sched_pending *p);

/** Counters but for refusals. One writer (the scheduler), readable from any thread. */
#define KVR_SCHED_COUNTER_LIST(X)                                                                  \
	X(KVR_SCHED_C_CALLS, routed_calls, COUNT, "requests", "kvr_sched_route() calls")           \
	X(KVR_SCHED_C_BOOKED_AT_ONCE, booked_at_once, COUNT, "requests",                           \
	  "requests booked by the call")                                                           \
	X(KVR_SCHED_C_QUEUED, queued, COUNT, "requests", "requests that had to wait")              \
	X(KVR_SCHED_C_QUERIES, queries, COUNT, "requests", "questions answered, nothing booked")   \
	X(KVR_SCHED_C_ADMITTED, admitted, COUNT, "requests", "waiting requests booked")            \
	X(KVR_SCHED_C_FINISHED, finished, COUNT, "requests", "bookings that ended by themselves")  \
	X(KVR_SCHED_C_CANCELLED_BOOKED, cancelled_booked, COUNT, "requests", "bookings cancelled") \
	X(KVR_SCHED_C_CANCELLED_WAITING, cancelled_waiting, COUNT, "requests",                     \
	  "waiting requests cancelled")                                                            \
	X(KVR_SCHED_C_EXPIRED, expired, COUNT, "requests", "bookings that reached the age limit")  \
	X(KVR_SCHED_C_DROPPED, dropped, COUNT, "requests", "bookings lost with their rank")        \
	X(KVR_SCHED_C_LATE, late, COUNT, "calls", "calls that named a free slot")                  \
	X(KVR_SCHED_C_PREFILL_MARKS, prefill_marks, COUNT, "requests",                             \
	  "bookings whose prefill was marked done")                                                \
	X(KVR_SCHED_C_OUTPUT_BLOCKS, output_blocks, COUNT, "blocks", "output blocks booked")       \
	X(KVR_SCHED_C_REFRESHES, refreshes, COUNT, "requests",                                     \
	  "overlaps looked up again before admission")                                             \
	X(KVR_SCHED_C_NOT_KEPT, overlap_not_kept, COUNT, "requests",                               \
	  "waiting requests whose overlap did not fit the store")                                  \
	X(KVR_SCHED_C_NON_MAX, non_max_overlap, COUNT, "requests",                                 \
	  "bookings though an eligible rank had strictly more overlap")                            \
	X(KVR_SCHED_C_UNSHARED, unshared_blocks, COUNT, "blocks",                                  \
	  "prompt blocks booked privately: load model full")                                       \
	X(KVR_SCHED_C_BOOKED_NOW, booked_now, GAUGE, "requests", "bookings now")                   \
	X(KVR_SCHED_C_WAITING_NOW, waiting_now, GAUGE, "requests", "requests waiting now")

/** Then refusals, by reason: of all calls, and those of kvr_sched_poll() and close_queue among
 * them. The first of each is the sum of the others. The equations in counters.c are true between
 * calls. */
enum kvr_sched_counter {
	KVR_SCHED_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_SCHED_C_ERRORS,
	KVR_SCHED_C_POLL_ERRORS = KVR_SCHED_C_ERRORS + KVR_SCHED_ERRS,
	KVR_SCHED_COUNTERS = KVR_SCHED_C_POLL_ERRORS + KVR_SCHED_ERRS
};
struct kvr_sched_counters {
	KVR_SCHED_COUNTER_LIST(KVR_COUNTER_FIELD)
	kvr_cell_t errors[KVR_SCHED_ERRS]; /**< [KVR_SCHED_ERR_ANY]: all */
	kvr_cell_t poll_errors[KVR_SCHED_ERRS];
};
extern const struct kvr_stats_def kvr_sched_stats_def;

const struct kvr_sched_counters *kvr_sched_counters(const struct kvr_sched *s);

/** The load model beneath, for its counters. Any thread. */
const struct kvr_active *kvr_sched_active(const struct kvr_sched *s);

#endif
