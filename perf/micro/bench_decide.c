/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One complete decision with given hashes, in the state of the reference measurement: 1 M entries
 * in the prefix table, 16 active requests per worker that end in the order of their arrival, 20,000
 * decisions after the fill. Each decision is find, project, select and book, plus mark and free of
 * the request that has been active longest.
 *
 *   bench-decide --ranks W --blocks D [--mode kv|ttft] [--isa scalar|avx2|avx512] [--passes N]
 * [--json]
 *
 * Prompts are scored in bursts of 32, as by an ingress lcore, and the next messages of a burst are
 * prefetched for the scheduler (kvr_sched_prefetch(), as on its lcore; not part of step_ns). Means
 * are CPU time of passes through the public interface (median of the passes; least: fastest pass).
 * p50 and p99 are of single decisions including their part of the scoring. step_ns comes from a
 * pass that calls the same functions one by one with a clock read each, which adds some 10 ns to
 * every step. machine_factor compares this machine with the reference.
 */

#include "active_pvt.h"
#include "bench_machine.h"
#include "kvr_hist.h"
#include "kvr_peerbench.h"
#include "sched_pvt.h"

#include <getopt.h>
#include <inttypes.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#define ACTIVE_PER_WORKER 16u
#define DECISIONS	  20000u
#define PASSES		  25u /* as long as the reference's; the first 3 have cold caches */
#define PASSES_MAX	  1000u
#define BURST		  32u /* divides the number of slots and DECISIONS */
#define BLOCK_SIZE	  16u

enum { FIND, PROJECT, SELECT, BOOK, MARK, FREE, STEPS };
static const char *const step_name[STEPS] = {"find", "project", "select", "book", "mark", "free"};

struct bench {
	struct pb w;
	struct kvr_prefix *t;
	struct rte_rcu_qsbr *qsbr;
	struct kvr_overlap *out[BURST];
	struct kvr_sched *s;
	struct kvr_sched_req *req; /* by slot */
	struct kvr_active_ahead ahead[BURST];
	uint32_t slots, done, passes;
	int mode;
	enum kvr_prefix_isa isa; /* for all libraries; AUTO: the widest of this CPU */
	uint64_t chosen; /* hash of all chosen ranks: equal for two programs that decide equally */
	uint64_t now;
	double tick; /* ns */
};

static void *alloc_lines(size_t n)
{
	void *p = aligned_alloc(64, (n + 63) / 64 * 64);

	if (p == NULL)
		exit(1);
	memset(p, 0, n);
	return p;
}

static double cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void start_bench_eal(void)
{
	char lcore[16];
	char *argv[] = {"bench-decide",	  "--no-huge", "--no-shconf", "--no-pci",
			"--no-telemetry", "-m",	       "256",	      "--log-level=4",
			"--lcores",	  lcore,       NULL};
	cpu_set_t set;
	int cpu = 0;

	sched_getaffinity(0, sizeof(set), &set);
	while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &set))
		cpu++;
	snprintf(lcore, sizeof(lcore), "0@%d", cpu);
	if (rte_eal_init(10, argv) < 0)
		exit(1);
}

/* Prompts arrive in packets, whose memory is in huge pages. */
static void place_queries(struct bench *bench)
{
	const size_t huge = 2u << 20, bytes = (size_t)bench->w.nquery * bench->w.d * 8;
	void *p = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);

	if (p == NULL)
		exit(1);
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	memcpy(p, bench->w.query, bytes);
	free(bench->w.query);
	bench->w.query = p;
}

