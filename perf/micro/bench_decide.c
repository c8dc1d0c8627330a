/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One whole decision, hashes given, on the state of the reference measurement: 1 M entries in
 * the prefix table, 16 active requests a worker ended in the order they came, 20,000 decisions
 * after the fill; each is find, project, select, book, and the mark and free of the request that
 * has been active longest.
 *
 *   bench-decide --ranks W --blocks D [--mode kv|ttft] [--isa scalar|avx2|avx512] [--passes N]
 * [--json]
 *
 * Prompts are scored in bursts of 32, as an ingress lcore does, and the scheduler is told of the
 * next messages of its burst (kvr_sched_prefetch, as its lcore does; in no step_ns). Means are of
 * processor time over passes through the public interface (the median of them; least: of the
 * fastest); p50 and p99 of single decisions, with their share of the scoring; step_ns from a pass
 * that calls the same functions one by one with a clock read each (some 10 ns are in every step).
 * machine_factor is this machine against the reference one.
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
#define PASSES		  25u /* as long as one of the reference; the first 3 find cold caches */
#define PASSES_MAX	  1000u
#define BURST		  32u /* divides the fill and the passes */
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
	enum kvr_prefix_isa isa; /* of everything; AUTO: the widest of this CPU */
	uint64_t chosen; /* hash of all ranks chosen: two programs that decide alike agree */
	uint64_t now;
	double tick; /* ns */
};

static void *lines(size_t n)
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

static void start_eal(void)
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

/* Prompts come in packets, which are in huge pages. */
static void place_queries(struct bench *b)
{
	const size_t huge = 2u << 20, bytes = (size_t)b->w.nquery * b->w.d * 8;
	void *p = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);

	if (p == NULL)
		exit(1);
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	memcpy(p, b->w.query, bytes);
	free(b->w.query);
	b->w.query = p;
}

static void open_table(struct bench *b)
{
	struct kvr_prefix_conf c = {.name = "decide",
				    .max_ranks = b->w.ranks,
				    .max_blocks = 1u << 21,
				    .max_predicted = 64,
				    .isa = b->isa,
				    .socket_id = SOCKET_ID_ANY};

	b->qsbr = lines(rte_rcu_qsbr_get_memsize(1));
	rte_rcu_qsbr_init(b->qsbr, 1);
	rte_rcu_qsbr_thread_register(b->qsbr, 0);
	rte_rcu_qsbr_thread_online(b->qsbr, 0);
	c.qsbr = b->qsbr;
	b->t = kvr_prefix_create(&c);
	if (b->t == NULL)
		exit(1);
	for (uint32_t i = 0; i < BURST; i++)
		b->out[i] = lines(kvr_overlap_size((b->w.ranks + 63) / 64 * 64));
	for (uint32_t i = 0; i < b->w.store.n; i++) {
		kvr_prefix_apply_burst(b->t, &b->w.store.ev[i], 1);
		rte_rcu_qsbr_quiescent(b->qsbr, 0);
		kvr_prefix_maintain(b->t, 1);
	}
}

static void open_sched(struct bench *b)
{
	struct kvr_pool_conf c;

	kvr_pool_conf_defaults(&c);
	strcpy(c.name, "bench");
	c.block_size = BLOCK_SIZE;
	c.mode = b->mode;
	c.max_ranks = b->w.ranks;
	c.max_workers = b->w.ranks;
	b->slots = (b->w.ranks * ACTIVE_PER_WORKER + BURST - 1) / BURST * BURST;
	c.max_requests = b->slots;
	/* Short prompts leave the runs of 64 blocks that they are cut into half empty. */
	c.max_active_blocks = b->slots * (b->w.d + RTE_MAX(b->w.d, 128u));
	b->s = kvr_sched_create(&c, NULL, 0);
	b->req = calloc(b->slots, sizeof(*b->req));
	if (b->s == NULL || b->req == NULL)
		exit(1);
	if (b->isa != KVR_PREFIX_ISA_AUTO &&
	    (!kvr_sched__kernels((enum sched_isa)(b->isa - 1), &b->s->k) ||
	     !kvr_active__kernels((enum active_isa)(b->isa - 1), &b->s->active->same,
				  &b->s->active->spread)))
		exit(1);
	for (uint64_t id = 0; id < b->w.ranks; id++) {
		const struct kvr_sched_worker w = {.id = id, .dp_size = 1};

		if (kvr_sched_worker_set(b->s, &w, 0) != 0)
			exit(1);
	}
}

