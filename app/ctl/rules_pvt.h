/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_RULES_PVT_H
#define CTL_RULES_PVT_H

/** @file Conditions of the rows of doctor_rules[], see struct doctor_rule::is. */

#include "doctor.h"

bool rule_no_events(const struct doctor_look *l);
bool rule_event_gap(const struct doctor_look *l);
bool rule_event_life(const struct doctor_look *l);
bool rule_event_back(const struct doctor_look *l);
bool rule_orphans(const struct doctor_look *l);
bool rule_unknown_removes(const struct doctor_look *l);
bool rule_no_blocks(const struct doctor_look *l);
bool rule_no_actual(const struct doctor_look *l);
bool rule_overpredicts(const struct doctor_look *l);
bool rule_far_from_best(const struct doctor_look *l);
bool rule_empty_pool(const struct doctor_look *l);
bool rule_expired(const struct doctor_look *l);
bool rule_queue_stands(const struct doctor_look *l);
bool rule_slots_full(const struct doctor_look *l);
bool rule_frames_full(const struct doctor_look *l);
bool rule_prefill_off(const struct doctor_look *l);
bool rule_table_full(const struct doctor_look *l);
bool rule_drain_stuck(const struct doctor_look *l);
bool rule_suspect(const struct doctor_look *l);
bool rule_refused(const struct doctor_look *l);
bool rule_stall(const struct doctor_look *l);
bool rule_cpu_shared(const struct doctor_look *l);
bool rule_buffers_low(const struct doctor_look *l);
bool rule_device_loses(const struct doctor_look *l);
bool rule_xdp_off(const struct doctor_look *l);
bool rule_xdp_no_socket(const struct doctor_look *l);
bool rule_link_down(const struct doctor_look *l);
bool rule_drops(const struct doctor_look *l);
bool rule_unbalanced(const struct doctor_look *l);
bool rule_clock_off(const struct doctor_look *l);
bool rule_log_lost(const struct doctor_look *l);
bool rule_silent_rank(const struct doctor_look *l);
bool rule_not_authoritative(const struct doctor_look *l);
bool rule_lags(const struct doctor_look *l);
bool rule_useless_cache(const struct doctor_look *l);
bool rule_unused(const struct doctor_look *l);
bool rule_unheard(const struct doctor_look *l);
bool rule_batch_unknown(const struct doctor_look *l);
bool rule_requests_fail(const struct doctor_look *l);
bool rule_worker_lost(const struct doctor_look *l);
bool rule_other_hashes(const struct doctor_look *l);
bool rule_unread_events(const struct doctor_look *l);
bool rule_event_block_size(const struct doctor_look *l);
bool rule_canary(const struct doctor_look *l);
bool rule_event_eagle(const struct doctor_look *l);
bool rule_bad_rank(const struct doctor_look *l);
bool rule_request_unknown(const struct doctor_look *l);
bool rule_request_stands(const struct doctor_look *l);
bool rule_memory_low(const struct doctor_look *l);

#endif
