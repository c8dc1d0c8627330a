/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_STATS_H
#define LOAD_STATS_H

/**
 * @file
 * What kvroute-load counts and measures; stats.c has the equations between the counters.
 * The load lcore writes; main reads counters at any time and histograms after the end.
 */

#include <stdint.h>

#include "kvr_hist.h"
#include "kvr_stats.h"
#include "kvr_wire.h"

#define LOAD_COUNTER_LIST(X)                                                                       \
	X(LOAD_REQUESTS, requests, COUNT, "requests", "requests the schedule made due")            \
	X(LOAD_SENT, sent, COUNT, "requests", "requests sent")                                     \
	X(LOAD_NOT_SENT, not_sent, COUNT, "requests",                                              \
	  "due requests not sent: max-inflight reached")                                           \
	X(LOAD_COMPLETED, completed, COUNT, "requests", "requests whose last item arrived")        \
	X(LOAD_FAILED, failed, COUNT, "requests", "requests the router or engine refused")         \
	X(LOAD_CANCELLED, cancelled, COUNT, "requests", "requests cancelled by the client")        \
	X(LOAD_LOST, lost, COUNT, "requests", "requests without an end when the drain was over")   \
	X(LOAD_MEASURED, measured, COUNT, "requests", "completed requests due after the warm-up")  \
	X(LOAD_IN_FLIGHT, in_flight, GAUGE, "requests", "requests sent and not ended")             \
	X(LOAD_DISPATCHES, dispatches, COUNT, "requests", "requests that reached an engine")       \
	X(LOAD_QUEUED, queued, COUNT, "requests", "requests the router said it queued")            \
	X(LOAD_PROMPT_BLOCKS, prompt_blocks, COUNT, "blocks",                                      \
	  "prompt blocks at engines, measured")                                                    \
	X(LOAD_CACHED_BLOCKS, cached_blocks, COUNT, "blocks",                                      \
	  "of them found in the engine's cache")                                                   \
	X(LOAD_PREDICTED_BLOCKS, predicted_blocks, COUNT, "blocks",                                \
	  "of them the router predicted")                                                          \
	X(LOAD_PREDICTION_ERROR, prediction_error, COUNT, "blocks", "sum of |predicted - found|")  \
	X(LOAD_PREDICTION_OVER, prediction_over, COUNT, "blocks", "predicted but not found")       \
	X(LOAD_PREDICTION_EXACT, prediction_exact, COUNT, "requests", "predicted = found")         \
	X(LOAD_ROUTE_REPEATS, route_repeats, COUNT, "messages", "ROUTE sent again")                \
	X(LOAD_PIECES_AGAIN, route_pieces_again, COUNT, "frames",                                  \
	  "pieces of a ROUTE the router asked for")                                                \
	X(LOAD_PROBES, probes, COUNT, "messages", "PROBE sent")                                    \
	X(LOAD_CANCELS, cancels, COUNT, "messages", "CANCEL sent")                                 \
	X(LOAD_ITEMS, items, COUNT, "messages", "RESPONSE items received in order")                \
	X(LOAD_ITEM_REPEATS, item_repeats, COUNT, "messages", "RESPONSE items sent again")         \
	X(LOAD_ITEM_DUPLICATES, item_duplicates, COUNT, "messages", "items received before")       \
	X(LOAD_ITEM_GAPS, item_gaps, COUNT, "messages", "items ahead of a missing one")            \
	X(LOAD_CORRUPT, corrupt, COUNT, "messages", "content that is not what was sent")           \
	X(LOAD_DISPATCH_REPEATS, dispatch_repeats, COUNT, "messages", "DISPATCH received again")   \
	X(LOAD_ASKED, missing_sent, COUNT, "messages", "lost pieces of a DISPATCH asked for")      \
	X(LOAD_DISPATCH_STALE, dispatch_stale, COUNT, "messages",                                  \
	  "DISPATCH of a request that ended")                                                      \
	X(LOAD_STALE, stale, COUNT, "messages", "other messages of requests that ended")           \
	X(LOAD_ABORTS, aborts, COUNT, "messages", "ABORT received")                                \
	X(LOAD_ENGINE_GAVE_UP, engine_gave_up, COUNT, "requests", "answers never acknowledged")    \
	X(LOAD_KV_STORED, kv_stored, COUNT, "blocks", "blocks engines stored")                     \
	X(LOAD_KV_REMOVED, kv_removed, COUNT, "blocks", "blocks engines evicted")                  \
	X(LOAD_KV_EVENTS, kv_events, COUNT, "events", "KV events made")                            \
	X(LOAD_KV_FRAMES, kv_frames, COUNT, "frames", "KV_EVENTS frames sent")                     \
	X(LOAD_KV_REPEATS, kv_repeats, COUNT, "messages", "times events had to be sent again")     \
	X(LOAD_KV_DUMPS, kv_dumps, COUNT, "messages", "dumps begun")                               \
	X(LOAD_HELLOS, hellos, COUNT, "messages", "HELLO sent")                                    \
	X(LOAD_WORKER_REFUSED, worker_refused, COUNT, "messages",                                  \
	  "REJECTED of a worker's message")                                                        \
	X(LOAD_BAD_FRAMES, bad_frames, COUNT, "frames", "frames that are not for us or malformed") \
	X(LOAD_RX, rx, COUNT, "frames", "frames received")                                         \
	X(LOAD_TX, tx, COUNT, "frames", "frames sent")                                             \
	X(LOAD_TX_DROPPED, tx_dropped, COUNT, "frames", "frames the device stayed too full for")   \
	X(LOAD_NO_MBUF, no_mbuf, COUNT, "frames", "frames not made: no buffer")                    \
	X(LOAD_PREFILL_LEGS, prefill_legs, COUNT, "requests",                                      \
	  "prefill legs that reached an engine")                                                   \
	X(LOAD_BOOTSTRAP_LEGS, bootstrap_legs, COUNT, "requests",                                  \
	  "decode legs with a bootstrap room")                                                     \
	X(LOAD_SYNC_LEGS, sync_legs, COUNT, "requests", "decode legs with a prefill result")       \
	X(LOAD_BYPASS_LEGS, bypass_legs, COUNT, "requests",                                        \
	  "requests at a decode engine without a prefill leg")                                     \
	X(LOAD_TRANSFERS, transfers, COUNT, "transfers",                                           \
	  "decode legs whose prefill leg was there, verified")                                     \
	X(LOAD_TRANSFER_TIMEOUTS, transfer_timeouts, COUNT, "transfers",                           \
	  "decode legs whose prefill leg never came")                                              \
	X(LOAD_PATH_AGGREGATED, path_aggregated, COUNT, "requests",                                \
	  "ended requests whose client was told: aggregated")                                      \
	X(LOAD_PATH_BOOTSTRAP, path_bootstrap, COUNT, "requests", "told: bootstrap path")          \
	X(LOAD_PATH_SYNC, path_sync, COUNT, "requests", "told: synchronous path")                  \
	X(LOAD_PATH_BYPASSED, path_bypassed, COUNT, "requests", "told: prefill pool not used")     \
	X(LOAD_REROUTED, rerouted, COUNT, "requests", "requests with a leg that was begun twice")  \
	X(LOAD_V_MAX_TOKENS, violation_max_tokens, COUNT, "violations",                            \
	  "max_tokens of a DISPATCH is not its leg's")                                             \
	X(LOAD_V_FLAGS, violation_flags, COUNT, "violations",                                      \
	  "flags of a DISPATCH are not its leg's")                                                 \
	X(LOAD_V_ROOM, violation_room, COUNT, "violations",                                        \
	  "bootstrap room of another rank or leg")                                                 \
	X(LOAD_V_RESULT, violation_result, COUNT, "violations",                                    \
	  "prefill result missing, changed or not expected")                                       \
	X(LOAD_V_WORKER, violation_worker, COUNT, "violations",                                    \
	  "prefill worker of a decode leg is none")                                                \
	X(LOAD_V_HINTS, violation_hints, COUNT, "violations",                                      \
	  "hints of a DISPATCH that do not belong there")                                          \
	X(LOAD_V_ACCEPTED, violation_accepted, COUNT, "violations",                                \
	  "ACCEPTED named other workers or another path")                                          \
	X(LOAD_V_TRACKER, violation_tracker, COUNT, "violations",                                  \
	  "a trailer that contradicts its answer or itself")                                       \
	X(LOAD_V_SESSION, violation_session, COUNT, "violations",                                  \
	  "session message of an unknown session, worker or timeout")                              \
	X(LOAD_SESSIONS, sessions, COUNT, "sessions", "sessions begun")                            \
	X(LOAD_SESSIONS_OPEN, sessions_open, GAUGE, "sessions", "sessions engines have open")      \
	X(LOAD_OPENED, opened, COUNT, "sessions", "sessions engines opened")                       \
	X(LOAD_OPENS_REFUSED, opens_refused, COUNT, "sessions", "sessions engines did not open")   \
	X(LOAD_OPEN_FAILED, open_failed, COUNT, "sessions",                                        \
	  "sessions whose open was refused to the client")                                         \
	X(LOAD_BOUND, bound, COUNT, "sessions",                                                    \
	  "first turns that came to the engine that has the session")                              \
	X(LOAD_TURNS, turns, COUNT, "turns", "turns sent")                                         \
	X(LOAD_TURNS_ON_BOUND, turns_on_bound, COUNT, "turns",                                     \
	  "later turns that came to the engine that has the session")                              \
	X(LOAD_TURNS_UNBOUND, turns_unbound, COUNT, "turns",                                       \
	  "turns of sessions whose engine had died or closed them")                                \
	X(LOAD_MISPLACED, misplaced, COUNT, "turns",                                               \
	  "turns that came to another engine than the session's")                                  \
	X(LOAD_CLOSED, closed, COUNT, "sessions", "engines told to close: the client's last turn") \
	X(LOAD_CLOSED_RELEASED, closed_released, COUNT, "sessions",                                \
	  "engines told to close: released, or the first turn failed")                             \
	X(LOAD_CLOSED_EXPIRED, closed_expired, COUNT, "sessions",                                  \
	  "engines told to close: expired")                                                        \
	X(LOAD_CLOSED_EARLY, closed_early, COUNT, "sessions",                                      \
	  "engines told to close although the session went on")                                    \
	X(LOAD_CLOSED_TWICE, closed_twice, COUNT, "sessions",                                      \
	  "engines told to close again, by another message")                                       \
	X(LOAD_CLOSED_UNKNOWN, closed_unknown, COUNT, "sessions",                                  \
	  "engines told to close what they never had or lost")                                     \
	X(LOAD_OPENED_TWICE, opened_twice, COUNT, "sessions",                                      \
	  "sessions opened while another engine had them open")                                    \
	X(LOAD_ABANDONED, abandoned, COUNT, "sessions", "sessions the client just left")           \
	X(LOAD_RELEASES, releases, COUNT, "sessions", "sessions the client released")              \
	X(LOAD_RELEASE_LOST, release_lost, COUNT, "sessions", "releases that were never answered") \
	X(LOAD_SESSION_UNKNOWN, session_unknown, COUNT, "sessions",                                \
	  "UnknownSession for one that an engine has open")                                        \
	X(LOAD_LINK_LOST, link_lost, COUNT, "times", "the memif server went away")                 \
	X(LOAD_SESSIONS_LOST, sessions_lost, COUNT, "sessions",                                    \
	  "sessions killed with their engine")                                                     \
	X(LOAD_KILLS, kills, COUNT, "workers", "engines killed")                                   \
	X(LOAD_KILLED_REQUESTS, killed_requests, COUNT, "requests",                                \
	  "requests an engine was killed with")                                                    \
	X(LOAD_KILLED_COMPLETED, killed_completed, COUNT, "requests",                              \
	  "of them completed, by another engine or its answer was there")                          \
	X(LOAD_KILLED_REFUSED, killed_refused, COUNT, "requests",                                  \
	  "of them rejected, WorkerLost or PrefillFailed")                                         \
	X(LOAD_KILLED_OTHER, killed_other, COUNT, "requests", "of them ended otherwise")           \
	X(LOAD_TRACKED, tracked, COUNT, "requests",                                                \
	  "answers that said how the router saw them, with --track")                               \
	X(LOAD_LATE_SENDS, late_sends, COUNT, "requests",                                          \
	  "sent more than 1 ms after the schedule")                                                \
	X(LOAD_LOOPS, loops, COUNT, "loops", "iterations of the load lcore")                       \
	X(LOAD_LOOPS_BUSY, loops_busy, COUNT, "loops", "of them that moved a frame")               \
	X(LOAD_BUSY_CYCLES, busy_cycles, COUNT, "cycles", "time of loops that moved a frame")      \
	X(LOAD_LONGEST_LOOP, longest_loop, GAUGE, "microseconds",                                  \
	  "longest time between two looks at the link: what held us up")
