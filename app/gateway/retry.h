/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_RETRY_H
#define GW_RETRY_H

/**
 * @file
 * Retries: which requests, which ranks to avoid, and the final error for the client.
 *
 * A request that fails at an engine, by status, by an error in the answer or by the death of the
 * engine, is retried while nothing of the answer has been sent to the client. The router is given
 * the rank where it failed. A request whose engine died is retried once, because it may be the
 * cause. Retries are at most a fifth of the requests of a thread, and 64 at once, so that they do
 * not multiply an overload.
 */

#include "call.h"

#define GW_TRIES 3 /* maximum number of attempts per request */

/** Return true if the request may be retried: nothing of an answer was sent, and the failure is not
 * its fault. */
bool gw_again(const struct gw_call *call, const struct kvr_client_end *e);

/** The agent of the worker, or of its prefill worker, accepts bodies in frames only, or is
 * unreachable for bodies. */
bool gw_retry_no_bodies(const struct gw_call *call, const struct kvr_client_end *e);

/** The rank failed, lacks capacity, or is lost: another rank may serve the request. */
bool gw_retry_elsewhere(const struct gw_call *call, const struct kvr_client_end *e);

/** Send the request to another rank. The engine's answer is kept in case no attempt succeeds. */
void gw_retry_leave(struct gw_call *call, const struct kvr_client_end *e);

/** A thread starts; a request was accepted. */
void gw_retry_begin(struct gw_thread *thread);
void gw_retry_earn(struct gw_thread *thread);

/** Return true if --request-ms, which covers all attempts, leaves time for one, and set left_ms.
 * Call before each attempt. */
bool gw_retry_in_time(struct gw_call *call);

/** Error for a request that ended with @p e, with its message in @p text of @p size bytes. If no
 * rank was left for another attempt, the error of the last one. */
struct gw_error gw_retry_error(const struct gw_call *call, const struct kvr_client_end *e,
			       char *text, size_t size);

#endif
