/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The prefix table with the workload of the reference measurements.
 *
 *   bench-prefix --ranks W --blocks D --entries T [--json]
 *   bench-prefix --clear --ranks W --blocks D --entries T [--json]
 *   bench-prefix --trace FILE --workers W [--json]
 *
 * The workload is built beforehand and is identical bit by bit, which the checksum proves. Queries
 * are made in bursts of 32, as by an ingress lcore, events in bursts of 32, as by the event lcore.
 * p50, p99 and the means by class are of single queries with a clock read each. Figures are medians
 * over repetitions. machine_factor compares this machine with the reference (3.7 ns for the chain
 * hash of a block there): multiply reference figures by it to compare them with these.
 */

#include "bench_clear.h"
#include "bench_machine.h"
#include "kvr_hist.h"
#include "kvr_pbtrace.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define BURST	32u
#define REPS	5u
#define READERS 4u

struct bench {
	struct kvr_prefix *t;
	struct rte_rcu_qsbr *qsbr;
	struct pb w;
	uint64_t *query; /* [q][step], see place_queries() */
	size_t step;
	bool json;
	int cpu[2];
	uint32_t ncpu;
	double chain_ns;
};

/* Results of a run, in the order of output. */
struct field {
	const char *name;
	double v;
	const char *text;
};

static struct field field[64];
static uint32_t nfield;

static void add_field(const char *name, double v)
{
	field[nfield++] = (struct field){name, v, NULL};
}

static void add_text(const char *name, const char *text)
{
	field[nfield++] = (struct field){name, 0, text};
}

static void print_fields(bool json)
{
	for (uint32_t i = 0; i < nfield; i++) {
		const struct field *f = &field[i];
		const char *quote = json && f->text ? "\"" : "";

		if (json)
			printf("%s\"%s\": ", i ? ", " : "{", f->name);
		else
			printf("%-24s", f->name);
		if (f->text)
			printf("%s%s%s", quote, f->text, quote);
		else
			printf(f->v == (double)(int64_t)f->v ? "%.0f" : "%.3f", f->v);
		if (!json)
			printf("\n");
	}
	if (json)
		printf("}\n");
}

static double take_median(double *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), bench_by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

#define MALLOC_WORDS 2u /* header of glibc between two allocations */

/*
 * Queries are placed in memory like consecutive malloc() allocations, as for an array of requests
 * with hashes of their own. A query of 512 hashes begins 4,112 bytes after the one before. At 4,096
 * bytes the first lines of all queries would compete for one set of the first-level cache; 64
 * hashes at 512 bytes would take eight lines instead of nine.
 */
static void place_queries(struct bench *bench)
{
	bench->step = bench->w.d + MALLOC_WORDS;
	bench->query = pb_alloc(bench->w.nquery * bench->step * 8);
	for (uint32_t i = 0; i < bench->w.nquery; i++)
		memcpy(&bench->query[i * bench->step], &bench->w.query[(size_t)i * bench->w.d],
		       (size_t)bench->w.d * 8);
}

static void *alloc_lines(size_t n)
{
	void *p = aligned_alloc(64, (n + 63) & ~(size_t)63);

	if (p == NULL)
		exit(1);
	memset(p, 0, n);
	return p;
}

static void pin_thread(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static long free_huge_pages(void)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	long n = 0;

	if (f != NULL) {
		if (fscanf(f, "%ld", &n) != 1)
			n = 0;
		fclose(f);
	}
	return n;
}

/* Use huge pages if enough are free for the largest table of this run. */
static void start_bench_eal(struct bench *bench, uint64_t bytes)
{
	char lcore[16], mb[16];
	bool huge = free_huge_pages() > (long)(bytes >> 21) + 64;
	char *plain[] = {"bench-prefix",
			 "--no-huge",
			 "--no-shconf",
			 "--no-pci",
			 "--no-telemetry",
			 "--log-level=4",
			 "--lcores",
			 lcore,
			 "-m",
			 mb,
			 NULL};
	char *hugepages[] = {"bench-prefix",  "--in-memory", "--no-pci", "--no-telemetry",
			     "--log-level=4", "--lcores",    lcore,	 NULL};
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	for (int i = 0; i < CPU_SETSIZE && bench->ncpu < 2; i++) {
		if (CPU_ISSET(i, &set))
			bench->cpu[bench->ncpu++] = i;
	}
	snprintf(lcore, sizeof(lcore), "0@%d", bench->cpu[0]);
	snprintf(mb, sizeof(mb), "%u", 64 + (unsigned int)(bytes >> 23));
	/* A failed EAL cannot be started again. */
	if ((huge ? rte_eal_init(7, hugepages) : rte_eal_init(10, plain)) < 0) {
		fprintf(stderr, "cannot start the EAL\n");
		exit(1);
	}
	pin_thread(bench->cpu[0]);
	add_text("pages", rte_eal_has_hugepages() ? "hugetlb" : "thp-advised");
}

