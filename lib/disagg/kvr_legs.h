/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_LEGS_H
#define KVR_LEGS_H

/**
 * @file
 * The two legs of one disaggregated request as a state machine: what has happened goes in, what
 * must be done comes out (behaviour specification, section 9.2). Pure: six bytes and a table of
 * rules, so that every leg x moment x cause can be tried in a unit test.
 *
 *   prefill    none -> waiting -> live -> ended
 *   decode     none -> waiting -> live -> ended
 *
 *   bootstrap  the decode leg is routed when the prefill leg is live
 *   sync       the decode leg is routed when the prefill leg is done; its result goes along
 *
 * Each leg is a booking of its own pool. A leg that waits is in its pool's queue; a live one is
 * booked and sent to its worker. The prefill booking ends when the leg has ended, at the decode
 * leg's first output at the latest.
 *
 * Failure rules. A prefill leg that fails before the decode leg has produced anything takes the
 * decode leg with it; the request starts over while reroutes are left, else it is rejected. A
 * prefill worker that goes when its leg has ended and the decode leg waits is a failure, too. A
 * decode leg that fails rejects the request and leaves the prefill leg alone: it runs to its end
 * so that its worker frees the blocks. A client that goes away stops a decode leg that runs and a
 * prefill leg that waits; with a transfer under way (prefill live or done, decode not sent yet)
 * the decode leg is still routed, sent and then aborted, because only its worker can release what
 * was transferred.
 *
 * Thread: the scheduler lcore that serves both pools. Cost: a few nanoseconds an event.
 */

#include <stdbool.h>
#include <stdint.h>

enum kvr_leg_state {
	KVR_LEG_NONE,	 /**< not decided */
	KVR_LEG_WAITING, /**< in the queue of its pool */
	KVR_LEG_LIVE,	 /**< booked and sent */
	KVR_LEG_ENDED,
};

struct kvr_legs {
	uint8_t prefill;  /**< enum kvr_leg_state */
	uint8_t decode;	  /**< enum kvr_leg_state */
	uint8_t reroutes; /**< how often the request may still start over */
	bool bootstrap;	  /**< set by the caller before KVR_LEGS_PREFILL_LIVE */
	bool cancelled;	  /**< the client is gone; what is in flight goes on */
	bool output;	  /**< the decode leg has produced something */
};

enum kvr_legs_event {
	KVR_LEGS_PREFILL_WAITS,	 /**< queued */
	KVR_LEGS_PREFILL_LIVE,	 /**< booked, at once or admitted */
	KVR_LEGS_PREFILL_DONE,	 /**< its last item says so */
	KVR_LEGS_PREFILL_FAILED, /**< refused by pool or worker, error, worker lost, expired */
	KVR_LEGS_DECODE_WAITS,
	KVR_LEGS_DECODE_LIVE,
	KVR_LEGS_DECODE_OUTPUT,	 /**< first item */
	KVR_LEGS_DECODE_DONE,	 /**< last item */
	KVR_LEGS_DECODE_REFUSED, /**< by its pool: it was never booked, and does not wait */
	KVR_LEGS_DECODE_FAILED,	 /**< refused by the worker, worker lost, expired */
	KVR_LEGS_RESULT_LOST,	 /**< sync: the decode leg is booked, but the prefill worker has
				  * gone, and what it has computed with it */
	KVR_LEGS_CANCEL,
	KVR_LEGS_EVENTS
};

/** What to do, in the order of the bits. */
#define KVR_LEGS_PREFILL_LEAVE 0x01u /**< take the prefill leg out of its queue */
#define KVR_LEGS_PREFILL_END   0x02u /**< the prefill booking, if any, is over */
#define KVR_LEGS_DECODE_LEAVE  0x04u /**< take the decode leg out of its queue */
#define KVR_LEGS_DECODE_END    0x08u /**< the decode booking is over */
#define KVR_LEGS_DECODE_ABORT  0x10u /**< the same, and its worker must stop */
#define KVR_LEGS_ROUTE_DECODE  0x20u /**< decide the decode leg now */
#define KVR_LEGS_START_OVER    0x40u /**< both legs anew; the machine is back at none, none */
#define KVR_LEGS_REJECT	       0x80u /**< tell the client that the request has failed */

/** Both legs undecided; the request may start over @p reroutes times. */
void kvr_legs_init(struct kvr_legs *l, uint8_t reroutes);

/** @p event has happened. Events that come late or twice do nothing. @return KVR_LEGS_* bits. */
uint32_t kvr_legs_step(struct kvr_legs *l, enum kvr_legs_event event);

/** Nothing is waiting or live any more, and nothing will be. */
static inline bool kvr_legs_over(const struct kvr_legs *l)
{
	return l->decode == KVR_LEG_ENDED &&
	       (l->prefill == KVR_LEG_ENDED || l->prefill == KVR_LEG_NONE);
}

#endif
