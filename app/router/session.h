/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SESSION_H
#define ROUTER_SESSION_H

/**
 * @file
 * Sessions of a pool: what the hooks in the life of a request do (session_dp.c), and the wheel's
 * round on the control thread (session_ctl.c). The table of bindings is lib/session.
 *
 * Explicit control: a ROUTE with action open is chosen and booked, then held while SESSION_OPEN is
 * repeated to its worker; SESSION_OPENED binds and dispatches, a refusal or 5 s of silence ends
 * it. Room is reserved before anything is booked, and with it the id: it is opened by one request
 * at a time, another one is refused (SessionOpenFailed, retryable). So every open that a worker
 * has taken ends in the binding or in SESSION_CLOSE. Action close unbinds with the decision;
 * SESSION_CLOSE follows when the request has ended, whatever ended it. Expiry and SESSION_RELEASE
 * send it at once.
 * Affinity (session_affinity_ttl_secs): an id without action is bound to the worker of its first
 * request when that has succeeded. Requests in flight keep the binding; a failure other than a
 * cancel, or a worker that cannot take the next request, ends it. Workers are told nothing.
 *
 * What is bound names the epoch of its worker: an explicit session of a worker that has left or
 * started anew answers NoEndpoints until it is released or expires, an affinity is forgotten.
 *
 * SESSION_OPEN and SESSION_CLOSE are repeated after waits[] until they are answered. Asks that have
 * waited equally often wait equally long, so each step is a list in order of time. A request has
 * room for its own ask; closes come from a pool, and when it is empty the oldest close is given
 * up.
 *
 * Writers: everything by the pool's scheduler lcore, but the wheel in the table, which is the
 * control thread's.
 */

#include "router.h"

#define SESSION_CLOSES	4096u /* SESSION_CLOSE unanswered at one time */
#define SESSION_BUCKETS 4096u /* power of two: ids that are being opened, closed, by their hash */
#define SESSION_WAITS	10u

/** A message that is repeated until it is answered. */
struct session_ask {
	TAILQ_ENTRY(session_ask) link; /* waiting list of its step, or free closes */
	LIST_ENTRY(session_ask) by_id; /* closes under way */
	uint64_t due_ns;
	uint64_t worker;
	uint32_t epoch;	 /* the life of the worker that has the session: not told to another one */
	uint64_t number; /* header id: flight handle of an open; generation, pool, index of a close
			  */
	uint32_t timeout_s;
	uint32_t hash; /* of the id */
	uint8_t kind;  /* KVR_SESSION_OPEN or _CLOSE; 0: not waiting */
	uint8_t step;  /* waits that are over */
	uint16_t id_len;
	char id[KVR_SESSION_ID_MAX];
};

TAILQ_HEAD(session_asks, session_ask);
LIST_HEAD(session_closing, session_ask);
LIST_HEAD(session_opening, job_session);

/** What a request in flight has to do with a session. */
enum session_part {
	SESSION_NO_PART,
	SESSION_OPENS,	   /* held until its worker answers; the ask is waiting */
	SESSION_CLOSES_IT, /* unbound it: SESSION_CLOSE when it ends */
	SESSION_BINDS,	   /* affinity, when it has succeeded */
	SESSION_INSIDE,	   /* affinity: counts in the binding `ref` */
};

/** By request slot. */
struct session_use {
	enum session_part part;
	struct kvr_session_ref ref;
	struct session_ask ask; /* the session's id, and the worker it is bound to */
};

struct sessions {
	struct kvr_session *table;
	uint64_t affinity_ttl_ns; /* 0: no affinity */
	uint32_t max;
	uint32_t next_close; /* generation of the next close */
	struct session_use *use;
	struct session_ask *close;
	struct session_asks free;
	struct session_asks open_step[SESSION_WAITS];
	struct session_asks close_step[SESSION_WAITS];
	struct session_closing *closing; /* SESSION_BUCKETS */
	struct session_opening *opening; /* SESSION_BUCKETS */
	uint64_t looked;		 /* entries of buckets looked at, ever */
	kvr_cell_t *count;		 /* enum session_counter */
	struct kvr_stats *stats;
};

/* ---- session_ctl.c: start, stop, control thread ---- */

/** Sessions of @p p as its configuration says; p->sessions stays NULL when it says none. @return
 * 0 or -ENOMEM. */
int sessions_create(struct pool *p, uint64_t seed);
void sessions_destroy(struct pool *p);

/** Turn the wheels: tell the schedulers which sessions seem over. Bounded. */
void session_round(struct router *rt);

/** kvr_session_on_drop(): its source has one less. Scheduler lcore. */
void session_dropped(void *pool, uint32_t entry);

/* ---- session_dp.c: ingress lcores ---- */

/** The session hint of a ROUTE, into its job. The id stays where the hints are. */
void session_hint(struct job *j, const struct kvr_hints *h);

/** SESSION_OPENED, SESSION_CLOSED; SESSION_RELEASE. */
void session_from_agent(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);
void session_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/* ---- session_dp.c: hooks in the life of a request; scheduler lcore ---- */

/** Before the decision: pin the request to its binding, keep room for an open. @return KVR_OK or
 * why it is refused. */
enum kvr_wire_code session_enter(struct lcore *lc, struct pool *p, struct job_session *js,
				 struct kvr_sched_hints *h, bool query);

/** The decision failed with @p err. @return true: it was pinned by an affinity which is forgotten
 * now; decide again. */
bool session_unpin(struct pool *p, struct job_session *js, struct kvr_sched_hints *h,
		   enum kvr_sched_err err, bool query);

/** The session of a prefill leg in pool @p p, whose request has @p js: affinity alone. @p out is
 * zeroed, or that of the try before, whose pin is taken out of @p h. */
void session_prefill(const struct pool *p, const struct job_session *js, struct job_session *out,
		     struct kvr_sched_hints *h);

/** Booked on the worker of @p r. @return true: the request is held; sched_go_on() or
 * sched_fail() follows. */
bool session_routed(struct lcore *lc, struct pool *p, struct kvr_flight *r, struct job_session *js);

/** The worker has taken @p r, or has sent its first item. Idempotent. */
void session_success(struct lcore *lc, struct pool *p, struct kvr_flight *r);

/** The request ends, counted under @p how. */
void session_ended(struct lcore *lc, struct pool *p, struct kvr_flight *r, enum pool_counter how);

/** The request whose stopped leg was to close its session has no other leg. */
void session_close_left(struct lcore *lc, struct pool *p, struct job_session *js);

/** A job that is not needed any more gives back the room it has kept. */
void session_job_free(struct job *j);

/** Repeat what is not answered, at most BURST messages; set the gauges. */
void session_timers(struct lcore *lc, struct pool *p);

/** Handlers of notes. */
void session_on_opened(struct lcore *lc, struct pool *p, const struct note *n);
void session_on_closed(struct lcore *lc, struct pool *p, const struct note *n);
void session_on_release(struct lcore *lc, struct pool *p, const struct note *n);

/** The wheel says that this session seems over. */
void session_due(struct lcore *lc, struct pool *p, struct kvr_session_ref ref);

#endif
