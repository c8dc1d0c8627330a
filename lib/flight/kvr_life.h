/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_LIFE_H
#define KVR_LIFE_H

/**
 * @file
 * What may happen to a request in which state: the one table that allows changes of state. Frames
 * come from peers that may be late, repeat themselves, or lie; an event that the table does not
 * allow changes nothing and is counted by the caller.
 *
 *   QUEUED --hold--> HELD --opened, send--> DISPATCHED --taken, item--> RUNNING
 *      |               |                        |                          |
 *      +---------------+------ cancel, fail ----+-- refused, fin ----------+--> ENDED --> FREE
 *
 * Pure. Any thread.
 */

#include <stdint.h>

enum kvr_flight_state {
	KVR_RQ_FREE = 0,
	KVR_RQ_QUEUED,	   /* accepted, waits for capacity */
	KVR_RQ_HELD,	   /* booked, its worker must do something first */
	KVR_RQ_DISPATCHED, /* sent to its worker */
	KVR_RQ_RUNNING,	   /* acknowledged by the worker */
	KVR_RQ_ENDED,	   /* no booking any more; frames are still relayed */
	KVR_RQ_STATES
};

enum kvr_life_event {
	/* orders of the router */
	KVR_LIFE_HOLD,	  /* booked; its worker is asked to open a session */
	KVR_LIFE_SEND,	  /* DISPATCH goes out, also again */
	KVR_LIFE_FAIL,	  /* refused, expired, worker lost, stopped for another try */
	KVR_LIFE_RELEASE, /* the slot is given back */
	/* what agents say */
	KVR_LIFE_OPENED,      /* SESSION_OPENED */
	KVR_LIFE_TAKEN,	      /* DISPATCH_ACK 0 */
	KVR_LIFE_REFUSED,     /* DISPATCH_ACK, another code */
	KVR_LIFE_ITEM,	      /* RESPONSE, PROGRESS; not the last */
	KVR_LIFE_FIN,	      /* the last one */
	KVR_LIFE_ABORT_ACKED, /* ABORT_ACK */
	/* what clients say */
	KVR_LIFE_CANCEL,
	KVR_LIFE_FIN_ACKED, /* the client has the last item */
	KVR_LIFE_EVENTS
};

enum kvr_life_verdict {
	KVR_LIFE_NEVER, /**< nobody who keeps to the protocol says this now: count it, do nothing */
	KVR_LIFE_LATE,	/**< said before, or overtaken: nothing is left to do */
	KVR_LIFE_GO,	/**< act on it; the state is *next from now on */
};

/**
 * What @p event means to a request in @p state.
 * @param next the state after it: another one with KVR_LIFE_GO only. May be NULL.
 */
enum kvr_life_verdict kvr_life(enum kvr_flight_state state, enum kvr_life_event event,
			       enum kvr_flight_state *next);

/** Names for tests and people; "?" for anything else. */
const char *kvr_life_state_name(unsigned int state);
const char *kvr_life_event_name(unsigned int event);

#endif
