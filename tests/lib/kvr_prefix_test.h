/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PREFIX_TEST_H
#define KVR_PREFIX_TEST_H

/**
 * @file
 * Shared by tests of the prefix table: an EAL without hugepages, devices or files; a table with one
 * registered reader; helpers for chains of SHs.
 */

#include "kvr_prefix.h"
#include "kvr_rand.h"

#include <rte_eal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PT_READERS 8

struct pt_table {
	struct kvr_prefix *t;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_overlap *out;
};

static inline void pt_eal(void)
{
	char *argv[] = {"test",	    "--no-huge",      "--no-shconf", "-m", "64",
			"--no-pci", "--no-telemetry", "-l",	     "0",  "--log-level=4",
			NULL};

	if (rte_eal_init(10, argv) < 0) {
		fprintf(stderr, "EAL does not start\n");
		exit(1);
	}
}

static inline void *pt_alloc(size_t n)
{
	void *p = aligned_alloc(64, (n + 63) & ~(size_t)63);

	if (p == NULL)
		abort();
	memset(p, 0, n);
	return p;
}

/** Create a table as in conf, with name and qsbr filled in. Reader 0 is registered and online. */
static inline struct pt_table pt_open(struct kvr_prefix_conf conf)
{
	static int count;
	struct pt_table p;
	char name[16];

	snprintf(name, sizeof(name), "t%d", count++);
	p.qsbr = pt_alloc(rte_rcu_qsbr_get_memsize(PT_READERS));
	rte_rcu_qsbr_init(p.qsbr, PT_READERS);
	rte_rcu_qsbr_thread_register(p.qsbr, 0);
	rte_rcu_qsbr_thread_online(p.qsbr, 0);
	conf.name = name;
	conf.qsbr = p.qsbr;
	p.t = kvr_prefix_create(&conf);
	p.out = pt_alloc(kvr_overlap_size(KVR_PREFIX_MAX_RANKS));
	return p;
}

static inline void pt_close(struct pt_table *p)
{
	kvr_prefix_destroy(p->t);
	free(p->qsbr);
	free(p->out);
}

/** Report quiescent states and let the writer reclaim, until nothing waits. */
static inline void pt_quiesce(struct pt_table *p, uint64_t now_ms)
{
	uint32_t left = 1;

	for (int i = 0; i < 3 || (left > 0 && i < 100000); i++) {
		rte_rcu_qsbr_quiescent(p->qsbr, 0);
		left = kvr_prefix_maintain(p->t, now_ms);
	}
}

/** Clear a rank completely, in as many slices as necessary. */
static inline void pt_clear(struct pt_table *p, uint16_t rank)
{
	kvr_prefix_clear_rank(p->t, rank);
	while (!kvr_prefix_ready(p->t, rank))
		pt_quiesce(p, 0);
}

static inline struct kvr_overlap *pt_score(struct pt_table *p, const void *sh, uint32_t n)
{
	struct kvr_prefix_query q = {sh, n, p->out};

	memset(p->out, 0xff, kvr_overlap_size(KVR_PREFIX_MAX_RANKS));
	kvr_prefix_score_burst(p->t, &q, 1);
	return p->out;
}

/** Count of one rank; 0 if the table wrote no lane for it. */
static inline uint32_t pt_count(const struct kvr_overlap *o, uint32_t plane, uint32_t rank)
{
	if (rank >= o->nranks || (plane > 0 && !(o->flags & 1u << plane)))
		return 0;
	return o->count[plane * o->stride + rank];
}

/** Device count of `rank` for the query. */
static inline uint32_t pt_device(struct pt_table *p, const void *sh, uint32_t n, uint32_t rank)
{
	return pt_count(pt_score(p, sh, n), KVR_TIER_DEVICE, rank);
}

/** Fill sh[from..n) with a chain that continues the blocks before; `branch` selects the content. */
static inline void pt_chain(uint64_t *sh, uint32_t from, uint32_t n, uint64_t branch)
{
	for (uint32_t i = from; i < n; i++)
		sh[i] = kvr_mix64((i ? sh[i - 1] : 77) ^ kvr_mix64(branch * 0x10001 + i)) | 1;
}

/*
 * Valid until the next call. Returns a pointer because clang rejects a member of a returned struct.
 */
static inline const struct kvr_prefix_stats *pt_stats_now(struct pt_table *p)
{
	static struct kvr_prefix_stats s;

	kvr_prefix_stats_get(p->t, &s);
	return &s;
}
#define pt_stats(p) (*pt_stats_now(p))

#endif
