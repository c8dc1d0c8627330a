/* SPDX-License-Identifier: BSD-3-Clause */
/* Metrics of the router. A family has one label for the reason, result or code, so that the sum
 * over the label has a meaning. COMMANDS.md lists the families for operators. */
#include "telemetry/metrics.h"

#include "kvr_active.h"
#include "kvr_flight.h"
#include "kvr_port.h"
#include "kvr_prefix.h"
#include "kvr_reasm.h"
#include "kvr_request_pool.h"
#include "kvr_sched_request.h"
#include "kvr_sched_stats.h"
#include "kvroute_xdp.h"
#include "state/counters.h"

const struct kvr_family metrics_ingress[] = {
	KVR_METRIC("kvr_frames_received_total", IN_FRAMES),
	KVR_FAMILY("kvr_frames_handled_total", "kind", "Datagrams handled, by kind of frame",
		   {IN_ROUTES, "route"}, {IN_FRAGMENTS, "fragment"}, {IN_RELAYED, "relayed"},
		   {IN_REQUEST_FRAMES, "request"}, {IN_EVENTS, "kv_events"},
		   {IN_CONTROL, "control"}, {IN_HEARTBEATS, "heartbeat"},
		   {IN_REJECTED, "rejected"}),
	KVR_FAMILY("kvr_frames_dropped_total", "reason",
		   "Datagrams dropped without an answer, by reason",
		   {IN_SHORT_FRAME, "short_frame"}, {IN_BAD_MAGIC, "bad_magic"},
		   {IN_UNKNOWN_REQUEST, "unknown_request"}, {IN_PREMATURE_ACK, "premature_ack"},
		   {IN_RATE_LIMITED, "rate_limited"}, {IN_EVENT_QUOTA, "event_quota"},
		   {IN_RING_FULL, "ring_full"}),
	KVR_FAMILY("kvr_worker_frames_invalid_total", "reason",
		   "HEARTBEAT and KV_EVENTS frames that do not fit their worker, by reason",
		   {IN_UNKNOWN_RANK, "unknown_rank"}, {IN_STALE_EPOCH, "stale_epoch"}),
	KVR_METRIC("kvr_fragments_forwarded_total", IN_FORWARDED),
	KVR_METRIC("kvr_messages_reassembled_total", IN_REASSEMBLED),
	KVR_METRIC("kvr_fragments_dropped_total", IN_REASM_DROPPED),
	KVR_METRIC("kvr_messages_evicted_total", IN_REASM_EVICTED),
	KVR_METRIC("kvr_missing_sent_total", IN_MISSING_SENT),
	KVR_METRIC("kvr_rejections_suppressed_total", IN_REJECTION_SUPPRESSED),
	KVR_FAMILY("kvr_send_failures_total", "reason", "Frames and messages not sent, by reason",
		   {IN_NO_MBUF, "no_mbuf"}, {IN_EGRESS_FULL, "egress_full"},
		   {IN_UNSENDABLE, "path_mtu"}),
	KVR_METRIC("kvr_messages_refragmented_total", IN_REFRAGMENTED),
	KVR_FAMILIES_END,
};

const struct kvr_family *metrics_reject(void)
{
	static struct kvr_sample samples[KVR_E_MAX + 1];
	static struct kvr_family families[2] = {
		{"kvr_rejections_total", "code", "REJECTED messages, by code", samples},
		KVR_FAMILIES_END,
	};
	const struct kvr_stats_def *def = router_reject_stats();

	for (uint16_t i = 0; i < KVR_E_MAX; i++)
		samples[i] = (struct kvr_sample){i, def->counters[i].name};
	samples[KVR_E_MAX] = (struct kvr_sample){KVR_TERMS_END, NULL};
	return families;
}

const struct kvr_family metrics_log[] = {
	KVR_METRIC("kvr_log_lines_total", LOG_LINES),
	KVR_FAMILY("kvr_log_lines_dropped_total", "reason", "Log lines dropped, by reason",
		   {LOG_BUFFER_FULL, "buffer_full"}, {LOG_RATE_LIMITED, "rate_limited"}),
	KVR_FAMILIES_END,
};

