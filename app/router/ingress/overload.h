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
 *
 * The rule, for a flood that there is time to refuse: it has others lose frames for overload_ms
 * when it begins, and for a seventh of the time at most in the long run, be it that it stays below
 * what is found out, or that it is found out, and comes and goes. Pauses take back an eighth of
 * what they are long, both times: of full_ns until it is an overload, of `part` in one. While the
 * lcore has time for all, nobody loses a frame and nobody is refused.
 */

#include "state/router.h"

/** The port of @p l gave @p got frames to one poll, those for nobody included; @p full: and may
 * have more. */
void overload_seen(struct lcore *lc, struct port_load *l, uint32_t got, bool full);

/** Whether a frame of a request with header @p h, of source @p s of @p t, is let in while @p l is
 * overloaded. Frames of one message have one verdict, but for a change within it. */
bool overload_lets(struct lcore *lc, struct port_load *l, const struct kvr_source_table *t,
		   const struct kvr_source *s, const struct kvr_wire_hdr *h);

#endif
