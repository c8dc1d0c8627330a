/* SPDX-License-Identifier: BSD-3-Clause */
/* A run of the cluster: set-up, and the loop that takes the next event. */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#define SLOTS (1u << 17)

void cluster_start_eal(const char *program, const char *mb)
{
	const char *argv[] = {program, "--no-huge", "--no-shconf",   "--no-pci", "--no-telemetry",
			      "-m",    mb,	    "--log-level=4", NULL};

	if (rte_eal_init(8, (char **)(uintptr_t)argv) < 0) {
		fprintf(stderr, "%s: cannot start the EAL; check that %s MiB of memory are free\n",
			program, mb);
		exit(1);
	}
}

void *cluster_alloc(size_t n, size_t size)
{
	void *p = aligned_alloc(64, (n * size + 63) / 64 * 64);

	if (p == NULL) {
		fprintf(stderr, "cluster: no memory\n");
		exit(1);
	}
	return memset(p, 0, n * size);
}

static void create_ranks(struct cluster *cluster)
{
	const struct cluster_conf *conf = &cluster->conf;

	cluster->rank = cluster_alloc(conf->ranks, sizeof(*cluster->rank));
	for (uint32_t i = 0; i < conf->ranks; i++) {
		struct cluster_rank *rank = &cluster->rank[i];

		engine_init(&rank->model, cluster_speed(conf->engine));
		rank->model.cache = engine_cache_create(conf->cache_blocks, conf->seed + i);
		rank->slow = 1 - conf->spread + 2 * conf->spread * kvr_rand_unit(&cluster->rand);
		if (rank->model.cache == NULL) {
			fprintf(stderr, "cluster: no memory for a cache of %u blocks\n",
				conf->cache_blocks);
			exit(1);
		}
	}
}

struct cluster *cluster_create(const struct cluster_conf *conf, struct cluster_req *req, uint32_t n)
{
	struct cluster *cluster = cluster_alloc(1, sizeof(*cluster));
	uint32_t longest = 0;

	cluster->conf = *conf;
	cluster->conf.slots = conf->slots != 0 ? conf->slots : SLOTS;
	cluster->req = req;
	cluster->n_req = n;
	kvr_rand_init(&cluster->rand, conf->seed);
	create_ranks(cluster);
	for (uint32_t i = 0; i < n; i++)
		longest = req[i].n > longest ? req[i].n : longest;
	cluster->scratch = cluster_alloc(longest + 1, 8);
	cluster->change = cluster_alloc(CLUSTER_CHANGES, sizeof(*cluster->change));
	cluster_router_create(cluster);
	for (uint32_t i = 0; i < n; i++)
		cluster_add_event(cluster, req[i].at, EV_ARRIVE, i);
	cluster->half = req[n - 1].at / 2;
	if (conf->restart)
		cluster_add_event(cluster, cluster->half, EV_RESTART, 0);
	return cluster;
}

static void restart_ranks(struct cluster *cluster)
{
	for (uint32_t rank = 0; rank < cluster->conf.ranks; rank += 3)
		cluster_clear_rank(cluster, rank);
	for (uint32_t rank = 0; rank < cluster->conf.ranks; rank += 3)
		cluster_engine_restart(cluster, rank);
}

void cluster_run(struct cluster *cluster)
{
	while (cluster->events.n > 0) {
		const struct event e = cluster_pop(&cluster->events);

		cluster->now = e.at;
		if (e.kind == EV_ARRIVE)
			cluster_route(cluster, e.subject);
		else if (e.kind == EV_KV)
			cluster_apply_change(cluster, e.subject);
		else if (e.kind == EV_RESTART)
			restart_ranks(cluster);
		else if (e.kind != EV_POLL)
			cluster_engine_event(cluster, &e);
		cluster_admit(cluster);
	}
}

void cluster_destroy(struct cluster *cluster)
{
	cluster_router_destroy(cluster);
	for (uint32_t i = 0; i < cluster->conf.ranks; i++) {
		engine_cache_destroy(cluster->rank[i].model.cache);
		free(cluster->rank[i].ends.v);
	}
	free(cluster->rank);
	free(cluster->change);
	free(cluster->scratch);
	free(cluster->events.v);
	free(cluster);
}