static const uint64_t *prompt(const struct bench *b, uint32_t k)
{
	return &b->w.query[(size_t)(k % b->w.nquery) * b->w.d];
}

/* Score a burst of prompts, as an ingress lcore does. */
static void find(struct bench *b, uint32_t k)
{
	struct kvr_prefix_query q[BURST];

	for (uint32_t i = 0; i < BURST; i++)
		q[i] = (struct kvr_prefix_query){prompt(b, k + i), b->w.d, b->out[i]};
	kvr_prefix_score_burst(b->t, q, BURST);
	for (uint32_t i = 0; i < BURST; i++)
		kvr_overlap_pad(b->out[i]);
	rte_rcu_qsbr_quiescent(b->qsbr, 0);
}

static struct kvr_sched_overlap overlap(const struct bench *b, uint32_t k)
{
	const struct kvr_overlap *o = b->out[k % BURST];

	return (struct kvr_sched_overlap){.device = kvr_overlap_tier(o, KVR_TIER_DEVICE)};
}

/* The requests of a burst have arrived. */
static void arrive(struct bench *b, uint32_t first)
{
	for (uint32_t k = first; k < first + BURST; k++)
		b->req[k % b->slots] = (struct kvr_sched_req){
			.sh = prompt(b, k), .n = b->w.d, .isl = b->w.d * BLOCK_SIZE};
	memset(b->ahead, 0, sizeof(b->ahead));
	find(b, first);
}

/* The messages of a burst are known, so the scheduler lcore sees them coming. */
static void fetch_ahead(struct bench *b, uint32_t first, int i)
{
	for (int step = 0; step < KVR_SCHED_AHEAD; step++) {
		int at = i + 2 * (KVR_SCHED_AHEAD - step);
		uint32_t slot = (first + (uint32_t)at) % b->slots;

		if (at < 0 || at >= (int)BURST)
			continue;
		kvr_sched_prefetch(b->s, slot, step);
		kvr_sched_prefetch_route(b->s, &b->req[slot], &b->ahead[at]);
	}
}

/* Through the public interface; the slot's former request ends first once all are active. */
static void decide(struct bench *b, uint32_t k)
{
	const struct kvr_sched_overlap ov = overlap(b, k);
	uint32_t slot = k % b->slots;
	struct kvr_sched_decision d;

	b->now += 1000;

	if (k >= b->slots) {
		kvr_sched_prefill_done(b->s, slot, b->now);
		kvr_sched_finish(b->s, slot, b->now);
	}
	if (kvr_sched_route(b->s, slot, &b->req[slot], &ov, b->now, &d) != KVR_SCHED_ROUTED)
		exit(1);
	b->chosen = (b->chosen ^ d.rank) * UINT64_C(0x100000001b3);
}

/* The same, taken apart. */
static bool decide_steps(struct bench *b, uint32_t k, uint64_t step[STEPS])
{
	uint32_t slot = k % b->slots;
	struct choice c = {.req = &b->req[slot], .n = b->w.d, .open = b->s->open};
	struct kvr_sched_decision d = {.slot = slot, .better_rank = KVR_SCHED_NO_RANK};
	const struct kvr_sched_overlap ov = overlap(b, k);
	uint64_t t[STEPS];

	b->now += 1000;
	t[0] = rte_rdtsc_precise();
	kvr_sched_prefill_done(b->s, slot, b->now);
	t[1] = rte_rdtsc_precise();
	kvr_sched_finish(b->s, slot, b->now);
	t[2] = rte_rdtsc_precise();
	c.ov = &ov;
	kvr_sched__params(b->s, c.req, &c.p);
	if (kvr_sched__eligible(b->s, &c) != KVR_OK)
		exit(1);
	kvr_sched__project(b->s, &c, b->now);
	t[3] = rte_rdtsc_precise();
	kvr_sched__select(b->s, &c, &d);
	t[4] = rte_rdtsc_precise();
	kvr_sched__book(b->s, &c, b->now, &d);
	t[5] = rte_rdtsc_precise();
	if ((double)(t[5] - t[0]) * b->tick > 50000)
		return false; /* the thread was taken off its processor */
	step[MARK] += t[1] - t[0];
	step[FREE] += t[2] - t[1];
	step[PROJECT] += t[3] - t[2];
	step[SELECT] += t[4] - t[3];
	step[BOOK] += t[5] - t[4];
	return true;
}

