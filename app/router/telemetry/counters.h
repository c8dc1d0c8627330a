/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_COUNTERS_H
#define ROUTER_COUNTERS_H

/**
 * @file
 * What the router itself counts: each list makes an enum and the rows of its table. The equations
 * between them stand in counters.c; they hold for each row between two turns of its writer
 * (balance.h).
 *
 *   ingress   every datagram for kvroute, one row per polling lcore; what follows `ring_full` is
 *             outside the sum
 *   pool      every ROUTE message that reached a pool's scheduler, every leg, every booking
 *   session   every session that was to be opened, every binding, every SESSION_CLOSE of a pool
 *   event     every KV_EVENTS frame that reached a pool's event stage
 *   log, lcore, stage   lines of the log, turns of each polling lcore, work of its stages
 *   reject    every refusal by its code
 */

#include "kvr_stats.h"
#include "kvr_wire.h"

#define INGRESS_COUNTER_LIST(X)                                                                    \
	X(IN_FRAMES, frames, COUNT, "frames", "datagrams for the router")                          \
	X(IN_ROUTES, routes, COUNT, "frames", "ROUTE messages of one frame given to a scheduler")  \
	X(IN_FRAGMENTS, fragments, COUNT, "frames", "fragments taken for reassembly")              \
	X(IN_RELAYED, relayed, COUNT, "frames", "RESPONSE and RESPONSE_ACK switched")              \
	X(IN_NOTES, notes, COUNT, "frames", "other frames about requests given to a scheduler")    \
	X(IN_EVENTS, events, COUNT, "frames", "KV_EVENTS given to an event stage or told to wait") \
	X(IN_CONTROL, control, COUNT, "frames", "frames given to the control thread")              \
	X(IN_HEARTBEATS, heartbeats, COUNT, "frames", "HEARTBEAT answered")                        \
	X(IN_REJECTED, rejected, COUNT, "frames", "frames refused, by code under rejects")         \
	X(IN_IGNORED, ignored, COUNT, "frames", "frames neither used nor answered")                \
	X(IN_SHORT, short, COUNT, "frames", "ignored: shorter than a header")                      \
	X(IN_MAGIC, magic, COUNT, "frames", "ignored: another protocol")                           \
	X(IN_LATE, late, COUNT, "frames", "ignored: about a request that is gone")                 \
	X(IN_EARLY, early, COUNT, "frames", "ignored: acknowledges an item that has not passed")   \
	X(IN_LIMITED, limited, COUNT, "frames",                                                    \
	  "ignored: CONNECT, HELLO of a source above its rate")                                    \
	X(IN_SHARE, share, COUNT, "frames", "ignored: KV events of a source above its share")      \
	X(IN_RING_FULL, ring_full, COUNT, "frames",                                                \
	  "ignored: ring full, or overload; the sender repeats it")                                \
	X(IN_BAD_RANK, bad_rank, COUNT, "frames",                                                  \
	  "HEARTBEAT and KV_EVENTS with a rank that HELLO did not name")                           \
	X(IN_OLD_LIFE, old_life, COUNT, "frames",                                                  \
	  "HEARTBEAT and KV_EVENTS of a life of their worker that is over")                        \
	X(IN_HANDED, handed, COUNT, "frames", "fragments that came to another ingress lcore")      \
	X(IN_MESSAGES, messages, COUNT, "messages", "ROUTE messages completed from fragments")     \
	X(IN_REASM_OUT, reassembly_dropped, COUNT, "frames", "fragments of messages given up")     \
	X(IN_REASM_EVICTED, reassembly_evicted, COUNT, "messages",                                 \
	  "oldest messages given up for room")                                                     \
	X(IN_ASKED, missing_sent, COUNT, "frames", "MISSING sent: what a message lacks")           \
	X(IN_UNANSWERED, unanswered, COUNT, "frames", "refusals not answered: address or rate")    \
	X(IN_NO_MBUF, no_mbuf, COUNT, "frames", "answers not sent for want of a buffer")           \
	X(IN_EGRESS_FULL, egress_full, COUNT, "frames",                                            \
	  "frames of other lcores dropped, ring full")                                             \
	X(IN_SPLIT, split, COUNT, "messages", "messages cut anew for a smaller path")              \
	X(IN_UNSENDABLE, unsendable, COUNT, "messages", "messages that fit no frame of their path")
enum in_counter { INGRESS_COUNTER_LIST(KVR_COUNTER_ENUM) IN_COUNTERS };

