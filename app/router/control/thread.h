/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_THREAD_H
#define ROUTER_THREAD_H

/**
 * @file
 * Interface between the files of the control thread: control.c (rounds), calls_ctl.c (calls,
 * views), workers_ctl.c (workers on all lcores), workers_time_ctl.c (timers of workers),
 * beats_ctl.c (heartbeats), hello_ctl.c (frames).
 *
 * A round collects the changes of workers and then applies them together: one call to each affected
 * lcore, one view, the answers. Writer: the control thread, or a telemetry thread for an operator,
 * one at a time under kvr_telemetry_lock(). Lcores write the marked fields of changes and batches
 * during a call, when control does not access them. A round comes every 10 ms without a budget of
 * cycles, but every call is cut into pieces of some microseconds, one per turn of its lcore.
 */

#include "control/control.h"
#include "kvr_hints.h"
#include "lcore/frame_kind.h"
#include "lcore/out.h"
#include "state/router.h"

#define CHANGES	  64u  /* changes of workers applied together */
#define LOADS	  512u /* rank reports per batch of a pool */
#define DUE_ROUND 32u  /* sessions per pool and round, so that their closes are answered in time */
#define LIVE_STEP                                                                                  \
	UINT64_C(20000000) /* a longer gap between rounds is a stall of the router itself */
#define TAINT_TEXT (KVR_WORKER_TEXT + 16)

enum change_kind {
	CHANGE_JOIN,
	CHANGE_LEAVE,
	CHANGE_RENEW, /* a new incarnation in the same pool: leave and join in one */
	CHANGE_MOVE,  /* another path, or another frame size of the path */
	CHANGE_AVAIL, /* eligible or not: `flag` */
};

/** A pending change of a worker. Lcores write the marked fields. */
struct change {
	enum change_kind kind;
	bool flag;		     /* AVAIL */
	bool side;		     /* scheduler: a prefill pool became active or inactive */
	bool begun;		     /* scheduler: not eligible any more */
	bool empty;		     /* event: its ranks are cleared */
	struct restore_worker *warm; /* JOIN: its data in a snapshot, or NULL */
	int rc;			     /* JOIN, RENEW, scheduler: 0 or the error */
	struct kvr_worker *w;
	struct kvr_worker *old;	    /* RENEW: the incarnation that ends */
	struct kvr_worker *refused; /* LEAVE after a failed RENEW: the new incarnation */
	int why;		    /* and its error */
	struct ctl_buf *frame;	    /* to answer, or NULL */
	uint32_t n_taints;
	struct kvr_str taint[KVR_HINTS_MAX_TAINTS + KVR_HINTS_MAX_TOPOLOGY];
	char text[KVR_HINTS_MAX_TOPOLOGY][TAINT_TEXT];
};

/** Rank reports for a pool; not accessed by control during a call. */
struct load_batch {
	struct pool *pool;
	struct call sched, event;
	uint32_t n, sched_at, event_at;
	uint32_t next; /* first worker of the next batch */
	struct rank_load load[LOADS];
};

/** Idle sessions for the scheduler. */
struct due_batch {
	struct pool *pool;
	struct call call;
	uint32_t n;
	struct kvr_session_ref ref[DUE_ROUND];
};

/** A worker whose last HELLO was rejected; worker 0: no entry. */
struct hello_rejected {
	uint64_t worker, at_ns;
	uint64_t times; /* since the entry was made */
	enum kvr_code code;
	char address[KVR_PATH_TEXT];
	char text[128]; /* field, value, requirement; may be "" */
};

#define REFUSED_KEPT 16u

struct control {
	struct kvr_live_clock live;
	uint64_t read_up[KVR_ROUTER_MAX_LCORES]; /* lcore::read_up when `live` last advanced */
	bool dirty;				 /* the view differs from the registry */
	uint64_t began_ns;			 /* first tick; HELLOs can arrive since then */
	uint64_t left_ns[KVR_ROUTER_MAX_POOLS];	 /* time when a worker left the pool; 0: never */
	uint64_t n_calls;			 /* number of call_start(); under the lock */
	uint64_t lost;				 /* workers that left without a drain */
	uint64_t tell_ns;			 /* time of the next update of bookings */
	uint32_t told;				 /* first worker of that update */
	uint32_t n_changes;
	struct change change[CHANGES];
	struct call tick[KVR_ROUTER_MAX_POOLS];
	struct due_batch due[KVR_ROUTER_MAX_POOLS];
	struct load_batch loads[KVR_ROUTER_MAX_POOLS];
	struct hello_rejected refused[REFUSED_KEPT]; /* by worker; the oldest is replaced */
};

