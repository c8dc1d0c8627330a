/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SHARE_H
#define ROUTER_SHARE_H

/**
 * @file
 * Quotas of one source address in a pool, tables of lib/source: struct shares by pool, written by
 * the scheduler lcore. event/event.h has the quota of the event ring. Budget: one lookup and one
 * addition for each charge or return.
 */

#include "state/router.h"

/* ---- quota_dp.c. Scheduler lcore ---- */

/** Whether the job's source may have another request. @return false: limit and use in j->excess. */
bool share_slot_may(struct pool *p, struct job *j);

/** Charge the slot to the job's source; slot_end() and slot_release() return it. */
void share_slot_take(struct pool *p, struct kvr_flight *r, const struct job *j);

/** kvr_flight_end() with return of the charge: lingering slots are not charged. */
void slot_end(struct pool *p, struct kvr_flight *r, uint64_t now_ns);

/** kvr_flight_release() with return of the charge. */
void slot_release(struct pool *p, struct kvr_flight *r);

/** Charge a job that begins to wait with @p frames of the @p free frames. @return KVR_OK, or
 * KVR_E_SOURCE_LIMIT with j->excess. */
enum kvr_code share_wait(struct pool *p, struct job *j, uint32_t frames, uint32_t free);
void share_go_on(struct pool *p, struct job *j, uint32_t frames);

/** The same for @p frames more: the result of the prefill leg. */
enum kvr_code share_result(struct pool *p, struct job *j, uint32_t frames, uint32_t free);

/** Whether the source may have another session. @return false: limit and use in @p st. */
bool share_session_may(struct pool *p, const struct kvr_path *client, struct kvr_quota_state *st);

#endif
