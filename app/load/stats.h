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
	LOAD_PIECES_AGAIN,
	LOAD_PROBES,
	LOAD_CANCELS,
	LOAD_ITEMS,
	LOAD_ITEM_REPEATS,
	LOAD_ITEM_DUPLICATES,
	LOAD_ITEM_GAPS,
	LOAD_CORRUPT,
	LOAD_DISPATCH_REPEATS,
	LOAD_ASKED,
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
	LOAD_PREFILL_LEGS,
	LOAD_BOOTSTRAP_LEGS,
	LOAD_SYNC_LEGS,
	LOAD_BYPASS_LEGS,
	LOAD_TRANSFERS,
	LOAD_TRANSFER_TIMEOUTS,
	LOAD_PATH_AGGREGATED,
	LOAD_PATH_BOOTSTRAP,
	LOAD_PATH_SYNC,
	LOAD_PATH_BYPASSED,
	LOAD_REROUTED,
	LOAD_V_MAX_TOKENS,
	LOAD_V_FLAGS,
	LOAD_V_ROOM,
	LOAD_V_RESULT,
	LOAD_V_WORKER,
	LOAD_V_HINTS,
	LOAD_V_ACCEPTED,
	LOAD_V_SESSION,
	LOAD_SESSIONS,
	LOAD_SESSIONS_OPEN,
	LOAD_OPENED,
	LOAD_OPENS_REFUSED,
	LOAD_OPEN_FAILED,
	LOAD_BOUND,
	LOAD_TURNS,
	LOAD_TURNS_ON_BOUND,
	LOAD_TURNS_UNBOUND,
	LOAD_MISPLACED,
	LOAD_CLOSED,
	LOAD_CLOSED_RELEASED,
	LOAD_CLOSED_EXPIRED,
	LOAD_CLOSED_EARLY,
	LOAD_CLOSED_TWICE,
	LOAD_CLOSED_UNKNOWN,
	LOAD_OPENED_TWICE,
	LOAD_ABANDONED,
	LOAD_RELEASES,
	LOAD_RELEASE_LOST,
	LOAD_SESSION_UNKNOWN,
	LOAD_LINK_LOST,
	LOAD_SESSIONS_LOST,
	LOAD_KILLS,
	LOAD_KILLED_REQUESTS,
	LOAD_KILLED_COMPLETED,
	LOAD_KILLED_REFUSED,
	LOAD_KILLED_OTHER,
	LOAD_LATE_SENDS,
	LOAD_LOOPS,
	LOAD_LOOPS_BUSY,
	LOAD_BUSY_CYCLES,
	LOAD_LONGEST_LOOP,
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
