/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_THREAD_H
#define ROUTER_THREAD_H

/**
 * @file
 * What the files of the control thread share: control.c (rounds), calls_ctl.c (calls, views),
 * workers_ctl.c (the life of workers on all lcores), workers_time_ctl.c (what time does to them),
 * beats_ctl.c (what heartbeats have said), hello_ctl.c (frames).
 *
 * A round gathers what is to change about workers and then does all of it at once: one call to each
 * lcore that is concerned, one view, the answers. Writer: the control thread, or a telemetry thread
 * that acts for an operator, one at a time under the lock of lib/ctl; lcores write what is marked
 * so in the changes and batches of a call, which control leaves alone until the call is over. A
 * round comes every 10 ms and has no budget of cycles, but every call is cut into pieces of some
 * microseconds, a piece a turn of its lcore.
 */

#include "control/control.h"
#include "kvr_hints.h"
#include "lcore/frame_kind.h"
#include "lcore/out.h"
#include "state/router.h"

#define CHANGES	   64u	/* of workers, done together */
#define LOADS	   512u /* reports of ranks on their way to one pool's lcores */
#define DUE_ROUND  32u	/* sessions of a pool and round: their closes are answered in time */
#define LIVE_STEP  UINT64_C(20000000) /* a longer gap between rounds is the router's own stall */
#define TAINT_TEXT (KVR_WORKER_TEXT + 16)

enum change_kind {
	CHANGE_JOIN,
	CHANGE_LEAVE,
	CHANGE_RENEW, /* a new life in the same pool: leave and join in one */
	CHANGE_MOVE,  /* path, or what the path takes */
	CHANGE_AVAIL, /* may be chosen, or not: `flag` */
};

/** One thing that is to happen to a worker. The lcores write what is marked so. */
struct change {
	enum change_kind kind;
	bool flag;		     /* AVAIL */
	bool side;		     /* scheduler: a prefill side came or went */
	bool begun;		     /* scheduler: not chosen any more */
	bool empty;		     /* event: its ranks are emptied */
	struct restore_worker *warm; /* JOIN: what a snapshot has of it, or NULL */
	int rc;			     /* JOIN, RENEW, scheduler: 0 or why not */
	struct kvr_worker *w;
	struct kvr_worker *old;	    /* RENEW: the life that ends */
	struct kvr_worker *refused; /* LEAVE that was a RENEW: the life that did not fit ... */
	int why;		    /* ... and its rc */
	struct ctl_buf *frame;	    /* to answer, or NULL */
	uint32_t n_taints;
	struct kvr_str taint[KVR_HINTS_MAX_TAINTS + KVR_HINTS_MAX_TOPOLOGY];
	char text[KVR_HINTS_MAX_TOPOLOGY][TAINT_TEXT];
};

/** Reports on their way to a pool; not touched while a call is under way. */
struct load_batch {
	struct pool *pool;
	struct call sched, event;
	uint32_t n, sched_at, event_at;
	uint32_t next; /* worker to begin with */
	struct rank_load load[LOADS];
};

/** Sessions that seem over, on their way to the scheduler. */
struct due_batch {
	struct pool *pool;
	struct call call;
	uint32_t n;
	struct kvr_session_ref ref[DUE_ROUND];
};

/** A worker whose newest HELLO was refused; worker 0: no entry. */
struct hello_refused {
	uint64_t worker, at_ns;
	uint64_t times; /* since the entry was made */
	enum kvr_code code;
	char address[KVR_PATH_TEXT];
	char text[128]; /* which field, its value, what is needed; may be "" */
};

#define REFUSED_KEPT 16u

struct control {
	struct kvr_live_clock live;
	uint64_t read_up[KVR_ROUTER_MAX_LCORES]; /* lcore::read_up when `live` last moved */
	bool dirty;				 /* the view is not what the registry is */
	uint64_t began_ns;			 /* first tick; HELLOs can come since then */
	uint64_t left_ns[KVR_ROUTER_MAX_POOLS];	 /* a worker left the pool then; 0: never */
	uint64_t n_calls;			 /* call_start() so far; under the lock */
	uint64_t lost;				 /* workers that went without a drain */
	uint64_t tell_ns;			 /* when bookings are counted again */
	uint32_t told;				 /* the worker that is next */
	uint32_t n_changes;
	struct change change[CHANGES];
	struct call tick[KVR_ROUTER_MAX_POOLS];
	struct due_batch due[KVR_ROUTER_MAX_POOLS];
	struct load_batch loads[KVR_ROUTER_MAX_POOLS];
	struct hello_refused refused[REFUSED_KEPT]; /* by worker; the oldest makes room */
};

