/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCALE_ARRIVALS_H
#define SCALE_ARRIVALS_H

/**
 * @file
 * Workloads: requests sorted by time. A block of 512 tokens is named by a hash of its whole prefix.
 */

#include "cluster.h"

struct work {
	struct cluster_req *req;
	uint64_t *at; /* ns, before stretching */
	uint64_t *sh;
	uint32_t n, longest;
	double unique; /* distinct blocks */
	bool tenants;  /* tenant 1 floods; results of tenant 0 are reported as "quiet" */
};

/** A trace, with one copy per 8 ranks. Copies have different blocks and interleaved times. */
void work_trace(struct work *w, const char *path, uint32_t ranks);

struct load_trace;

/** The same with @p copies copies. */
void work_copies(struct work *w, const struct load_trace *t, uint32_t copies);

/** Sessions of @p turns turns that begin within 600 s. They share 64 system prompts of 4,096
 * tokens; each turn adds 512 to 2,048 tokens. */
void work_sessions(struct work *w, uint32_t sessions, uint32_t turns, uint64_t seed);

/**
 * Agents: sessions of 20 turns that share 8 system prompts of 4,096 tokens; each turn adds 512 to
 * 2,048 tokens after a pause of 1 to 30 s. In addition, bursts of 50 requests within 100 ms that
 * share a template of 8,192 tokens.
 */
void work_agents(struct work *w, uint32_t ranks, uint64_t seed);

/** Two tenants: agents (0), and one that sends ten times as many prompts, all unique. */
void work_flood(struct work *w, uint32_t ranks, uint64_t seed);

/** Run a cluster over the workload, with all arrival times multiplied by @p stretch. */
void work_run(struct work *w, const struct cluster_conf *conf, double stretch);

/** Share of the ranks' time that prefill took in the last run, without noise. The first tenth of
 * the requests is left out. */
double work_prefill_share(const struct work *w, uint32_t ranks);

#endif