/* One burst; each decision in between what is fetched for the later ones. */
static void burst(struct bench *b)
{
	uint32_t first = b->done;

	arrive(b, first);
	for (int i = -2 * KVR_SCHED_AHEAD; i < (int)BURST; i++) {
		fetch_ahead(b, first, i);
		if (i >= 0)
			decide(b, b->done++);
	}
}

struct result {
	double mean, least, p50, p99, per_s, step[STEPS];
};

/* Mean of one pass, in ns of this thread's processor time: a neighbour's time slice is not ours. */
static double pass(struct bench *b)
{
	double start = cpu_ns();

	for (uint32_t i = 0; i < DECISIONS; i += BURST)
		burst(b);
	return (cpu_ns() - start) / DECISIONS;
}

/* Each decision with its share of the burst's scoring, a clock read each. */
static void quantiles(struct bench *b, struct result *r)
{
	static struct kvr_hist h;

	for (uint32_t i = 0; i < DECISIONS; i += BURST) {
		uint64_t t = rte_rdtsc_precise(), share;
		uint32_t first = b->done;

		arrive(b, first);
		for (int k = -2 * KVR_SCHED_AHEAD; k < 0; k++)
			fetch_ahead(b, first, k);
		share = (rte_rdtsc_precise() - t) / BURST;
		for (int k = 0; k < (int)BURST; k++) {
			t = rte_rdtsc_precise();
			fetch_ahead(b, first, k);
			decide(b, b->done++);
			t = rte_rdtsc_precise() - t + share;
			kvr_hist_add(&h, (uint64_t)((double)t * b->tick * 10)); /* tenths */
		}
	}
	r->p50 = (double)kvr_hist_quantile(&h, 0.5) / 10;
	r->p99 = (double)kvr_hist_quantile(&h, 0.99) / 10;
}

static void steps(struct bench *b, struct result *r)
{
	uint64_t step[STEPS] = {0};
	uint32_t n = 0, finds = 0;

	for (uint32_t i = 0; i < DECISIONS; i += BURST) {
		uint64_t t = rte_rdtsc_precise();
		uint32_t first = b->done;

		arrive(b, first);
		t = rte_rdtsc_precise() - t;
		step[FIND] += (double)t * b->tick > 500000 ? 0 : t;
		finds += (double)t * b->tick > 500000 ? 0 : BURST;
		for (int k = -2 * KVR_SCHED_AHEAD; k < (int)BURST; k++) {
			fetch_ahead(b, first, k);
			if (k >= 0)
				n += decide_steps(b, b->done++, step);
		}
	}
	for (uint32_t i = 0; i < STEPS; i++)
		r->step[i] = (double)step[i] * b->tick / (i == FIND ? finds : n);
}

static void run(struct bench *b, struct result *r)
{
	static double mean[PASSES_MAX];

	for (uint32_t i = 0; i < b->slots; i += BURST)
		burst(b);
	for (uint32_t p = 0; p < b->passes; p++)
		mean[p] = pass(b);
	qsort(mean, b->passes, sizeof(mean[0]), bench_by_value);
	r->mean = mean[b->passes / 2];
	r->least = mean[0];
	r->per_s = 1e9 / r->mean;
	quantiles(b, r);
	steps(b, r);
}

/* The work was done: every slot is booked, and all ends leave nothing. */
static bool balanced(struct bench *b)
{
	bool ok = kvr_sched_counters(b->s)->booked_now == b->slots &&
		  kvr_sched_counters(b->s)->unshared_blocks == 0;
	struct kvr_sched_rank_info info;

	for (uint32_t i = 0; i < b->slots; i++)
		ok = ok && kvr_sched_finish(b->s, i, b->now);
	for (uint32_t i = 0; i < b->w.ranks; i++)
		ok = ok && kvr_sched_rank_get(b->s, i, &info) == 0 && info.active_blocks == 0 &&
		     info.active_prefill_tokens == 0 && info.active_requests == 0;
	return ok;
}

