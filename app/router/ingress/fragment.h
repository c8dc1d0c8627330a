/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_FRAGMENT_H
#define ROUTER_FRAGMENT_H

/**
 * @file
 * Messages in fragments, until all of one is here and read: the reassembly table (lib/source), the
 * list of frames of each whole message, and lcore::reading, the queue of those. Ingress lcores,
 * each its own; what the scheduler lcore does is marked. Reading is cut into pieces of 32 KB a
 * turn, 8 to 15 us, freeing into 256 frames of each, 5 to 10 us.
 */

#include "message/frames.h"

/* ---- fragment_dp.c ---- */

/** A fragment of ROUTE, POTENTIAL_LOADS, or the result of a prefill leg. */
void fragment_in(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** The ingress lcore that joins the fragments of this sender; @p lc itself unless they may come to
 * several. Ingress lcores. */
struct lcore *fragment_joiner(struct lcore *lc, const struct kvr_path *from);

/** Give up and ask for what is due. */
void fragments_poll(struct lcore *lc);

/** kvr_reasm_conf::share: whatever the port, all of an address is one source. */
struct kvr_peer fragment_share(const struct kvr_peer *peer);

/** kvr_reasm_conf::drop. @p lc is the struct lcore. */
void ingress_reasm_drop(void *lc, void *frame);

/* ---- read_dp.c: messages in fragments that are whole. Ingress lcores ---- */

/** Whether there will be a list for the frames of the message of @p h: those of a long one could
 * not be freed in one turn. */
bool read_may_start(struct lcore *lc, const struct kvr_wire_hdr *h);

/** All frames of a request are here, which it takes: it becomes a job within some turns. */
void read_start(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from);

/** A list for so many frames; NULL: none is left, which may only be when they are few. */
struct frame_list *read_list(struct lcore *lc, uint32_t frames);

/** Read on, as far as a turn allows. */
void read_poll(struct lcore *lc);

/** Give up what is being read; at the stop. */
void read_drop(struct lcore *lc);

/* ---- result_dp.c: transfer results of several frames. Ingress lcores ---- */

/** All of them are here: to the scheduler, which acknowledges them. */
void result_whole(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from);

#endif