const struct kvr_family metrics_port[] = {
	KVR_METRIC("kvr_port_receive_bytes_total", KVR_PORT_RX_BYTES),
	KVR_FAMILY("kvr_port_receive_frames_total", "kind", "Frames received and used, by kind",
		   {KVR_PORT_RX_UDP, "udp"}, {KVR_PORT_RX_ARP, "arp"}, {KVR_PORT_RX_ND, "nd"},
		   {KVR_PORT_RX_ECHO, "echo"}),
	KVR_FAMILY("kvr_port_receive_drops_total", "reason",
		   "Frames received and dropped, by reason", {KVR_PORT_RX_OTHER_MAC, "other_mac"},
		   {KVR_PORT_RX_OTHER_ADDR, "other_addr"}, {KVR_PORT_RX_OTHER_PORT, "other_port"},
		   {KVR_PORT_RX_OTHER_PROTO, "other_proto"}, {KVR_PORT_RX_OTHER_VLAN, "other_vlan"},
		   {KVR_PORT_RX_TRUNCATED, "truncated"}, {KVR_PORT_RX_BAD_IP, "bad_ip"},
		   {KVR_PORT_RX_BAD_IP_SUM, "bad_ip_sum"}, {KVR_PORT_RX_FRAGMENT, "fragment"},
		   {KVR_PORT_RX_IP6_EXT, "ip6_ext"}, {KVR_PORT_RX_BAD_UDP, "bad_udp"},
		   {KVR_PORT_RX_BAD_UDP_SUM, "bad_udp_sum"}, {KVR_PORT_RX_BAD_SOURCE, "bad_source"},
		   {KVR_PORT_RX_DENIED, "denied"}, {KVR_PORT_RX_SEGMENTS, "segments"}),
	KVR_METRIC_HELP("kvr_port_kept_frames_total", KVR_PORT_RX_KEPT,
			"Datagrams passed to the stages of an lcore"),
	KVR_METRIC_HELP("kvr_port_spread_received_frames_total", KVR_PORT_SPREAD_IN,
			"Datagrams forwarded by the lcore that received them"),
	KVR_FAMILY("kvr_port_spread_frames_total", "result",
		   "Datagrams for the lcore of their source, by result",
		   {KVR_PORT_SPREAD_OUT, "forwarded"}, {KVR_PORT_SPREAD_FULL, "ring_full"}),
	KVR_METRIC_HELP("kvr_port_transmit_offered_frames_total", KVR_PORT_TX_OFFERED,
			"Frames offered for transmission"),
	KVR_METRIC_HELP("kvr_port_transmit_taken_frames_total", KVR_PORT_TX_TAKEN,
			"Frames taken over from other lcores for transmission"),
	KVR_METRIC_HELP("kvr_port_transmit_forwarded_frames_total", KVR_PORT_TX_PASSED,
			"Frames forwarded to an lcore with a device queue"),
	KVR_METRIC_HELP("kvr_port_transmit_frames_total", KVR_PORT_TX_SENT,
			"Frames accepted by the device"),
	KVR_METRIC_HELP("kvr_port_transmit_bytes_total", KVR_PORT_TX_BYTES,
			"Bytes accepted by the device, without CRC"),
	KVR_FAMILY("kvr_port_transmit_drops_total", "reason", "Frames not sent, by reason",
		   {KVR_PORT_TX_DROPPED, "queue_full"}, {KVR_PORT_TX_REFUSED, "invalid"}),
	KVR_METRIC_HELP("kvr_port_transmit_buffered_frames", KVR_PORT_TX_BUFFERED,
			"Frames buffered until the end of the turn"),
	KVR_METRIC_HELP("kvr_port_transmit_retries_total", KVR_PORT_TX_RETRIES,
			"Bursts offered again because the device was full"),
	KVR_FAMILY("kvr_port_answers_total", "result", "ARP, ND and echo requests, by result",
		   {KVR_PORT_ANSWERED, "sent"}, {KVR_PORT_UNANSWERED, "rate_limited"}),
	KVR_FAMILIES_END,
};

