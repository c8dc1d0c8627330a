/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LCORES_H
#define LCORES_H

/**
 * @file
 * What the lcores that receive have together, whichever of them a frame came to or has joined a
 * message. Paused, as pipeline_*() leaves them.
 */

#include "pipeline.h"
#include "threads.h"

/** pipeline_mbufs that give each of them as many as @p n give one that is alone. */
static inline uint32_t lcores_mbufs(uint32_t n)
{
	const struct threads_map *map = threads_used();

	/* More than two have more by threads_configure(). */
	return map == NULL ? n : n * RTE_MIN(map->ingress, 2u);
}

/** Their counter. */
static inline uint64_t lcores_in(enum in_counter c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_stats_get(rt->lcore[i]->in, c);
	return n;
}

/** Frames that they have refused for @p code. */
static inline uint64_t lcores_refused(uint32_t code)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_stats_get(rt->lcore[i]->reject, code);
	return n;
}

/** Frames of messages that are not whole. */
static inline uint64_t lcores_held(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_reasm_stats(rt->lcore[i]->reasm)->frames;
	return n;
}

/** Fragments that were kept so far. */
static inline uint64_t lcores_kept(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_reasm_stats(rt->lcore[i]->reasm)->accepted;
	return n;
}

/** Whether one of them reads a long message. */
static inline bool lcores_reading(void)
{
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		if (rt->lcore[i]->reading.j != NULL)
			return true;
	return false;
}

/** Give up the messages that are not whole. */
static inline void lcores_give_up(void)
{
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		kvr_reasm_flush(rt->lcore[i]->reasm);
}

#endif
