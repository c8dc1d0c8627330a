/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LCORES_H
#define LCORES_H

/**
 * @file
 *
 * Sums over the receiving lcores, for tests that do not depend on which lcore received a frame or
 * reassembled a message. Call them while the threads are paused.
 */

#include "pipeline.h"
#include "threads.h"

/** Buffers (pipeline_mbufs) that give each receiving lcore as many as @p n give a single one. */
static inline uint32_t lcores_mbufs(uint32_t n)
{
	const struct threads_map *map = threads_used();

	/* threads_configure() adds buffers for more than two lcores */
	return map == NULL ? n : n * RTE_MIN(map->ingress, 2u);
}

/** Sum of an ingress counter. */
static inline uint64_t lcores_sum_counter(enum in_counter c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_stats_get(rt->lcore[i]->in, c);
	return n;
}

/** Frames rejected with @p code. */
static inline uint64_t lcores_sum_rejected(uint32_t code)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_stats_get(rt->lcore[i]->reject, code);
	return n;
}

/** Frames of incomplete messages. */
static inline uint64_t lcores_count_held(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_reasm_stats(rt->lcore[i]->reasm)->frames;
	return n;
}

/** Fragments accepted so far. */
static inline uint64_t lcores_count_kept(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_reasm_stats(rt->lcore[i]->reasm)->accepted;
	return n;
}

/** Return true while an lcore reads a long message. */
static inline bool lcores_are_reading(void)
{
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		if (rt->lcore[i]->reading.j != NULL)
			return true;
	return false;
}

/** Drop the incomplete messages. */
static inline void lcores_drop_messages(void)
{
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		kvr_reasm_flush(rt->lcore[i]->reasm);
}

#endif
