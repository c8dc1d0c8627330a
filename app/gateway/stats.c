/* SPDX-License-Identifier: BSD-3-Clause */
/* Definition of the counters, their families and equations. */
#include "stats.h"

static const struct kvr_counter rows[] = {GW_COUNTER_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END};

static const struct kvr_equation equations[] = {
	{KVR_TERMS(GW_REQUESTS),
	 KVR_TERMS(GW_IN_FLIGHT, GW_ANSWERED, GW_FAILED, GW_REFUSED, GW_GONE)},
	{0},
};

const struct kvr_stats_def gw_stats = {"gateway", rows, equations};

const struct kvr_family gw_families[] = {
	KVR_METRIC("kvr_gateway_connections_total", GW_CONNECTIONS),
	KVR_METRIC("kvr_gateway_connections_open", GW_CONNECTIONS_OPEN),
	KVR_FAMILY("kvr_gateway_connections_closed_total", "reason",
		   "Connections closed by the gateway, by reason",
		   {GW_CONNECTIONS_REFUSED, "limit"}, {GW_CONNECTIONS_TRADED, "idle"},
		   {GW_CONNECTIONS_UNWATCHED, "unwatched"},
		   {GW_SOURCE_CONNECTIONS, "source_limit"}),
	KVR_METRIC("kvr_gateway_requests_started_total", GW_REQUESTS),
	KVR_METRIC("kvr_gateway_requests_in_flight", GW_IN_FLIGHT),
	KVR_FAMILY("kvr_gateway_requests_total", "outcome", "Requests that ended, by outcome",
		   {GW_ANSWERED, "answered"}, {GW_FAILED, "failed"}, {GW_REFUSED, "rejected"},
		   {GW_GONE, "client_gone"}),
	KVR_FAMILY("kvr_gateway_rejections_total", "reason",
		   "Requests rejected or cut off by the gateway, by reason",
		   {GW_BAD_JSON, "bad_json"}, {GW_TOO_LARGE, "too_large"},
		   {GW_OVERLOADED, "overloaded"}, {GW_NO_ROOM, "buffer_limit"},
		   {GW_SOURCE_ROOM, "source_buffer_limit"}, {GW_SOURCE_REQUESTS, "source_rate"}),
	KVR_FAMILY("kvr_gateway_requests_cut_total", "reason",
		   "Requests cut off because of a slow client, by reason",
		   {GW_SLOW_READERS, "slow_reader"}, {GW_SLOW_REQUESTS, "slow_request"},
		   {GW_STALLED, "stalled"}),
	KVR_METRIC("kvr_gateway_streams_total", GW_STREAMS),
	KVR_METRIC("kvr_gateway_streams_broken_total", GW_SPLIT_STREAMS),
	KVR_METRIC("kvr_gateway_bodies_cut_total", GW_BODIES_CUT),
	KVR_METRIC("kvr_gateway_accept_pauses_total", GW_RESTS),
	KVR_METRIC("kvr_gateway_http_errors_total", GW_HTTP_ERRORS),
	KVR_METRIC("kvr_gateway_reset_floods_total", GW_RESET_FLOODS),
	KVR_METRIC("kvr_gateway_bad_answers_total", GW_BAD_ANSWERS),
	KVR_METRIC("kvr_gateway_resubmitted_total", GW_RESUBMITTED),
	KVR_METRIC("kvr_gateway_retries_total", GW_RETRIES),
	KVR_METRIC("kvr_gateway_retries_denied_total", GW_RETRIES_DENIED),
	KVR_METRIC("kvr_gateway_routed_by_load_total", GW_ROUTED_BY_LOAD),
	KVR_FAMILY("kvr_gateway_tokenizer_queries_total", "result",
		   "Queries to the tokenizer, by result", {GW_TOKENIZED, "answered"},
		   {GW_TOKENIZE_CACHED, "cached"}, {GW_TOKENIZE_FAILED, "failed"}),
	KVR_METRIC("kvr_gateway_turns_total", GW_TURNS),
	KVR_FAMILY("kvr_gateway_turns_checked_total", "result",
		   "Turns compared with the token ids of the whole conversation, by result",
		   {GW_TURNS_RIGHT, "match"}, {GW_TURNS_WRONG, "mismatch"}),
	KVR_METRIC("kvr_gateway_picked_total", GW_PICKED),
	KVR_METRIC("kvr_gateway_leases", GW_LEASES),
	KVR_METRIC("kvr_gateway_lease_calls_total", GW_LEASE_CALLS),
	KVR_FAMILY("kvr_gateway_leases_ended_total", "reason",
		   "Leases not ended by their caller, by reason", {GW_LEASES_OVER, "expired"},
		   {GW_LEASES_LOST, "lost"}),
	KVR_METRIC("kvr_gateway_items_total", GW_ITEMS),
	KVR_METRIC("kvr_gateway_received_bytes_total", GW_BYTES_IN),
	KVR_METRIC("kvr_gateway_sent_bytes_total", GW_BYTES_OUT),
	KVR_METRIC("kvr_gateway_routers_up", GW_ROUTERS_UP),
	KVR_METRIC("kvr_gateway_threads_ready", GW_THREADS_READY),
	KVR_METRIC("kvr_gateway_routers_lost_total", GW_ROUTERS_LOST),
	KVR_FAMILIES_END,
};
