/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_QUOTA_H
#define ROUTER_QUOTA_H

/**
 * @file
 * Quotas of one source address in a pool, tables of lib/source: struct pool_quotas by pool, written
 * by the scheduler lcore. event/event.h has the quota of the event ring. Budget: one lookup and one
 * addition for each charge or return.
 */

#include "state/router.h"

/* ---- quota_dp.c. Scheduler lcore ---- */

/** Whether the job's source may have another request. @return false: limit and use in job->excess.
 */
bool quota_slot_allows(struct pool *pool, struct job *job);

/** Charge the slot to the job's source; slot_end() and slot_release() return it. */
void quota_slot_take(struct pool *pool, struct kvr_flight *slot, const struct job *job);

/** kvr_flight_end() with return of the charge: lingering slots are not charged. */
void slot_end(struct pool *pool, struct kvr_flight *slot, uint64_t now_ns);

/** kvr_flight_release() with return of the charge. */
void slot_release(struct pool *pool, struct kvr_flight *slot);

/** Charge a job that begins to wait with @pool frames of the @pool free frames. @return KVR_OK, or
 * KVR_E_SOURCE_LIMIT with job->excess. */
enum kvr_code quota_wait(struct pool *pool, struct job *job, uint32_t frames, uint32_t free);
void quota_wait_end(struct pool *pool, struct job *job, uint32_t frames);

/** The same for @pool frames more: the result of the prefill leg. */
enum kvr_code quota_result(struct pool *pool, struct job *job, uint32_t frames, uint32_t free);

/** Whether the source may have another session. @return false: limit and use in @pool st. */
bool quota_session_allows(struct pool *pool, const struct kvr_path *client,
			  struct kvr_quota_state *st);

#endif
