/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REQUEST_H
#define KVR_REQUEST_H

/**
 * @file
 * The state machine of one request, from arrival to last frame. Input: events. Output: orders,
 * which an executor (the router, kvroute-explain, a simulator) carries out. All rules of a request
 * are in this library; an executor has none.
 *
 * Data structure. The main leg answers the client. The prefill leg is used when the pool is the
 * decode half of a pair. Each leg is in one of the states below. table.c holds the only table of
 * permitted events and successors per state. An event that the table does not permit is counted,
 * gives no orders and changes nothing. Verdict LATE: a repeated or overtaken event. Verdict NEVER:
 * a violation of the protocol.
 *
 *   FREE -> UNDECIDED -> DECIDING -> QUEUED -> HELD -> SENT -> RUNNING -> ENDED -> FREE
 *               ^            |          |        |       |        |
 *               +------------+--- another attempt +-------+--------+
 *
 *   UNDECIDED  main: waits for its prefill leg       HELD     booked, waits for a session to open
 *   DECIDING   the scheduler has been asked          SENT     not acknowledged by its worker
 *   QUEUED     in the queue of its pool              RUNNING  acknowledged by its worker
 *   ENDED      no booking; last frames may be retransmitted
 *
 * Questions. Three orders require an answer, which is the next event of the request: DECIDE
 * (ROUTED, QUEUED or REFUSED), HOLD and RENEW (ROOM or NO_ROOM). An array holds at most one
 * question, as its last order. The request takes no other event before the answer. An executor that
 * receives LOST inside a call of the scheduler library therefore passes it on after that call. The
 * step functions call struct kvr_rq_ops, whose functions must not change anything.
 *
 * Layout. struct kvr_request has three cache lines. The first holds everything that an aggregated
 * request without session uses, the second the prefill leg, the third the data of retransmissions.
 * Data that is needed only until the message has been sent (hints, derived requests of the legs) is
 * in struct kvr_rq_msg, session data in struct kvr_rq_session. The caller owns all memory.
 *
 * Writers. Only the thread that schedules the pool writes (one thread for both pools of a pair).
 * The step functions write the request, message, session and counters. The executor writes the
 * switches of the pool (`closed`, `expected`) between steps and may read everything.
 *
 * Budget: 50 ns for all events of an aggregated request without session (five steps), 120 cycles of
 * a 2.1 GHz time stamp counter. bench-request measures 75 ns on a core with a busy hyperthread.
 * Nothing allocates, locks, logs, reads a clock or calls the kernel: time and randomness are
 * arguments.
 */

#include "kvr_disagg.h"
#include "kvr_request_pool.h"
#include "kvr_sched.h"
#include "kvr_session.h"
#include "kvr_types.h"
#include "protocol.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/** State of a leg. */
enum kvr_rq_state {
	KVR_RQS_FREE,
	KVR_RQS_UNDECIDED,
	KVR_RQS_DECIDING,
	KVR_RQS_QUEUED,
	KVR_RQS_HELD,
	KVR_RQS_SENT,
	KVR_RQS_RUNNING,
	KVR_RQS_ENDED,
	KVR_RQ_STATES_N
};

/* ---- events ------------------------------------------------------------------------------ */