static void open_table(struct bench *bench)
{
	struct kvr_prefix_conf c = {.name = "decide",
				    .max_ranks = bench->w.ranks,
				    .max_blocks = 1u << 21,
				    .max_predicted = 64,
				    .isa = bench->isa,
				    .socket_id = SOCKET_ID_ANY};

	bench->qsbr = alloc_lines(rte_rcu_qsbr_get_memsize(1));
	rte_rcu_qsbr_init(bench->qsbr, 1);
	rte_rcu_qsbr_thread_register(bench->qsbr, 0);
	rte_rcu_qsbr_thread_online(bench->qsbr, 0);
	c.qsbr = bench->qsbr;
	bench->t = kvr_prefix_create(&c);
	if (bench->t == NULL)
		exit(1);
	for (uint32_t i = 0; i < BURST; i++)
		bench->out[i] = alloc_lines(kvr_overlap_size((bench->w.ranks + 63) / 64 * 64));
	for (uint32_t i = 0; i < bench->w.store.n; i++) {
		kvr_prefix_apply_burst(bench->t, &bench->w.store.ev[i], 1);
		rte_rcu_qsbr_quiescent(bench->qsbr, 0);
		kvr_prefix_maintain(bench->t, 1);
	}
}

static void open_sched(struct bench *bench)
{
	struct kvr_pool_conf conf;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "bench");
	conf.block_size = BLOCK_SIZE;
	conf.mode = bench->mode;
	conf.max_ranks = bench->w.ranks;
	conf.max_workers = bench->w.ranks;
	bench->slots = (bench->w.ranks * ACTIVE_PER_WORKER + BURST - 1) / BURST * BURST;
	conf.max_requests = bench->slots;
	/* Short prompts leave half of each 64-block run unused. */
	conf.max_active_blocks = bench->slots * (bench->w.d + RTE_MAX(bench->w.d, 128u));
	bench->s = kvr_sched_create(&conf, NULL, 0);
	bench->req = calloc(bench->slots, sizeof(*bench->req));
	if (bench->s == NULL || bench->req == NULL)
		exit(1);
	if (bench->isa != KVR_PREFIX_ISA_AUTO &&
	    (!kvr_sched__kernels((enum sched_isa)(bench->isa - 1), &bench->s->k) ||
	     !kvr_active__kernels((enum active_isa)(bench->isa - 1), &bench->s->active->same,
				  &bench->s->active->spread)))
		exit(1);
	for (uint64_t id = 0; id < bench->w.ranks; id++) {
		const struct kvr_sched_worker worker = {.id = id, .dp_size = 1};

		if (kvr_sched_worker_set(bench->s, &worker, 0) != 0)
			exit(1);
	}
}

static const uint64_t *get_prompt(const struct bench *bench, uint32_t k)
{
	return &bench->w.query[(size_t)(k % bench->w.nquery) * bench->w.d];
}

/* Score a burst of prompts, as an ingress lcore does. */
static void score_burst(struct bench *bench, uint32_t k)
{
	struct kvr_prefix_query q[BURST];

	for (uint32_t i = 0; i < BURST; i++)
		q[i] = (struct kvr_prefix_query){get_prompt(bench, k + i), bench->w.d,
						 bench->out[i]};
	kvr_prefix_score_burst(bench->t, q, BURST);
	for (uint32_t i = 0; i < BURST; i++)
		kvr_overlap_pad(bench->out[i]);
	rte_rcu_qsbr_quiescent(bench->qsbr, 0);
}

static struct kvr_sched_overlap get_overlap(const struct bench *bench, uint32_t k)
{
	const struct kvr_overlap *o = bench->out[k % BURST];

	return (struct kvr_sched_overlap){.device = kvr_overlap_tier(o, KVR_TIER_DEVICE)};
}

/* Prepare the requests of a burst. */
static void prepare_burst(struct bench *bench, uint32_t first)
{
	for (uint32_t k = first; k < first + BURST; k++)
		bench->req[k % bench->slots] =
			(struct kvr_sched_req){.sh = get_prompt(bench, k),
					       .n = bench->w.d,
					       .isl = bench->w.d * BLOCK_SIZE};
	memset(bench->ahead, 0, sizeof(bench->ahead));
	score_burst(bench, first);
}