const struct kvr_family metrics_xdp[] = {
	KVR_FAMILY("kvr_xdp_frames_total", "action", "Frames at the XDP program, by action",
		   {KVR_XDP_REDIRECTED, "redirected"}, {KVR_XDP_KERNEL, "kernel"},
		   {KVR_XDP_OFF, "off"}, {KVR_XDP_FRAGMENT, "fragment"},
		   {KVR_XDP_IP6_EXT, "ip6_ext"}, {KVR_XDP_DENIED, "denied"},
		   {KVR_XDP_LIMITED, "rate_limited"}, {KVR_XDP_NO_SOCKET, "no_socket"}),
	KVR_FAMILIES_END,
};

const struct kvr_family metrics_lcore[] = {
	KVR_METRIC("kvr_lcore_max_turn_cycles", LC_MAX_TURN),
	KVR_METRIC("kvr_lcore_calls_total", LC_CALLS),
	KVR_METRIC_HELP("kvr_lcore_call_cycles_total", LC_CALL_CYCLES,
			"Cycles spent in functions of control and telemetry"),
	KVR_METRIC("kvr_lcore_sleeps_total", LC_SLEEPS),
	KVR_FAMILIES_END,
};

const struct kvr_family metrics_stage[] = {
	KVR_METRIC("kvr_stage_items_total", WC_ITEMS),
	KVR_METRIC("kvr_stage_bursts_total", WC_BURSTS),
	KVR_METRIC_HELP("kvr_stage_cycles_total", WC_CYCLES,
			"Cycles of the polls that found items"),
	KVR_METRIC_HELP("kvr_stage_max_ring_depth", WC_MAX_DEPTH,
			"Largest number of ring entries found by one poll"),
	KVR_METRIC_HELP("kvr_stage_max_cycles", WC_MAX_CYCLES, "Cycles of the longest poll"),
	KVR_FAMILIES_END,
};

#define C(name) KVR_REASM_C_##name
const struct kvr_family metrics_reasm[] = {
	KVR_FAMILY("kvr_reassembly_fragments_total", "result",
		   "Fragments passed to reassembly, by result", {C(ACCEPTED), "accepted"},
		   {C(DUPLICATES), "duplicate"}, {C(REFUSED_FRAGMENT), "invalid"},
		   {C(REFUSED_FULL), "no_memory"}, {C(REFUSED_LARGE), "too_large"}),
	KVR_FAMILY("kvr_reassembly_fragments_released_total", "result",
		   "Fragments released by reassembly, by result", {C(DELIVERED), "delivered"},
		   {C(DROPPED), "dropped"}),
	KVR_FAMILY("kvr_reassembly_messages_total", "result", "Fragmented messages, by result",
		   {C(COMPLETED), "completed"}, {C(EXPIRED), "expired"}, {C(EVICTED), "evicted"},
		   {C(FLUSHED), "flushed"}),
	KVR_METRIC_HELP("kvr_reassembly_missing_requests_total", C(ASKED),
			"Requests for missing fragments"),
	KVR_METRIC_HELP("kvr_reassembly_pending_messages", C(MESSAGES), "Incomplete messages"),
	KVR_METRIC_HELP("kvr_reassembly_pending_fragments", C(FRAMES),
			"Fragments of incomplete messages"),
	KVR_METRIC_HELP("kvr_reassembly_pending_bytes", C(BYTES), "Bytes of incomplete messages"),
	KVR_FAMILIES_END,
};
#undef C

