/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SCHED_H
#define ROUTER_SCHED_H

/**
 * @file
 * The scheduler stage: what others need of it; request.h has the rest. It owns the pool's load
 * model, queue, requests and slots (pool::live and what it leads to) and is their only writer.
 * Scheduler lcore of the pool, unless said otherwise. Budget: a turn of 50 us takes one burst of
 * notes, what can be admitted, and what time brings.
 */

#include "state/router.h"

/** Requests that end in one turn for one reason that is none of their own: 3 to 8 us each, as
 * nothing of them has been fetched. */
#define ENDS_TURN 4u

/* ---- held_dp.c: jobs at their pool's scheduler lcore, and nowhere else ---- */

/**
 * The job is going to wait with its frames: they are the buffers that ports receive into, and only
 * a part of them may wait, and of that part each source has a share. Idempotent.
 * @return KVR_OK; KVR_E_NO_MEMORY, KVR_E_SOURCE_LIMIT: nothing has changed.
 */
enum kvr_code job_hold(struct job *j);

/** The result of its prefill leg waits with a job of a pair, which has none yet; the frames count
 * like its own. @return the same; on failure the caller keeps @p l. */
enum kvr_code result_hold(struct job *j, struct frame_list *l);

/** Let go of the result of a job of a pair, of whatever form. Idempotent. */
void result_free(struct lcore *lc, struct job *j);

/** Free a job, whatever frames it still has, and what is kept for it. */
void job_free(struct lcore *lc, struct job *j);

/* ---- the scheduler stage: what others need of it; request.h has the rest ---- */

/** Handle one burst of notes of @p p, admit waiting requests, serve timers. @return notes. */
uint32_t sched_poll(struct lcore *lc, struct pool *p);

/** Expire bookings and look after deadlines, every 10 ms. A struct call's function: @p pool is the
 * struct pool. */
bool sched_tick(struct lcore *lc, void *pool);

/** Bring the gauges among the pool's counters up to date. */
void sched_gauges(struct pool *p);

/** kvr_sched_ops::dropped: a booking ended because its rank went. */
void sched_dropped(void *pool, uint32_t slot, uint32_t rank);

/* ---- mailbox.c ---- */

/** Free what an unhandled message owns. Control thread, when the lcores have ended. */
void note_drop(struct lcore *control, const struct note *n);

/** Start: room for @p size - 1 notes, a power of two. @p alone: one lcore does everything.
 * @return 0 or -ENOMEM. */
int notes_create(struct pool *p, uint32_t size, bool alone);

/** Stop: give back what the notes own that nobody has taken, and the memory. */
void notes_destroy(struct pool *p);

/* ---- overlap_dp.c ---- */

/**
 * What lcores look up with @p view (kvr_view::number) or a later one is true of these ranks; what
 * they did before is of whoever had them then. UINT64_MAX: nothing yet, they are not open; 0: they
 * are nobody's. Cost: max_ranks words.
 */
void ranks_begin(struct pool *p, const uint32_t rank[], uint32_t n, uint64_t view);

/** @p o, looked up in @p p with @p view, as lib/sched takes it: without what it says of ranks that
 * have begun since, for good. */
void sched_overlap(const struct pool *p, struct kvr_overlap *o, uint64_t view,
		   struct kvr_sched_overlap *out);

/** kvr_sched_ops::refresh: look up the overlap of a waiting request again. */
bool sched_refresh(void *pool, uint32_t slot, const struct kvr_sched_req *req,
		   struct kvr_sched_overlap *out);

#endif