static void open_table(struct bench *bench, uint32_t ranks, uint64_t blocks, uint64_t runs)
{
	struct kvr_prefix_conf c = {.name = "bench",
				    .max_ranks = ranks,
				    .max_blocks = (uint32_t)blocks,
				    .max_runs = (uint32_t)runs,
				    .max_predicted = 64,
				    .socket_id = SOCKET_ID_ANY,
				    .seed = rte_rdtsc()};

	bench->qsbr = alloc_lines(rte_rcu_qsbr_get_memsize(READERS));
	rte_rcu_qsbr_init(bench->qsbr, READERS);
	rte_rcu_qsbr_thread_register(bench->qsbr, 0);
	rte_rcu_qsbr_thread_online(bench->qsbr, 0);
	c.qsbr = bench->qsbr;
	bench->t = kvr_prefix_create(&c);
	if (bench->t == NULL) {
		perror("table");
		exit(1);
	}
}

static void close_table(struct bench *bench)
{
	kvr_prefix_destroy(bench->t);
	free(bench->qsbr);
}

static struct kvr_prefix_stats get_stats(const struct bench *bench)
{
	struct kvr_prefix_stats s;

	kvr_prefix_stats_get(bench->t, &s);
	return s;
}

/*
 * Apply all events. @return ns per block of `blocks`, including the return of memory to the pools.
 */
static double apply_events(struct bench *bench, const struct pb_events *e, uint64_t blocks)
{
	double start = bench_now_ns();

	for (uint32_t i = 0; i < e->n; i += BURST) {
		kvr_prefix_apply_burst(bench->t, &e->ev[i], e->n - i < BURST ? e->n - i : BURST);
		rte_rcu_qsbr_quiescent(bench->qsbr, 0);
	}
	while (kvr_prefix_maintain(bench->t, 1) > 0)
		rte_rcu_qsbr_quiescent(bench->qsbr, 0);
	return (bench_now_ns() - start) / (double)blocks;
}

struct reader {
	struct bench *b;
	struct kvr_overlap *out[BURST];
	uint32_t id, from, to, passes;
	int cpu;
	double ns; /* per query */
};

static void reader_init(struct reader *reader, struct bench *bench, uint32_t id)
{
	*reader = (struct reader){.b = bench, .id = id, .to = bench->w.nquery};
	for (uint32_t i = 0; i < BURST; i++)
		reader->out[i] = alloc_lines(kvr_overlap_size(bench->w.ranks));
}

static void reader_free(struct reader *reader)
{
	for (uint32_t i = 0; i < BURST; i++)
		free(reader->out[i]);
}

/* One pass over the reader's queries in bursts. @return ns per query. */
static double run_pass(struct reader *reader, uint32_t burst)
{
	const struct pb *w = &reader->b->w;
	struct kvr_prefix_query q[BURST];
	double start = bench_now_ns();

	for (uint32_t i = reader->from; i < reader->to; i += burst) {
		uint32_t n = reader->to - i < burst ? reader->to - i : burst;

		for (uint32_t k = 0; k < n; k++)
			q[k] = (struct kvr_prefix_query){
				&reader->b->query[(i + k) * reader->b->step], w->d, reader->out[k]};
		kvr_prefix_score_burst(reader->b->t, q, n);
		rte_rcu_qsbr_quiescent(reader->b->qsbr, reader->id);
	}
	return (bench_now_ns() - start) / (reader->to - reader->from);
}

