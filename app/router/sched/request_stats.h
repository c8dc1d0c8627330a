/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_REQUEST_STATS_H
#define ROUTER_REQUEST_STATS_H

/**
 * @file
 * Statistics of requests: histograms by pool and policy class, counters by rank. A request keeps
 * its times in one cache line (request_times), and each order about time or tokens is recorded here
 * once.
 *
 *   decided (decision log)  ->  queue_seconds; blocks cached, and achievable
 *   SEND                    ->  dispatch_latency, overhead, input tokens, hit rate; routed
 *   OUTPUT, PREFILL_DONE    ->  time to first token, inter-token latency, transfer
 *   FREE                    ->  times of legs, output tokens; finished, failed
 *   report of the engine    ->  cached tokens found against predicted, and the reason for a
 * difference
 *
 * Writer: the pool's scheduler lcore; telemetry reads. Budget for an aggregated request of one
 * item: eight histograms, fifteen counters, one clock read; a division for a report of several
 * tokens.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>

#include "kvr_buckets.h"
#include "kvr_stats.h"

struct request_step;
struct lcore;
struct pool;
struct request;
struct kvr_sched_decision;
struct job;

#define NS_PARTS 1e9
#define LOG	 KVR_BUCKETS_LOG
#define LINEAR	 KVR_BUCKETS_LINEAR
/* Metrics that Dynamo has keep its names and buckets; the others are kvroute's own. */
#define OF_DYNAMO  "dynamo_component_router_"
#define OF_ROUTER  "dynamo_router_"
#define OF_KVR	   "kvr_"
#define MS_PARTS   1e6	/* nanoseconds per millisecond */
#define LOST_PARTS 1024 /* overlaps are fractions of blocks */

/** X(ID, prefix, "name", "unit", parts, kind, a, b, n, "help") */
#define MEASURE_LIST(X)                                                                                          \
	X(MEASURE_TTFT, OF_DYNAMO, "time_to_first_token_seconds", "seconds", NS_PARTS, LOG, 0.001,               \
	  480, 18, "Time from arrival to the first token at the router")                                         \
	X(MEASURE_ITL, OF_DYNAMO, "inter_token_latency_seconds", "seconds", NS_PARTS, LOG, 0.001,                \
	  2, 13, "Time between tokens: mean per report, counted once per token")                                 \
	X(MEASURE_ISL, OF_DYNAMO, "input_sequence_tokens", "tokens", 1, LOG, 50, 128000, 12,                     \
	  "Prompt tokens of dispatched requests")                                                                \
	X(MEASURE_OSL, OF_DYNAMO, "output_sequence_tokens", "tokens", 1, LOG, 50, 32000, 10,                     \
	  "Generated tokens of requests with output")                                                            \
	X(MEASURE_HIT, OF_DYNAMO, "kv_hit_rate", "ratio", KVR_RATIO_PARTS, LINEAR, 0, 0.05, 21,                  \
	  "Predicted cached fraction of the prompts of dispatched requests")                                     \
	X(MEASURE_TRANSFER, OF_DYNAMO, "kv_transfer_estimated_latency_seconds", "seconds",                       \
	  NS_PARTS, LOG, 0.001, 10, 15, "End of the prefill leg to first token of the decode leg")               \
	X(MEASURE_LOST, OF_DYNAMO, "overlap_blocks_lost", "blocks", LOST_PARTS, KVR_BUCKETS_EXP,                 \
	  0.25, 2, 16, "Overlap of the best eligible rank minus overlap of the chosen rank")                     \
	X(MEASURE_OVERHEAD, OF_ROUTER, "overhead_total_ms", "ms", MS_PARTS, KVR_BUCKETS_EXP, 0.01,               \
	  3, 17, "Same as kvr_dispatch_latency_seconds, in milliseconds")                                        \
	X(MEASURE_DISPATCH, OF_KVR, "dispatch_latency_seconds", "seconds", NS_PARTS,                             \
	  KVR_BUCKETS_EXP, 0.000001, 2, 20,                                                                      \
	  "Time from arrival to first dispatch of requests that did not wait: the latency that the router adds") \
	X(MEASURE_QUEUE, OF_KVR, "queue_wait_seconds", "seconds", NS_PARTS, LOG, 0.001, 480, 18,                 \
	  "Waiting time of requests that waited for capacity")                                                   \
	X(MEASURE_PREFILL, OF_KVR, "prefill_leg_seconds", "seconds", NS_PARTS, LOG, 0.001, 480,                  \
	  18, "Dispatch to end of prefill legs")                                                                 \
	X(MEASURE_DECODE, OF_KVR, "decode_leg_seconds", "seconds", NS_PARTS, LOG, 0.001, 480, 18,                \
	  "Dispatch to end of main legs")

