/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REQUEST_H
#define KVR_REQUEST_H

/**
 * @file
 * The life of one request, from its arrival to its last frame: what happens goes in as an event,
 * what must be done comes out as orders. All rules of that life stand here and nowhere else; an
 * executor (the router, kvroute-explain, a simulator) carries the orders out and has no rule.
 *
 * Data structure. A request has a main leg, which answers the client, and a prefill leg that is
 * used when the pool is the decode half of a pair. A request of an aggregated pool is the same
 * with one leg. Each leg is a place in the life below; table.c holds the one table of what may
 * happen where and which place may follow. An event that the table does not allow is counted
 * (late: said before or overtaken; never: nobody who keeps to the protocol says it now), answers
 * with no order and changes nothing.
 *
 *   FREE -> UNDECIDED -> DECIDING -> QUEUED -> HELD -> SENT -> RUNNING -> ENDED -> FREE
 *               ^            |          |        |       |        |
 *               +------------+---- another try --+-------+--------+
 *
 *   UNDECIDED  main: its prefill leg comes first     HELD     booked, a session is being opened
 *   DECIDING   its pool has been asked               SENT     its worker may not have it yet
 *   QUEUED     in the queue of its pool              RUNNING  its worker has it
 *   ENDED      no booking; last frames may be repeated
 *
 * Questions. Three orders want an answer, which is the next event of the request: DECIDE (ROUTED,
 * QUEUED or REFUSED), HOLD and RENEW (ROOM or NO_ROOM). There is at most one in an array and it is
 * the last. Nothing may be said about the request before it is answered, so an executor that gets
 * LOST from inside a call of the scheduler library hands it on after that call.
 * The functions of struct kvr_rq_ops are asked on the way; they change nothing.
 *
 * Layout. struct kvr_request is three cache lines: the first holds all that an aggregated request
 * without session touches, the second the prefill leg, the third what is said again. What is only
 * needed until the message has been sent (hints, derived requests of the legs) lies with the
 * message, what a session needs in struct kvr_rq_session. All memory is the caller's.
 *
 * Writers. Everything by the thread that schedules the pool (both pools of a pair have the same
 * one): the step functions write the request, message, session and counters; the executor writes
 * the pool's switches (`closed`, `expected`) between steps, and reads everything.
 *
 * Budget: 50 ns for all events of an aggregated request without session (five steps), 120 cycles of
 * a 2.1 GHz time stamp counter; bench-request measures 75 ns where another thread keeps the core
 * busy. Nothing allocates, locks, logs, reads a clock or calls the kernel: time and randomness are
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

/** Where a leg is. */
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

/** What happened. `leg` is KVR_LEG_MAIN unless said otherwise: those of a leg name theirs. */
enum kvr_rq_event_kind {
	/* the executor's */
	KVR_RQE_ARRIVED,  /**< ROUTE of a request that is not known; see kvr_request_arrive() */
	KVR_RQE_ROOM,	  /**< HOLD, RENEW: done */
	KVR_RQE_NO_ROOM,  /**< HOLD, RENEW: cannot be done; code says why */
	KVR_RQE_LINGERED, /**< leg: its time after the end is over, or its slot is needed */
	KVR_RQE_STOP,	  /**< it is cut off; code: why, OK: the router ends */
	KVR_RQE_UNACKED,  /**< leg: nothing comes of it at its worker; see kvr_request_unacked() */
	/* the scheduler's, of a leg; d is its decision */
	KVR_RQE_ROUTED,	      /**< booked, or the choice of a query */
	KVR_RQE_QUEUED,	      /**< waits for its turn */
	KVR_RQE_REFUSED,      /**< by its pool */
	KVR_RQE_ADMITTED,     /**< booked after it has waited */
	KVR_RQE_NOT_ADMITTED, /**< it has waited, and left the queue without a booking */
	KVR_RQE_LOST,	      /**< its booking went with its worker */
	KVR_RQE_EXPIRED,      /**< its booking was released after silence; the leg goes on */
	/* a worker's, of a leg */
	KVR_RQE_TAKEN,	    /**< it runs the leg; repeated by every report */
	KVR_RQE_DECLINED,   /**< it does not take the leg; code is its own */
	KVR_RQE_ITEM,	    /**< progress, not the last; tokens, FIRST */
	KVR_RQE_FIN,	    /**< the last one; tokens, FIRST, ERROR, CANCELLED, RESULT, FAILED,
			     * REFUSED */
	KVR_RQE_ABORTED,    /**< it has heard the ABORT */
	KVR_RQE_OPENED,	    /**< it has opened the session */
	KVR_RQE_NOT_OPENED, /**< it refuses to; code is its own */
	KVR_RQE_UNANSWERED, /**< it has not answered the open for too long */
	/* the client's */
	KVR_RQE_CANCEL,
	KVR_RQE_REPEATED,  /**< ROUTE again; SAME, RESEND */
	KVR_RQE_PROBED,	   /**< where is it? */
	KVR_RQE_FIN_ACKED, /**< the client has the last item */
	/* the executor's timers over requests that no worker has */
	KVR_RQE_DEADLINE,    /**< of the client's */
	KVR_RQE_CLIENT_GONE, /**< not heard of for too long; SENT: nobody will send it again;
			      * RUNNING: only after a release */
	KVR_RQE_LEASE_OVER,  /**< booked only: its client, who runs it, is not heard of any more */
	KVR_RQE_UNWANTED,    /**< prefill leg: its worker has had long enough to end it since
			      * nobody waits for it */
	KVR_RQ_EVENTS_N
};

