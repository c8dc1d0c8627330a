/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_OVERLOAD_H
#define ROUTER_OVERLOAD_H

/**
 * @file
 * Overload of a port. Its device has delivered more than this lcore could handle for overload_ms,
 * so the ring loses frames of any source. From then on requests are shed by source before they cost
 * anything: each source may send the same number of frames, and that number is adjusted every
 * millisecond such that the ring is just emptied. Sources that send less lose nothing. Ingress
 * lcores, each for its own queues. Budget: a few loads per poll, a multiplication per request in
 * overload.
 *
 * Bound for a flood that the lcore has time to shed: other sources lose frames for overload_ms at
 * its beginning, and for at most 1/7 of the time in the long run, whether the flood stays below
 * detection or is detected and intermittent. Pauses count back 1/8 of their length: from full_ns
 * before an overload, from `part` during one. While the lcore keeps up, no frame is lost or
 * rejected.
 */

#include "state/router.h"

/** Record a poll of the port of @p load: it returned @p got frames, other protocols included. @p
 * full: more may wait. */
void overload_seen(struct lcore *lc, struct port_load *load, uint32_t got, bool full);

/** Whether to admit a frame of a request with header @p hdr from source @p source of @p t while @p
 * load is overloaded. All frames of a message get the same verdict unless `part` changes in
 * between. */
bool overload_lets(struct lcore *lc, struct port_load *load, const struct kvr_source_table *t,
		   const struct kvr_source *source, const struct kvr_wire_hdr *hdr);

#endif
