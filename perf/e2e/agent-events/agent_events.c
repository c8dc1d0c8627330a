/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * KV events through one agent thread: decode, translate, tell the router. Three rows a case, each
 * with the work of the one before: decode; + table and hashes; + KV_EVENTS over loopback to a
 * router's end on another thread, acknowledged, nothing lost. See README.md.
 */
#include "batches.h"
#include "router.h"

#include "kvr_agent.h"
#include "kvr_kvev.h"
#include "kvr_kvmap.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WAITING 20000u /* blocks at the most that the router's end has not seen */
#define TURN	4u     /* batches before the router's socket has its turn */

static struct batches made;
static struct router router;

struct sums {
	struct kvr_agent *agent; /* NULL: nobody is told */
	uint64_t stored, removed, blocks;
};

static void on_stored(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t sh[],
		      uint32_t n)
{
	struct sums *s = user;
	const struct kvr_agent_kv kv = {.tier = tier,
					.has_parent = parent != NULL,
					.parent = parent != NULL ? *parent : 0,
					.hashes = sh,
					.n = n};

	for (uint32_t i = 0; i < n; i++)
		s->stored += sh[i];
	s->blocks += n;
	if (s->agent != NULL)
		kvr_agent_kv_stored(s->agent, 0, &kv);
}

static void on_removed(void *user, enum kvr_tier tier, const uint64_t sh[], uint32_t n)
{
	struct sums *s = user;
	const struct kvr_agent_kv kv = {.tier = tier, .hashes = sh, .n = n};

	for (uint32_t i = 0; i < n; i++)
		s->removed += sh[i];
	s->blocks += n;
	if (s->agent != NULL)
		kvr_agent_kv_removed(s->agent, 0, &kv);
}

static void on_cleared(void *user)
{
}

static int on_dispatch(struct kvr_agent *a, const struct kvr_agent_request *r, void *user)
{
	return 1;
}

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Asleep, not turning: the time of the thread is that of its work. */
static void wait_for_router(struct kvr_agent *a)
{
	struct pollfd p = {.fd = kvr_agent_fd(a), .events = POLLIN};
	const int ms = kvr_agent_timeout_ms(a);

	poll(&p, 1, ms < 0 || ms > 10 ? 10 : ms);
	kvr_agent_process(a);
}

static void keep_up(struct sums *s)
{
	if (s->agent == NULL)
		return;
	kvr_agent_process(s->agent);
	while (s->blocks - atomic_load_explicit(&router.blocks, memory_order_relaxed) > WAITING)
		wait_for_router(s->agent);
}

/* One pass over all batches. @return blocks decoded. */
static uint64_t pass(struct kvr_kvev_decoder *d, struct kvr_kvmap *map, struct sums *s)
{
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < made.n; i++) {
		struct kvr_kvev_batch batch;
		struct kvr_kvev ev;

		if (kvr_kvev_open(d, made.batch[i].p, made.batch[i].len, &batch) < 0)
			abort();
		while (kvr_kvev_next(d, &ev) > 0) {
			blocks += ev.n_hashes;
			if (map != NULL)
				kvr_kvmap_apply(map, &ev);
		}
		if (i % TURN == TURN - 1 || i + 1 == made.n)
			keep_up(s);
	}
	return blocks;
}

static struct kvr_agent *join(void)
{
	static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch};
	struct kvr_agent *a;
	char text[32];

	router_address(&router, text, sizeof(text));
	a = kvr_agent_create(
		&(struct kvr_agent_conf){.router = text,
					 .bind = "127.0.0.1",
					 .worker = 1,
					 .pool = "p",
					 .block_size = BATCHES_BLOCK,
					 .frame_bytes = 8952,
					 .kv_ring_bytes = 16u << 20, /* as kvroute-agent */
					 .ops = &ops});
	if (a == NULL)
		abort();
	return a;
}

/* @return 0 when every sum is what it must be. */
static int measure(const char *name, const char *what, bool table, bool told, double seconds)
{
	struct sums s = {.agent = told ? join() : NULL};
	const struct kvr_kvmap_out out = {on_stored, on_removed, on_cleared, &s};
	struct kvr_kvev_decoder *d = kvr_kvev_create(false);
	struct kvr_kvmap *map =
		table ? kvr_kvmap_create(BATCHES_BLOCK, 2 * made.blocks, 3, &out) : NULL;
	uint64_t blocks = 0, passes = 0, overruns = 0;
	struct kvr_agent_stats st;
	double begin, took, busy;
	int bad;

	if (told)
		router_start(&router);
	pass(d, map, &s); /* warm */
	s.stored = s.removed = 0;
	busy = now(CLOCK_THREAD_CPUTIME_ID);
	begin = now(CLOCK_MONOTONIC);
	do {
		blocks += pass(d, map, &s);
		passes++;
	} while (now(CLOCK_MONOTONIC) - begin < seconds);
	while (told && atomic_load(&router.blocks) < s.blocks)
		wait_for_router(s.agent);
	took = now(CLOCK_MONOTONIC) - begin;
	busy = now(CLOCK_THREAD_CPUTIME_ID) - busy;
	bad = table && (s.stored != passes * made.sum || s.removed != passes * made.sum);
	if (told) {
		router_stop(&router);
		kvr_agent_stats_get(s.agent, &st);
		overruns = st.kv_overruns;
		bad |= router.stored != (passes + 1) * made.sum ||
		       router.removed != (passes + 1) * made.sum || router.lost + overruns > 0;
	}
	printf("{\"case\": \"%s\", \"work\": \"%s\", \"events_per_cpu_s\": %.0f, "
	       "\"blocks_per_cpu_s\": %.0f, \"events_per_s\": %.0f, \"cpu_share\": %.2f, "
	       "\"checksum\": \"%016" PRIx64 "\", \"right\": %s}\n",
	       name, what, (double)(passes * made.events) / busy, (double)blocks / busy,
	       (double)(passes * made.events) / took, busy / took, made.sum,
	       bad ? "false" : "true");
	fflush(stdout);
	kvr_agent_destroy(s.agent);
	kvr_kvmap_destroy(map);
	kvr_kvev_destroy(d);
	return bad;
}

int main(int argc, char **argv)
{
	static const char *const work[] = {"decode", "decode, translate",
					   "decode, translate, tell"};
	const double seconds = argc > 1 ? atof(argv[1]) : 2;
	const int only = argc > 2 ? atoi(argv[2]) : 0; /* the number of a row, to profile it */
	int bad = 0;

	if (router_open(&router) < 0)
		return 1;
	for (unsigned int i = 0; i < 2; i++) {
		batches_make(&made, &batches_cases[i]);
		for (int k = 0; k < 3; k++)
			if (only == 0 || only == 1 + 3 * (int)i + k)
				bad |= measure(batches_cases[i].name, work[k], k > 0, k > 1,
					       seconds);
		batches_free(&made);
	}
	kvr_udp_close(&router.udp);
	return bad;
}
