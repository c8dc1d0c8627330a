/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TIMING_REPLY_H
#define ROUTER_TIMING_REPLY_H

/**
 * @file
 * Timing of a request for a client that sent TRACK: hint TRACKER in the last item of the answer,
 * made from data that lib/request and request_stats.h keep anyway. Scheduler lcore of the pool, the
 * owner of the data; writes only the frame. Budget: some hundred instructions per such request.
 */

#include "state/router.h"

/** Append the hint to the last item @p m (one segment) of the request of @p slot. An item without
 * space stays unchanged. */
void timing_reply(const struct lcore *lc, const struct kvr_flight *slot, struct rte_mbuf *m);

#endif