#define MEASURE_ENUM(id, ...) id,
enum measure { MEASURE_LIST(MEASURE_ENUM) MEASURES };
#undef MEASURE_ENUM

/** By enum measure. Constant after stats_create(). */
extern struct kvr_buckets stats_buckets[MEASURES];

/** Histograms of one policy class of a pool. */
struct measures {
	struct kvr_bucket_cells v[MEASURES];
};

/** Reasons why an engine found fewer cached blocks than predicted. */
enum shortfall { SHORT_MISSING, SHORT_EVICTED, SHORT_NOTHING, SHORT_ENGINE, SHORTFALLS };

#define RANK_COUNTER_LIST(X)                                                                           \
	X(RC_ROUTED, routed, COUNT, "legs", "legs sent")                                               \
	X(RC_FINISHED, finished, COUNT, "legs", "legs ended by their last item")                       \
	X(RC_FAILED, failed, COUNT, "legs", "legs that failed, were abandoned, rejected or lost")      \
	X(RC_CANCELLED, cancelled, COUNT, "legs", "legs stopped by the client or their other leg")     \
	X(RC_UNACKNOWLEDGED, unacknowledged, COUNT, "legs",                                            \
	  "failed because DISPATCH was not acknowledged within dispatch_ms; rerouted to another rank") \
	X(RC_PROMPT, prompt_tokens, COUNT, "tokens", "prompt tokens of the legs")                      \
	X(RC_PREDICTED, predicted_tokens, COUNT, "tokens", "of them predicted to be cached")           \
	X(RC_REPORTED_PREDICTED, reported_predicted_tokens, COUNT, "tokens",                           \
	  "predicted for legs with a report of their engine")                                          \
	X(RC_REPORTED_ACTUAL, actual_tokens, COUNT, "tokens",                                          \
	  "cached tokens that these engines reported")                                                 \
	X(RC_SHORT, short_tokens, COUNT, "tokens", "predicted and not found")                          \
	X(RC_BEYOND, beyond_tokens, COUNT, "tokens", "found and not predicted")                        \
	X(RC_LAST_TTFT, last_ttft_ns, GAUGE, "ns", "last time to first token")                         \
	X(RC_LAST_ITL, last_itl_ns, GAUGE, "ns", "last time between tokens, mean of one report")       \
	X(RC_LAST_ISL, last_input_tokens, GAUGE, "tokens", "prompt of the last leg sent")
enum rank_counter { RANK_COUNTER_LIST(KVR_COUNTER_ENUM) RANK_COUNTERS };
extern const char *const rank_counter_names[RANK_COUNTERS];

/** Counters of one rank and its current worker. Writer: scheduler lcore; telemetry reads. */
struct rank_counts {
	kvr_cell_t v[RANK_COUNTERS];
} __rte_cache_aligned;

/* ---- request_stats.c: start, stop, any thread ---- */

/** Memory of the pool, which has its scheduler. @return 0 or -ENOMEM. */
int stats_create(struct pool *pool);
void stats_destroy(struct pool *pool);

/** Bytes that stats_create() allocates. */
uint64_t stats_bytes(uint32_t classes, uint32_t ranks);

/** Number of policy classes of a pool, at least one. */
uint32_t stats_classes(const struct pool *pool);

/* ---- request_stats_dp.c: scheduler lcore ---- */

/** A new request. */
void stats_arrived(struct request *req, uint64_t arrival_ns);

/** Another attempt begins. Called after the orders that end the legs of the previous attempt, which
 * read its times. */
void stats_attempt(struct request *req);

/** A leg of a request of @pool isl tokens was booked or admitted. @pool req NULL: a query. */
void stats_decided(struct pool *pool, struct request *req, uint32_t leg, uint32_t isl,
		   const struct kvr_sched_decision *d);

/** Order SEND. */
void stats_sent(const struct request_step *step, uint32_t leg);

/** Orders OUTPUT (@p tokens so far) and PREFILL_DONE (0: at least one), of the main leg. */
void stats_output(const struct request_step *step, uint32_t tokens);

/** Order FREE; @p how: enum kvr_rq_how. */
void stats_freed(const struct request_step *step, uint32_t leg, uint32_t how);

/** Record the report of an engine after a leg: @pool actual of @pool predicted cached tokens. Not
 * for bookings, where a client would report. */
void stats_reported(struct pool *pool, const struct request *req, uint32_t leg, uint32_t rank,
		    uint32_t predicted, uint32_t actual);

/** kvr_sched_ops::rank_added: the rank has another worker. @p pool is a struct pool. */
void stats_rank_added(void *pool, uint32_t rank, uint64_t worker, uint32_t dp_rank);

#endif
