/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * KV events through one agent thread: decode, translate, send to the router. Each case has three
 * rows, and each row adds work to the row before: decoding; table and hashes; KV_EVENTS over
 * loopback to a router stub on another thread, acknowledged and without losses. See README.md.
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

#define WAITING 20000u /* maximum of blocks that the router stub has not seen */
#define TURN	4u     /* batches between two calls that serve the router's socket */

static struct batches made;
static struct router router;

struct sums {
	struct kvr_agent *agent; /* NULL: blocks are not sent */
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

static double read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Sleep instead of polling, so that the CPU time of the thread is only that of its work. */
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
static uint64_t run_pass(struct kvr_kvev_decoder *d, struct kvr_kvmap *map, struct sums *s)
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

static struct kvr_agent *join_router(void)
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

/* Measure and print one row. @return 0 if every sum is correct. */
static int measure_row(const char *name, const char *what, bool table, bool sends, double seconds)
{
	struct sums s = {.agent = sends ? join_router() : NULL};
	const struct kvr_kvmap_out out = {on_stored, on_removed, on_cleared, &s};
	struct kvr_kvev_decoder *d = kvr_kvev_create(false);
	struct kvr_kvmap *map =
		table ? kvr_kvmap_create(BATCHES_BLOCK, 2 * made.blocks, 3, &out) : NULL;
	uint64_t blocks = 0, passes = 0, overruns = 0;
	struct kvr_agent_stats st;
	double begin, took, busy;
	int bad;

	if (sends)
		router_start(&router);
	run_pass(d, map, &s); /* warm */
	s.stored = s.removed = 0;
	busy = read_clock(CLOCK_THREAD_CPUTIME_ID);
	begin = read_clock(CLOCK_MONOTONIC);
	do {
		blocks += run_pass(d, map, &s);
		passes++;
	} while (read_clock(CLOCK_MONOTONIC) - begin < seconds);
	while (sends && atomic_load(&router.blocks) < s.blocks)
		wait_for_router(s.agent);
	took = read_clock(CLOCK_MONOTONIC) - begin;
	busy = read_clock(CLOCK_THREAD_CPUTIME_ID) - busy;
	bad = table && (s.stored != passes * made.sum || s.removed != passes * made.sum);
	if (sends) {
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
	const int only = argc > 2 ? atoi(argv[2]) : 0; /* number of the only row, for a profiler */
	int bad = 0;

	if (router_open(&router) < 0)
		return 1;
	for (unsigned int i = 0; i < 2; i++) {
		batches_make(&made, &batches_cases[i]);
		for (int k = 0; k < 3; k++)
			if (only == 0 || only == 1 + 3 * (int)i + k)
				bad |= measure_row(batches_cases[i].name, work[k], k > 0, k > 1,
						   seconds);
		batches_free(&made);
	}
	kvr_udp_close(&router.udp);
	return bad;
}