/* ---- calls_ctl.c ---- */

/** Run @p call on the lcore; call_wait() waits for it. Its data must stay valid. */
void call_start(struct router *rt, struct lcore *lc, struct call *call);
bool call_busy(const struct call *call);
void call_wait(struct router *rt, struct call *call);

/** Publish the registry to the packet lcores. @return 0 or -ENOMEM. */
int publish_view(struct router *rt);

/* ---- workers_ctl.c ---- */

/** Pool of a worker. */
static inline struct pool *pool_of(struct router *router, const struct kvr_worker *worker)
{
	return &router->pool[worker->pool];
}

/** Change and log the state of a worker if allowed; @p why: reason, or NULL. */
void worker_set_state(struct router *rt, struct kvr_worker *worker, enum kvr_wire_worker_state to,
		      const char *why);

/** Add @p worker, whose fields are set, to its pool. Takes @p frame, its HELLO, and answers it. */
void worker_join(struct router *rt, struct kvr_worker *worker, const struct kvr_hints *hints,
		 struct ctl_buf *frame);

/** The same for a new incarnation in the same pool: @p old is no longer in the registry. */
void worker_renew(struct router *rt, struct kvr_worker *old, struct kvr_worker *worker,
		  const struct kvr_hints *hints, struct ctl_buf *frame);

/** Remove @p worker, which must not be used afterwards. @p why: reason. */
void worker_leave(struct router *rt, struct kvr_worker *worker, const char *why);

/** control_drain() with the reason for the log. Under kvr_telemetry_lock(). */
int worker_drain(struct router *rt, uint64_t id, bool draining, const char *why);

/** Publish its new path, then answer @p frame, which is taken. */
void worker_moved(struct router *rt, struct kvr_worker *worker, struct ctl_buf *frame);

/** Make it eligible or not. */
void worker_available(struct router *rt, struct kvr_worker *worker, bool available);

/** Apply the collected changes. */
void workers_flush(struct router *rt);

/* ---- workers_time_ctl.c ---- */

/** Nanoseconds of silence, stalls of the router excluded. */
uint64_t worker_silence(const struct router *rt, const struct kvr_worker *worker);

/** Timers of workers: silence, finished drains, expected workers. */
void workers_tick(struct router *rt);

/* ---- hello_ctl.c ---- */

/** HELLO, GOODBYE, CONNECT: struct frame_kind::control. */
void control_hello(struct router *rt, struct ctl_frame *f, struct rejection *why);
void control_goodbye(struct router *rt, struct ctl_frame *f, struct rejection *why);
void control_connect(struct router *rt, struct ctl_frame *f, struct rejection *why);

/* ---- hello_reply_ctl.c ---- */

/** Workers and ranks of a pool, and the limit of workers. */
struct hello_room {
	uint32_t workers, most_workers;
	uint32_t ranks;
};

/** Fill @pool room. Control. @return number of workers that may still join the pool. */
uint32_t hello_room(const struct router *rt, const struct pool *pool, struct hello_room *room);

/** Answers to HELLO; hello_reject() serves all kinds for control. */
void hello_welcome(struct router *rt, struct kvr_worker *worker, const struct ctl_buf *b);
void hello_reject(struct router *rt, const struct ctl_buf *b, const struct rejection *why);

/* ---- stop_ctl.c ---- */

/** Reject new workers and requests, and waiting requests with Shutdown. Takes the lock. @return
 * requests. */
uint32_t stop_close_doors(struct router *rt);

/** End live requests with Shutdown. Takes the lock. @return requests. */
uint32_t stop_cut_off(struct router *rt);

/* ---- links_ctl.c ---- */

/** Reconnect ports whose peer has gone; without the lock. */
void links_round(struct router *rt);

/* ---- reload_ctl.c ---- */

/** SIGHUP: read the configuration again and apply what may change at run time. Takes the lock. */
void config_reload(struct router *rt);

/* ---- beats_ctl.c ---- */

/** Read the beats of all workers and pass on their reports. */
void beats_tick(struct router *rt);

#endif
