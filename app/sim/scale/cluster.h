/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCALE_CLUSTER_H
#define SCALE_CLUSTER_H

/**
 * @file
 * Simulated engines behind the real request library, scheduler and prefix table, in virtual time:
 * no packets, no clock, one thread. Events are in one binary heap, ordered by (time, number), so
 * that equal seeds give equal runs. Times are ns from the start of the trace. Memory is allocated
 * at set-up. A failure prints a line and ends the program.
 *
 * Two kinds of engine, of the model in app/engine. Both prefill in order of arrival and have an LRU
 * cache, which a prompt's blocks enter when its prefill ends:
 *
 *   fcfs     one prefill at a time, decode beside it at a constant time per token
 *   chunked  steps: each decoding request makes one token, and prefills share the rest of a token
 *            budget. A step takes a base time, plus a time per token of either kind
 *
 *   events, requests, engine  <-  cluster
 */

#include "engine_model.h"
#include "kvr_exec.h"
#include "kvr_prefix.h"
#include "kvr_rand.h"
#include "kvr_sched.h"

#define CLUSTER_BLOCK	512u /* tokens per block, as in the traces */
#define CLUSTER_NONE	UINT32_MAX
#define CLUSTER_MS	1000000u
#define CLUSTER_CHANGES (1u << 16) /* delayed KV events under way */

enum cluster_engine { CLUSTER_FCFS, CLUSTER_CHUNKED };

/** One request: its row of the trace, its result, and its state. */
struct cluster_req {
	uint64_t at; /* arrival */
	const uint64_t *sh;
	uint32_t isl, osl, n;
	uint32_t tenant;
	/* result */
	uint64_t begun, first, end; /* begin of the prefill, first token, last token */
	uint32_t cached;	    /* tokens found in the cache of its rank */
	uint32_t wasted; /* tokens computed that another rank had cached; CLUSTER_NONE: unknown */
	uint32_t rank;
	/* state */
	uint32_t stays; /* times an engine took it */
	struct engine_task task;
	struct flight *flight;
	bool decoding;
};

/** Cost of decisions: lookup, choice and booking of each arrival. */
struct cluster_cost {
	uint64_t (*clock_ns)(void);
	uint64_t decisions, ns;
};

struct cluster_conf {
	uint32_t ranks;
	uint32_t cache_blocks; /* per rank */
	enum cluster_engine engine;
	const char *policy; /* see configure_policy() */
	double late_s;	    /* delay of KV events to the prefix table */
	double noise;	    /* sigma of a lognormal factor of service times, mean 1 */
	double spread;	    /* speeds of ranks are 1 - spread to 1 + spread */
	double turn;	    /* factor of all service times from the middle on */
	bool restart;	    /* a third of the ranks restart in the middle */
	uint64_t seed;
	uint32_t slots;		   /* requests under way at once; 0: 131,072 */
	struct cluster_cost *cost; /* NULL: no clock is read */
};

struct cluster;

/** @p req: @p n requests in order of `at`; written to. */
struct cluster *cluster_create(const struct cluster_conf *conf, struct cluster_req *req,
			       uint32_t n);
void cluster_run(struct cluster *cluster);
void cluster_destroy(struct cluster *cluster);

/** Speed of a rank without disturbances, ns. */
const struct engine_speed *cluster_speed(enum cluster_engine engine);

/** Start the EAL without devices, with @p mb MiB of memory. Ends the program on failure. */
void cluster_start_eal(const char *program, const char *mb);

/** Zeroed memory, aligned to a cache line. */
void *cluster_alloc(size_t n, size_t size);

/* ---- internal ---------------------------------------------------------------------------- */

enum { EV_ARRIVE, EV_PREFILLED, EV_END, EV_STEP, EV_KV, EV_RESTART, EV_POLL };

struct event {
	uint64_t at, number;
	uint32_t kind;
	uint32_t subject; /* request, rank or change, by kind */
	uint32_t stay;	  /* EV_PREFILLED: stale when the request has another by now */
};

struct heap {
	struct event *v;
	uint32_t n, room;
};

struct cluster_rank {
	struct engine_rank model;
	double slow; /* factor of the usual service time */
	uint64_t steps;
	bool stepping;
	struct heap ends; /* chunked: last tokens, by step */
	uint32_t epoch;	  /* restarts */
};

/** A KV event on its way to the prefix table. */
struct kv_change {
	uint32_t rank, n_removed;
	uint32_t have;
	const struct cluster_req *req; /* NULL: the place is free */
	uint64_t *removed;
	uint32_t epoch;
};

/** A request under way in lib/request. */
struct flight {
	struct kvr_request r;
	struct kvr_rq_msg msg;
	struct kvr_sched_decision d;
	struct kvr_exec_req exec;
	struct cluster_req *req;
	STAILQ_ENTRY(flight) link; /* free, or sent */
};
STAILQ_HEAD(flights, flight);

/** The router: lib/request, scheduler and prefix table of one pool. */
struct cluster_router {
	struct kvr_pool_conf conf;
	struct kvr_sched *sched;
	struct kvr_prefix *table;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_overlap *overlap; /* of the last score */
	struct kvr_rq_pool rq;
	kvr_cell_t count[KVR_RQC_N];
	struct kvr_exec exec;
	struct kvr_exec_pool pool;
	struct flight *flight; /* room for `slots` */
	uint32_t n_flights;    /* ever used */
	struct flights free;
	struct flights sent; /* sent to their engines, which have not taken them yet */
	uint64_t poll_at;    /* next EV_POLL; 0: none */
	uint64_t swept_ms;   /* last sweep of the table */
	uint32_t predict_ms; /* life of predicted blocks */
	bool pick_most, waits;
};

struct cluster {
	struct cluster_conf conf;
	struct cluster_req *req;
	uint32_t n_req;
	uint64_t now, number, half;
	struct heap events;
	struct cluster_rank *rank;
	struct kvr_rand rand;
	struct kv_change *change;
	uint32_t n_change;
	uint64_t *scratch; /* victims of a store */
	struct cluster_router router;
};

/* events.c */
void cluster_push(struct heap *heap, struct event e);
struct event cluster_pop(struct heap *heap);
void cluster_add_event(struct cluster *cluster, uint64_t at, uint32_t kind, uint32_t subject);

/* engine.c */
void cluster_engine_take(struct cluster *cluster, uint32_t req);
void cluster_engine_event(struct cluster *cluster, const struct event *e);
void cluster_engine_restart(struct cluster *cluster, uint32_t rank);

/* requests.c */
void cluster_router_create(struct cluster *cluster);
/** Ends the program unless every request is done and no event was out of place. */
void cluster_router_destroy(struct cluster *cluster);
/** A request arrives at the router, or again after a restart of its engine. */
void cluster_route(struct cluster *cluster, uint32_t req);
/** Admit what waits. After each event. */
void cluster_admit(struct cluster *cluster);
/** The engine of a request made its first token; its last one. */
void cluster_prefilled(struct cluster *cluster, uint32_t req);
void cluster_ended(struct cluster *cluster, uint32_t req);
/** The engine of a request restarted before its first token. */
void cluster_lost(struct cluster *cluster, uint32_t req);
/** The cache of a rank changed: the table gets a KV event, after conf.late_s. */
void cluster_blocks(struct cluster *cluster, uint32_t rank, const struct cluster_req *req,
		    const struct engine_cache_change *change);
void cluster_apply_change(struct cluster *cluster, uint32_t i);
void cluster_clear_rank(struct cluster *cluster, uint32_t rank);

#endif
