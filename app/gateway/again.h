/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_AGAIN_H
#define GW_AGAIN_H

/**
 * @file
 * What is sent once more when it has ended at a router with nothing of an answer, and why it was
 * lost first. What its worker or engine took along waits a moment for that: it is in `later` of its
 * thread.
 */

#include "call.h"

#define GW_TRIES 3 /* a request is handed to routers so often at most */

/** May it be sent again: nothing of an answer has come, and it is not its own fault. */
bool gw_again(const struct gw_call *c, const struct kvr_client_end *e);

/** The worker's agent takes bodies in frames alone, or listens where nobody reaches it; or that of
 * the worker of its prefill leg. */
bool gw_again_no_bodies(const struct gw_call *c, const struct kvr_client_end *e);

/** The worker or its engine has gone with it. Another one may take it, but only once: it may be the
 * request that they die of. */
bool gw_again_worker_lost(const struct gw_call *c, const struct kvr_client_end *e);

/** Whether --request-ms, which is for all its tries, leaves time for one: left_ms of it. To be
 * called before each. */
bool gw_again_in_time(struct gw_call *c);

/** It is to be sent again a little later, and why. */
void gw_again_later(struct gw_call *c, const struct kvr_client_end *e);

/** It is not, or now. */
void gw_again_not(struct gw_call *c);

/** What its client is told when it ends so, in @p text of @p size, too: when nobody is left for
 * another try, why the first one failed. */
struct gw_error gw_again_error(const struct gw_call *c, const struct kvr_client_end *e, char *text,
			       size_t size);

#endif
