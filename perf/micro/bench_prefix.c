/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The prefix table on the workload of the reference measurements.
 *
 *   bench-prefix --ranks W --blocks D --entries T [--json]
 *   bench-prefix --clear --ranks W --blocks D --entries T [--json]
 *   bench-prefix --trace FILE --workers W [--json]
 *
 * Work is built beforehand and is the same to the bit; the checksum proves it. Queries go in
 * bursts of 32, as an ingress lcore has them, events in bursts of 32, as the event lcore drains
 * its ring; p50, p99 and the means by class are of single queries, each with its own clock read.
 * Figures are medians over repetitions. machine_factor is this machine against the reference
 * one (chain hash of a block: 3.7 ns there): reference figures times it compare with ours.
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

/* What a run found; printed in this order. */
struct field {
	const char *name;
	double v;
	const char *text;
};

static struct field field[64];
static uint32_t nfield;

static void say(const char *name, double v)
{
	field[nfield++] = (struct field){name, v, NULL};
}

static void say_text(const char *name, const char *text)
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

static double median(double *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), bench_by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

#define MALLOC_WORDS 2u /* glibc's own, between two pieces of memory */

/*
 * Queries lie in memory as pieces of malloc() do that were asked for one after the other: what an
 * array of requests is, each with hashes of its own. A query of 512 hashes begins 4,112 bytes
 * behind the one before. At 4,096 the first lines of all would share one set of the first cache
 * and put one another out; 64 hashes at 512 would touch eight lines where these touch nine.
 */
static void place_queries(struct bench *b)
{
	b->step = b->w.d + MALLOC_WORDS;
	b->query = pb_alloc(b->w.nquery * b->step * 8);
	for (uint32_t i = 0; i < b->w.nquery; i++)
		memcpy(&b->query[i * b->step], &b->w.query[(size_t)i * b->w.d], (size_t)b->w.d * 8);
}

static void *lines(size_t n)
{
	void *p = aligned_alloc(64, (n + 63) & ~(size_t)63);

	if (p == NULL)
		exit(1);
	memset(p, 0, n);
	return p;
}

static void pin(int cpu)
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

/* Huge pages when enough are free for the largest table of this run, else without. */
static void start_eal(struct bench *b, uint64_t bytes)
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
	for (int i = 0; i < CPU_SETSIZE && b->ncpu < 2; i++) {
		if (CPU_ISSET(i, &set))
			b->cpu[b->ncpu++] = i;
	}
	snprintf(lcore, sizeof(lcore), "0@%d", b->cpu[0]);
	snprintf(mb, sizeof(mb), "%u", 64 + (unsigned int)(bytes >> 23));
	/* An EAL that failed cannot be started again. */
	if ((huge ? rte_eal_init(7, hugepages) : rte_eal_init(10, plain)) < 0) {
		fprintf(stderr, "EAL does not start\n");
		exit(1);
	}
	pin(b->cpu[0]);
	say_text("pages", rte_eal_has_hugepages() ? "hugetlb" : "thp-advised");
}

static void open_table(struct bench *b, uint32_t ranks, uint64_t blocks, uint64_t runs)
{
	struct kvr_prefix_conf c = {.name = "bench",
				    .max_ranks = ranks,
				    .max_blocks = (uint32_t)blocks,
				    .max_runs = (uint32_t)runs,
				    .max_predicted = 64,
				    .socket_id = SOCKET_ID_ANY,
				    .seed = rte_rdtsc()};

	b->qsbr = lines(rte_rcu_qsbr_get_memsize(READERS));
	rte_rcu_qsbr_init(b->qsbr, READERS);
	rte_rcu_qsbr_thread_register(b->qsbr, 0);
	rte_rcu_qsbr_thread_online(b->qsbr, 0);
	c.qsbr = b->qsbr;
	b->t = kvr_prefix_create(&c);
	if (b->t == NULL) {
		perror("table");
		exit(1);
	}
}

static void close_table(struct bench *b)
{
	kvr_prefix_destroy(b->t);
	free(b->qsbr);
}

static struct kvr_prefix_stats stats(const struct bench *b)
{
	struct kvr_prefix_stats s;

	kvr_prefix_stats_get(b->t, &s);
	return s;
}

