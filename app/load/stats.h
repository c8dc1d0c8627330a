/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_STATS_H
#define LOAD_STATS_H

/**
 * @file
 * Counters and measurements of kvroute-load; stats.c has the equations between the counters.
 * Writer: the load lcore. Main reads counters at any time and histograms after the end.
 */

#include <stdint.h>

#include "kvr_hist.h"
#include "kvr_stats.h"
#include "kvr_wire.h"

#define LOAD_COUNTER_LIST(X)                                                                       \
	X(LOAD_REQUESTS, requests, COUNT, "requests", "due requests of the schedule")              \
	X(LOAD_SENT, sent, COUNT, "requests", "requests sent")                                     \
	X(LOAD_NOT_SENT, not_sent, COUNT, "requests",                                              \
	  "due requests not sent: --max-inflight reached")                                         \
	X(LOAD_COMPLETED, completed, COUNT, "requests", "requests completed: last item received")  \
	X(LOAD_FAILED, failed, COUNT, "requests",                                                  \
	  "requests rejected by the router, or failed at the engine")                              \
	X(LOAD_CANCELLED, cancelled, COUNT, "requests", "requests cancelled by the client")        \
	X(LOAD_LOST, lost, COUNT, "requests", "requests without an end after the drain")           \
	X(LOAD_MEASURED, measured, COUNT, "requests", "completed requests due after the warm-up")  \
	X(LOAD_IN_FLIGHT, in_flight, GAUGE, "requests", "requests sent and not ended")             \
	X(LOAD_DISPATCHES, dispatches, COUNT, "requests", "requests received by an engine")        \
	X(LOAD_QUEUED, queued, COUNT, "requests", "requests that the router reported as queued")   \
	X(LOAD_PROMPT_BLOCKS, prompt_blocks, COUNT, "blocks",                                      \
	  "prompt blocks at engines, measured requests")                                           \
	X(LOAD_CACHED_BLOCKS, cached_blocks, COUNT, "blocks", "of them cached at the engine")      \
	X(LOAD_PREDICTED_BLOCKS, predicted_blocks, COUNT, "blocks",                                \
	  "of them predicted by the router")                                                       \
	X(LOAD_PREDICTION_ERROR, prediction_error, COUNT, "blocks", "sum of |predicted - cached|") \
	X(LOAD_PREDICTION_OVER, prediction_over, COUNT, "blocks", "predicted but not cached")      \
	X(LOAD_PREDICTION_EXACT, prediction_exact, COUNT, "requests", "predicted = found")         \
	X(LOAD_ROUTE_REPEATS, route_repeats, COUNT, "messages", "ROUTE repeated")                  \
	X(LOAD_PIECES_AGAIN, route_pieces_again, COUNT, "frames",                                  \
	  "pieces of a ROUTE that the router asked for")                                           \
	X(LOAD_PROBES, probes, COUNT, "messages", "PROBE sent")                                    \
	X(LOAD_CANCELS, cancels, COUNT, "messages", "CANCEL sent")                                 \
	X(LOAD_ITEMS, items, COUNT, "messages", "RESPONSE items received in order")                \
	X(LOAD_ITEM_REPEATS, item_repeats, COUNT, "messages", "RESPONSE items repeated")           \
	X(LOAD_ITEM_DUPLICATES, item_duplicates, COUNT, "messages", "duplicate items received")    \
	X(LOAD_ITEM_GAPS, item_gaps, COUNT, "messages", "items received after a missing one")      \
	X(LOAD_CORRUPT, corrupt, COUNT, "messages", "content different from what was sent")        \
	X(LOAD_DISPATCH_REPEATS, dispatch_repeats, COUNT, "messages", "DISPATCH received again")   \
	X(LOAD_ASKED, missing_sent, COUNT, "messages", "missing pieces of a DISPATCH asked for")   \
	X(LOAD_DISPATCH_STALE, dispatch_stale, COUNT, "messages", "DISPATCH for ended requests")   \
	X(LOAD_STALE, stale, COUNT, "messages", "other messages for ended requests")               \
	X(LOAD_ABORTS, aborts, COUNT, "messages", "ABORT received")                                \
	X(LOAD_ENGINE_GAVE_UP, engine_gave_up, COUNT, "requests", "answers never acknowledged")    \
	X(LOAD_KV_STORED, kv_stored, COUNT, "blocks", "blocks stored by engines")                  \
	X(LOAD_KV_REMOVED, kv_removed, COUNT, "blocks", "blocks evicted by engines")               \
	X(LOAD_KV_EVENTS, kv_events, COUNT, "events", "KV events")                                 \
	X(LOAD_KV_FRAMES, kv_frames, COUNT, "frames", "KV_EVENTS frames sent")                     \
	X(LOAD_KV_REPEATS, kv_repeats, COUNT, "messages", "times that KV events were sent again")  \
	X(LOAD_KV_DUMPS, kv_dumps, COUNT, "messages", "dumps begun")                               \
	X(LOAD_HELLOS, hellos, COUNT, "messages", "HELLO sent")                                    \
	X(LOAD_WORKER_REFUSED, worker_refused, COUNT, "messages",                                  \
	  "REJECTED for messages of workers")                                                      \
	X(LOAD_BAD_FRAMES, bad_frames, COUNT, "frames",                                            \
	  "frames for other receivers, or malformed")                                              \
	X(LOAD_RX, rx, COUNT, "frames", "frames received")                                         \
	X(LOAD_TX, tx, COUNT, "frames", "frames sent")                                             \
	X(LOAD_TX_DROPPED, tx_dropped, COUNT, "frames", "frames dropped: device full")             \
	X(LOAD_NO_MBUF, no_mbuf, COUNT, "frames", "frames not sent: no buffer")                    \
	X(LOAD_PREFILL_LEGS, prefill_legs, COUNT, "requests", "prefill legs received")             \
	X(LOAD_BOOTSTRAP_LEGS, bootstrap_legs, COUNT, "requests",                                  \
	  "decode legs with a bootstrap room")                                                     \
	X(LOAD_SYNC_LEGS, sync_legs, COUNT, "requests", "decode legs with a prefill result")       \
	X(LOAD_BYPASS_LEGS, bypass_legs, COUNT, "requests",                                        \
	  "requests at a decode engine without a prefill leg")                                     \
	X(LOAD_TRANSFERS, transfers, COUNT, "transfers",                                           \
	  "decode legs whose prefill result was verified")                                         \
	X(LOAD_TRANSFER_TIMEOUTS, transfer_timeouts, COUNT, "transfers",                           \
	  "decode legs whose prefill leg never arrived")                                           \
	X(LOAD_PATH_AGGREGATED, path_aggregated, COUNT, "requests",                                \
	  "ended requests reported as aggregated")                                                 \
	X(LOAD_PATH_BOOTSTRAP, path_bootstrap, COUNT, "requests",                                  \
	  "ended requests reported with the bootstrap path")                                       \
	X(LOAD_PATH_SYNC, path_sync, COUNT, "requests",                                            \
	  "ended requests reported with the synchronous path")                                     \
	X(LOAD_PATH_BYPASSED, path_bypassed, COUNT, "requests",                                    \
	  "ended requests reported without the prefill pool")                                      \
	X(LOAD_REROUTED, rerouted, COUNT, "requests", "requests with a leg that was begun twice")  \
	X(LOAD_V_MAX_TOKENS, violation_max_tokens, COUNT, "violations",                            \
	  "DISPATCH with the max_tokens of another leg")                                           \
	X(LOAD_V_FLAGS, violation_flags, COUNT, "violations",                                      \
	  "DISPATCH with the flags of another leg")                                                \
	X(LOAD_V_ROOM, violation_room, COUNT, "violations",                                        \
	  "bootstrap room of another rank or leg")                                                 \
	X(LOAD_V_RESULT, violation_result, COUNT, "violations",                                    \
	  "prefill result missing, changed or unexpected")                                         \
	X(LOAD_V_WORKER, violation_worker, COUNT, "violations",                                    \
	  "decode legs without a valid prefill worker")                                            \
	X(LOAD_V_HINTS, violation_hints, COUNT, "violations", "DISPATCH with unexpected hints")    \
	X(LOAD_V_ACCEPTED, violation_accepted, COUNT, "violations",                                \
	  "ACCEPTED with wrong workers or a wrong path")                                           \
	X(LOAD_V_TRACKER, violation_tracker, COUNT, "violations",                                  \
	  "trailers inconsistent with their answer")                                               \
	X(LOAD_V_SESSION, violation_session, COUNT, "violations",                                  \
	  "session messages for an unknown session, worker or timeout")                            \
	X(LOAD_SESSIONS, sessions, COUNT, "sessions", "sessions begun")                            \
	X(LOAD_SESSIONS_OPEN, sessions_open, GAUGE, "sessions", "sessions open at engines")        \
	X(LOAD_OPENED, opened, COUNT, "sessions", "sessions opened by engines")                    \
	X(LOAD_OPENS_REFUSED, opens_refused, COUNT, "sessions",                                    \
	  "sessions that engines did not open")                                                    \
	X(LOAD_OPEN_FAILED, open_failed, COUNT, "sessions",                                        \
	  "sessions whose open was rejected to the client")                                        \
	X(LOAD_BOUND, bound, COUNT, "sessions", "first turns at the engine that has the session")  \
	X(LOAD_TURNS, turns, COUNT, "turns", "turns sent")                                         \
	X(LOAD_TURNS_ON_BOUND, turns_on_bound, COUNT, "turns",                                     \
	  "later turns at the engine that has the session")                                        \
	X(LOAD_TURNS_UNBOUND, turns_unbound, COUNT, "turns",                                       \
	  "turns of sessions whose engine crashed or closed them")                                 \
	X(LOAD_MISPLACED, misplaced, COUNT, "turns", "turns at an engine without the session")     \
	X(LOAD_CLOSED, closed, COUNT, "sessions", "closes at engines: last turn of the client")    \
	X(LOAD_CLOSED_RELEASED, closed_released, COUNT, "sessions",                                \
	  "closes at engines: released, or failed first turn")                                     \
	X(LOAD_CLOSED_EXPIRED, closed_expired, COUNT, "sessions", "closes at engines: expired")    \
	X(LOAD_CLOSED_EARLY, closed_early, COUNT, "sessions",                                      \
	  "closes at engines for sessions still in use")                                           \
	X(LOAD_CLOSED_TWICE, closed_twice, COUNT, "sessions",                                      \
	  "closes at engines, repeated by another message")                                        \
	X(LOAD_CLOSED_UNKNOWN, closed_unknown, COUNT, "sessions",                                  \
	  "closes at engines for sessions they never had or lost")                                 \
	X(LOAD_OPENED_TWICE, opened_twice, COUNT, "sessions",                                      \
	  "sessions opened while another engine had them open")                                    \
	X(LOAD_ABANDONED, abandoned, COUNT, "sessions", "sessions abandoned by the client")        \
	X(LOAD_RELEASES, releases, COUNT, "sessions", "sessions released by the client")           \
	X(LOAD_RELEASE_LOST, release_lost, COUNT, "sessions", "releases never answered")           \
	X(LOAD_SESSION_UNKNOWN, session_unknown, COUNT, "sessions",                                \
	  "UnknownSession for a session that an engine has open")                                  \
	X(LOAD_LINK_LOST, link_lost, COUNT, "times", "disconnects of the memif server")            \
	X(LOAD_SESSIONS_LOST, sessions_lost, COUNT, "sessions", "sessions lost with their engine") \
	X(LOAD_KILLS, kills, COUNT, "workers", "engines killed")                                   \
	X(LOAD_KILLED_REQUESTS, killed_requests, COUNT, "requests", "requests at killed engines")  \
	X(LOAD_KILLED_COMPLETED, killed_completed, COUNT, "requests", "of them completed")         \
	X(LOAD_KILLED_REFUSED, killed_refused, COUNT, "requests",                                  \
	  "of them rejected, WorkerLost or PrefillFailed")                                         \
	X(LOAD_KILLED_OTHER, killed_other, COUNT, "requests", "of them ended otherwise")           \
	X(LOAD_TRACKED, tracked, COUNT, "requests",                                                \
	  "answers with the router's report, with --track")                                        \
	X(LOAD_LATE_SENDS, late_sends, COUNT, "requests", "requests sent more than 1 ms late")     \
	X(LOAD_LOOPS, loops, COUNT, "loops", "iterations of the load lcore")                       \
	X(LOAD_LOOPS_BUSY, loops_busy, COUNT, "loops", "iterations that moved a frame")            \
	X(LOAD_BUSY_CYCLES, busy_cycles, COUNT, "cycles", "time of iterations that moved a frame") \
	X(LOAD_LONGEST_LOOP, longest_loop, GAUGE, "microseconds",                                  \
	  "longest time between two polls of the link")