enum load_counter { LOAD_COUNTER_LIST(KVR_COUNTER_ENUM) LOAD_COUNTERS };

extern const struct kvr_stats_def load_stats_def;

#define LOAD_SLICES 240u

/** The same of the requests that were due in one part of the schedule, see --slice. */
struct load_slice {
	struct kvr_hist ttft;
	uint64_t prompt_blocks, cached_blocks; /* LOAD_PROMPT_BLOCKS, LOAD_CACHED_BLOCKS */
};

/** Distributions of the measured requests, cycles. */
struct load_measures {
	struct kvr_hist ttft;		 /* intended send to first item at the client */
	struct kvr_hist total;		 /* intended send to last item */
	struct kvr_hist added;		 /* forward + back */
	struct kvr_hist forward;	 /* ROUTE left to DISPATCH arrived */
	struct kvr_hist back;		 /* first item left the engine to arrived at the client */
	struct kvr_hist lateness;	 /* intended send to real send */
	struct kvr_hist router_queue;	 /* --track: ROUTE arrived to DISPATCH left */
	struct kvr_hist router_ttft;	 /* ROUTE arrived to first token */
	struct kvr_hist router_itl;	 /* between tokens, mean of an answer */
	uint64_t code[KVR_E_MAX];	 /* REJECTED of requests, by code */
	uint64_t worker_code[KVR_E_MAX]; /* of workers' messages */
	struct load_slice *slices;	 /* LOAD_SLICES of them with --slice, else NULL */
	uint64_t slice_cycles;
};

#endif
