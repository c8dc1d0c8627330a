/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SCHED_H
#define ROUTER_SCHED_H

/**
 * @file
 * The scheduler stage for other folders; request.h has its internal interface. It is the only
 * writer of the pool's load model, queue, requests and slots (pool::live and the data behind it).
 * Scheduler lcore of the pool, unless stated otherwise. Budget: 50 us a turn for one burst of
 * messages, possible admissions and timers.
 */

#include "state/router.h"

/** Requests that end in one turn for an external reason, such as the loss of a worker: 3 to 8 us
 * each, as their memory is not prefetched. */
#define ENDS_TURN 4u

/* ---- waiting_budget_dp.c: waiting budget ---- */

/** The job will wait with its frames. They are receive buffers, so only a part of them may wait,
 * and each source has a quota of that part. Idempotent. @return KVR_OK; KVR_E_NO_MEMORY,
 * KVR_E_SOURCE_LIMIT: nothing changed. */
enum kvr_code job_hold(struct job *job);

/** The result of the prefill leg waits with the job of a pair, which has none yet; its frames count
 * like the job's. @return the same; on failure the caller keeps @p list. */
enum kvr_code result_hold(struct job *job, struct frame_list *list);

/** Free the result of a pair's job, in either form. Idempotent. */
void result_free(struct lcore *lc, struct job *job);

/** Free a job with its frames and charges. */
void job_free(struct lcore *lc, struct job *job);

/* ---- sched_dp.c, timers_dp.c ---- */

/** Handle one burst of messages of @p pool, admit waiting requests, serve timers. @return messages.
 */
uint32_t sched_poll(struct lcore *lc, struct pool *pool);

/** Expire bookings and check deadlines, every 10 ms. Function of a struct call; @p pool is a struct
 * pool. */
bool sched_tick(struct lcore *lc, void *pool);

/** Update the gauges among the pool's counters. */
void sched_gauges(struct pool *pool);

/** kvr_sched_ops::dropped: a booking ended because its rank was removed. */
void sched_dropped(void *pool, uint32_t slot, uint32_t rank);

/* ---- mailbox.c ---- */

/** Free what an unhandled message owns. Control thread, when the lcores have ended. */
void sched_msg_free(struct lcore *control, const struct sched_msg *msg);

/** Start: create a mailbox for @pool size - 1 messages, @pool size a power of two. @pool alone: one
 * lcore does everything. @return 0 or -ENOMEM. */
int mailbox_create(struct pool *pool, uint32_t size, bool alone);

/** Stop: free waiting messages and the memory. */
void mailbox_destroy(struct pool *pool);

/* ---- overlap_dp.c ---- */

/** Lookups with view @pool view (kvr_view::number) or later are valid for these ranks; earlier ones
 * belong to their former owners. UINT64_MAX: not eligible yet; 0: no owner. Cost: max_ranks words.
 */
void ranks_begin(struct pool *pool, const uint32_t rank[], uint32_t n, uint64_t view);

/** Convert @pool o, looked up in @p pool with @pool view, to the form of lib/sched, and clear the
 * overlap of ranks whose owner changed since. */
void sched_overlap(const struct pool *pool, struct kvr_overlap *o, uint64_t view,
		   struct kvr_sched_overlap *out);

/** kvr_sched_ops::refresh: look up the overlap of a waiting request again. */
bool sched_refresh(void *pool, uint32_t slot, const struct kvr_sched_req *req,
		   struct kvr_sched_overlap *out);

#endif