/* All events; ns a block of `blocks`. The clock stops when the memory is back in the pools. */
static double apply(struct bench *b, const struct pb_events *e, uint64_t blocks)
{
	double start = bench_now_ns();

	for (uint32_t i = 0; i < e->n; i += BURST) {
		kvr_prefix_apply_burst(b->t, &e->ev[i], e->n - i < BURST ? e->n - i : BURST);
		rte_rcu_qsbr_quiescent(b->qsbr, 0);
	}
	while (kvr_prefix_maintain(b->t, 1) > 0)
		rte_rcu_qsbr_quiescent(b->qsbr, 0);
	return (bench_now_ns() - start) / (double)blocks;
}

struct reader {
	struct bench *b;
	struct kvr_overlap *out[BURST];
	uint32_t id, from, to, passes;
	int cpu;
	double ns; /* a query */
};

static void reader_init(struct reader *r, struct bench *b, uint32_t id)
{
	*r = (struct reader){.b = b, .id = id, .to = b->w.nquery};
	for (uint32_t i = 0; i < BURST; i++)
		r->out[i] = lines(kvr_overlap_size(b->w.ranks));
}

static void reader_free(struct reader *r)
{
	for (uint32_t i = 0; i < BURST; i++)
		free(r->out[i]);
}

/* One pass over the reader's queries in bursts; ns a query. */
static double pass(struct reader *r, uint32_t burst)
{
	const struct pb *w = &r->b->w;
	struct kvr_prefix_query q[BURST];
	double start = bench_now_ns();

	for (uint32_t i = r->from; i < r->to; i += burst) {
		uint32_t n = r->to - i < burst ? r->to - i : burst;

		for (uint32_t k = 0; k < n; k++)
			q[k] = (struct kvr_prefix_query){&r->b->query[(i + k) * r->b->step], w->d,
							 r->out[k]};
		kvr_prefix_score_burst(r->b->t, q, n);
		rte_rcu_qsbr_quiescent(r->b->qsbr, r->id);
	}
	return (bench_now_ns() - start) / (r->to - r->from);
}

/* The first pass dropped, two kept. */
static double find_mean(struct reader *r, uint32_t burst)
{
	double first = pass(r, burst);

	(void)first;
	first = pass(r, burst);
	return (first + pass(r, burst)) / 2;
}

static uint64_t checksum(struct bench *b, struct reader *r)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < b->w.nquery; i++) {
		struct kvr_prefix_query q = {&b->query[i * b->step], b->w.d, r->out[0]};

		kvr_prefix_score_burst(b->t, &q, 1);
		sum += pb_checksum(r->out[0]);
	}
	return sum;
}

/*
 * The clock for single calls. What came before is over when it is read, by the same fence that the
 * reference has: rte_rdtsc_precise() has the dearer one, 10 ns more for a call of 25.
 */
static inline uint64_t clock_ticks(void)
{
	rte_smp_mb();
	return rte_rdtsc();
}

/* Single queries, a clock read each: quantiles, and means by class. */
static void find_single(struct bench *b, struct reader *r)
{
	static struct kvr_hist h;
	double hz = (double)rte_get_tsc_hz(), sum[4] = {0}, n[4] = {0};

	for (uint32_t i = 0; i < b->w.nquery; i++) {
		struct kvr_prefix_query q = {&b->query[i * b->step], b->w.d, r->out[0]};
		uint64_t start = clock_ticks(), ticks;

		kvr_prefix_score_burst(b->t, &q, 1);
		ticks = clock_ticks() - start;
		kvr_hist_add(&h, (uint64_t)((double)ticks * 1e10 / hz)); /* tenths of ns */
		sum[b->w.qclass[i]] += (double)ticks * 1e9 / hz;
		n[b->w.qclass[i]]++;
	}
	say("find_ns_p50", (double)kvr_hist_quantile(&h, 0.5) / 10);
	say("find_ns_p99", (double)kvr_hist_quantile(&h, 0.99) / 10);
	say("find_full_ns", (sum[0] + sum[1]) / (n[0] + n[1]));
	say("find_partial_ns", sum[2] / n[2]);
	say("find_miss_ns", sum[3] / n[3]);
}

