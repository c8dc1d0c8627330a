/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SESSION_H
#define ROUTER_SESSION_H

/**
 * @file
 * Sessions of a pool: what workers are asked (session_dp.c), what is said about them as events
 * (session_note_dp.c), and the wheel's round on the control thread (session_ctl.c). The table of
 * bindings is lib/session; what a session means to a request is lib/request's, whose orders are
 * carried out here.
 *
 * SESSION_OPEN and SESSION_CLOSE are repeated after waits[] until they are answered. Asks that have
 * waited equally often wait equally long, so each step is a list in order of time. A request has
 * room for its own ask; closes come from a pool, and when it is empty the oldest close is given
 * up.
 *
 * Writers: everything by the pool's scheduler lcore, but the wheel in the table, which is the
 * control thread's. Budget: at most BURST asks are repeated in a turn.
 */

#include "state/router.h"

#define SESSION_CLOSES	4096u /* SESSION_CLOSE unanswered at one time */
#define SESSION_BUCKETS 4096u /* power of two: ids that are being closed, by their hash */
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

/** By request. */
struct session_use {
	struct kvr_rq_session s;
	struct session_ask ask;
	uint32_t share; /* what its source is charged for the room kept for its open; 0: nothing */
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

/* ---- session_dp.c: scheduler lcore ---- */

/** High 31 bits of the tag of what the client binds, and of who may release it. */
uint64_t session_client_tag(const struct router *rt, const struct kvr_path *client);

/** What the job of @p r says about a session; in @p none when its pool can have none. */
struct kvr_rq_session *session_of(struct lcore *lc, struct request *r, struct kvr_rq_session *none);

/** Orders OPEN, UNOPEN; CLOSE, SESSION of pool @p p. */
struct life;
void session_open(const struct life *x);
void session_unopen(const struct life *x, const struct kvr_rq_order *o);
void session_close(struct lcore *lc, struct pool *p, const struct kvr_rq_order *o);
void session_said(struct pool *p, const struct kvr_path *client, const struct kvr_rq_order *o);

/** BOUND by the open of a request: what its source is charged goes with the binding. */
void session_bound(const struct life *x, const struct kvr_rq_order *o);

/** After the orders of every step: the source is charged for room as long as it is kept. */
void session_charge(const struct life *x);

/** Whether the answer comes from the one who was asked, in the same life. */
bool session_was_asked(const struct session_ask *a, const struct note *n);

/** NOTE_SESSION_CLOSED. */
void session_on_closed(struct lcore *lc, struct pool *p, const struct note *n);

/**
 * The first of a list, when its wait is over, is sent once more, or given up; then *given_up is the
 * number of an open, else 0. @return false: it is not due.
 */
bool session_repeat(struct lcore *lc, struct pool *p, struct session_asks *list,
		    uint64_t *given_up);

/* ---- session_note_dp.c: scheduler lcore, events of requests ---- */

/** Repeat what is not answered, at most BURST messages; set the gauges. */
void session_timers(struct lcore *lc, struct pool *p);

/** NOTE_SESSION_OPENED, NOTE_SESSION_RELEASE. */
void session_on_opened(struct lcore *lc, struct pool *p, const struct note *n);
void session_on_release(struct lcore *lc, struct pool *p, const struct note *n);

struct restore_worker;

/** Some sessions of a worker from a snapshot. @return whether all are bound; else call again. */
bool session_restore(struct lcore *lc, struct pool *p, struct restore_worker *r);

/** The wheel says that this session seems over. */
void session_due(struct lcore *lc, struct pool *p, struct kvr_session_ref ref);

#endif
