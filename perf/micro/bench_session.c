/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A full table of live sessions, with both of its sides driven by one thread: bind all, resolve
 * each in random order (which restarts its time to live), let them expire, bind again, unbind.
 *
 *   bench-session [--sessions N] [--json]
 *
 * Ids have 16 to 40 random bytes. They are copied outside the measurement to where a frame would
 * bring them, so only the table misses the caches. Means are CPU time over bursts of 32 with
 * prefetching for the next calls, as on a scheduler lcore, and include hashing the id.
 * resolve_p50_ns and resolve_p99_ns are of single iterations of that loop, with some 10 ns of clock
 * in each. resolve_alone_ns is without prefetching: two consecutive misses. expire_ns is the work
 * of both sides for an expired session. pause_*_us are the longest single calls of a side over the
 * whole run; calls during which the thread was preempted are excluded and counted (switched). Every
 * result is compared with the binding.
 *
 * over_100us counts the calls above 100 us. host_gap_us and host_over_100us are the same for a loop
 * that only reads the clock, as long as the measured calls took: the effect of this machine on an
 * idle program. machine_factor compares this machine with the reference.
 */

#include "bench_machine.h"
#include "kvr_hist.h"
#include "kvr_rand.h"
#include "kvr_session.h"

#include <getopt.h>
#include <rte_cycles.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define BURST	   32u
#define AHEAD	   8u /* calls from the first prefetch to the use; half of it to the second */
#define PASSES	   3u
#define ID_MAX	   40u
#define SEC	   UINT64_C(1000000000)
#define TTL	   (600 * SEC)
#define TURN_EVERY 32u /* bursts between two turns of the control side */
#define LONG_US	   20

struct id {
	uint8_t len;
	uint8_t b[ID_MAX];
};

struct side {
	double longest_us;
	uint64_t switched;
	uint64_t over_100us;
	uint64_t tsc; /* ticks of all calls */
};

struct bench {
	struct kvr_session *s;
	uint32_t n;
	struct id *id;
	uint32_t *order;
	uint64_t now, checksum;
	double tick_ns, control_ns;
	long switches;
	struct side sched, control, host;
	struct kvr_hist single; /* in 1/16 ns */
	/* the burst */
	struct id here[BURST];
	uint32_t number[BURST], ahead;
	struct kvr_session_key key[BURST];
};

typedef void op_fn(struct bench *b, uint32_t i);

static double cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void exit_with(const char *what)
{
	fprintf(stderr, "bench-session: %s\n", what);
	exit(1);
}

/* ---- the machine ---- */

static double tick_ns(void)
{
	struct timespec a, b;
	uint64_t t = rte_rdtsc();
	double ns;

	clock_gettime(CLOCK_MONOTONIC, &a);
	do {
		clock_gettime(CLOCK_MONOTONIC, &b);
		ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
	} while (ns < 1e8);
	return ns / (double)(rte_rdtsc() - t);
}

static bool was_switched(struct bench *bench)
{
	struct rusage u;
	long before = bench->switches;

	getrusage(RUSAGE_THREAD, &u);
	bench->switches = u.ru_nivcsw + u.ru_nvcsw;
	return bench->switches != before;
}

/*
 * Record a call of `tsc` ticks. Only for a long call it is worth checking whether the thread was
 * preempted.
 */
static void note_pause(struct bench *bench, struct side *side, uint64_t tsc)
{
	double us = (double)tsc * bench->tick_ns / 1e3;

	side->tsc += tsc;
	if (us < LONG_US) {
		side->longest_us = RTE_MAX(us, side->longest_us);
	} else if (was_switched(bench)) {
		side->switched++;
	} else {
		side->longest_us = RTE_MAX(us, side->longest_us);
		side->over_100us += us > 100;
	}
}

/* Gaps in a thread that only reads the clock. */
static void host_gaps(struct bench *bench)
{
	const uint64_t start = rte_rdtsc();
	uint64_t last = start, now;

	was_switched(bench);
	while (last - start < bench->sched.tsc) {
		now = rte_rdtsc();
		note_pause(bench, &bench->host, now - last);
		last = rte_rdtsc();
	}
}

/* ---- measured operations ---- */

static uint32_t control_turn(struct bench *bench, struct kvr_session_ref due[], uint32_t n)
{
	double start = cpu_ns();
	uint64_t t = rte_rdtsc();
	uint32_t got = kvr_session_due(bench->s, bench->now, due, n);

	note_pause(bench, &bench->control, rte_rdtsc() - t);
	bench->control_ns += cpu_ns() - start;
	return got;
}

static struct kvr_session_binding make_binding(uint32_t i)
{
	return (struct kvr_session_binding){(uint64_t)i * 7 + 1, i % 8, 0};
}

static void op_bind(struct bench *bench, uint32_t i)
{
	const struct kvr_session_binding to = make_binding(bench->number[i]);

	if (kvr_session_bind(bench->s, &bench->key[i], &to, TTL, bench->now, NULL) != 0)
		exit_with("bind failed");
}