/** UNANSWERED: so long after OPEN. */
#define KVR_RQ_OPEN_NS UINT64_C(5000000000)

#define KVR_RQEF_FIRST	   0x01u  /**< the first token exists */
#define KVR_RQEF_ERROR	   0x02u  /**< FIN: by an error of the engine */
#define KVR_RQEF_CANCELLED 0x04u  /**< FIN: by CANCEL or ABORT */
#define KVR_RQEF_RESULT	   0x08u  /**< FIN of a prefill leg: with what the decode leg needs */
#define KVR_RQEF_ANSWERED  0x10u  /**< an item of the main leg has gone to the client */
#define KVR_RQEF_SAME	   0x20u  /**< REPEATED: the same message as before */
#define KVR_RQEF_RESEND	   0x40u  /**< REPEATED: send it to its worker again if that may lack it */
#define KVR_RQEF_LAST	   0x80u  /**< no other try after this */
#define KVR_RQEF_FAILED	   0x100u /**< FIN: it counts against the rank */
#define KVR_RQEF_REFUSED   0x200u /**< FIN: its engine has no room for it */

struct kvr_rq_event {
	uint8_t kind; /**< enum kvr_rq_event_kind */
	uint8_t leg;  /**< KVR_LEG_MAIN, KVR_LEG_PREFILL */
	uint16_t flags;
	uint32_t code;	 /**< NO_ROOM, STOP: enum kvr_code; DECLINED, NOT_OPENED: the worker's own;
			  * FIN of   a prefill leg with ERROR: its status */
	uint32_t tokens; /**< ITEM, FIN: generated so far; 0: not said */
	const struct kvr_sched_decision *d; /**< the scheduler's; read during the step */
	/** REPEATED, SAME, RESEND: what has come again. r->msg is this afterwards when the request
	 * needs it; NULL: the executor has the first one still. */
	struct kvr_rq_msg *msg;
};

/** The event that the answer of a pool is. @param waited it comes from kvr_sched_poll(). */
enum kvr_rq_event_kind kvr_request_decided(const struct kvr_sched_decision *d, bool waited);

/* ---- orders ------------------------------------------------------------------------------ */