/* Mean of two passes after a warm-up pass. */
static double find_mean(struct reader *reader, uint32_t burst)
{
	double first = run_pass(reader, burst);

	(void)first;
	first = run_pass(reader, burst);
	return (first + run_pass(reader, burst)) / 2;
}

static uint64_t sum_queries(struct bench *bench, struct reader *reader)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < bench->w.nquery; i++) {
		struct kvr_prefix_query q = {&bench->query[i * bench->step], bench->w.d,
					     reader->out[0]};

		kvr_prefix_score_burst(bench->t, &q, 1);
		sum += pb_checksum(reader->out[0]);
	}
	return sum;
}

/*
 * The clock for single calls. It waits for earlier instructions with the same fence as the
 * reference. rte_rdtsc_precise() has a more expensive one, which adds 10 ns to a call of 25.
 */
static inline uint64_t clock_ticks(void)
{
	rte_smp_mb();
	return rte_rdtsc();
}

/* Single queries with a clock read each: quantiles, and means by class. */
static void measure_single(struct bench *bench, struct reader *reader)
{
	static struct kvr_hist hist;
	double hz = (double)rte_get_tsc_hz(), sum[4] = {0}, n[4] = {0};

	for (uint32_t i = 0; i < bench->w.nquery; i++) {
		struct kvr_prefix_query q = {&bench->query[i * bench->step], bench->w.d,
					     reader->out[0]};
		uint64_t start = clock_ticks(), ticks;

		kvr_prefix_score_burst(bench->t, &q, 1);
		ticks = clock_ticks() - start;
		kvr_hist_add(&hist, (uint64_t)((double)ticks * 1e10 / hz)); /* tenths of ns */
		sum[bench->w.qclass[i]] += (double)ticks * 1e9 / hz;
		n[bench->w.qclass[i]]++;
	}
	add_field("find_ns_p50", (double)kvr_hist_quantile(&hist, 0.5) / 10);
	add_field("find_ns_p99", (double)kvr_hist_quantile(&hist, 0.99) / 10);
	add_field("find_full_ns", (sum[0] + sum[1]) / (n[0] + n[1]));
	add_field("find_partial_ns", sum[2] / n[2]);
	add_field("find_miss_ns", sum[3] / n[3]);
}

static void *run_reader(void *arg)
{
	struct reader *reader = arg;
	double start;

	pin_thread(reader->cpu);
	rte_rcu_qsbr_thread_register(reader->b->qsbr, reader->id);
	rte_rcu_qsbr_thread_online(reader->b->qsbr, reader->id);
	start = bench_now_ns();
	for (uint32_t i = 0; i < reader->passes; i++)
		run_pass(reader, BURST);
	reader->ns = bench_now_ns() - start;
	rte_rcu_qsbr_thread_offline(reader->b->qsbr, reader->id);
	rte_rcu_qsbr_thread_unregister(reader->b->qsbr, reader->id);
	return NULL;
}

/* Queries per second of `n` readers, in thousands; each reader has a part of the queries. */
static double measure_readers(struct bench *bench, uint32_t n, uint32_t passes)
{
	struct reader reader[2];
	pthread_t id[2];
	double slowest = 0;

	for (uint32_t i = 0; i < n; i++) {
		reader_init(&reader[i], bench, 1 + i);
		reader[i].from = bench->w.nquery / n * i;
		reader[i].to = bench->w.nquery / n * (i + 1);
		reader[i].passes = passes;
		reader[i].cpu = bench->cpu[(i + 1) % bench->ncpu];
		pthread_create(&id[i], NULL, run_reader, &reader[i]);
	}
	for (uint32_t i = 0; i < n; i++) {
		pthread_join(id[i], NULL);
		slowest = reader[i].ns > slowest ? reader[i].ns : slowest;
		reader_free(&reader[i]);
	}
	return (double)bench->w.nquery / n * n * passes / slowest * 1e6;
}

/* New sequences of known pairs: M suffixes that are stored and removed repeatedly. */
static void make_churn(const struct bench *bench, struct pb_events *store,
		       struct pb_events *removal, uint64_t *blocks)
{
	const struct pb *w = &bench->w;
	uint32_t s = w->d - w->p, m = 262144 / s < 8 ? 8 : 262144 / s, n = 0;
	uint64_t *sh = pb_alloc((size_t)m * s * 8), *rev = pb_alloc((size_t)m * s * 8);