static void check_binding(struct bench *bench, uint32_t i, const struct kvr_session_binding *to)
{
	const struct kvr_session_binding want = make_binding(bench->number[i]);

	if (to->worker != want.worker || to->dp_rank != want.dp_rank)
		exit_with("wrong binding");
	bench->checksum = bench->checksum * 31 + to->worker + to->dp_rank;
}

static void op_resolve(struct bench *bench, uint32_t i)
{
	struct kvr_session_binding to;

	if (kvr_session_resolve(bench->s, &bench->key[i], bench->now, &to, NULL) !=
	    KVR_SESSION_BOUND)
		exit_with("session not found");
	check_binding(bench, i, &to);
}

static void op_unbind(struct bench *bench, uint32_t i)
{
	struct kvr_session_binding to;

	if (!kvr_session_unbind(bench->s, &bench->key[i], &to))
		exit_with("unbind failed");
	check_binding(bench, i, &to);
}

/* One iteration of the loop over a burst: prefetch for later calls, do this one. */
static inline void run_call(struct bench *bench, op_fn *op, uint32_t i, uint32_t n)
{
	const uint32_t first = i + bench->ahead, second = i + bench->ahead / 2;

	if (first < n) {
		kvr_session_key(bench->s, bench->here[first].b, bench->here[first].len,
				&bench->key[first]);
		if (bench->ahead != 0)
			kvr_session_prefetch(bench->s, &bench->key[first], 0);
	}
	if (bench->ahead != 0 && second < n)
		kvr_session_prefetch(bench->s, &bench->key[second], 1);
	op(bench, i);
}

static void prefetch_first(struct bench *bench, uint32_t n)
{
	for (uint32_t i = 0; i < bench->ahead && i < n; i++) {
		kvr_session_key(bench->s, bench->here[i].b, bench->here[i].len, &bench->key[i]);
		kvr_session_prefetch(bench->s, &bench->key[i], 0);
	}
	for (uint32_t i = 0; i < bench->ahead / 2 && i < n; i++)
		kvr_session_prefetch(bench->s, &bench->key[i], 1);
}

static void one_by_one(struct bench *bench, op_fn *op, uint32_t n, bool keep)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t t = rte_rdtsc();

		run_call(bench, op, i, n);
		t = rte_rdtsc() - t;
		note_pause(bench, &bench->sched, t);
		if (keep)
			kvr_hist_add(&bench->single, (uint64_t)((double)t * bench->tick_ns * 16));
	}
}

enum clock { BY_BURST, BY_CALL };

/* Apply `op` to every session in `order`. @return ns per session. */
static double run_all(struct bench *bench, op_fn *op, uint32_t ahead, enum clock clock)
{
	double sum = 0;

	bench->ahead = ahead;
	for (uint32_t at = 0, k = 0; at < bench->n; at += BURST, k++) {
		const uint32_t n = bench->n - at < BURST ? bench->n - at : BURST;
		double start;

		for (uint32_t i = 0; i < n; i++) {
			bench->number[i] = bench->order[at + i];
			bench->here[i] = bench->id[bench->order[at + i]];
		}
		start = cpu_ns();
		prefetch_first(bench, n);
		if (clock == BY_CALL)
			one_by_one(bench, op, n, op == op_resolve);
		else
			for (uint32_t i = 0; i < n; i++)
				run_call(bench, op, i, n);
		sum += cpu_ns() - start;
		bench->now += n * 1000; /* a million calls per second */
		if (k % TURN_EVERY == 0 && control_turn(bench, NULL, 0) != 0)
			exit_with("a session expired early");
	}
	return sum / bench->n;
}

/*
 * Advance time in steps of 1 ms until all sessions have expired. @return ns per session, both
 * sides.
 */
static double expire_all(struct bench *bench)
{
	const uint64_t end = bench->now + TTL + KVR_SESSION_LATE + 60 * SEC;
	struct kvr_session_ref due[256];
	struct kvr_session_ended ended;
	uint32_t gone = 0;
	double sum = 0;

	bench->now += TTL - 10 * SEC;
	bench->control_ns = 0;
	for (; bench->now < end; bench->now += 1000000) {
		double start;
		uint32_t n;

		if (!kvr_session_behind(bench->s, bench->now))
			continue; /* most turns; reading the clock would dominate */
		n = control_turn(bench, due, RTE_DIM(due));
		start = cpu_ns();

		for (uint32_t i = 0; i < n; i++) {
			uint64_t t = rte_rdtsc();

			if (kvr_session_confirm(bench->s, due[i], bench->now, &ended)) {
				gone++;
				bench->checksum += ended.to.worker;
			}
			note_pause(bench, &bench->sched, rte_rdtsc() - t);
		}
		sum += cpu_ns() - start;
	}
	if (gone != bench->n || kvr_session_count(bench->s) != 0)
		exit_with("sessions did not expire");
	return (sum + bench->control_ns) / gone;
}