enum kvr_rq_order_kind {
	KVR_RQO_NONE,
	/* questions: the last of an array */
	KVR_RQO_DECIDE, /**< leg: ask its pool with `req`; without a slot: REFUSED, BAD_SLOT */
	KVR_RQO_HOLD,	/**< keep the message, it will wait */
	KVR_RQO_RENEW,	/**< main leg: a new slot and handle; the old one ends, and lingers mute */
	/* to workers */
	KVR_RQO_SEND,	/**< leg: its message, as attempt r->attempt */
	KVR_RQO_BOOKED, /**< leg: instead of that, its client may speak of it from now on */
	KVR_RQO_ABORT,	/**< leg: stop it, until ABORTED; why.code, OK: by the client's wish; how */
	KVR_RQO_OPEN,	/**< main leg: open the session at its worker; drop closes on their way */
	KVR_RQO_UNOPEN, /**< main leg: do not repeat the open any more; `how` it went */
	KVR_RQO_CLOSE,	/**< tell worker `to` that session `id` is over; `how` why */
	/* to the client */
	KVR_RQO_ACCEPTED,  /**< where the request is now */
	KVR_RQO_REJECTED,  /**< `why` */
	KVR_RQO_CANCELLED, /**< answer to CANCEL */
	/* to the scheduler and the index */
	KVR_RQO_KEEP,	      /**< leg: its booking is renewed; so it is by the next two */
	KVR_RQO_PREFILL_DONE, /**< leg */
	KVR_RQO_OUTPUT,	      /**< leg: n tokens so far */
	KVR_RQO_FREE,	      /**< leg: its booking, or a released one, is over; n: enum
			       * kvr_sched_outcome */
	KVR_RQO_OUTCOME,      /**< leg: n, as of FREE, while its booking goes on */
	KVR_RQO_LEAVE,	      /**< leg: it leaves its pool's queue */
	KVR_RQO_PREDICT,      /**< leg: its rank will hold the prompt */
	/* to the executor's own books */
	KVR_RQO_PREFILL, /**< r->way is known: the prefill leg has its worker, or is bypassed */
	KVR_RQO_SESSION, /**< session `id` at `to`: `how`; `ref` when BOUND, n 1: in another's place
			  */
	KVR_RQO_END,	 /**< leg: over, by `how`; its slot lingers */
	KVR_RQO_RELEASE, /**< leg: its slot is not needed */
	KVR_RQO_MESSAGE_OVER, /**< the message is not needed */
	KVR_RQO_DONE,	      /**< nor is the request */
	KVR_RQ_ORDERS_N
};

/** By what a leg has ended. */
enum kvr_rq_how {
	KVR_RQ_FINISHED,
	KVR_RQ_ERRORED,	   /**< the engine has failed it, or says so in its answer */
	KVR_RQ_OVERLOADED, /**< the engine has no room for it */
	KVR_RQ_CANCELLED,
	KVR_RQ_STOPPED, /**< because its other leg has failed */
	KVR_RQ_DECLINED,
	KVR_RQ_LOST,
	KVR_RQ_EXPIRED,
	KVR_RQ_LEFT,	     /**< its queue, by the client's wish, deadline or silence */
	KVR_RQ_NOT_ADMITTED, /**< by its queue */
	KVR_RQ_REFUSED,	     /**< by its pool, or for its session or room */
	KVR_RQ_UNACKED,	     /**< its worker has not acknowledged it, and another one gets it */
	KVR_RQ_CUT,	     /**< the router ends */
};

/** What has happened to a session. */
enum kvr_rq_session_how {
	KVR_RQ_BOUND,
	KVR_RQ_UNBOUND,	     /**< by a close of its client's */
	KVR_RQ_SESSION_OVER, /**< its time */
	KVR_RQ_OPEN_FAILED,
	KVR_RQ_INVALIDATED,	 /**< an affinity, by a failure or a worker that cannot go on */
	KVR_RQ_CLOSED_BY_CLIENT, /**< CLOSE: the request that was to close it has ended */
	KVR_RQ_MOVED,		 /**< CLOSE: it was opened elsewhere */
	KVR_RQ_MAYBE_OPEN,	 /**< CLOSE: nobody waits for the answer to its open any more */
};

/** What was over: detail[0] of EXPIRED. */
enum kvr_rq_over_kind {
	KVR_RQ_DEADLINE = 1, /**< its client's own limit for waiting */
	KVR_RQ_SILENT = 2,   /**< its client has not been heard for long */
};

struct kvr_rq_why {
	uint16_t code; /**< enum kvr_code */
	bool retryable;
	uint8_t policy_class; /**< QUEUE_REJECTED: index */
	uint64_t detail[4];
};
_Static_assert(KVR_POOL_CLASSES_MAX <= UINT8_MAX, "an index of a class");

struct kvr_rq_order {
	uint8_t kind; /**< enum kvr_rq_order_kind */
	uint8_t leg;
	uint8_t how; /**< enum kvr_rq_how; of sessions enum kvr_rq_session_how, whose leg says
		      * whose pool's they are */
	uint32_t n;
	union {
		const struct kvr_sched_req *req; /**< DECIDE */
		struct kvr_rq_why why;		 /**< ABORT, REJECTED */
		struct {
			const void *id; /**< valid until the next step or session call */
			uint32_t id_len;
			struct kvr_session_ref ref;
			struct kvr_session_binding to; /**< low half of tag: the worker's epoch */
		} session;
	};
};

#define KVR_RQ_ORDERS_MAX 24u /**< no step gives more */

