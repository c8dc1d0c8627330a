/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TRACK_H
#define ROUTER_TRACK_H

/**
 * @file
 * How a request went, in the last item of its answer when its client has asked for that (TRACK):
 * the hint TRACKER. It is made from what lib/request and measure.h keep anyway. Scheduler lcore of
 * the pool, which owns what is read; it writes the frame alone. Budget: some hundred instructions,
 * of such requests alone.
 */

#include "state/router.h"

/** Put the hint behind the last item @p m of the request of @p slot, one segment; an item without
 * room for it stays as it is. */
void track_item(const struct lcore *lc, const struct kvr_flight *slot, struct rte_mbuf *m);

#endif
