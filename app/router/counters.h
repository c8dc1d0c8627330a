/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_COUNTERS_H
#define ROUTER_COUNTERS_H

/**
 * @file
 * What the router counts beside its ports. Equations, for each row between two turns of its writer
 * (balance.h):
 *
 * every datagram for kvroute, one row per polling lcore:
 *   frames = routes + fragments + relayed + notes + events + control + heartbeats + rejected
 *          + ignored
 * every ROUTE message that reached a pool's scheduler:
 *   routes = queries + repeats + rejected + routed + queued + disagg
 *   queued + leg_queued = admitted + queue_left + queue_failed + waiting
 * every request of a decode pool that began with a prefill leg, and every time it started over:
 *   disagg + started_over = leg_routed + leg_queued + leg_refused + undecided + prefilling
 * every booking:
 *   routed + leg_routed + admitted = finished + errored + cancelled + refused + lost + expired
 *                                  + stopped + live
 * every session that was to be opened, every binding, every SESSION_CLOSE of a pool:
 *   opens = bound + open_refused + open_unanswered + open_ended + opening
 *   bound + affinity_bound = rebound + unbound + expired + invalidated + live
 *   closes = closed + close_unanswered + close_dropped + close_gone + closing
 * every KV_EVENTS frame that reached a pool's event stage:
 *   frames = applied + stale + gaps + dumps + unknown
 */

#include "kvr_stats.h"
#include "kvr_wire.h"

enum in_counter {
	IN_FRAMES,
	IN_ROUTES,     /* whole ROUTE in one frame, handed to the scheduler */
	IN_FRAGMENTS,  /* taken for reassembly */
	IN_RELAYED,    /* RESPONSE, RESPONSE_ACK switched */
	IN_NOTES,      /* other frames about requests, handed to the scheduler */
	IN_EVENTS,     /* KV_EVENTS handed to the event stage, or told to wait */
	IN_CONTROL,    /* frames handed to the control thread */
	IN_HEARTBEATS, /* HEARTBEAT answered */
	IN_REJECTED, /* refused, answered with REJECTED when that is allowed: see rejects by code */
	IN_IGNORED,  /* not ours, or nothing to do: sum of the next five */
	IN_SHORT,    /* shorter than a header */
	IN_MAGIC,    /* another protocol */
	IN_LATE,     /* acknowledgement of a request that is gone */
	IN_LIMITED,  /* repeatable frame of a source above its rate */
	IN_SHARE,    /* KV events of a source that has its share of the event ring */
	IN_RING_FULL, /* repeatable frame dropped because a ring was full; its sender repeats it */
	/* outside the sum */
	IN_HANDED,	  /* fragments that another ingress lcore received and handed over */
	IN_MESSAGES,	  /* ROUTE messages completed from fragments */
	IN_REASM_OUT,	  /* fragments given up: their message never became whole */
	IN_REASM_EVICTED, /* messages given up because of a bound or because buffers were scarce */
	IN_ASKED,	  /* MISSING sent */
	IN_UNANSWERED,	  /* refusals not answered: no room, or too many for one source */
	IN_NO_MBUF,	  /* an answer could not be sent for want of a buffer */
	IN_EGRESS_FULL,	  /* frames of other lcores dropped: egress ring full */
	IN_SPLIT,	  /* messages cut anew for a smaller path */
	IN_UNSENDABLE,	  /* messages or frames that fit no frame of their path */
	IN_COUNTERS
};

enum pool_counter {
	PC_ROUTES,
	PC_QUERIES,
	PC_REPEATS,
	PC_REJECTED,
	PC_ROUTED,
	PC_QUEUED,
	PC_ADMITTED,
	PC_QUEUE_LEFT,
	PC_QUEUE_FAILED,
	PC_WAITING, /* gauge */
	PC_FINISHED,
	PC_ERRORED,
	PC_CANCELLED,
	PC_REFUSED,
	PC_LOST,
	PC_EXPIRED,
	PC_LIVE, /* gauge: bookings */
	PC_DISAGG,
	PC_BYPASSED,
	PC_STARTED_OVER,
	PC_LEG_ROUTED,
	PC_LEG_QUEUED,
	PC_LEG_REFUSED,
	PC_UNDECIDED,
	PC_PREFILLING, /* gauge */
	PC_STOPPED,
	PC_CLIENT_GONE,
	PC_LATE,
	PC_OUT_OF_TURN,
	PC_STRANGERS,
	PC_NOTES_LOST,
	PC_MADE_ROOM,
	PC_LOADS,
	PC_DISPATCHES,
	PC_PREDICTED_TOKENS,
	PC_ACTUAL_TOKENS,
	PC_PREDICTIONS,
	PC_PREDICTIONS_LOST,
	PC_COUNTERS
};

enum session_counter {
	SC_OPENS,
	SC_OPENING, /* gauge */
	SC_BOUND,
	SC_OPEN_REFUSED,
	SC_OPEN_UNANSWERED,
	SC_OPEN_ENDED,
	SC_REFUSED,
	SC_OPEN_BUSY,
	SC_AFFINITY_BOUND,
	SC_REBOUND,
	SC_UNBOUND,
	SC_EXPIRED,
	SC_INVALIDATED,
	SC_LIVE, /* gauge */
	SC_CLOSES,
	SC_CLOSED,
	SC_CLOSE_UNANSWERED,
	SC_CLOSE_DROPPED,
	SC_CLOSE_GONE,
	SC_CLOSING, /* gauge */
	SC_COUNTERS
};

enum event_counter {
	EC_FRAMES,
	EC_APPLIED,
	EC_STALE,
	EC_GAPS,
	EC_DUMPS,
	EC_UNKNOWN,
	EC_BUSY,
	EC_STORED_BLOCKS,
	EC_REMOVED_BLOCKS,
	EC_CLEARS,
	EC_COUNTERS
};

extern const struct kvr_stats_def router_in_stats;
extern const struct kvr_stats_def router_pool_stats;
extern const struct kvr_stats_def router_event_stats;
extern const struct kvr_stats_def router_session_stats;
/** One counter for each enum kvr_wire_code. */
const struct kvr_stats_def *router_reject_stats(void);

#endif