struct kvr_rq_orders {
	uint32_t n;
	struct kvr_rq_order v[KVR_RQ_ORDERS_MAX];
};

/* ---- a request --------------------------------------------------------------------------- */

/** What the legs of a request of a pair are decided with. Caller's memory, step: rw. */
struct kvr_rq_pair {
	struct kvr_sched_req preq, dreq;
	struct kvr_hints phints, dhints;
	struct kvr_str *required;	      /**< caller: room for one more than the hints have */
	struct kvr_hint_preferred *preferred; /**< caller: likewise */
	uint64_t failed_detail;		      /**< of the try before */
	uint64_t exclude_worker;	      /**< prefill worker that has failed */
	uint16_t failed;		      /**< enum kvr_code; OK: this is the first try */
	bool exclude;
	bool soft;	  /**< ... but for want of anybody else it may get it again */
	uint8_t transfer; /**< of the prefill worker, as in struct kvr_rq_worker */
	double weight;
	char taint[KVR_RQ_TAINT_MAX];
};

/** What came with ROUTE. Caller's memory until KVR_RQO_MESSAGE_OVER; step: rw. */
struct kvr_rq_msg {
	struct kvr_sched_req req; /**< its hints are the next field */
	struct kvr_hints hints;
	struct kvr_rq_pair *pair; /**< NULL: the pool has no prefill half */
	/** Book only: no worker is told, both legs of a pair are booked at once, and the client
	 * says when the first token is there (ITEM) and when it is over (FIN). */
	bool book;
	/** The worker answers the client itself: nobody here knows what that has got. */
	bool direct;
	/** Its client wants no word about it while an item may say it: ACCEPTED when its worker has
	 * acknowledged it, or when it is asked for. */
	bool quiet;
};

/** What a request has to do with a session. Caller's memory until DONE (until the end of
 * kvr_request_arrive() when no pool of it has sessions); step: rw. */
struct kvr_rq_session {
	LIST_ENTRY(kvr_rq_session) opening;
	uint64_t timeout_ns; /**< caller: of an open */
	uint64_t tag;	     /**< caller: high 31 bits of the binding's tag, its own */
	uint8_t action;	     /**< caller: enum kvr_rq_action; the step clears it */
	bool reserved;	     /**< room is kept, and the id with it */
	bool closes;	     /**< unbound: `closing` is told when the main leg has ended */
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
	KVR_RQ_CLOSED, /**< step: it has been */
};

struct kvr_leg {
	uint8_t state; /**< enum kvr_rq_state */
	bool booked;
	bool aborting;	   /**< an ABORT is not acknowledged */
	bool released : 1; /**< booked without load, after a long silence of its worker */
	bool trial : 1;	   /**< as in its decision */
	uint32_t rank;	   /**< dense index of its booking */
	uint64_t worker;
	uint32_t epoch; /**< the worker's life */
	uint32_t dp_rank;
	uint32_t overlap_blocks;
	uint32_t required_blocks;
	uint32_t cached_tokens;
};

/** What the client believes. */
enum kvr_rq_notified { KVR_RQ_NOTHING, KVR_RQ_WAITS, KVR_RQ_SERVED, KVR_RQ_OVER };

/** Zeroed = FREE. Step: rw; executor: ro. */
struct kvr_request {
	alignas(64) struct kvr_rq_pool *pool; /**< of the main leg */
	struct kvr_rq_session *session;	      /**< NULL: it names none */
	uint8_t notified;		      /**< enum kvr_rq_notified */
	uint8_t way;			      /**< enum kvr_way */
	uint8_t asks;			      /**< the question without an answer, or NONE */
	uint8_t reroutes;		      /**< tries left */
	uint8_t tries;			      /**< begun after the first */
	bool query : 1;
	bool book : 1;
	bool probe : 1;	 /**< of its engine's health: no session, index, load or counter sees it */
	bool paired : 1; /**< it takes both pools */
	bool held : 1;	 /**< the message is kept */
	bool sent : 1;	 /**< some worker has been told something */
	bool forgotten : 1; /**< it leaves no trace */
	bool direct : 1;    /**< as in its message */
	bool quiet : 1;	    /**< the same */
	bool stays : 1;	    /**< its main leg was sent where the client or its session is bound */
	bool answers : 1;   /**< its main leg's worker has sent an item */
	bool retried : 1;   /**< another rank has failed it before: its own fault, perhaps */
	struct kvr_leg leg[2];	/**< KVR_LEG_MAIN, KVR_LEG_PREFILL */
	uint32_t attempt;	/**< of SEND to the main leg: 0 the first */
	uint64_t room;		/**< bootstrap */
	struct kvr_rq_msg *msg; /**< NULL: over */
	struct kvr_rq_why end;	/**< what it is told again; OK: it ends by its last item */
	uint64_t sent_ns[2];	/**< by leg: first SEND to its worker, by kvr_rq_ctx.now */
};
_Static_assert(offsetof(struct kvr_request, leg[1]) == 64, "the main leg lies in the first line");
_Static_assert(sizeof(struct kvr_request) == 192, "three cache lines");