const struct kvr_family metrics_pool[] = {
	KVR_FAMILY("kvr_route_messages_total", "result",
		   "ROUTE messages that reached the scheduler, by result", {PC_ROUTED, "booked"},
		   {PC_QUEUED, "queued"}, {PC_DISAGG, "prefill"}, {PC_QUERIES, "query"},
		   {PC_DUPLICATES, "duplicate"}, {PC_REJECTED, "rejected"}),
	KVR_METRIC("kvr_health_probes_total", PC_PROBES),
	KVR_FAMILY("kvr_queue_exits_total", "result", "Requests that left the queue, by result",
		   {PC_ADMITTED, "admitted"}, {PC_QUEUE_ABANDONED, "abandoned"},
		   {PC_ADMISSION_REJECTED, "rejected"}),
	KVR_METRIC("kvr_requests_waiting", PC_WAITING),
	KVR_FAMILY("kvr_requests_total", "outcome", "Bookings that ended, by outcome",
		   {PC_FINISHED, "finished"}, {PC_ERRORED, "errored"},
		   {PC_OVERLOADED, "overloaded"}, {PC_CANCELLED, "cancelled"},
		   {PC_WORKER_REJECTED, "rejected"}, {PC_LOST, "lost"}, {PC_EXPIRED, "expired"},
		   {PC_STOPPED, "stopped"}, {PC_UNACKNOWLEDGED, "unacknowledged"}),
	KVR_METRIC("kvr_requests_in_flight", PC_LIVE),
	KVR_METRIC("kvr_requests_released_total", PC_RELEASED),
	KVR_METRIC("kvr_alive_reports_total", PC_ALIVE),
	KVR_METRIC("kvr_alive_reports_unknown_total", PC_ALIVE_UNKNOWN),
	KVR_METRIC("kvr_prefill_bypassed_total", PC_BYPASSED),
	KVR_METRIC("kvr_retries_total", PC_RETRIES),
	KVR_FAMILY("kvr_decode_legs_total", "result", "Decode legs and retries, by result",
		   {PC_LEG_ROUTED, "booked"}, {PC_LEG_QUEUED, "queued"},
		   {PC_LEG_REJECTED, "rejected"}, {PC_LEG_ABANDONED, "abandoned"}),
	KVR_METRIC("kvr_decode_legs_pending", PC_LEGS_PENDING),
	KVR_METRIC("kvr_requests_client_gone_total", PC_CLIENT_GONE),
	KVR_FAMILY("kvr_request_frames_ignored_total", "reason",
		   "Frames about requests that were ignored, by reason", {PC_LATE_FRAMES, "late"},
		   {PC_UNEXPECTED_STATE, "unexpected_state"},
		   {PC_WRONG_CLIENT_ADDRESS, "wrong_client_address"},
		   {PC_MAILBOX_FULL, "mailbox_full"}),
	KVR_METRIC("kvr_results_deferred_total", PC_RESULTS_DEFERRED),
	KVR_METRIC("kvr_slots_reclaimed_total", PC_SLOTS_RECLAIMED),
	KVR_METRIC("kvr_load_queries_total", PC_LOAD_QUERIES),
	KVR_METRIC("kvr_client_bookings_total", PC_CLIENT_BOOKINGS),
	KVR_METRIC("kvr_client_bookings_in_flight", PC_CLIENT_BOOKINGS_LIVE),
	KVR_METRIC("kvr_dispatches_total", PC_DISPATCHES),
	KVR_METRIC("kvr_prompt_tokens_total", PC_PROMPT_TOKENS),
	KVR_METRIC("kvr_cached_tokens_predicted_total", PC_PREDICTED_TOKENS),
	KVR_METRIC("kvr_cached_tokens_found_total", PC_ACTUAL_TOKENS),
	KVR_METRIC("kvr_cached_tokens_achieved_total", PC_HIT_TOKENS),
	KVR_METRIC("kvr_cached_tokens_achievable_total", PC_ACHIEVABLE_TOKENS),
	KVR_FAMILY("kvr_cached_tokens_not_found_total", "reason",
		   "Cached tokens predicted but not found, by reason",
		   {PC_SHORT_MISSING, "events_missing"}, {PC_SHORT_EVICTED, "evicted"},
		   {PC_SHORT_NOTHING, "nothing_shared"}, {PC_SHORT_ENGINE, "unknown"}),
	KVR_METRIC_HELP("kvr_cached_tokens_unpredicted_total", PC_BEYOND_TOKENS,
			"Cached tokens found but not predicted"),
	KVR_FAMILY("kvr_predictions_total", "result", "Decisions as predicted blocks, by result",
		   {PC_PREDICTIONS, "recorded"}, {PC_PREDICTIONS_DROPPED, "dropped"}),
	KVR_METRIC("kvr_requests_without_blocks_total", PC_NO_BLOCKS),
	KVR_FAMILIES_END,
};

