/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_MEASURE_H
#define ROUTER_MEASURE_H

/**
 * @file
 * What is measured of requests: histograms by pool and policy class, counts by rank. A request
 * keeps its times in a cache line of its own (request_times), and each of its orders that says
 * something about time or tokens comes by here once.
 *
 *   decided (decision log)  ->  queue_seconds; how much was cached, and could have been
 *   SEND                    ->  dispatch_latency, overhead, input tokens, hit rate; routed
 *   OUTPUT, PREFILL_DONE    ->  time to first token, inter-token latency, transfer
 *   FREE                    ->  times of legs, output tokens; finished, failed
 *   told                    ->  what the engine found against what was predicted, and why not
 *
 * Writer: the pool's scheduler lcore; telemetry reads. Budget: of an aggregated request of one item
 * eight histograms and fifteen counters, one clock read; a
 * division for a report of several tokens.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>

#include "kvr_buckets.h"
#include "kvr_stats.h"

struct life;
struct lcore;
struct pool;
struct request;
struct kvr_sched_decision;
struct job;

#define NS_PARTS 1e9
#define LOG	 KVR_BUCKETS_LOG
#define LINEAR	 KVR_BUCKETS_LINEAR
/* Those of the reference system have its names and buckets; the others are the router's own. */
#define OF_DYNAMO  "dynamo_component_router_"
#define OF_ROUTER  "dynamo_router_"
#define OF_KVR	   "kvr_"
#define MS_PARTS   1e6	/* nanoseconds of milliseconds */
#define LOST_PARTS 1024 /* overlaps are blocks, and parts of them */

/** X(ID, prefix, "name", "unit", parts, kind, a, b, n, "help") */
#define MEASURE_LIST(X)                                                                            \
	X(MEASURE_TTFT, OF_DYNAMO, "time_to_first_token_seconds", "seconds", NS_PARTS, LOG, 0.001, \
	  480, 18, "Arrival to first token, as it passes the router")                              \
	X(MEASURE_ITL, OF_DYNAMO, "inter_token_latency_seconds", "seconds", NS_PARTS, LOG, 0.001,  \
	  2, 13, "Time between tokens: mean of those of one report, counted once a token")         \
	X(MEASURE_ISL, OF_DYNAMO, "input_sequence_tokens", "tokens", 1, LOG, 50, 128000, 12,       \
	  "Prompt tokens of what was dispatched")                                                  \
	X(MEASURE_OSL, OF_DYNAMO, "output_sequence_tokens", "tokens", 1, LOG, 50, 32000, 10,       \
	  "Generated tokens of requests that had any")                                             \
	X(MEASURE_HIT, OF_DYNAMO, "kv_hit_rate", "ratio", KVR_RATIO_PARTS, LINEAR, 0, 0.05, 21,    \
	  "Part of the prompt predicted to be cached, of what was dispatched")                     \
	X(MEASURE_TRANSFER, OF_DYNAMO, "kv_transfer_estimated_latency_seconds", "seconds",         \
	  NS_PARTS, LOG, 0.001, 10, 15, "End of the prefill leg to first token of the decode leg") \
	X(MEASURE_LOST, OF_DYNAMO, "overlap_blocks_lost", "blocks", LOST_PARTS, KVR_BUCKETS_EXP,   \
	  0.25, 2, 16, "Overlap of the best eligible rank beyond that of the one chosen instead")  \
	X(MEASURE_OVERHEAD, OF_ROUTER, "overhead_total_ms", "ms", MS_PARTS, KVR_BUCKETS_EXP, 0.01, \
	  3, 17, "Same as kvr_dispatch_latency_seconds, in milliseconds")                          \
	X(MEASURE_DISPATCH, OF_KVR, "dispatch_latency_seconds", "seconds", NS_PARTS,               \
	  KVR_BUCKETS_EXP, 0.000001, 2, 20,                                                        \
	  "Arrival to first dispatch of requests that did not wait: what the router adds")         \
	X(MEASURE_QUEUE, OF_KVR, "queue_wait_seconds", "seconds", NS_PARTS, LOG, 0.001, 480, 18,   \
	  "Waiting time of those that waited for capacity")                                        \
	X(MEASURE_PREFILL, OF_KVR, "prefill_leg_seconds", "seconds", NS_PARTS, LOG, 0.001, 480,    \
	  18, "Dispatch to end of prefill legs")                                                   \
	X(MEASURE_DECODE, OF_KVR, "decode_leg_seconds", "seconds", NS_PARTS, LOG, 0.001, 480, 18,  \
	  "Dispatch to end of legs that answer the client")