struct kvr_rq_ctx {
	const struct kvr_rq_ops *ops;
	void *arg;
	uint64_t now;	       /**< ns, never falling */
	struct kvr_rand *rand; /**< of bootstrap rooms */
};

enum kvr_rq_verdict { KVR_RQ_NEVER, KVR_RQ_LATE, KVR_RQ_GO };

/** What the table says of @p event at a leg in @p state. Any value; any thread. */
enum kvr_rq_verdict kvr_request_may(unsigned int state, unsigned int event);

/** Whether a leg in @p from may be in @p to next. Any value; any thread. */
bool kvr_request_may_follow(unsigned int from, unsigned int to);

/** Names for tests and people, "?" for anything else. */
const char *kvr_request_state_name(unsigned int state);
const char *kvr_request_event_name(unsigned int event);
const char *kvr_request_order_name(unsigned int order);

/**
 * ARRIVED: @p r is zeroed, or DONE before, and is one of @p pool from now on. @p msg and
 * @p session (NULL: it names none) hold what came; see there who fills what.
 */
enum kvr_rq_verdict kvr_request_arrive(const struct kvr_rq_ctx *c, struct kvr_request *r,
				       struct kvr_rq_pool *pool, struct kvr_rq_msg *msg,
				       struct kvr_rq_session *session, struct kvr_rq_orders *out);

/**
 * @p e has happened to @p r. @p out is filled anew; with another verdict than GO it is empty, the
 * request is unchanged, and the pool's counter has one more.
 */
enum kvr_rq_verdict kvr_request_step(const struct kvr_rq_ctx *c, struct kvr_request *r,
				     const struct kvr_rq_event *e, struct kvr_rq_orders *out);

/** A worker has its prefill leg, and the client has been told its last: nobody waits for it. */
static inline bool kvr_request_unwanted(const struct kvr_request *r)
{
	const uint32_t state = r->leg[KVR_LEG_PREFILL].state;

	return r->notified == KVR_RQ_OVER && !r->book &&
	       (state == KVR_RQS_SENT || state == KVR_RQS_RUNNING);
}

/**
 * When a leg may go to another worker (RULES.md, section 9.2): its worker has not acknowledged it,
 * or its prefill worker has gone with the blocks that it was to fetch. UINT64_MAX: not as things
 * are. From then on event UNACKED, or REPEATED with a message (whose pin may still prevent it),
 * reroutes it. A decode leg without its blocks that cannot start over (no attempt left, DIRECT)
 * ends instead.
 */
uint64_t kvr_request_reroute_due(const struct kvr_rq_ctx *c, const struct kvr_request *r,
				 uint32_t leg);

/** Whether that time has come. */
static inline bool kvr_request_unacked(const struct kvr_rq_ctx *c, const struct kvr_request *r,
				       uint32_t leg)
{
	return kvr_request_reroute_due(c, r, leg) <= c->now;
}

/** Nothing is booked, waits or lingers: the memory is the caller's. */
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

/** kvr_session_due() has reported @p ref of @p p: what to do when it is really over. */
void kvr_request_session_due(const struct kvr_rq_ctx *c, struct kvr_rq_pool *p,
			     struct kvr_session_ref ref, struct kvr_rq_orders *out);

/** Whoever bound it: the operator. No client's tag. */
#define KVR_RQ_TAG_ANY UINT64_MAX

/**
 * A client ends a session. @p tag is the client's, as in struct kvr_rq_session, or
 * KVR_RQ_TAG_ANY.
 * @return KVR_OK; KVR_E_UNKNOWN_SESSION not bound; KVR_E_NOT_ALLOWED another client's.
 */
enum kvr_code kvr_request_session_release(const struct kvr_rq_ctx *c, struct kvr_rq_pool *p,
					  const void *id, uint32_t len, uint64_t tag,
					  struct kvr_rq_orders *out);

#endif