static void *read_half(void *arg)
{
	struct reader *r = arg;
	double start;

	pin(r->cpu);
	rte_rcu_qsbr_thread_register(r->b->qsbr, r->id);
	rte_rcu_qsbr_thread_online(r->b->qsbr, r->id);
	start = bench_now_ns();
	for (uint32_t i = 0; i < r->passes; i++)
		pass(r, BURST);
	r->ns = bench_now_ns() - start;
	rte_rcu_qsbr_thread_offline(r->b->qsbr, r->id);
	rte_rcu_qsbr_thread_unregister(r->b->qsbr, r->id);
	return NULL;
}

/* Finds a second of `n` readers, in thousands; each has its share of the queries. */
static double readers_k_s(struct bench *b, uint32_t n, uint32_t passes)
{
	struct reader r[2];
	pthread_t id[2];
	double slowest = 0;

	for (uint32_t i = 0; i < n; i++) {
		reader_init(&r[i], b, 1 + i);
		r[i].from = b->w.nquery / n * i;
		r[i].to = b->w.nquery / n * (i + 1);
		r[i].passes = passes;
		r[i].cpu = b->cpu[(i + 1) % b->ncpu];
		pthread_create(&id[i], NULL, read_half, &r[i]);
	}
	for (uint32_t i = 0; i < n; i++) {
		pthread_join(id[i], NULL);
		slowest = r[i].ns > slowest ? r[i].ns : slowest;
		reader_free(&r[i]);
	}
	return (double)b->w.nquery / n * n * passes / slowest * 1e6;
}