#define POOL_COUNTER_LIST(X)                                                                       \
	X(PC_ROUTES, routes, COUNT, "requests", "ROUTE messages that reached the scheduler")       \
	X(PC_PROBES, health_probes, COUNT, "messages",                                             \
	  "ROUTE messages of health probes, which are counted and measured nowhere else")          \
	X(PC_QUERIES, queries, COUNT, "requests", "query-only requests answered")                  \
	X(PC_REPEATS, repeats, COUNT, "requests",                                                  \
	  "repeated ROUTEs answered from the request's slot")                                      \
	X(PC_REJECTED, rejected, COUNT, "requests", "requests refused by the scheduler")           \
	X(PC_ROUTED, routed, COUNT, "requests", "requests booked at once")                         \
	X(PC_QUEUED, queued, COUNT, "requests", "requests that had to wait")                       \
	X(PC_ADMITTED, admitted, COUNT, "requests", "waiting requests booked")                     \
	X(PC_QUEUE_LEFT, queue_left, COUNT, "requests",                                            \
	  "waiting requests cancelled or out of time")                                             \
	X(PC_QUEUE_FAILED, queue_failed, COUNT, "requests",                                        \
	  "waiting requests refused on admission")                                                 \
	X(PC_WAITING, waiting, GAUGE, "requests", "requests waiting now")                          \
	X(PC_FINISHED, finished, COUNT, "requests", "bookings ended by the engine")                \
	X(PC_ERRORED, errored, COUNT, "requests",                                                  \
	  "bookings ended by an engine error, in its answer or without one")                       \
	X(PC_OVERLOADED, overloaded, COUNT, "requests",                                            \
	  "bookings ended by an engine that has no room")                                          \
	X(PC_CANCELLED, cancelled, COUNT, "requests",                                              \
	  "bookings cancelled by the client, or cut off when the router stops")                    \
	X(PC_REFUSED, refused, COUNT, "requests", "bookings refused by the worker")                \
	X(PC_LOST, lost, COUNT, "requests", "bookings lost with their worker")                     \
	X(PC_EXPIRED, expired, COUNT, "requests",                                                  \
	  "bookings ended by silence: released, or of a client that runs its request")             \
	X(PC_RELEASED, released, COUNT, "requests",                                                \
	  "of expired, those whose worker was silent; their requests went on")                     \
	X(PC_LIVE, live, GAUGE, "requests", "bookings now")                                        \
	X(PC_DISAGG, disagg, COUNT, "requests", "requests that began with a prefill leg")          \
	X(PC_BYPASSED, bypassed, COUNT, "requests", "requests that went past the prefill pool")    \
	X(PC_STARTED_OVER, started_over, COUNT, "requests",                                        \
	  "new tries after a failed prefill leg, or as a worker was silent")                       \
	X(PC_LEG_ROUTED, leg_routed, COUNT, "legs", "decode legs and new tries booked at once")    \
	X(PC_LEG_QUEUED, leg_queued, COUNT, "legs", "decode legs and new tries that had to wait")  \
	X(PC_LEG_REFUSED, leg_refused, COUNT, "legs",                                              \
	  "decode legs and new tries refused by the scheduler")                                    \
	X(PC_UNDECIDED, undecided, COUNT, "legs", "tries that ended before the decode leg's turn") \
	X(PC_PREFILLING, prefilling, GAUGE, "requests", "decode legs whose turn has not come")     \
	X(PC_STOPPED, stopped, COUNT, "legs", "decode bookings that ended with their prefill leg") \
	X(PC_UNHEARD, unheard, COUNT, "legs",                                                      \
	  "bookings taken from a worker that had not acknowledged DISPATCH in dispatch_ms")        \
	X(PC_CLIENT_GONE, client_gone, COUNT, "requests",                                          \
	  "requests that no worker had, or that were booked only, when their client fell silent")  \
	X(PC_ALIVE, alive, COUNT, "reports", "requests that agents reported as alive")             \
	X(PC_ALIVE_UNKNOWN, alive_unknown, COUNT, "reports",                                       \
	  "of alive, those of no request that this worker has")                                    \
	X(PC_LATE, late, COUNT, "frames",                                                          \
	  "frames about requests that came again, or too late to matter")                          \
	X(PC_OUT_OF_TURN, out_of_turn, COUNT, "frames",                                            \
	  "frames that the state of their request does not allow, ignored")                        \
	X(PC_STRANGERS, strangers, COUNT, "frames",                                                \
	  "frames about a request or session from another address than its client's")              \
	X(PC_NOTES_LOST, notes_lost, COUNT, "frames",                                              \
	  "CANCEL, PROBE dropped on their way to the next pool, its ring was full")                \
	X(PC_RESULTS_WAIT, results_put_off, COUNT, "messages",                                     \
	  "transfer results for which there was no room, to be sent again")                        \
	X(PC_MADE_ROOM, made_room, COUNT, "requests",                                              \
	  "ended requests forgotten early, as their slot was needed")                              \
	X(PC_LOADS, loads, COUNT, "messages", "POTENTIAL_LOADS answered")                          \
	X(PC_BOOKED_ONLY, booked_only, COUNT, "legs",                                              \
	  "legs that were booked for a client that runs them itself")                              \
	X(PC_BY_CLIENTS, run_by_clients, GAUGE, "requests",                                        \
	  "requests that their clients run themselves (BOOK, the gateway's /pick), now")           \
	X(PC_DISPATCHES, dispatches, COUNT, "requests",                                            \
	  "DISPATCH messages sent, repeats included")                                              \
	X(PC_PREDICTED_TOKENS, predicted_cached, COUNT, "tokens",                                  \
	  "cached tokens predicted at routing")                                                    \
	X(PC_ACTUAL_TOKENS, actual_cached, COUNT, "tokens", "cached tokens found by the engines")  \
	X(PC_PROMPT_TOKENS, prompt, COUNT, "tokens", "prompt tokens of the legs that were sent")   \
	X(PC_HIT_TOKENS, achieved_cached, COUNT, "tokens",                                         \
	  "cached tokens predicted at the rank that was chosen")                                   \
	X(PC_ACHIEVABLE_TOKENS, achievable_cached, COUNT, "tokens",                                \
	  "the most that any eligible rank had of the same prompts")                               \
	X(PC_SHORT_MISSING, short_missing_events, COUNT, "tokens",                                 \
	  "predicted, not found: events of the rank were missing")                                 \
	X(PC_SHORT_EVICTED, short_evicted, COUNT, "tokens",                                        \
	  "predicted, not found: the rank removed blocks meanwhile")                               \
	X(PC_SHORT_NOTHING, short_nothing_shared, COUNT, "tokens",                                 \
	  "predicted, not found: nothing at all was, as with another salt, adapter or hash")       \
	X(PC_SHORT_ENGINE, short_engine, COUNT, "tokens",                                          \
	  "predicted, not found: the engine says otherwise")                                       \
	X(PC_BEYOND_TOKENS, beyond_prediction, COUNT, "tokens", "found, not predicted")            \
	X(PC_PREDICTIONS, predictions, COUNT, "requests", "decisions entered as predicted blocks") \
	X(PC_PREDICTIONS_LOST, predictions_lost, COUNT, "requests",                                \
	  "predictions dropped, no room")                                                          \
	X(PC_NO_BLOCKS, no_blocks, COUNT, "requests",                                              \
	  "ROUTE messages without the hash of a whole block")