/** Kinds of events. Events marked "leg" name their leg; `leg` of the others is KVR_LEG_MAIN. */
enum kvr_rq_event_kind {
	/* from the executor */
	KVR_RQE_ARRIVED,  /**< ROUTE of a new request; see kvr_request_arrive() */
	KVR_RQE_ROOM,	  /**< answer to HOLD, RENEW: done */
	KVR_RQE_NO_ROOM,  /**< answer to HOLD, RENEW: not possible; code: reason */
	KVR_RQE_LINGERED, /**< leg: the time to linger is over, or its slot is needed */
	KVR_RQE_STOP,	  /**< forced end; code: reason, OK: the router stops */
	KVR_RQE_UNACKED,  /**< leg: its worker makes no progress; see kvr_request_unacked() */
	/* from the scheduler, leg; d: decision */
	KVR_RQE_ROUTED,	      /**< booked, or the answer to a query */
	KVR_RQE_QUEUED,	      /**< waits in the queue */
	KVR_RQE_REFUSED,      /**< rejected by its pool */
	KVR_RQE_ADMITTED,     /**< booked after a time in the queue */
	KVR_RQE_NOT_ADMITTED, /**< left the queue without a booking */
	KVR_RQE_LOST,	      /**< its worker was lost, and the booking with it */
	KVR_RQE_EXPIRED,      /**< its booking was released after silence; the leg goes on */
	/* from a worker, leg */
	KVR_RQE_TAKEN,	    /**< the worker runs the leg; repeated by every report */
	KVR_RQE_DECLINED,   /**< the worker declines the leg; code: from the worker */
	KVR_RQE_ITEM,	    /**< progress, not the last item; tokens, FIRST */
	KVR_RQE_FIN,	    /**< the last item; tokens, FIRST, ERROR, CANCELLED, RESULT, FAILED,
			     * REFUSED */
	KVR_RQE_ABORTED,    /**< the worker acknowledged ABORT */
	KVR_RQE_OPENED,	    /**< the worker opened the session */
	KVR_RQE_NOT_OPENED, /**< the worker rejects the open; code: from the worker */
	KVR_RQE_UNANSWERED, /**< no answer to the open within KVR_RQ_OPEN_NS */
	/* from the client */
	KVR_RQE_CANCEL,
	KVR_RQE_REPEATED,  /**< ROUTE retransmitted; SAME, RESEND */
	KVR_RQE_PROBED,	   /**< question for the state of the request */
	KVR_RQE_FIN_ACKED, /**< the client acknowledged the last item */
	/* from timers of the executor */
	KVR_RQE_DEADLINE,    /**< the deadline of the client has passed */
	KVR_RQE_CLIENT_GONE, /**< silence of the client. SENT: the client will not retransmit;
			      * RUNNING: only after a release */
	KVR_RQE_LEASE_OVER,  /**< book only: the client did not renew the lease */
	KVR_RQE_UNWANTED,    /**< prefill leg: did not end in time after the client was answered */
	KVR_RQ_EVENTS_N
};

/** Time from OPEN to UNANSWERED. */
#define KVR_RQ_OPEN_NS UINT64_C(5000000000)

#define KVR_RQEF_FIRST	   0x01u  /**< the first token exists */
#define KVR_RQEF_ERROR	   0x02u  /**< FIN: error of the engine */
#define KVR_RQEF_CANCELLED 0x04u  /**< FIN: after CANCEL or ABORT */
#define KVR_RQEF_RESULT	   0x08u  /**< FIN of a prefill leg: carries the input of the decode leg */
#define KVR_RQEF_ANSWERED  0x10u  /**< the client has received an item of the main leg */
#define KVR_RQEF_SAME	   0x20u  /**< REPEATED: the message is unchanged */
#define KVR_RQEF_RESEND	   0x40u  /**< REPEATED: retransmit to the worker if not acknowledged */
#define KVR_RQEF_LAST	   0x80u  /**< no further attempt */
#define KVR_RQEF_FAILED	   0x100u /**< FIN: counts as a failure of the rank */
#define KVR_RQEF_REFUSED   0x200u /**< FIN: the engine had no capacity */

struct kvr_rq_event {
	uint8_t kind; /**< enum kvr_rq_event_kind */
	uint8_t leg;  /**< KVR_LEG_MAIN, KVR_LEG_PREFILL */
	uint16_t flags;
	uint32_t code;	 /**< NO_ROOM, STOP: enum kvr_code; DECLINED, NOT_OPENED: from the worker;
			  * FIN of a prefill leg with ERROR: HTTP status */
	uint32_t tokens; /**< ITEM, FIN: tokens generated so far; 0: unknown */
	const struct kvr_sched_decision *d; /**< scheduler events; read during the step only */
	/** REPEATED with SAME and RESEND: the retransmitted message. The request keeps it as r->msg
	 * when it needs a message. NULL: the executor still has the first one. */
	struct kvr_rq_msg *msg;
};

