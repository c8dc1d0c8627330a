/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SESSION_H
#define ROUTER_SESSION_H

/**
 * @file
 * Sessions of a pool: questions to workers (session_dp.c), messages about sessions as events
 * (session_events_dp.c), and the wheel on the control thread (session_ctl.c). lib/session has the
 * table of bindings; lib/request decides the effect of a session on a request, and its orders are
 * carried out here.
 *
 * SESSION_OPEN and SESSION_CLOSE are retransmitted after waits[] until they are answered. Questions
 * with the same number of retransmissions wait equally long, so each step is a list in order of
 * time. A request has memory for its own question. Closes come from a pool; if it is empty, the
 * oldest close is dropped.
 *
 * Writers: the pool's scheduler lcore; the control thread writes the wheel in the table. Budget: at
 * most BURST retransmissions a turn.
 */

#include "state/router.h"

#define SESSION_CLOSES	4096u /* unanswered SESSION_CLOSE at one time */
#define SESSION_BUCKETS 4096u /* hash buckets of ids that are being closed; a power of two */
#define SESSION_WAITS	10u

/** A message that is retransmitted until it is answered. */
struct session_ask {
	TAILQ_ENTRY(session_ask) link; /* waiting list of its step, or free closes */
	LIST_ENTRY(session_ask) by_id; /* closes in progress */
	uint64_t due_ns;
	uint64_t worker;
	uint32_t epoch; /* incarnation of the worker with the session; no other one gets the message
			 */
	uint64_t number; /* header id: flight handle of an open; generation, pool, index of a close
			  */
	uint32_t timeout_s;
	uint32_t hash; /* of the id */
	uint8_t kind;  /* KVR_SESSION_OPEN or _CLOSE; 0: not waiting */
	uint8_t step;  /* waits so far */
	uint16_t id_len;
	char id[KVR_SESSION_ID_MAX];
};

TAILQ_HEAD(session_asks, session_ask);
LIST_HEAD(session_closing, session_ask);

/** Session state of a request. */
struct session_use {
	struct kvr_rq_session s;
	struct session_ask ask;
	uint32_t quota_ref; /* quota reference of the source for the entry reserved for the open; 0:
			   none */
};

struct sessions {
	struct kvr_session *table;
	uint32_t max;
	uint32_t next_close; /* generation of the next close */
	struct session_ask *close;
	struct session_asks free;
	struct session_asks open_step[SESSION_WAITS];
	struct session_asks close_step[SESSION_WAITS];
	struct session_closing *closing; /* SESSION_BUCKETS */
	uint64_t looked;		 /* bucket entries visited so far */
	kvr_cell_t *count;		 /* enum session_counter */
	struct kvr_stats *stats;
};

/* ---- session_ctl.c: start, stop, control thread ---- */

/** Create the sessions of @p pool according to its configuration; pool->sessions stays NULL without
 * sessions. @return 0 or -ENOMEM. */
int sessions_create(struct pool *pool, uint64_t seed);
void sessions_destroy(struct pool *pool);

/** Turn the wheels and pass sessions that seem idle to the schedulers. Bounded. */
void session_round(struct router *rt);

/** kvr_session_on_drop(): return the quota of its source. Scheduler lcore. */
void session_dropped(void *pool, uint32_t entry);

/* ---- session_dp.c: scheduler lcore ---- */

/** High 31 bits of the tag of a client's bindings, which decides who may release them. */
uint64_t session_client_tag(const struct router *rt, const struct kvr_path *client);

/** Session hints of the job of @p req; @p none if its pool has no sessions. */
struct kvr_rq_session *session_of(struct lcore *lc, struct request *req,
				  struct kvr_rq_session *none);

/** Orders OPEN, UNOPEN; CLOSE, SESSION of pool @p p. */
struct request_step;
void session_open(const struct request_step *step);
void session_unopen(const struct request_step *step, const struct kvr_rq_order *order);
void session_close(struct lcore *lc, struct pool *pool, const struct kvr_rq_order *order);
void session_order(struct pool *pool, const struct kvr_path *client,
		   const struct kvr_rq_order *order);

/** BOUND by the open of a request: the quota reference moves to the binding. */
void session_bound(const struct request_step *step, const struct kvr_rq_order *order);

/** After the orders of every step: charge the source while an entry is reserved. */
void session_charge(const struct request_step *step);

/** Whether the answer comes from the worker that was asked, in the same epoch. */
bool session_ask_matches(const struct session_ask *ask, const struct sched_msg *msg);

/** MSG_SESSION_CLOSED. */
void session_handle_closed(struct lcore *lc, struct pool *pool, const struct sched_msg *msg);

/** Retransmit or drop the first of a list if it is due; *given_up is then the number of a dropped
 * open, else 0. @return false: not due. */
bool session_repeat(struct lcore *lc, struct pool *pool, struct session_asks *list,
		    uint64_t *given_up);

/* ---- session_events_dp.c: scheduler lcore, events of requests ---- */

/** Retransmit at most BURST unanswered messages, and set the gauges. */
void session_timers(struct lcore *lc, struct pool *pool);

/** MSG_SESSION_OPENED, MSG_SESSION_RELEASE. */
void session_handle_opened(struct lcore *lc, struct pool *pool, const struct sched_msg *msg);
void session_handle_release(struct lcore *lc, struct pool *pool, const struct sched_msg *msg);

struct restore_worker;

/** Restore sessions of a worker from a snapshot. @return true: all are bound; false: call again. */
bool session_restore(struct lcore *lc, struct pool *pool, struct restore_worker *r);

/** The wheel reports that the session seems idle. */
void session_due(struct lcore *lc, struct pool *pool, struct kvr_session_ref ref);

#endif
