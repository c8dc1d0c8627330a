/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * bench-prefix --clear: what it costs to clear ranks of a full table, and how long the event lcore
 * is away for it at a time. A turn here is kvr_prefix_maintain() alone, as nothing else is to be
 * done; its time is CPU time of the thread, so that a preempted core is not taken for a long slice.
 */

#include "bench_clear.h"

#include <rte_cycles.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench_machine.h"

#define EMPTY_CLEARS 1000000u
#define TURNS	     (1u << 20)

static double us[TURNS];

static double cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static uint64_t clearing(const struct bench_clear *b)
{
	struct kvr_prefix_stats s;

	kvr_prefix_stats_get(b->t, &s);
	return s.clearing;
}

static uint64_t held(const struct bench_clear *b, uint32_t from, uint32_t to)
{
	uint64_t n = 0;

	for (uint32_t r = from; r < to; r++)
		n += kvr_prefix_rank_blocks(b->t, (uint16_t)r, KVR_TIER_DEVICE);
	return n;
}

/* Clear ranks from..to-1 at once and turn until they are free. */
static void clear(struct bench_clear *b, uint32_t from, uint32_t to, const char *what)
{
	uint64_t entries = held(b, from, to), units = kvr_prefix_work(b->t), before;
	double sum = 0, call, t, most = 0;
	uint32_t n = 0;
	char name[6][64];

	call = cpu_us();
	for (uint32_t r = from; r < to; r++)
		kvr_prefix_clear_rank(b->t, (uint16_t)r);
	sum = call = cpu_us() - call;
	while (clearing(b) > 0 && n < TURNS) {
		before = kvr_prefix_work(b->t);
		t = cpu_us();
		kvr_prefix_maintain(b->t, 1);
		us[n] = cpu_us() - t;
		sum += us[n++];
		if (kvr_prefix_work(b->t) - before > most)
			most = (double)(kvr_prefix_work(b->t) - before);
		rte_rcu_qsbr_quiescent(b->qsbr, 0);
	}
	qsort(us, n, sizeof(us[0]), bench_by_value);
	for (uint32_t i = 0; i < 6; i++) {
		static const char *const of[] = {"entries",	 "ns_entry",	 "turns",
						 "slice_us_p50", "slice_us_p99", "slice_us_max"};

		snprintf(name[i], sizeof(name[i]), "clear_%s_%s", what, of[i]);
	}
	b->say(name[0], (double)entries);
	b->say(name[1], entries > 0 ? sum * 1e3 / (double)entries : 0);
	b->say(name[2], n);
	b->say(name[3], n > 0 ? us[n / 2] : 0);
	b->say(name[4], n > 0 ? us[n * 99 / 100] : 0);
	b->say(name[5], n > 0 ? us[n - 1] : 0);
	snprintf(name[0], sizeof(name[0]), "clear_%s_call_us", what);
	b->say(name[0], call);
	snprintf(name[0], sizeof(name[0]), "clear_%s_slice_units_max", what);
	b->say(name[0], most);
	snprintf(name[0], sizeof(name[0]), "clear_%s_ns_unit", what);
	units = kvr_prefix_work(b->t) - units;
	b->say(name[0], units > 0 ? sum * 1e3 / (double)units : 0);
}

void bench_clear(struct bench_clear *b)
{
	double start = cpu_us();

	/* The last rank has nothing. */
	for (uint32_t i = 0; i < EMPTY_CLEARS; i++)
		kvr_prefix_clear_rank(b->t, (uint16_t)b->ranks);
	b->say("clear_empty_ns", (cpu_us() - start) * 1e3 / EMPTY_CLEARS);
	kvr_prefix_maintain(b->t, 1);
	clear(b, 0, 1, "one");
	clear(b, 1, b->ranks, "rest");
}