	for (uint64_t i = w->nseq; n < m; i++) {
		uint32_t g = (uint32_t)(i % PB_GROUPS), worker = pb_worker(i, w->ranks);

		if (!w->pair_known[(size_t)g * w->ranks + worker])
			continue;
		pb_suffix(w, i, &sh[(size_t)n * s]);
		pb_stored(store, worker, &w->prefix[(size_t)g * w->p + w->p - 1],
			  &sh[(size_t)n * s], s);
		rev = pb_removed(removal, worker, &sh[(size_t)n * s], s, rev);
		n++;
	}
	*blocks = (uint64_t)m * s;
}

struct writer {
	struct bench *b;
	struct pb_events store, removal;
	uint64_t blocks, done;
	int cpu;
	double ns;
	_Atomic bool stop, runs;
};

static void *run_writer(void *arg)
{
	struct writer *writer = arg;
	double start;

	pin_thread(writer->cpu);
	rte_rcu_qsbr_thread_register(writer->b->qsbr, 3);
	rte_rcu_qsbr_thread_online(writer->b->qsbr, 3);
	writer->runs = true;
	start = bench_now_ns();
	while (!writer->stop) {
		for (int k = 0; k < 2; k++) {
			const struct pb_events *e = k ? &writer->removal : &writer->store;

			for (uint32_t i = 0; i < e->n; i += BURST) {
				kvr_prefix_apply_burst(writer->b->t, &e->ev[i],
						       e->n - i < BURST ? e->n - i : BURST);
				rte_rcu_qsbr_quiescent(writer->b->qsbr, 3);
			}
		}
		writer->done += 2 * writer->blocks;
	}
	writer->ns = bench_now_ns() - start;
	rte_rcu_qsbr_thread_offline(writer->b->qsbr, 3);
	rte_rcu_qsbr_thread_unregister(writer->b->qsbr, 3);
	return NULL;
}

static void measure_beside_writer(struct bench *bench, struct reader *reader)
{
	static struct writer writer;
	double v[3 * REPS], alone[3 * REPS];
	pthread_t id;

	writer.b = bench;
	writer.cpu = bench->cpu[1 % bench->ncpu];
	make_churn(bench, &writer.store, &writer.removal, &writer.blocks);
	for (uint32_t i = 0; i < 3 * REPS; i++)
		alone[i] = find_mean(reader, BURST);
	pthread_create(&id, NULL, run_writer, &writer);
	while (!writer.runs)
		sched_yield();
	for (uint32_t i = 0; i < 3 * REPS; i++)
		v[i] = find_mean(reader, BURST);
	writer.stop = true;
	/* Stay quiescent, otherwise the writer runs out of memory. */
	rte_rcu_qsbr_thread_offline(bench->qsbr, 0);
	pthread_join(id, NULL);
	rte_rcu_qsbr_thread_online(bench->qsbr, 0);
	add_field("find_beside_writer_ns", take_median(v, 3 * REPS));
	add_field("find_alone_ns",
		  take_median(alone, 3 * REPS)); /* with the caches as warm as beside the writer */
	add_field("churn_mblk_s", (double)writer.done / writer.ns * 1e3);
}

