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

#include "cache.h"
#include "kvr_prefix.h"
#include "kvr_rand.h"
#include "kvr_sched.h"

#define SIM_BLOCK 512u /* tokens, as the traces count */
#define SIM_NONE  UINT32_MAX
#define SIM_MS	  1000000u

enum sim_engine { SIM_FCFS, SIM_CHUNKED };

/** A request: its part of the trace, and what became of it. */
struct sim_req {
	uint64_t at;
	const uint64_t *sh;
	uint32_t isl, osl, n;
	uint32_t tenant;
	/* result */
	uint64_t begun, first, end; /* of the prefill; first token; all of it */
	uint32_t cached;	    /* tokens found by the engine */
	uint32_t wasted; /* tokens computed that another rank had; SIM_NONE: not looked */
	uint32_t rank;
	/* under way */
	uint32_t slot, next, left;
	uint32_t life; /* times an engine took it */
	bool in_engine, decoding;
};

/** What decisions cost. */
struct sim_cost {
	uint64_t (*clock_ns)(void);
	uint64_t decisions, ns; /* looking up, choosing, booking; with lives all of an arrival */
};

/** What is varied; the rest is the study's. */
struct sim_conf {
	uint32_t ranks;
	uint32_t cache_blocks; /* a rank */
	enum sim_engine engine;
	const char *policy;
	double stretch; /* of the trace's times */
	double late_s;	/* events reach the table so much later */
	double noise;	/* sigma of a lognormal factor of service times, mean 1 */
	double spread;	/* speeds of ranks are 1 - spread to 1 + spread */
	double turn;	/* factor of all service times from the middle on */
	bool restart;	/* a third of the ranks lose everything in the middle */
	uint64_t seed;
	uint32_t slots;	       /* requests at once; 0: 131,072 */
	bool lives;	       /* through lib/request: each request lives one of its lives */
	struct sim_cost *cost; /* NULL: no clock is read */
};

struct sim;

/** @p req is written to; in order of time. */
struct sim *sim_create(const struct sim_conf *c, struct sim_req *req, uint32_t n);
void sim_run(struct sim *s);
void sim_destroy(struct sim *s);

/* ---- between the files ------------------------------------------------------------------ */

enum { EV_ARRIVE, EV_PREFILLED, EV_END, EV_STEP, EV_KV, EV_RESTART, EV_POLL };

struct event {
	uint64_t at, number;
	uint32_t kind, who, life;
};

struct heap {
	struct event *v;
	uint32_t n, room;
};

void heap_push(struct heap *h, struct event e);
struct event heap_pop(struct heap *h);

struct sim_rank {
	struct load_cache *cache;
	double slow;	      /* times the usual service time */
	uint32_t first, last; /* waiting for prefill or in it, linked */
	uint32_t n_decode;
	uint64_t steps;
	bool stepping;
	struct heap ends; /* chunked: by step */
	uint32_t epoch;	  /* of restarts */
};

/** Blocks of a rank that the table is to hear of. */
struct kv_change {
	uint32_t rank, n_removed;
	uint32_t have;
	const struct sim_req *req; /* NULL: the slot is free */
	uint64_t *removed;
	uint32_t epoch;
};

struct sim {
	struct sim_conf c;
	struct sim_req *req;
	uint32_t n_req;
	uint64_t now, number, half;
	struct heap events;
	struct sim_rank *rank;
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
	struct sim_req **of_slot;
	struct kvr_sched_req *asked; /* by slot: those that wait are kept */
	uint64_t poll_at;	     /* the next EV_POLL; 0: none */
	struct lives *lives;	     /* NULL: the scheduler is called without lib/request */
	bool predict, pick_most, waits;
	uint64_t predict_ms, swept_ms;
};

void sim_at(struct sim *s, uint64_t at, uint32_t kind, uint32_t who);

/* engine.c */
/** ns to the first token of a prompt of which so many tokens are not cached, with nothing beside.
 */
uint64_t engine_alone(const struct sim_conf *c, uint32_t tokens);
void engine_take(struct sim *s, uint32_t req);
void engine_event(struct sim *s, const struct event *e);
void engine_restart(struct sim *s, uint32_t rank);

/* quality side of the router: sim.c */
void router_route(struct sim *s, uint32_t req);
void router_prefilled(struct sim *s, uint32_t req);
void router_ended(struct sim *s, uint32_t req);
void router_blocks(struct sim *s, uint32_t rank, const struct sim_req *r,
		   const struct load_cache_change *c);
/** What the table knows now; also of one that has waited. */
bool router_look_up(void *sim, uint32_t slot, const struct kvr_sched_req *req,
		    struct kvr_sched_overlap *out);
void *need(size_t n, size_t size);

/* life.c */
void sim_life_begin(struct sim *s, const struct kvr_pool_conf *c);
/** Every life is over, and nothing was said that its place does not allow; else the program ends.
 */
void sim_life_end(struct sim *s);
/** It has its slot. @return it has an engine, @p q->rank; false: it waits. */
bool sim_life_arrive(struct sim *s, struct sim_req *q);
/** One that has waited has an engine. */
void sim_life_admitted(struct sim *s, const struct kvr_sched_decision *d);
/** Its engine has it, has its first token, all of them: the slot is free. */
void sim_life_taken(struct sim *s, const struct sim_req *q);
void sim_life_prefilled(struct sim *s, const struct sim_req *q);
void sim_life_ended(struct sim *s, const struct sim_req *q);

#endif
