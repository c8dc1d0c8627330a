/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SEND_H
#define ROUTER_SEND_H

/**
 * @file
 * DISPATCH of several frames, and of legs: struct sending says what is on its way, pool::live.sends
 * which of them have something to send now, live.resends which wait for their acknowledgement.
 * Scheduler lcore, the only writer. Budget: SEND_TURN_BYTES a turn of the lcore.
 */

#include "lcore/out.h"
#include "state/router.h"

#define SEND_TURN_BYTES 32768u /* of an lcore: 8 to 15 us of copying */

/** A DISPATCH: the client's message with another header, fixed part and perhaps hints. */
struct dispatch_msg {
	const struct job *j;
	struct kvr_wire_hdr h;
	struct kvr_wire_request q;
	uint32_t hints_off; /* bytes [hints_off, body_off) of the client's message ... */
	uint32_t body_off;
	uint32_t hints_len; /* ... are these instead */
	const void *hints;
	uint32_t result_off; /* where the result begins, when there is one behind the body */
	uint32_t result_unit;
	const struct frame_list *result; /* the frames of the RESPONSE it came in, or NULL */
};

/** Send the message of a slot whose leg is SENT, in slices from this turn on, and repeat it until
 * it is acknowledged. */
void send_start(struct lcore *lc, struct pool *p, struct kvr_flight *slot);

/** Whether the router repeats the DISPATCH by itself. */
static inline bool send_kept(const struct request *r)
{
	return r->job != NULL && (r->rq.paired || (r->job->sent && r->job->held != 0));
}

/** Whether the message, of one leg, has been sent without an answer for as long as a worker may
 * take: its client is not told any more that it is kept, so that it comes again and may go
 * elsewhere. */
bool send_in_vain(struct lcore *lc, const struct request *r);
/** Whether the pool has a slot for another handle of it: without one it stays where it is. */
bool send_may_move(const struct request *r);

/** Neither send nor repeat it. Idempotent. */
void send_stop_leg(struct pool *p, struct kvr_flight *slot);

/** The same for both legs. */
void send_stop(struct request *r);

/** The same for legs that are not SENT any more; a job that is kept for that alone is given back.
 * The request has a job. */
void send_settle(struct request *r);

/** The job is kept for its repetition alone: stop that and give it back. */
void send_end(struct request *r);

/** The leg, of a pair, is to be aborted, and its worker must have the whole message for that: what
 * has not been sent of it still goes out at the pace of messages, then ABORT. @return false: all is
 * out. */
bool send_then_abort(struct kvr_flight *slot, uint16_t code);

/** The message of the request is not needed any more, but for send_then_abort(). @return whether
 * that has it; then it goes when that is done, or with the slot of the leg. */
bool send_keeps(struct request *r);

/** The worker says what it lacks. */
void send_missing(struct lcore *lc, struct pool *p, struct kvr_flight *slot,
		  const struct kvr_wire_missing *lack);

/** A leg that would be repeated now, and may go elsewhere instead; NULL: there is none. */
struct kvr_flight *send_unheard(struct lcore *lc, struct pool *p);

/** Once a turn: the next slices, and what nobody has acknowledged. */
void send_poll(struct lcore *lc, struct pool *p);

#endif
