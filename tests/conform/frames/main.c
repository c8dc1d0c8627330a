/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a scenario as kvroute-explain does, through the stages of the router: every operation is
 * said in frames, every line comes from frames. What frames cannot say stands in one table; each of
 * these that was met is counted on standard error.
 *
 * The pools of a router are there from its start: the pool lines are read before all others.
 */
#include "frames.h"
#include "language.h"
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

static FILE *config; /* while pool lines are read for the router's configuration */
static uint32_t n_config;

uint32_t frames_pool(const struct ex_pool *pool)
{
	return (uint32_t)(uintptr_t)pool->rq.owner - 1;
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
static void pool_config(const struct ex_pool *pool)
{
	struct kvr_pool_conf c = pool->conf;

	c.max_ranks = at_most(c.max_ranks, 64);
	c.max_workers = at_most(c.max_workers, 64);
	c.max_requests = at_most(c.max_requests, 512);
	c.max_active_blocks = at_most(c.max_active_blocks, 16384);
	c.max_prompt_blocks = at_most(c.max_prompt_blocks, 4096);
	c.max_taints = at_most(c.max_taints, 256);
	c.max_sessions = at_most(c.max_sessions, 1024);
	fprintf(config,
		"[pool %s]\nid = %u\nmax_jobs = 256\nmax_blocks = 16k\ndecision_sample = 1\n",
		c.name, n_config++);
	kvr_conf_dump(kvr_pool_opts, &c, config);
	for (uint32_t i = 0; i < c.n_classes; i++)
		class_config(c.name, &c.classes[i]);
}

bool ex_run_pool(struct ex_world *w, struct ex_pool *pool, struct ex_problem *p)
{
	(void)w;
	(void)p;
	if (config != NULL) {
		pool_config(pool);
		return true;
	}
	pool->rq.owner = (void *)(uintptr_t)(peers_pool(pool->conf.name) + 1);
	pool->sched = peers_sched(frames_pool(pool));
	pool->index = frames_index(pool);
	pool->terms.cap = PEERS_TERMS;
	pool->terms.v = calloc(PEERS_TERMS, sizeof(*pool->terms.v));
	return pool->index != NULL && pool->terms.v != NULL;
}

/* The pool lines of a scenario as sections of a configuration file. */
static char *pools_of(char *text)
{
	static struct ex_world w;
	char *sections = NULL, *line, *save = NULL, *copy = strdup(text);
	size_t len;

	config = open_memstream(&sections, &len);
	for (line = strtok_r(copy, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
		struct ex_problem p = {""};
		struct ex_line *l = ex_line_new(ex_parse(line, strlen(line), &p));

		if (ex_language_check(l->obj, &p) == ex_op_pool)
			ex_op_pool(&w, l, &p);
		ex_line_free(l);
	}
	fclose(config);
	config = NULL;
	free(copy);
	return sections;
}

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
	static struct ex_world w;
	FILE *in = argc == 2 && strcmp(argv[1], "-") != 0 ? fopen(argv[1], "r") : stdin;
	char *text, *pools;
	size_t len;
	int status;

	if (argc != 2 || in == NULL) {
		fprintf(stderr, "usage: conform-frames FILE|-\n");
		return 2;
	}
	text = whole(in, &len);
	pools = pools_of(text);
	if (n_config == 0) /* a router has at least one */
		pools = strdup("[pool none]\nblock_size = 4\n");
	pipeline_mbufs = 16383; /* enough for the largest prompt; each costs a page's first touch */
	peers_start(pools);
	in = fmemopen(text, len, "r");
	ex_world_init(&w);
	status = ex_script(&w, in);
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