#define C(name) KVR_RQC_##name
const struct kvr_family metrics_request[] = {
	KVR_FAMILY("kvr_request_events_ignored_total", "reason",
		   "Events that the request state machine ignored, by reason", {C(LATE), "late"},
		   {C(IMPOSSIBLE), "impossible"}),
	KVR_FAMILY("kvr_request_transitions_total", "transition",
		   "Transitions of the request state machine, by kind", {C(ARRIVED), "arrived"},
		   {C(FORGOTTEN), "forgotten"}, {C(DONE), "done"}, {C(PROBES), "health_probe"},
		   {C(PAIRED), "paired"}, {C(BYPASSED), "prefill_bypassed"}, {C(RETRIES), "retry"},
		   {C(UNACKNOWLEDGED), "unacknowledged"}, {C(UNKNOWN_CLASS), "unknown_class"},
		   {C(SESSION_OPENS), "session_open"}, {C(SESSION_BOUND), "session_bound"},
		   {C(SESSION_REFUSED), "session_no_memory"}, {C(SESSION_BUSY), "session_busy"},
		   {C(SESSION_OPEN_FAILED), "session_open_failed"},
		   {C(SESSION_OPEN_ENDED), "session_open_ended"},
		   {C(SESSION_UNBOUND), "session_unbound"},
		   {C(SESSION_INVALIDATED), "session_invalidated"},
		   {C(SESSION_EXPIRED), "session_expired"}, {C(SESSION_CLOSES), "session_close"},
		   {C(SESSION_CLOSE_UNBOUND), "session_close_unbound"}),
	KVR_FAMILIES_END,
};
#undef C

const struct kvr_family metrics_session[] = {
	KVR_METRIC("kvr_session_opens_total", SC_OPENS),
	KVR_METRIC_HELP("kvr_session_opens_pending", SC_OPENING,
			"SESSION_OPEN requests that are not answered yet"),
	KVR_FAMILY("kvr_session_open_failures_total", "reason",
		   "Session opens that failed, by reason", {SC_OPEN_REJECTED, "rejected"},
		   {SC_OPEN_UNANSWERED, "unanswered"}, {SC_OPEN_ENDED, "request_ended"}),
	KVR_FAMILY("kvr_session_bindings_created_total", "origin",
		   "Session bindings created, by origin", {SC_BOUND, "open"},
		   {SC_AFFINITY_BOUND, "affinity"}, {SC_RESTORED, "snapshot"}),
	KVR_FAMILY("kvr_session_bindings_ended_total", "reason",
		   "Session bindings ended, by reason", {SC_REBOUND, "replaced"},
		   {SC_UNBOUND, "closed"}, {SC_EXPIRED, "expired"}, {SC_INVALIDATED, "failure"}),
	KVR_METRIC_HELP("kvr_session_bindings", SC_LIVE, "Sessions bound to a rank"),
	KVR_FAMILY("kvr_session_closes_total", "result", "SESSION_CLOSE requests, by result",
		   {SC_CLOSED, "answered"}, {SC_CLOSE_UNANSWERED, "unanswered"},
		   {SC_CLOSE_DROPPED, "dropped"}, {SC_CLOSE_WORKER_GONE, "worker_gone"}),
	KVR_METRIC_HELP("kvr_session_closes_pending", SC_CLOSING,
			"SESSION_CLOSE requests that are not answered yet"),
	KVR_FAMILIES_END,
};

#define C(name)			   KVR_SCHED_C_##name
#define REJECTED(code, name, help) {C(ERRORS) + KVR_SCHED_ERR_##code, #name},
#define DEQUEUED(code, name, help) {C(POLL_ERRORS) + KVR_SCHED_ERR_##code, #name},
#define SAMPLES_END                                                                                \
	{                                                                                          \
		KVR_TERMS_END, NULL                                                                \
	}
static const struct kvr_sample sched_rejections[] = {KVR_SCHED_ERR_LIST(REJECTED) SAMPLES_END};
static const struct kvr_sample sched_dequeued[] = {KVR_SCHED_ERR_LIST(DEQUEUED) SAMPLES_END};

