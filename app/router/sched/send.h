/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SEND_H
#define ROUTER_SEND_H

/**
 * @file
 * DISPATCH of several frames, and of legs of a pair. struct sending has the progress,
 * pool::live.sends lists messages with frames to send, live.resends those that wait for their
 * acknowledgement. Writer: the scheduler lcore. Budget: SEND_TURN_BYTES a turn of the lcore.
 */

#include "lcore/out.h"
#include "state/router.h"

#define SEND_TURN_BYTES 32768u /* per lcore: 8 to 15 us of copying */

/** A DISPATCH: the client's message with another header and fixed part, and perhaps other hints. */
struct dispatch_msg {
	const struct job *j;
	struct kvr_wire_hdr h;
	struct kvr_wire_request q;
	uint32_t hints_off; /* bytes [hints_off, body_off) of the client's message ... */
	uint32_t body_off;
	uint32_t hints_len; /* ... are replaced by these */
	const void *hints;
	uint32_t result_off; /* offset of the result behind the body, if there is one */
	uint32_t result_unit;
	const struct frame_list *result; /* frames of the RESPONSE with the result, or NULL */
};

/** Send the message of a slot whose leg is SENT, in slices from this turn on, and retransmit it
 * until it is acknowledged. */
void send_start(struct lcore *lc, struct pool *pool, struct kvr_flight *slot);

/** Whether the router retransmits the DISPATCH itself. */
static inline bool send_kept(const struct request *req)
{
	return req->job != NULL && (req->rq.paired || (req->job->sent && req->job->held != 0));
}

/** Whether the message of a single leg has been unacknowledged for dispatch_ms: its client is then
 * no longer told that the router keeps it, so that a retransmission arrives and can be rerouted. */
bool send_unacked_long(struct lcore *lc, const struct request *req);
/** Whether the pool has a slot for another handle of the request; otherwise it cannot be rerouted.
 */
bool send_may_move(const struct request *req);

/** Stop sending and retransmitting. Idempotent. */
void send_stop_leg(struct pool *pool, struct kvr_flight *slot);

/** The same for both legs. */
void send_stop(struct request *req);

/** The same for legs that are not SENT any more; frees a job that was kept only for that. The
 * request has a job. */
void send_settle(struct request *req);

/** Stop retransmission of a job that is kept only for that, and free the job. */
void send_end(struct request *req);

/** Abort a leg of a pair whose worker must first have the complete message: the rest is sent at the
 * usual pace, then ABORT. @return false: everything was sent. */
bool send_then_abort(struct kvr_flight *slot, uint16_t code);

/** The request no longer needs its message, except for send_then_abort(). @return whether the
 * message is kept; it is freed after that or with the slot of the leg. */
bool send_keeps(struct request *req);

/** Handle the worker's report of missing fragments. */
void send_missing(struct lcore *lc, struct pool *pool, struct kvr_flight *slot,
		  const struct kvr_wire_missing *lack);

/** A leg that is due for retransmission and may be rerouted instead; NULL: none. */
struct kvr_flight *send_reroutable(struct lcore *lc, struct pool *pool);

/** Once a turn: send slices, and retransmit unacknowledged messages. */
void send_poll(struct lcore *lc, struct pool *pool);

#endif