/* New sequences of known pairs: M suffixes to store and remove over and over. */
static void make_churn(const struct bench *b, struct pb_events *store, struct pb_events *removal,
		       uint64_t *blocks)
{
	const struct pb *w = &b->w;
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

static void *write_churn(void *arg)
{
	struct writer *w = arg;
	double start;

	pin(w->cpu);
	rte_rcu_qsbr_thread_register(w->b->qsbr, 3);
	rte_rcu_qsbr_thread_online(w->b->qsbr, 3);
	w->runs = true;
	start = bench_now_ns();
	while (!w->stop) {
		for (int k = 0; k < 2; k++) {
			const struct pb_events *e = k ? &w->removal : &w->store;

			for (uint32_t i = 0; i < e->n; i += BURST) {
				kvr_prefix_apply_burst(w->b->t, &e->ev[i],
						       e->n - i < BURST ? e->n - i : BURST);
				rte_rcu_qsbr_quiescent(w->b->qsbr, 3);
			}
		}
		w->done += 2 * w->blocks;
	}
	w->ns = bench_now_ns() - start;
	rte_rcu_qsbr_thread_offline(w->b->qsbr, 3);
	rte_rcu_qsbr_thread_unregister(w->b->qsbr, 3);
	return NULL;
}

static void find_beside_writer(struct bench *b, struct reader *r)
{
	static struct writer w;
	double v[3 * REPS], alone[3 * REPS];
	pthread_t id;

	w.b = b;
	w.cpu = b->cpu[1 % b->ncpu];
	make_churn(b, &w.store, &w.removal, &w.blocks);
	for (uint32_t i = 0; i < 3 * REPS; i++)
		alone[i] = find_mean(r, BURST);
	pthread_create(&id, NULL, write_churn, &w);
	while (!w.runs)
		sched_yield();
	for (uint32_t i = 0; i < 3 * REPS; i++)
		v[i] = find_mean(r, BURST);
	w.stop = true;
	/* Go on being quiescent, or the writer's pools run dry. */
	rte_rcu_qsbr_thread_offline(b->qsbr, 0);
	pthread_join(id, NULL);
	rte_rcu_qsbr_thread_online(b->qsbr, 0);
	say("find_beside_writer_ns", median(v, 3 * REPS));
	say("find_alone_ns", median(alone, 3 * REPS)); /* as warm as the one beside the writer */
	say("churn_mblk_s", (double)w.done / w.ns * 1e3);
}

/* Decode: 4,096 sequences of a D = 64, T = 1M table grow by 64 blocks, one event a block. */
static void one_block_events(uint32_t ranks)
{
	const uint32_t a = 4096, rounds = 64;
	static struct bench b;
	struct pb_events add = {0}, del = {0};
	uint64_t *sh = pb_alloc((size_t)a * rounds * 8);
	double va[REPS], vd[REPS];

	pb_init(&b.w, ranks, 64, 1000000);
	open_table(&b, ranks, 1500000, b.w.nseq + a + 4096);
	apply(&b, &b.w.store, b.w.entries);
	for (uint32_t i = 0; i < a; i++) {
		struct kvr_rand r = pb_stream(10, i);

		for (uint32_t k = 0; k < rounds; k++)
			sh[(size_t)k * a + i] = kvr_rand_u64(&r);
	}
	for (uint32_t j = 0; j < a * rounds; j++) {
		uint32_t k = j / a, i = j % a;
		const uint64_t *before = k ? &sh[j - a] : &b.w.suffix[(size_t)i * 32 + 31];

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
		va[r] = apply(&b, &add, add.n);
		if (stats(&b).entries != b.w.entries + add.n)
			say_text("error", "appends lost");
		vd[r] = apply(&b, &del, del.n);
	}
	if (stats(&b).entries != b.w.entries || stats(&b).unknown_removes > 0)
		say_text("error", "one-block removes lost");
	close_table(&b);
	say("append1_mev_s", 1e3 / median(va, REPS));
	say("remove1_mev_s", 1e3 / median(vd, REPS));
}

/* Checksums of the reference cells; 0: not among them. */
/*
 * Full caches of blocks that nobody shares: for each sequence of `d` blocks that a rank stores, it
 * removes the one it has had longest, tail to head. In a table of `t` entries, half of them in use.
 */
static void turnover(uint32_t ranks, uint32_t d, uint64_t t)
{
	const uint32_t n = (uint32_t)(t / 2 / d / ranks) * ranks; /* sequences at a time */
	static struct bench b;
	struct pb_events fill = {0}, turn = {0};
	uint64_t *sh, *rev, *next;
	double v[REPS];

	if (n == 0)
		return;
	sh = pb_alloc((size_t)n * 2 * d * 8);
	next = rev = pb_alloc((size_t)n * 2 * d * 8);
	pb_init(&b.w, ranks, 64, 1000000);
	open_table(&b, ranks, t, 4 * n + 4096);
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
	apply(&b, &fill, (uint64_t)n * d);
	for (uint32_t i = 0; i < REPS; i++)
		v[i] = apply(&b, &turn, (uint64_t)n * 4 * d);
	if (stats(&b).entries != (uint64_t)n * d ||
	    stats(&b).dropped + stats(&b).evicted_runs + stats(&b).unknown_removes > 0)
		say_text("error", "blocks lost in the turnover");
	close_table(&b);
	free(sh);
	free(rev);
	say("turnover_mblk_s", 1e3 / median(v, REPS));
}

static uint64_t expected(uint32_t w, uint32_t d, uint64_t t)
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

static const char *hex(uint64_t v)
{
	char *s = pb_alloc(17);

	snprintf(s, 17, "%016llx", (unsigned long long)v);
	return s;
}

static const char *verdict(uint64_t got, uint64_t want)
{
	return want == 0 ? "no reference" : got == want ? "verified" : "WRONG";
}

static int run_workload(struct bench *b, uint32_t w, uint32_t d, uint64_t t)
{
	double store[REPS], removal[REPS], find[REPS], single[REPS];
	uint64_t unique, sum = 0, left = 0, want = expected(w, d, t);
	struct kvr_prefix_stats s;
	struct reader r;

	pb_init(&b->w, w, d, t);
	place_queries(b);
	unique = (uint64_t)PB_GROUPS * b->w.p + (uint64_t)b->w.nseq * (d - b->w.p);
	start_eal(b, (unique + (1u << 20)) * 40);
	b->chain_ns = bench_chain_ns();
	open_table(b, w, unique + (1u << 19),
		   (uint64_t)b->w.nseq * ((d - b->w.p + 511) / 512) + 262144 / (d - b->w.p) +
			   PB_GROUPS * (b->w.p / 512 + 2) + 4096);
	reader_init(&r, b, 0);
	say("ranks", w);
	say("blocks", d);
	say("entries", (double)b->w.entries);
	say_text("isa", kvr_prefix_isa_name(b->t));
	for (uint32_t i = 0; i < REPS; i++) {
		store[i] = apply(b, &b->w.store, b->w.entries);
		find[i] = find_mean(&r, BURST);
		single[i] = find_mean(&r, 1);
		if (i + 1 < REPS)
			removal[i] = apply(b, &b->w.remove, b->w.entries);
	}
	s = stats(b);
	sum = checksum(b, &r);
	say_text("checksum", hex(sum));
	say_text("checksum_is", verdict(sum, want));
	say("find_ns_mean", median(find, REPS));
	say("find_ns_mean_single", median(single, REPS));
	find_single(b, &r);
	rte_rcu_qsbr_thread_offline(b->qsbr, 0); /* the readers are other threads now */
	if (b->ncpu > 1) {
		double one[REPS], two[REPS], ratio[REPS];

		for (uint32_t i = 0; i < REPS; i++) {
			one[i] = readers_k_s(b, 1, 3);
			two[i] = readers_k_s(b, 2, 3);
			ratio[i] = two[i] / one[i];
		}
		say("find_1reader_k_s", median(one, REPS));
		say("find_2readers_k_s", median(two, REPS));
		say("readers_ratio", median(ratio, REPS));
	}
	rte_rcu_qsbr_thread_online(b->qsbr, 0);
	if (b->ncpu > 1)
		find_beside_writer(b, &r);
	say("runs", (double)s.runs);
	say("bytes_per_entry", (double)s.used_bytes / (double)b->w.entries);
	say("reserved_per_entry", (double)s.memory_bytes / (double)b->w.entries);
	removal[REPS - 1] = apply(b, &b->w.remove, b->w.entries);
	say("store_mblk_s", 1e3 / median(store, REPS));
	say("remove_mblk_s", 1e3 / median(removal, REPS));
	left = stats(b).used_bytes;
	say("left_bytes", (double)left);
	/* Beside a preempted reader the writer may run out of memory that comes back later. */
	say("churn_dropped", (double)stats(b).dropped);
	if (checksum(b, &r) != 0 || s.dropped > 0 || s.evicted_runs > 0)
		say_text("error", "blocks left or lost");
	reader_free(&r);
	close_table(b);
	one_block_events(w);
	turnover(w, d, t < 1000000 ? t : 1000000);
	say("chain_ns", b->chain_ns);
	say("machine_factor", b->chain_ns / BENCH_REFERENCE_NS);
	return (want != 0 && sum != want) || left != 0;
}

/* One replay on a fresh table. The summed time of the calls, as the reference has it. */
static uint64_t replay(struct bench *b, const struct pbt *t, struct kvr_overlap *out,
		       struct kvr_hist *h, double ns[2])
{
	double tick = 1e9 / (double)rte_get_tsc_hz();
	uint64_t acc = 0, find = 0, events = 0;

	for (uint32_t i = 0; i < t->nrow; i++) {
		const struct pbt_row *r = &t->row[i];
		struct kvr_prefix_query q = {r->sh, r->n, out};
		uint64_t t0 = rte_rdtsc(), t1, t2;

		kvr_prefix_score_burst(b->t, &q, 1);
		t1 = rte_rdtsc();
		rte_rcu_qsbr_quiescent(b->qsbr, 0);
		kvr_prefix_apply_burst(b->t, r->ev, r->nev);
		t2 = rte_rdtsc();
		find += t1 - t0;
		events += t2 - t1;
		kvr_hist_add(h, (uint64_t)((double)(t1 - t0) * tick));
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

static int run_trace(struct bench *b, const char *file, uint32_t workers)
{
	static struct kvr_hist h;
	double ops[REPS], find[REPS], events[REPS], ns[2];
	uint64_t acc = 0, want;
	struct kvr_overlap *out = lines(kvr_overlap_size(workers));
	struct pbt t;

	if (!pbt_load(&t, file, workers, (struct pbt_hooks){0})) {
		perror(file);
		return 1;
	}
	start_eal(b, (uint64_t)workers * PBT_LRU * 40);
	b->chain_ns = bench_chain_ns();
	want = expected_trace(&t, workers);
	for (uint32_t i = 0; i < REPS; i++) {
		open_table(b, workers, (uint64_t)workers * PBT_LRU + 65536, workers * PBT_LRU / 16);
		memset(&h, 0, sizeof(h));
		acc = replay(b, &t, out, &h, ns);
		ops[i] = (double)(t.queried + t.stored + t.removed) / (ns[0] + ns[1]) * 1e3;
		find[i] = ns[0] / t.nrow;
		events[i] = (double)(t.stored + t.removed) / ns[1] * 1e3;
		if (stats(b).evicted_runs > 0 || stats(b).dropped > 0)
			say_text("error", "table too small");
		close_table(b);
	}
	say("workers", workers);
	say("rows", t.nrow);
	say("queried", (double)t.queried);
	say("stored", (double)t.stored);
	say("removed", (double)t.removed);
	say("block_mops_s", median(ops, REPS));
	say("block_mops_s_best", ops[REPS - 1]); /* sorted by now; noise only slows */
	say("find_ns_mean", median(find, REPS));
	say("find_ns_p50", (double)kvr_hist_quantile(&h, 0.5));
	say("find_ns_p99", (double)kvr_hist_quantile(&h, 0.99));
	say("events_mblk_s", median(events, REPS));
	say_text("checksum", hex(acc));
	say_text("checksum_is", verdict(acc, want));
	say("chain_ns", b->chain_ns);
	say("machine_factor", b->chain_ns / BENCH_REFERENCE_NS);
	free(out);
	return want != 0 && acc != want;
}

static void say_copy(const char *name, double v)
{
	say(strdup(name), v);
}

/* One rank of a full table is cleared, then all others at once. */
static int run_clear(struct bench *b, uint32_t w, uint32_t d, uint64_t t)
{
	struct bench_clear c = {.ranks = w, .say = say_copy};
	uint64_t unique;

	pb_init(&b->w, w, d, t);
	unique = (uint64_t)PB_GROUPS * b->w.p + (uint64_t)b->w.nseq * (d - b->w.p);
	start_eal(b, (unique + (1u << 20)) * 40);
	b->chain_ns = bench_chain_ns();
	open_table(b, w + 1, unique + (1u << 12),
		   (uint64_t)b->w.nseq * ((d - b->w.p + 511) / 512) +
			   PB_GROUPS * (b->w.p / 512 + 2) + 4096);
	apply(b, &b->w.store, b->w.entries);
	say("ranks", w);
	say("blocks", d);
	say("entries", (double)stats(b).entries);
	say("runs", (double)stats(b).runs);
	c.t = b->t;
	c.qsbr = b->qsbr;
	bench_clear(&c);
	while (kvr_prefix_maintain(b->t, 1) > 0)
		rte_rcu_qsbr_quiescent(b->qsbr, 0);
	say("left_bytes", (double)stats(b).used_bytes);
	say("chain_ns", b->chain_ns);
	say("machine_factor", b->chain_ns / BENCH_REFERENCE_NS);
	return stats(b).used_bytes != 0;
}

static uint64_t number(const char *s)
{
	char *end;
	double v = strtod(s, &end);

	return (uint64_t)(v * (*end == 'M' || *end == 'm'   ? 1e6
			       : *end == 'K' || *end == 'k' ? 1e3
							    : 1));
}

static int usage(void)
{
	fprintf(stderr,
		"usage: bench-prefix --ranks W --blocks D --entries T [--json]\n"
		"       bench-prefix --clear --ranks W --blocks D --entries T [--json]\n"
		"       bench-prefix --trace FILE --workers W [--json]\n"
		"W 1..%u, D 2..65536, T from 1000 on (4M is 4,000,000)\n",
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
	static struct bench b;
	bool clear = false;
	int c, ret;

	while ((c = getopt_long(argc, argv, "", opt, NULL)) != -1) {
		if (c == 'r' || c == 'w')
			ranks = number(optarg);
		else if (c == 'b')
			blocks = number(optarg);
		else if (c == 'e')
			entries = number(optarg);
		else if (c == 't')
			trace = optarg;
		else if (c == 'c')
			clear = true;
		else if (c == 'j')
			b.json = true;
		else
			return usage();
	}
	if (optind != argc || ranks < 1 || ranks > KVR_PREFIX_MAX_RANKS || blocks < 2 ||
	    blocks > 65536 || entries < 1000 || entries > 1000000000)
		return usage();
	if (clear && ranks == KVR_PREFIX_MAX_RANKS)
		return usage(); /* one more has nothing */
	ret = trace   ? run_trace(&b, trace, (uint32_t)ranks)
	      : clear ? run_clear(&b, (uint32_t)ranks, (uint32_t)blocks, entries)
		      : run_workload(&b, (uint32_t)ranks, (uint32_t)blocks, entries);
	print_fields(b.json);
	return ret;
}