/** Return the event for decision @p d. @param waited @p d comes from kvr_sched_poll(). */
enum kvr_rq_event_kind kvr_request_decided(const struct kvr_sched_decision *d, bool waited);

/* ---- orders ------------------------------------------------------------------------------ */

enum kvr_rq_order_kind {
	KVR_RQO_NONE,
	/* questions: the last of an array */
	KVR_RQO_DECIDE, /**< leg: route `req` in its pool; if there is no slot: REFUSED, BAD_SLOT */
	KVR_RQO_HOLD,	/**< keep the message: the request will wait */
	KVR_RQO_RENEW,	/**< main leg: new slot and handle; the old slot lingers, its items dropped
			 */
	/* to workers */
	KVR_RQO_SEND,	/**< leg: its message, as attempt r->attempt */
	KVR_RQO_BOOKED, /**< leg, instead of SEND for book: the client may now report about it */
	KVR_RQO_ABORT,	/**< leg: retransmit ABORT until ABORTED; why.code, OK: CANCEL; how */
	KVR_RQO_OPEN,	/**< main leg: open the session at its worker; drop pending CLOSEs of it */
	KVR_RQO_UNOPEN, /**< main leg: stop retransmitting the open; how: result */
	KVR_RQO_CLOSE,	/**< send CLOSE of session `id` to worker `to`; how: reason */
	/* to the client */
	KVR_RQO_ACCEPTED,  /**< current state and worker of the request */
	KVR_RQO_REJECTED,  /**< `why`: reason */
	KVR_RQO_CANCELLED, /**< answer to CANCEL */
	/* to the scheduler and the index */
	KVR_RQO_KEEP,	      /**< leg: renew its booking; PREFILL_DONE and OUTPUT renew it too */
	KVR_RQO_PREFILL_DONE, /**< leg */
	KVR_RQO_OUTPUT,	      /**< leg: n tokens generated so far */
	KVR_RQO_FREE,	      /**< leg: end its booking, released or not; n: enum
			       * kvr_sched_outcome */
	KVR_RQO_OUTCOME,      /**< leg: report outcome n while its booking goes on */
	KVR_RQO_LEAVE,	      /**< leg: remove it from the queue of its pool */
	KVR_RQO_PREDICT,      /**< leg: enter the prompt as predicted blocks of its rank */
	/* to the executor itself */
	KVR_RQO_PREFILL, /**< r->way is final: the prefill leg has a worker, or is bypassed */
	KVR_RQO_SESSION, /**< session `id` at `to`; how: change; BOUND: `ref`, and n 1 if the new
			  * binding replaces another */
	KVR_RQO_END,	 /**< leg: ended, how: reason; its slot lingers */
	KVR_RQO_RELEASE, /**< leg: free its slot */
	KVR_RQO_MESSAGE_OVER, /**< free the message */
	KVR_RQO_DONE,	      /**< free the request */
	KVR_RQ_ORDERS_N
};

/** How a leg ended. */
enum kvr_rq_how {
	KVR_RQ_FINISHED,
	KVR_RQ_ERRORED,	   /**< the engine failed, or returned an error */
	KVR_RQ_OVERLOADED, /**< the engine had no capacity */
	KVR_RQ_CANCELLED,
	KVR_RQ_STOPPED, /**< the other leg failed */
	KVR_RQ_DECLINED,
	KVR_RQ_LOST,
	KVR_RQ_EXPIRED,
	KVR_RQ_LEFT,	     /**< left the queue: cancelled, deadline or silence of the client */
	KVR_RQ_NOT_ADMITTED, /**< rejected while in the queue */
	KVR_RQ_REFUSED,	     /**< rejected by its pool, or for lack of a session or memory */
	KVR_RQ_UNACKED,	     /**< not acknowledged by its worker; rerouted */
	KVR_RQ_CUT,	     /**< the router stops */
};