/* Prefetch for the later messages of a burst, which the scheduler lcore knows in advance. */
static void fetch_ahead(struct bench *bench, uint32_t first, int i)
{
	for (int step = 0; step < KVR_SCHED_AHEAD; step++) {
		int at = i + 2 * (KVR_SCHED_AHEAD - step);
		uint32_t slot = (first + (uint32_t)at) % bench->slots;

		if (at < 0 || at >= (int)BURST)
			continue;
		kvr_sched_prefetch(bench->s, slot, step);
		kvr_sched_prefetch_route(bench->s, &bench->req[slot], &bench->ahead[at]);
	}
}

/*
 * Decide through the public interface. Once all slots are active, the previous request of the slot
 * ends first.
 */
static void decide_slot(struct bench *bench, uint32_t k)
{
	const struct kvr_sched_overlap ov = get_overlap(bench, k);
	uint32_t slot = k % bench->slots;
	struct kvr_sched_decision decision;

	bench->now += 1000;

	if (k >= bench->slots) {
		kvr_sched_prefill_done(bench->s, slot, bench->now);
		kvr_sched_finish(bench->s, slot, bench->now);
	}
	if (kvr_sched_route(bench->s, slot, &bench->req[slot], &ov, bench->now, &decision) !=
	    KVR_SCHED_ROUTED)
		exit(1);
	bench->chosen = (bench->chosen ^ decision.rank) * UINT64_C(0x100000001b3);
}

/* Decide step by step. */
static bool decide_steps(struct bench *bench, uint32_t k, uint64_t step[STEPS])
{
	uint32_t slot = k % bench->slots;
	struct choice c = {.req = &bench->req[slot], .n = bench->w.d, .open = bench->s->open};
	struct kvr_sched_decision decision = {.slot = slot, .better_rank = KVR_SCHED_NO_RANK};
	const struct kvr_sched_overlap ov = get_overlap(bench, k);
	uint64_t t[STEPS];

	bench->now += 1000;
	t[0] = rte_rdtsc_precise();
	kvr_sched_prefill_done(bench->s, slot, bench->now);
	t[1] = rte_rdtsc_precise();
	kvr_sched_finish(bench->s, slot, bench->now);
	t[2] = rte_rdtsc_precise();
	c.ov = &ov;
	kvr_sched__params(bench->s, c.req, &c.p);
	if (kvr_sched__eligible(bench->s, &c) != KVR_OK)
		exit(1);
	kvr_sched__project(bench->s, &c, bench->now);
	t[3] = rte_rdtsc_precise();
	kvr_sched__select(bench->s, &c, &decision);
	t[4] = rte_rdtsc_precise();
	kvr_sched__book(bench->s, &c, bench->now, &decision);
	t[5] = rte_rdtsc_precise();
	if ((double)(t[5] - t[0]) * bench->tick > 50000)
		return false; /* the thread was preempted */
	step[MARK] += t[1] - t[0];
	step[FREE] += t[2] - t[1];
	step[PROJECT] += t[3] - t[2];
	step[SELECT] += t[4] - t[3];
	step[BOOK] += t[5] - t[4];
	return true;
}

/* One burst; prefetches for later decisions are interleaved with each decision. */
static void run_burst(struct bench *bench)
{
	uint32_t first = bench->done;

	prepare_burst(bench, first);
	for (int i = -2 * KVR_SCHED_AHEAD; i < (int)BURST; i++) {
		fetch_ahead(bench, first, i);
		if (i >= 0)
			decide_slot(bench, bench->done++);
	}
}

struct result {
	double mean, least, p50, p99, per_s, step[STEPS];
};

/* Mean of one pass in ns of CPU time of this thread, which excludes the time slices of others. */
static double run_pass(struct bench *bench)
{
	double start = cpu_ns();

	for (uint32_t i = 0; i < DECISIONS; i += BURST)
		run_burst(bench);
	return (cpu_ns() - start) / DECISIONS;
}

