/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SOURCE_H
#define ROUTER_SOURCE_H

/**
 * @file
 * What one source address may do at ingress: rates by kind of frame, a cookie where addresses are
 * not believed, a part of what an overloaded lcore can take. Two tables of sources a lcore (those
 * with a good cookie, and all others), which that lcore alone writes; rules are constant. Ingress
 * lcores. Budget: one look-up a frame of a new request.
 */

#include "lcore/out.h"
#include "state/router.h"

/** Whether a CONNECT or HELLO of @p from is within its source's rate. Ingress lcores. */
bool source_control(struct lcore *lc, const struct kvr_path *from);

/**
 * Whether a frame of a ROUTE or POTENTIAL_LOADS may go on: its cookie, its source's rate, and its
 * source's part of an overload. Takes the cookie out of the message. Ingress lcores.
 * @return KVR_OK, else the code; the frame stays the caller's.
 */
enum kvr_code source_route(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** Refuse a received frame, which it frees, and count it; answered as far as its source may have
 * answers. Ingress lcores. */
void source_refuse(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		   enum kvr_code code);

/** The same with more than a code to say. */
void source_refuse_as(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		      const struct refusal *why);

/** The same, answered at any rate: the frame has passed its source's rate already, or is of a
 * request that its sender serves. */
void source_refuse_passed(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
			  const struct refusal *why);

/** Refuse a received frame, which it frees, and count it, without an answer: another frame of its
 * message gets that, or nobody. Ingress lcores. */
void source_refuse_unsaid(struct lcore *lc, struct rte_mbuf *m, enum kvr_code code);

/** Refuse a request that source_route() says is too much in an overload (Busy), count and free it.
 * Answered as far as its source may have answers: an answer costs as much as receiving did. */
void source_shed(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

#endif