/** Change of a session. */
enum kvr_rq_session_how {
	KVR_RQ_BOUND,
	KVR_RQ_UNBOUND,	     /**< closed by its client */
	KVR_RQ_SESSION_OVER, /**< timed out */
	KVR_RQ_OPEN_FAILED,
	KVR_RQ_INVALIDATED,	 /**< affinity ended: failure, or its worker is not available */
	KVR_RQ_CLOSED_BY_CLIENT, /**< CLOSE: the request with the close action has ended */
	KVR_RQ_MOVED,		 /**< CLOSE: opened at another worker */
	KVR_RQ_MAYBE_OPEN,	 /**< CLOSE: the open was abandoned before its answer */
};

/** Limit that was exceeded: detail[0] of EXPIRED. */
enum kvr_rq_over_kind {
	KVR_RQ_DEADLINE = 1, /**< deadline of the client */
	KVR_RQ_SILENT = 2,   /**< silence of the client */
};

struct kvr_rq_why {
	uint16_t code; /**< enum kvr_code */
	bool retryable;
	uint8_t policy_class; /**< QUEUE_REJECTED: index */
	uint64_t detail[4];
};
_Static_assert(KVR_POOL_CLASSES_MAX <= UINT8_MAX, "policy_class holds the index of a class");

struct kvr_rq_order {
	uint8_t kind; /**< enum kvr_rq_order_kind */
	uint8_t leg;
	uint8_t how; /**< enum kvr_rq_how; session orders: enum kvr_rq_session_how, and `leg`
		      * names the pool */
	uint32_t n;
	union {
		const struct kvr_sched_req *req; /**< DECIDE */
		struct kvr_rq_why why;		 /**< ABORT, REJECTED */
		struct {
			const void *id; /**< valid until the next step or session call */
			uint32_t id_len;
			struct kvr_session_ref ref;
			struct kvr_session_binding to; /**< low half of tag: epoch of the worker */
		} session;
	};
};

#define KVR_RQ_ORDERS_MAX 24u /**< maximum of one step */

struct kvr_rq_orders {
	uint32_t n;
	struct kvr_rq_order v[KVR_RQ_ORDERS_MAX];
};

/* ---- a request --------------------------------------------------------------------------- */

/** Scheduler requests of the legs of a pair. Memory: caller; step: rw. */
struct kvr_rq_pair {
	struct kvr_sched_req preq, dreq;
	struct kvr_hints phints, dhints;
	struct kvr_str *required;	      /**< caller: one entry more than the hints have */
	struct kvr_hint_preferred *preferred; /**< caller: the same */
	uint64_t failed_detail;		      /**< of the previous attempt */
	uint64_t exclude_worker;	      /**< prefill worker that failed */
	uint16_t failed;		      /**< enum kvr_code; OK: first attempt */
	bool exclude;
	bool soft;	  /**< ... unless no other worker is eligible */
	uint8_t transfer; /**< of the prefill worker, as in struct kvr_rq_worker */
	double weight;
	char taint[KVR_RQ_TAINT_MAX];
};

/** Content of ROUTE. Memory: caller, until KVR_RQO_MESSAGE_OVER; step: rw. */
struct kvr_rq_msg {
	struct kvr_sched_req req; /**< its hints are the next field */
	struct kvr_hints hints;
	struct kvr_rq_pair *pair; /**< NULL: the pool has no prefill half */
	/** Book only: nothing is sent to workers, both legs of a pair are booked at once, and the
	 * client reports the first token (ITEM) and the end (FIN). */
	bool book;
	/** The worker sends items to the client directly; they are not visible here. */
	bool direct;
	/** ACCEPTED only after the worker has acknowledged the request, or in reply to a question.
	 */
	bool quiet;
};

/** Session of a request. Memory: caller, until DONE (until the end of kvr_request_arrive() if none
 * of its pools has sessions); step: rw. */