const struct kvr_family metrics_sched[] = {
	KVR_METRIC_HELP("kvr_scheduler_calls_total", C(CALLS),
			"Calls of the scheduler: requests, queries and rejections"),
	KVR_FAMILY("kvr_scheduler_requests_total", "result",
		   "Requests that the scheduler accepted, by result", {C(BOOKED_AT_ONCE), "booked"},
		   {C(QUEUED), "queued"}, {C(QUERIES), "query"}),
	{"kvr_scheduler_rejections_total", "code", "Requests that the scheduler rejected, by code",
	 sched_rejections},
	{"kvr_scheduler_queue_rejections_total", "code",
	 "Queued requests that the scheduler rejected, by code; part of the rejections",
	 sched_dequeued},
	KVR_FAMILY("kvr_scheduler_queue_exits_total", "result",
		   "Requests that left the queue without a rejection, by result",
		   {C(ADMITTED), "admitted"}, {C(CANCELLED_WAITING), "cancelled"}),
	KVR_FAMILY("kvr_scheduler_bookings_ended_total", "result", "Bookings that ended, by result",
		   {C(FINISHED), "finished"}, {C(CANCELLED_BOOKED), "cancelled"},
		   {C(EXPIRED), "expired"}, {C(DROPPED), "rank_lost"}),
	KVR_METRIC_HELP("kvr_scheduler_released", C(RELEASED_NOW),
			"Released bookings whose request has not ended"),
	KVR_METRIC_HELP("kvr_scheduler_released_ended_total", C(RELEASED_ENDED),
			"Requests that ended after the release of their booking"),
	KVR_METRIC_HELP("kvr_scheduler_bookings", C(BOOKED_NOW), "Bookings in progress"),
	KVR_METRIC_HELP("kvr_scheduler_waiting", C(WAITING_NOW), "Requests in the queue"),
	KVR_METRIC_HELP("kvr_scheduler_late_calls_total", C(LATE),
			"Calls for a slot that is free already"),
	KVR_METRIC_HELP("kvr_scheduler_prefills_done_total", C(PREFILL_MARKS),
			"Bookings whose prefill is done"),
	KVR_METRIC("kvr_scheduler_output_blocks_total", C(OUTPUT_BLOCKS)),
	KVR_METRIC_HELP("kvr_scheduler_overlap_refreshes_total", C(REFRESHES),
			"Overlaps looked up again before admission"),
	KVR_METRIC_HELP("kvr_scheduler_overlap_not_kept_total", C(NOT_KEPT),
			"Queued requests whose overlap did not fit in the store"),
	KVR_METRIC_HELP("kvr_scheduler_non_max_overlap_total", C(NON_MAX),
			"Bookings on a rank although an eligible rank had a larger overlap"),
	KVR_FAMILY("kvr_scheduler_queue_limit_rejections_total", "limit",
		   "Requests rejected at a queue limit of their policy class, by limit",
		   {C(LIMIT_REQUESTS), "requests"}, {C(LIMIT_ISL), "isl_tokens"},
		   {C(LIMIT_CACHED), "cached_tokens"}),
	KVR_METRIC_HELP("kvr_scheduler_private_blocks_total", C(UNSHARED),
			"Prompt blocks booked without sharing: load model full"),
	KVR_FAMILY("kvr_scheduler_health_probes_total", "result", "Health probes, by result",
		   {C(PROBES_REFUSED), "rejected"}, {C(PROBES_ENDED), "ended"}),
	KVR_METRIC_HELP("kvr_scheduler_health_probes_in_flight", C(PROBES_NOW),
			"Health probes in progress"),
	KVR_FAMILIES_END,
};
#undef C

#define C(name) KVR_ACTIVE_C_##name
const struct kvr_family metrics_active[] = {
	KVR_METRIC("kvr_load_model_runs", C(RUNS)),
	KVR_METRIC("kvr_load_model_wide_records", C(WIDE)),
	KVR_METRIC_HELP("kvr_load_model_private_blocks_total", C(PRIVATE),
			"Blocks booked without sharing: no memory"),
	KVR_METRIC("kvr_load_model_splits_total", C(SPLITS)),
	KVR_METRIC_HELP("kvr_load_model_joins_total", C(JOINS),
			"Split runs that were joined again"),
	KVR_FAMILIES_END,
};
#undef C