enum pool_counter { POOL_COUNTER_LIST(KVR_COUNTER_ENUM) PC_COUNTERS };

#define SESSION_COUNTER_LIST(X)                                                                    \
	X(SC_OPENS, opens, COUNT, "sessions", "sessions that workers were asked to open")          \
	X(SC_OPENING, opening, GAUGE, "sessions", "opens not answered yet")                        \
	X(SC_BOUND, bound, COUNT, "sessions", "sessions opened and bound")                         \
	X(SC_OPEN_REFUSED, open_refused, COUNT, "sessions", "opens refused by the worker")         \
	X(SC_OPEN_UNANSWERED, open_unanswered, COUNT, "sessions", "opens without answer for 5 s")  \
	X(SC_OPEN_ENDED, open_ended, COUNT, "sessions",                                            \
	  "opens whose request ended before the answer")                                           \
	X(SC_AFFINITY_BOUND, affinity_bound, COUNT, "sessions",                                    \
	  "ids bound by their first success")                                                      \
	X(SC_RESTORED, restored, COUNT, "sessions", "bindings of a snapshot")                      \
	X(SC_REBOUND, rebound, COUNT, "sessions", "bindings that replaced one of the same id")     \
	X(SC_UNBOUND, unbound, COUNT, "sessions", "bindings closed or released by clients")        \
	X(SC_EXPIRED, expired, COUNT, "sessions", "bindings that were idle for too long")          \
	X(SC_INVALIDATED, invalidated, COUNT, "sessions", "affinities ended by a failure")         \
	X(SC_LIVE, live, GAUGE, "sessions", "bindings now")                                        \
	X(SC_CLOSES, closes, COUNT, "sessions", "sessions that workers were told to close")        \
	X(SC_CLOSED, closed, COUNT, "sessions", "closes answered")                                 \
	X(SC_CLOSE_UNANSWERED, close_unanswered, COUNT, "sessions",                                \
	  "closes without answer for 5 s")                                                         \
	X(SC_CLOSE_DROPPED, close_dropped, COUNT, "sessions", "closes given up for newer ones")    \
	X(SC_CLOSE_GONE, close_gone, COUNT, "sessions", "closes whose worker has left")            \
	X(SC_CLOSING, closing, GAUGE, "sessions", "closes not answered yet")