static void print(const struct bench *b, const struct result *r, bool json)
{
	double chain = bench_chain_ns();
	const struct {
		const char *name;
		double v;
	} f[] = {{"ranks", b->w.ranks},
		 {"blocks", b->w.d},
		 {"total_ns_mean", r->mean},
		 {"total_ns_least", r->least},
		 {"total_ns_p50", r->p50},
		 {"total_ns_p99", r->p99},
		 {"decisions_per_s", r->per_s},
		 {"chain_ns", chain},
		 {"machine_factor", chain / BENCH_REFERENCE_NS}};

	for (uint32_t i = 0; i < sizeof(f) / sizeof(f[0]); i++)
		printf(json ? "%s\"%s\": %.*f" : "%s%-18s %.*f\n",
		       !json ? ""
		       : i   ? ", "
			     : "{",
		       f[i].name, f[i].v == (double)(int64_t)f[i].v ? 0 : 3, f[i].v);
	if (json)
		printf(", \"chosen\": \"%016" PRIx64 "\", \"step_ns\": {", b->chosen);
	else
		printf("%-18s %016" PRIx64 "\n", "chosen", b->chosen);
	for (uint32_t i = 0; i < STEPS; i++)
		printf(json ? "%s\"%s\": %.1f" : "%s  step %-11s %.1f\n", json && i ? ", " : "",
		       step_name[i], r->step[i]);
	if (json)
		printf("}}\n");
}

static uint32_t number(const char *s)
{
	char *end;
	unsigned long v = strtoul(s, &end, 10);

	if (*end != '\0' || v == 0 || v > 65536) {
		fprintf(stderr, "bench-decide: '%s' is no number from 1 to 65536\n", s);
		exit(2);
	}
	return (uint32_t)v;
}

static int mode(const char *s)
{
	static const enum kvr_pool_mode modes[] = {KVR_MODE_KV, KVR_MODE_TTFT};

	for (uint32_t i = 0; i < RTE_DIM(modes); i++)
		if (strcmp(s, kvr_pool_mode(modes[i])->name) == 0)
			return modes[i];
	fprintf(stderr, "bench-decide: '%s' is neither kv nor ttft\n", s);
	exit(2);
}

static enum kvr_prefix_isa isa(const char *s)
{
	static const char *const name[] = {"scalar", "avx2", "avx512"};

	for (uint32_t i = 0; i < RTE_DIM(name); i++)
		if (strcmp(s, name[i]) == 0)
			return KVR_PREFIX_ISA_SCALAR + i;
	fprintf(stderr, "bench-decide: '%s' is none of scalar, avx2, avx512\n", s);
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
	static struct bench b = {.passes = PASSES};
	struct result r;
	uint32_t ranks = 64, blocks = 128;
	bool json = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'j')
			json = true;
		else if (o == 'r')
			ranks = number(optarg);
		else if (o == 'b')
			blocks = number(optarg);
		else if (o == 'm')
			b.mode = mode(optarg);
		else if (o == 'i')
			b.isa = isa(optarg);
		else if (o == 'p')
			b.passes = number(optarg);
		else
			return 2;
	}
	if (ranks > KVR_PREFIX_MAX_RANKS || blocks < 2 || b.passes > PASSES_MAX) {
		fprintf(stderr, "bench-decide: at most %u ranks, at least 2 blocks, %u passes\n",
			KVR_PREFIX_MAX_RANKS, PASSES_MAX);
		return 2;
	}
	start_eal();
	pb_init(&b.w, ranks, blocks, 1000000);
	place_queries(&b);
	b.tick = 1e9 / (double)rte_get_tsc_hz();
	open_table(&b);
	open_sched(&b);
	run(&b, &r);
	print(&b, &r, json);
	if (balanced(&b))
		return 0;
	fprintf(stderr, "bench-decide: bookings left or lost\n");
	return 1;
}
