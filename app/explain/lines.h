/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_LINES_H
#define EX_LINES_H

/** @file Output lines about requests, made from orders. */

#include "world.h"

/** What a step has ordered: lines about decisions, then those about sessions. A refusal has one
 * when a decision says it; what ends with its worker, its time or its session has none. */
void ex_lines(const struct ex_world *w, struct ex_req *r, const struct kvr_rq_orders *out,
	      bool decision);

/** ACCEPTED: where the request is, unless that was written before. */
void ex_line_accepted(struct ex_req *r);

/** REJECTED. */
void ex_line_rejected(const struct ex_req *r, const struct kvr_rq_why *why);

/** PREFILL: the prefill leg has its worker, or there is none. */
void ex_line_prefill(const struct ex_req *r);

/** OPEN, CLOSE, SESSION. @p r may be NULL but for OPEN. */
void ex_line_session(const struct ex_req *r, const struct kvr_rq_order *o);

void ex_line_expired(const struct ex_req *r);

#endif