/* Decode: 4,096 sequences of a table with D = 64, T = 1M grow by 64 blocks, one event per block. */
static void measure_one_block_events(uint32_t ranks)
{
	const uint32_t a = 4096, rounds = 64;
	static struct bench bench;
	struct pb_events add = {0}, del = {0};
	uint64_t *sh = pb_alloc((size_t)a * rounds * 8);
	double va[REPS], vd[REPS];

	pb_init(&bench.w, ranks, 64, 1000000);
	open_table(&bench, ranks, 1500000, bench.w.nseq + a + 4096);
	apply_events(&bench, &bench.w.store, bench.w.entries);
	for (uint32_t i = 0; i < a; i++) {
		struct kvr_rand r = pb_stream(10, i);

		for (uint32_t k = 0; k < rounds; k++)
			sh[(size_t)k * a + i] = kvr_rand_u64(&r);
	}
	for (uint32_t j = 0; j < a * rounds; j++) {
		uint32_t k = j / a, i = j % a;
		const uint64_t *before = k ? &sh[j - a] : &bench.w.suffix[(size_t)i * 32 + 31];

		pb_stored(&add, pb_worker(i, ranks), before, &sh[j], 1);
	}
	for (uint32_t k = rounds; k-- > 0;) {
		for (uint32_t i = 0; i < a; i++) {
			struct kvr_prefix_event e = {.op = KVR_PREFIX_REMOVE,
						     .rank = (uint16_t)pb_worker(i, ranks),
						     .n = 1,
						     .sh = &sh[(size_t)k * a + i]};

			pb_push(&del, &e);
		}
	}
	for (uint32_t r = 0; r < REPS; r++) {
		va[r] = apply_events(&bench, &add, add.n);
		if (get_stats(&bench).entries != bench.w.entries + add.n)
			add_text("error", "appends are missing");
		vd[r] = apply_events(&bench, &del, del.n);
	}
	if (get_stats(&bench).entries != bench.w.entries || get_stats(&bench).unknown_removes > 0)
		add_text("error", "one-block removes are missing");
	close_table(&bench);
	add_field("append1_mev_s", 1e3 / take_median(va, REPS));
	add_field("remove1_mev_s", 1e3 / take_median(vd, REPS));
}

/*
 * Full caches of unshared blocks: for each sequence of `d` blocks that a rank stores, it removes
 * its oldest one, tail to head. The table has `t` entries, half of them in use.
 */
static void measure_turnover(uint32_t ranks, uint32_t d, uint64_t t)
{
	const uint32_t n = (uint32_t)(t / 2 / d / ranks) * ranks; /* sequences in use */
	static struct bench bench;
	struct pb_events fill = {0}, turn = {0};
	uint64_t *sh, *rev, *next;
	double v[REPS];

	if (n == 0)
		return;
	sh = pb_alloc((size_t)n * 2 * d * 8);
	next = rev = pb_alloc((size_t)n * 2 * d * 8);
	pb_init(&bench.w, ranks, 64, 1000000);
	open_table(&bench, ranks, t, 4 * n + 4096);
	for (uint32_t i = 0; i < 2 * n; i++) {
		struct kvr_rand r = pb_stream(11, i);

		for (uint32_t k = 0; k < d; k++)
			sh[(size_t)i * d + k] = kvr_rand_u64(&r);
		if (i < n)
			pb_stored(&fill, i % ranks, NULL, &sh[(size_t)i * d], d);
	}
	for (uint32_t i = 0; i < 2 * n; i++) {
		next = pb_removed(&turn, i % ranks, &sh[(size_t)i * d], d, next);
		pb_stored(&turn, i % ranks, NULL, &sh[(size_t)((i + n) % (2 * n)) * d], d);
	}
	apply_events(&bench, &fill, (uint64_t)n * d);
	for (uint32_t i = 0; i < REPS; i++)
		v[i] = apply_events(&bench, &turn, (uint64_t)n * 4 * d);
	if (get_stats(&bench).entries != (uint64_t)n * d ||
	    get_stats(&bench).dropped + get_stats(&bench).evicted_runs +
			    get_stats(&bench).unknown_removes >
		    0)
		add_text("error", "blocks are missing after the turnover");
	close_table(&bench);
	free(sh);
	free(rev);
	add_field("turnover_mblk_s", 1e3 / take_median(v, REPS));
}

/* Checksum of a reference cell; 0: the cell has none. */
static uint64_t expected_sum(uint32_t w, uint32_t d, uint64_t t)
{
	static const struct {
		uint32_t w, d, m;
		uint64_t sum;
	} cell[] = {
		{8, 64, 1, 0xd9a0e0},	    {8, 2048, 1, 0x675e45},	{64, 64, 1, 0x2a927a4d},
		{64, 512, 1, 0xaae0c92},    {64, 2048, 1, 0x3384f8b},	{512, 64, 1, 0x27a3329be},
		{512, 512, 1, 0x5a76aa0f},  {512, 2048, 1, 0x19aae21a}, {8, 64, 4, 0xd93fdb},
		{8, 512, 4, 0xdab303},	    {8, 2048, 4, 0xcc84d5},	{64, 64, 4, 0x2d1933d2},
		{64, 512, 4, 0x1fdf65c1},   {64, 2048, 4, 0xa9bc0c7},	{512, 64, 4, 0x7bac95773},
		{512, 2048, 4, 0x5876e039},
	};

	for (uint32_t i = 0; i < sizeof(cell) / sizeof(cell[0]); i++) {
		if (cell[i].w == w && cell[i].d == d && cell[i].m * 1000000ull == t)
			return cell[i].sum;
	}
	return 0;
}

