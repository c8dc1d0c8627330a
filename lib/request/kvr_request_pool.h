/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REQUEST_POOL_H
#define KVR_REQUEST_POOL_H

/**
 * @file
 * State shared by the requests of one pool, and the callbacks of its executor; see kvr_request.h.
 *
 * Writers. kvr_request_pool_init() fills it before the first request. Then the thread that
 * schedules the pool: the step functions write `opening` and the counters, the executor writes
 * `closed` and `expected` between steps. `disagg` belongs to the thread that counts the workers.
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

/** Default time for a worker to acknowledge a request: six retransmissions by the client (20 ms,
 * doubling), and twice the silence after which a worker is lost. */
#define KVR_RQ_DISPATCH_NS UINT64_C(2000000000)

#define KVR_RQ_BUCKETS 1024u /* power of two: hash table of the ids that are being opened */

struct kvr_request;
struct kvr_rq_session;
struct kvr_rq_pool;

LIST_HEAD(kvr_rq_opening, kvr_rq_session);

/** Counters of each pool; kvr_request_stats holds their names. */
#define KVR_REQUEST_COUNTER_LIST(X)                                                                \
	X(KVR_RQC_LATE, late, COUNT, "events", "repeated or overtaken")                            \
	X(KVR_RQC_IMPOSSIBLE, impossible, COUNT, "events",                                         \
	  "not permitted in the state of their request")                                           \
	X(KVR_RQC_ARRIVED, arrived, COUNT, "requests", "new, including queries")                   \
	X(KVR_RQC_FORGOTTEN, forgotten, COUNT, "requests", "rejected or answered without state")   \
	X(KVR_RQC_DONE, done, COUNT, "requests", "others that ended and were freed")               \
	X(KVR_RQC_PROBES, probes, COUNT, "requests",                                               \
	  "health probes, not included in other counters")                                         \
	X(KVR_RQC_PAIRED, paired, COUNT, "requests", "served by a pair of pools")                  \
	X(KVR_RQC_BYPASSED, bypassed, COUNT, "requests",                                           \
	  "of a pair, served without its prefill pool")                                            \
	X(KVR_RQC_RETRIES, retries, COUNT, "requests", "restarted after a failed leg")             \
	X(KVR_RQC_UNACKNOWLEDGED, unacknowledged, COUNT, "legs",                                   \
	  "rerouted because their worker did not acknowledge them")                                \
	X(KVR_RQC_UNKNOWN_CLASS, unknown_class, COUNT, "requests",                                 \
	  "with an unknown policy class, put into the first")                                      \
	X(KVR_RQC_SESSION_OPENS, session_opens, COUNT, "requests",                                 \
	  "whose worker was asked to open")                                                        \
	X(KVR_RQC_SESSION_BOUND, session_bound, COUNT, "sessions", "bound to a worker")            \
	X(KVR_RQC_SESSION_REFUSED, session_refused, COUNT, "requests",                             \
	  "without room for a session")                                                            \
	X(KVR_RQC_SESSION_BUSY, session_busy, COUNT, "requests",                                   \
	  "opened an id that another request was opening")                                         \
	X(KVR_RQC_SESSION_OPEN_FAILED, session_open_failed, COUNT, "requests",                     \
	  "whose worker rejected the open, or did not answer")                                     \
	X(KVR_RQC_SESSION_OPEN_ENDED, session_open_ended, COUNT, "requests",                       \
	  "ended before their open was answered")                                                  \
	X(KVR_RQC_SESSION_UNBOUND, session_unbound, COUNT, "sessions", "closed by their client")   \
	X(KVR_RQC_SESSION_INVALIDATED, session_invalidated, COUNT, "sessions",                     \
	  "ended by a failure of their worker")                                                    \
	X(KVR_RQC_SESSION_EXPIRED, session_expired, COUNT, "sessions", "timed out")                \
	X(KVR_RQC_SESSION_CLOSES, session_closes, COUNT, "messages", "CLOSE sent to workers")      \
	X(KVR_RQC_SESSION_CLOSE_UNBOUND, session_close_unbound, COUNT, "requests",                 \
	  "closed an unbound id")
enum kvr_request_counter { KVR_REQUEST_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_RQC_N };

extern const struct kvr_stats_def kvr_request_stats;

/** Properties of a worker that requests depend on. */
struct kvr_rq_worker {
	uint32_t epoch;	   /**< of the current incarnation */
	uint32_t dp_size;  /**< ranks, >= 1 */
	bool bootstrap;	   /**< has an address for KV transfer */
	uint8_t transfer;  /**< constraint of its KV transfer: 0 none, 1 preferred, 2 required */
	double weight;	   /**< preferred */
	const char *taint; /**< `dynamo.topology/<domain>=<value>`, "": the domain has no value */
};

/** Callbacks of the step functions; they must not change anything. Scheduler thread of the pool. */
struct kvr_rq_ops {
	/** Fill @p out with worker @p id; return false if @p p has no such live worker. */
	bool (*worker)(void *arg, const struct kvr_rq_pool *p, uint64_t id,
		       struct kvr_rq_worker *out);
	/** Conditional disaggregation: kvr_disagg_bypass() with the pools' schedulers. */
	bool (*alone)(void *arg, const struct kvr_request *r, const struct kvr_sched_req *prefill,
		      const struct kvr_sched_req *decode);
	/** Return KVR_OK if @p r may have another session in @p p, else the reason. NULL: always.
	 */
	enum kvr_code (*session_may)(void *arg, const struct kvr_request *r,
				     const struct kvr_rq_pool *p);
};

struct kvr_rq_pool {
	const struct kvr_pool_conf *conf;
	struct kvr_rq_pool *prefill;	 /**< of the decode half of a pair */
	const struct kvr_disagg *disagg; /**< state of the prefill half */
	struct kvr_session *sessions;	 /**< NULL: none */
	uint64_t affinity_ns;		 /**< 0: no affinity */
	uint64_t dispatch_ns;		 /**< time limit for an acknowledgement; 0: none */
	uint8_t reroutes;		 /**< further attempts per request */
	bool predict;			 /**< enter decisions as predicted blocks */
	bool closed;			 /**< reject new requests */
	bool expected;			 /**< workers from before a restart are expected */
	void *owner;			 /**< for the executor */
	uint64_t looked;		 /**< entries of `opening` visited since the start */
	kvr_cell_t *count;		 /**< kvr_request_stats */
	struct kvr_rq_opening opening[KVR_RQ_BUCKETS];
};

/** Interval for kvr_sched_unresponsive() between two requests to an unresponsive worker. */
static inline uint64_t kvr_request_unresponsive_ns(const struct kvr_rq_pool *p)
{
	return 5 * p->dispatch_ns;
}

/**
 * Fill @p p (zeroed) from @p conf, which must outlive it. @p sessions may be NULL; @p count is a
 * row of kvr_request_stats. The caller sets the other fields.
 */
void kvr_request_pool_init(struct kvr_rq_pool *p, const struct kvr_pool_conf *conf,
			   struct kvr_session *sessions, kvr_cell_t *count);

#endif
