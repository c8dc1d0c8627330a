/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a scenario as kvroute-explain does, through the stages of the router: every operation is
 * said in frames, every line comes from frames. What frames cannot say stands in one table; each of
 * these that was met is counted on standard error.
 *
 * The pools of a router are there from its start: the pool lines are read before all others.
 */
#include "frames.h"
#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *what, *why;
} cannot[FRAMES_NOT_N] = {
	[FRAMES_NOT_BECOME] =
		{"worker: becomes another one while it has bookings, has reported "
		 "a load or drains",
		 "a life of a worker does not change what it is, and a new life begins "
		 "without these"},
	[FRAMES_NOT_EMPTY_LOADS] =
		{"loads: of a prompt without tokens",
		 "POTENTIAL_LOADS of no token is refused; read in the scheduler"},
	[FRAMES_NOT_ENCODED] = {"route: more hints than a message holds",
				"refused here as InvalidRequest"},
	[FRAMES_NOT_LARGE] = {"route: of more than 1,048,576 tokens",
			      "ROUTE has no more; so many are sent"},
};

static uint32_t met[FRAMES_NOT_N];

void frames_not(enum frames_not what)
{
	met[what]++;
}

/* ---- pools ------------------------------------------------------------------------------- */

static FILE *config; /* the router's configuration, from pool lines */
static uint32_t n_config;

uint32_t frames_pool(const struct kvr_sc_pool *pool)
{
	return (uint32_t)(uintptr_t)pool->own;
}

static void class_config(const char *pool, const struct kvr_pool_class *k)
{
	fprintf(config, "[class %s %s]\n", pool, k->name);
	kvr_conf_dump(kvr_pool_class_opts, k, config);
}

static uint32_t at_most(uint32_t v, uint32_t most)
{
	return v < most ? v : most;
}

/* As the scenario's, but for sizes that a scenario is unlikely to meet. */
static bool pool_config(struct kvr_sc_pool *pool, struct kvr_sc_problem *p)
{
	struct kvr_pool_conf c = pool->conf;

	(void)p;
	c.max_ranks = at_most(c.max_ranks, 64);
	c.max_workers = at_most(c.max_workers, 64);
	c.max_requests = at_most(c.max_requests, 512);
	c.max_active_blocks = at_most(c.max_active_blocks, 16384);
	c.max_prompt_blocks = at_most(c.max_prompt_blocks, 4096);
	c.max_taints = at_most(c.max_taints, 256);
	c.max_sessions = at_most(c.max_sessions, 1024);
	/* The router would take it from its dead_ms, which is another one here. */
	if (c.dispatch_ms == KVR_POOL_NONE)
		c.dispatch_ms = KVR_RQ_DISPATCH_NS / 1000000;
	fprintf(config,
		"[pool %s]\nid = %u\nmax_jobs = 256\nmax_blocks = 16k\ndecision_sample = 1\n",
		c.name, n_config++);
	kvr_conf_dump(kvr_pool_opts, &c, config);
	for (uint32_t i = 0; i < c.n_classes; i++)
		class_config(c.name, &c.classes[i]);
	return true;
}

static bool pool_start(struct kvr_sc_pool *pool, struct kvr_sc_problem *p)
{
	(void)p;
	pool->own = (void *)(uintptr_t)peers_pool(pool->conf.name);
	pool->sched = peers_sched(frames_pool(pool));
	pool->terms.cap = PEERS_TERMS;
	pool->terms.v = calloc(PEERS_TERMS, sizeof(*pool->terms.v));
	return pool->terms.v != NULL;
}

/* The pool lines of a scenario as sections of a configuration file. */
static char *pools_of(FILE *in)
{
	static const struct kvr_sc_executor reader = {.pool = pool_config};
	static struct kvr_sc_world w;
	char *sections = NULL;
	size_t len;

	config = open_memstream(&sections, &len);
	kvr_sc_world_init(&w, &reader, NULL);
	kvr_sc_pools(&w, in);
	if (n_config == 0) /* a router has at least one */
		fprintf(config, "[pool none]\nblock_size = 4\n");
	fclose(config);
	return sections;
}

static const struct kvr_sc_executor executor = {
	.pool = pool_start,
	.worker = frames_worker,
	.joined = frames_joined,
	.gone = frames_gone,
	.drain = frames_drain,
	.load = frames_load,
	.blocks = frames_blocks,
	.clear = frames_clear,
	.score = frames_score,
	.loads = frames_loads,
	.arrive = frames_arrive,
	.event = frames_event,
	.release = frames_release,
	.poll = frames_op_done,
	.expire = frames_expire,
	.timer = frames_timer,
};

/* ---- main -------------------------------------------------------------------------------- */

static char *whole(FILE *in, size_t *len)
{
	char *text = NULL, part[65536];
	FILE *out = open_memstream(&text, len);
	size_t n;

	while ((n = fread(part, 1, sizeof(part), in)) > 0)
		fwrite(part, 1, n, out);
	fclose(out);
	return text;
}

int main(int argc, char **argv)
{
	static struct kvr_sc_world w;
	FILE *in = argc == 2 && strcmp(argv[1], "-") != 0 ? fopen(argv[1], "r") : stdin;
	char *text, *pools;
	size_t len;
	int status;

	if (argc != 2 || in == NULL) {
		fprintf(stderr, "usage: conform-frames FILE|-\n");
		return 2;
	}
	text = whole(in, &len);
	in = fmemopen(text, len, "r");
	pools = pools_of(in);
	rewind(in);
	pipeline_mbufs = 16383; /* enough for the largest prompt; each costs a page's first touch */
	peers_start(pools);
	kvr_sc_world_init(&w, &executor, stdout);
	status = kvr_sc_script(&w, in);
	fclose(in);
	fflush(stdout);
	for (uint32_t i = 0; i < FRAMES_NOT_N; i++)
		if (met[i] != 0)
			fprintf(stderr, "not in frames, %u times: %s (%s)\n", met[i],
				cannot[i].what, cannot[i].why);
	free(text);
	free(pools);
	return status;
}
