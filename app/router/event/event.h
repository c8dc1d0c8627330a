/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_EVENT_H
#define ROUTER_EVENT_H

/**
 * @file
 * The event stage: KV events and predictions into the prefix table, in the order of the pool's
 * event ring. struct event_cursor has the position in the stream of a rank, pool::event the
 * position in the current frame. Writer of these and of the table: the event lcore; readers of the
 * table use RCU. Budget: a burst of frames in a turn of 50 us; a frame of many blocks continues in
 * later turns.
 */

#include "state/router.h"

/** Free what an unhandled message owns. Any thread. */
void event_msg_free(const struct event_msg *msg);

/** KV_EVENTS at ingress: check the sender, pass the frame to the event lcore of its pool. */
void event_ingress(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** Apply one burst of events of @p pool. @return messages handled. */
uint32_t event_poll(struct lcore *lc, struct pool *pool);

/** Clear all blocks of a rank. It now belongs to worker @pool w, whose events are expected from 0
 * on, or to no worker (NULL). Constant time. Event lcore. */
void event_reset_rank(struct lcore *lc, struct pool *pool, uint32_t rank,
		      const struct kvr_worker *worker);

/** Compare a heartbeat's next event id with the stream: request missing events, or a dump. */
void event_heartbeat(struct lcore *lc, struct pool *pool, const struct rank_load *load);

/** Record a decision for @pool rank of @pool worker as predicted blocks, through the event lcore.
 * Does not change the job. */
void event_predict(struct lcore *lc, struct pool *pool, const struct job *job, uint32_t rank,
		   uint64_t worker);

/* ---- fetch_dp.c ---- */

/** Prefetch the parts of the table that the next messages in the non-empty ring of @p pool will
 * read, and set pool_event::fetched to their number. Event lcore. */
void event_fetch(struct pool *pool);

/* ---- quota_dp.c: quota of the event ring ---- */

/** Charge a frame in the pool's event ring to its source. @return false: the quota is used up.
 * Ingress lcore. */
bool quota_event_take(struct lcore *lc, struct pool *pool, const struct kvr_path *from);

/** Undo the last charge: the frame did not enter the ring. Ingress lcore. */
void quota_event_undo(struct lcore *lc, struct pool *pool);

/** The frame of @pool n has left the ring. Event lcore. */
void quota_event_done(struct pool *pool, const struct event_msg *msg);

/* ---- ack_dp.c ---- */

/** Answer a frame of events with the position in the stream; @p cursor NULL: unknown. */
void event_ack(struct lcore *lc, const struct kvr_path *to, const struct kvr_wire_hdr *hdr,
	       uint32_t dp_rank, enum kvr_wire_kv_code code, const struct event_cursor *cursor);

/** Send the same unrequested to the worker of a heartbeat, if that epoch is still current. */
void event_ack_unasked(struct lcore *lc, const struct rank_load *load, enum kvr_wire_kv_code code,
		       const struct event_cursor *cursor);

/* ---- restore_dp.c: blocks from a snapshot ---- */

struct restore_worker;

/** Restore blocks of @pool w from a snapshot to its empty ranks, within the budget of a turn. They
 * count at once, but are not authoritative until the agent confirms them. Event lcore. @return
 * true: all are restored; false: call again in the next turn. */
bool event_restore(struct lcore *lc, struct pool *pool, const struct kvr_worker *worker,
		   struct restore_worker *r);

/** A heartbeat about a rank with blocks of a snapshot: request what confirms them. Event lcore.
 * @return whether the heartbeat needs no further handling. */
bool event_confirm(struct lcore *lc, struct pool *pool, const struct rank_load *load,
		   struct event_cursor *cursor);

/** Drop blocks that were not confirmed in time; 64 ranks a turn. Event lcore. */
void event_expire_unconfirmed(struct pool *pool);

#endif