enum session_counter { SESSION_COUNTER_LIST(KVR_COUNTER_ENUM) SC_COUNTERS };

#define EVENT_COUNTER_LIST(X)                                                                      \
	X(EC_FRAMES, frames, COUNT, "frames", "KV_EVENTS frames that reached the event stage")     \
	X(EC_APPLIED, applied, COUNT, "frames", "frames applied, at least in part")                \
	X(EC_STALE, stale, COUNT, "frames", "frames of events applied before")                     \
	X(EC_GAPS, gaps, COUNT, "frames", "frames refused because earlier events are missing")     \
	X(EC_DUMPS, dumps, COUNT, "frames", "frames of dumps applied")                             \
	X(EC_UNKNOWN, unknown, COUNT, "frames",                                                    \
	  "frames of a worker or a life of it that the rank is not of any more")                   \
	X(EC_BUSY, busy, COUNT, "frames", "frames put off: the rank's old blocks are being freed") \
	X(EC_STORED_BLOCKS, stored, COUNT, "blocks", "blocks stored")                              \
	X(EC_REMOVED_BLOCKS, removed, COUNT, "blocks", "blocks removed")                           \
	X(EC_CLEARS, clears, COUNT, "events", "ranks cleared by events")
enum event_counter { EVENT_COUNTER_LIST(KVR_COUNTER_ENUM) EC_COUNTERS };

#define LOG_COUNTER_LIST(X)                                                                        \
	X(LOG_LINES, lines, COUNT, "lines", "lines taken by the log")                              \
	X(LOG_DROPPED, dropped, COUNT, "lines", "lines for which there was no room")               \
	X(LOG_LIMITED, limited, COUNT, "lines",                                                    \
	  "lines left out by the limit of their worker, or of all")
enum log_counter { LOG_COUNTER_LIST(KVR_COUNTER_ENUM) LOG_COUNTERS };

#define LCORE_COUNTER_LIST(X)                                                                      \
	X(LC_MAX_TURN, max_turn_cycles, GAUGE, "cycles",                                           \
	  "longest time from the beginning of a turn to the next one's, sleep left out")           \
	X(LC_CALLS, calls, COUNT, "calls", "functions of control and telemetry run, or parts")     \
	X(LC_CALL_CYCLES, call_cycles, COUNT, "cycles", "time of those")                           \
	X(LC_SLEEPS, sleeps, COUNT, "sleeps", "times it had nothing to do and slept: idle")
enum lcore_counter { LCORE_COUNTER_LIST(KVR_COUNTER_ENUM) LC_COUNTERS };

#define STAGE_COUNTER_LIST(X)                                                                      \
	X(WC_ITEMS, items, COUNT, "items", "items handled")                                        \
	X(WC_BURSTS, bursts, COUNT, "bursts", "polls that found work")                             \
	X(WC_CYCLES, cycles, COUNT, "cycles", "time of those")                                     \
	X(WC_MAX_DEPTH, max_ring_depth, GAUGE, "items", "most ring entries seen by one poll")      \
	X(WC_MAX_CYCLES, max_cycles, GAUGE, "cycles", "longest poll")
enum stage_counter { STAGE_COUNTER_LIST(KVR_COUNTER_ENUM) WC_COUNTERS };

extern const struct kvr_stats_def router_in_stats;
extern const struct kvr_stats_def router_pool_stats;
extern const struct kvr_stats_def router_event_stats;
extern const struct kvr_stats_def router_session_stats;
extern const struct kvr_stats_def router_log_stats;
extern const struct kvr_stats_def router_lcore_stats;
extern const struct kvr_stats_def router_stage_stats;
/** One counter for each enum kvr_code. */
const struct kvr_stats_def *router_reject_stats(void);

#endif
