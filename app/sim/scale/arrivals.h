/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCALE_ARRIVALS_H
#define SCALE_ARRIVALS_H

/**
 * @file
 * Workloads: rows by time, blocks of 512 tokens named by hashes that stand for all before them.
 */

#include "cluster.h"

struct work {
	struct cluster_req *req;
	uint64_t *at; /* ns, before any stretching */
	uint64_t *sh;
	uint32_t n, longest;
	double unique; /* different blocks */
	bool tenants;  /* tenant 0 is the quiet one */
};

/** A trace, one copy with names of its own for every 8 ranks, side by side. */
void work_trace(struct work *w, const char *path, uint32_t ranks);

struct load_trace;

/** The same with so many copies. */
void work_copies(struct work *w, const struct load_trace *t, uint32_t copies);

/** Sessions of so many turns, beginning within 600 s, which share one of 64 system prompts of
 * 4,096 tokens; each turn adds 512 to 2,048 tokens. */
void work_sessions(struct work *w, uint32_t sessions, uint32_t turns, uint64_t seed);

/**
 * Agents: sessions of 20 turns that share one of 8 system prompts of 4,096 tokens, each turn adding
 * 512 to 2,048 tokens after a pause of 1 to 30 s; and now and then 50 requests within 100 ms that
 * share a template of 8,192 tokens.
 */
void work_agents(struct work *w, uint32_t ranks, uint64_t seed);

/** Two tenants: agents (0), and one that sends ten times as many prompts nobody has seen. */
void work_flood(struct work *w, uint32_t ranks, uint64_t seed);

#endif
