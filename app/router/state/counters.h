/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_COUNTERS_H
#define ROUTER_COUNTERS_H

/**
 * @file
 * Counters of the router. Each list makes an enum and the rows of its table. counters.c has the
 * equations between them: each equation holds for each row between two turns of its writer
 * (balance.h).
 *
 *   ingress   every datagram for the router, one row per polling lcore; counters after `ring_full`
 *             are not part of the sum
 *   pool      every ROUTE message that reached a pool's scheduler, every leg, every booking
 *   session   every open of a session, every binding, every SESSION_CLOSE of a pool
 *   event     every KV_EVENTS frame that reached a pool's event stage
 *   log, lcore, stage   log lines, turns of each polling lcore, work of its stages
 *   reject    every rejection by its code
 */

#include "kvr_stats.h"
#include "kvr_wire.h"

#define INGRESS_COUNTER_LIST(X)                                                                    \
	X(IN_FRAMES, frames, COUNT, "frames", "datagrams for the router")                          \
	X(IN_ROUTES, routes, COUNT, "frames", "ROUTE messages of one frame passed to a scheduler") \
	X(IN_FRAGMENTS, fragments, COUNT, "frames", "fragments passed to reassembly")              \
	X(IN_RELAYED, relayed, COUNT, "frames", "RESPONSE and RESPONSE_ACK frames relayed")        \
	X(IN_REQUEST_FRAMES, request_frames, COUNT, "frames",                                      \
	  "other frames about requests passed to a scheduler")                                     \
	X(IN_EVENTS, events, COUNT, "frames",                                                      \
	  "KV_EVENTS frames passed to an event stage, or deferred")                                \
	X(IN_CONTROL, control, COUNT, "frames", "frames passed to the control thread")             \
	X(IN_HEARTBEATS, heartbeats, COUNT, "frames", "HEARTBEAT frames answered")                 \
	X(IN_REJECTED, rejected, COUNT, "frames", "frames rejected; table reject has the codes")   \
	X(IN_DROPPED, dropped, COUNT, "frames", "frames dropped without an answer")                \
	X(IN_SHORT_FRAME, short_frame, COUNT, "frames", "dropped: shorter than a header")          \
	X(IN_BAD_MAGIC, bad_magic, COUNT, "frames", "dropped: not a kvroute header")               \
	X(IN_UNKNOWN_REQUEST, unknown_request, COUNT, "frames", "dropped: the request has ended")  \
	X(IN_PREMATURE_ACK, premature_ack, COUNT, "frames",                                        \
	  "dropped: acknowledges an item that the router has not relayed")                         \
	X(IN_RATE_LIMITED, rate_limited, COUNT, "frames",                                          \
	  "dropped: CONNECT or HELLO above the rate limit of its source")                          \
	X(IN_EVENT_QUOTA, event_quota, COUNT, "frames",                                            \
	  "dropped: KV events above the quota of their source")                                    \
	X(IN_RING_FULL, ring_full, COUNT, "frames",                                                \
	  "dropped: mailbox full or overload; the sender retransmits")                             \
	X(IN_UNKNOWN_RANK, unknown_rank, COUNT, "frames",                                          \
	  "HEARTBEAT and KV_EVENTS frames with a rank that is not in HELLO")                       \
	X(IN_STALE_EPOCH, stale_epoch, COUNT, "frames",                                            \
	  "HEARTBEAT and KV_EVENTS frames of an earlier epoch of their worker")                    \
	X(IN_FORWARDED, fragments_forwarded, COUNT, "frames",                                      \
	  "fragments forwarded to the ingress lcore of their message")                             \
	X(IN_REASSEMBLED, reassembled, COUNT, "messages", "ROUTE messages reassembled")            \
	X(IN_REASM_DROPPED, reassembly_dropped, COUNT, "frames",                                   \
	  "fragments of incomplete messages dropped")                                              \
	X(IN_REASM_EVICTED, reassembly_evicted, COUNT, "messages",                                 \
	  "oldest incomplete messages dropped to free memory")                                     \
	X(IN_MISSING_SENT, missing_sent, COUNT, "frames",                                          \
	  "MISSING frames sent: requests for lost fragments")                                      \
	X(IN_REJECTION_SUPPRESSED, rejection_suppressed, COUNT, "frames",                          \
	  "rejections not sent: address not validated, or above the rate limit")                   \
	X(IN_NO_MBUF, no_mbuf, COUNT, "frames", "answers not sent: no packet buffer")              \
	X(IN_EGRESS_FULL, egress_full, COUNT, "frames",                                            \
	  "frames of other lcores not sent: egress ring full")                                     \
	X(IN_REFRAGMENTED, refragmented, COUNT, "messages",                                        \
	  "messages fragmented again for a path with a smaller MTU")                               \
	X(IN_UNSENDABLE, unsendable, COUNT, "messages",                                            \
	  "messages not sent: the MTU of their path is too small")
