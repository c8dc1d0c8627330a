/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_AGAIN_H
#define GW_AGAIN_H

/**
 * @file
 * Requests that are sent again: which, where not, and what their client is told in the end.
 *
 * A request that an engine fails or refuses, with a status, an error in its answer or by dying, is
 * sent again while nothing of the answer has gone to the client, and the router is told where it
 * has failed. One that an engine died of is sent again once: it may be the cause. Retries are at
 * most a fifth of the requests of a thread, and 64 at once, so that they do not multiply an
 * overload.
 */

#include "call.h"

#define GW_TRIES 3 /* a request is handed to routers so often at most */

/** May it be sent again: nothing of an answer has gone out, and it is not its own fault. */
bool gw_again(const struct gw_call *c, const struct kvr_client_end *e);

/** The worker's agent takes bodies in frames alone, or listens where nobody reaches it; or that of
 * the worker of its prefill leg. */
bool gw_again_no_bodies(const struct gw_call *c, const struct kvr_client_end *e);

/** Its rank has failed it, has no room for it, or has gone: another rank may take it. */
bool gw_again_elsewhere(const struct gw_call *c, const struct kvr_client_end *e);

/** It is sent away from there; what the engine has answered is kept for the case that nothing
 * better comes. */
void gw_again_leave(struct gw_call *c, const struct kvr_client_end *e);

/** A thread begins; it has taken a request. */
void gw_again_begin(struct gw_thread *t);
void gw_again_earn(struct gw_thread *t);

/** Whether --request-ms, which is for all its tries, leaves time for one: left_ms of it. To be
 * called before each. */
bool gw_again_in_time(struct gw_call *c);

/** What its client is told when it ends so, in @p text of @p size, too: when nobody is left for
 * another try, why the last one failed. */
struct gw_error gw_again_error(const struct gw_call *c, const struct kvr_client_end *e, char *text,
			       size_t size);

#endif