static const char *format_hex(uint64_t v)
{
	char *s = pb_alloc(17);

	snprintf(s, 17, "%016llx", (unsigned long long)v);
	return s;
}

static const char *check_sum(uint64_t got, uint64_t want)
{
	return want == 0 ? "no reference" : got == want ? "verified" : "WRONG";
}

static int run_workload(struct bench *bench, uint32_t w, uint32_t d, uint64_t t)
{
	double store[REPS], removal[REPS], find[REPS], single[REPS];
	uint64_t unique, sum = 0, left = 0, want = expected_sum(w, d, t);
	struct kvr_prefix_stats s;
	struct reader reader;

	pb_init(&bench->w, w, d, t);
	place_queries(bench);
	unique = (uint64_t)PB_GROUPS * bench->w.p + (uint64_t)bench->w.nseq * (d - bench->w.p);
	start_bench_eal(bench, (unique + (1u << 20)) * 40);
	bench->chain_ns = bench_chain_ns();
	open_table(bench, w, unique + (1u << 19),
		   (uint64_t)bench->w.nseq * ((d - bench->w.p + 511) / 512) +
			   262144 / (d - bench->w.p) + PB_GROUPS * (bench->w.p / 512 + 2) + 4096);
	reader_init(&reader, bench, 0);
	add_field("ranks", w);
	add_field("blocks", d);
	add_field("entries", (double)bench->w.entries);
	add_text("isa", kvr_prefix_isa_name(bench->t));
	for (uint32_t i = 0; i < REPS; i++) {
		store[i] = apply_events(bench, &bench->w.store, bench->w.entries);
		find[i] = find_mean(&reader, BURST);
		single[i] = find_mean(&reader, 1);
		if (i + 1 < REPS)
			removal[i] = apply_events(bench, &bench->w.remove, bench->w.entries);
	}
	s = get_stats(bench);
	sum = sum_queries(bench, &reader);
	add_text("checksum", format_hex(sum));
	add_text("checksum_is", check_sum(sum, want));
	add_field("find_ns_mean", take_median(find, REPS));
	add_field("find_ns_mean_single", take_median(single, REPS));
	measure_single(bench, &reader);
	rte_rcu_qsbr_thread_offline(bench->qsbr,
				    0); /* the readers are other threads from here on */
	if (bench->ncpu > 1) {
		double one[REPS], two[REPS], ratio[REPS];

		for (uint32_t i = 0; i < REPS; i++) {
			one[i] = measure_readers(bench, 1, 3);
			two[i] = measure_readers(bench, 2, 3);
			ratio[i] = two[i] / one[i];
		}
		add_field("find_1reader_k_s", take_median(one, REPS));
		add_field("find_2readers_k_s", take_median(two, REPS));
		add_field("readers_ratio", take_median(ratio, REPS));
	}
	rte_rcu_qsbr_thread_online(bench->qsbr, 0);
	if (bench->ncpu > 1)
		measure_beside_writer(bench, &reader);
	add_field("runs", (double)s.runs);
	add_field("bytes_per_entry", (double)s.used_bytes / (double)bench->w.entries);
	add_field("reserved_per_entry", (double)s.memory_bytes / (double)bench->w.entries);
	removal[REPS - 1] = apply_events(bench, &bench->w.remove, bench->w.entries);
	add_field("store_mblk_s", 1e3 / take_median(store, REPS));
	add_field("remove_mblk_s", 1e3 / take_median(removal, REPS));
	left = get_stats(bench).used_bytes;
	add_field("left_bytes", (double)left);
	/* Beside a preempted reader the writer may temporarily run out of memory. */
	add_field("churn_dropped", (double)get_stats(bench).dropped);
	if (sum_queries(bench, &reader) != 0 || s.dropped > 0 || s.evicted_runs > 0)
		add_text("error", "blocks are left or missing");
	reader_free(&reader);
	close_table(bench);
	measure_one_block_events(w);
	measure_turnover(w, d, t < 1000000 ? t : 1000000);
	add_field("chain_ns", bench->chain_ns);
	add_field("machine_factor", bench->chain_ns / BENCH_REFERENCE_NS);
	return (want != 0 && sum != want) || left != 0;
}

