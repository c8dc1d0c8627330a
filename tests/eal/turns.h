/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TURNS_H
#define TURNS_H

/**
 * @file
 *
 * Turns of the lcore of a router on one thread, one by one. A test counts the work of a turn, not
 * its duration. KVR_TURNS=1 also prints the longest turns.
 */

#include "peers.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/thread.h"
#include "ingress/ingress.h"
#include "loop/loop.h"
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/stop.h"
#include "start/start.h"

static uint64_t id; /* of the last request */

/* Start a router with these pools. */
static inline void begin_turn_router(const char *pools, const char *keys)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s%s", pools, keys);
	pipeline_mbufs = 20479;
	pipeline_start_with(text);
	if (getenv("KVR_TURNS") != NULL)
		start_memory(rt, text, sizeof(text)); /* no page faults during the measurement */
	id = 0;
}

static inline void end_turn_router(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static uint64_t longest[4]; /* cycles, the longest first */

static inline struct lcore *get_lcore(void)
{
	return rt->lcore[0];
}

static inline void begin_measure(void)
{
	memset(longest, 0, sizeof(longest));
}

static inline void run_timed_turn(void)
{
	const uint64_t t = rte_rdtsc_precise();
	uint64_t took;

	lcore_turn(get_lcore());
	took = rte_rdtsc_precise() - t;
	for (uint32_t i = 0; i < RTE_DIM(longest); i++)
		if (took > longest[i]) {
			const uint64_t shorter = longest[i];

			longest[i] = took;
			took = shorter;
		}
	pipeline_collect();
	pipeline_flush();
}

static inline void report_turns(const char *what, uint64_t most)
{
	if (getenv("KVR_TURNS") == NULL)
		return;
	printf("%s: at most %lu a turn, longest turns", what, (unsigned long)most);
	for (uint32_t i = 0; i < RTE_DIM(longest); i++)
		printf(" %.1f", (double)longest[i] * 1e6 / (double)rte_get_tsc_hz());
	printf(" us\n");
}

static _Atomic int round_over;

static inline void *run_control(void *arg)
{
	control_round(rt);
	atomic_store_explicit(&round_over, 1, memory_order_release);
	return arg;
}

/*
 * One round of run_control, whose calls the lcore runs in its turns. @return the largest growth of
 * @p what in one turn.
 */
static inline uint64_t run_round_beside(uint64_t (*what)(void))
{
	uint64_t most = 0, before, n;
	pthread_t t;

	atomic_store_explicit(&round_over, 0, memory_order_relaxed);
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	rt->last_tick_ns = 0;
	CU_ASSERT_FATAL(pthread_create(&t, NULL, run_control, NULL) == 0);
	do {
		before = what();
		run_timed_turn();
		n = what() - before;
		most = RTE_MAX(most, n);
		sched_yield();
	} while (atomic_load_explicit(&round_over, memory_order_acquire) == 0 ||
		 get_lcore()->call != NULL || !rte_ring_empty(get_lcore()->calls));
	pthread_join(t, NULL);
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	return most;
}

static inline uint64_t get_counter(enum pool_counter c)
{
	return kvr_stats_get(rt->pool[0].count, c);
}

#endif
