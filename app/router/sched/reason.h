/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_REASON_H
#define ROUTER_REASON_H

/**
 * @file
 * Why a request is refused, in words with numbers: the text of REJECTED. The code and the details
 * say the same to programs. On the scheduler lcore; what it reads is the pool's and the request's,
 * what it writes is the caller's. Budget: some hundred instructions, of refusals alone.
 */

#include "kvr_reason.h"
#include "lcore/out.h"

#define REASON_TEXT (KVR_REASON_MAX + 1u)

struct request;

/** Words for @p why, whose details are complete; @p r may be NULL: it has become no request. The
 * text lies in @p buf, or is a constant. @return NULL: the code says it all. */
const char *reason_text(const struct pool *p, const struct request *r, const struct refusal *why,
			char buf[REASON_TEXT]);

#endif
