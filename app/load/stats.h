/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_STATS_H
#define LOAD_STATS_H

/**
 * @file
 * What kvroute-load counts and measures. Equations, true when nothing is in flight:
 *	requests = sent + not_sent
 *	sent = completed + failed + cancelled + lost
 * The load lcore writes; main reads counters at any time and histograms after the end.
 */

#include <stdint.h>

#include "kvr_hist.h"
#include "kvr_stats.h"
#include "kvr_wire.h"

enum load_counter {
	LOAD_REQUESTS,
	LOAD_SENT,
	LOAD_NOT_SENT,
	LOAD_COMPLETED,
	LOAD_FAILED,
	LOAD_CANCELLED,
	LOAD_LOST,
	LOAD_MEASURED,
	LOAD_IN_FLIGHT,
	LOAD_DISPATCHES,
	LOAD_QUEUED,
	LOAD_PROMPT_BLOCKS,
	LOAD_CACHED_BLOCKS,
	LOAD_PREDICTED_BLOCKS,
	LOAD_PREDICTION_ERROR,
	LOAD_PREDICTION_OVER,
	LOAD_PREDICTION_EXACT,
	LOAD_ROUTE_REPEATS,
	LOAD_PROBES,
	LOAD_CANCELS,
	LOAD_ITEMS,
	LOAD_ITEM_REPEATS,
	LOAD_ITEM_DUPLICATES,
	LOAD_ITEM_GAPS,
	LOAD_CORRUPT,
	LOAD_DISPATCH_REPEATS,
	LOAD_DISPATCH_STALE,
	LOAD_STALE,
	LOAD_ABORTS,
	LOAD_ENGINE_GAVE_UP,
	LOAD_KV_STORED,
	LOAD_KV_REMOVED,
	LOAD_KV_EVENTS,
	LOAD_KV_FRAMES,
	LOAD_KV_REPEATS,
	LOAD_KV_DUMPS,
	LOAD_HELLOS,
	LOAD_WORKER_REFUSED,
	LOAD_BAD_FRAMES,
	LOAD_RX,
	LOAD_TX,
	LOAD_TX_DROPPED,
	LOAD_NO_MBUF,
	LOAD_LATE_SENDS,
	LOAD_LOOPS,
	LOAD_LOOPS_BUSY,
	LOAD_BUSY_CYCLES,
	LOAD_COUNTERS
};
extern const struct kvr_stats_def load_stats_def;

/** Distributions of the measured requests, cycles. */
struct load_measures {
	struct kvr_hist ttft;		 /* intended send to first item at the client */
	struct kvr_hist total;		 /* intended send to last item */
	struct kvr_hist added;		 /* forward + back */
	struct kvr_hist forward;	 /* ROUTE left to DISPATCH arrived */
	struct kvr_hist back;		 /* first item left the engine to arrived at the client */
	struct kvr_hist lateness;	 /* intended send to real send */
	uint64_t code[KVR_E_MAX];	 /* REJECTED of requests, by code */
	uint64_t worker_code[KVR_E_MAX]; /* of workers' messages */
};

#endif
