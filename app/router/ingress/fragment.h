/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_FRAGMENT_H
#define ROUTER_FRAGMENT_H

/**
 * @file
 * Fragmented messages until they are complete and read: the reassembly table (lib/source), the list
 * of frames of each complete message, and lcore::reading, the queue of these lists. Each ingress
 * lcore has its own. Budget: reading is cut into pieces of 32 KB a turn (8 to 15 us), freeing into
 * 256 frames (5 to 10 us).
 */

#include "message/frames.h"

/* ---- fragment_dp.c ---- */

/** Take a fragment of ROUTE, POTENTIAL_LOADS, or the result of a prefill leg. */
void fragment_in(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** The ingress lcore that reassembles the messages of this sender: @p lc unless its frames may
 * arrive at several lcores. Ingress lcores. */
struct lcore *fragment_joiner(struct lcore *lc, const struct kvr_path *from);

/** Drop expired messages and request missing fragments. */
void fragments_poll(struct lcore *lc);

/** kvr_reasm_conf::share: an address is one source whatever its port. */
struct kvr_peer fragment_share(const struct kvr_peer *peer);

/** kvr_reasm_conf::drop. @p lc is the struct lcore. */
void ingress_reasm_drop(void *lc, void *frame);

/* ---- read_dp.c: complete fragmented messages. Ingress lcores ---- */

/** Whether a list for the frames of the message of @p hdr will be available: the frames of a long
 * message could not be freed in one turn. */
bool read_may_start(struct lcore *lc, const struct kvr_wire_hdr *hdr);

/** Take a complete request; it becomes a job within some turns. */
void read_start(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from);

/** Allocate a list for @p frames frames. NULL: none is free, which happens only if the frames are
 * few. */
struct frame_list *read_list(struct lcore *lc, uint32_t frames);

/** Continue reading for the budget of a turn. */
void read_poll(struct lcore *lc);

/** Drop all queued messages; at the stop. */
void read_drop(struct lcore *lc);

/* ---- result_dp.c: transfer results of several frames. Ingress lcores ---- */

/** Pass a complete result to the scheduler, which acknowledges it. */
void result_whole(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from);

#endif
