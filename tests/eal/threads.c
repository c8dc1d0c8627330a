/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "control/control.h"
#include "kvr_eal.h"
#include "lcore/mailbox.h"
#include "loop/loop.h"
#include "pipeline.h"
#include "router_rig.h"

#define LONGEST_WAIT_S 60

const struct threads_map threads_maps[] = {
	{"1", .threads = 1, .ingress = 1, .event = 0, .sched = 0},
	{"2", .threads = 2, .ingress = 1, .event = 1, .sched = 1},
	{"3", .threads = 3, .ingress = 1, .event = 1, .sched = 2},
	{"2q", .threads = 2, .ingress = 2, .event = 0, .sched = 1},
	{"4", .threads = 4, .ingress = 2, .event = 2, .sched = 3},
	{"4s", .threads = 4, .ingress = 4, .event = 2, .sched = 3, .queues = 1},
	{"4h", .threads = 4, .ingress = 4, .event = 2, .sched = 3, .queues = 2},
	{.name = NULL},
};

static const struct threads_map *map;
static bool selected;
static bool launched; /* the polling threads of `rt` exist */

/*
 * Odd: the threads must pause. A paused thread stores the number it has read, so that an old
 * acknowledgement is never mistaken for a new one. Both variables are stored with release and
 * loaded with acquire: each side sees what the other wrote before.
 */
static _Atomic uint32_t phase;
static struct {
	_Atomic uint32_t parked;
	_Atomic uint64_t turns;
} __rte_cache_aligned thread[THREADS_MAX];

void threads_use(const struct threads_map *m)
{
	map = m;
	selected = true;
}

const struct threads_map *threads_used(void)
{
	const char *name = getenv("KVR_THREADS");

	if (selected || name == NULL)
		return map;
	for (map = threads_maps; map->name != NULL; map++)
		if (strcmp(map->name, name) == 0)
			break;
	if (map->name == NULL) {
		fprintf(stderr, "threads: no map \"%s\"\n", name);
		exit(1);
	}
	selected = true;
	return map;
}

void threads_eal(const char *memory_mb)
{
	/* All threads may run on every CPU of this process. */
	char cpus[512] = "", lcores[THREADS_MAX * 520 + 600];
	const char *argv[] = {"test",	  kvr_eal_pages(),  "--no-shconf",
			      "--no-pci", "--no-telemetry", "--lcores",
			      lcores,	  "--main-lcore",   "0",
			      "-m",	  memory_mb,	    "--log-level=*:error"};
	cpu_set_t all;
	size_t n = 0;

	sched_getaffinity(0, sizeof(all), &all);
	for (int i = 0; i < CPU_SETSIZE && n < sizeof(cpus) - 16; i++)
		if (CPU_ISSET(i, &all))
			n += (size_t)snprintf(cpus + n, sizeof(cpus) - n, "%s%d", n != 0 ? "," : "",
					      i);
	n = 0;
	for (uint32_t i = 0; i <= THREADS_MAX; i++)
		n += (size_t)snprintf(lcores + n, sizeof(lcores) - n, "%s%u@(%s)",
				      i != 0 ? "," : "", i, cpus);
	if (rte_eal_init((int)RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		exit(1);
	threads_show_mempools();
}

void threads_configure(struct kvr_router_conf *c)
{
	char err[300];

	/* Each lcore reassembles within its own part, which must hold the largest message. */
	for (uint32_t i = 0; map->ingress > 2 && i < c->n_ports; i++)
		c->port[i].port.mbufs *= map->ingress / 2;
	if (rig_lcores(c, map->threads, map->ingress, map->event, map->sched, err, sizeof(err)) <
	    0) {
		fprintf(stderr, "threads: %s\n", err);
		exit(1);
	}
}

/* lcore_loop() that can be paused, and yields its CPU. */
static int run_loop(void *arg)
{
	struct lcore *lc = arg;

	/* Pairs with threads_start(): the router exists. */
	(void)atomic_load_explicit(&phase, memory_order_acquire);
	lcore_stack();
	rte_rcu_qsbr_thread_register(lc->rt->qsbr, lc->qsbr_id);
	rte_rcu_qsbr_thread_online(lc->rt->qsbr, lc->qsbr_id);
	while (!atomic_load_explicit(&lc->rt->stop, memory_order_relaxed)) {
		const uint32_t p = atomic_load_explicit(&phase, memory_order_acquire);

		if ((p & 1) != 0) {
			atomic_store_explicit(&thread[lc->index].parked, p, memory_order_release);
			while (atomic_load_explicit(&phase, memory_order_acquire) == p)
				sched_yield();
			continue;
		}
		lcore_turn(lc);
		atomic_fetch_add_explicit(&thread[lc->index].turns, 1, memory_order_relaxed);
		sched_yield();
	}
	rte_rcu_qsbr_thread_offline(lc->rt->qsbr, lc->qsbr_id);
	rte_rcu_qsbr_thread_unregister(lc->rt->qsbr, lc->qsbr_id);
	/* Pairs with threads_stop(): all writes of this thread are visible. */
	atomic_store_explicit(&thread[lc->index].parked, 0, memory_order_release);
	return 0;
}

void threads_wait(uint64_t *since)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	if (*since == 0)
		*since = (uint64_t)t.tv_sec;
	if ((uint64_t)t.tv_sec - *since > LONGEST_WAIT_S) {
		fprintf(stderr, "threads: a condition did not become true\n");
		abort();
	}
	sched_yield();
}

bool threads_are_running(void)
{
	return launched && (atomic_load_explicit(&phase, memory_order_relaxed) & 1) == 0;
}

void threads_run(void)
{
	if (!launched || threads_are_running())
		return;
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&phase, 1, memory_order_release);
}

