/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCALE_CLUSTER_H
#define SCALE_CLUSTER_H

/**
 * @file
 * Engines in virtual time behind the real scheduler and prefix table: no packet, no clock, one
 * thread. Events stand in one binary heap by (time, number), so equal seeds give equal runs. Times
 * are ns from the start of the trace. Memory is allocated at set-up; a failure ends the program.
 *
 * Two kinds of engine, both FCFS in the order of prefills, with an LRU cache of prompt blocks that
 * a prompt enters when its prefill ends:
 *
 *   fcfs     one prefill at a time, decode beside it at a constant time a token
 *   chunked  steps: every request in decode makes a token, prefills share what is left of a token
 *            budget; a step takes a base time, and more for each token of either kind
 */

#include "engine_model.h"
#include "kvr_prefix.h"
#include "kvr_rand.h"
#include "kvr_sched.h"

#define CLUSTER_BLOCK 512u /* tokens, as the traces count */
#define CLUSTER_NONE  UINT32_MAX
#define CLUSTER_MS    1000000u

enum cluster_engine { CLUSTER_FCFS, CLUSTER_CHUNKED };

/** A request: its part of the trace, and what became of it. */
struct cluster_req {
	uint64_t at;
	const uint64_t *sh;
	uint32_t isl, osl, n;
	uint32_t tenant;
	/* result */
	uint64_t begun, first, end; /* of the prefill; first token; all of it */
	uint32_t cached;	    /* tokens found by the engine */
	uint32_t wasted; /* tokens computed that another rank had; CLUSTER_NONE: not looked */
	uint32_t rank;
	/* under way */
	uint32_t slot;
	uint32_t stays; /* times an engine took it */
	struct engine_task task;
	bool decoding;
};

/** What decisions cost. */
struct cluster_cost {
	uint64_t (*clock_ns)(void);
	uint64_t decisions, ns; /* looking up, choosing, booking; with lives all of an arrival */
};

/** What is varied; the rest is the study's. */
struct cluster_conf {
	uint32_t ranks;
	uint32_t cache_blocks; /* a rank */
	enum cluster_engine engine;
	const char *policy;
	double stretch; /* of the trace's times */
	double late_s;	/* events reach the table so much later */
	double noise;	/* sigma of a lognormal factor of service times, mean 1 */
	double spread;	/* speeds of ranks are 1 - spread to 1 + spread */
	double turn;	/* factor of all service times from the middle on */
	bool restart;	/* a third of the ranks lose everything in the middle */
	uint64_t seed;
	uint32_t slots;		   /* requests at once; 0: 131,072 */
	bool lives;		   /* through lib/request: each request lives one of its lives */
	struct cluster_cost *cost; /* NULL: no clock is read */
};

struct cluster;

/** @p req is written to; in order of time. */
struct cluster *cluster_create(const struct cluster_conf *c, struct cluster_req *req, uint32_t n);
void cluster_run(struct cluster *s);
void cluster_destroy(struct cluster *s);

/* ---- between the files ------------------------------------------------------------------ */

enum { EV_ARRIVE, EV_PREFILLED, EV_END, EV_STEP, EV_KV, EV_RESTART, EV_POLL };

struct event {
	uint64_t at, number;
	uint32_t kind, who, stay;
};

struct heap {
	struct event *v;
	uint32_t n, room;
};

void heap_push(struct heap *h, struct event e);
struct event heap_pop(struct heap *h);

struct cluster_rank {
	struct engine_rank model;
	double slow; /* times the usual service time */
	uint64_t steps;
	bool stepping;
	struct heap ends; /* chunked: by step */
	uint32_t epoch;	  /* of restarts */
};

/** Blocks of a rank that the table is to hear of. */
struct kv_change {
	uint32_t rank, n_removed;
	uint32_t have;
	const struct cluster_req *req; /* NULL: the slot is free */
	uint64_t *removed;
	uint32_t epoch;
};

struct cluster {
	struct cluster_conf c;
	struct cluster_req *req;
	uint32_t n_req;
	uint64_t now, number, half;
	struct heap events;
	struct cluster_rank *rank;
	struct kvr_rand rand;
	struct kv_change *change;
	uint32_t n_change;
	uint64_t *scratch; /* victims of a store */
	/* router */
	struct kvr_sched *sched;
	struct kvr_prefix *table;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_overlap *ov;
	uint32_t *slot_free, n_free;
	struct cluster_req **of_slot;
	struct kvr_sched_req *asked; /* by slot: those that wait are kept */
	uint64_t poll_at;	     /* the next EV_POLL; 0: none */
	struct lives *lives;	     /* NULL: the scheduler is called without lib/request */
	bool predict, pick_most, waits;
	uint64_t predict_ms, swept_ms;
};

void cluster_add_event(struct cluster *s, uint64_t at, uint32_t kind, uint32_t who);

/* engine.c */
const struct engine_speed *cluster_speed(enum cluster_engine engine);
void cluster_engine_take(struct cluster *s, uint32_t req);
void cluster_engine_event(struct cluster *s, const struct event *e);
void cluster_engine_restart(struct cluster *s, uint32_t rank);

/* quality side of the router: sim.c */
void cluster_route(struct cluster *s, uint32_t req);
void cluster_prefilled(struct cluster *s, uint32_t req);
void cluster_ended(struct cluster *s, uint32_t req);
void cluster_blocks(struct cluster *s, uint32_t rank, const struct cluster_req *r,
		    const struct engine_cache_change *c);
/** What the table knows now; also of one that has waited. */
bool cluster_look_up(void *sim, uint32_t slot, const struct kvr_sched_req *req,
		     struct kvr_sched_overlap *out);
void *cluster_alloc(size_t n, size_t size);

/* life.c */
void cluster_request_begin(struct cluster *s, const struct kvr_pool_conf *c);
/** Every life is over, and nothing was said that its place does not allow; else the program ends.
 */
void cluster_request_end(struct cluster *s);
/** It has its slot. @return it has an engine, @p q->rank; false: it waits. */
bool cluster_request_arrive(struct cluster *s, struct cluster_req *q);
/** One that has waited has an engine. */
void cluster_request_admitted(struct cluster *s, const struct kvr_sched_decision *d);
/** Its engine has it, has its first token, all of them: the slot is free. */
void cluster_request_taken(struct cluster *s, const struct cluster_req *q);
void cluster_request_prefilled(struct cluster *s, const struct cluster_req *q);
void cluster_request_ended(struct cluster *s, const struct cluster_req *q);

#endif
