/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_RULES_PVT_H
#define CTL_RULES_PVT_H

/** @file Conditions of the rows of doctor_rules[]; see struct doctor_rule::is. */

#include "doctor.h"

bool rule_no_events(const struct doctor_input *in);
bool rule_event_gap(const struct doctor_input *in);
bool rule_stale_epoch(const struct doctor_input *in);
bool rule_repeated_events(const struct doctor_input *in);
bool rule_unread_events(const struct doctor_input *in);
bool rule_event_block_size(const struct doctor_input *in);
bool rule_event_eagle(const struct doctor_input *in);
bool rule_canary(const struct doctor_input *in);
bool rule_unknown_rank(const struct doctor_input *in);
bool rule_orphans(const struct doctor_input *in);
bool rule_unknown_removes(const struct doctor_input *in);
bool rule_no_blocks(const struct doctor_input *in);
bool rule_no_actual(const struct doctor_input *in);
bool rule_overpredicts(const struct doctor_input *in);
bool rule_rank_no_events(const struct doctor_input *in);
bool rule_not_authoritative(const struct doctor_input *in);
bool rule_event_lag(const struct doctor_input *in);
bool rule_no_cache_hits(const struct doctor_input *in);
bool rule_idle_rank(const struct doctor_input *in);
bool rule_unacknowledged(const struct doctor_input *in);
bool rule_batch_unknown(const struct doctor_input *in);
bool rule_requests_fail(const struct doctor_input *in);
bool rule_worker_lost(const struct doctor_input *in);
bool rule_hash_mismatch(const struct doctor_input *in);
bool rule_memory_low(const struct doctor_input *in);
bool rule_missed_cache(const struct doctor_input *in);
bool rule_empty_pool(const struct doctor_input *in);
bool rule_released(const struct doctor_input *in);
bool rule_expired(const struct doctor_input *in);
bool rule_request_unknown(const struct doctor_input *in);
bool rule_request_stuck(const struct doctor_input *in);
bool rule_queue_stuck(const struct doctor_input *in);
bool rule_slots_full(const struct doctor_input *in);
bool rule_frames_full(const struct doctor_input *in);
bool rule_prefill_off(const struct doctor_input *in);
bool rule_table_full(const struct doctor_input *in);
bool rule_drain_stuck(const struct doctor_input *in);
bool rule_suspect(const struct doctor_input *in);
bool rule_refused(const struct doctor_input *in);
bool rule_stall(const struct doctor_input *in);
bool rule_cpu_shared(const struct doctor_input *in);
bool rule_buffers_low(const struct doctor_input *in);
bool rule_device_loses(const struct doctor_input *in);
bool rule_xdp_off(const struct doctor_input *in);
bool rule_xdp_no_socket(const struct doctor_input *in);
bool rule_link_down(const struct doctor_input *in);
bool rule_drops(const struct doctor_input *in);
bool rule_unbalanced(const struct doctor_input *in);
bool rule_clock_off(const struct doctor_input *in);
bool rule_log_lost(const struct doctor_input *in);

#endif
