/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_EVENT_H
#define ROUTER_EVENT_H

/**
 * @file
 * The event stage: KV events and predictions into the prefix table. The pool's event ring brings
 * frames and predictions in their order; where the stream of each rank stands is in its cursor
 * (struct event_cursor), where the frame in work stands in pool::event. Writer of all that and of
 * the table: the event lcore; readers of the table need nothing from it (RCU). Budget: a burst of
 * frames a turn of 50 us; a frame of many blocks is cut into pieces that go on in the next turn.
 */

#include "state/router.h"

/** A note that will not be handled: give back what it holds. Any thread. */
void event_drop(const struct event_note *n);

/** KV_EVENTS at ingress: check the sender, hand it to its pool's event lcore. */
void event_ingress(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** Apply one burst of events of @p p. @return notes handled. */
uint32_t event_poll(struct lcore *lc, struct pool *p);

/**
 * Forget all blocks of a rank. It is now of worker @p w, whose events are expected from 0 on, or of
 * nobody (NULL). Short, whatever the rank had. Event lcore.
 */
void event_reset_rank(struct lcore *lc, struct pool *p, uint32_t rank, const struct kvr_worker *w);

/** A heartbeat says which event comes next: ask for what is missing, a dump if that is all. */
void event_heartbeat(struct lcore *lc, struct pool *p, const struct rank_load *load);

/**
 * Enter a decision for @p rank of @p worker as predicted blocks, through the event lcore. Leaves
 * the job alone.
 */
void predict(struct lcore *lc, struct pool *p, const struct job *j, uint32_t rank, uint64_t worker);

/* ---- fetch_dp.c ---- */

/**
 * Begin to load what the next notes in the ring of @p p, which is not empty, will read of the
 * table: as many as pool_event::fetched then says. Event lcore.
 */
void event_fetch(struct pool *p);

/* ---- quota_dp.c: places in the event ring. Ingress lcores ---- */

/** Whether the source may have another frame in the pool's event ring, which is then charged to
 * it. */
bool share_event_take(struct lcore *lc, struct pool *p, const struct kvr_path *from);

/** The one that was charged last did not get there. */
void share_event_back(struct lcore *lc, struct pool *p);

/** The frame of @p n has left the ring. Event lcore. */
void share_event_done(struct pool *p, const struct event_note *n);

/* ---- ack_dp.c ---- */

/** Answer a frame of events with where the stream stands; @p c NULL: nothing is known of it. */
void event_ack(struct lcore *lc, const struct kvr_path *to, const struct kvr_wire_hdr *h,
	       uint32_t dp_rank, enum kvr_wire_kv_code code, const struct event_cursor *c);

/** The same unasked, to the worker of a heartbeat, if that life is still here. */
void event_tell(struct lcore *lc, const struct rank_load *load, enum kvr_wire_kv_code code,
		const struct event_cursor *c);

/* ---- restore_dp.c: what a snapshot has of a worker ---- */

struct restore_worker;

/**
 * Some blocks of @p w from a snapshot into its ranks, which are empty: as many as a turn may take.
 * They count at once, and are not authoritative before the agent has confirmed them. Event lcore.
 * @return whether all are there; else call again in the next turn.
 */
bool event_restore(struct lcore *lc, struct pool *p, const struct kvr_worker *w,
		   struct restore_worker *r);

/** A heartbeat about a rank with blocks of a snapshot: ask for what confirms them. Event lcore.
 * @return whether that is all there is to do. */
bool event_unsure(struct lcore *lc, struct pool *p, const struct rank_load *load,
		  struct event_cursor *c);

/** Drop what nobody has confirmed in time; 64 ranks a turn. Event lcore. */
void event_doubt(struct pool *p);

#endif