const struct kvr_family metrics_flight[] = {
	KVR_METRIC("kvr_slots_taken_total", KVR_FLIGHT_C_TAKEN),
	KVR_METRIC_HELP("kvr_slots_released_total", KVR_FLIGHT_C_GIVEN, "Slots released"),
	KVR_METRIC_HELP("kvr_slots_used", KVR_FLIGHT_C_USED, "Slots in use"),
	KVR_METRIC_HELP("kvr_slots_lingering", KVR_FLIGHT_C_LINGERING,
			"Slots in use whose request has ended"),
	KVR_METRIC_HELP("kvr_slots", KVR_FLIGHT_C_SLOTS, "Number of slots"),
	KVR_FAMILIES_END,
};

const struct kvr_family metrics_event[] = {
	KVR_FAMILY("kvr_kv_events_total", "result", "KV_EVENTS frames, by result",
		   {EC_APPLIED, "applied"}, {EC_ALREADY_APPLIED, "already_applied"},
		   {EC_GAPS, "gap"}, {EC_DUMPS, "dump"}, {EC_STALE_EPOCH, "stale_epoch"},
		   {EC_DEFERRED, "deferred"}),
	KVR_FAMILY("kvr_kv_event_blocks_total", "operation",
		   "Blocks stored and removed by KV events", {EC_STORED_BLOCKS, "stored"},
		   {EC_REMOVED_BLOCKS, "removed"}),
	KVR_METRIC("kvr_kv_event_clears_total", EC_CLEARS),
	KVR_FAMILIES_END,
};

#define C(name) KVR_PREFIX_C_##name
const struct kvr_family metrics_prefix[] = {
	KVR_METRIC_HELP("kvr_prefix_blocks", C(BLOCKS),
			"Distinct block hashes in the prefix table"),
	KVR_METRIC_HELP("kvr_prefix_runs", C(RUNS), "Runs in the prefix table"),
	KVR_METRIC_HELP("kvr_prefix_entries", C(ENTRIES),
			"Reported entries (rank, tier, block) in the prefix table"),
	KVR_METRIC_HELP("kvr_prefix_predicted_entries", C(PREDICTED),
			"Predicted entries (rank, run) in the prefix table"),
	KVR_METRIC_HELP("kvr_prefix_entries_stored_total", C(STORED),
			"Entries stored, without duplicates"),
	KVR_FAMILY("kvr_prefix_entries_removed_total", "reason",
		   "Reported entries removed, by reason", {C(REMOVED), "event"},
		   {C(CLEARED), "clear"}, {C(EVICTED_ENTRIES), "evicted"}),
	KVR_FAMILY("kvr_prefix_predicted_entries_removed_total", "reason",
		   "Predicted entries removed, by reason", {C(EXPIRED), "expired"},
		   {C(EVICTED_PREDICTED), "evicted"}),
	KVR_FAMILY("kvr_prefix_blocks_ignored_total", "reason",
		   "Blocks of KV events without an effect, by reason", {C(DUPLICATES), "duplicate"},
		   {C(ORPHANS), "orphan"}, {C(UNKNOWN_REMOVES), "unknown_remove"},
		   {C(DROPPED), "no_memory"}),
	KVR_METRIC_HELP("kvr_prefix_runs_evicted_total", C(EVICTED_RUNS),
			"Runs of a rank evicted at a limit, least recently matched first"),
	KVR_METRIC_HELP("kvr_prefix_clearing_ranks", C(CLEARING),
			"Ranks whose entries are being cleared"),
	KVR_METRIC_HELP("kvr_prefix_retired_objects", C(RETIRED),
			"Objects that wait until no reader uses them"),
	KVR_METRIC_HELP("kvr_prefix_used_bytes", C(USED_BYTES),
			"Memory of the prefix table in use"),
	KVR_METRIC_HELP("kvr_prefix_memory_bytes", C(MEMORY_BYTES),
			"Memory reserved for the prefix table"),
	KVR_FAMILIES_END,
};