#define MEASURE_ENUM(id, ...) id,
enum measure { MEASURE_LIST(MEASURE_ENUM) MEASURES };
#undef MEASURE_ENUM

/** By enum measure. Constant since measures_create(). */
extern struct kvr_buckets measure_buckets[MEASURES];

/** Of one policy class of a pool. */
struct measures {
	struct kvr_bucket_cells v[MEASURES];
};

/** Why an engine found less than was predicted. */
enum shortfall { SHORT_MISSING, SHORT_EVICTED, SHORT_NOTHING, SHORT_ENGINE, SHORTFALLS };

#define RANK_COUNTER_LIST(X)                                                                       \
	X(RC_ROUTED, routed, COUNT, "legs", "legs sent")                                           \
	X(RC_FINISHED, finished, COUNT, "legs", "legs ended by their last item")                   \
	X(RC_FAILED, failed, COUNT, "legs", "legs that failed, were given up, refused or lost")    \
	X(RC_CANCELLED, cancelled, COUNT, "legs", "legs stopped by the client or their other leg") \
	X(RC_UNACKNOWLEDGED, unacknowledged, COUNT, "legs",                                        \
	  "of the failed: DISPATCH was not acknowledged in dispatch_ms, and another rank got it")  \
	X(RC_PROMPT, prompt_tokens, COUNT, "tokens", "prompt tokens of the legs")                  \
	X(RC_PREDICTED, predicted_tokens, COUNT, "tokens", "of them predicted to be cached")       \
	X(RC_REPORTED_PREDICTED, reported_predicted_tokens, COUNT, "tokens",                       \
	  "predicted for legs whose engine told what it found")                                    \
	X(RC_REPORTED_ACTUAL, actual_tokens, COUNT, "tokens", "what those engines found cached")   \
	X(RC_SHORT, short_tokens, COUNT, "tokens", "predicted and not found")                      \
	X(RC_BEYOND, beyond_tokens, COUNT, "tokens", "found and not predicted")                    \
	X(RC_LAST_TTFT, last_ttft_ns, GAUGE, "ns", "last time to first token")                     \
	X(RC_LAST_ITL, last_itl_ns, GAUGE, "ns", "last time between tokens, mean of a report")     \
	X(RC_LAST_ISL, last_input_tokens, GAUGE, "tokens", "prompt of the last leg sent")
enum rank_counter { RANK_COUNTER_LIST(KVR_COUNTER_ENUM) RANK_COUNTERS };
extern const char *const rank_counter_names[RANK_COUNTERS];

/** Counts of one rank, of the worker that has it now. Scheduler lcore; telemetry: r. */
struct rank_counts {
	kvr_cell_t v[RANK_COUNTERS];
} __rte_cache_aligned;

/* ---- measure.c: start, stop, any thread ---- */

/** Memory of the pool, whose scheduler is there. @return 0 or -ENOMEM. */
int measures_create(struct pool *p);
void measures_destroy(struct pool *p);

/** Bytes that it takes. */
uint64_t measures_bytes(uint32_t classes, uint32_t ranks);

/** Policy classes of a pool: at least one. */
uint32_t measures_classes(const struct pool *p);

/* ---- measure_dp.c: scheduler lcore ---- */

/** A new request. */
void measure_arrived(struct request *r, uint64_t arrival_ns);

/** Another try begins: its legs are sent anew. After the orders that end those of the one before,
 * whose times they want. */
void measure_again(struct request *r);

/** A pool has decided about a leg of a request of @p isl tokens: booked, or admitted. @p r NULL: a
 * query. */
void measure_decided(struct pool *p, struct request *r, uint32_t leg, uint32_t isl,
		     const struct kvr_sched_decision *d);

/** Order SEND. */
void measure_sent(const struct life *x, uint32_t leg);

/** Orders OUTPUT (@p tokens so far) and PREFILL_DONE (0: at least one), of the main leg. */
void measure_output(const struct life *x, uint32_t tokens);

/** Order FREE; @p how: enum kvr_rq_how. */
void measure_freed(const struct life *x, uint32_t leg, uint32_t how);

/** The engine of a leg that has ended tells what it found: @p actual of @p predicted tokens. Not
 * for bookings: there a client says so. */
void measure_told(struct pool *p, const struct request *r, uint32_t leg, uint32_t rank,
		  uint32_t predicted, uint32_t actual);

/** kvr_sched_ops::rank_added: the rank is another worker's. @p pool is the struct pool. */
void measure_rank_added(void *pool, uint32_t rank, uint64_t worker, uint32_t dp_rank);

#endif
