/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * bench-prefix --clear: the cost of clearing ranks of a full table, and how long it keeps the event
 * lcore busy at a time. A turn here is only kvr_prefix_maintain(). Times are CPU time of the
 * thread, so preemption does not count as a long slice.
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

static uint64_t ranks_clearing(const struct bench_clear *bench)
{
	struct kvr_prefix_stats s;

	kvr_prefix_stats_get(bench->t, &s);
	return s.clearing;
}

static uint64_t blocks_held(const struct bench_clear *bench, uint32_t from, uint32_t to)
{
	uint64_t n = 0;

	for (uint32_t r = from; r < to; r++)
		n += kvr_prefix_rank_blocks(bench->t, (uint16_t)r, KVR_TIER_DEVICE);
	return n;
}

/* Clear ranks from..to-1 at once and run turns until they are freed. */
static void clear_ranks(struct bench_clear *bench, uint32_t from, uint32_t to, const char *what)
{
	uint64_t entries = blocks_held(bench, from, to), units = kvr_prefix_work(bench->t), before;
	double sum = 0, call, t, most = 0;
	uint32_t n = 0;
	char name[6][64];

	call = cpu_us();
	for (uint32_t r = from; r < to; r++)
		kvr_prefix_clear_rank(bench->t, (uint16_t)r);
	sum = call = cpu_us() - call;
	while (ranks_clearing(bench) > 0 && n < TURNS) {
		before = kvr_prefix_work(bench->t);
		t = cpu_us();
		kvr_prefix_maintain(bench->t, 1);
		us[n] = cpu_us() - t;
		sum += us[n++];
		if (kvr_prefix_work(bench->t) - before > most)
			most = (double)(kvr_prefix_work(bench->t) - before);
		rte_rcu_qsbr_quiescent(bench->qsbr, 0);
	}
	qsort(us, n, sizeof(us[0]), bench_by_value);
	for (uint32_t i = 0; i < 6; i++) {
		static const char *const of[] = {"entries",	 "ns_entry",	 "turns",
						 "slice_us_p50", "slice_us_p99", "slice_us_max"};

		snprintf(name[i], sizeof(name[i]), "clear_%s_%s", what, of[i]);
	}
	bench->report(name[0], (double)entries);
	bench->report(name[1], entries > 0 ? sum * 1e3 / (double)entries : 0);
	bench->report(name[2], n);
	bench->report(name[3], n > 0 ? us[n / 2] : 0);
	bench->report(name[4], n > 0 ? us[n * 99 / 100] : 0);
	bench->report(name[5], n > 0 ? us[n - 1] : 0);
	snprintf(name[0], sizeof(name[0]), "clear_%s_call_us", what);
	bench->report(name[0], call);
	snprintf(name[0], sizeof(name[0]), "clear_%s_slice_units_max", what);
	bench->report(name[0], most);
	snprintf(name[0], sizeof(name[0]), "clear_%s_ns_unit", what);
	units = kvr_prefix_work(bench->t) - units;
	bench->report(name[0], units > 0 ? sum * 1e3 / (double)units : 0);
}

void bench_clear(struct bench_clear *bench)
{
	double start = cpu_us();

	/* The last rank holds nothing. */
	for (uint32_t i = 0; i < EMPTY_CLEARS; i++)
		kvr_prefix_clear_rank(bench->t, (uint16_t)bench->ranks);
	bench->report("clear_empty_ns", (cpu_us() - start) * 1e3 / EMPTY_CLEARS);
	kvr_prefix_maintain(bench->t, 1);
	clear_ranks(bench, 0, 1, "one");
	clear_ranks(bench, 1, bench->ranks, "rest");
}
