/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_STATS_H
#define GW_STATS_H

/**
 * @file
 * What the gateway counts: one row for each thread, written by that thread alone, summed by
 * whoever serves /metrics. Every request that is taken ends in exactly one of answered, failed,
 * refused and gone; the equations say so.
 */

#include "kvr_metrics.h"

/* clang-format off */
#define GW_COUNTER_LIST(X) \
	X(GW_CONNECTIONS, connections, COUNT, "connections", "connections accepted") \
	X(GW_CONNECTIONS_OPEN, connections_open, GAUGE, "connections", "connections that are open") \
	X(GW_CONNECTIONS_REFUSED, connections_refused, COUNT, "connections", "connections closed at once, above the limit") \
	X(GW_CONNECTIONS_TRADED, connections_traded, COUNT, "connections", "connections closed between two requests, at the limit, for new ones") \
	X(GW_CONNECTIONS_UNWATCHED, connections_unwatched, COUNT, "connections", "connections closed at once: the kernel does not watch them (fs.epoll.max_user_watches)") \
	X(GW_SOURCE_CONNECTIONS, source_connections, COUNT, "connections", "connections closed at once: their address has its share") \
	X(GW_SOURCE_REQUESTS, source_requests, COUNT, "requests", "requests answered 429: their address has its share of this second") \
	X(GW_REQUESTS, requests, COUNT, "requests", "requests for an engine or a choice") \
	X(GW_IN_FLIGHT, in_flight, GAUGE, "requests", "of these, not ended yet") \
	X(GW_ANSWERED, answered, COUNT, "requests", "ended with the engine's whole answer, or a choice") \
	X(GW_FAILED, failed, COUNT, "requests", "ended when engine, router or the way to them failed") \
	X(GW_REFUSED, refused, COUNT, "requests", "refused by the gateway, or by the router with a 4xx status") \
	X(GW_GONE, gone, COUNT, "requests", "ended because the client went away") \
	X(GW_STREAMS, streams, COUNT, "requests", "answered as a stream of events") \
	X(GW_BAD_JSON, bad_json, COUNT, "requests", "refused: the body is no JSON, or a field has the wrong type") \
	X(GW_TOO_LARGE, too_large, COUNT, "requests", "refused: body, prompt or message too large") \
	X(GW_OVERLOADED, overloaded, COUNT, "requests", "refused: requests in flight are at their limit") \
	X(GW_NO_ROOM, no_room, COUNT, "requests", "refused or cut off: all that waits here is at its limit of bytes") \
	X(GW_SOURCE_ROOM, source_room, COUNT, "requests", "refused or cut off: what waits here of their address is at its share of bytes") \
	X(GW_BODIES_CUT, bodies_cut, COUNT, "bodies", "connections or streams closed while their body came in: those of all, or of their address, were at their limit of bytes") \
	X(GW_RESTS, rests, COUNT, "times", "no connection was accepted for a while: no descriptors were left") \
	X(GW_HTTP_ERRORS, http_errors, COUNT, "answers", "answers to what was no legal request of HTTP, or announced too large a body") \
	X(GW_SLOW_READERS, slow_readers, COUNT, "requests", "cut off: the client did not read, and the buffer was full") \
	X(GW_SLOW_REQUESTS, slow_requests, COUNT, "requests", "answered 408: they did not come in whole in --header-ms, nor fast enough") \
	X(GW_STALLED, stalled, COUNT, "requests", "their HTTP/2 stream was reset: for --idle-ms the client took nothing of the answer") \
	X(GW_RESET_FLOODS, reset_floods, COUNT, "connections", "HTTP/2 connections closed: the client opened requests and reset them at once, too many in a second") \
	X(GW_BAD_ANSWERS, bad_answers, COUNT, "requests", "the engine's answer was no HTTP response, or none that can be passed on") \
	X(GW_SPLIT_STREAMS, split_streams, COUNT, "requests", "streams that broke off; the client got an event that says so") \
	X(GW_RESUBMITTED, resubmitted, COUNT, "requests", "sent to another router, or again: the router had lost it, or its rank had failed it or gone") \
	X(GW_RETRIES, retries, COUNT, "requests", "of these, sent away from a rank that had failed or refused them") \
	X(GW_RETRIES_DENIED, retries_denied, COUNT, "requests", "not sent again: retries were a fifth of all requests") \
	X(GW_ROUTED_BY_LOAD, routed_by_load, COUNT, "requests", "sent without token ids: only load decided") \
	X(GW_TOKENIZED, tokenized, COUNT, "prompts", "questions that the tokenizer has answered: prompts, and parts of conversations") \
	X(GW_TOKENIZE_CACHED, tokenize_cached, COUNT, "prompts", "questions whose token ids were cached") \
	X(GW_TOKENIZE_FAILED, tokenize_failed, COUNT, "prompts", "questions that the tokenizer has not answered, or wrongly, or too late") \
	X(GW_TURNS, turns, COUNT, "prompts", "turns of conversations whose token ids come from the turn before and the new part") \
	X(GW_TURNS_RIGHT, turns_right, COUNT, "prompts", "turns asked whole too, and the same") \
	X(GW_TURNS_WRONG, turns_wrong, COUNT, "prompts", "turns asked whole too, and not the same: for ten minutes those of their model and address are asked whole only") \
	X(GW_PICKED, picked, COUNT, "requests", "booked for callers that go to the engine themselves") \
	X(GW_LEASES, leases, GAUGE, "bookings", "of these, not ended yet") \
	X(GW_LEASE_CALLS, lease_calls, COUNT, "calls", "about them: first token, progress, end") \
	X(GW_LEASES_OVER, leases_over, COUNT, "bookings", "freed because nobody spoke of them for their lease") \
	X(GW_LEASES_LOST, leases_lost, COUNT, "bookings", "that the router has ended, or lost") \
	X(GW_ITEMS, items, COUNT, "items", "items received from routers") \
	X(GW_BYTES_IN, bytes_in, COUNT, "bytes", "bodies of requests") \
	X(GW_BYTES_OUT, bytes_out, COUNT, "bytes", "bodies of answers that came from engines") \
	X(GW_ROUTERS_UP, routers_up, GAUGE, "routers", "routers that answer, summed over threads") \
	X(GW_THREADS_READY, threads_ready, GAUGE, "threads", "threads that a router answers which serves a model") \
	X(GW_ROUTERS_LOST, routers_lost, COUNT, "routers", "times a router stopped answering")
/* clang-format on */

enum gw_counter { GW_COUNTER_LIST(KVR_COUNTER_ENUM) GW_N_COUNTERS };

extern const struct kvr_stats_def gw_stats;
extern const struct kvr_family gw_families[];

#endif