struct kvr_rq_session {
	LIST_ENTRY(kvr_rq_session) opening;
	uint64_t timeout_ns; /**< caller: of an open */
	uint64_t tag;	     /**< caller: high 31 bits of the binding's tag */
	uint8_t action;	     /**< caller: enum kvr_rq_action; the step clears it */
	bool reserved;	     /**< memory and id are reserved for the binding */
	bool closes;	     /**< unbound: send CLOSE to `closing` when the main leg has ended */
	uint8_t part[2];     /**< by leg */
	uint8_t pin[2];
	uint16_t id_len; /**< caller */
	uint64_t present_before[2];
	uint32_t rank_before[2];
	struct kvr_session_key key[2];
	struct kvr_session_ref ref[2];
	struct kvr_session_binding closing;
	char id[KVR_SESSION_ID_MAX]; /**< caller */
};

enum kvr_rq_action {
	KVR_RQ_USE,
	KVR_RQ_OPEN,
	KVR_RQ_CLOSE,
	KVR_RQ_CLOSED, /**< step: KVR_RQ_CLOSE was executed */
};

struct kvr_leg {
	uint8_t state; /**< enum kvr_rq_state */
	bool booked;
	bool aborting;	   /**< ABORT sent, not acknowledged */
	bool released : 1; /**< booked without load, after silence of its worker */
	bool trial : 1;	   /**< copy of kvr_sched_decision::trial */
	uint32_t rank;	   /**< dense index of its booking */
	uint64_t worker;
	uint32_t epoch; /**< of the worker */
	uint32_t dp_rank;
	uint32_t overlap_blocks;
	uint32_t required_blocks;
	uint32_t cached_tokens;
};

/** Last state that was reported to the client. */
enum kvr_rq_notified { KVR_RQ_NOTHING, KVR_RQ_WAITS, KVR_RQ_SERVED, KVR_RQ_OVER };

/** Zeroed = FREE. Step: rw; executor: ro. */
struct kvr_request {
	alignas(64) struct kvr_rq_pool *pool; /**< of the main leg */
	struct kvr_rq_session *session;	      /**< NULL: none */
	uint8_t notified;		      /**< enum kvr_rq_notified */
	uint8_t way;			      /**< enum kvr_way */
	uint8_t asks;			      /**< unanswered question, or NONE */
	uint8_t reroutes;		      /**< attempts left */
	uint8_t tries;			      /**< attempts after the first */
	bool query : 1;
	bool book : 1;
	bool probe : 1;	    /**< health probe: not part of sessions, index, load or counters */
	bool paired : 1;    /**< uses both pools */
	bool held : 1;	    /**< the executor keeps the message */
	bool sent : 1;	    /**< a message was sent to a worker */
	bool forgotten : 1; /**< does not linger */
	bool direct : 1;    /**< copy of kvr_rq_msg::direct */
	bool quiet : 1;	    /**< copy of kvr_rq_msg::quiet */
	bool stays : 1;	    /**< the main leg is pinned by the client or an opened session */
	bool answers : 1;   /**< the worker of the main leg has sent an item */
	bool retried : 1;   /**< failed at another rank before: perhaps the request is at fault */
	struct kvr_leg leg[2];	/**< KVR_LEG_MAIN, KVR_LEG_PREFILL */
	uint32_t attempt;	/**< number of SEND of the main leg, from 0 */
	uint64_t room;		/**< bootstrap */
	struct kvr_rq_msg *msg; /**< NULL: freed */
	struct kvr_rq_why end;	/**< reason to repeat; OK: ended by its last item */
	uint64_t sent_ns[2];	/**< by leg: first SEND to its worker, by kvr_rq_ctx.now */
};
_Static_assert(offsetof(struct kvr_request, leg[1]) == 64,
	       "the main leg is in the first cache line");
_Static_assert(sizeof(struct kvr_request) == 192, "three cache lines");

struct kvr_rq_ctx {
	const struct kvr_rq_ops *ops;
	void *arg;
	uint64_t now;	       /**< ns, monotonic */
	struct kvr_rand *rand; /**< for bootstrap rooms */
};

enum kvr_rq_verdict { KVR_RQ_NEVER, KVR_RQ_LATE, KVR_RQ_GO };