/* Time each decision, including its part of the scoring of the burst. */
static void measure_quantiles(struct bench *bench, struct result *result)
{
	static struct kvr_hist hist;

	for (uint32_t i = 0; i < DECISIONS; i += BURST) {
		uint64_t t = rte_rdtsc_precise(), share;
		uint32_t first = bench->done;

		prepare_burst(bench, first);
		for (int k = -2 * KVR_SCHED_AHEAD; k < 0; k++)
			fetch_ahead(bench, first, k);
		share = (rte_rdtsc_precise() - t) / BURST;
		for (int k = 0; k < (int)BURST; k++) {
			t = rte_rdtsc_precise();
			fetch_ahead(bench, first, k);
			decide_slot(bench, bench->done++);
			t = rte_rdtsc_precise() - t + share;
			kvr_hist_add(&hist,
				     (uint64_t)((double)t * bench->tick * 10)); /* tenths of ns */
		}
	}
	result->p50 = (double)kvr_hist_quantile(&hist, 0.5) / 10;
	result->p99 = (double)kvr_hist_quantile(&hist, 0.99) / 10;
}

static void measure_steps(struct bench *bench, struct result *result)
{
	uint64_t step[STEPS] = {0};
	uint32_t n = 0, finds = 0;

	for (uint32_t i = 0; i < DECISIONS; i += BURST) {
		uint64_t t = rte_rdtsc_precise();
		uint32_t first = bench->done;

		prepare_burst(bench, first);
		t = rte_rdtsc_precise() - t;
		step[FIND] += (double)t * bench->tick > 500000 ? 0 : t;
		finds += (double)t * bench->tick > 500000 ? 0 : BURST;
		for (int k = -2 * KVR_SCHED_AHEAD; k < (int)BURST; k++) {
			fetch_ahead(bench, first, k);
			if (k >= 0)
				n += decide_steps(bench, bench->done++, step);
		}
	}
	for (uint32_t i = 0; i < STEPS; i++)
		result->step[i] = (double)step[i] * bench->tick / (i == FIND ? finds : n);
}

static void run_all(struct bench *bench, struct result *result)
{
	static double mean[PASSES_MAX];

	for (uint32_t i = 0; i < bench->slots; i += BURST)
		run_burst(bench);
	for (uint32_t p = 0; p < bench->passes; p++)
		mean[p] = run_pass(bench);
	qsort(mean, bench->passes, sizeof(mean[0]), bench_by_value);
	result->mean = mean[bench->passes / 2];
	result->least = mean[0];
	result->per_s = 1e9 / result->mean;
	measure_quantiles(bench, result);
	measure_steps(bench, result);
}

/* Return true if every slot is booked, and if no load is left after all requests ended. */
static bool check_balance(struct bench *bench)
{
	bool ok = kvr_sched_counters(bench->s)->booked_now == bench->slots &&
		  kvr_sched_counters(bench->s)->unshared_blocks == 0;
	struct kvr_sched_rank_info info;

	for (uint32_t i = 0; i < bench->slots; i++)
		ok = ok && kvr_sched_finish(bench->s, i, bench->now);
	for (uint32_t i = 0; i < bench->w.ranks; i++)
		ok = ok && kvr_sched_rank_get(bench->s, i, &info) == 0 && info.active_blocks == 0 &&
		     info.active_prefill_tokens == 0 && info.active_requests == 0;
	return ok;
}