void threads_pause(void)
{
	uint64_t since = 0;
	uint32_t p;

	if (!threads_are_running())
		return;
	p = atomic_fetch_add_explicit(&phase, 1, memory_order_release) + 1;
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		while (atomic_load_explicit(&thread[i].parked, memory_order_acquire) != p)
			threads_wait(&since);
	/* No thread polls: calls run on this thread. */
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
}

void threads_start(void)
{
	/* Paused from their first check on. */
	atomic_store_explicit(&phase, (atomic_load_explicit(&phase, memory_order_relaxed) + 2) | 1,
			      memory_order_release);
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		if (rte_eal_remote_launch(run_loop, rt->lcore[i], rt->lcore[i]->lcore_id) != 0) {
			fprintf(stderr, "threads: cannot launch thread %u\n", i);
			exit(1);
		}
	launched = true;
}

void threads_stop(void)
{
	atomic_store_explicit(&rt->stop, 1, memory_order_relaxed);
	threads_run();
	rte_eal_mp_wait_lcore();
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		(void)atomic_load_explicit(&thread[i].parked, memory_order_acquire);
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	launched = false;
}

void threads_pass_two_turns(void)
{
	uint64_t from[THREADS_MAX], since = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		from[i] = atomic_load_explicit(&thread[i].turns, memory_order_relaxed);
	/* The first turn that ends now may have begun before. */
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		while (atomic_load_explicit(&thread[i].turns, memory_order_relaxed) < from[i] + 3)
			threads_wait(&since);
}

static bool is_ring_empty(const struct rte_ring *r)
{
	return r == NULL || rte_ring_empty(r);
}

bool threads_are_idle(void)
{
	bool idle = rte_ring_empty(rt->control_ring);

	for (uint32_t i = 0; i < rt->n_pools; i++)
		idle = idle && mailbox_count(&rt->pool[i]) == 0 &&
		       rte_ring_empty(rt->pool[i].events);
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		idle = idle && is_ring_empty(rt->lcore[i]->egress) &&
		       is_ring_empty(rt->lcore[i]->joins) && is_ring_empty(rt->lcore[i]->calls) &&
		       rt->lcore[i]->call == NULL;
	for (uint32_t i = 0; i < rt->n_ports; i++)
		idle = idle && kvr_port_waiting(rt->port[i]) == 0;
	idle = idle && is_ring_empty(rt->control.out);
	return idle;
}

void threads_until(bool (*done)(void *arg), void *arg)
{
	uint64_t since = 0;

	while (!done(arg)) {
		control_round(rt);
		threads_wait(&since);
	}
}