/** Verdict of the table for @p event at a leg in @p state. Any value; any thread. */
enum kvr_rq_verdict kvr_request_may(unsigned int state, unsigned int event);

/** Return true if state @p to may follow state @p from. Any value; any thread. */
bool kvr_request_may_follow(unsigned int from, unsigned int to);

/** Names for tests and logs; "?" for other values. */
const char *kvr_request_state_name(unsigned int state);
const char *kvr_request_event_name(unsigned int event);
const char *kvr_request_order_name(unsigned int order);

/**
 * Event ARRIVED: start request @p r in @p pool. @p r is zeroed or DONE. The caller fills @p msg and
 * @p session (NULL: none) as their comments state.
 */
enum kvr_rq_verdict kvr_request_arrive(const struct kvr_rq_ctx *c, struct kvr_request *r,
				       struct kvr_rq_pool *pool, struct kvr_rq_msg *msg,
				       struct kvr_rq_session *session, struct kvr_rq_orders *out);

/**
 * Apply event @p e to @p r and write the orders to @p out. With a verdict other than GO, @p out is
 * empty, @p r is unchanged, and the event is counted.
 */
enum kvr_rq_verdict kvr_request_step(const struct kvr_rq_ctx *c, struct kvr_request *r,
				     const struct kvr_rq_event *e, struct kvr_rq_orders *out);

/** Return true if a worker has the prefill leg of @p r although the client has its last answer. */
static inline bool kvr_request_unwanted(const struct kvr_request *r)
{
	const uint32_t state = r->leg[KVR_LEG_PREFILL].state;

	return r->notified == KVR_RQ_OVER && !r->book &&
	       (state == KVR_RQS_SENT || state == KVR_RQS_RUNNING);
}

/**
 * Earliest time to reroute a leg (RULES.md, section 9.2), because its worker did not acknowledge it
 * or the prefill worker that held its blocks was lost. UINT64_MAX: not in this state. From then on,
 * event UNACKED reroutes it, and so does REPEATED with a message (unless that pins the leg). A
 * decode leg that lost its blocks and cannot start over (no attempt left, or direct) ends instead.
 */
uint64_t kvr_request_reroute_due(const struct kvr_rq_ctx *c, const struct kvr_request *r,
				 uint32_t leg);

/** Return true if that time has passed. */
static inline bool kvr_request_unacked(const struct kvr_rq_ctx *c, const struct kvr_request *r,
				       uint32_t leg)
{
	return kvr_request_reroute_due(c, r, leg) <= c->now;
}

/** Return true if no leg is booked, waits or lingers. The caller may then reuse the memory. */
static inline bool kvr_request_done(const struct kvr_request *r)
{
	return r->leg[KVR_LEG_MAIN].state == KVR_RQS_FREE &&
	       r->leg[KVR_LEG_PREFILL].state == KVR_RQS_FREE;
}

/** The pool of a leg. */
static inline struct kvr_rq_pool *kvr_request_pool(const struct kvr_request *r, uint32_t leg)
{
	return leg == KVR_LEG_MAIN ? r->pool : r->pool->prefill;
}

/* ---- sessions beside requests ------------------------------------------------------------ */

/** Expire session @p ref of @p p, which kvr_session_due() reported, unless it was used since. */
void kvr_request_session_due(const struct kvr_rq_ctx *c, struct kvr_rq_pool *p,
			     struct kvr_session_ref ref, struct kvr_rq_orders *out);

/** Matches the session of any client; for operators. Not the tag of a client. */
#define KVR_RQ_TAG_ANY UINT64_MAX

/**
 * End a session for the client with @p tag, as in struct kvr_rq_session, or KVR_RQ_TAG_ANY.
 * @return KVR_OK; KVR_E_UNKNOWN_SESSION not bound; KVR_E_NOT_ALLOWED bound by another client.
 */
enum kvr_code kvr_request_session_release(const struct kvr_rq_ctx *c, struct kvr_rq_pool *p,
					  const void *id, uint32_t len, uint64_t tag,
					  struct kvr_rq_orders *out);

#endif