static void print_result(const struct bench *bench, const struct result *result, bool json)
{
	double chain = bench_chain_ns();
	const struct {
		const char *name;
		double v;
	} f[] = {{"ranks", bench->w.ranks},
		 {"blocks", bench->w.d},
		 {"total_ns_mean", result->mean},
		 {"total_ns_least", result->least},
		 {"total_ns_p50", result->p50},
		 {"total_ns_p99", result->p99},
		 {"decisions_per_s", result->per_s},
		 {"chain_ns", chain},
		 {"machine_factor", chain / BENCH_REFERENCE_NS}};

	for (uint32_t i = 0; i < sizeof(f) / sizeof(f[0]); i++)
		printf(json ? "%s\"%s\": %.*f" : "%s%-18s %.*f\n",
		       !json ? ""
		       : i   ? ", "
			     : "{",
		       f[i].name, f[i].v == (double)(int64_t)f[i].v ? 0 : 3, f[i].v);
	if (json)
		printf(", \"chosen\": \"%016" PRIx64 "\", \"step_ns\": {", bench->chosen);
	else
		printf("%-18s %016" PRIx64 "\n", "chosen", bench->chosen);
	for (uint32_t i = 0; i < STEPS; i++)
		printf(json ? "%s\"%s\": %.1f" : "%s  step %-11s %.1f\n", json && i ? ", " : "",
		       step_name[i], result->step[i]);
	if (json)
		printf("}}\n");
}

static uint32_t parse_count(const char *s)
{
	char *end;
	unsigned long v = strtoul(s, &end, 10);

	if (*end != '\0' || v == 0 || v > 65536) {
		fprintf(stderr, "bench-decide: '%s' is not a number from 1 to 65536\n", s);
		exit(2);
	}
	return (uint32_t)v;
}

static int parse_mode(const char *s)
{
	static const enum kvr_pool_mode modes[] = {KVR_MODE_KV, KVR_MODE_TTFT};

	for (uint32_t i = 0; i < RTE_DIM(modes); i++)
		if (strcmp(s, kvr_pool_mode(modes[i])->name) == 0)
			return modes[i];
	fprintf(stderr, "bench-decide: '%s' is neither kv nor ttft\n", s);
	exit(2);
}

static enum kvr_prefix_isa parse_isa(const char *s)
{
	static const char *const name[] = {"scalar", "avx2", "avx512"};

	for (uint32_t i = 0; i < RTE_DIM(name); i++)
		if (strcmp(s, name[i]) == 0)
			return KVR_PREFIX_ISA_SCALAR + i;
	fprintf(stderr, "bench-decide: '%s' is not one of scalar, avx2, avx512\n", s);
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"ranks", required_argument, NULL, 'r'},
						{"blocks", required_argument, NULL, 'b'},
						{"mode", required_argument, NULL, 'm'},
						{"passes", required_argument, NULL, 'p'},
						{"isa", required_argument, NULL, 'i'},
						{"json", no_argument, NULL, 'j'},
						{NULL, 0, NULL, 0}};
	static struct bench bench = {.passes = PASSES};
	struct result result;
	uint32_t ranks = 64, blocks = 128;
	bool json = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'j')
			json = true;
		else if (o == 'r')
			ranks = parse_count(optarg);
		else if (o == 'b')
			blocks = parse_count(optarg);
		else if (o == 'm')
			bench.mode = parse_mode(optarg);
		else if (o == 'i')
			bench.isa = parse_isa(optarg);
		else if (o == 'p')
			bench.passes = parse_count(optarg);
		else
			return 2;
	}
	if (ranks > KVR_PREFIX_MAX_RANKS || blocks < 2 || bench.passes > PASSES_MAX) {
		fprintf(stderr, "bench-decide: at most %u ranks, at least 2 blocks, %u passes\n",
			KVR_PREFIX_MAX_RANKS, PASSES_MAX);
		return 2;
	}
	start_bench_eal();
	pb_init(&bench.w, ranks, blocks, 1000000);
	place_queries(&bench);
	bench.tick = 1e9 / (double)rte_get_tsc_hz();
	open_table(&bench);
	open_sched(&bench);
	run_all(&bench, &result);
	print_result(&bench, &result, json);
	if (check_balance(&bench))
		return 0;
	fprintf(stderr, "bench-decide: bookings are left or missing\n");
	return 1;
}
