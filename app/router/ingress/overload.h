/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_OVERLOAD_H
#define ROUTER_OVERLOAD_H

/**
 * @file
 * Overload of a port: its device has had more than this lcore takes for overload_ms of late, so
 * frames are lost in its ring, anybody's. From then on requests are refused before anything is
 * spent on them, by source: every source may have the same number, which is set anew each
 * millisecond so that the ring is just emptied. Who asks for less is not refused. Ingress lcores,
 * each for its own queues; budget: a few loads a poll, a multiplication a request in an overload.
 */

#include "router.h"

/** The device of @p l gave @p got frames to one poll, those for nobody included. */
void overload_seen(struct lcore *lc, struct port_load *l, uint32_t got);

/** Whether a frame of a request with header @p h, of source @p s of @p t, is let in while @p l is
 * overloaded. Frames of one message have one verdict, but for a change within it. */
bool overload_lets(struct lcore *lc, struct port_load *l, const struct kvr_source_table *t,
		   const struct kvr_source *s, const struct kvr_wire_hdr *h);

#endif
