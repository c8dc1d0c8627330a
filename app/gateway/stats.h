/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_STATS_H
#define GW_STATS_H

/**
 * @file
 * Counters of the gateway: one row per thread, written by that thread only, and summed for
 * /metrics. Every accepted request ends in exactly one of answered, failed, refused and gone, as
 * the equations state.
 */

#include "kvr_metrics.h"

/* clang-format off */
#define GW_COUNTER_LIST(X) \
	X(GW_CONNECTIONS, connections, COUNT, "connections", "connections accepted") \
	X(GW_CONNECTIONS_OPEN, connections_open, GAUGE, "connections", "open connections") \
	X(GW_CONNECTIONS_REFUSED, connections_refused, COUNT, "connections", "connections closed at once, above the limit") \
	X(GW_CONNECTIONS_TRADED, connections_traded, COUNT, "connections", "connections closed between two requests, at the limit, for new ones") \
	X(GW_CONNECTIONS_UNWATCHED, connections_unwatched, COUNT, "connections", "connections closed at once: the kernel rejected them for epoll (raise fs.epoll.max_user_watches)") \
	X(GW_SOURCE_CONNECTIONS, source_connections, COUNT, "connections", "connections closed at once: limit of their address") \
	X(GW_SOURCE_REQUESTS, source_requests, COUNT, "requests", "requests answered 429: rate limit of their address") \
	X(GW_REQUESTS, requests, COUNT, "requests", "requests for an engine or a choice") \
	X(GW_IN_FLIGHT, in_flight, GAUGE, "requests", "of these, still active") \
	X(GW_ANSWERED, answered, COUNT, "requests", "ended with the complete answer of the engine, or a choice") \
	X(GW_FAILED, failed, COUNT, "requests", "ended by a failure of engine, router or network") \
	X(GW_REFUSED, refused, COUNT, "requests", "rejected by gateway or router with a 4xx status") \
	X(GW_GONE, gone, COUNT, "requests", "ended because the client closed the connection") \
	X(GW_STREAMS, streams, COUNT, "requests", "answered as an event stream") \
	X(GW_BAD_JSON, bad_json, COUNT, "requests", "rejected: the body is not JSON, or a field has the wrong type") \
	X(GW_TOO_LARGE, too_large, COUNT, "requests", "rejected: body, prompt or message too large") \
	X(GW_OVERLOADED, overloaded, COUNT, "requests", "rejected: limit of active requests") \
	X(GW_NO_ROOM, no_room, COUNT, "requests", "rejected or cut off: memory limit of requests and answers") \
	X(GW_SOURCE_ROOM, source_room, COUNT, "requests", "rejected or cut off: memory limit of their address") \
	X(GW_BODIES_CUT, bodies_cut, COUNT, "bodies", "connections or streams closed while receiving a body: memory limit of all bodies, or of their address") \
	X(GW_RESTS, rests, COUNT, "times", "pauses of accepting because no descriptors were left") \
	X(GW_HTTP_ERRORS, http_errors, COUNT, "answers", "answers to invalid HTTP requests, and to bodies announced as too large") \
	X(GW_SLOW_READERS, slow_readers, COUNT, "requests", "cut off: the client did not read, and the buffer was full") \
	X(GW_SLOW_REQUESTS, slow_requests, COUNT, "requests", "answered 408: not complete within --header-ms, and too slow") \
	X(GW_STALLED, stalled, COUNT, "requests", "HTTP/2 streams reset because the client read nothing of the answer for --idle-ms") \
	X(GW_RESET_FLOODS, reset_floods, COUNT, "connections", "HTTP/2 connections closed because the client reset too many requests within a second") \
	X(GW_BAD_ANSWERS, bad_answers, COUNT, "requests", "the engine's answer was not an HTTP response, or cannot be forwarded") \
	X(GW_SPLIT_STREAMS, split_streams, COUNT, "requests", "streams that ended early, with an error event for the client") \
	X(GW_RESUBMITTED, resubmitted, COUNT, "requests", "sent to another router, or again after the router lost it, or after its rank failed or was lost") \
	X(GW_RETRIES, retries, COUNT, "requests", "of these, moved from a rank that failed or rejected them") \
	X(GW_RETRIES_DENIED, retries_denied, COUNT, "requests", "not retried: retries reached a fifth of all requests") \
	X(GW_ROUTED_BY_LOAD, routed_by_load, COUNT, "requests", "sent without token ids, so that only load decided") \
	X(GW_TOKENIZED, tokenized, COUNT, "prompts", "questions answered by the tokenizer: prompts, and parts of conversations") \
	X(GW_TOKENIZE_CACHED, tokenize_cached, COUNT, "prompts", "questions whose token ids were cached") \
	X(GW_TOKENIZE_FAILED, tokenize_failed, COUNT, "prompts", "questions not answered by the tokenizer, or not correctly, or too late") \
	X(GW_TURNS, turns, COUNT, "prompts", "turns of conversations whose token ids come from the previous turn and the new part") \
	X(GW_TURNS_RIGHT, turns_right, COUNT, "prompts", "turns also tokenised as a whole, with equal result") \
	X(GW_TURNS_WRONG, turns_wrong, COUNT, "prompts", "turns also tokenised as a whole, with another result; for ten minutes those of their model and address are tokenised as a whole only") \
	X(GW_PICKED, picked, COUNT, "requests", "bookings for callers that contact the engine directly") \
	X(GW_LEASES, leases, GAUGE, "bookings", "of these, still active") \
	X(GW_LEASE_CALLS, lease_calls, COUNT, "calls", "reports about them: first token, progress, end") \
	X(GW_LEASES_OVER, leases_over, COUNT, "bookings", "released because they were not renewed within their lease") \
	X(GW_LEASES_LOST, leases_lost, COUNT, "bookings", "ended or lost by the router") \
	X(GW_ITEMS, items, COUNT, "items", "items received from routers") \
	X(GW_BYTES_IN, bytes_in, COUNT, "bytes", "bodies of requests") \
	X(GW_BYTES_OUT, bytes_out, COUNT, "bytes", "bodies of answers from engines") \
	X(GW_ROUTERS_UP, routers_up, GAUGE, "routers", "routers that answer, summed over threads") \
	X(GW_THREADS_READY, threads_ready, GAUGE, "threads", "threads with a router that answers and serves a model") \
	X(GW_ROUTERS_LOST, routers_lost, COUNT, "routers", "times a router stopped answering")
/* clang-format on */

enum gw_counter { GW_COUNTER_LIST(KVR_COUNTER_ENUM) GW_N_COUNTERS };

extern const struct kvr_stats_def gw_stats;
extern const struct kvr_family gw_families[];

#endif