enum in_counter { INGRESS_COUNTER_LIST(KVR_COUNTER_ENUM) IN_COUNTERS };

#define POOL_COUNTER_LIST(X)                                                                           \
	X(PC_ROUTES, routes, COUNT, "requests", "ROUTE messages that reached the scheduler")           \
	X(PC_PROBES, health_probes, COUNT, "messages",                                                 \
	  "ROUTE messages of health probes; no other counter includes them")                           \
	X(PC_QUERIES, queries, COUNT, "requests", "query-only requests answered")                      \
	X(PC_DUPLICATES, duplicates, COUNT, "requests",                                                \
	  "ROUTE messages of a request that is known already")                                         \
	X(PC_REJECTED, rejected, COUNT, "requests", "requests rejected by the scheduler")              \
	X(PC_ROUTED, routed, COUNT, "requests", "requests booked without waiting")                     \
	X(PC_QUEUED, queued, COUNT, "requests", "requests queued")                                     \
	X(PC_ADMITTED, admitted, COUNT, "requests", "queued requests booked")                          \
	X(PC_QUEUE_ABANDONED, queue_abandoned, COUNT, "requests",                                      \
	  "queued requests cancelled or past their deadline")                                          \
	X(PC_ADMISSION_REJECTED, admission_rejected, COUNT, "requests",                                \
	  "queued requests rejected on admission")                                                     \
	X(PC_WAITING, waiting, GAUGE, "requests", "requests in the queue")                             \
	X(PC_FINISHED, finished, COUNT, "requests", "bookings ended by the engine's last item")        \
	X(PC_ERRORED, errored, COUNT, "requests",                                                      \
	  "bookings ended by an engine error, with or without an answer")                              \
	X(PC_OVERLOADED, overloaded, COUNT, "requests", "bookings ended by an overloaded engine")      \
	X(PC_CANCELLED, cancelled, COUNT, "requests",                                                  \
	  "bookings cancelled by the client or by the router's stop")                                  \
	X(PC_WORKER_REJECTED, worker_rejected, COUNT, "requests",                                      \
	  "bookings rejected by the worker")                                                           \
	X(PC_LOST, lost, COUNT, "requests", "bookings lost with their worker")                         \
	X(PC_EXPIRED, expired, COUNT, "requests",                                                      \
	  "bookings ended by silence: released, or of a client that was lost")                         \
	X(PC_RELEASED, released, COUNT, "requests",                                                    \
	  "expired bookings whose worker was silent; their requests went on")                          \
	X(PC_LIVE, live, GAUGE, "requests", "bookings in progress")                                    \
	X(PC_DISAGG, disagg, COUNT, "requests", "requests that began with a prefill leg")              \
	X(PC_BYPASSED, bypassed, COUNT, "requests", "requests that bypassed the prefill pool")         \
	X(PC_RETRIES, retries, COUNT, "requests",                                                      \
	  "new attempts after a failed prefill leg or an unresponsive worker")                         \
	X(PC_LEG_ROUTED, leg_routed, COUNT, "legs",                                                    \
	  "decode legs and retries booked without waiting")                                            \
	X(PC_LEG_QUEUED, leg_queued, COUNT, "legs", "decode legs and retries queued")                  \
	X(PC_LEG_REJECTED, leg_rejected, COUNT, "legs",                                                \
	  "decode legs and retries rejected by the scheduler")                                         \
	X(PC_LEG_ABANDONED, leg_abandoned, COUNT, "legs",                                              \
	  "attempts that ended before their decode leg was scheduled")                                 \
	X(PC_LEGS_PENDING, legs_pending, GAUGE, "requests",                                            \
	  "decode legs that are not scheduled yet")                                                    \
	X(PC_STOPPED, stopped, COUNT, "legs", "decode bookings that ended with their prefill leg")     \
	X(PC_UNACKNOWLEDGED, unacknowledged, COUNT, "legs",                                            \
	  "bookings moved to another worker: DISPATCH was not acknowledged within dispatch_ms")        \
	X(PC_CLIENT_GONE, client_gone, COUNT, "requests",                                              \
	  "requests without a DISPATCH that ended because their client was lost")                      \
	X(PC_ALIVE, alive, COUNT, "reports", "requests that agents reported as alive")                 \
	X(PC_ALIVE_UNKNOWN, alive_unknown, COUNT, "reports",                                           \
	  "requests reported as alive that the worker does not have")                                  \
	X(PC_LATE_FRAMES, late_frame, COUNT, "frames",                                                 \
	  "frames ignored: repeated, or too late to have an effect")                                   \
	X(PC_UNEXPECTED_STATE, unexpected_state, COUNT, "frames",                                      \
	  "frames ignored: not allowed in the state of their request")                                 \
	X(PC_WRONG_CLIENT_ADDRESS, wrong_client_address, COUNT, "frames",                              \
	  "frames ignored: not from the address of the client of their request or session")            \
	X(PC_MAILBOX_FULL, mailbox_full, COUNT, "frames",                                              \
	  "CANCEL and PROBE frames dropped: mailbox of the next pool full")                            \
	X(PC_RESULTS_DEFERRED, results_deferred, COUNT, "messages",                                    \
	  "transfer results deferred: no free job; the agent retransmits")                             \
	X(PC_SLOTS_RECLAIMED, slots_reclaimed, COUNT, "requests",                                      \
	  "slots of ended requests reclaimed early for new requests")                                  \
	X(PC_LOAD_QUERIES, load_queries, COUNT, "messages", "POTENTIAL_LOADS queries answered")        \
	X(PC_CLIENT_BOOKINGS, client_bookings, COUNT, "legs",                                          \
	  "legs booked for a client that contacts the engine itself")                                  \
	X(PC_CLIENT_BOOKINGS_LIVE, client_bookings_live, GAUGE, "requests",                            \
	  "bookings in progress of clients that contact the engine themselves (BOOK, /pick)")          \
	X(PC_DISPATCHES, dispatches, COUNT, "requests",                                                \
	  "DISPATCH messages sent, retransmissions included")                                          \
	X(PC_PREDICTED_TOKENS, predicted_cached, COUNT, "tokens",                                      \
	  "cached tokens predicted, of legs with a report of their engine")                            \
	X(PC_ACTUAL_TOKENS, actual_cached, COUNT, "tokens",                                            \
	  "cached tokens reported by the engines")                                                     \
	X(PC_PROMPT_TOKENS, prompt, COUNT, "tokens", "prompt tokens of the legs dispatched")           \
	X(PC_HIT_TOKENS, achieved_cached, COUNT, "tokens",                                             \
	  "prompt tokens predicted to be cached at the chosen rank")                                   \
	X(PC_ACHIEVABLE_TOKENS, achievable_cached, COUNT, "tokens",                                    \
	  "prompt tokens predicted to be cached at the eligible rank with the largest overlap")        \
	X(PC_SHORT_MISSING, short_missing_events, COUNT, "tokens",                                     \
	  "predicted but not found: KV events of the rank were missing")                               \
	X(PC_SHORT_EVICTED, short_evicted, COUNT, "tokens",                                            \
	  "predicted but not found: the rank evicted blocks in the meantime")                          \
	X(PC_SHORT_NOTHING, short_nothing_shared, COUNT, "tokens",                                     \
	  "predicted but not found: the engine found none, as with a different salt, adapter or hash") \
	X(PC_SHORT_ENGINE, short_engine, COUNT, "tokens",                                              \
	  "predicted but not found: no other reason known")                                            \
	X(PC_BEYOND_TOKENS, beyond_prediction, COUNT, "tokens", "found but not predicted")             \
	X(PC_PREDICTIONS, predictions, COUNT, "requests",                                              \
	  "decisions recorded as predicted blocks")                                                    \
	X(PC_PREDICTIONS_DROPPED, predictions_dropped, COUNT, "requests",                              \
	  "decisions not recorded as predicted blocks: ring full")                                     \
	X(PC_NO_BLOCKS, no_blocks, COUNT, "requests", "ROUTE messages without a block hash")
