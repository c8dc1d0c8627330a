/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SOURCE_H
#define ROUTER_SOURCE_H

/**
 * @file
 * Limits of one source address at ingress: rates by kind of frame, a cookie where addresses must be
 * proven, a share of an overloaded lcore. Each lcore has two tables of sources, one for sources
 * with a valid cookie and one for all others, and alone writes them. Ingress lcores. Budget: one
 * lookup per frame of a new request.
 */

#include "lcore/out.h"
#include "state/router.h"

/** Whether a CONNECT or HELLO from @p from is within the rate of its source. Ingress lcores. */
bool source_control(struct lcore *lc, const struct kvr_path *from);

/** Admit a frame of a ROUTE or POTENTIAL_LOADS: check cookie, rate and share in an overload of its
 * source. Removes the cookie from the message. Ingress lcores. @return KVR_OK or the code; the
 * caller keeps the frame. */
enum kvr_code source_route(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** Reject a received frame with @p code, count and free it. The answer is subject to the source's
 * rate of answers. Ingress lcores. */
void source_reject(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		   enum kvr_code code);

/** The same with details. */
void source_reject_as(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		      const struct rejection *why);

/** The same without the rate of answers: the frame has passed a rate limit, or belongs to a request
 * that its sender serves. */
void source_reject_passed(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
			  const struct rejection *why);

/** Reject, count and free a received frame without an answer: another frame of its message is
 * answered, or none. Ingress lcores. */
void source_reject_silent(struct lcore *lc, struct rte_mbuf *m, enum kvr_code code);

/** Shed a request that source_route() rejected for overload: Busy, count and free. Subject to the
 * rate of answers, because an answer costs as much as the request. */
void source_shed(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

#endif