/* One replay on a fresh table. Sums the time of the calls, like the reference. */
static uint64_t replay_trace(struct bench *bench, const struct pbt *t, struct kvr_overlap *out,
			     struct kvr_hist *hist, double ns[2])
{
	double tick = 1e9 / (double)rte_get_tsc_hz();
	uint64_t acc = 0, find = 0, events = 0;

	for (uint32_t i = 0; i < t->nrow; i++) {
		const struct pbt_row *r = &t->row[i];
		struct kvr_prefix_query q = {r->sh, r->n, out};
		uint64_t t0 = rte_rdtsc(), t1, t2;

		kvr_prefix_score_burst(bench->t, &q, 1);
		t1 = rte_rdtsc();
		rte_rcu_qsbr_quiescent(bench->qsbr, 0);
		kvr_prefix_apply_burst(bench->t, r->ev, r->nev);
		t2 = rte_rdtsc();
		find += t1 - t0;
		events += t2 - t1;
		kvr_hist_add(hist, (uint64_t)((double)(t1 - t0) * tick));
		acc = acc * 31 + pb_checksum(out);
	}
	ns[0] = (double)find * tick;
	ns[1] = (double)events * tick;
	return acc;
}

static uint64_t expected_trace(const struct pbt *t, uint32_t workers)
{
	if (t->nrow != 12031 || t->queried != 9232000)
		return 0;
	return workers == 16 ? 0x3671a2494dba2900 : workers == 64 ? 0x66f0aab1c06dbee0 : 0;
}

static int run_trace(struct bench *bench, const char *file, uint32_t workers)
{
	static struct kvr_hist hist;
	double ops[REPS], find[REPS], events[REPS], ns[2];
	uint64_t acc = 0, want;
	struct kvr_overlap *out = alloc_lines(kvr_overlap_size(workers));
	struct pbt t;

	if (!pbt_load(&t, file, workers, (struct pbt_hooks){0})) {
		perror(file);
		return 1;
	}
	start_bench_eal(bench, (uint64_t)workers * PBT_LRU * 40);
	bench->chain_ns = bench_chain_ns();
	want = expected_trace(&t, workers);
	for (uint32_t i = 0; i < REPS; i++) {
		open_table(bench, workers, (uint64_t)workers * PBT_LRU + 65536,
			   workers * PBT_LRU / 16);
		memset(&hist, 0, sizeof(hist));
		acc = replay_trace(bench, &t, out, &hist, ns);
		ops[i] = (double)(t.queried + t.stored + t.removed) / (ns[0] + ns[1]) * 1e3;
		find[i] = ns[0] / t.nrow;
		events[i] = (double)(t.stored + t.removed) / ns[1] * 1e3;
		if (get_stats(bench).evicted_runs > 0 || get_stats(bench).dropped > 0)
			add_text("error", "table too small");
		close_table(bench);
	}
	add_field("workers", workers);
	add_field("rows", t.nrow);
	add_field("queried", (double)t.queried);
	add_field("stored", (double)t.stored);
	add_field("removed", (double)t.removed);
	add_field("block_mops_s", take_median(ops, REPS));
	add_field("block_mops_s_best",
		  ops[REPS - 1]); /* sorted by take_median(); noise only slows down */
	add_field("find_ns_mean", take_median(find, REPS));
	add_field("find_ns_p50", (double)kvr_hist_quantile(&hist, 0.5));
	add_field("find_ns_p99", (double)kvr_hist_quantile(&hist, 0.99));
	add_field("events_mblk_s", take_median(events, REPS));
	add_text("checksum", format_hex(acc));
	add_text("checksum_is", check_sum(acc, want));
	add_field("chain_ns", bench->chain_ns);
	add_field("machine_factor", bench->chain_ns / BENCH_REFERENCE_NS);
	free(out);
	return want != 0 && acc != want;
}

