/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REQUEST_POOL_H
#define KVR_REQUEST_POOL_H

/**
 * @file
 * What the requests of one pool share, and what their executor is asked; see kvr_request.h.
 *
 * Writers. kvr_request_pool_init() fills it before the first request. Then the thread that
 * schedules the pool: the step functions write `opening` and the counters, the executor writes
 * `closed` and `expected` between steps. `disagg` belongs to whoever counts the workers.
 */

#include "kvr_disagg.h"
#include "kvr_session.h"
#include "kvr_stats.h"
#include "kvr_types.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define KVR_RQ_TAINT_MAX 256u
/** In kvr_session_binding::tag, whose low half is the epoch of the worker: not opened. */
#define KVR_RQ_TAG_AFFINITY (UINT64_C(1) << 32)

/** A worker has so long to acknowledge a request when nobody says otherwise: six repetitions of the
 * client's (20 ms, doubling), and twice the silence after which it is gone. */
#define KVR_RQ_DISPATCH_NS UINT64_C(2000000000)

#define KVR_RQ_BUCKETS 1024u /* power of two: ids that are being opened, by their hash */

struct kvr_request;
struct kvr_rq_session;
struct kvr_rq_pool;

LIST_HEAD(kvr_rq_opening, kvr_rq_session);

/** What is counted of each pool; kvr_request_stats names them. */
#define KVR_REQUEST_COUNTER_LIST(X)                                                                \
	X(KVR_RQC_LATE, late, COUNT, "events", "said before or overtaken")                         \
	X(KVR_RQC_IMPOSSIBLE, impossible, COUNT, "events",                                         \
	  "not possible in the state of their request")                                            \
	X(KVR_RQC_ARRIVED, arrived, COUNT, "requests", "new ones, queries among them")             \
	X(KVR_RQC_FORGOTTEN, forgotten, COUNT, "requests", "refused or answered without a trace")  \
	X(KVR_RQC_DONE, done, COUNT, "requests", "others that are over, with all that followed")   \
	X(KVR_RQC_PROBES, probes, COUNT, "requests",                                               \
	  "health probes, which are counted nowhere else")                                         \
	X(KVR_RQC_PAIRED, paired, COUNT, "requests", "served by a pair of pools")                  \
	X(KVR_RQC_BYPASSED, bypassed, COUNT, "requests",                                           \
	  "of a pair, served without its prefill pool")                                            \
	X(KVR_RQC_RETRIES, retries, COUNT, "requests", "tried anew after a failed leg")            \
	X(KVR_RQC_UNACKNOWLEDGED, unacknowledged, COUNT, "legs",                                   \
	  "given to another worker, as theirs did not acknowledge them")                           \
	X(KVR_RQC_UNKNOWN_CLASS, unknown_class, COUNT, "requests",                                 \
	  "named no policy class of the pool, and went to the first")                              \
	X(KVR_RQC_SESSION_OPENS, session_opens, COUNT, "requests",                                 \
	  "whose worker was asked to open")                                                        \
	X(KVR_RQC_SESSION_BOUND, session_bound, COUNT, "sessions", "bound to a worker")            \
	X(KVR_RQC_SESSION_REFUSED, session_refused, COUNT, "requests",                             \
	  "without room for a session")                                                            \
	X(KVR_RQC_SESSION_BUSY, session_busy, COUNT, "requests", "opened what was being opened")   \
	X(KVR_RQC_SESSION_OPEN_FAILED, session_open_failed, COUNT, "requests",                     \
	  "whose worker refused the open, or did not answer")                                      \
	X(KVR_RQC_SESSION_OPEN_ENDED, session_open_ended, COUNT, "requests",                       \
	  "ended before their open was answered")                                                  \
	X(KVR_RQC_SESSION_UNBOUND, session_unbound, COUNT, "sessions", "closed by their client")   \
	X(KVR_RQC_SESSION_INVALIDATED, session_invalidated, COUNT, "sessions",                     \
	  "given up by a failure of their worker")                                                 \
	X(KVR_RQC_SESSION_EXPIRED, session_expired, COUNT, "sessions", "not used for their time")  \
	X(KVR_RQC_SESSION_CLOSES, session_closes, COUNT, "messages", "to tell workers of an end")  \
	X(KVR_RQC_SESSION_CLOSE_UNBOUND, session_close_unbound, COUNT, "requests",                 \
	  "closed what was not bound")
enum kvr_request_counter { KVR_REQUEST_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_RQC_N };

extern const struct kvr_stats_def kvr_request_stats;

/** A worker of a pool as the life of a request needs it. */
struct kvr_rq_worker {
	uint32_t epoch;	   /**< this life of it */
	uint32_t dp_size;  /**< ranks, >= 1 */
	bool bootstrap;	   /**< it has given an address for KV transfer */
	uint8_t transfer;  /**< constraint of its KV transfer: 0 none, 1 preferred, 2 required */
	double weight;	   /**< preferred */
	const char *taint; /**< `dynamo.topology/<domain>=<value>`, "": the domain has no value */
};

/** Questions of the step functions; they change nothing. Scheduler thread of the pool. */
struct kvr_rq_ops {
	/** Worker @p id when it is one of @p p and lives; false otherwise. */
	bool (*worker)(void *arg, const struct kvr_rq_pool *p, uint64_t id,
		       struct kvr_rq_worker *out);
	/** Conditional disaggregation: kvr_disagg_bypass() with the pools' schedulers. */
	bool (*alone)(void *arg, const struct kvr_request *r, const struct kvr_sched_req *prefill,
		      const struct kvr_sched_req *decode);
	/** Whether @p r may have another session in @p p; KVR_OK or why not. NULL: always. */
	enum kvr_code (*session_may)(void *arg, const struct kvr_request *r,
				     const struct kvr_rq_pool *p);
};

struct kvr_rq_pool {
	const struct kvr_pool_conf *conf;
	struct kvr_rq_pool *prefill;	 /**< of the decode half of a pair */
	const struct kvr_disagg *disagg; /**< of the prefill half: whether it is active */
	struct kvr_session *sessions;	 /**< NULL: none */
	uint64_t affinity_ns;		 /**< 0: no affinity */
	uint64_t dispatch_ns;		 /**< a worker has so long to acknowledge; 0: for ever */
	uint8_t reroutes;		 /**< how often a request may start over */
	bool predict;			 /**< decisions are entered as predicted blocks */
	bool closed;			 /**< no request begins any more */
	bool expected;			 /**< workers of the time before a restart are awaited */
	void *owner;			 /**< the executor's */
	uint64_t looked;		 /**< entries of `opening` looked at, ever */
	kvr_cell_t *count;		 /**< kvr_request_stats */
	struct kvr_rq_opening opening[KVR_RQ_BUCKETS];
};

/** For kvr_sched_unresponsive(): how long a worker of the pool that has not acknowledged a request
 * is passed over, before another request shows whether it does. */
static inline uint64_t kvr_request_unresponsive_ns(const struct kvr_rq_pool *p)
{
	return 5 * p->dispatch_ns;
}

/**
 * Fill @p p (zeroed) from @p conf, which must stay. @p sessions may be NULL; @p count is a row of
 * kvr_request_stats. The caller sets the rest.
 */
void kvr_request_pool_init(struct kvr_rq_pool *p, const struct kvr_pool_conf *conf,
			   struct kvr_session *sessions, kvr_cell_t *count);

#endif
