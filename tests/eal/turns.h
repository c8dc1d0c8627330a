/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TURNS_H
#define TURNS_H

/**
 * @file
 * Turns of the lcore of a router on one thread, one by one: what a test counts is what a turn does,
 * not how long it takes. KVR_TURNS=1 prints the longest turns beside it, for people.
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

/* A router of these pools. */
static inline void begin_with(const char *pools, const char *keys)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s%s", pools, keys);
	pipeline_mbufs = 20479;
	pipeline_start_with(text);
	if (getenv("KVR_TURNS") != NULL)
		start_memory(rt, text, sizeof(text)); /* no page faults in what is measured */
	id = 0;
}

static inline void end(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static uint64_t longest[4]; /* cycles, the longest first */

static inline struct lcore *lc(void)
{
	return rt->lcore[0];
}

static inline void begin_measure(void)
{
	memset(longest, 0, sizeof(longest));
}

static inline void turn(void)
{
	const uint64_t t = rte_rdtsc_precise();
	uint64_t took;

	lcore_turn(lc());
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

static inline void report(const char *what, uint64_t most)
{
	if (getenv("KVR_TURNS") == NULL)
		return;
	printf("%s: at most %lu a turn, longest turns", what, (unsigned long)most);
	for (uint32_t i = 0; i < RTE_DIM(longest); i++)
		printf(" %.1f", (double)longest[i] * 1e6 / (double)rte_get_tsc_hz());
	printf(" us\n");
}

static _Atomic int round_over;

static inline void *control(void *arg)
{
	control_round(rt);
	atomic_store_explicit(&round_over, 1, memory_order_release);
	return arg;
}

/* One round of control, whose calls the lcore runs in its turns. @return the most that @p what
 * counts in one of them. */
static inline uint64_t round_beside(uint64_t (*what)(void))
{
	uint64_t most = 0, before, n;
	pthread_t t;

	atomic_store_explicit(&round_over, 0, memory_order_relaxed);
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	rt->last_tick_ns = 0;
	CU_ASSERT_FATAL(pthread_create(&t, NULL, control, NULL) == 0);
	do {
		before = what();
		turn();
		n = what() - before;
		most = RTE_MAX(most, n);
		sched_yield();
	} while (atomic_load_explicit(&round_over, memory_order_acquire) == 0 ||
		 lc()->call != NULL || !rte_ring_empty(lc()->calls));
	pthread_join(t, NULL);
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	return most;
}

static inline uint64_t counter(enum pool_counter c)
{
	return kvr_stats_get(rt->pool[0].count, c);
}

#endif