enum pool_counter { POOL_COUNTER_LIST(KVR_COUNTER_ENUM) PC_COUNTERS };

#define SESSION_COUNTER_LIST(X)                                                                    \
	X(SC_OPENS, opens, COUNT, "sessions", "SESSION_OPEN requests to workers")                  \
	X(SC_OPENING, opening, GAUGE, "sessions", "opens that are not answered yet")               \
	X(SC_BOUND, bound, COUNT, "sessions", "sessions opened and bound")                         \
	X(SC_OPEN_REJECTED, open_rejected, COUNT, "sessions", "opens rejected by the worker")      \
	X(SC_OPEN_UNANSWERED, open_unanswered, COUNT, "sessions", "opens not answered within 5 s") \
	X(SC_OPEN_ENDED, open_ended, COUNT, "sessions",                                            \
	  "opens whose request ended before the answer")                                           \
	X(SC_AFFINITY_BOUND, affinity_bound, COUNT, "sessions",                                    \
	  "affinities bound by the first success of their session")                                \
	X(SC_RESTORED, restored, COUNT, "sessions", "bindings restored from a snapshot")           \
	X(SC_REBOUND, rebound, COUNT, "sessions",                                                  \
	  "bindings replaced by another one of the same id")                                       \
	X(SC_UNBOUND, unbound, COUNT, "sessions", "bindings closed or released by clients")        \
	X(SC_EXPIRED, expired, COUNT, "sessions", "bindings that reached their idle timeout")      \
	X(SC_INVALIDATED, invalidated, COUNT, "sessions", "affinities ended by a failure")         \
	X(SC_LIVE, live, GAUGE, "sessions", "current bindings")                                    \
	X(SC_CLOSES, closes, COUNT, "sessions", "SESSION_CLOSE requests to workers")               \
	X(SC_CLOSED, closed, COUNT, "sessions", "closes answered")                                 \
	X(SC_CLOSE_UNANSWERED, close_unanswered, COUNT, "sessions",                                \
	  "closes not answered within 5 s")                                                        \
	X(SC_CLOSE_DROPPED, close_dropped, COUNT, "sessions",                                      \
	  "closes dropped in favour of newer ones")                                                \
	X(SC_CLOSE_WORKER_GONE, close_worker_gone, COUNT, "sessions",                              \
	  "closes whose worker has left")                                                          \
	X(SC_CLOSING, closing, GAUGE, "sessions", "closes that are not answered yet")