enum load_counter { LOAD_COUNTER_LIST(KVR_COUNTER_ENUM) LOAD_COUNTERS };

extern const struct kvr_stats_def load_stats_def;

#define LOAD_SLICES 240u

/** Results of the requests due in one part of the schedule; see --slice. */
struct load_slice {
	struct kvr_hist ttft;
	uint64_t prompt_blocks, cached_blocks; /* LOAD_PROMPT_BLOCKS, LOAD_CACHED_BLOCKS */
};

/** Distributions of the measured requests, cycles. */
struct load_measures {
	struct kvr_hist ttft;	      /* due time to first item at the client */
	struct kvr_hist total;	      /* due time to last item */
	struct kvr_hist added;	      /* forward + back */
	struct kvr_hist forward;      /* ROUTE sent to DISPATCH received */
	struct kvr_hist back;	      /* first item sent to first item received */
	struct kvr_hist lateness;     /* due time to actual send */
	struct kvr_hist router_queue; /* --track: ROUTE received to DISPATCH sent, at the router */
	struct kvr_hist router_ttft;  /* ROUTE received to first token, at the router */
	struct kvr_hist router_itl;   /* between tokens, mean of an answer, at the router */
	uint64_t code[KVR_E_MAX];     /* REJECTED of requests, by code */
	uint64_t worker_code[KVR_E_MAX]; /* REJECTED of workers' messages */
	struct load_slice *slices;	 /* LOAD_SLICES of them with --slice, otherwise NULL */
	uint64_t slice_cycles;
};

#endif
