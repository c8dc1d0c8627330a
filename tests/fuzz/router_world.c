/* SPDX-License-Identifier: BSD-3-Clause */
#include "router_world.h"

#include <stdlib.h>

#include <rte_random.h>

#include "control/thread.h"
#include "kvr_put.h"

#define SIZES                                                                                      \
	"block_size = 4\nmax_ranks = 8\nmax_requests = 16\nmax_jobs = 64\nmax_blocks = 4k\n"       \
	"max_active_blocks = 4096\nmax_sessions = 4\ndecision_sample = 1\n"
#define POOLS                                                                                      \
	"[pool d]\nid = 5\nmodel = m\nrole = decode\nrouter_queue_threshold = 1.0\n" SIZES         \
	"[pool p]\nid = 6\nmodel = m\nrole = prefill\nrouter_queue_threshold = 1.0\n" SIZES        \
	"[pool a]\nid = 7\nrouter_queue_threshold = 0.5\nsession_affinity_ttl_secs = 60\n"         \
	"router_predicted_ttl_secs = 30\n" SIZES

static struct rte_mbuf *taken[16384];
static uint32_t n_taken, round_number;

void world_begin(void)
{
	round_number++;
	if (rt != NULL)
		return;
	rte_srand(1);
	pipeline_start_with(POOLS);
}

uint32_t world_get_round(void)
{
	return round_number;
}

uint64_t world_get_worker(uint32_t i)
{
	return (uint64_t)round_number << 8 | i;
}

void world_take_buffers(uint32_t n)
{
	while (n-- > 0 && n_taken < RTE_DIM(taken) &&
	       (taken[n_taken] = rte_pktmbuf_alloc(rt->lcore[0]->mbufs)) != NULL)
		n_taken++;
}

void world_return_buffers(void)
{
	while (n_taken > 0)
		rte_pktmbuf_free(taken[--n_taken]);
}

void world_pass_time(uint32_t ms, bool heard)
{
	pipeline_skip(ms);
	for (uint32_t i = 0; !heard && i < kvr_registry_count(rt->registry); i++)
		kvr_registry_at(rt->registry, i)->last_seen_ns -= ms * UINT64_C(1000000);
}

/* ---- rest ---- */

static void run_turns(uint32_t n)
{
	while (n-- > 0)
		pipeline_turn();
	pipeline_flush();
}

/* All peers are silent; waits long enough for every deadline, one after the other. */
void world_end(void)
{
	static const uint32_t ms[] = {600000, 31000, 31000, 11000, 11000, 5000, 5000, 3000, 3000};

	world_return_buffers();
	run_turns(1);
	for (uint32_t i = 0; i < RTE_DIM(ms); i++) {
		world_pass_time(ms[i], false);
		run_turns(3);
	}
	world_pass_time(KVR_FLIGHT_LINGER_NS / 1000000 + 1, false);
	run_turns(2);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		control_deactivate(rt, rt->pool[i].name, false);
	if (!pipeline_at_rest())
		abort();
}