/* ---- calls_ctl.c ---- */

/** Have @p c run by the lcore; call_wait() until it has. What it points at must stay. */
void call_start(struct router *rt, struct lcore *lc, struct call *c);
bool call_busy(const struct call *c);
void call_wait(struct router *rt, struct call *c);

/** Make the registry of now known to the packet lcores. @return 0 or -ENOMEM. */
int publish_view(struct router *rt);

/* ---- workers_ctl.c ---- */

/** Pool of a worker. */
static inline struct pool *pool_of(struct router *router, const struct kvr_worker *w)
{
	return &router->pool[w->pool];
}

/** Change and log the state of a worker, when that is allowed; @p why it changes, or NULL. */
void worker_set_state(struct router *rt, struct kvr_worker *w, enum kvr_wire_worker_state to,
		      const char *why);

/** @p w is filled in: give it to its pool. Takes @p frame, its HELLO, and answers it. */
void worker_join(struct router *rt, struct kvr_worker *w, const struct kvr_hints *hints,
		 struct ctl_buf *frame);

/** The same for a new life of a worker of the same pool: @p old is not in the registry any more. */
void worker_renew(struct router *rt, struct kvr_worker *old, struct kvr_worker *w,
		  const struct kvr_hints *hints, struct ctl_buf *frame);

/** Nothing of @p w stays; it must not be used again. @p why it leaves. */
void worker_leave(struct router *rt, struct kvr_worker *w, const char *why);

/** control_drain(), with the reason for the log. Under the lock (kvr_telemetry_lock()). */
int worker_drain(struct router *rt, uint64_t id, bool draining, const char *why);

/** Its path has changed: tell everybody, then answer @p frame, which is taken. */
void worker_moved(struct router *rt, struct kvr_worker *w, struct ctl_buf *frame);

/** It may be chosen (again), or not. */
void worker_available(struct router *rt, struct kvr_worker *w, bool available);

/** Do what has been gathered. */
void workers_flush(struct router *rt);

/* ---- workers_time_ctl.c ---- */

/** Nanoseconds of silence that count. */
uint64_t worker_silence(const struct router *rt, const struct kvr_worker *w);

/** What time does to workers: silence, drained ones, who is expected back. */
void workers_tick(struct router *rt);

/* ---- hello_ctl.c ---- */

/** HELLO, GOODBYE, CONNECT: struct frame_kind::control. */
void control_hello(struct router *rt, struct ctl_frame *f, struct refusal *why);
void control_goodbye(struct router *rt, struct ctl_frame *f, struct refusal *why);
void control_connect(struct router *rt, struct ctl_frame *f, struct refusal *why);

/* ---- hello_says_ctl.c ---- */

/** What a pool has of its workers and ranks, and how many workers it may have. */
struct hello_room {
	uint32_t workers, most_workers;
	uint32_t ranks;
};

/** Fills @p room. Control. @return how many workers may join the pool still. */
uint32_t hello_room(const struct router *rt, const struct pool *p, struct hello_room *room);

/** Answers of a HELLO; a refusal is of any kind that control serves. */
void hello_welcome(struct router *rt, struct kvr_worker *w, const struct ctl_buf *b);
void hello_refuse(struct router *rt, const struct ctl_buf *b, const struct refusal *why);

/* ---- stop_ctl.c ---- */

/** Nobody new is let in, what waits is refused with Shutdown. Takes the lock. @return requests. */
uint32_t stop_close_doors(struct router *rt);

/** Its end: what is live now ends with Shutdown. Takes the lock. @return requests. */
uint32_t stop_cut_off(struct router *rt);

/* ---- links_ctl.c ---- */

/** Ports whose peer has gone are connected again; without the lock. */
void links_round(struct router *rt);

/* ---- reload_ctl.c ---- */

/** SIGHUP: read the configuration again; what may change at run time does. Takes the lock. */
void reload(struct router *rt);

/* ---- beats_ctl.c ---- */

/** See which workers have been heard, and pass on what they said. */
void beats_tick(struct router *rt);

#endif
