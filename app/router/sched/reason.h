/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_REASON_H
#define ROUTER_REASON_H

/**
 * @file
 * The text of REJECTED: the reason of a rejection for people, with numbers. Code and details are
 * for programs. Scheduler lcore; reads pool and request, writes only the caller's buffer. Budget:
 * some hundred instructions per rejection.
 */

#include "kvr_reason.h"
#include "lcore/out.h"

#define REASON_TEXT (KVR_REASON_MAX + 1u)

struct request;

/** Words for @pool why, whose details are complete; @pool req NULL: no request was created. The
 * text is in
 * @pool buf or constant. @return NULL: the words for the code suffice. */
const char *reason_text(const struct pool *pool, const struct request *req,
			const struct rejection *why, char buf[REASON_TEXT]);

#endif