enum session_counter { SESSION_COUNTER_LIST(KVR_COUNTER_ENUM) SC_COUNTERS };

#define EVENT_COUNTER_LIST(X)                                                                      \
	X(EC_FRAMES, frames, COUNT, "frames", "KV_EVENTS frames that reached the event stage")     \
	X(EC_APPLIED, applied, COUNT, "frames", "frames applied, at least in part")                \
	X(EC_ALREADY_APPLIED, already_applied, COUNT, "frames",                                    \
	  "frames of events that are applied already")                                             \
	X(EC_GAPS, gaps, COUNT, "frames", "frames rejected because earlier events are missing")    \
	X(EC_DUMPS, dumps, COUNT, "frames", "frames of dumps applied")                             \
	X(EC_STALE_EPOCH, stale_epoch, COUNT, "frames",                                            \
	  "frames of a worker or epoch that no longer owns the rank")                              \
	X(EC_DEFERRED, deferred, COUNT, "frames",                                                  \
	  "frames deferred while the rank's old blocks are freed")                                 \
	X(EC_STORED_BLOCKS, stored, COUNT, "blocks", "blocks stored")                              \
	X(EC_REMOVED_BLOCKS, removed, COUNT, "blocks", "blocks removed")                           \
	X(EC_CLEARS, clears, COUNT, "events", "events that cleared a rank")
enum event_counter { EVENT_COUNTER_LIST(KVR_COUNTER_ENUM) EC_COUNTERS };

#define LOG_COUNTER_LIST(X)                                                                        \
	X(LOG_LINES, lines, COUNT, "lines", "lines accepted by the log")                           \
	X(LOG_BUFFER_FULL, buffer_full, COUNT, "lines", "lines dropped: log buffer full")          \
	X(LOG_RATE_LIMITED, rate_limited, COUNT, "lines",                                          \
	  "lines dropped: above the rate limit of their worker or of all")
enum log_counter { LOG_COUNTER_LIST(KVR_COUNTER_ENUM) LOG_COUNTERS };

#define LCORE_COUNTER_LIST(X)                                                                      \
	X(LC_MAX_TURN, max_turn_cycles, GAUGE, "cycles",                                           \
	  "longest time between the starts of two turns, without sleep")                           \
	X(LC_CALLS, calls, COUNT, "calls",                                                         \
	  "functions of control and telemetry run, in whole or in part")                           \
	X(LC_CALL_CYCLES, call_cycles, COUNT, "cycles", "time spent in these functions")           \
	X(LC_SLEEPS, sleeps, COUNT, "sleeps", "sleeps of an idle lcore")
enum lcore_counter { LCORE_COUNTER_LIST(KVR_COUNTER_ENUM) LC_COUNTERS };

#define STAGE_COUNTER_LIST(X)                                                                      \
	X(WC_ITEMS, items, COUNT, "items", "items handled")                                        \
	X(WC_BURSTS, bursts, COUNT, "bursts", "polls that found items")                            \
	X(WC_CYCLES, cycles, COUNT, "cycles", "time of these polls")                               \
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
/** One counter per enum kvr_code. */
const struct kvr_stats_def *router_reject_stats(void);

#endif
