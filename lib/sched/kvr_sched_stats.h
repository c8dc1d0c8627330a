/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCHED_STATS_H
#define KVR_SCHED_STATS_H

/**
 * @file
 * Read-only queries of a scheduler (kvr_sched.h): potential loads, LoRA adapters, waiting requests,
 * counters. Thread: scheduler, unless stated otherwise.
 */

#include "kvr_active.h"
#include "kvr_sched_request.h"
#include "kvr_stats.h"
#include <stddef.h>
#include <stdint.h>

struct kvr_sched;

struct kvr_sched_load {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t rank;
	uint64_t potential_prefill_tokens;
	uint32_t potential_decode_blocks;
	uint32_t active_requests;
	uint32_t overlap_blocks; /* as in struct kvr_sched_decision */
	uint32_t cached_tokens;
};

/**
 * Potential loads of every rank (section 15), including draining ones, ordered by (worker,
 * dp_rank). @return number of ranks; the first @p cap are written.
 */
uint32_t kvr_sched_loads(struct kvr_sched *s, const struct kvr_sched_req *req,
			 const struct kvr_sched_overlap *ov, uint64_t now,
			 struct kvr_sched_load v[], uint32_t cap);

#define KVR_SCHED_ADAPTERS  128u /* LoRA adapters counted separately */
#define KVR_SCHED_LORA_NAME 255u /* bytes */

/** Load of one LoRA adapter (6.1, 11.1). */
struct kvr_sched_lora {
	uint32_t active; /**< bookings now */
	uint32_t len;
	uint64_t booked;		    /**< since the name was entered in the table */
	char name[KVR_SCHED_LORA_NAME + 1]; /**< len bytes and a NUL */
};

/**
 * Write at most @p cap adapters from number @p from on, unordered. An adapter without bookings
 * stays until its entry is needed. @return number of adapters.
 */
uint32_t kvr_sched_loras(const struct kvr_sched *s, uint32_t from, struct kvr_sched_lora v[],
			 uint32_t cap);

/** Bookings of the adapter called @p name, 0 for an unknown one. */
uint32_t kvr_sched_lora_active(const struct kvr_sched *s, const char *name, size_t len);

/** Total of the adapters that did not fit the table; without a name. */
void kvr_sched_lora_other(const struct kvr_sched *s, struct kvr_sched_lora *out);

/** Waiting requests of the pool. Any thread. */
struct kvr_sched_pending {
	uint32_t count;
	uint64_t isl_tokens;
	uint64_t cached_tokens;
};

void kvr_sched_pending(const struct kvr_sched *s, struct kvr_sched_pending *p);

/** The same for one policy class. @return 0, or -ENOENT. */
int kvr_sched_pending_class(const struct kvr_sched *s, uint32_t policy_class,
			    struct kvr_sched_pending *p);

/** Counters except rejections. One writer (the scheduler), readable from any thread. */
#define KVR_SCHED_COUNTER_LIST(X)                                                                  \
	X(KVR_SCHED_C_CALLS, routed_calls, COUNT, "requests", "kvr_sched_route() calls")           \
	X(KVR_SCHED_C_BOOKED_AT_ONCE, booked_at_once, COUNT, "requests",                           \
	  "requests booked by the call")                                                           \
	X(KVR_SCHED_C_QUEUED, queued, COUNT, "requests", "requests that had to wait")              \
	X(KVR_SCHED_C_QUERIES, queries, COUNT, "requests", "queries answered without booking")     \
	X(KVR_SCHED_C_ADMITTED, admitted, COUNT, "requests", "waiting requests booked")            \
	X(KVR_SCHED_C_FINISHED, finished, COUNT, "requests", "bookings ended by their request")    \
	X(KVR_SCHED_C_CANCELLED_BOOKED, cancelled_booked, COUNT, "requests", "bookings cancelled") \
	X(KVR_SCHED_C_CANCELLED_WAITING, cancelled_waiting, COUNT, "requests",                     \
	  "waiting requests cancelled")                                                            \
	X(KVR_SCHED_C_EXPIRED, expired, COUNT, "requests", "bookings released after silence")      \
	X(KVR_SCHED_C_RELEASED_ENDED, released_ended, COUNT, "requests",                           \
	  "released bookings whose request has ended")                                             \
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
	X(KVR_SCHED_C_LIMIT_REQUESTS, limit_requests, COUNT, "requests",                           \
	  "requests rejected: class limit of waiting requests")                                    \
	X(KVR_SCHED_C_LIMIT_ISL, limit_isl_tokens, COUNT, "requests",                              \
	  "requests rejected: class limit of waiting prompt tokens")                               \
	X(KVR_SCHED_C_LIMIT_CACHED, limit_cached_tokens, COUNT, "requests",                        \
	  "requests rejected: class limit of waiting cached tokens")                               \
	X(KVR_SCHED_C_UNSHARED, unshared_blocks, COUNT, "blocks",                                  \
	  "prompt blocks booked privately: load model full")                                       \
	X(KVR_SCHED_C_PROBES, probes, COUNT, "requests",                                           \
	  "health probes, not included in other counters")                                         \
	X(KVR_SCHED_C_PROBES_REFUSED, probes_refused, COUNT, "requests", "health probes rejected") \
	X(KVR_SCHED_C_PROBES_ENDED, probes_ended, COUNT, "requests", "health probes ended")        \
	X(KVR_SCHED_C_PROBES_NOW, probes_now, GAUGE, "requests", "health probes now")              \
	X(KVR_SCHED_C_BOOKED_NOW, booked_now, GAUGE, "requests", "bookings now")                   \
	X(KVR_SCHED_C_RELEASED_NOW, released_now, GAUGE, "requests",                               \
	  "requests that go on after their booking was released")                                  \
	X(KVR_SCHED_C_WAITING_NOW, waiting_now, GAUGE, "requests", "requests waiting now")

/** Followed by rejections by reason: of all calls, then of kvr_sched_poll() and close_queue only.
 * The first of each is the sum of the others. The equations in counters.c hold between calls. */
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

/** The load model, for its counters. Any thread. */
const struct kvr_active *kvr_sched_active(const struct kvr_sched *s);

#endif