/* ---- the run ---- */

static void shuffle_order(struct bench *bench, struct kvr_rand *r)
{
	for (uint32_t i = bench->n - 1; i > 0; i--) {
		uint32_t k = kvr_rand_below(r, i + 1), t = bench->order[i];

		bench->order[i] = bench->order[k];
		bench->order[k] = t;
	}
}

static void make_ids(struct bench *bench, struct kvr_rand *r)
{
	bench->id = calloc(bench->n, sizeof(*bench->id));
	bench->order = calloc(bench->n, sizeof(*bench->order));
	bench->s = kvr_session_create(bench->n, kvr_rand_u64(r), 0);
	if (bench->id == NULL || bench->order == NULL || bench->s == NULL)
		exit_with("no memory");
	for (uint32_t i = 0; i < bench->n; i++) {
		bench->order[i] = i;
		bench->id[i].len = (uint8_t)(16 + kvr_rand_below(r, 25));
		for (uint32_t k = 0; k < bench->id[i].len; k++)
			bench->id[i].b[k] = (uint8_t)kvr_rand_u64(r);
	}
}

struct result {
	double bind, resolve, alone, unbind, expire;
};

static double take_median(double v[PASSES])
{
	qsort(v, PASSES, sizeof(v[0]), bench_by_value);
	return v[PASSES / 2];
}

static void run_benchmark(struct bench *bench, struct result *result)
{
	double alone[PASSES], burst[PASSES];
	struct kvr_rand rand = {11};

	make_ids(bench, &rand);
	was_switched(bench);
	shuffle_order(bench, &rand);
	result->bind = run_all(bench, op_bind, AHEAD, BY_BURST);
	for (uint32_t i = 0; i < PASSES; i++) {
		shuffle_order(bench, &rand);
		burst[i] = run_all(bench, op_resolve, AHEAD, BY_BURST);
		shuffle_order(bench, &rand);
		alone[i] = run_all(bench, op_resolve, 0, BY_BURST);
	}
	result->resolve = take_median(burst);
	result->alone = take_median(alone);
	shuffle_order(bench, &rand);
	run_all(bench, op_resolve, AHEAD, BY_CALL);
	result->expire = expire_all(bench);
	run_all(bench, op_bind, AHEAD, BY_CALL);
	shuffle_order(bench, &rand);
	result->unbind = run_all(bench, op_unbind, AHEAD, BY_BURST);
	if (kvr_session_count(bench->s) != 0)
		exit_with("sessions are left");
	host_gaps(bench);
}

static void print_result(const struct bench *bench, const struct result *result, bool json)
{
	const double chain = bench_chain_ns();
	const struct {
		const char *name;
		double value;
	} v[] = {
		{"sessions", bench->n},
		{"bind_ns", result->bind},
		{"resolve_ns", result->resolve},
		{"resolve_p50_ns", (double)kvr_hist_quantile(&bench->single, 0.5) / 16},
		{"resolve_p99_ns", (double)kvr_hist_quantile(&bench->single, 0.99) / 16},
		{"resolve_alone_ns", result->alone},
		{"unbind_ns", result->unbind},
		{"expire_ns", result->expire},
		{"pause_sched_us", bench->sched.longest_us},
		{"pause_control_us", bench->control.longest_us},
		{"over_100us", (double)bench->sched.over_100us},
		{"host_gap_us", bench->host.longest_us},
		{"host_over_100us", (double)bench->host.over_100us},
		{"switched", (double)(bench->sched.switched + bench->control.switched)},
		{"chain_ns", chain},
		{"machine_factor", chain / BENCH_REFERENCE_NS},
	};

	for (uint32_t i = 0; i < RTE_DIM(v); i++)
		printf(json ? "%s\"%s\": %.*f" : "%s%s %.*f\n", json ? (i == 0 ? "{" : ", ") : "",
		       v[i].name, i == 0 ? 0 : 2, v[i].value);
	printf(json ? ", \"checksum\": \"%016llx\"}\n" : "checksum %016llx\n",
	       (unsigned long long)bench->checksum);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"sessions", required_argument, NULL, 's'},
						{"json", no_argument, NULL, 'j'},
						{NULL, 0, NULL, 0}};
	static struct bench bench = {.n = 1000000};
	struct result result;
	bool json = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 's')
			bench.n = (uint32_t)strtoul(optarg, NULL, 10);
		else if (o == 'j')
			json = true;
		else
			return 2;
	}
	if (bench.n < BURST || bench.n > 10000000) {
		fprintf(stderr, "bench-session: --sessions must be %u to 10000000\n", BURST);
		return 2;
	}
	bench.tick_ns = tick_ns();
	run_benchmark(&bench, &result);
	print_result(&bench, &result, json);
	return 0;
}