static void add_field_copy(const char *name, double v)
{
	add_field(strdup(name), v);
}

/* Clear one rank of a full table, then all others at once. */
static int run_clear(struct bench *bench, uint32_t w, uint32_t d, uint64_t t)
{
	struct bench_clear c = {.ranks = w, .report = add_field_copy};
	uint64_t unique;

	pb_init(&bench->w, w, d, t);
	unique = (uint64_t)PB_GROUPS * bench->w.p + (uint64_t)bench->w.nseq * (d - bench->w.p);
	start_bench_eal(bench, (unique + (1u << 20)) * 40);
	bench->chain_ns = bench_chain_ns();
	open_table(bench, w + 1, unique + (1u << 12),
		   (uint64_t)bench->w.nseq * ((d - bench->w.p + 511) / 512) +
			   PB_GROUPS * (bench->w.p / 512 + 2) + 4096);
	apply_events(bench, &bench->w.store, bench->w.entries);
	add_field("ranks", w);
	add_field("blocks", d);
	add_field("entries", (double)get_stats(bench).entries);
	add_field("runs", (double)get_stats(bench).runs);
	c.t = bench->t;
	c.qsbr = bench->qsbr;
	bench_clear(&c);
	while (kvr_prefix_maintain(bench->t, 1) > 0)
		rte_rcu_qsbr_quiescent(bench->qsbr, 0);
	add_field("left_bytes", (double)get_stats(bench).used_bytes);
	add_field("chain_ns", bench->chain_ns);
	add_field("machine_factor", bench->chain_ns / BENCH_REFERENCE_NS);
	return get_stats(bench).used_bytes != 0;
}

static uint64_t parse_amount(const char *s)
{
	char *end;
	double v = strtod(s, &end);

	return (uint64_t)(v * (*end == 'M' || *end == 'm'   ? 1e6
			       : *end == 'K' || *end == 'k' ? 1e3
							    : 1));
}

static int print_usage(void)
{
	fprintf(stderr,
		"usage: bench-prefix --ranks W --blocks D --entries T [--json]\n"
		"       bench-prefix --clear --ranks W --blocks D --entries T [--json]\n"
		"       bench-prefix --trace FILE --workers W [--json]\n"
		"W 1..%u, D 2..65536, T at least 1000 (4M is 4,000,000)\n",
		KVR_PREFIX_MAX_RANKS);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option opt[] = {
		{"ranks", required_argument, NULL, 'r'},   {"blocks", required_argument, NULL, 'b'},
		{"entries", required_argument, NULL, 'e'}, {"trace", required_argument, NULL, 't'},
		{"workers", required_argument, NULL, 'w'}, {"clear", no_argument, NULL, 'c'},
		{"json", no_argument, NULL, 'j'},	   {NULL, 0, NULL, 0}};
	uint64_t ranks = 64, blocks = 512, entries = 1000000;
	const char *trace = NULL;
	static struct bench bench;
	bool clear = false;
	int c, ret;

	while ((c = getopt_long(argc, argv, "", opt, NULL)) != -1) {
		if (c == 'r' || c == 'w')
			ranks = parse_amount(optarg);
		else if (c == 'b')
			blocks = parse_amount(optarg);
		else if (c == 'e')
			entries = parse_amount(optarg);
		else if (c == 't')
			trace = optarg;
		else if (c == 'c')
			clear = true;
		else if (c == 'j')
			bench.json = true;
		else
			return print_usage();
	}
	if (optind != argc || ranks < 1 || ranks > KVR_PREFIX_MAX_RANKS || blocks < 2 ||
	    blocks > 65536 || entries < 1000 || entries > 1000000000)
		return print_usage();
	if (clear && ranks == KVR_PREFIX_MAX_RANKS)
		return print_usage(); /* the benchmark needs one rank without blocks */
	ret = trace   ? run_trace(&bench, trace, (uint32_t)ranks)
	      : clear ? run_clear(&bench, (uint32_t)ranks, (uint32_t)blocks, entries)
		      : run_workload(&bench, (uint32_t)ranks, (uint32_t)blocks, entries);
	print_fields(bench.json);
	return ret;
}
