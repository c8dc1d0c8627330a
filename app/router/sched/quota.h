/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SHARE_H
#define ROUTER_SHARE_H

/**
 * @file
 * What one source address may have of a pool: tables of lib/source (struct shares, by pool; struct
 * event_share, by ingress lcore and pool). Writers: the scheduler lcore the former, each ingress
 * lcore its own of the latter. Budget: one look-up and one addition for what is taken or given
 * back.
 */

#include "state/router.h"

/* ---- quota_dp.c: what one source may have of a pool. Scheduler lcore ---- */

/** Whether the job's source may have another request; else j->excess says why not. */
bool share_slot_may(struct pool *p, struct job *j);

/** Charge the slot to the job's source; slot_end() and slot_release() give back. */
void share_slot_take(struct pool *p, struct kvr_flight *r, const struct job *j);

/** kvr_flight_end() of a slot that may be charged to somebody: what lingers is nobody's. */
void slot_end(struct pool *p, struct kvr_flight *r, uint64_t now_ns);

/** kvr_flight_release() of a slot that may be charged to somebody. */
void slot_release(struct pool *p, struct kvr_flight *r);

/** The job is going to wait with @p frames of the @p free frames that may.
 * @return KVR_OK, or KVR_E_SOURCE_LIMIT and j->excess says why. */
enum kvr_code share_wait(struct pool *p, struct job *j, uint32_t frames, uint32_t free);
void share_go_on(struct pool *p, struct job *j, uint32_t frames);

/** The result of its prefill leg waits with it: another @p frames of the @p free ones.
 * @return the same. */
enum kvr_code share_result(struct pool *p, struct job *j, uint32_t frames, uint32_t free);

/** Whether the source may have another session; of a job: else j->excess says why not. */
bool share_session_may(struct pool *p, const struct kvr_path *client, struct kvr_quota_state *st);

#endif
